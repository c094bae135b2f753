"""Accumulation is for batches that do not fit: a window takes no more memory than a batch."""

import json
import os
import pathlib
import subprocess

import pytest

from tests.program import BINARY, peak_memory

SAMPLE = 3 * 256 * 256 * 4  # bytes


def peak_of(folder: pathlib.Path, window: int) -> int:
    """The peak resident bytes of a run of two steps, batches of 16."""
    recipe = folder / f"{window}.yaml"
    recipe.write_text(f"""
model: {{layers: [{{type: AdaptiveAvgPool2d, output_size: 2}}, Flatten, {{type: Linear, out_features: 10}}]}}
loss: CrossEntropyLoss
dataset: {{train: {{type: Synthetic, num_samples: 2048, shape: [3, 256, 256]}}}}
dataloader: {{batch_size: 16, num_workers: 0}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{num_epochs: null, max_steps: 2, gradient_accumulation_steps: {window}}}
checkpoint: {{every: null}}
""")
    return peak_memory([BINARY, "--quiet", recipe, f"output_dir={folder / str(window)}"])


def test_a_window_takes_no_more_memory_than_a_batch(tmp_path):
    peaks = {window: peak_of(tmp_path, window) for window in (1, 32)}
    print(json.dumps(peaks))
    assert peaks[32] - peaks[1] < 6 * 16 * SAMPLE  # all 32 batches would be 31 more


@pytest.mark.parametrize("window", [4])
def test_an_optimizer_that_looks_again_sees_the_whole_window(tmp_path, window):
    """LBFGS over a window of four batches takes the steps it takes over one batch of as many samples."""
    losses = []
    for size, batches in ((64, 1), (64 // window, window)):
        folder = tmp_path / str(batches)
        command = [os.environ["TRAINRUN_BINARY"], "--quiet", "tests/recipes/digits_small.yaml", f"output_dir={folder}", "logging.every_steps=1",
                   "model.layers=[Flatten, {type: Linear, out_features: 10}]", "optimizer={type: LBFGS, lr: 0.5, max_iter: 6}", "evaluation.every=null",
                   f"training={{num_epochs: null, max_steps: 5, gradient_accumulation_steps: {batches}}}", "checkpoint={every: null}",
                   f"dataloader={{batch_size: {size}}}", "dataset.train_transforms=[{type: RandomCrop, size: 8, padding: 1}]"]
        subprocess.run(command, check=True)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        losses.append([line["train/loss"] for line in lines if line["split"] == "train"])
    assert len(losses[0]) == 5
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
