"""Every scheduler against torch.optim.lr_scheduler, or the formula it is known by, for 1,000 steps and two groups: rates and
momenta within 1e-9."""

import math
import random

import pytest
import torch
from torch.optim import lr_scheduler

from probe import missing_rows

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


def of_torch(name: str, **fixed):
    """The spec of torch's own scheduler, and how it is made; `fixed`: what trainrun takes from the job."""
    return lambda **options: ({"type": name} | options, lambda o: getattr(lr_scheduler, name)(o, **(fixed | options)))


constant, step, cosine = of_torch("ConstantLR"), of_torch("StepLR"), of_torch("CosineAnnealingLR")
one_cycle = of_torch("OneCycleLR", total_steps=NUM_STEPS)

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
    for t in range(NUM_STEPS):
        lrs.append([group["lr"] for group in optimizer.param_groups])
        momenta.append([momentum_of(group) for group in optimizer.param_groups])
        optimizer.step()
        if metrics is not None:
            scheduler.step(metrics[t])
        elif t + 1 < NUM_STEPS:
            scheduler.step()
    return lrs, momenta


def assert_near(actual, expected, what):
    assert len(actual) == len(expected)
    for t, (a, e) in enumerate(zip(actual, expected)):
        assert a == pytest.approx(e, rel=TOLERANCE, abs=TOLERANCE * max(RATES)), f"{what} of step {t}: {a}, expected {e}"


def ask(probe, spec, momenta, **request):
    base = [{"lr": lr, "momentum": momentum} for lr, momentum in zip(RATES, momenta)]
    return probe.ask("scheduler", spec=spec, base=base, total_steps=NUM_STEPS, steps=NUM_STEPS, **request)[0]


@pytest.mark.parametrize("kind", ["SGD", "SGD with momentum", "Adam"])
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_thousand_steps_equal_pytorch(probe, row, kind):
    spec, make = row
    optimizer = make_optimizer(kind)
    momenta = [momentum_of(group) for group in optimizer.param_groups]
    expected_lrs, expected_momenta = reference(optimizer, make(optimizer))
    reply = ask(probe, spec, momenta)
    assert_near(reply["lr"], expected_lrs, "rate")
    assert_near(reply["momentum"], expected_momenta, "momentum")


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
