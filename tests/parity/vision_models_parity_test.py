"""The registered vision models against torchvision's: every model's state names and shapes; of each family initial weights
from the same seed bit for bit, logits in training and evaluation, gradients; weights that go both ways; a run's losses."""

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import reference
from probe import assert_same, named
from vision_models import ALL, CLASSES, COMPUTED, VIT, VisionModel, cifar_resnet18

TOLERANCE = 1e-4
SEED = 5


@pytest.mark.parametrize("model", ALL, ids=str)
def test_a_model_has_torchvisions_names_and_shapes(probe, model: VisionModel):
    with torch.device("meta"):
        expected = {name: list(tensor.shape) for name, tensor in model.make().state_dict().items()}
    reply, _ = probe.ask("shapes", named("input", {"image": model.images(1)}), spec=model.spec)
    assert reply["state"] == expected


def relative(gradients: dict[str, torch.Tensor], sizes: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients, each by the largest number of the same one in `sizes`."""
    return {name: gradient / sizes[name].abs().max().clamp_min(1e-6) for name, gradient in gradients.items()}


@pytest.mark.parametrize("model", COMPUTED, ids=str)
def test_a_model_computes_what_torchvisions_does(probe, model: VisionModel):
    images = model.images()
    torch.manual_seed(SEED)
    module = model.make()
    large = sum(tensor.numel() for tensor in module.state_dict().values()) > 5e7
    initial = {} if large and model.draws_alike else {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.manual_seed(SEED)  # dropout and stochastic depth draw the same on both sides
    output = module(images)
    cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(SEED + 1))
    if not large:
        (output * cotangent).sum().backward()
    final = {name: tensor.clone() for name, tensor in module.named_buffers()}
    module.eval()
    with torch.no_grad():
        evaluated = module(images)

    only = {"only": ["output", "evaluated"]} if large else {}
    given = named("input", {"a": images}) | named("cotangent", {"0": cotangent})
    if not model.draws_alike:
        given |= named("state", initial)
    _, results = probe.ask("layer", given, spec=model.spec, seed=SEED, whole=True, **only)
    assert_same(results.under("output"), {"0": output}, "logits in training", TOLERANCE)
    assert_same(results.under("evaluated"), {"0": evaluated}, "logits in evaluation", TOLERANCE)
    assert not torch.allclose(output, evaluated, atol=TOLERANCE), "the model does the same in training and evaluation"
    if large:
        return
    assert_same(results.under("initial"), initial, "initial weights")
    buffers = {name: tensor for name, tensor in results.under("final").items() if name in final}
    assert_same(buffers, final, "buffers after a step", TOLERANCE)
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    assert_same(relative(results.under("gradient"), gradients), relative(gradients, gradients), "gradient", 10 * TOLERANCE)


def test_a_vision_transformers_initial_weights_are_torchvisions(probe):
    torch.manual_seed(SEED)
    expected = VIT.make().state_dict()
    _, results = probe.ask("layer", named("input", {"a": VIT.images(1)}), spec=VIT.spec, seed=SEED, whole=True, only=["initial"])
    assert_same(results.under("initial"), expected, "initial weights")


RECIPE = """
version: 1
name: vision
seed: 3
model: {{layers: [{{type: ResNet18, num_classes: {classes}, stem: cifar}}]}}
loss: CrossEntropyLoss
dataset: {{train: {{type: TensorFile, path: {data}}}}}
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: SGD, lr: 0.05, momentum: 0.9}}
training: {{max_steps: 3}}
evaluation: {{every: null}}
checkpoint: {{every: 3}}
"""


@pytest.fixture
def recipe(tmp_path):
    """A recipe's file, and its data."""
    generator = torch.Generator().manual_seed(2)
    images = torch.randn((12, 3, 32, 32), generator=generator)
    labels = torch.randint(CLASSES, (12,), generator=generator)
    np.savez(tmp_path / "data.npz", image=images.numpy(), label=labels.numpy())
    path = tmp_path / "vision.yaml"
    path.write_text(RECIPE.format(classes=CLASSES, data=tmp_path / "data.npz"))
    return path, images, labels


def test_training_from_torchvisions_weights_gives_its_losses_and_weights_that_it_reads(recipe, tmp_path):
    path, images, labels = recipe
    torch.manual_seed(11)
    model = cifar_resnet18()
    torch.save(model.state_dict(), tmp_path / "resnet18.pth")
    # Direct, since the losses of so large steps on four images grow with any rounding.
    lines, run = reference.run_trainrun(str(path), tmp_path / "run", f"model.weights={tmp_path / 'resnet18.pth'}", "training.convolutions=direct")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for batch in range(3):
        optimizer.zero_grad()
        part = slice(4 * batch, 4 * batch + 4)
        loss = nn.functional.cross_entropy(model(images[part]), labels[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    trained = reference.losses_of(lines)
    assert trained == pytest.approx(losses, rel=TOLERANCE)
    state = safetensors.torch.load_file(run / "checkpoints" / "latest" / "model.safetensors")
    other = cifar_resnet18()
    other.load_state_dict(state, strict=True)
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(images[:4]), model.eval()(images[:4]), rtol=1e-2, atol=1e-2)


def test_a_model_among_other_layers_has_its_name_in_front(probe, recipe, tmp_path):
    path, images, _ = recipe
    torch.manual_seed(12)
    model = cifar_resnet18()
    torch.save(model.state_dict(), tmp_path / "resnet18.pth")
    weights = f"model.weights={{path: {tmp_path / 'resnet18.pth'}, rename: {{'^(?!fc)': 'body.'}}, strict: false}}"
    layers = ("model.layers=[{type: ResNet18, name: body, stem: cifar, num_classes: null}, "
              "{type: Linear, name: head, out_features: 3}]")
    _, results = probe.ask("model", named("input", {"image": images[:4], "label": torch.zeros(4).long()}),
                           recipe=str(path), overrides=[weights, layers])
    state = results.under("state")
    assert_same({name: tensor for name, tensor in state.items() if name.startswith("body.")},
                {"body." + name: tensor for name, tensor in model.state_dict().items() if not name.startswith("fc")},
                "the body's weights")
    model.fc = nn.Identity()
    with torch.no_grad():
        features = model.eval()(images[:4])
    expected = features @ state["head.weight"].T + state["head.bias"]
    assert_same(results.under("output"), {"0": expected}, "logits", TOLERANCE)


@pytest.mark.parametrize("recipe, registered", [
    ("recipes/resnet18_blocks.yaml", "[{type: ResNet18, num_classes: 10, stem: cifar}]"),
    ("tests/recipes/valid/unet_blocks.yaml", "[{type: UNet, name: head, num_classes: 1, channels: 4, depth: 2}]"),
])
def test_a_model_written_with_blocks_trains_as_the_registered_one(recipe, registered, tmp_path):
    steps = ["training.max_steps=2", "dataloader.batch_size=8", "checkpoint.every=2", "evaluation.every=null"]
    written, first = reference.run_trainrun(recipe, tmp_path / "written", *steps)
    same, second = reference.run_trainrun(recipe, tmp_path / "registered", *steps, "model.blocks={}", "model.init=null",
                                          f"model.layers={registered}")
    assert [line["train/loss"] for line in written] == [line["train/loss"] for line in same]
    state = safetensors.torch.load_file(first / "checkpoints" / "latest" / "model.safetensors")
    other = safetensors.torch.load_file(second / "checkpoints" / "latest" / "model.safetensors")
    assert_same({name.removeprefix("head.") if "UNet" in registered and name.count(".") > 1 else name: tensor
                 for name, tensor in other.items()}, state, "weights")
