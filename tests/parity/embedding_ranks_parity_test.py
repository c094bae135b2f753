"""Embedding and EmbeddingBag with max_norm, which rescale their own vectors in the forward pass: several ranks against one process, and against PyTorch."""

import copy
import json
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import reference

from tests.program import CALLED

VOCABULARY, LENGTH, SAMPLES, STEPS, SAVED = 40, 5, 48, 8, 4
RECIPE = """\
version: 1
name: max_norm
seed: 5
model:
  layers: [{TABLE}, {type: Linear, out_features: 4}]
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: TensorFile, path: train.npz, num_classes: 4}
  eval: {type: TensorFile, path: eval.npz, num_classes: 4}
dataloader: {batch_size: 12, eval_batch_size: 4, shuffle: false}
optimizer: {type: AdamW, lr: 0.05, weight_decay: 0.1}
training: {num_epochs: null, max_steps: 8, gradient_accumulation_steps: 2}
evaluation: {every: 2}
checkpoint: {every: 4, keep_last: null}
device: cpu
"""
TABLES = {  # what the recipe says, and what PyTorch makes of it
    "Embedding": ("{type: Embedding, num_embeddings: 40, embedding_dim: 6, max_norm: 1.0}, Flatten",
                  lambda: nn.Sequential(nn.Embedding(VOCABULARY, 6, max_norm=1.0), nn.Flatten(), nn.Linear(6 * LENGTH, 4))),
    "EmbeddingBag": ("{type: EmbeddingBag, num_embeddings: 40, embedding_dim: 6, max_norm: 1.5, norm_type: 3.0, mode: sum}",
                     lambda: nn.Sequential(nn.EmbeddingBag(VOCABULARY, 6, max_norm=1.5, norm_type=3.0, mode="sum"), nn.Linear(6, 4))),
}
MODES = {
    "DDP": ["distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=6"],
    "FULL_SHARD": ["distributed_type=FSDP", "num_processes=2", "dataloader.batch_size=6"],
    "SHARD_GRAD_OP": ["distributed_type=FSDP", "num_processes=2", "dataloader.batch_size=6", "sharding={strategy: SHARD_GRAD_OP}"],
    "recomputed": ["distributed_type=FSDP", "num_processes=2", "dataloader.batch_size=6", "model.checkpoint_activations=['^0']"],
}


def write_data(folder):
    """Each evaluation looks up vectors that no training batch has."""
    generator = np.random.default_rng(1)
    rows = {}
    for name, least, most in [("train", 0, 30), ("eval", 20, VOCABULARY)]:
        rows[name] = {"ids": generator.integers(least, most, (SAMPLES, LENGTH)), "label": generator.integers(0, 4, SAMPLES)}
        np.savez(folder / f"{name}.npz", **rows[name])
    return {name: [torch.tensor(values) for values in columns.values()] for name, columns in rows.items()}


def trained_by_pytorch(make, rows):
    """The loss of every step and of every evaluation, and the weights. An evaluation changes nothing that is trained."""
    torch.manual_seed(5)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    ids, labels = rows["train"]
    losses, evaluated = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(0)
        for i in range(2):
            part = (torch.arange(12) + 12 * (2 * step + i)) % SAMPLES
            loss = nn.functional.cross_entropy(model(ids[part]), labels[part]) / 2
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
        if step % 2 == 1:
            with torch.no_grad():
                evaluated.append(nn.functional.cross_entropy(copy.deepcopy(model)(rows["eval"][0]), rows["eval"][1]).item())
    return losses, evaluated, model.state_dict()


@pytest.fixture(scope="module")
def job(request, tmp_path_factory):
    written, make = TABLES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    rows = write_data(folder)
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.replace("{TABLE}", written).replace("train.npz", f"{folder}/train.npz").replace("eval.npz", f"{folder}/eval.npz"))
    return path, trained_by_pytorch(make, rows)


def weights_of(folder, step):
    return safetensors.torch.load_file(folder / f"checkpoints/{step}/model.safetensors")


CASES = [(table, mode) for table in TABLES for mode in ["alone", *MODES] if table == "Embedding" or mode in ("alone", "DDP", "FULL_SHARD")]


@pytest.mark.parametrize("job, mode", CASES, indirect=["job"])
def test_vectors_that_any_rank_looks_up_are_rescaled_on_all_of_them(tmp_path, job, mode):
    path, (losses, evaluated, expected) = job
    common = MODES.get(mode, [])
    lines, folder = reference.run_trainrun(str(path), tmp_path / "whole", *common)
    assert reference.losses_of(lines) == pytest.approx(losses, rel=1e-5)
    assert [line["eval/loss"] for line in lines if line["split"] == "eval"] == pytest.approx(evaluated, rel=1e-5)
    last = sorted(path.name for path in (folder / "checkpoints").glob("*-*"))[-1]
    weights = weights_of(folder, last)
    for name, weight in expected.items():
        assert torch.allclose(weights[name], weight, rtol=1e-4, atol=1e-5), name

    first = sorted(path for path in (folder / "checkpoints").glob("*-*"))[0]
    assert json.loads((first / "state.json").read_text())["step"] == SAVED
    _, resumed = reference.run_trainrun(str(path), tmp_path / "resumed", *common, f"checkpoint.resume={first}")
    for name, weight in weights_of(resumed, last).items():
        assert torch.equal(weight, weights[name]), name


@pytest.mark.parametrize("job, mode", [("Embedding", "DDP"), ("Embedding", "recomputed")], indirect=["job"])
def test_what_ranks_tell_each_other_of_vectors_is_foreseen(tmp_path, job, mode):
    path, _ = job
    options = [*MODES[mode], "evaluation.every=null", "checkpoint.every=null"]
    _, folder = reference.run_trainrun(str(path), tmp_path / "run", *options)
    found = json.loads((folder / "summary.json").read_text())["ranks"][0]["traffic"]
    plan = json.loads(subprocess.run([CALLED, "explain", path, "--json", *options, "--world-size", "2", "--rank", "0"],
                                     capture_output=True, text=True, check=True).stdout)
    numbers = [[(line["calls"] * times, line["bytes"] * times) for line in lines if line["purpose"] == "layers and hooks"]
               for lines, times in ((found, 1), (plan["traffic"]["step"], STEPS))]
    passes = STEPS * 2 * (2 if mode == "recomputed" else 1)
    assert numbers == [[(passes, passes * 4 * VOCABULARY)]] * 2
