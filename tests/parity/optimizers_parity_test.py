"""Every optimizer against torch.optim, or its paper's formulas in double precision: parameters after each of 50 steps
within 1e-5."""

import functools
import os

import pytest
import torch

from paper_optimizers import PAPERS, WRAPPERS
from probe import ProbeError, assert_same, missing_rows, named

TOLERANCE = 1e-5
# On an imagined GPU (tests/gpu), where a tensor lies is what matters: it lies there from the first steps on.
NUM_STEPS, LATE, NONE = (12, 6, 10) if os.environ.get("TRAINRUN_IMAGINED_GPU") else (50, 20, 30)
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
    {"type": "Adam", "lr": 0.05, "decoupled_weight_decay": True, "weight_decay": 0.1},
    {"type": "AdamW"},
    {"type": "AdamW", "lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1},
    {"type": "AdamW", "lr": 0.05, "amsgrad": True, "maximize": True, "weight_decay": 0},
    {"type": "RMSprop"},
    {"type": "RMSprop", "lr": 0.03, "momentum": 0.8, "weight_decay": 0.1, "maximize": True},
    {"type": "RMSprop", "centered": True, "alpha": 0.9, "eps": 1e-3},
    {"type": "RMSprop", "centered": True, "momentum": 0.9, "maximize": True},
    {"type": "Adagrad"},
    {"type": "Adagrad", "lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1},
    {"type": "Adagrad", "initial_accumulator_value": 0.3, "eps": 1e-3, "maximize": True},
    {"type": "Adadelta"},
    {"type": "Adadelta", "lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    {"type": "Adamax"},
    {"type": "Adamax", "lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    {"type": "NAdam"},
    {"type": "NAdam", "lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    {"type": "NAdam", "momentum_decay": 0.1, "decoupled_weight_decay": True, "weight_decay": 0.1},
    {"type": "RAdam"},
    {"type": "RAdam", "lr": 0.05, "betas": [0.8, 0.9], "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    {"type": "RAdam", "decoupled_weight_decay": True, "weight_decay": 0.1, "betas": [0.9, 0.99]},
    {"type": "ASGD"},
    {"type": "ASGD", "lr": 0.1, "lambd": 0.01, "alpha": 0.5, "t0": 10, "weight_decay": 0.1, "maximize": True},
    {"type": "Rprop"},
    {"type": "Rprop", "lr": 0.05, "etas": [0.3, 1.5], "step_sizes": [1e-3, 0.1], "maximize": True},
    {"type": "Adafactor"},
    {"type": "Adafactor", "lr": 0.2, "beta2_decay": -0.5, "eps": [1e-3, 0.1], "d": 2, "weight_decay": 0.1},
    {"type": "Adafactor", "eps": [None, 1e-2], "maximize": True},
    {"type": "Muon"},
    {"type": "Muon", "lr": 0.05, "momentum": 0.8, "nesterov": False, "weight_decay": 0, "adjust_lr_fn": "original"},
    {"type": "Muon", "ns_coefficients": [3, -4, 2], "ns_steps": 3, "eps": 1e-3, "adjust_lr_fn": "match_rms_adamw"},
    {"type": "Lion"},
    {"type": "Lion", "lr": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.1, "maximize": True},
    {"type": "LAMB"},
    {"type": "LAMB", "lr": 0.02, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    {"type": "LARS"},
    {"type": "LARS", "lr": 2, "momentum": 0.9, "weight_decay": 0.1, "trust_coefficient": 0.01, "eps": 0.1},
    {"type": "LARS", "lr": 0.1, "trust_coefficient": None, "momentum": 0.5, "maximize": True},
    {"type": "Lookahead", "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}},
    {"type": "Lookahead", "optimizer": {"type": "AdamW"}, "k": 3, "alpha": 0.8},
    {"type": "GradientCentralization", "optimizer": {"type": "SGD", "lr": 0.1}},
    {"type": "GradientCentralization", "optimizer": {"type": "RMSprop", "momentum": 0.5, "weight_decay": 0.1}},
    {"type": "Lookahead", "optimizer": {"type": "GradientCentralization", "optimizer": "RAdam"}},
]

LBFGS_ROWS = [
    {"type": "LBFGS", "max_iter": 3},
    {"type": "LBFGS", "lr": 0.3, "max_iter": 4, "history_size": 3, "tolerance_grad": 1e-3, "tolerance_change": 1e-4},
    {"type": "LBFGS", "line_search_fn": "strong_wolfe", "max_iter": 2},
    {"type": "LBFGS", "line_search_fn": "strong_wolfe", "max_iter": 5, "max_eval": 4, "history_size": 2},
    {"type": "LBFGS", "line_search_fn": "strong_wolfe", "lr": 0.05, "max_iter": 4},
    {"type": "LBFGS", "line_search_fn": "strong_wolfe", "lr": 30, "max_iter": 4},
]


# Matrices by Muon, a weight of more dimensions by Lookahead, what is left by AdamW.
CHAINED = {"type": "ChainedOptimizer", "optimizers": [
    {"match": "weight$", "optimizer": {"type": "Muon", "lr": 0.02, "param_groups": [{"match": "^1", "lr": 0.05}]}},
    {"match": "kernel$", "optimizer": {"type": "Lookahead", "optimizer": {"type": "SGD", "lr": 0.1}}},
    {"optimizer": {"type": "AdamW", "lr": 0.01}}]}


def name_of(spec: dict) -> str:
    return ",".join(f"{k}={v}" if k != "type" else v for k, v in spec.items())


def shapes_of(spec: dict) -> dict[str, tuple[int, ...]]:
    """Muon takes matrices only."""
    return {name: shape if len(shape) == 2 else (6, 9) for name, shape in SHAPES.items()} if spec["type"] == "Muon" else SHAPES


def make_parameters(spec: dict) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes_of(spec).items()}


def make_gradients(spec: dict, num_steps: int = NUM_STEPS) -> list[dict[str, torch.Tensor]]:
    """Of each step; some parameters have none at some steps, one has none at first."""
    return gradients_of(tuple(shapes_of(spec).items()), num_steps)


@functools.cache
def gradients_of(shapes: tuple, num_steps: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(2)
    shapes = dict(shapes)
    steps = [{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()} for _ in range(num_steps)]
    for step in (0, 1, 2, LATE):
        del steps[step]["2.weight"]
    for step in (7, 8):
        del steps[step]["0.bias"]
    steps[NONE] = {}
    return steps


def make_optimizer(spec: dict | str, groups):
    """torch.optim's optimizer of that name, or a paper's."""
    spec = {"type": spec} if isinstance(spec, str) else spec
    options = {k: v for k, v in spec.items() if k not in ("type", "param_groups")}
    if spec["type"] in WRAPPERS:
        inner = options.pop("optimizer")
        return WRAPPERS[spec["type"]](groups, lambda params: make_optimizer(inner, params), **options)
    return (PAPERS | vars(torch.optim))[spec["type"]](groups, **options)


def reference(spec: dict, make_groups, gradients, set_rates=None) -> list[dict[str, torch.Tensor]]:
    """The parameters after each step of torch.optim's or the paper's."""
    dtype = torch.float64 if spec["type"] in PAPERS else torch.float32
    parameters = {name: p.to(dtype).requires_grad_() for name, p in make_parameters(spec).items()}
    optimizer = make_optimizer(spec, make_groups(parameters))
    after = []
    for step, given in enumerate(gradients):
        for name, parameter in parameters.items():
            parameter.grad = given[name].clone().to(dtype) if name in given else None
        if set_rates:
            set_rates(step, optimizer.param_groups)
        optimizer.step()
        after.append({name: p.detach().clone().float() for name, p in parameters.items()})
    return after


def ask(probe, spec: dict, gradients, **request) -> list[dict[str, torch.Tensor]]:
    tensors = named("parameter", make_parameters(spec))
    for step, given in enumerate(gradients):
        tensors |= named(str(step), given)
    _, results = probe.ask("optimizer", tensors, spec=spec, steps=len(gradients), **request)
    steps = [{} for _ in gradients]
    for name, tensor in results.items():
        step, _, parameter = name.partition(".")
        if step.isdigit():
            steps[int(step)][parameter] = tensor
    return steps


def assert_same_steps(actual, expected, tolerance=TOLERANCE):
    assert len(actual) == len(expected)
    for step, (a, e) in enumerate(zip(actual, expected)):
        assert_same(a, e, f"after step {step + 1}", tolerance)


@pytest.fixture(scope="module", name="trained")
def steps_of_the_rows(probe):
    """Of a row, what the probe has after each of fifty steps, which is asked once."""
    return functools.cache(lambda row: ask(probe, ROWS[row], make_gradients(ROWS[row])))


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_fifty_steps_equal_torch_optim(trained, spec):
    assert_same_steps(trained(ROWS.index(spec)), reference(spec, lambda p: p.values(), make_gradients(spec)))


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_state_taken_back_changes_nothing(probe, trained, spec):
    reloaded = ask(probe, spec, make_gradients(spec), reload_before=[0, 1, 2, LATE + 1, NUM_STEPS - 1])
    assert_same_steps(reloaded, trained(ROWS.index(spec)), tolerance=0)


# The forms of PyTorch's elementwise optimizers whose bits trainrun's loops have.
FORMS = {"RMSprop": "foreach", "Adagrad": "fused", "Adadelta": "foreach", "Adamax": "foreach", "NAdam": "foreach", "RAdam": "foreach",
         "Rprop": "foreach"}  # fmt: skip


@pytest.mark.parametrize("spec", [spec for spec in ROWS if spec["type"] in FORMS], ids=name_of)
def test_steps_have_the_bits_of_torch_optim(trained, spec):
    expected = reference(spec | {FORMS[spec["type"]]: True}, lambda p: p.values(), make_gradients(spec))
    assert_same_steps(trained(ROWS.index(spec)), expected, tolerance=0)


def with_groups(spec: dict | str, groups: list) -> dict:
    """The groups belong to the innermost optimizer."""
    spec = {"type": spec} if isinstance(spec, str) else spec
    if spec["type"] in WRAPPERS:
        return spec | {"optimizer": with_groups(spec["optimizer"], groups)}
    return spec | {"param_groups": groups}


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_groups_have_options_of_their_own(probe, spec):
    gradients = make_gradients(spec)
    special = {"etas": [0.4, 1.3]} if spec["type"] == "Rprop" else {"weight_decay": 0.3}
    grouped = with_groups(spec, [{"match": "bias$"} | special, {"match": "^[024]", "lr": 0.02}])

    def groups(p):
        return [{"params": [p["0.bias"], p["2.bias"]]} | special,
                {"params": [p["0.weight"], p["2.weight"], p["4.weight"]], "lr": 0.02}]

    assert_same_steps(ask(probe, grouped, gradients), reference(grouped, groups, gradients))


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_a_scheduler_may_change_rate_and_momentum(probe, spec):
    gradients = make_gradients(spec)
    rates = [[{"lr": 0.001 * (1 + step), "momentum": 0.95 - 0.01 * (step % 10)}] for step in range(NUM_STEPS)]

    def set_rates(step, groups):
        for group, rate in zip(groups, rates[step]):
            group["lr"] = rate["lr"]
            if "betas" in group:
                group["betas"] = (rate["momentum"], group["betas"][1])
            else:
                group["momentum"] = rate["momentum"]

    expected = reference(spec, lambda p: p.values(), gradients, set_rates)
    assert_same_steps(ask(probe, spec, gradients, rates=rates, reload_before=[1, 21]), expected)  # far apart: between them, none is taken back


def distance(parameters: dict, goals: dict) -> torch.Tensor:
    """The probe's loss for optimizers with a closure, term by term in its order."""
    off = {name: p - goals[name] for name, p in parameters.items()}
    return sum((off[n] ** 2 * (goals[n].abs() + 0.5)).sum() + 0.1 * (off[n] ** 4).sum() for n in sorted(parameters))


@pytest.mark.parametrize("spec", LBFGS_ROWS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_lbfgs_equals_torch_optim(probe, spec, dtype):
    generator = torch.Generator().manual_seed(3)
    goals = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}
    start = {name: p.to(dtype) for name, p in sorted(make_parameters(spec).items())}
    parameters = {name: p.clone().requires_grad_() for name, p in start.items()}
    optimizer = torch.optim.LBFGS(parameters.values(), **{k: v for k, v in spec.items() if k != "type"})
    expected = []

    def closure():
        optimizer.zero_grad()
        loss = distance(parameters, goals)
        loss.backward()
        return loss

    num_steps = 12
    for _ in range(num_steps):
        optimizer.step(closure)
        expected.append({name: p.detach().clone() for name, p in parameters.items()})
    assert any((expected[0][n] - expected[-1][n]).abs().max() > 0.01 for n in SHAPES), "one step does it all: no test"
    tensors = named("parameter", start) | named("goal", goals)
    for reload_before in ([], [1, 2, 5]):
        _, results = probe.ask("optimizer", tensors, spec=spec, steps=num_steps, reload_before=reload_before)
        actual = [results.under(str(step)) for step in range(num_steps)]
        assert_same_steps(actual, expected, tolerance=0)  # one rounding may send a line search elsewhere


@pytest.mark.parametrize("spec", ROWS, ids=name_of)
def test_state_has_the_names_of_torch_optim(probe, spec):
    if spec["type"] in PAPERS or spec["type"] in WRAPPERS:
        pytest.skip("not torch.optim's")
    gradients = make_gradients(spec, 31)
    parameters = {name: p.requires_grad_() for name, p in make_parameters(spec).items()}
    optimizer = make_optimizer(spec, parameters.values())
    for given in gradients:
        for name, parameter in parameters.items():
            parameter.grad = given[name].clone() if name in given else None
        optimizer.step()
    tensors = named("parameter", make_parameters(spec))
    for step, given in enumerate(gradients):
        tensors |= named(str(step), given)
    _, results = probe.ask("optimizer", tensors, spec=spec, steps=len(gradients))
    actual = results.under("state")
    expected = {f"{name}.{key}": torch.as_tensor(value) for name, p in parameters.items()
                for key, value in optimizer.state[p].items() if value is not None}
    for name in [n for n in actual if n not in expected]:  # kept at 0 for the day a scheduler brings momentum
        assert name.endswith("momentum_buffer") and actual.pop(name).count_nonzero() == 0
    assert_same({n: t.float() for n, t in actual.items()}, {n: t.float() for n, t in expected.items()}, "state", TOLERANCE)


@pytest.mark.parametrize("spec, fault", [
    ({"type": "Rprop", "etas": [1.1, 1.2]}, "etas"),
    ({"type": "Rprop", "step_sizes": [1, 0.1]}, "step_sizes"),
    ({"type": "Adafactor", "eps": [1e-3, None]}, "eps"),
    ({"type": "Muon"}, "Muon is for matrices"),
    ({"type": "LBFGS", "param_groups": [{"match": "bias", "lr": 0.1}]}, "param_groups"),
    ({"type": "Lookahead", "optimizer": "SGD", "param_groups": [{"match": "bias", "k": 1}]}, "param_groups"),
    ({"type": "Lookahead"}, "optimizer"),
    ({"type": "Lookahead", "optimizer": {"type": "SGD", "param_groups": [{"match": "nothing", "lr": 0.1}]}}, "nothing"),
])
def test_what_cannot_be_is_refused(probe, spec, fault):
    with pytest.raises(ProbeError, match=fault):
        probe.ask("optimizer", named("parameter", make_parameters({"type": "SGD"})), spec=spec, steps=0)


@pytest.mark.parametrize("reload_before", [[], [1, 6, 7]], ids=["whole", "reloaded"])
def test_a_chain_steps_each_parameter_by_its_own_optimizer(probe, reload_before):
    generator = torch.Generator().manual_seed(8)
    shapes = {"0.weight": (4, 3), "1.weight": (5, 6), "1.bias": (5,), "2.kernel": (2, 1, 3, 3)}
    start = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    gradients = [{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()} for _ in range(12)]
    p = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    optimizers = [torch.optim.Muon([{"params": [p["1.weight"]], "lr": 0.05}, {"params": [p["0.weight"]]}], lr=0.02),
                  make_optimizer(CHAINED["optimizers"][1]["optimizer"], [p["2.kernel"]]), torch.optim.AdamW([p["1.bias"]], lr=0.01)]
    expected = []
    for given in gradients:
        for name, tensor in p.items():
            tensor.grad = given[name].clone()
        for optimizer in optimizers:
            optimizer.step()
        expected.append({name: tensor.detach().clone() for name, tensor in p.items()})
    tensors = named("parameter", start)
    for step, given in enumerate(gradients):
        tensors |= named(str(step), given)
    _, results = probe.ask("optimizer", tensors, spec=CHAINED, steps=len(gradients), reload_before=reload_before)
    assert_same_steps([results.under(str(step)) for step in range(len(gradients))], expected)


@pytest.mark.parametrize("optimizers, fault", [
    ([{"match": "weight$", "optimizer": {"type": "SGD", "lr": 0.1}}], "no pattern matches 0.bias"),
    ([{"optimizer": {"type": "SGD", "lr": 0.1}}, {"match": "bias", "optimizer": {"type": "SGD", "lr": 0.1}}], "'bias' leaves no parameters for SGD"),
    ([{"match": "(", "optimizer": {"type": "SGD", "lr": 0.1}}], "'(' is not a regular expression"),
    ([], "expected at least one optimizer"),
], ids=str)
def test_a_chain_that_does_not_fit_is_an_error(probe, optimizers, fault):
    with pytest.raises(ProbeError) as error:
        probe.ask("optimizer", named("parameter", make_parameters({"type": "SGD"})),
                  spec={"type": "ChainedOptimizer", "optimizers": optimizers}, steps=0)
    assert fault in str(error.value)


def test_every_optimizer_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["optimizer"], ROWS + LBFGS_ROWS + [CHAINED]) == []
