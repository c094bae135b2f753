"""What `trainrun explain --measure` foresees, beside what short runs of the same recipes took: memory, time, and whether --fits is right.

Run by hand, on a machine that does nothing else if the times are to mean something:
TRAINRUN_DATA=… .deps/python/bin/python -B tests/parity/memory_table.py [--steps 60] [--fits] [ROW …]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from program import BINARY  # noqa: E402

# Each with the overrides that make it a job of its own; large batches, so that not the program alone is measured.
RECIPES = {
    "mnist_cnn": [],
    "mnist_cnn_bf16": [],
    "mnist_residual": [],
    "mnist_wide_cnn": [],
    "shakespeare_char": [],
    "shakespeare_gpt": [],
    "resnet18_blocks": [],
    "segmentation_unet": [],
    "image_folder_finetune": [],
    "lora_chat": [],
    "dpo_tiny": [],
    "morse_ctc": [],
    "digits_transformer": [],
    "digits_gru": [],
    "digits_unet": [],
    "digits_cnn": ["dataloader.batch_size=512"],
    "digits_vae": [],
    "regression_csv": [],
    "weather_gru": [],
    "wine_folds": [],
    "digits_mlp": [],
    "digits_autoencoder": [],
    "cars_embeddings": [],
    "digits_two_heads": [],
    "mnist_wide_cnn large": ["dataloader.batch_size=512"],
    "shakespeare_char large": ["dataloader.batch_size=96", "mixed_precision=bf16"],
}
FITS_EXIT = {True: 0, False: 3}


def recipe_path(name: str) -> str:
    return str(ROOT / "recipes" / (name.split()[0] + ".yaml"))


def explain(name: str, overrides: list[str], *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, "explain", recipe_path(name), *overrides, *options], capture_output=True, text=True, cwd=ROOT)


def run(name: str, overrides: list[str], folder: str) -> tuple[int, float, float]:
    """Peak resident bytes, seconds and processor seconds of a real run."""
    command = [BINARY, recipe_path(name), *overrides, f"output_dir={folder}/run", "--quiet"]
    begin = time.perf_counter()
    running = subprocess.Popen(command, cwd=ROOT)
    peak = cpu = 0
    while running.poll() is None:
        found = re.search(r"^VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{running.pid}/status").read_text(), re.MULTILINE)
        peak = max(peak, int(found.group(1)) * 1024 if found else 0)
        fields = pathlib.Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = max(cpu, (int(fields[11]) + int(fields[12])) / 100)
        time.sleep(0.003)
    if running.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {running.returncode}")
    return peak, time.perf_counter() - begin, cpu


def row(name: str, overrides: list[str], arguments: argparse.Namespace) -> dict:
    half = arguments.steps // 2  # as in a whole job, steps come after an evaluation
    own = [*overrides, f"training.max_steps={arguments.steps}", f"evaluation.every={half}", f"checkpoint.every={half}"]
    done = explain(name, own, "--measure", "--json")
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    explained = json.loads(done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        peak, seconds, cpu = run(name, own, folder)
    figures = {"formula": explained["memory_bytes"]["total"], "foreseen": explained["demand"]["peak_bytes"], "peak": peak,
               "seconds_foreseen": explained["demand"]["seconds"], "seconds": seconds, "cpu": cpu}
    if arguments.fits:
        figures["fits"] = all(explain(name, own, "--fits", f"{int(peak * factor)}B").returncode == FITS_EXIT[factor > 1] for factor in (0.85, 1.15))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", metavar="ROW", help="rows of RECIPES, such as \"mnist_wide_cnn large\"; without any, all")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fits", action="store_true")
    arguments = parser.parse_args()
    print("| recipe | explain's formula [MB] | foreseen [MB] | measured [MB] | off | foreseen [s] | measured [s] | off | processor [s] | --fits at 85 %, 115 % |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    memory, times, right = [], [], []
    for name, overrides in RECIPES.items():
        if arguments.recipes and name not in arguments.recipes:
            continue
        found = row(name, overrides, arguments)
        memory.append(found["foreseen"] / found["peak"] - 1)
        times.append(found["seconds_foreseen"] / found["seconds"] - 1)
        right.append(found.get("fits"))
        said = {None: "", True: "both right", False: "wrong"}[found.get("fits")]
        print(f"| {name} {' '.join(overrides)} | {found['formula'] / 1e6:.0f} | {found['foreseen'] / 1e6:.0f} | {found['peak'] / 1e6:.0f} | {memory[-1]:+.1%} | "
              f"{found['seconds_foreseen']:.1f} | {found['seconds']:.1f} | {times[-1]:+.1%} | {found['cpu']:.1f} | {said} |", flush=True)
    print(f"\nmemory within 10 %: {sum(abs(one) <= 0.1 for one in memory)} of {len(memory)}; time within 20 %: {sum(abs(one) <= 0.2 for one in times)} of {len(times)}"
          + (f"; --fits right: {sum(right)} of {len(right)}" if arguments.fits else ""))


if __name__ == "__main__":
    main()
