"""What trainrun does of the table: writes a job's recipe, runs it, and reads its figures from metrics.jsonl."""

import json
import pathlib
import tempfile

from . import runs
from .jobs import Job, length_of, recipe_of


def recipe_path(job: Job, folder: pathlib.Path) -> pathlib.Path:
    name = recipe_of(job)
    if name:
        return runs.ROOT / "recipes" / f"{name}.yaml"
    path = folder / f"{job.name}.yaml"
    path.write_text(job.recipe)
    return path


def train(context, job: Job, overrides: list, environment: dict | None = None, **options) -> tuple[list[dict], runs.Done]:
    """The lines of metrics.jsonl, and how the process did."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        command = [context.binary, *([] if options.get("wait_for") else ["--quiet"]), recipe_path(job, place), f"output_dir={place}/run", *overrides, *context.overrides]
        done = runs.run(command, {"TRAINRUN_DATA": str(context.data)} | (environment or {}), **options)
        lines = [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    return lines, done


def precision_of(bf16: bool) -> str:
    return f"mixed_precision={'bf16' if bf16 else 'no'}"


def steps(context, job: Job, count: int, batch: int, bf16: bool = False, overrides: tuple = (), environment: dict | None = None) -> dict:
    """The seconds of a step of the second half of them, and the loss of the last."""
    lines, done = train(context, job, [*length_of(job, count, batch), precision_of(bf16), *overrides], environment, timeout=context.timeout)
    lines = [line for line in lines if line["split"] == "train"]
    first, last = (lines[0], lines[-1]) if len(lines) > 1 else ({"time": 0, "step": 0}, lines[-1])
    half = next((line for line in lines if line["step"] == max(1, count // 2)), first)
    return {"value": (last["time"] - half["time"]) / max(1, last["step"] - half["step"]), "loss": last["train/loss"], "peak_mib": done.peak_mib, "whole": done.whole}


def asked(context, verb: str, job: Job, overrides: list, *options: str) -> dict:
    """What `trainrun VERB --json` says of the job."""
    with tempfile.TemporaryDirectory() as folder:
        command = [context.binary, verb, recipe_path(job, pathlib.Path(folder)), "--json", *options, *overrides, *context.overrides]
        return json.loads(runs.run(command, {"TRAINRUN_DATA": str(context.data)}, timeout=context.timeout).output)


def kernels(context, job: Job, bf16: bool) -> float:
    """The seconds that the layers, the loss and the optimizer of a step take together, which no loop can be faster than."""
    found = asked(context, "profile", job, [*length_of(job, 1000, job.batch), precision_of(bf16)], "--steps", "20" if context.quick else "100")
    profile = found["seconds"]
    return sum(layer["forward"] + layer["backward"] for layer in profile["layers"]) + profile["loss"] + profile["optimizer"]


def flops(context, job: Job) -> float:
    """Of a step, by direct arithmetic: three forward passes of its samples."""
    forward = asked(context, "explain", job, length_of(job, 100, job.batch))["flops"]
    return 3.0 * forward * job.batch * job.accumulation
