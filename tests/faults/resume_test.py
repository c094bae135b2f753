"""A run that is killed or stopped, as often as it may be, and started again by the same command, ends as one never stopped: the
same weights and optimizer bit for bit, the same figures, each step once."""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess

import pytest

from tests.launch import launching
from tests.program import BINARY, CALLED

RECIPE = "tests/recipes/digits_small.yaml"
STEP_LINE = re.compile(r"(?<!resumed at )\bstep (\d+)/(\d+)")  # of a step that was trained: from then on signals are heeded
PIPE_BYTES = 4096  # the least the kernel gives
MOST_LINES_AHEAD = PIPE_BYTES // 50  # how far a run gets before it waits for the test to read what it said
MOST_LINES_WAITING = 8  # to be written to metrics.jsonl, which a thread of its own does; on a busy machine 2 were seen
TIMING = {"time", "train/samples_per_second"}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    num_steps: int
    every_steps: int  # a line of figures
    overrides: tuple[str, ...]

    def __str__(self):
        return self.name

    def draw_steps(self, count: int, seed: int) -> list[int]:
        """Steps to interrupt at, early enough that the run cannot end before the test has done so."""
        last = self.num_steps - MOST_LINES_AHEAD * self.every_steps
        return sorted(random.Random(seed).sample(range(1, last), count))


# 45 batches an epoch, the last of 30 samples.
CASES = [
    Case("one cycle, accumulation, clipping, two workers", 23 * 12, 1, (
        "training={num_epochs: 12, gradient_accumulation_steps: 2, max_grad_norm: 1.0}", "dataloader.num_workers=2",
        "scheduler={type: OneCycleLR, max_lr: 0.01}", "checkpoint.every=7")),
    Case("plateau, batch norm, random crops", 44 * 6, 1, (
        "model.layers=[{type: Conv2d, out_channels: 8, kernel_size: 3}, BatchNorm2d, ReLU, Dropout2d, Flatten, "
        "{type: Linear, out_features: 10}]",
        "dataset.train_transforms=[{type: RandomCrop, size: 8, padding: 1}]", "dataloader.drop_last=true",
        "dataloader.num_workers=0", "optimizer={type: SGD, lr: 0.1, momentum: 0.9}",
        "scheduler={type: ReduceLROnPlateau, patience: 0, factor: 0.7, threshold: 0.2}", "training.num_epochs=6",
        "evaluation.every=9", "checkpoint={every: 4, keep_last: 3, keep_best: {monitor: eval/accuracy, mode: max}}")),
    Case("by epoch, a line every third step", 45 * 10, 3, (
        "training.num_epochs=10", "scheduler={type: StepLR, interval: epoch, step_size: 2}",
        "optimizer={type: Adam, lr: 0.003, amsgrad: true, param_groups: [{match: bias$, lr: 0.01}]}",
        "dataloader.num_workers=1", "checkpoint={every: epoch, background: false}")),
]


def arguments(folder: pathlib.Path, case: Case) -> list[str]:
    return [RECIPE, f"logging.every_steps={case.every_steps}", f"output_dir={folder}", *case.overrides]


@contextlib.contextmanager
def started(folder: pathlib.Path, case: Case):
    """A run that is at most PIPE_BYTES of output ahead of who reads its lines; killed if it outlives the test."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    process = subprocess.Popen([BINARY, *arguments(folder, case)], stdout=writing, stderr=subprocess.STDOUT)
    os.close(writing)
    with open(reading, "rb", buffering=0) as output:  # unbuffered: what we have not read is still in the pipe
        try:
            yield process, output
        finally:
            process.kill()
            process.wait()


def read_until(output, step: int, said: list[str]):
    """Reads lines until one of optimizer step `step`, or a later one."""
    for line in output:
        line = line.decode()
        said.append(line)
        found = STEP_LINE.search(line)
        if found and int(found[1]) >= step:
            return
    raise AssertionError(f"the run ended before step {step}:\n{''.join(said[-20:])}")


def finish(folder: pathlib.Path, case: Case):
    done = subprocess.run([CALLED, *arguments(folder, case)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lines_of(folder: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def outcome(folder: pathlib.Path) -> dict:
    """All that a run leaves, but what measures time."""
    checkpoints = folder / "checkpoints"
    state = json.loads((checkpoints / "latest" / "state.json").read_text())
    return {
        "model": sha256(checkpoints / "latest" / "model.safetensors"),
        "optimizer": sha256(checkpoints / "latest" / "optimizer.safetensors"),
        "state": {key: value for key, value in state.items() if key not in ("digest", "seconds", "seconds_of")},
        "checkpoints": {path.name: sha256(path / "model.safetensors") for path in sorted(checkpoints.iterdir())},
        "metrics": [{k: v for k, v in line.items() if k not in TIMING} for line in lines_of(folder)],
        "folders beside": sorted(path.name.replace(folder.name, "RUN") for path in folder.parent.glob(folder.name + "*")),
    }


def assert_same_outcome(actual: dict, expected: dict):
    for part in expected:  # one by one: pytest shows what differs
        assert actual[part] == expected[part], part


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The outcome of a case's run that nobody stopped; each is run once."""
    outcomes = {}

    def of(case: Case) -> dict:
        if case not in outcomes:
            folder = tmp_path_factory.mktemp("undisturbed") / "run"
            finish(folder, case)
            outcomes[case] = outcome(folder)
        return outcomes[case]

    return of


def trained_steps(lines: list[dict]) -> list[int]:
    return [line["step"] for line in lines if "train/loss" in line]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_undisturbed_run_is_what_the_tests_take_it_for(undisturbed, case):
    result = undisturbed(case)
    assert trained_steps(result["metrics"]) == list(range(case.every_steps, case.num_steps + 1, case.every_steps))
    assert result["state"]["step"] == case.num_steps
    assert len(result["checkpoints"]) >= 3  # two, and the link to the latest
    assert len({line["train/lr"] for line in result["metrics"] if "train/lr" in line}) > 1


@pytest.mark.parametrize("seed", [1, 2] if os.environ.get("TRAINRUN_LONG_TESTS") else [1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_three_times(undisturbed, case, seed, tmp_path):
    folder = tmp_path / "run"
    for step in case.draw_steps(3, seed):
        with started(folder, case) as (process, output):
            read_until(output, step, [])
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    finish(folder, case)
    assert_same_outcome(outcome(folder), undisturbed(case))


def test_killed_at_each_sync_of_a_checkpoint_that_is_written_in_the_background(undisturbed, tmp_path):
    """Five syncs write a checkpoint: the sixth to the tenth of the writing thread are its second's. No other thread makes as many."""
    case, folder = CASES[0], tmp_path / "run"
    strace = [launching.need("strace"), "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync"]
    for sync in range(6, 11):
        kill = ["-e", f"inject=fsync:signal=KILL:when={sync}"]
        killed = subprocess.run([*strace, *kill, BINARY, *arguments(folder, case)], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    finish(folder, case)
    assert_same_outcome(outcome(folder), undisturbed(case))


@pytest.mark.parametrize("case, number", [*((case, signal.SIGTERM) for case in CASES), (CASES[0], signal.SIGINT)], ids=str)
def test_stopped_by_a_signal(undisturbed, case, number, tmp_path):
    folder = tmp_path / "run"
    for step in case.draw_steps(2, seed=int(number)):
        with started(folder, case) as (process, output):
            said = []
            read_until(output, step, said)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            before = (trained_steps(lines_of(folder)) or [0])[-1]  # the console is told before metrics.jsonl
            process.send_signal(number)  # it finds the signal as it wakes
            process.send_signal(signal.SIGCONT)
            said.append(output.read().decode())
            assert process.wait() == 128 + number, "".join(said)
        saved = json.loads((folder / "checkpoints" / "latest" / "state.json").read_text())["step"]
        most = before + case.every_steps * MOST_LINES_WAITING
        assert before <= saved <= most, "it went on after the step in which the signal came"
        assert trained_steps(lines_of(folder))[-1] <= saved
        assert not (folder / "summary.json").exists()
    finish(folder, case)
    expected = undisturbed(case)
    # A stop saves where no checkpoint was due, so which older ones are kept may differ; all else is the same.
    actual = outcome(folder)
    kept = {"model", "optimizer", "state", "metrics", "folders beside"}
    assert_same_outcome({part: actual[part] for part in kept}, {part: expected[part] for part in kept})


def test_a_stop_asked_twice_saves_once_and_resumes(undisturbed, tmp_path):
    case, folder = CASES[0], tmp_path / "run"
    with started(folder, case) as (process, output):
        said = []
        read_until(output, 20, said)
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        said += output
        assert process.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT), "".join(said)
    finish(folder, case)
    assert outcome(folder)["model"] == undisturbed(case)["model"]


def test_resume_from_a_path_starts_another_run_there_and_then_goes_on_by_itself(undisturbed, tmp_path):
    """`resume: PATH` is where a new run begins; killed, it goes on from its own newest checkpoint, not from PATH again."""
    case, first, second = CASES[0], tmp_path / "first", tmp_path / "second"
    with started(first, case) as (process, output):
        read_until(output, 40, [])
        process.send_signal(signal.SIGTERM)
        output.read()
        assert process.wait() == 128 + signal.SIGTERM
    saved = json.loads((first / "checkpoints" / "latest" / "state.json").read_text())["step"]
    from_first = dataclasses.replace(case, overrides=(*case.overrides, f"checkpoint.resume={first}/checkpoints/latest"))
    with started(second, from_first) as (process, output):
        read_until(output, saved + 30, [])
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = sha256(first / "checkpoints" / "latest" / "model.safetensors")
    done = subprocess.run([CALLED, *arguments(second, from_first)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    resumed_at = int(re.search(r"resumed at step (\d+)/", done.stdout + done.stderr)[1])
    assert resumed_at > saved
    assert outcome(second)["model"] == undisturbed(case)["model"]
    assert outcome(second)["optimizer"] == undisturbed(case)["optimizer"]
    assert trained_steps(lines_of(second))[0] == saved + 1
    assert sha256(first / "checkpoints" / "latest" / "model.safetensors") == before, "the run resumed from is left alone"
