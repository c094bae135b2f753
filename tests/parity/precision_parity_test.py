"""mixed_precision against torch.autocast and torch.amp.GradScaler on the CPU: the loss of every step, the scale and what is skipped."""

import json

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler

import reference

NUM_STEPS = 100
# The last bit of a weight, which the two programs' optimizers round differently, may change its rounding to 16 bits: after some twenty
# steps the losses part by up to 3e-3.
EARLY, TOLERANCE = 15, 1e-2
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LAYERS = ("model.layers=[{type: Conv2d, out_channels: 8, kernel_size: 3}, BatchNorm2d, ReLU, Flatten, {type: Linear, out_features: 32}, "
          "ReLU, {type: Linear, out_features: 10}]")
QUIET = ["checkpoint.every=null", "evaluation.every=null"]


def make_model():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 10))


def train(kind: str, clip: float | None = None, clip_value: float | None = None, **scaler_options):
    """As Accelerate trains: the forward pass under autocast, its outputs in float32, no step of the schedule where a step was skipped."""
    images, labels = reference.digits("train")
    torch.manual_seed(3)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "fp16", **scaler_options)
    losses, scales, skipped, rates = [], [], [], []
    for _, indices in reference.batches(len(labels), 32, seed=3):
        optimizer.zero_grad()
        with torch.autocast("cpu", DTYPES[kind]):
            output = model(images[indices])
        loss = functional.cross_entropy(output.float(), labels[indices])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if clip_value:
            nn.utils.clip_grad_value_(model.parameters(), clip_value)
        rates.append(optimizer.param_groups[0]["lr"])
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        was_skipped = scaler.get_scale() < before
        skipped.append((skipped[-1] if skipped else 0) + was_skipped)
        if not was_skipped:
            scheduler.step()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
        if len(losses) == NUM_STEPS:
            return losses, scales, skipped, rates, model


def run(folder, kind, *overrides):
    lines, _ = reference.run_trainrun(
        "tests/recipes/digits_small.yaml", folder, LAYERS, f"mixed_precision={kind}", "scheduler=CosineAnnealingLR",
        f"training={{num_epochs: null, max_steps: {NUM_STEPS}}}", *overrides)
    return [line for line in lines if line["split"] == "train"]


def assert_same_losses(lines, expected):
    actual = [line["train/loss"] for line in lines]
    assert actual[:EARLY] == pytest.approx(expected[:EARLY], rel=1e-4)
    assert actual == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("kind", DTYPES)
def test_losses_equal_autocasts(tmp_path, kind):
    losses, *_ = train(kind)
    lines = run(tmp_path / "run", kind, *QUIET)
    assert_same_losses(lines, losses)
    assert losses[-1] < 0.5 * losses[0]
    plain = run(tmp_path / "plain", "no", *QUIET)
    assert [line["train/loss"] for line in plain][:EARLY] != pytest.approx(losses[:EARLY], rel=1e-4), "autocast changes nothing"


@pytest.mark.parametrize("clip, clip_value", [(None, None), (0.5, None), (None, 0.01)], ids=["unclipped", "by norm", "by value"])
def test_overflows_are_skipped_and_the_scale_adapts_as_in_grad_scaler(tmp_path, clip, clip_value):
    options = {"init_scale": 2.0 ** 26, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 7}
    losses, scales, skipped, rates, _ = train("fp16", clip, clip_value, **options)
    clipping = [f"training.{key}={value}" for key, value in (("max_grad_norm", clip), ("max_grad_value", clip_value)) if value]
    lines = run(tmp_path / "run", "fp16", f"grad_scaler={json.dumps(options)}", *clipping, *QUIET)
    assert skipped[-1] >= 3, "no overflow: no test"
    assert [line["train/skipped_steps"] for line in lines] == skipped
    assert [line["train/loss_scale"] for line in lines] == scales
    assert [line["train/lr"] for line in lines] == pytest.approx(rates, rel=1e-9)
    assert_same_losses(lines, losses)


def test_a_skipped_step_leaves_the_weights_and_a_resumed_run_its_scale(tmp_path):
    overrides = ["grad_scaler={init_scale: 1e35, growth_interval: 5}", "checkpoint={every: 1, keep_last: null}", "evaluation.every=null"]
    lines = run(tmp_path / "run", "fp16", *overrides)
    assert lines[0]["train/skipped_steps"] == 1 and lines[0]["train/loss_scale"] == pytest.approx(5e34)
    torch.manual_seed(3)
    first = safetensors.torch.load_file(tmp_path / "run/checkpoints/step-00000001/model.safetensors")
    for name, tensor in make_model().named_parameters():
        assert torch.equal(first[name], tensor), name

    resumed = run(tmp_path / "resumed", "fp16", *overrides[:1], "checkpoint={every: 1, resume: %s}" % (tmp_path / "run/checkpoints/step-00000080"),
                  "evaluation.every=null")
    figures = ("step", "train/loss", "train/loss_scale", "train/skipped_steps")
    assert [[line[name] for name in figures] for line in resumed] == [[line[name] for name in figures] for line in lines[80:]]


def test_an_optimizer_with_a_closure_refuses_a_scaled_loss(tmp_path):
    with pytest.raises(AssertionError, match="LBFGS evaluates a batch more than once"):
        run(tmp_path / "run", "fp16", "optimizer={type: LBFGS, max_iter: 3}", "scheduler=null", *QUIET)
