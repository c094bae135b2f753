"""A checkpoint that trainrun 0.1.0 wrote (checkpoint_0_1_0/, at step 7 of 14) is gone on from, and ends as that program's own run did; today's are laid
out as that one is."""

import json
import pathlib
import shutil
import subprocess

import pytest
import safetensors.torch
import torch

from tests.program import CALLED

HERE = pathlib.Path(__file__).resolve().parent
OLD = HERE / "checkpoint_0_1_0"
# What checkpoints say since, for those who compare runs; nothing that goes on reads it, but for how long it took so far.
NEWER = {"machine", "seconds_of"}
# float16 arithmetic of other processors rounds otherwise.
TOLERANCE = 2e-3
OVERRIDES = [
    "model.layers=[Flatten, {type: Linear, out_features: 8}, BatchNorm1d, ReLU, {type: Dropout, p: 0.2}, {type: Linear, out_features: 10}]",
    "training={num_epochs: null, max_steps: 14, gradient_accumulation_steps: 2, max_grad_norm: 1}", "mixed_precision=fp16",
    "scheduler={type: LinearLR, start_factor: 0.5, total_iters: 10}", "checkpoint={every: 7, keep_best: {monitor: eval/loss, mode: min}}",
    "evaluation.every=7", "logging.every_steps=3", "optimizer={type: AdamW, lr: 0.02}", "grad_scaler.growth_interval=4", "seed=5",
]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(name="resumed", scope="module")
def go_on(tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    checkpoint = folder / "step-00000007"
    checkpoint.mkdir()
    for file in ("model.safetensors", "optimizer.safetensors", "state.json"):
        shutil.copy(OLD / file, checkpoint / file)
    done = subprocess.run([CALLED, "--quiet", "tests/recipes/digits_small.yaml", f"output_dir={folder / 'run'}", *OVERRIDES,
                           f"checkpoint.resume={checkpoint}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_checkpoint_of_0_1_0_goes_on_as_that_program_did(resumed):
    expected = [line for line in lines_of(OLD / "metrics.jsonl") if line["step"] > 7]
    actual = lines_of(resumed / "metrics.jsonl")
    assert [(line["step"], line["split"]) for line in actual] == [(line["step"], line["split"]) for line in expected]
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for key in mine.keys() - {"time", "train/samples_per_second", "split"}:
            assert mine[key] == pytest.approx(theirs[key], rel=TOLERANCE), (mine["step"], key)
    model = safetensors.torch.load_file(resumed / "checkpoints/latest/model.safetensors")
    for name, tensor in safetensors.torch.load_file(OLD / "model_of_step_14.safetensors").items():
        torch.testing.assert_close(model[name], tensor, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_checkpoint_of_today_has_the_same_files_tensors_and_keys(resumed):
    latest = resumed / "checkpoints/latest"
    assert {path.name for path in latest.iterdir()} == {"model.safetensors", "optimizer.safetensors", "state.json"}
    for file in ("model", "optimizer"):
        old, new = (safetensors.torch.load_file(folder / f"{file}.safetensors") for folder in (OLD, latest))
        assert {name: (tensor.shape, tensor.dtype) for name, tensor in old.items()} == {name: (tensor.shape, tensor.dtype) for name, tensor in new.items()}
    old, new = (json.loads((folder / "state.json").read_text()) for folder in (OLD, latest))
    assert {key: type(value) for key, value in old.items()} == {key: type(value) for key, value in new.items() if key not in NEWER}
    assert NEWER <= new.keys()
    assert old["data"] == new["data"] and old["learnt"].items() <= new["learnt"].items() and old["grad_scaler"].keys() == new["grad_scaler"].keys()
