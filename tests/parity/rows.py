"""A table's row: a layer as a recipe says it, and the same in PyTorch. layers_parity_test.py runs the tables."""

import dataclasses
from collections.abc import Callable

import torch
from torch import nn


@dataclasses.dataclass
class Row:
    """A layer as a recipe says it, the same in PyTorch, and shapes of its inputs (or the inputs themselves)."""

    spec: dict
    make: Callable[[], nn.Module]
    inputs: list

    def __str__(self):
        options = ",".join(f"{k}={v}" for k, v in self.spec.items() if k not in ("type", "inputs") and not isinstance(v, list))
        return self.spec["type"] + (f"({options})" if options else "")


def row(type_: str, options: dict, make: Callable[[], nn.Module], *inputs) -> Row:
    return Row({"type": type_} | options, make, list(inputs))


class Function(nn.Module):
    """A module without state that computes `function`."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def indices(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


IMAGE = (3, 4, 9, 11)  # [N, C, H, W]
