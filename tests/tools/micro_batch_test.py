"""`dataloader.micro_batch_size`: the numbers of whole batches, from pieces; `auto` finds what fits, and a resume keeps it."""

import json
import os
import pathlib
import re
import subprocess

import numpy
import pytest
from safetensors.numpy import load_file

from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# 1437 training samples: the last batch of an epoch has 57, which pieces of 10 do not divide
MLP = ["recipes/digits_mlp.yaml", "dataloader.batch_size=60", "training.num_epochs=2"]
UNET = ["recipes/digits_unet.yaml", "dataloader.batch_size=128", "training.max_steps=2"]


def train(folder, *arguments, memory=None, code=0):
    environment = os.environ | ({"TRAINRUN_MEMORY": memory} if memory else {})
    done = subprocess.run([BINARY if memory else CALLED, *arguments, f"output_dir={folder}"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr


def weights(folder):
    return load_file(folder / "checkpoints" / "latest" / "model.safetensors")


def assert_close(folder, other):
    whole, pieces = weights(folder), weights(other)
    assert whole.keys() == pieces.keys()
    for name, tensor in whole.items():
        numpy.testing.assert_allclose(pieces[name], tensor, rtol=1e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("loss", ["CrossEntropyLoss", "{type: CrossEntropyLoss, weight: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}", "{type: CrossEntropyLoss, ignore_index: 3}", "{type: CrossEntropyLoss, reduction: sum}"])
def test_pieces_give_the_weights_of_whole_batches(tmp_path, loss):
    train(tmp_path / "whole", *MLP, f"loss={loss}", "optimizer={type: SGD, lr: 1e-3}")
    train(tmp_path / "pieces", *MLP, f"loss={loss}", "optimizer={type: SGD, lr: 1e-3}", "dataloader.micro_batch_size=10")
    assert_close(tmp_path / "whole", tmp_path / "pieces")


def test_pieces_of_unequal_sizes_weigh_by_their_samples(tmp_path):
    """A loss that averages over samples; the last batch has 36 samples: three pieces of 10, one of 6."""
    rows = 156
    numbers = numpy.random.default_rng(0).normal(size=(rows, 4))
    numpy.savetxt(tmp_path / "rows.csv", numpy.column_stack([numbers, numbers @ [1, -2, 3, 0.5]]), delimiter=",", header="a,b,c,d,y", comments="")
    (tmp_path / "recipe.yaml").write_text(
        "version: 1\nname: rows\nmodel: {layers: [{type: Linear, out_features: 8}, Tanh, {type: Linear, out_features: 1}]}\nloss: MSELoss\n"
        f"dataset: {{train: {{type: CSV, path: {tmp_path}/rows.csv, label: y, task: regression}}}}\n"
        "dataloader: {batch_size: 60}\noptimizer: {type: SGD, lr: 0.1}\ntraining: {num_epochs: 3}\n")
    train(tmp_path / "whole", tmp_path / "recipe.yaml")
    train(tmp_path / "pieces", tmp_path / "recipe.yaml", "dataloader.micro_batch_size=10")
    assert_close(tmp_path / "whole", tmp_path / "pieces")


def peak(*arguments):
    explained = subprocess.run([BINARY, "explain", *arguments, "--measure", "--json"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(explained.stdout)["demand"]["peak_bytes"]


def kept(folder):
    return int(re.search(r"micro_batch_size: (\d+)", (folder / "recipe.yaml").read_text()).group(1))


def test_auto_is_what_fits_and_a_resume_keeps_it(tmp_path):
    run = tmp_path / "run"
    auto = [*UNET, "dataloader.micro_batch_size=auto"]
    said = train(tmp_path / "large", *auto, memory="100GB")
    assert kept(tmp_path / "large") == 128
    number, unit = re.search(r"whole batches take ([\d.]+) ([MG])B", said).groups()
    whole, least = float(number) * {"M": 1e6, "G": 1e9}[unit], peak(*UNET, "dataloader.batch_size=1")
    memory = f"{int((whole + least) / 2 / 0.9)}B"  # nine tenths of it are used
    said = train(run, *auto, "--stop-after", "1", memory=memory)
    size = kept(run)
    assert size < 128 and 128 % size == 0 and f"micro_batch_size: auto is {size}: the most that fits" in said
    said = train(run, *auto, memory="100GB")
    assert kept(run) == size and f"auto is {size}: as " in said
    assert not (tmp_path / "run-2").exists()


def test_what_cannot_be_is_refused(tmp_path):
    assert "does not divide batch_size, 60; write 6" in train(tmp_path / "run", *MLP, "dataloader.micro_batch_size=7", code=2)
    assert "TRAINRUN_MEMORY is 'much'" in train(tmp_path / "run", *MLP, "dataloader.micro_batch_size=auto", memory="much", code=1)
    assert "too little memory" in train(tmp_path / "run", *MLP, "dataloader.micro_batch_size=auto", memory="60MB", code=1)
