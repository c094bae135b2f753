"""Every scheduler against torch.optim.lr_scheduler, or the formula it is known by, for 1,000 steps and two groups: rates and
momenta within 1e-9."""

import math
import random

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from probe import ProbeError, missing_rows

TOLERANCE = 1e-9
NUM_STEPS = 1000
RATES = [0.1, 0.003]


def linear_with_warmup(warmup: int, total: int):
    """transformers.get_linear_schedule_with_warmup"""

    def factor(t):
        if t < warmup:
            return float(t) / float(max(1, warmup))
        return max(0.0, float(total - t) / float(max(1, total - warmup)))

    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, factor)


def cosine_with_warmup(warmup: int, total: int, cycles: float = 0.5):
    """transformers.get_cosine_schedule_with_warmup"""

    def factor(t):
        if t < warmup:
            return float(t) / float(max(1, warmup))
        progress = float(t - warmup) / float(max(1, total - warmup))
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * float(cycles) * 2.0 * progress)))

    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, factor)


def warmup_of(t: int, warmup: int) -> float:
    return float(t) / float(max(1, warmup))


def by_group(factor):
    """torch's LambdaLR, `factor(t, lr)` of each group's own rate."""
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, [lambda t, lr=lr: factor(t, lr) for lr in RATES])


def constant_with_warmup(warmup: int):
    """transformers.get_constant_schedule_with_warmup"""
    return by_group(lambda t, lr: warmup_of(t, warmup) if t < warmup else 1.0)


def polynomial_with_warmup(warmup: int, total: int, lr_end: float = 1e-7, power: float = 1.0):
    """transformers.get_polynomial_decay_schedule_with_warmup, with each group's rate for lr_init"""

    def factor(t, lr):
        if t < warmup:
            return warmup_of(t, warmup)
        if t > total:
            return lr_end / lr
        return ((lr - lr_end) * (1 - (t - warmup) / (total - warmup)) ** power + lr_end) / lr

    return by_group(factor)


def cosine_with_hard_restarts(warmup: int, total: int, cycles: float = 1):
    """transformers.get_cosine_with_hard_restarts_schedule_with_warmup"""

    def factor(t, lr):
        if t < warmup:
            return warmup_of(t, warmup)
        progress = float(t - warmup) / float(max(1, total - warmup))
        if progress >= 1.0:
            return 0.0
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((float(cycles) * progress) % 1.0))))

    return by_group(factor)


def inverse_sqrt(warmup: int, timescale: int | None = None):
    """transformers.get_inverse_sqrt_schedule"""
    scale = timescale or warmup or 10_000
    return by_group(lambda t, lr: warmup_of(t, warmup) if t < warmup else 1 / math.sqrt((t + scale - warmup) / scale))


def warmup_stable_decay(warmup: int, stable: int, decay: int, rise="linear", fall="cosine", least=0.0, cycles=0.5):
    """transformers.get_wsd_schedule"""
    rises = {"linear": lambda x: x, "cosine": lambda x: 0.5 * (1 - math.cos(math.pi * x)),
             "1-sqrt": lambda x: 1 - math.sqrt(1 - x)}
    falls = {"linear": lambda x: 1 - x, "cosine": lambda x: 0.5 * (1 + math.cos(math.pi * cycles * 2 * x)),
             "1-sqrt": lambda x: 1 - math.sqrt(x)}

    def factor(t, lr):
        if t < warmup:
            return max(0.0, rises[rise](warmup_of(t, warmup)) * (1 - least) + least)
        if t < warmup + stable:
            return 1.0
        if t < warmup + stable + decay:
            return max(0.0, falls[fall]((t - warmup - stable) / max(1, decay)) * (1 - least) + least)
        return least

    return by_group(factor)


def piecewise(points, constant=False):
    """numpy's interpolation, or the last point that was reached."""
    times, factors = zip(*points)
    if constant:
        return by_group(lambda t, lr: factors[max(0, sum(time <= t for time in times) - 1)])
    return by_group(lambda t, lr: float(np.interp(t, times, factors)))


def of_torch(name: str, **fixed):
    """The spec of torch's own scheduler, and how it is made; `fixed`: what trainrun takes from the job."""
    return lambda **options: ({"type": name} | options, lambda o: getattr(lr_scheduler, name)(o, **(fixed | options)))


def sequence(milestones, *rows):
    spec = {"type": "SequentialLR", "schedulers": [spec for spec, _ in rows], "milestones": milestones}
    return spec, lambda o: lr_scheduler.SequentialLR(o, [make(o) for _, make in rows], milestones)


def chain(*rows):
    spec = {"type": "ChainedScheduler", "schedulers": [spec for spec, _ in rows]}
    return spec, lambda o: lr_scheduler.ChainedScheduler([make(o) for _, make in rows])


def multiplicative(factor):
    """torch's MultiplicativeLR: a number, or points that hold until the next."""
    if isinstance(factor, list):
        rule = lambda t: 1 if t < factor[0][0] else [value for time, value in factor if time <= t][-1]
    else:
        rule = lambda t: factor
    return {"type": "MultiplicativeLR", "lr_lambda": factor}, lambda o: lr_scheduler.MultiplicativeLR(o, rule)


def warmup(name: str, make, **options):
    return {"type": name} | options, make


constant, step, cosine = of_torch("ConstantLR"), of_torch("StepLR"), of_torch("CosineAnnealingLR")
linear, polynomial, exponential = of_torch("LinearLR"), of_torch("PolynomialLR"), of_torch("ExponentialLR")
multi_step, restarts, cyclic = of_torch("MultiStepLR"), of_torch("CosineAnnealingWarmRestarts"), of_torch("CyclicLR")
one_cycle = of_torch("OneCycleLR", total_steps=NUM_STEPS)
swa = lambda **options: ({"type": "SWALR"} | options, lambda o: torch.optim.swa_utils.SWALR(o, **options))
POINTS = [[10, 0.1], [100, 1], [600.5, 0.7], [900, 0.0]]

ROWS = [
    constant(),
    constant(factor=0.25, total_iters=300),
    constant(factor=1, total_iters=1),
    step(step_size=7, gamma=0.97),
    step(step_size=300),
    cosine(T_max=NUM_STEPS),
    cosine(T_max=1500, eta_min=0.001),
    cosine(T_max=130, eta_min=0.0001),
    ({"type": "CosineAnnealingLR"}, cosine(T_max=NUM_STEPS)[1]),
    swa(swa_lr=0.03),
    swa(swa_lr=0.2, anneal_epochs=300, anneal_strategy="linear"),
    swa(swa_lr=0.001, anneal_epochs=0),
    one_cycle(max_lr=0.5),
    one_cycle(max_lr=[0.5, 0.02], pct_start=0.45, anneal_strategy="linear"),
    one_cycle(max_lr=0.5, three_phase=True, div_factor=10, final_div_factor=100),
    one_cycle(max_lr=0.5, three_phase=True, pct_start=0.2, anneal_strategy="linear"),
    one_cycle(max_lr=0.5, base_momentum=0.6, max_momentum=0.9),
    one_cycle(max_lr=0.5, base_momentum=[0.6, 0.7], max_momentum=[0.9, 0.8], pct_start=0.002),
    one_cycle(max_lr=0.5, cycle_momentum=False),
    one_cycle(max_lr=0.5, total_steps=1700, pct_start=0.0),
    one_cycle(max_lr=0.5, pct_start=1.0),
    ({"type": "LinearWithWarmup", "warmup_steps": 100}, linear_with_warmup(100, NUM_STEPS)),
    ({"type": "LinearWithWarmup"}, linear_with_warmup(0, NUM_STEPS)),
    ({"type": "LinearWithWarmup", "warmup_ratio": 0.1234}, linear_with_warmup(124, NUM_STEPS)),
    ({"type": "LinearWithWarmup", "warmup_steps": 100, "total_steps": 700}, linear_with_warmup(100, 700)),
    ({"type": "LinearWithWarmup", "warmup_steps": 2000}, linear_with_warmup(2000, NUM_STEPS)),
    ({"type": "LinearWithWarmup", "warmup_steps": 700, "total_steps": 700}, linear_with_warmup(700, 700)),
    ({"type": "CosineWithWarmup", "warmup_steps": 100}, cosine_with_warmup(100, NUM_STEPS)),
    ({"type": "CosineWithWarmup", "num_cycles": 1.5, "total_steps": 900, "warmup_ratio": 0.1},
     cosine_with_warmup(90, 900, 1.5)),
    constant(total_iters=0),
    sequence([40], constant(), constant(total_iters=0)),
    sequence([40], exponential(gamma=0.99), constant(total_iters=0, factor=0.5)),
    constant(total_iters=0, factor=0),
    linear(),
    linear(start_factor=0.01, end_factor=0.4, total_iters=700),
    linear(start_factor=1, end_factor=0, total_iters=300),
    linear(total_iters=0),
    polynomial(),
    polynomial(total_iters=800, power=2.5),
    polynomial(total_iters=0),
    exponential(gamma=0.99),
    exponential(gamma=1.001),
    multi_step(milestones=[30, 80, 80, 700]),
    multi_step(milestones=[0, 500], gamma=0.3),
    multi_step(milestones=[]),
    restarts(T_0=70),
    restarts(T_0=13, T_mult=3, eta_min=0.001),
    restarts(T_0=2000),
    cyclic(base_lr=0.001, max_lr=0.1, step_size_up=90),
    cyclic(base_lr=[0.001, 0.01], max_lr=[0.2, 0.02], step_size_up=37, step_size_down=55, mode="triangular2"),
    cyclic(base_lr=0.01, max_lr=0.3, step_size_up=50, mode="exp_range", gamma=0.999, cycle_momentum=False),
    cyclic(base_lr=0.01, max_lr=0.3, step_size_up=50, base_momentum=[0.6, 0.7], max_momentum=[0.95, 0.8]),
    cyclic(base_lr=0.01, max_lr=0.3),
    multiplicative(0.995),
    multiplicative([[100, 0.99], [300, 1.002], [301, 1]]),
    warmup("ConstantWithWarmup", constant_with_warmup(0)),
    warmup("ConstantWithWarmup", constant_with_warmup(150), warmup_steps=150),
    warmup("ConstantWithWarmup", constant_with_warmup(200), warmup_ratio=0.5, total_steps=400),
    warmup("PolynomialWithWarmup", polynomial_with_warmup(0, NUM_STEPS)),
    warmup("PolynomialWithWarmup", polynomial_with_warmup(50, 800, 0.001, 3), warmup_steps=50, total_steps=800,
           lr_end=0.001, power=3),
    warmup("PolynomialWithWarmup", polynomial_with_warmup(100, NUM_STEPS), warmup_ratio=0.1),
    warmup("CosineWithHardRestarts", cosine_with_hard_restarts(0, NUM_STEPS)),
    warmup("CosineWithHardRestarts", cosine_with_hard_restarts(90, 900, 4), warmup_steps=90, total_steps=900, num_cycles=4),
    warmup("CosineWithHardRestarts", cosine_with_hard_restarts(50, NUM_STEPS, 2.5), warmup_ratio=0.05, num_cycles=2.5),
    warmup("InverseSqrt", inverse_sqrt(0)),
    warmup("InverseSqrt", inverse_sqrt(100), warmup_steps=100),
    warmup("InverseSqrt", inverse_sqrt(100, 7), warmup_ratio=0.2, total_steps=500, timescale=7),
    warmup("WarmupStableDecay", warmup_stable_decay(0, 700, 300), num_decay_steps=300),
    warmup("WarmupStableDecay", warmup_stable_decay(100, 300, 400, "cosine", "linear", 0.1), warmup_steps=100,
           num_stable_steps=300, num_decay_steps=400, warmup_type="cosine", decay_type="linear", min_lr_ratio=0.1),
    warmup("WarmupStableDecay", warmup_stable_decay(90, 410, 400, "1-sqrt", "1-sqrt"), warmup_ratio=0.1, total_steps=900,
           num_decay_steps=400, warmup_type="1-sqrt", decay_type="1-sqrt"),
    warmup("WarmupStableDecay", warmup_stable_decay(10, 490, 500, cycles=1.5), warmup_steps=10, num_decay_steps=500,
           num_cycles=1.5),
    warmup("Piecewise", piecewise(POINTS), points=POINTS),
    warmup("Piecewise", piecewise(POINTS, constant=True), points=POINTS, interpolation="constant"),
    warmup("Piecewise", piecewise([[0, 0.5]]), points=[[0, 0.5]]),
    sequence([100], linear(start_factor=0.1, total_iters=100), cosine(T_max=900)),
    sequence([50, 300, 301], constant(total_iters=20), exponential(gamma=0.99), step(step_size=10), polynomial(total_iters=500)),
    sequence([200, 500], restarts(T_0=60), multi_step(milestones=[0, 50]), linear(total_iters=30)),
    sequence([200, 500], exponential(gamma=0.99), restarts(T_0=60, T_mult=2), cosine(T_max=90, eta_min=0.001)),
    sequence([200, 500], exponential(gamma=0.99), multiplicative(0.999), linear(total_iters=30)),
    sequence([100], linear(start_factor=0.01, total_iters=100), ({"type": "CosineAnnealingLR"}, cosine(T_max=900)[1])),
    sequence([], step(step_size=30)),
    chain(constant(factor=0.1, total_iters=20), exponential(gamma=0.99)),
    chain(linear(total_iters=100), cosine(T_max=NUM_STEPS), step(step_size=400)),
    chain(cosine(T_max=150, eta_min=0.001), exponential(gamma=0.995), multiplicative(1.001)),
    chain(exponential(gamma=0.99), restarts(T_0=90), step(step_size=1, gamma=0.5)),
    chain(polynomial(total_iters=900), multi_step(milestones=[10, 400]), ({"type": "InverseSqrt"}, inverse_sqrt(0))),
    chain(cyclic(base_lr=0.01, max_lr=0.3, step_size_up=70), polynomial(total_iters=900), constant(total_iters=300)),
    chain(sequence([40], constant(total_iters=9), step(step_size=90)), exponential(gamma=0.999)),
]

PLATEAU_ROWS = [
    {},
    {"factor": 0.7, "patience": 3, "min_lr": 0.002},
    {"mode": "max", "factor": 0.9, "patience": 0, "cooldown": 5, "threshold": 0.01},
    {"mode": "max", "threshold_mode": "abs", "threshold": 0.05, "factor": 0.8, "patience": 2},
    {"threshold_mode": "abs", "threshold": 0.02, "factor": 0.5, "patience": 5, "cooldown": 2, "eps": 1e-4},
]


def name_of(row) -> str:
    return ",".join(f"{k}={v}" if k != "type" else v for k, v in row[0].items())


def make_optimizer(kind: str):
    """Two groups of torch's SGD (without momentum of its own, or with it) or Adam."""
    options = {"SGD": {}, "SGD with momentum": {"momentum": 0.8}, "Adam": {"betas": (0.8, 0.99)}}[kind]
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in RATES]
    return getattr(torch.optim, kind.split()[0])(groups, lr=1, **options)


def momentum_of(group: dict) -> float:
    return group["betas"][0] if "betas" in group else group["momentum"]


def reference(optimizer, scheduler, metrics=None):
    """Rates and momenta of every step."""
    lrs, momenta = [], []
    optimizer.step()  # without gradients it does nothing; schedulers complain where it never was called
    for t in range(NUM_STEPS):
        lrs.append([group["lr"] for group in optimizer.param_groups])
        momenta.append([momentum_of(group) for group in optimizer.param_groups])
        if metrics is not None:
            scheduler.step(metrics[t])
        elif t + 1 < NUM_STEPS:
            scheduler.step()
    return lrs, momenta


def assert_near(actual, expected, what):
    assert len(actual) == len(expected)
    actual, expected = np.array(actual, np.float64), np.array(expected, np.float64)
    assert actual.shape == expected.shape
    near = np.abs(actual - expected) <= TOLERANCE * np.maximum(np.abs(expected), max(RATES))
    for t in np.argwhere(~near)[:1, 0]:
        raise AssertionError(f"{what} of step {t}: {actual[t]}, expected {expected[t]}")


def ask(probe, spec, momenta, **request):
    base = [{"lr": lr, "momentum": momentum} for lr, momentum in zip(RATES, momenta)]
    return probe.ask("scheduler", spec=spec, base=base, total_steps=NUM_STEPS, steps=NUM_STEPS, **request)[0]


def moves_momenta(spec) -> bool:
    return spec["type"] in ("OneCycleLR", "CyclicLR") or any(moves_momenta(inner) for inner in spec.get("schedulers", []))


# What leaves momenta alone gives every optimizer the same rates: one optimizer's are compared.
CASES = [(row, kind) for row in ROWS for kind in ("SGD", "SGD with momentum", "Adam") if kind == "Adam" or moves_momenta(row[0])]


@pytest.mark.parametrize("row, kind", CASES, ids=[f"{name_of(row)}-{kind}" for row, kind in CASES])
def test_a_thousand_steps_equal_pytorch(probe, row, kind):
    spec, make = row
    optimizer = make_optimizer(kind)
    momenta = [momentum_of(group) for group in optimizer.param_groups]
    expected_lrs, expected_momenta = reference(optimizer, make(optimizer))
    reply = ask(probe, spec, momenta)
    assert_near(reply["lr"], expected_lrs, "rate")
    assert_near(reply["momentum"], expected_momenta, "momentum")
    if kind == "Adam":
        reloaded = ask(probe, spec, momenta, reload_before=[0, 1, 2, 33, 500, 501, 777])
        assert_near(reloaded["lr"], expected_lrs, "rate, reloaded,")
        assert_near(reloaded["momentum"], expected_momenta, "momentum, reloaded,")


@pytest.mark.parametrize("spec, fault", [
    ({"type": "SequentialLR", "schedulers": ["LinearLR", "LinearLR"], "milestones": []}, "one fewer"),
    ({"type": "SequentialLR", "schedulers": [], "milestones": []}, "at least one"),
    ({"type": "SequentialLR", "schedulers": ["LinearLR"] * 3, "milestones": [5, 5]}, "must be ascending"),
    ({"type": "ChainedScheduler", "schedulers": ["ReduceLROnPlateau"]}, "waits for a metric"),
    ({"type": "ChainedScheduler", "schedulers": [{"type": "LinearLR", "interval": "epoch"}]}, "interval counts for all"),
    ({"type": "ChainedScheduler", "schedulers": [{"type": "LinearLR", "total_iter": 3}]}, "did you mean total_iters"),
    ({"type": "Piecewise", "points": []}, "at least one point"),
    ({"type": "Piecewise", "points": [[5, 1], [3, 2]]}, "order of time"),
    ({"type": "MultiplicativeLR", "lr_lambda": [[5, 1], [3, 2]]}, "order of time"),
    ({"type": "ConstantLR", "factor": 0}, "above 0"),
    ({"type": "CyclicLR", "base_lr": [], "max_lr": 1}, "at least one value"),
])
def test_what_cannot_be_is_refused(probe, spec, fault):
    with pytest.raises(ProbeError, match=fault):
        ask(probe, spec, [None, None])


def test_a_sequence_may_begin_anew_in_a_sequence(probe):
    """PyTorch cannot: its SequentialLR has no closed form to begin at."""
    inner = {"type": "SequentialLR", "schedulers": [{"type": "LinearLR", "total_iters": 9}, {"type": "ExponentialLR", "gamma": 0.9}],
             "milestones": [9]}
    alone = ask(probe, inner, [None, None])["lr"]
    outer = {"type": "SequentialLR", "schedulers": [{"type": "ConstantLR"}, inner], "milestones": [40]}
    assert_near(ask(probe, outer, [None, None])["lr"][40:], alone[:-40], "rate")


def test_after_another_scheduler_swalr_begins_at_the_rate_that_it_left(probe):
    """As one steps the two in Python: the other one before the milestone, SWALR after it."""
    optimizer, milestone = make_optimizer("SGD with momentum"), 200
    other, averaging = lr_scheduler.ExponentialLR(optimizer, 0.99), torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=100)
    expected = []
    for t in range(NUM_STEPS):
        expected.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        if t + 1 < milestone:
            other.step()
        elif t + 1 > milestone:
            averaging.step()
    spec = {"type": "SequentialLR", "milestones": [milestone],
            "schedulers": [{"type": "ExponentialLR", "gamma": 0.99}, {"type": "SWALR", "swa_lr": 0.05, "anneal_epochs": 100}]}
    assert_near(ask(probe, spec, [0.8] * len(RATES))["lr"], expected, "rate")


def test_momenta_of_an_optimizer_without_any_stay_away(probe):
    reply = ask(probe, {"type": "OneCycleLR", "max_lr": 0.5}, [None, None])
    assert reply["momentum"] == [[None, None]] * NUM_STEPS


def noisy_metrics(rising: bool) -> list[float]:
    """Gets better, then rests on plateaus, now and then no number at all."""
    draw = random.Random(3)
    curve = [math.exp(-t / 200) + 0.2 * math.sin(t / 90) + 0.05 * draw.random() for t in range(NUM_STEPS)]
    return [1 - value if rising else value for value in curve]


@pytest.mark.parametrize("options", PLATEAU_ROWS, ids=str)
@pytest.mark.parametrize("first", [None, math.nan, math.inf], ids=["", "first metric nan", "first metric inf"])
def test_reduce_lr_on_plateau_equals_pytorch(probe, options, first):
    metrics = noisy_metrics(options.get("mode") == "max")
    if first is not None and not (math.isinf(first) and options.get("mode") == "max"):
        metrics[0] = first
    metrics[500] = math.nan
    optimizer = make_optimizer("SGD")
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    expected, _ = reference(optimizer, scheduler, metrics)
    assert len({lrs[0] for lrs in expected}) > 1, "a plateau never came: the row tests nothing"
    sent = [str(m) if not math.isfinite(m) else m for m in metrics]
    spec = {"type": "ReduceLROnPlateau"} | options
    reply = ask(probe, spec, [None, None], metrics=sent)
    assert_near(reply["lr"], expected, "rate")
    reloaded = ask(probe, spec, [None, None], metrics=sent, reload_before=[0, 1, 2, 33, 500, 501, 777])
    assert reloaded["lr"] == reply["lr"]


def test_reduce_lr_on_plateau_watches_what_it_is_told_to(probe):
    spec = {"type": "ReduceLROnPlateau", "monitor": "eval/accuracy", "mode": "max"}
    assert ask(probe, spec, [None, None])["monitor"] == "eval/accuracy"


def test_every_scheduler_and_every_parameter_has_a_row(probe):
    plateau = [{"type": "ReduceLROnPlateau", "monitor": "eval/accuracy"} | options for options in PLATEAU_ROWS]
    assert missing_rows(probe.ask("catalog")["scheduler"], [spec for spec, _ in ROWS] + plateau) == []
