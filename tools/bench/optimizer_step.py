"""Time of one step of every optimizer over 100 parameters of 10,000 elements, trainrun's over PyTorch's fastest form of the
same (fused, foreach or for-loop, whichever is quickest here). Needs the probe:

    TRAINRUN_BUILD_DIR=build/release .deps/python/bin/python tools/bench/optimizer_step.py [NAME …]

Both run in turns, several times, and the best medians count, so that what else the machine does hits both alike. What
PyTorch lacks is timed alone."""

import inspect
import pathlib
import statistics
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity"))
from probe import Probe  # noqa: E402

NUM_PARAMETERS, SHAPE, STEPS, ROUNDS = 100, (100, 100), 20, 3
LIMIT = 1.1  # of trainrun's time over PyTorch's
SPECS = [
    {"type": "SGD", "momentum": 0.9},
    {"type": "Adam"},
    {"type": "AdamW"},
    {"type": "RMSprop"},
    {"type": "Adagrad"},
    {"type": "Adadelta"},
    {"type": "Adamax"},
    {"type": "NAdam"},
    {"type": "RAdam"},
    {"type": "ASGD"},
    {"type": "Rprop"},
    {"type": "Adafactor"},
    {"type": "Muon"},
    {"type": "Lion"},
    {"type": "LAMB"},
    {"type": "LARS"},
]


def forms_of(spec: dict) -> dict[str, torch.optim.Optimizer]:
    """PyTorch's optimizer in each form it has; none where it has no such optimizer."""
    make = getattr(torch.optim, spec["type"], None)
    if make is None:
        return {}
    options = {k: v for k, v in spec.items() if k != "type"}
    known = inspect.signature(make.__init__).parameters
    forms = {"for-loop": {"foreach": False} if "foreach" in known else {}}
    if "foreach" in known:
        forms["foreach"] = {"foreach": True}
    if "fused" in known:
        forms["fused"] = {"fused": True}
    optimizers = {}
    for form, choice in forms.items():
        parameters = [torch.randn(SHAPE, requires_grad=True) for _ in range(NUM_PARAMETERS)]
        for parameter in parameters:
            parameter.grad = torch.randn(SHAPE)
        optimizers[form] = make(parameters, **options, **choice)
    return optimizers


def median_seconds(step) -> float:
    for _ in range(5):
        step()
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> int:
    chosen = [spec for spec in SPECS if not sys.argv[1:] or spec["type"] in sys.argv[1:]]
    slow = []
    print(f"{'optimizer':<12}{'trainrun':>12}{'PyTorch':>12}  {'form':<10}{'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        probe = Probe(pathlib.Path(folder))
        for spec in chosen:
            forms = forms_of(spec)
            ours, theirs = float("inf"), {form: float("inf") for form in forms}
            for _ in range(ROUNDS):
                reply, _ = probe.ask("time_optimizer", spec=spec, num_parameters=NUM_PARAMETERS, shape=SHAPE, steps=STEPS)
                ours = min(ours, statistics.median(reply["seconds"]))
                for form, optimizer in forms.items():
                    theirs[form] = min(theirs[form], median_seconds(optimizer.step))
            line = f"{spec['type']:<12}{ours * 1e3:>9.3f} ms"
            if forms:
                form = min(theirs, key=theirs.get)
                ratio = ours / theirs[form]
                line += f"{theirs[form] * 1e3:>9.3f} ms  {form:<10}{ratio:>6.2f}"
                if ratio > LIMIT:
                    slow.append(spec["type"])
            print(line, flush=True)
        probe.close()
    if slow:
        print(f"over {LIMIT}: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
