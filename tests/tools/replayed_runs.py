"""Small runs over a CSV file, for the tests of `trainrun replay` and `trainrun bisect`."""

import hashlib
import json
import random
import re
import shutil
import subprocess

import safetensors
import safetensors.torch

from tests.program import CALLED

RECIPE = """
version: 1
name: table
seed: 5
model:
  layers:
    - {type: Linear, out_features: 16}
    - Tanh
    - {type: Linear, out_features: 16}
    - {type: Linear, out_features: 12}
    - Tanh
    - {type: Linear, out_features: 1}
loss: MSELoss
dataset:
  train: {type: CSV, path: train.csv, label: y, task: regression}
dataloader: {batch_size: 16}
optimizer: {type: AdamW, lr: 1e-2}
training: {num_epochs: 6}
logging: {every_steps: 1}
checkpoint: {every: 19, keep_last: null}
"""
ROWS, COLUMNS = 256, 4


def write_table(path, changed=None):
    """Numbers that follow from a seed; `changed`: the row of which one number is another."""
    draw = random.Random(7)
    lines = [",".join([f"x{i}" for i in range(COLUMNS)] + ["y"])]
    for row in range(ROWS):
        numbers = [draw.gauss(0, 1) for _ in range(COLUMNS)]
        target = numbers[0] * numbers[1] - numbers[2] + draw.gauss(0, 0.1)
        if row == changed:
            numbers[2] += 0.25
        lines.append(",".join(f"{number:.4f}" for number in [*numbers, target]))
    path.write_text("\n".join(lines) + "\n")


def called(folder, *arguments):
    return subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def trained(folder, name, *changes):
    (folder / "recipe.yaml").write_text(RECIPE)
    done = called(folder, "run", "recipe.yaml", f"output_dir={name}", *changes)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / name


def lines_of(run):
    return {line["step"]: line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if line["split"] == "train"}


def json_of(folder, *arguments, code=(0,)):
    done = called(folder, *arguments, "--json")
    assert done.returncode in code, done.stdout + done.stderr
    return json.loads(done.stdout)


def weights_of(checkpoint):
    return safetensors.torch.load_file(checkpoint / "model.safetensors")


def change_weights(checkpoint, change):
    """Amends the weights of a checkpoint as somebody could who knows of its digests."""
    path, state = checkpoint / "model.safetensors", checkpoint / "state.json"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    weights = weights_of(checkpoint)
    change(weights)
    safetensors.torch.save_file(weights, path, metadata)
    body = "{\n" + state.read_text().split("\n", 2)[2].replace(before, hashlib.sha256(path.read_bytes()).hexdigest())
    state.write_text(f'{{\n  "digest": "{hashlib.sha256(body.encode()).hexdigest()}",\n' + body[2:])


def stopped_after(run, step, name):
    """A copy of the run as if it had been killed right after its checkpoint of `step`."""
    copy = run.parent / name
    shutil.copytree(run, copy, symlinks=True)
    (copy / "summary.json").unlink()
    checkpoints = copy / "checkpoints"
    for link in ("latest", "best"):
        (checkpoints / link).unlink(missing_ok=True)
    for checkpoint in list(checkpoints.iterdir()):
        if json.loads((checkpoint / "state.json").read_text())["step"] > step:
            shutil.rmtree(checkpoint)
    return copy


def checkpoint_of(run, step):
    [found] = [path for path in (run / "checkpoints").iterdir() if not path.is_symlink() and json.loads((path / "state.json").read_text())["step"] == step]
    return found


def files_of(run):
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def number_in(pattern, text):
    return int(re.search(pattern, text).group(1))
