"""What the tests of plugins share: the programs that load them, and the recipe of the plugin with a component of every
kind."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import safetensors.numpy

from tests.program import CALLED

PLUGINS = pathlib.Path(os.environ.get("TRAINRUN_TEST_PLUGINS", "/nowhere"))
PROGRAMS = {
    "the build's": CALLED,
    "the installed": PLUGINS.parent / "installed/bin/trainrun",
}

# Whatever the plugin has a component for is the plugin's.
RECIPE = """\
version: 1
plugins: [libevery_kind.so]
model:
  layers:
    - {type: Gain, name: scale}
loss: HalfSquaredError
metrics: [Bias]
dataset:
  train: {type: Line, num_samples: 4, slope: 3, intercept: 0.5}
  eval: {type: Line, num_samples: 5, slope: 3, intercept: 0.5}
  transforms: [{type: Shift, by: 1}]
dataloader: {batch_size: 4, eval_batch_size: 2}
optimizer: {type: SignDescent, lr: 8, param_groups: [{match: '^scale\\.gain$', lr: 1}]}
scheduler: Halving
training: {num_epochs: 3}
logging: {every_steps: 1, report_to: [console, jsonl, history]}
checkpoint: {background: false}  # the order of what is told
"""


def trainrun(*arguments, folder, program="the build's"):
    return subprocess.run(
        [str(PROGRAMS[program]), *map(str, arguments)], cwd=folder, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300, check=False)


def output_of(*arguments, folder, program="the build's"):
    result = trainrun(*arguments, folder=folder, program=program)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def assert_fails_with(message, *arguments, folder, program="the build's"):
    """With one line (but for its code), as what the user gave is wrong; not by a crash."""
    result = trainrun(*arguments, folder=folder, program=program)
    said = re.sub(r" \[T\d{4}\]$", "", result.stderr, flags=re.MULTILINE)
    assert (result.returncode, result.stdout, said) == (2, "", message + "\n")


def put(plugin, folder, name=None):
    shutil.copy(PLUGINS / plugin, folder / (name or plugin))


def tensors_of(checkpoint, file):
    return {name: tensor.tolist() for name, tensor in safetensors.numpy.load_file(checkpoint / f"{file}.safetensors").items()}


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
