"""ProgressiveResizing against a loop in Python with torch.nn.functional.interpolate and the schedule of MosaicML Composer's documentation; over ranks and
accumulated; resumed at every checkpoint."""

import pathlib

import pytest
import torch
from torch import nn
from torch.nn import functional

import reference

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
NUM_STEPS, BATCH_SIZE = 20, 32
LAYERS = ("model.layers=[{type: Conv2d, out_channels: 8, kernel_size: 3, padding: 1}, ReLU, {type: Conv2d, out_channels: 8, kernel_size: 3, padding: 1}, ReLU, "
          "{type: AdaptiveAvgPool2d, output_size: 2}, Flatten, {type: Linear, out_features: 10}]")
OPTIONS = "initial_scale: 0.5, delay_fraction: 0.25, finetune_fraction: 0.3, size_increment: 2"


def run(folder, *overrides, batch_size=BATCH_SIZE):
    common = [LAYERS, "optimizer={type: SGD, lr: 0.1, momentum: 0.9}", f"training={{num_epochs: null, max_steps: {NUM_STEPS}}}", "evaluation.every=10",
              f"dataloader.batch_size={batch_size}", "checkpoint={every: 5, keep_last: null}"]
    lines, _ = reference.run_trainrun(RECIPE, folder, *common, *overrides)
    for line in lines:
        line.pop("time")
        line.pop("train/samples_per_second", None)
    return lines


def size_at(step):
    """Pixels: 4 for a quarter of the steps, then growing to 8 until three tenths are left."""
    grown = min(max(step / NUM_STEPS - 0.25, 0) / (1 - 0.25 - 0.3), 1)
    return round(8 * (0.5 + 0.5 * grown) / 2) * 2


def test_images_grow_as_composers_do(tmp_path):
    assert [size_at(step) for step in (0, 4, 5, 9, 13, 14, 19)] == [4, 4, 4, 6, 8, 8, 8]
    sizes = iter([size_at(step) for step in range(NUM_STEPS)])

    def smaller(images):
        return functional.interpolate(images, scale_factor=next(sizes) / 8, mode="nearest")

    def make_model():
        return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                             nn.Linear(32, 10))

    expected = reference.train(make_model, lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                               lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1), reference.digits("train"),
                               seed=3, batch_size=BATCH_SIZE, num_steps=NUM_STEPS, transform=smaller)
    actual = reference.losses_of(run(tmp_path / "run", f"callbacks=[{{type: ProgressiveResizing, {OPTIONS}}}]"))
    assert actual == pytest.approx(expected, rel=1e-4)
    assert actual != pytest.approx(reference.losses_of(run(tmp_path / "plain")), rel=1e-4)


@pytest.mark.parametrize("mode", ["resize", "crop"])
def test_ranks_and_pieces_of_a_batch_are_resized_alike_and_a_resumed_run_goes_on_the_same(tmp_path, mode):
    resizing = f"callbacks=[{{type: ProgressiveResizing, mode: {mode}, {OPTIONS}}}]"
    whole = run(tmp_path / "whole", resizing)
    ranks = run(tmp_path / "ranks", resizing, "distributed_type=MULTI_CPU", "num_processes=2", batch_size=BATCH_SIZE // 2)
    accumulated = run(tmp_path / "accumulated", resizing, "training.gradient_accumulation_steps=2", batch_size=BATCH_SIZE // 2)
    assert reference.losses_of(ranks) == pytest.approx(reference.losses_of(whole), rel=1e-4)
    assert reference.losses_of(accumulated) == pytest.approx(reference.losses_of(whole), rel=1e-4)
    weights = (tmp_path / "whole/checkpoints/latest/model.safetensors").read_bytes()
    for step in (5, 10, 15):
        rest = run(tmp_path / f"from-{step}", resizing, f"checkpoint.resume={tmp_path}/whole/checkpoints/step-{step:08}")
        assert rest == [line for line in whole if line["step"] > step]
        assert (tmp_path / f"from-{step}/checkpoints/latest/model.safetensors").read_bytes() == weights
