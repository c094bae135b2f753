"""A whole model's weights, before the first step, equal those of the same modules in Python after the same seed, bit for bit."""

import pytest
import torch

import reference
from probe import assert_same

RECIPES = [
    ("recipes/mnist_cnn.yaml", reference.mnist_cnn),
    ("tests/recipes/parity_residual.yaml", reference.residual_net),
    ("tests/recipes/parity_lstm.yaml", reference.LstmClassifier),
]


@pytest.mark.parametrize("recipe, make", RECIPES)
@pytest.mark.parametrize("seed", [0, 42])
def test_initial_weights_are_pythons(probe, recipe, make, seed):
    torch.manual_seed(seed)
    expected = make().state_dict()
    _, results = probe.ask("model", recipe=recipe, overrides=[f"seed={seed}"])
    assert_same(results.under("state"), expected, "initial state")
    torch.manual_seed(seed + 1)
    other = make().state_dict()
    assert any(not torch.equal(results.under("state")[name], tensor) for name, tensor in other.items())
