"""Tokens per second of `trainrun generate` with and without its key-value cache, in turns with transformers' generate: a GPT-2 of
random weights (124 million parameters by default), greedy, on the CPU. The figures leave out loading: a run of many tokens less one of few."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = 32


def save_model(folder: pathlib.Path, layers: int) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, eos_token_id=None, bos_token_id=None)).eval()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return model


def ours(program: str, folder: pathlib.Path, tokens: int, *options: str) -> float:
    begin = time.perf_counter()
    subprocess.run([program, "generate", folder, "--prompts", folder / "prompts.jsonl", "--output", folder / "out.jsonl",
                    "--max-new-tokens", str(tokens), *options], check=True)
    return time.perf_counter() - begin


def theirs(model, ids: torch.Tensor, tokens: int, use_cache: bool) -> float:
    begin = time.perf_counter()
    with torch.no_grad():
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, use_cache=use_cache, pad_token_id=0)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.environ.get("TRAINRUN_BINARY", str(ROOT / "build/release/bin/trainrun")))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    few = 8
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = save_model(folder, arguments.layers)
        ids = torch.randint(0, 50257, (1, PROMPT), generator=torch.Generator().manual_seed(0))
        (folder / "prompts.jsonl").write_text(json.dumps({"input_ids": ids[0].tolist()}) + "\n")
        kinds = {
            "trainrun": lambda tokens: ours(arguments.program, folder, tokens),
            "transformers": lambda tokens: theirs(model, ids, tokens, True),
            "trainrun --no-cache": lambda tokens: ours(arguments.program, folder, tokens, "--no-cache"),
            "transformers use_cache=False": lambda tokens: theirs(model, ids, tokens, False),
        }
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(arguments.repetitions):
            for kind, run in kinds.items():
                least = run(few)
                rates[kind].append((arguments.tokens - few) / (run(arguments.tokens) - least))
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for kind, found in rates.items():
        print(f"{kind:30} {statistics.median(found):7.1f} tokens/s  ({', '.join(f'{rate:.1f}' for rate in found)})")


if __name__ == "__main__":
    main()
