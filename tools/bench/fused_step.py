#!/usr/bin/env python3
"""Times a recipe's training step with fusions and without, in turns: `trainrun profile` measures each.

Usage: fused_step.py [RECIPE] [--repetitions N] [--steps N] [KEY=VALUE …]

Prints for each repetition both times and their ratio, and the median ratio at the end. The two take turns at going first.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TRAINRUN_BINARY", ROOT / "build/release/bin/trainrun"))


def step_seconds(recipe: str, steps: int, overrides: list[str]) -> float:
    words = [BINARY, "profile", recipe, "--json", "--steps", str(steps), *overrides]
    return json.loads(subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["seconds"]["step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="recipes/mnist_cnn.yaml")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    ratios = []
    for repetition in range(arguments.repetitions):
        seconds = {}
        for fuse in ("true", "false") if repetition % 2 == 0 else ("false", "true"):
            seconds[fuse] = step_seconds(arguments.recipe, arguments.steps, [*arguments.overrides, f"training.fuse={fuse}"])
        ratios.append(seconds["false"] / seconds["true"])
        print(f"fused {1e3 * seconds['true']:.3f} ms, not fused {1e3 * seconds['false']:.3f} ms: {ratios[-1]:.2f} times as fast; "
              f"load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"median of {len(ratios)}: {statistics.median(ratios):.2f} times as fast")


if __name__ == "__main__":
    main()
