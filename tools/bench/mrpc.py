#!/usr/bin/env python3
"""recipes/mrpc_minilm.yaml in trainrun and as Accelerate's nlp_example has it, in turns, each turn with another seed: see README.md."""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

from turns import BENCH, add_arguments, output_of, processor, spread, take_turns


def run_trainrun(arguments, precision: str, seed: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        length = [f"training={{max_steps: {arguments.steps}}}", "evaluation.every=null", "scheduler.total_steps=765"] if arguments.steps else []
        command = [arguments.binary, "--quiet", "recipes/mrpc_minilm.yaml", f"output_dir={folder}/run", f"seed={seed}", f"mixed_precision={precision}",
                   "checkpoint={every: null, keep_best: null}", "logging={every_steps: 5}", *length, *arguments.overrides]
        start = time.perf_counter()
        output_of(command, os.environ | {"TRAINRUN_DATA": str(arguments.data)})
        whole = time.perf_counter() - start
        lines = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["split"] == "train"]
    timed = train[2:] if arguments.steps else train
    seconds = sum(80 / line["train/samples_per_second"] for line in timed)
    figures = {"loss": train[-1]["train/loss"], "tokens_per_second": statistics.median(line["train/tokens_per_second"] for line in timed), "seconds": seconds}
    if not arguments.steps:
        last = [line for line in lines if line["split"] == "eval"][-1]
        figures |= {"accuracy": last["eval/accuracy"], "f1": last["eval/f1"]}
    return figures | {"whole": whole}


def run_accelerate(arguments, precision: str, seed: int) -> dict:
    command = [arguments.python, BENCH / "accelerate_mrpc.py", arguments.data, "--precision", precision, "--seed", str(seed)]
    command += ["--steps", str(arguments.steps)] if arguments.steps else []
    return json.loads(output_of(command).splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, help="time this many steps, but for the first ten, instead of training three epochs")
    parser.add_argument("--precisions", nargs="+", default=["no", "bf16"])
    parser.add_argument("overrides", nargs="*", help="more of the recipe's values, for trainrun alone")
    arguments = parser.parse_args()

    print(f"{processor()}; load: of the last minute, before")
    programs = {"trainrun": lambda precision, turn: run_trainrun(arguments, precision, 42 + turn),
                "Accelerate": lambda precision, turn: run_accelerate(arguments, precision, 42 + turn)}
    results = take_turns(programs, arguments.repetitions, arguments.precisions)

    print("\nmin / median / max; means of accuracy and F1")
    for precision in arguments.precisions:
        ours, theirs = (results[name, precision] for name in programs)
        for name in programs:
            runs = results[name, precision]
            quality = "" if arguments.steps else "  ".join(f"{key} {statistics.mean(run[key] for run in runs):.4f}" for key in ("accuracy", "f1"))
            print(f"{precision:<4}  {name:<10}  {spread([run['seconds'] for run in runs])} s of training  {quality}")
        for key, what in (("seconds", "training"), ("whole", "whole job")):
            print(f"{precision:<4}  {what}: trainrun is {spread([b[key] / a[key] for a, b in zip(ours, theirs, strict=True)])} times as fast")


if __name__ == "__main__":
    main()
