"""Steps of recipes/shakespeare_char.yaml in trainrun and in plain PyTorch as nanoGPT's users write it, fp32 and bf16, in turns: see README.md."""

import argparse
import json
import os
import pathlib
import tempfile

from turns import BENCH, add_arguments, output_of, processor, spread, take_turns

BATCH = 12


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
    return json.loads(output_of(command).splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=300, help="of which the second half is timed")
    parser.add_argument("--evaluate", action="store_true", help="and the loss of the validation part at the end")
    parser.add_argument("overrides", nargs="*", help="more of the recipe's values, for trainrun alone")
    arguments = parser.parse_args()

    print(f"{processor()}; milliseconds a step; load: of the last minute, before")
    programs = {"trainrun": lambda precision, _: run_trainrun(arguments, precision), "PyTorch": lambda precision, _: run_pytorch(arguments, precision)}
    results = take_turns(programs, arguments.repetitions, ["fp32", "bf16"])
    times = {key: [figures["ms_per_step"] for figures in runs] for key, runs in results.items()}

    print("\nmin / median / max")
    for precision in ("fp32", "bf16"):
        for name in programs:
            print(f"{precision}  {name:<8}  {spread(times[name, precision])} ms")
        ratios = [theirs / ours for ours, theirs in zip(times["trainrun", precision], times["PyTorch", precision])]
        print(f"{precision}  trainrun is {spread(ratios)} times as fast")
    ratios = [full / half for full, half in zip(times["trainrun", "fp32"], times["trainrun", "bf16"])]
    print(f"trainrun's bf16 is {spread(ratios)} times as fast as its fp32")


if __name__ == "__main__":
    main()
