"""torchrun starts the ranks, starts them anew where one dies, and goes on with fewer or more."""

import json
import re
import signal
import subprocess

import launching

from tests.program import CALLED

EPOCHS = 10
STEPS = {1: 90, 2: 45, 3: 30}  # in an epoch of 1,438 samples, 16 for each rank


def job(folder, *overrides: str) -> list[str]:
    return launching.command(folder, *launching.RANKS, f"training={{num_epochs: {EPOCHS}}}", "checkpoint={every: 50, keep_last: null}", *overrides)


def state(folder, checkpoint="latest") -> dict:
    return json.loads((folder / "checkpoints" / checkpoint / "state.json").read_text())


def steps_left(place: dict, num_ranks: int) -> int:
    """Of a job that stands there, in its last epochs as many as ranks of that number need."""
    seen = place["batch"] * place["global_batch_size"]
    return STEPS[num_ranks] - seen // (16 * num_ranks) + (EPOCHS - place["epoch"] - 1) * STEPS[num_ranks]


def trained_steps(folder) -> list[int]:
    metrics = folder / "metrics.jsonl"
    whole_lines = metrics.read_text().rpartition("\n")[0] if metrics.exists() else ""
    return [json.loads(line)["step"] for line in whole_lines.splitlines()]


def assert_each_step_once(folder):
    assert trained_steps(folder) == list(range(1, state(folder)["step"] + 1))
    assert state(folder)["epoch"] == EPOCHS


def test_torchrun_trains_as_our_own_launcher(tmp_path, own_losses):
    done = launching.run_torchrun(["--standalone", "--nproc-per-node", "2", *launching.command(tmp_path / "run", *launching.SHORT)])
    assert done.returncode == 0, done.stderr
    launching.assert_trained_as(tmp_path / "run", own_losses)


def test_a_killed_worker_is_started_anew_and_the_run_ends_as_one_never_killed(tmp_path):
    whole = launching.run([CALLED, *job(tmp_path / "whole", "num_processes=2")[1:]])
    assert whole.returncode == 0, whole.stderr
    elastic = launching.start_torchrun(["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", *job(tmp_path / "run")])
    with launching.ending(elastic):
        launching.wait_for(launching.has_trained(tmp_path / "run", 60), elastic)
        launching.kill(launching.ranks_of(tmp_path / "run")[1])
        stdout, stderr = elastic.communicate(timeout=100)
    assert elastic.returncode == 0, stderr
    assert "resumed at step" in stdout
    assert_each_step_once(tmp_path / "run")
    assert launching.losses(tmp_path / "run") == launching.losses(tmp_path / "whole")
    weights = [(tmp_path / folder / "checkpoints/latest/model.safetensors").read_bytes() for folder in ("run", "whole")]
    assert weights[0] == weights[1]


def test_a_stopped_run_goes_on_with_another_number_of_ranks(tmp_path):
    """Of three, two, one: every epoch ends where its samples end."""
    folder = tmp_path / "run"
    for num_ranks in (3, 1):
        arguments = ["--standalone", "--nproc-per-node", str(num_ranks), *job(folder)]
        begin = len(trained_steps(folder))
        elastic = launching.start_torchrun(arguments)
        with launching.ending(elastic):
            launching.wait_for(launching.has_trained(folder, begin + 60), elastic)
            elastic.send_signal(signal.SIGTERM)
            _, stderr = elastic.communicate(timeout=100)
        assert elastic.returncode != 0
        assert not (folder / "summary.json").exists(), "it was not stopped"
        place = state(folder)
        assert place["step"] >= begin + 60, stderr
        assert place["step"] == trained_steps(folder)[-1]
        assert len(place["random"]) == num_ranks
    end = place["step"] + steps_left(place, 2)
    done = launching.run_torchrun(["--standalone", "--nproc-per-node", "2", *job(folder)])
    assert done.returncode == 0, done.stderr
    assert "the checkpoint is of batches of 16 samples over 1 ranks, now it is 32 over 2" in done.stdout
    assert f"resumed at step {place['step']}/{end}" in done.stdout.replace(",", "")
    assert state(folder)["step"] == end
    assert_each_step_once(folder)
    assert launching.losses(folder)[-1] < 0.2 * launching.losses(folder)[0]


def test_an_agent_that_is_lost_and_one_that_comes_later(tmp_path):
    """--nnodes 1:2: a second machine's agent dies, the first goes on alone; another comes and takes part. How often they have
    started ranks anew, the agents then count differently."""
    folder, port = tmp_path / "run", launching.free_port()

    def agent(is_host):
        settings = f"is_host={is_host},last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=5"
        return launching.start_torchrun(
            ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3", "--local-addr", "127.0.0.1", "--rdzv-id", "elastic",
             "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", settings,
             *job(folder, "--quiet", "training.num_epochs=4000", "checkpoint.every=1000", "distributed={timeout: 30}")],
            # an agent of torch 2.11 that comes later waits for ever for where to meet, if agents share their store with ranks
            env=launching.ENVIRONMENT | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def train_together(*agents):
        """Until each has a rank, and they have trained."""
        launching.wait_for(lambda: sorted(rank for a in agents for rank in launching.ranks_of(folder, below=a.pid)) == list(range(len(agents))), *agents)
        begun = len(trained_steps(folder))
        launching.wait_for(launching.has_trained(folder, begun + 21), *agents)

    first, second = agent(1), agent(0)
    with launching.ending(first, second):
        train_together(first, second)
        (lost,) = launching.ranks_of(folder, below=second.pid).values()
        launching.kill(second.pid)
        launching.wait_for(lambda: not launching.is_alive(lost))
        train_together(first)
        third = agent(0)
        with launching.ending(third):
            train_together(first, third)
    notes = re.findall(r"now it is (\d+ over \d)", (folder / "log.txt").read_text())
    assert notes == ["16 over 1", "32 over 2"]
    steps = trained_steps(folder)
    assert steps == list(range(1, len(steps) + 1))
    assert not list(tmp_path.glob("run-*"))
