"""Steps of recipes/shakespeare_char.yaml in trainrun and in plain PyTorch as nanoGPT's users write it, fp32 and bf16, in turns: see README.md."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent.parent
BATCH = 12


def output_of(command: list, environment: dict) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_trainrun(arguments, precision: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.binary, "--quiet", "recipes/shakespeare_char.yaml", f"output_dir={folder}/run", f"training.max_steps={arguments.steps}",
                   f"mixed_precision={'bf16' if precision == 'bf16' else 'no'}", f"logging.every_steps={arguments.steps // 2}",
                   "checkpoint.every=null", "checkpoint.keep_best=null", f"evaluation.every={'epoch' if arguments.evaluate else 'null'}",
                   *arguments.overrides]
        output_of(command, os.environ | {"TRAINRUN_DATA": str(arguments.data)})
        lines = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["split"] == "train"][-1]
    figures = {"ms_per_step": 1e3 * BATCH / last["train/samples_per_second"], "loss": last["train/loss"]}
    return figures | ({"val_loss": lines[-1]["eval/loss"]} if arguments.evaluate else {})


def run_pytorch(arguments, precision: str) -> dict:
    command = [arguments.python, BENCH / "nano_gpt.py", arguments.data / "tinyshakespeare" / "input.txt", "--steps", str(arguments.steps)]
    command += ["--bf16"] * (precision == "bf16") + ["--evaluate"] * arguments.evaluate
    return json.loads(output_of(command, dict(os.environ)).splitlines()[-1])


PROGRAMS = {"trainrun": run_trainrun, "PyTorch": run_pytorch}


def processor() -> str:
    found = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} of {len(found)} processors, {found[0] if found else 'unknown'}"


def spread(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in (min(values), statistics.median(values), max(values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of which the second half is timed")
    parser.add_argument("--evaluate", action="store_true", help="and the loss of the validation part at the end")
    parser.add_argument("--binary", default=ROOT / "build" / "release" / "bin" / "trainrun", type=pathlib.Path)
    parser.add_argument("--python", default=ROOT / ".deps" / "python" / "bin" / "python", type=pathlib.Path)
    parser.add_argument("--data", default=os.environ.get("TRAINRUN_DATA", "data"), type=pathlib.Path,
                        help="the folder that holds tinyshakespeare/ (default: TRAINRUN_DATA)")
    parser.add_argument("overrides", nargs="*", help="more of the recipe's values, for trainrun alone")
    arguments = parser.parse_args()
    arguments.data = arguments.data.resolve()
    arguments.binary = arguments.binary.resolve()

    print(f"{processor()}; milliseconds a step; load: of the last minute, before")
    times = {}
    for repetition in range(arguments.repetitions):
        for precision in ("fp32", "bf16"):
            # Who begins changes, so that what drifts on the machine meets both alike.
            for name in list(PROGRAMS)[:: 1 if repetition % 2 == 0 else -1]:
                load = os.getloadavg()[0]
                result = PROGRAMS[name](arguments, precision)
                times.setdefault((name, precision), []).append(result["ms_per_step"])
                rest = "  ".join(f"{key} {value:.4f}" for key, value in result.items() if key != "ms_per_step")
                print(f"{repetition + 1}  {precision}  {name:<8}  {result['ms_per_step']:6.2f} ms  {rest}  load {load:.1f}", flush=True)

    print("\nmin / median / max")
    for precision in ("fp32", "bf16"):
        for name in PROGRAMS:
            print(f"{precision}  {name:<8}  {spread(times[name, precision])} ms")
        ratios = [theirs / ours for ours, theirs in zip(times["trainrun", precision], times["PyTorch", precision])]
        print(f"{precision}  trainrun is {spread(ratios)} times as fast")
    ratios = [full / half for full, half in zip(times["trainrun", "fp32"], times["trainrun", "bf16"])]
    print(f"trainrun's bf16 is {spread(ratios)} times as fast as its fp32")


if __name__ == "__main__":
    main()
