"""`trainrun export`: the weights and the whole model, read by Python, give what trainrun gives."""

import json
import pathlib
import subprocess

import numpy
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


NAMES = ["class", "größe", "two words", "1x", "torch", "a.b", "self", "grosse", "lambda_", "int"]


def run_with_names(folder, layers, fields):
    """A run whose layers and fields have these names; its inputs, and what its weights make of them."""
    torch.manual_seed(3)
    inputs = [torch.randn(8, 2) for _ in fields]
    numpy.savez(folder / "rows.npz", label=numpy.zeros((8, 1), numpy.float32), **{f"f{i}": one.numpy() for i, one in enumerate(inputs)})
    recipe = {
        "version": 1,
        "name": "names",
        "model": {"layers": [{"type": "Concat", "inputs": fields, "dim": 1}, *({"type": "Linear", "out_features": 3 if name != "head" else 1, "name": name} for name in [*layers, "head"])]},
        "loss": {"type": "MSELoss"},
        "dataset": {"train": {"type": "TensorFile", "path": "rows.npz", "target": "label", "fields": {"label": "label", **{name: f"f{i}" for i, name in enumerate(fields)}}}},
        "optimizer": {"type": "SGD", "lr": 0.01},
        "dataloader": {"batch_size": 8},
        "training": {"max_steps": 1},
        "output_dir": "run",
    }
    (folder / "names.yaml").write_text(json.dumps(recipe))
    trainrun(folder, "--quiet", "names.yaml")
    weights = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    x = torch.cat(inputs, 1)
    for name in [*layers, "head"]:
        x = functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
    return inputs, x


def test_names_that_torch_script_cannot_have_become_others_and_are_told(tmp_path):
    """Its writer takes any name, and then writes what torch.jit.load cannot read."""
    layers = [name for name in NAMES if "." not in name]
    inputs, expected = run_with_names(tmp_path, layers, NAMES)
    done = subprocess.run([CALLED, "export", "run", "--format", "torchscript"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    torch.testing.assert_close(torch.jit.load(tmp_path / "model.pt")(*inputs), expected)
    for name in ("class", "größe", "torch", "two words"):
        assert f"cannot have the name '{name}': the argument of forward for this field is '" in done.stderr, done.stderr
    for name in ("class", "größe", "torch"):
        assert f"cannot have the name '{name}': in the file, the layer or weight is '" in done.stderr, done.stderr
    assert "'lambda_'" not in done.stderr


def test_onnx_has_any_names(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="no onnxruntime: tools/setup --tests installs it")
    inputs, expected = run_with_names(tmp_path, [name for name in NAMES if "." not in name], NAMES)
    trainrun(tmp_path, "export", "run", "--format", "onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    [found] = session.run(None, {name: one.numpy() for name, one in zip(NAMES, inputs, strict=True)})
    torch.testing.assert_close(torch.from_numpy(found), expected)
