"""Ranks of one machine divide the optimizer's step: the same numbers as without, in every checkpoint and after a resume."""

import os
import pathlib
import subprocess

import pytest

from tests.checkpoint_tensors import tensors_of
from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOB = ["recipes/digits_mlp.yaml", "distributed_type=MULTI_CPU", "num_processes=2", "training={max_steps: 24}", "evaluation.every=12", "checkpoint={every: 8, keep_last: 9}",
       "dataloader.batch_size=16", "training.max_grad_norm=0.5"]  # of two ranks, Gloo adds in either order the same
OPTIMIZERS = {
    "AdamW": "optimizer={type: AdamW, lr: 0.01, weight_decay: 0.1, param_groups: [{match: bias, weight_decay: 0}]}",
    "Adam, amsgrad": "optimizer={type: Adam, lr: 0.01, amsgrad: true}",
}


def train(folder: pathlib.Path, *overrides: str, gloo: bool = False) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "TRAINRUN_GLOO"} | ({"TRAINRUN_GLOO": "1"} if gloo else {})
    done = subprocess.run([CALLED, *JOB, *overrides, f"output_dir={folder}"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_checkpoints_are_those_of_ranks_that_make_the_whole_step(tmp_path, name):
    train(tmp_path / "divided", OPTIMIZERS[name])
    train(tmp_path / "whole", OPTIMIZERS[name], gloo=True)
    divided, whole = tensors_of(tmp_path / "divided"), tensors_of(tmp_path / "whole")
    assert divided.keys() == whole.keys() and sum("exp_avg" in key for key in divided) >= 3 * 4 * 2
    assert [key for key in divided if not divided[key].equal(whole[key])] == []


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path):
    optimizer = OPTIMIZERS["AdamW"]
    train(tmp_path / "whole", optimizer)
    train(tmp_path / "cut", optimizer, "training={max_steps: 16}")
    train(tmp_path / "cut", optimizer, f"checkpoint.resume={tmp_path / 'cut'}")
    whole, cut = tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "cut-2")  # "cut" holds a finished run
    last = [key for key in whole if key.startswith("step-00000024/")]
    assert last and all(whole[key].equal(cut[key]) for key in last)
