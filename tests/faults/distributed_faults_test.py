"""Ranks that die, hang or are told to stop; launchers that start them."""

import os
import pathlib
import signal
import subprocess
import time

import pytest

from tests.launch import launching
from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = "tests/recipes/digits_small.yaml"


def command(folder, num_processes, *overrides):
    return [BINARY, RECIPE, f"output_dir={folder}", "distributed_type=MULTI_CPU", f"num_processes={num_processes}", "dataloader={batch_size: 16}",
            "logging.every_steps=1", *overrides]


LONG = ["training={num_epochs: 4000}", "checkpoint.every=1000", "evaluation.every=null"]


EXCHANGES = {"shared memory": {"TRAINRUN_GLOO": ""}, "Gloo": {"TRAINRUN_GLOO": "1"}}


def start(folder, num_processes, *overrides, **variables):
    return subprocess.Popen(command(folder, num_processes, *overrides), cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def children_of(pid: int) -> dict[int, int]:
    """Process by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                environment = dict(line.split("=", 1) for line in (entry / "environ").read_text().split("\0") if "=" in line)
                found[int(environment["RANK"])] = int(entry.name)
        except (FileNotFoundError, ProcessLookupError, KeyError, PermissionError):
            continue
    return found


def wait_until_training(folder, launcher):
    deadline = time.monotonic() + 60
    metrics = pathlib.Path(folder) / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_ends_the_job_and_is_named(tmp_path, victim, exchange):
    launcher = start(tmp_path / "run", 3, *LONG, **EXCHANGES[exchange])
    wait_until_training(tmp_path / "run", launcher)
    ranks = children_of(launcher.pid)
    assert sorted(ranks) == [0, 1, 2]
    os.kill(ranks[victim], signal.SIGKILL)
    _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert f"rank {victim} was killed by signal 9" in stderr
    assert not any(launching.is_alive(pid) for pid in ranks.values())


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_rank_that_hangs_is_named_within_the_timeout(tmp_path, exchange):
    launcher = start(tmp_path / "run", 3, *LONG, "distributed={timeout: 4}", **EXCHANGES[exchange])
    wait_until_training(tmp_path / "run", launcher)
    ranks = children_of(launcher.pid)
    os.kill(ranks[1], signal.SIGSTOP)
    begin = time.monotonic()
    _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert "rank 1 has not answered since step" in stderr
    assert time.monotonic() - begin < 40
    assert not any(launching.is_alive(pid) for pid in ranks.values())


STOPPED = ["training={num_epochs: 16}", "checkpoint.every=100", "evaluation.every=null"]


def finished_weights(folder) -> bytes:
    done = subprocess.run([CALLED, *command(folder, 2, *STOPPED)[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "checkpoints/epoch-0016/model.safetensors").read_bytes()


@pytest.fixture(name="whole", scope="module")
def weights_of_a_run_that_nobody_stopped(tmp_path_factory):
    return finished_weights(tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_ranks_at_one_step_and_the_run_goes_on_to_the_same_end(tmp_path, number, whole):
    launcher = start(tmp_path / "run", 2, *STOPPED)
    wait_until_training(tmp_path / "run", launcher)
    launcher.send_signal(number)
    stdout, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + number, stdout + stderr
    assert "stopped by" in stdout
    assert finished_weights(tmp_path / "run") == whole


def test_a_killed_launcher_takes_its_ranks_along(tmp_path):
    launcher = start(tmp_path / "run", 2, *LONG)
    wait_until_training(tmp_path / "run", launcher)
    ranks = children_of(launcher.pid)
    assert len(ranks) == 2
    launcher.kill()
    launcher.communicate()
    deadline = time.monotonic() + 10
    while any(launching.is_alive(pid) for pid in ranks.values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_bad_recipe_is_told_once_and_nothing_is_started(tmp_path):
    done = subprocess.run(command(tmp_path / "run", 2, "optimizer.lr=fast"), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("expected a number") == 1


def test_torchrun_starts_the_ranks(tmp_path):
    torchrun = ["--nproc-per-node", "2", "--master-port", "0", "--standalone"]
    arguments = [a for a in command(tmp_path / "run", 2, "training={max_steps: 20, num_epochs: null}") if not a.startswith("num_processes")]
    done = launching.run_torchrun([*torchrun, *arguments])
    assert done.returncode == 0, done.stderr
    assert "effective batch 32" in done.stdout
    assert (tmp_path / "run/metrics.jsonl").read_text().count('"split": "train"') == 20
    wrong = launching.run_torchrun([*torchrun, *arguments, "num_processes=3"])
    assert wrong.returncode != 0
    assert "torchrun started 2 processes, but the recipe's num_processes is 3" in wrong.stderr
