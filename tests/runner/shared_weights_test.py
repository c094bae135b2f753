"""Ranks of one machine that shard a model keep its weights once, in memory that all map: the same numbers as when each gathers a copy of its own."""

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

from tests.checkpoint_tensors import tensors_of
from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOB = ["recipes/digits_mlp.yaml", "distributed_type=FSDP", "num_processes=2", "dataloader.batch_size=16", "training={max_steps: 8}", "evaluation.every=4",
       "checkpoint={every: 4, keep_last: 9}",  # of two ranks, Gloo adds in either order the same
       "model.layers=[Flatten, {type: Linear, out_features: 1024}, ReLU, {type: Linear, out_features: 300}, ReLU, {type: Linear, out_features: 10}]"]
JOBS = {
    "stage 3": [],
    "stage 3, one by one, clipped, with a frozen layer": ["sharding.prefetch=false", "training.max_grad_norm=0.5", "model.freeze=['^1.']"],
    "stage 2, bfloat16": ["sharding.strategy=SHARD_GRAD_OP", "mixed_precision=bf16"],
    "stage 1, windows, averages that are evaluated": ["sharding.zero_stage=1", "training.gradient_accumulation_steps=3", "callbacks=[{type: EMA, decay: 0.9}]"],
}


def start(folder: pathlib.Path, *overrides: str, gloo: bool = False, program: str = CALLED) -> subprocess.Popen:
    environment = {key: value for key, value in os.environ.items() if key != "TRAINRUN_GLOO"} | ({"TRAINRUN_GLOO": "1"} if gloo else {})
    command = [program, *JOB, *overrides, f"output_dir={folder}"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(job: subprocess.Popen) -> None:
    said, _ = job.communicate(timeout=300)
    assert job.returncode == 0, said


def evaluations_of(folder: pathlib.Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: number for key, number in line.items() if key.startswith("eval/")} for line in lines if line["split"] == "eval"]


def assert_same(folder: pathlib.Path, other: pathlib.Path) -> None:
    found, expected = tensors_of(folder), tensors_of(other)
    assert found.keys() == expected.keys() and len(found) >= 2 * 6
    assert [key for key in found if not found[key].equal(expected[key])] == []
    assert evaluations_of(folder) == evaluations_of(other) != []


@pytest.mark.parametrize("name", JOBS)
def test_checkpoints_are_those_of_ranks_that_gather_copies(tmp_path, name):
    end(start(tmp_path / "once", *JOBS[name]))
    end(start(tmp_path / "copies", *JOBS[name], gloo=True))
    assert_same(tmp_path / "once", tmp_path / "copies")


def test_ranks_that_stop_at_any_time_read_no_weights_of_another_step(tmp_path):
    """Whoever is early must not change what a rank still reads, nor read what a rank has yet to change."""
    overrides = ["training.max_steps=150", "evaluation.every=75", "checkpoint.every=75", "callbacks=[{type: EMA, decay: 0.9}]"]
    job = start(tmp_path / "stopped", *overrides, program=BINARY)
    draw = random.Random(1)
    stops = 0
    while job.poll() is None:
        ranks = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        if len(ranks) == 2:
            rank = int(draw.choice(ranks))
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGSTOP)
                time.sleep(draw.uniform(0, 0.01))
                os.kill(rank, signal.SIGCONT)
                stops += 1
        time.sleep(draw.uniform(0, 0.01))
    end(job)
    assert stops > 50
    end(start(tmp_path / "copies", *overrides, gloo=True))
    assert_same(tmp_path / "stopped", tmp_path / "copies")
