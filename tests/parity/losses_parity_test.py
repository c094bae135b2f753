"""Every loss against its PyTorch module: value and gradients within 1e-5."""

import pytest
import torch
from torch import nn

from probe import assert_same, missing_rows, named

TOLERANCE = 1e-5


def draw(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def labels(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(2))


WEIGHT = [0.5, 2.0, 1.0, 0.0]

# What a recipe says, PyTorch's module, output, target.
ROWS = [
    ({"type": "CrossEntropyLoss"}, nn.CrossEntropyLoss(), draw(9, 4), labels(4, 9)),
    ({"type": "CrossEntropyLoss"}, nn.CrossEntropyLoss(), draw(1, 4), labels(4, 1)),
    ({"type": "CrossEntropyLoss"}, nn.CrossEntropyLoss(), draw(3, 4, 5, 2), labels(4, 3, 5, 2)),
    ({"type": "CrossEntropyLoss"}, nn.CrossEntropyLoss(), draw(9, 4), draw(9, 4, seed=3).softmax(1)),
    ({"type": "CrossEntropyLoss", "reduction": "sum"}, nn.CrossEntropyLoss(reduction="sum"), draw(9, 4), labels(4, 9)),
    ({"type": "CrossEntropyLoss", "weight": WEIGHT}, nn.CrossEntropyLoss(torch.tensor(WEIGHT)), draw(9, 4), labels(4, 9)),
    ({"type": "CrossEntropyLoss", "ignore_index": 2}, nn.CrossEntropyLoss(ignore_index=2), draw(9, 4), labels(4, 9)),
    ({"type": "CrossEntropyLoss", "label_smoothing": 0.2, "weight": WEIGHT, "ignore_index": 1},
     nn.CrossEntropyLoss(torch.tensor(WEIGHT), label_smoothing=0.2, ignore_index=1), draw(3, 4, 6), labels(4, 3, 6)),
    ({"type": "MSELoss"}, nn.MSELoss(), draw(9, 4), draw(9, 4, seed=3)),
    ({"type": "MSELoss", "reduction": "sum"}, nn.MSELoss(reduction="sum"), draw(9), draw(9, seed=3)),
]


def name_of(row) -> str:
    return ",".join(str(v) for v in row[0].values()) + "-" + "x".join(str(size) for size in row[2].shape)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_loss_equals_its_module(probe, row):
    spec, module, output, target = row
    inputs = {"0": output.clone().requires_grad_(), "1": target.clone().requires_grad_(target.is_floating_point())}
    loss = module(inputs["0"], inputs["1"])
    loss.backward()

    _, results = probe.ask("loss", named("input", {"0": output, "1": target}), spec=spec)

    assert_same(results.under("loss"), {"value": loss}, "loss", TOLERANCE)
    gradients = {name: tensor.grad for name, tensor in inputs.items() if tensor.grad is not None}
    assert_same(results.under("input_gradient"), gradients, "gradient", TOLERANCE)


def test_every_loss_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["loss"], [row[0] for row in ROWS]) == []
