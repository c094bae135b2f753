"""Every optimizer against torch.optim: parameters after each of 50 steps within 1e-5."""

import pytest
import torch

from probe import assert_same, missing_rows, named

TOLERANCE = 1e-5
NUM_STEPS = 50
SHAPES = {"0.weight": (4, 3), "0.bias": (4,), "2.weight": (2, 1, 3, 3), "2.bias": (), "4.weight": (700, 11)}

ROWS = [
    {"type": "SGD"},
    {"type": "SGD", "lr": 0.1, "momentum": 0.9},
    {"type": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"type": "SGD", "lr": 0.1, "momentum": 0.7, "dampening": 0.3, "maximize": True},
    {"type": "SGD", "lr": 0.1, "weight_decay": 0.1, "maximize": True},
    {"type": "Adam"},
    {"type": "Adam", "lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1},
    {"type": "Adam", "lr": 0.05, "amsgrad": True, "maximize": True},
    {"type": "AdamW"},
    {"type": "AdamW", "lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1},
    {"type": "AdamW", "lr": 0.05, "amsgrad": True, "maximize": True, "weight_decay": 0},
]


def name_of(spec: dict) -> str:
    return ",".join(f"{k}={v}" if k != "type" else v for k, v in spec.items())


def make_parameters() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def make_gradients(num_steps: int = NUM_STEPS) -> list[dict[str, torch.Tensor]]:
    """Of each step; some parameters have none at some steps, one has none at first."""
    generator = torch.Generator().manual_seed(2)
    steps = [{name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()} for _ in range(num_steps)]
    for step in (0, 1, 2, 20):
        del steps[step]["2.weight"]
    for step in (7, 8):
        del steps[step]["0.bias"]
    steps[30] = {}
    return steps


def reference(spec: dict, make_groups, gradients, set_rates=None) -> list[dict[str, torch.Tensor]]:
    """The parameters after each step of torch.optim's."""
    options = {k: v for k, v in spec.items() if k not in ("type", "param_groups")}
    parameters = {name: p.requires_grad_() for name, p in make_parameters().items()}
    optimizer = getattr(torch.optim, spec["type"])(make_groups(parameters), **options)
    after = []
    for step, given in enumerate(gradients):
        for name, parameter in parameters.items():
            parameter.grad = given[name].clone() if name in given else None
        if set_rates:
            set_rates(step, optimizer.param_groups)
        optimizer.step()
        after.append({name: p.detach().clone() for name, p in parameters.items()})
    return after


def ask(probe, spec: dict, gradients, **request) -> list[dict[str, torch.Tensor]]:
    tensors = named("parameter", make_parameters())
    for step, given in enumerate(gradients):
        tensors |= named(str(step), given)
    _, results = probe.ask("optimizer", tensors, spec=spec, steps=len(gradients), **request)
    return [results.under(str(step)) for step in range(len(gradients))]


def assert_same_steps(actual, expected, tolerance=TOLERANCE):
    assert len(actual) == len(expected)
    for step, (a, e) in enumerate(zip(actual, expected)):
        assert_same(a, e, f"after step {step + 1}", tolerance)


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_fifty_steps_equal_torch_optim(probe, spec):
    gradients = make_gradients()
    assert_same_steps(ask(probe, spec, gradients), reference(spec, lambda p: p.values(), gradients))


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_state_taken_back_changes_nothing(probe, spec):
    gradients = make_gradients()
    reloaded = ask(probe, spec, gradients, reload_before=[0, 1, 2, 21, 49])
    assert_same_steps(reloaded, ask(probe, spec, gradients), tolerance=0)


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_groups_have_options_of_their_own(probe, spec):
    gradients = make_gradients()
    grouped = spec | {"param_groups": [{"match": "bias$", "weight_decay": 0.3}, {"match": "^[024]", "lr": 0.02}]}

    def groups(p):
        return [{"params": [p["0.bias"], p["2.bias"]], "weight_decay": 0.3},
                {"params": [p["0.weight"], p["2.weight"], p["4.weight"]], "lr": 0.02}]

    assert_same_steps(ask(probe, grouped, gradients), reference(grouped, groups, gradients))


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_a_scheduler_may_change_rate_and_momentum(probe, spec):
    gradients = make_gradients()
    rates = [[{"lr": 0.001 + 0.01 * step, "momentum": 0.95 - 0.01 * (step % 10)}] for step in range(NUM_STEPS)]

    def set_rates(step, groups):
        for group, rate in zip(groups, rates[step]):
            group["lr"] = rate["lr"]
            if "betas" in group:
                group["betas"] = (rate["momentum"], group["betas"][1])
            else:
                group["momentum"] = rate["momentum"]

    expected = reference(spec, lambda p: p.values(), gradients, set_rates)
    assert_same_steps(ask(probe, spec, gradients, rates=rates), expected)
    assert_same_steps(ask(probe, spec, gradients, rates=rates, reload_before=[1, 21]), expected)


def test_every_optimizer_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["optimizer"], ROWS) == []
