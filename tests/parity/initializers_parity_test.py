"""Every initializer against its function of torch.nn.init: bit for bit from the same seed."""

import pytest
import torch
from torch import nn

from probe import ProbeError, assert_same, missing_rows, named

SEED = 11


def row(name, function, **parameters):
    return pytest.param({"type": name, **parameters}, function, id=name + str(parameters or ""))


GAINS = ["linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid", "tanh", "relu",
         "leaky_relu", "selu"]

ROWS = [
    row("Uniform", nn.init.uniform_),
    row("Uniform", lambda t: nn.init.uniform_(t, -0.3, 0.2), a=-0.3, b=0.2),
    row("Normal", nn.init.normal_),
    row("Normal", lambda t: nn.init.normal_(t, 0.5, 0.02), mean=0.5, std=0.02),
    row("TruncNormal", nn.init.trunc_normal_),
    row("TruncNormal", lambda t: nn.init.trunc_normal_(t, 0.1, 0.7, -0.5, 0.4), mean=0.1, std=0.7, a=-0.5, b=0.4),
    row("Constant", lambda t: nn.init.constant_(t, 0.3), val=0.3),
    row("Zeros", nn.init.zeros_),
    row("Ones", nn.init.ones_),
    row("Eye", nn.init.eye_),
    row("XavierUniform", nn.init.xavier_uniform_),
    row("XavierUniform", lambda t: nn.init.xavier_uniform_(t, 1.7), gain=1.7),
    row("XavierNormal", nn.init.xavier_normal_),
    row("XavierNormal", lambda t: nn.init.xavier_normal_(t, 0.4), gain=0.4),
    row("Orthogonal", nn.init.orthogonal_),
    row("Orthogonal", lambda t: nn.init.orthogonal_(t, 0.4), gain=0.4),
    *[row(name, lambda t, f=f, mode=mode, gain=gain: f(t, 0.2, mode, gain), a=0.2, mode=mode, nonlinearity=gain)
      for name, f in (("KaimingUniform", nn.init.kaiming_uniform_), ("KaimingNormal", nn.init.kaiming_normal_))
      for mode in ("fan_in", "fan_out") for gain in GAINS],
    row("KaimingUniform", nn.init.kaiming_uniform_),
    row("KaimingNormal", nn.init.kaiming_normal_),
]

LAYERS = [
    ({"type": "Linear", "out_features": 5}, lambda: nn.Linear(7, 5), (2, 7)),
    ({"type": "Linear", "out_features": 9}, lambda: nn.Linear(4, 9), (2, 4)),
    ({"type": "Conv2d", "out_channels": 6, "kernel_size": [2, 3], "groups": 2}, lambda: nn.Conv2d(4, 6, (2, 3), groups=2), (2, 4, 5, 5)),
    ({"type": "LSTM", "hidden_size": 3}, lambda: nn.LSTM(4, 3), (5, 2, 4)),
]


@pytest.mark.parametrize("spec, function", ROWS)
def test_initializer_equals_pythons(probe, spec, function):
    for layer, make, shape in LAYERS:
        if spec["type"] == "Eye" and layer["type"] == "Conv2d":
            continue  # two dimensions only
        torch.manual_seed(SEED)
        module = make()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if "weight" in name:
                    function(parameter)
        _, results = probe.ask("layer", named("input", {"a": torch.zeros(shape)}), spec=layer | {"init": spec}, seed=SEED)
        expected = {f"0.{name}": tensor for name, tensor in module.state_dict().items()}
        assert_same(results.under("initial"), expected, f"{layer['type']} initial")


def test_the_first_rule_that_matches_is_applied(probe):
    rules = [{"match": "bias$", "type": "Zeros"}, {"match": "", "type": "Ones"}]
    _, results = probe.ask("layer", named("input", {"a": torch.zeros(2, 7)}), seed=SEED,
                           spec={"type": "Linear", "out_features": 5, "init": rules})
    assert_same(results.under("initial"), {"0.bias": torch.zeros(5), "0.weight": torch.ones(5, 7)}, "initial")


@pytest.mark.parametrize("spec, message", [
    ({"type": "ReLU", "init": "Zeros"}, "no parameter that an earlier pattern left has a name that matches 'weight'"),
    ({"type": "Linear", "out_features": 5, "init": [{"match": "wieght", "type": "Zeros"}]}, "did you mean weight?"),
    ({"type": "BatchNorm2d", "init": "XavierNormal"}, "fan in and fan out need two dimensions or more"),
    ({"type": "Linear", "out_features": 5, "init": [{"match": "(", "type": "Zeros"}]}, "is not a regular expression"),
    ({"type": "Linear", "out_features": 5, "init": "KaimingNormel"}, "did you mean KaimingNormal?"),
])
def test_a_rule_that_does_not_fit_is_an_error(probe, spec, message):
    shape = (2, 7) if spec["type"] == "Linear" else (2, 3, 4, 4)
    with pytest.raises(ProbeError) as error:
        probe.ask("layer", named("input", {"a": torch.zeros(shape)}), spec=spec, seed=SEED)
    assert message in str(error.value)


def test_every_initializer_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["initializer"], [r.values[0] for r in ROWS]) == []
