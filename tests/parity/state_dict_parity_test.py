"""Weights go both ways between trainrun and Python, and give the same logits within 1e-6."""

import pytest
import safetensors.torch
import torch

import reference
from probe import assert_same, named

TOLERANCE = 1e-6
# Recipe, the same in Python, and steps to train: until running statistics and weights are their own.
MODELS = [
    ("recipes/mnist_cnn.yaml", reference.mnist_cnn),
    ("tests/recipes/parity_residual.yaml", reference.residual_net),
    ("tests/recipes/parity_lstm.yaml", reference.LstmClassifier),
]


def images() -> torch.Tensor:
    return torch.randn((16, 1, 28, 28), generator=torch.Generator().manual_seed(6))


def batch() -> dict[str, torch.Tensor]:
    return {"image": images(), "label": torch.zeros(16, dtype=torch.int64)}


def scrambled(make) -> torch.nn.Module:
    """A model in evaluation whose every parameter and buffer was drawn anew."""
    generator = torch.Generator().manual_seed(7)
    model = make().eval()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.4 + 0.01)
        else:
            tensor.fill_(17)
    return model


def logits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return {"0": model(images())}


def save_safetensors(state, path):
    safetensors.torch.save_file(state, path)


@pytest.mark.parametrize("recipe, make", MODELS)
@pytest.mark.parametrize("save", [save_safetensors, torch.save])
def test_pythons_weights_load(probe, recipe, make, save, tmp_path):
    model = scrambled(make)
    path = tmp_path / "weights"
    save(model.state_dict(), path)
    _, results = probe.ask("model", named("input", batch()), recipe=recipe, overrides=[f"model.weights={path}"])
    assert_same(results.under("state"), model.state_dict(), "state")
    assert_same(results.under("output"), logits(model), "logits", TOLERANCE)


@pytest.mark.parametrize("recipe, make", MODELS)
def test_trained_weights_load_into_python(probe, mnist_folder, recipe, make, tmp_path):
    _, run = reference.run_trainrun(recipe, tmp_path / "run", "training.max_steps=3", "checkpoint.every=3",
                                    "checkpoint.keep_best=null", "evaluation.every=null")
    path = run / "checkpoints" / "latest" / "model.safetensors"
    state = safetensors.torch.load_file(path)
    model = make().eval()
    model.load_state_dict(state, strict=True)
    _, results = probe.ask("model", named("input", batch()), recipe=recipe, overrides=[f"model.weights={path}"])
    assert_same(results.under("output"), logits(model), "logits", TOLERANCE)
    untrained = probe.ask("model", recipe=recipe, overrides=[])[1].under("state")
    assert all(not torch.equal(untrained[name], state[name]) for name in state), "the run trained nothing"


def test_training_starts_from_pythons_weights(mnist_folder, tmp_path):
    model = scrambled(reference.mnist_cnn)
    path = tmp_path / "weights.pt"
    torch.save(model.state_dict(), path)
    lines, run = reference.run_trainrun("recipes/mnist_cnn.yaml", tmp_path / "run", f"model.weights={path}",
                                        "optimizer={type: SGD, lr: 0}", "training.max_steps=1", "checkpoint.keep_best=null")
    saved = safetensors.torch.load_file(run / "checkpoints" / "latest" / "model.safetensors")
    assert_same(saved, model.state_dict(), "weights after a step at rate 0")
    test_images, labels = reference.mnist(mnist_folder, "test")
    with torch.no_grad():
        output = model((test_images - 0.1307) / 0.3081)
    expected = {"eval/loss": torch.nn.functional.cross_entropy(output, labels).item(),
                "eval/accuracy": (output.argmax(1) == labels).double().mean().item()}
    evaluated = [line for line in lines if line["split"] == "eval"][-1]
    assert {name: evaluated[name] for name in expected} == pytest.approx(expected, rel=1e-6)
