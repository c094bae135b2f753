"""One epoch of recipes/mnist_cnn.yaml in trainrun and the same in Accelerate, in turns, side by side: see README.md."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent.parent


def timed(command: list, environment: dict) -> tuple[float, str]:
    """Seconds from start to exit, and standard output."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return seconds, done.stdout


def run_trainrun(arguments) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        # The schedule is that of all eight epochs, and only training is timed: no evaluation, no checkpoint.
        command = [arguments.binary, "--quiet", "recipes/mnist_cnn.yaml", f"output_dir={folder}/run", "training.num_epochs=1",
                   "scheduler.total_steps=15000", "evaluation.every=null", "checkpoint.every=null",
                   "checkpoint.keep_best=null", f"dataloader.num_workers={arguments.num_workers}", *arguments.overrides]
        seconds, _ = timed(command, os.environ | {"TRAINRUN_DATA": str(arguments.data)})
        last = json.loads(pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()[-1])
    return {"epoch": last["time"], "whole": seconds, "loss": last["train/loss_avg"]}


def run_accelerate(arguments) -> dict:
    command = [arguments.python, BENCH / "accelerate_mnist.py", arguments.data / "mnist", "--num-workers",
               str(arguments.num_workers)]
    seconds, output = timed(command, dict(os.environ))
    figures = json.loads(output.splitlines()[-1])
    return {"epoch": figures["epoch_seconds"], "whole": seconds, "loss": figures["loss"]}


PROGRAMS = {"trainrun": run_trainrun, "Accelerate": run_accelerate}


def spread(values: list[float], digits: int = 2) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--num-workers", type=int, default=2, help="of both programs (default: 2, as the recipe says)")
    parser.add_argument("--binary", default=ROOT / "build" / "release" / "bin" / "trainrun", type=pathlib.Path)
    parser.add_argument("--python", default=ROOT / ".deps" / "python" / "bin" / "python", type=pathlib.Path)
    parser.add_argument("--data", default=os.environ.get("TRAINRUN_DATA", "data"), type=pathlib.Path,
                        help="the folder that holds mnist/ (default: TRAINRUN_DATA)")
    parser.add_argument("overrides", nargs="*", help="more of the recipe's values, for trainrun alone")
    arguments = parser.parse_args()
    arguments.data = arguments.data.resolve()
    arguments.binary = arguments.binary.resolve()

    print(f"{os.cpu_count()} processors; seconds of one epoch, and from start to exit; load: of the last minute, before")
    figures = {name: [] for name in PROGRAMS}
    for repetition in range(arguments.repetitions):
        # Who begins changes, so that what drifts on the machine meets both alike.
        for name in list(PROGRAMS)[:: 1 if repetition % 2 == 0 else -1]:
            load = os.getloadavg()[0]
            result = PROGRAMS[name](arguments)
            figures[name].append(result)
            print(f"{repetition + 1}  {name:<10}  epoch {result['epoch']:6.2f}  whole {result['whole']:6.2f}  "
                  f"loss {result['loss']:.4f}  load {load:.1f}", flush=True)

    print("\nmin / median / max")
    for part in ("epoch", "whole"):
        seconds = {name: [result[part] for result in results] for name, results in figures.items()}
        ratios = [theirs / ours for ours, theirs in zip(seconds["trainrun"], seconds["Accelerate"])]
        for name, values in seconds.items():
            print(f"{part}  {name:<10}  {spread(values)} s")
        print(f"{part}  trainrun is {spread(ratios)} times as fast")


if __name__ == "__main__":
    main()
