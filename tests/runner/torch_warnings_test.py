"""LibTorch's warnings are trainrun's: a line each, once for each place that warns, also in the run's log."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAINRUN = pathlib.Path(os.environ.get("TRAINRUN_BINARY", ROOT / "build/release/bin/trainrun"))
RECIPE = """\
version: 1
name: warned
output_dir: run
model: {{layers: {layers}}}
loss: CrossEntropyLoss
dataset: {{train: {{type: Digits, split: train}}, eval: {{type: Digits, split: test}}}}
dataloader: {{batch_size: 32}}
optimizer: {{type: SGD, lr: 0.01}}
training: {{max_steps: 3}}
checkpoint: {{every: null, keep_best: null}}
"""
PADDED = "[{type: Conv2d, out_channels: 4, kernel_size: 4, padding: same}, Flatten, {type: Linear, out_features: 10}]"
NORMED = "[Flatten, {type: Linear, out_features: 8}, RMSNorm, {type: Linear, out_features: 10}]"
OF_PADDING = "warning: LibTorch: Using padding='same' with even kernel lengths"
OF_DTYPES = "warning: LibTorch: Mismatch dtype between input and weight"


def warnings_of(folder, layers, *arguments):
    (folder / "warned.yaml").write_text(RECIPE.format(layers=layers))
    result = subprocess.run([str(TRAINRUN), *arguments[:1], "warned.yaml", *arguments[1:]], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return [line for line in result.stderr.splitlines() if "arning" in line]


@pytest.mark.parametrize("verb", ["run", "explain", "profile"])
def test_what_it_says_while_a_model_is_planned_is_one_line(tmp_path, verb):
    found = warnings_of(tmp_path, PADDED, verb)
    assert len(found) == 1 and found[0].startswith(OF_PADDING)


def test_what_it_says_in_each_step_is_said_once_and_in_the_log(tmp_path):
    found = warnings_of(tmp_path, NORMED, "run", "mixed_precision=bf16", "training.fuse=false")
    assert len(found) == 1 and found[0].startswith(OF_DTYPES)
    assert (tmp_path / "run/log.txt").read_text().count(OF_DTYPES) == 1
