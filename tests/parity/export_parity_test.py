"""`trainrun export`: the weights and the whole model, read by Python, give what trainrun gives."""

import json
import pathlib
import subprocess

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

import reference

from tests.program import CALLED

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
LAYERS = ("model.layers=[{type: Conv2d, out_channels: 8, kernel_size: 3}, BatchNorm2d, ReLU, {type: MaxPool2d, kernel_size: 2}, {type: Dropout, p: 0.5}, "
          "Flatten, {name: head, type: Linear, out_features: 10}]")


def trainrun(folder, *arguments):
    done = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(name="folder", scope="module")
def folder_with_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    trainrun(folder, "--quiet", RECIPE, "output_dir=run", LAYERS, "training={max_steps: 40}", "mixed_precision=bf16", "callbacks=[{type: EMA, decay: 0.9}]")
    return folder


def figures_of(model):
    images, labels = reference.digits("test")
    with torch.no_grad():
        output = model(images)
    return functional.cross_entropy(output, labels).item(), (output.argmax(1) == labels).float().mean().item()


def python_model():
    layers = {"0": nn.Conv2d(1, 8, 3), "1": nn.BatchNorm2d(8), "2": nn.ReLU(), "3": nn.MaxPool2d(2), "4": nn.Dropout(), "5": nn.Flatten(), "head": nn.Linear(72, 10)}
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model.eval()


def test_the_weights_and_the_model_give_in_python_what_trainrun_evaluates(folder):
    found = json.loads(trainrun(folder, "eval", "run", "--json", "mixed_precision='no'"))
    trainrun(folder, "export", "run")
    trainrun(folder, "export", "run", "--format", "torchscript")
    from_weights = python_model()
    from_weights.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"))
    traced = torch.jit.load(folder / "model.pt")
    for model in (from_weights, traced):
        loss, accuracy = figures_of(model)
        assert loss == pytest.approx(found["eval/loss"], rel=1e-5)
        assert accuracy == pytest.approx(found["eval/accuracy"])
    assert {name: tensor.shape for name, tensor in traced.state_dict().items()} == {name: tensor.shape for name, tensor in from_weights.state_dict().items()}
    own = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    assert not torch.equal(own["head.weight"], from_weights.head.weight), "EMA's average is what is exported"


def test_nothing_is_overwritten(folder):
    (folder / "taken.pt").write_text("mine")
    done = subprocess.run([CALLED, "export", "run", "--output", "taken.pt"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "taken.pt is already there" in done.stderr
    assert (folder / "taken.pt").read_text() == "mine"
