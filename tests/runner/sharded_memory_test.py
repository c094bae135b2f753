"""What sharding is for: the memory of a rank, measured from outside on a model of 52 million parameters."""

import json
import os
import pathlib
import subprocess
import time

RECIPE = "tests/recipes/hundred_million.yaml"  # half of its layers will do


def peak_of_ranks(folder: pathlib.Path, num_processes: int, *overrides: str) -> list[int]:
    """The peak resident bytes of each rank from its second step on, when all state is there and start-up is over."""
    kind = "FSDP" if num_processes > 1 else "NO"
    command = [os.environ["TRAINRUN_BINARY"], "--quiet", RECIPE, f"output_dir={folder}", f"num_processes={num_processes}", f"distributed_type={kind}", *overrides]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    metrics = folder / "metrics.jsonl"
    peaks: dict[int, int] = {}
    begun = False
    while running.poll() is None:
        if not begun and metrics.exists() and len(metrics.read_text().splitlines()) >= 2:
            begun = True
            for pid in ranks_of(running.pid, num_processes):
                pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
                peaks[pid] = 0
        for pid in peaks:
            peaks[pid] = max(peaks[pid], high_water(pid))
        time.sleep(0.01)  # the kernel keeps the peak; looking without a pause would cost a processor
    assert running.returncode == 0, running.stderr.read()
    assert len(peaks) == num_processes
    return list(peaks.values())


def ranks_of(pid: int, num_processes: int) -> list[int]:
    if num_processes == 1:
        return [pid]
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def high_water(pid: int) -> int:
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def test_a_rank_of_four_needs_less_than_a_third_of_the_memory(tmp_path):
    half = "model.layers=[{type: Sequential, repeat: 50, layers: [{type: Linear, out_features: 1024}, ReLU]}, {type: Linear, out_features: 10}]"
    small = "model.layers=[{type: Linear, out_features: 10}]"
    # Of a small net two steps would be over before anyone could look. Four ranks need 15 ms for one, on two cores.
    one = peak_of_ranks(tmp_path / "one", 1, half)[0] - peak_of_ranks(tmp_path / "one_small", 1, small, "training.max_steps=1000")[0]
    without = max(peak_of_ranks(tmp_path / "four_small", 4, small, "training.max_steps=150"))
    four = max(peak_of_ranks(tmp_path / "four", 4, half)) - without
    parameters = 52_400_000
    assert one > 4 * 4 * parameters  # parameters, gradients and Adam's two running means, in float32
    print(json.dumps({"one rank": one, "a rank of four": four, "without": without, "ratio": four / one}))
    assert four <= 0.30 * one


def pages_of_a_step(folder: pathlib.Path, *overrides: str) -> float:
    """Pages that the kernel mapped for each of two ranks in each step, once there is all that lasts."""
    faults = []
    for steps in (3, 13):
        command = [os.environ["TRAINRUN_BINARY"], "--quiet", RECIPE, f"output_dir={folder / str(steps)}", "num_processes=2", "distributed_type=FSDP",
                   f"training.max_steps={steps}", *overrides]
        running = subprocess.Popen(command)
        _, status, usage = os.wait4(running.pid, 0)  # of the launcher and, since it waited for them, its ranks
        running.returncode = os.waitstatus_to_exitcode(status)
        assert running.returncode == 0
        faults.append(usage.ru_minflt)
    return (faults[1] - faults[0]) / 2 / 10


def test_a_step_uses_the_memory_of_the_step_before(tmp_path):
    """A step touches 48 MB of parameters three times over: 35,000 pages, were each block fetched from the system and given back."""
    layers = "model.layers=[{type: Sequential, repeat: 12, layers: [{type: Linear, out_features: 1024}, ReLU]}, {type: Linear, out_features: 10}]"
    pages = pages_of_a_step(tmp_path, layers, "dataloader.batch_size=64", "dataset.train.num_samples=4096")
    print(json.dumps({"pages a step": pages}))
    assert pages < 5000
