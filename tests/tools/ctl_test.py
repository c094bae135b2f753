"""`trainrun ctl` and `trainrun top`: a run is looked at, saved, stopped, profiled and changed while it goes on, and what was changed is
repeated exactly by a resumed run."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess

import pytest

from tests.program import BINARY, CALLED

LONG = ["training={num_epochs: 1000000}", "evaluation.every=null", "checkpoint.every=1000000", "logging.every_steps=10"]
WARMUP = "scheduler={type: LinearWithWarmup, warmup_steps: 50}"
STARTED = []  # by the test that runs


@pytest.fixture(autouse=True)
def no_job_outlives_its_test():
    """These jobs do not end of themselves; whatever the test finds, they are ended."""
    yield
    while STARTED:
        end(STARTED.pop())


def start(folder, *arguments, until="step 10/"):
    job = subprocess.Popen([BINARY, "tests/recipes/digits_small.yaml", f"output_dir={folder}", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    STARTED.append(job)
    wait_for(job, until)
    return job


def wait_for(job, line):
    said = ""
    for text in job.stdout:
        said += text
        if text.startswith(line):
            return
    raise AssertionError(f"it ended before it said {line!r}: {said}")


def end(job):
    job.kill()
    job.stdout.read()
    job.wait()


def stop(job):
    job.send_signal(signal.SIGTERM)
    job.stdout.read()
    assert job.wait() == 128 + signal.SIGTERM


def finish(folder, *arguments, status=0):
    done = subprocess.run([CALLED, "tests/recipes/digits_small.yaml", f"output_dir={folder}", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def ctl(folder, *words, status=0):
    done = subprocess.run([CALLED, "ctl", str(folder), *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(name="run")
def run_that_goes_on(tmp_path):
    folder = tmp_path / "run"
    return folder, start(folder, *LONG)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def history(folder):
    return [json.loads(line) for line in (folder / "recipe_history.jsonl").read_text().splitlines()]


def test_status_and_metrics(run):
    folder, job = run
    mode = (folder / "control.sock").stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    status = json.loads(ctl(folder, "status"))
    assert status["pid"] == job.pid and status["state"] == "training" and status["step"] >= 10
    assert status["total_steps"] == 45_000_000 and status["loss"] > 0 and status["memory"] > 1_000_000 and status["seconds_left"] > 0
    assert status["training"]["train/lr"] == 3e-3
    text = ctl(folder, "metrics")
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    samples = re.findall(r'^(\w+)\{run="digits_small"(?:,figure="([\w/]+)")?\} (\S+)$', text, re.MULTILINE)
    assert len(samples) + 2 * len(kinds) == len(text.splitlines())
    assert {name for name, _, _ in samples} == kinds.keys() and kinds["trainrun_steps_total"] == "counter"
    assert {"train/loss", "train/lr"} <= {figure for _, figure, _ in samples}
    assert all(float(value) >= -1 for _, _, value in samples)


def test_prometheus_reads_the_metrics_by_http(run):
    folder, _ = run
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "control.sock"))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b"")).decode()
    head, body = answer.split("\r\n\r\n", 1)
    assert head.startswith("HTTP/1.1 200 OK\r\n") and f"Content-Length: {len(body)}" in head and "text/plain; version=0.0.4" in head
    assert "# TYPE trainrun_loss gauge\ntrainrun_loss{" in body


def test_save_and_stop(run):
    folder, job = run
    said = ctl(folder, "save")
    step = int(re.fullmatch(r"step (\d+) is saved\n", said)[1])
    assert json.loads((folder / "checkpoints/latest/state.json").read_text())["step"] == step
    said = ctl(folder, "stop")
    last = int(re.fullmatch(r"the run has ended \(SIGTERM\) after step (\d+), which is saved\n", said)[1])
    job.stdout.read()
    assert job.wait() == 128 + signal.SIGTERM and last >= step
    assert not (folder / "control.sock").exists()
    assert f"{folder}: no process trains this run now" in ctl(folder, "status", status=1)


def test_a_change_counts_from_the_next_step_on_and_is_written_down(tmp_path):
    folder = tmp_path / "run"
    groups = "optimizer={type: AdamW, lr: 3e-3, param_groups: [{match: bias, lr: 0.01}]}"
    job = start(folder, *LONG, groups, "logging.every_steps=1")
    said = ctl(folder, "set", "optimizer.lr=1e-4", "logging.every_steps=7")
    first = int(re.match(r"from step (\d+) on: optimizer.lr is 1e-4, it was 0.003, logging.every_steps is 7, it was 1\n", said)[1])
    while max(line["step"] for line in lines_of(folder)) < first + 20:
        assert job.poll() is None
    assert [(one["step"], one["key"], one["value"]) for one in json.loads(ctl(folder, "status"))["changes"]] == [
        (first - 1, "optimizer.lr", "1e-4"), (first - 1, "logging.every_steps", "7")]
    end(job)
    assert [one["key"] for one in history(folder)] == ["optimizer.lr", "logging.every_steps"]
    for line in lines_of(folder):
        assert (line["train/lr/1"], line["train/lr/0"]) == ((1e-4, 0.01) if line["step"] >= first else (3e-3, 0.01)), line["step"]
        assert line["step"] < first or line["step"] % 7 == 0
    assert f"trainrun ctl: from step {first} on, optimizer.lr is 1e-4; it was 0.003" in (folder / "log.txt").read_text()


@pytest.mark.parametrize("words, why", [
    (["set", "model.layers[0].out_channels=4"], "model.layers[0].out_channels cannot be changed while a run goes on; optimizer.lr, logging.every_steps, checkpoint.every, evaluation.every can"),
    (["set", "optimizer.lr=high"], "optimizer.lr: expected a number >= 0, found 'high'; nothing is changed"),
    (["set", "optimizer.lr=1e-4", "checkpoint.every=0"], "checkpoint.every: expected epoch or a number of steps >= 1, found '0'; nothing is changed"),
    (["set", "optimizer.lrr=1"], "did you mean optimizer.lr?"),
])
def test_what_cannot_be_changed_is_refused_with_the_reason(run, words, why):
    folder, _ = run
    assert why in ctl(folder, *words, status=1)
    assert json.loads(ctl(folder, "status"))["changes"] == [] and not (folder / "recipe_history.jsonl").exists()


def test_a_scheduler_with_its_own_rate_is_not_overruled(tmp_path):
    start(tmp_path / "run", "training={num_epochs: 1000000}", "logging.every_steps=10", "scheduler={type: ReduceLROnPlateau, monitor: eval/loss, mode: min}")
    assert "ReduceLROnPlateau keeps a learning rate of its own" in ctl(tmp_path / "run", "set", "optimizer.lr=1", status=1)


@pytest.mark.parametrize("scheduler, type_", [
    ("{type: OneCycleLR, max_lr: 0.01}", "OneCycleLR"),
    ("{type: CyclicLR, base_lr: 0.001, max_lr: 0.01, interval: epoch}", "CyclicLR"),
    ("{type: LinearLR, start_factor: 1, end_factor: 0, total_iters: 5}", "LinearLR"),  # it is 0 by now
])
def test_a_rate_on_which_the_schedule_does_not_depend_is_refused(tmp_path, scheduler, type_):
    folder = tmp_path / "run"
    start(folder, *LONG, "training={max_steps: 1000000}", f"scheduler={scheduler}")
    said = ctl(folder, "set", "logging.every_steps=7", "optimizer.lr=1e-4", status=1)
    assert f"optimizer.lr: no learning rate that {type_} sets from here to the end of the job depends on it; nothing is changed" in said
    assert json.loads(ctl(folder, "status"))["changes"] == [] and not (folder / "recipe_history.jsonl").exists()


def test_a_rate_on_which_the_schedule_depends_only_later_is_changed_and_the_step_is_named(tmp_path):
    folder = tmp_path / "run"
    job = start(folder, *LONG, "training={max_steps: 1000000}", "scheduler={type: Piecewise, points: [[0, 0], [500000, 0], [500001, 1]]}")
    said = ctl(folder, "set", "optimizer.lr=1e-4")
    assert "optimizer.lr is 1e-4, it was 0.003, but before step 500002 no learning rate that Piecewise sets depends on it" in said
    wait_for(job, "warning: trainrun ctl: Piecewise sets learning rates that do not depend on optimizer.lr, at this step at least")


@pytest.mark.parametrize("words, why", [
    (["sav"], "unknown command 'sav'; there are status, metrics, save, stop, profile STEPS, set KEY=VALUE …"),
    (["profile", "many"], "profile needs a number of steps from 1 to 1000, found 'many'"),
    (["set"], "set needs KEY=VALUE"),
    (["save", "now"], "save takes nothing more, found 'now'"),
])
def test_mistakes_are_told_without_a_run(tmp_path, words, why):
    assert why in ctl(tmp_path, *words, status=2)


def test_a_resumed_run_repeats_a_change_exactly(tmp_path):
    """One run goes on after the change to its end. The other is stopped before that step, makes the change as the history says, is killed,
    and goes on from a checkpoint that has it."""
    length = ["training={num_epochs: 1000, max_steps: 6000}", WARMUP, "evaluation.every=null", "checkpoint.every=500", "logging.every_steps=10"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    job = start(whole, *length, until="step 1000/")
    ctl(whole, "set", "optimizer.lr=1e-3")
    job.stdout.read()
    assert job.wait() == 0
    (change,) = history(whole)
    assert change["step"] >= 1000
    stop(start(parts, *length))
    assert max(line["step"] for line in lines_of(parts)) < change["step"]
    shutil.copy(whole / "recipe_history.jsonl", parts)
    job = start(parts, *length, until=f"step {change['step'] // 10 * 10 + 1100}/")
    end(job)
    assert json.loads((parts / "checkpoints/latest/state.json").read_text())["changes"] == [change]
    said = finish(parts, *length)
    assert f"optimizer.lr, which trainrun ctl changed from 0.003 to 1e-3 after step {change['step']}, is 1e-3 again" in said
    assert (parts / "checkpoints/latest/model.safetensors").read_bytes() == (whole / "checkpoints/latest/model.safetensors").read_bytes()
    for a, b in zip(lines_of(whole), lines_of(parts), strict=True):
        assert (a["step"], a["train/loss"], a["train/lr"]) == (b["step"], b["train/loss"], b["train/lr"])
    assert lines_of(whole)[-2]["train/lr"] < 1e-3


def test_all_ranks_make_a_change_after_the_same_step(tmp_path):
    """Two ranks with different learning rates would have different weights, and so would a run that goes on."""
    folder = tmp_path / "run"
    ranks = [*LONG, "distributed_type=MULTI_CPU", "num_processes=2"]
    job = start(folder, *ranks, until="step 1000/")
    ctl(folder, "set", "optimizer.lr=1e-4")
    (change,) = history(folder)
    wait_for(job, f"step {change['step'] // 10 * 10 + 100}/")
    stop(job)
    assert {line["train/lr"] for line in lines_of(folder) if line["step"] > change["step"]} == {1e-4}
    other = tmp_path / "other"
    stop(start(other, *ranks))
    assert max(line["step"] for line in lines_of(other)) < change["step"]
    shutil.copy(folder / "recipe_history.jsonl", other)
    last = json.loads((folder / "checkpoints/latest/state.json").read_text())["step"]
    finish(other, *ranks, f"training.max_steps={last}")
    assert (other / "checkpoints/latest/model.safetensors").read_bytes() == (folder / "checkpoints/latest/model.safetensors").read_bytes()


def test_a_change_is_answered_when_it_is_in_the_history(run):
    folder, _ = run
    (folder / "recipe_history.jsonl").mkdir()  # which cannot be replaced by a file
    said = ctl(folder, "set", "optimizer.lr=1e-4")
    assert re.match(r"from step \d+ on: optimizer.lr is 1e-4, it was 0.003; the change is not in the history: .*recipe_history.jsonl.*: Is a directory\n", said)
    (change,) = json.loads(ctl(folder, "status"))["changes"]
    assert (change["key"], change["value"]) == ("optimizer.lr", "1e-4")


def test_steps_are_profiled(run):
    folder, _ = run
    said = ctl(folder, "profile", "3")
    path = re.match(r"3 steps are in (\S+); open it at", said)[1]
    with open(path) as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("aten::") for name in names) > 30


def test_a_path_may_be_longer_than_a_socket_s_address(tmp_path):
    folder = tmp_path / ("long" * 40) / "run"
    folder.parent.mkdir()
    start(folder, *LONG)
    assert json.loads(ctl(folder, "status"))["step"] >= 10


def test_top_shows_runs_that_go_on_and_those_that_are_over(tmp_path):
    finish(tmp_path / "over", "training={num_epochs: 1}")
    job = start(tmp_path / "on", *LONG)
    done = subprocess.run([CALLED, "top", str(tmp_path)], capture_output=True, text=True, timeout=300, check=True)
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip() and not line.startswith("-")}
    assert rows["run"] == ["run", "state", "step", "steps/s", "loss", "left", "memory"]
    assert rows["on"][1] == "running" and rows["on"][2].endswith("/45,000,000") and rows["on"][-1] == "MB"
    assert rows["over"][1:4] == ["finished", "45", "-"]
    end(job)
    assert os.path.exists(tmp_path / "on/control.sock")  # a killed process leaves it
    done = subprocess.run([CALLED, "top", str(tmp_path)], capture_output=True, text=True, timeout=300, check=True)
    assert re.search(r"^on +stopped ", done.stdout, re.MULTILINE)
