"""Freezing, against a loop in Python that turns `requires_grad` off: for ever, or until an epoch; over ranks; resumed."""

import re

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import reference
from probe import ProbeError, assert_same

EPOCHS, BATCHES, BATCH_SIZE = 4, 3, 8
NET = ("[{type: Conv2d, name: stem, out_channels: 6, kernel_size: 3, bias: false}, {type: BatchNorm2d, name: norm}, ReLU, Flatten, "
       "{type: Linear, name: body, out_features: 12}, ReLU, {type: Linear, name: head, out_features: 5}]")
OPTIMIZERS = {
    "{type: AdamW, lr: 0.01, weight_decay: 0.1}": lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1),
    "{type: SGD, lr: 0.1, momentum: 0.9, weight_decay: 0.01}":
        lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01),
}


def make_net() -> nn.Module:
    net = nn.Sequential()
    for name, module in (("stem", nn.Conv2d(1, 6, 3, bias=False)), ("norm", nn.BatchNorm2d(6)), ("2", nn.ReLU()), ("3", nn.Flatten()),
                         ("body", nn.Linear(216, 12)), ("5", nn.ReLU()), ("head", nn.Linear(12, 5))):
        net.add_module(name, module)
    return net


@pytest.fixture
def recipe(tmp_path):
    generator = torch.Generator().manual_seed(4)
    count = BATCHES * BATCH_SIZE
    images = torch.randn((count, 1, 8, 8), generator=generator)
    labels = torch.randint(5, (count,), generator=generator)
    np.savez(tmp_path / "data.npz", image=images.numpy(), label=labels.numpy())
    path = tmp_path / "frozen.yaml"
    path.write_text(f"""
version: 1
name: frozen
seed: 6
model: {{layers: {NET}}}
loss: CrossEntropyLoss
dataset: {{train: {{type: TensorFile, path: {tmp_path / 'data.npz'}}}}}
dataloader: {{batch_size: {BATCH_SIZE}, shuffle: false}}
optimizer: {{type: AdamW, lr: 0.01}}
training: {{num_epochs: {EPOCHS}}}
evaluation: {{every: null}}
checkpoint: {{every: epoch, keep_last: null}}
""")
    return path, images, labels


def weights(run) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "checkpoints" / "latest" / "model.safetensors")


def train_in_python(images, labels, make_optimizer, is_frozen) -> dict[str, torch.Tensor]:
    """`is_frozen(name, epoch)`: whether a parameter keeps its values in that epoch."""
    torch.manual_seed(6)
    net = make_net()
    optimizer = make_optimizer(net.parameters())
    for epoch in range(EPOCHS):
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(not is_frozen(name, epoch))
        for batch in range(BATCHES):
            part = slice(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[part]), labels[part]).backward()
            optimizer.step()
    return net.state_dict()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("unfreeze", [None, 1, 3])
def test_frozen_parameters_keep_their_values_as_in_python(recipe, tmp_path, optimizer, unfreeze):
    path, images, labels = recipe
    until = "" if unfreeze is None else f"model.unfreeze_at_epoch={unfreeze}"
    overrides = [f"optimizer={optimizer}", "model.freeze=['^stem', 'body.bias$']", *([until] if until else [])]
    _, run = reference.run_trainrun(str(path), tmp_path / "run", *overrides)

    def is_frozen(name, epoch):
        return (name.startswith("stem") or name == "body.bias") and (unfreeze is None or epoch < unfreeze)

    expected = train_in_python(images, labels, OPTIMIZERS[optimizer], is_frozen)
    actual = weights(run)
    assert_same(actual, expected, "weights", 1e-5)
    torch.manual_seed(6)
    initial = make_net().state_dict()
    for name in ("stem.weight", "body.bias"):
        assert torch.equal(actual[name], initial[name]) == (unfreeze is None), name


@pytest.mark.parametrize("ranks", ["distributed_type=MULTI_CPU", "distributed_type=FSDP"])
@pytest.mark.parametrize("unfreeze", ["null", 2])
def test_ranks_freeze_and_unfreeze_as_one_process_does(recipe, tmp_path, ranks, unfreeze):
    path, _, _ = recipe
    freeze = ["model.freeze=['^stem', 'body.bias$']", f"model.unfreeze_at_epoch={unfreeze}",
              "model.layers=" + NET.replace("{type: BatchNorm2d, name: norm}, ", "")]
    _, alone = reference.run_trainrun(str(path), tmp_path / "alone", *freeze)
    _, several = reference.run_trainrun(str(path), tmp_path / "several", *freeze, ranks, "num_processes=2",
                                        f"dataloader.batch_size={BATCH_SIZE // 2}")
    assert_same(weights(several), weights(alone), "weights", 1e-5)


def test_a_resume_before_the_epoch_ends_in_the_same_bits(recipe, tmp_path):
    path, _, _ = recipe
    freeze = ["model.freeze=['^stem']", "model.unfreeze_at_epoch=2", "checkpoint={every: 1, keep_last: null}"]
    _, whole = reference.run_trainrun(str(path), tmp_path / "whole", *freeze)
    checkpoints = sorted(path for path in (whole / "checkpoints").iterdir() if not path.is_symlink())
    assert len(checkpoints) == EPOCHS * BATCHES
    for checkpoint in checkpoints[1:-1:3]:
        _, rest = reference.run_trainrun(str(path), tmp_path / checkpoint.name, *freeze, f"checkpoint.resume={checkpoint}")
        assert_same(weights(rest), weights(whole), f"weights of a run resumed at {checkpoint.name}")


def test_weights_with_another_head_load_all_else_and_say_so(probe, recipe, tmp_path):
    path, _, _ = recipe
    torch.manual_seed(1)
    state = make_net().state_dict()
    given = {name: tensor for name, tensor in state.items() if name != "norm.bias"}
    given |= {"head.weight": torch.ones(9, 12), "head.bias": torch.ones(9), "extra": torch.ones(2)}
    torch.save(given, tmp_path / "other.pt")
    overrides = [f"model.weights={{path: {tmp_path / 'other.pt'}, strict: false}}"]
    reply, results = probe.ask("model", recipe=str(path), overrides=overrides)
    assert reply["passed_over"] == ["missing norm.bias [6]", "unexpected extra [2]",
                                    "head.weight is [9, 12], the model's is [5, 12]", "head.bias is [9], the model's is [5]"]
    torch.manual_seed(6)
    fresh = make_net().state_dict()
    kept = {"head.weight", "head.bias", "norm.bias"}
    expected = {name: fresh[name] if name in kept else tensor for name, tensor in state.items()}
    assert_same(results.under("state"), expected, "weights")


@pytest.mark.parametrize("override, message", [
    ("model.freeze=['^stam']", "'^stam' matches no parameter"),
    ("model.freeze=['(']", "is not a regular expression"),
    ("model.freeze=['']", "every parameter is frozen"),
    ("model.unfreeze_at_epoch=2", "needs freeze"),
])
def test_what_cannot_be_frozen_is_said_before_training(probe, recipe, override, message):
    with pytest.raises(ProbeError, match=re.escape(message)):
        probe.ask("model", recipe=str(recipe[0]), overrides=[override])
