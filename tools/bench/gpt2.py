#!/usr/bin/env python3
"""Steps of recipes/gpt2_clm.yaml (GPT-2, 124 M parameters) in trainrun and with Accelerate and transformers, fp32 and bf16, in turns: see README.md."""

import argparse
import json
import os
import pathlib
import tempfile

from turns import BENCH, add_arguments, output_of, processor, spread, take_turns

CHECKPOINT = """\
import sys, tokenizers, torch, transformers
folder, text = sys.argv[1:]
torch.manual_seed(42)
transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(folder)
tokenizer = tokenizers.ByteLevelBPETokenizer()
tokenizer.train([text], vocab_size=8000, show_progress=False)
tokenizer.save(folder + "/tokenizer.json")
"""


def run_trainrun(arguments, data: pathlib.Path, precision: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.binary, "--quiet", "recipes/gpt2_clm.yaml", f"output_dir={folder}/run", f"mixed_precision={precision}",
                   f"dataset.train.block_size={arguments.block}", f"dataset.eval.block_size={arguments.block}", f"dataloader.batch_size={arguments.batch}",
                   f"training={{max_steps: {arguments.steps}, gradient_accumulation_steps: {arguments.accumulation}, max_grad_norm: 1.0}}",
                   "scheduler.total_steps=1000", "evaluation.every=null", "checkpoint={every: null}", f"logging={{every_steps: {arguments.steps // 2}}}",
                   *arguments.overrides]
        output_of(command, os.environ | {"TRAINRUN_DATA": str(data)})
        lines = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["split"] == "train"][-1]
    return {"tokens_per_second": last["train/tokens_per_second"], "loss": last["train/loss"], "whole": last["time"]}


def run_accelerate(arguments, data: pathlib.Path, precision: str) -> dict:
    command = [arguments.python, BENCH / "accelerate_gpt2.py", data / "gpt2", data / "tinyshakespeare" / "input.txt", "--precision", precision]
    for name in ("block", "batch", "accumulation", "steps"):
        command += [f"--{name}", getattr(arguments, name)]
    return json.loads(output_of(command).splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--block", type=int, default=512, help="tokens of a sample")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="of which the second half is timed")
    parser.add_argument("--precisions", nargs="+", default=["no", "bf16"])
    parser.add_argument("overrides", nargs="*", help="more of the recipe's values, for trainrun alone")
    arguments = parser.parse_args()

    print(f"{processor()}; load: of the last minute, before")
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder)
        (data / "tinyshakespeare").symlink_to(arguments.data / "tinyshakespeare")
        output_of([arguments.python, "-c", CHECKPOINT, data / "gpt2", data / "tinyshakespeare" / "input.txt"])
        programs = {"trainrun": lambda precision, _: run_trainrun(arguments, data, precision),
                    "Accelerate": lambda precision, _: run_accelerate(arguments, data, precision)}
        results = take_turns(programs, arguments.repetitions, arguments.precisions)

    print("\nmin / median / max")
    for precision in arguments.precisions:
        rates = {name: [run["tokens_per_second"] for run in results[name, precision]] for name in programs}
        for name in programs:
            print(f"{precision:<4}  {name:<10}  {spread(rates[name], 0)} tokens a second")
        print(f"{precision:<4}  trainrun is {spread([a / b for a, b in zip(rates['trainrun'], rates['Accelerate'], strict=True)])} times as fast")


if __name__ == "__main__":
    main()
