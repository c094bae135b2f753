"""Signals and closed pipes, from outside: what the program does, says and leaves."""

import fcntl
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import termios

import pytest

BINARY = os.environ["TRAINRUN_BINARY"]
PIPE_BYTES = 4096
LONGEST_LINE = 200
RECIPE = "tests/recipes/digits_small.yaml"
SMALL = ["model.layers=[Flatten, {type: Linear, out_features: 10}]", "logging.every_steps=1", "evaluation.every=null"]
LONG = [*SMALL, "training={num_epochs: 100000}", "checkpoint={every: 1000000, keep_last: 2}"]


def command(folder, *overrides):
    return [BINARY, RECIPE, f"output_dir={folder}", *overrides]


def start(folder, *overrides, **options):
    return subprocess.Popen(command(folder, *overrides), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, **options)


def read_until(output, pattern):
    for line in output:
        found = re.search(pattern, line)
        if found:
            return found
    raise AssertionError(f"it ended without {pattern}")


def unread_bytes(output) -> int:
    return struct.unpack("i", fcntl.ioctl(output, termios.FIONREAD, b"\0" * 4))[0]


def is_stuck_in_a_write(process) -> bool:
    """To standard output: seen again and again, as one that goes through is over in microseconds."""
    call = pathlib.Path(f"/proc/{process.pid}/syscall")
    return all(call.read_text().startswith("1 0x1 ") for _ in range(200))  # write, of descriptor 1


def latest_step(folder):
    return json.loads((folder / "checkpoints" / "latest" / "state.json").read_text())["step"]


def test_head_closes_the_pipe_and_the_run_saves_and_goes_on_to_its_end(tmp_path):
    process = start(tmp_path / "run", *SMALL, "training={num_epochs: 8}", "checkpoint.every=1000000")
    read_until(process.stdout, r"step 3/")
    process.stdout.close()
    assert process.wait(timeout=120) == 0, process.stderr.read()
    said = process.stderr.read()
    assert said.count("standard output is closed; training continues") == 1
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "step 360/360" in log and "done 360 steps" in log
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert len(saved) == 3, saved  # one when the pipe was closed, the last, and `latest`
    assert latest_step(tmp_path / "run") == 360


def test_with_both_outputs_closed_log_txt_goes_on(tmp_path):
    reading, writing = os.pipe()
    process = subprocess.Popen(command(tmp_path / "run", *SMALL, "training={num_epochs: 2}"), stdout=writing, stderr=writing)
    os.close(writing)
    os.close(reading)
    assert process.wait(timeout=120) == 0
    assert "done 90 steps" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP], ids=["SIGUSR1", "SIGHUP"])
def test_a_request_to_save_is_heeded_and_training_goes_on(tmp_path, number):
    process = start(tmp_path / "run", *LONG)
    try:
        read_until(process.stdout, r"step 5/")
        process.send_signal(number)
        read_until(process.stdout, f"{number.name}: saves and continues")
        saved = int(read_until(process.stdout, r"checkpoint step (\d+)/")[1])
        assert int(read_until(process.stdout, r"^step (\d+)/")[1]) == saved + 1
        assert latest_step(tmp_path / "run") == saved
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()


def test_a_launcher_passes_the_request_to_its_ranks(tmp_path):
    process = start(tmp_path / "run", *LONG, "distributed_type=MULTI_CPU", "num_processes=2")
    try:
        read_until(process.stdout, r"step 5/")
        process.send_signal(signal.SIGUSR1)
        read_until(process.stdout, r"checkpoint step \d+/")
        read_until(process.stdout, r"^step \d+/")
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()


def test_nohup_is_honoured(tmp_path):
    process = start(tmp_path / "run", *LONG, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    try:
        read_until(process.stdout, r"step 5/")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
        assert "SIGHUP" not in rest
    finally:
        process.kill()


def test_a_signal_much_later_than_the_first_ends_a_job_that_hangs_and_says_what_is_lost(tmp_path):
    """Nobody reads what it says, so it waits and cannot heed the first."""
    process = start(tmp_path / "run", *LONG, pipesize=PIPE_BYTES)
    try:
        read_until(process.stdout, r"step 3/")
        while unread_bytes(process.stdout) < PIPE_BYTES - LONGEST_LINE or not is_stuck_in_a_write(process):
            assert process.poll() is None
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
        assert process.returncode == 128 + signal.SIGTERM
        said = process.stderr.read()
        assert re.search(r"trainrun: stopped at once by a second signal, SIGTERM; steps 1 to \d+ are not saved\n", said), said
    finally:
        process.kill()


BROKEN = ["model.layers=[Flatten, {type: Linear, out_features: 10}, {type: Chunk, chunks: 2, dim: 0, outputs: [a, b]}, "
          "{type: Add, inputs: [a, b], name: sum}, {type: Concat, inputs: [sum, sum], dim: 0}]", "dataloader={batch_size: 33, num_workers: 0}"]
MESSAGE = r"model\.layers\[3\]: Add failed in training step 1 \(epoch 0, batch 0\) on \[17, 10\] and \[16, 10\]: The size of tensor a"


def test_what_libtorch_throws_is_told_once_in_one_line_without_a_backtrace(tmp_path):
    done = subprocess.run(command(tmp_path / "run", *BROKEN), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(r"(?m)^trainrun: .+:\d+:\d+: " + MESSAGE, done.stderr), done.stderr
    both = done.stdout + done.stderr
    assert both.count("The size of tensor a") == 1, both
    assert "Exception raised from" not in both and "frame #" not in both
    assert len(done.stderr.splitlines()) == 2, done.stderr  # where it stopped, and why
    assert re.search(r"error: .+" + MESSAGE, (tmp_path / "run" / "log.txt").read_text())


def test_what_fails_at_a_resume_is_in_log_txt_as_well(tmp_path):
    done = subprocess.run(command(tmp_path / "run", "checkpoint.resume=no/such"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("trainrun: no/such: "), done.stderr
    assert "error: no/such: " in (tmp_path / "run" / "log.txt").read_text()


def test_verbose_shows_the_backtrace(tmp_path):
    done = subprocess.run([*command(tmp_path / "run", *BROKEN), "--verbose"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(MESSAGE, done.stderr)
    assert "Exception raised from" in done.stderr


RANKS = """
name: ranks
model: {layers: [Flatten, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
dataset:
  train: {type: Synthetic, num_samples: 400000, shape: [1, 8, 8]}
  EVAL
dataloader: {batch_size: 1, eval_batch_size: 1}
optimizer: {type: SGD, lr: 0.01}
logging: {every_steps: 1}
num_processes: 2
"""


def start_ranks(folder, distributed_type, evaluated, *overrides):
    (folder / "ranks.yaml").write_text(RANKS.replace("EVAL", "eval: {type: Synthetic, num_samples: 400000, shape: [1, 8, 8]}" if evaluated else ""))
    return subprocess.Popen(
        [BINARY, folder / "ranks.yaml", f"output_dir={folder}/run", f"distributed_type={distributed_type}", *overrides],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)


@pytest.mark.parametrize("distributed_type", ["MULTI_CPU", "FSDP"])
def test_ranks_give_up_an_evaluation_together_after_what_it_follows_is_saved(tmp_path, distributed_type):
    process = start_ranks(tmp_path, distributed_type, True, "evaluation.every=5", "checkpoint.every=5", "training.num_epochs=1")
    try:
        read_until(process.stdout, r"checkpoint step 5/")
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM, process.stderr.read()
        assert "stopped by SIGTERM at step 5/" in rest and "eval step" not in rest
        state = json.loads((tmp_path / "run" / "checkpoints" / "latest" / "state.json").read_text())
        assert state["step"] == 5 and state["evaluation_due"]
    finally:
        process.kill()


@pytest.mark.parametrize("distributed_type, window", [("MULTI_CPU", 8000), ("FSDP", 1000)])
def test_ranks_give_up_an_accumulation_window_together(tmp_path, distributed_type, window):
    process = start_ranks(tmp_path, distributed_type, False, f"training={{num_epochs: 1, gradient_accumulation_steps: {window}}}")
    try:
        read_until(process.stdout, r"^step 1/")
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM, process.stderr.read()
        assert f"stopped by SIGTERM at step 1/{200000 // window}" in rest
        assert latest_step(tmp_path / "run") == 1
    finally:
        process.kill()
