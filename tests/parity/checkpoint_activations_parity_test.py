"""Layers that the backward pass computes again, against the same runs without and against torch.utils.checkpoint: one process and two, sharded, under
autocast, with accumulation; and the memory that they save."""

import json
import os
import pathlib
import subprocess
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import reference

from tests.program import CALLED, peak_memory

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
NUM_STEPS = 6
LAYERS = """model.layers=[{type: Conv2d, name: stem, out_channels: 8, kernel_size: 3, padding: 1},
  {type: Sequential, name: block1, layers: [{type: Conv2d, out_channels: 8, kernel_size: 3, padding: 1}, BatchNorm2d, {type: ReLU, inplace: true}, {type: Dropout2d, p: 0.2}]},
  {type: Residual, name: block2, main: [{type: Conv2d, out_channels: 8, kernel_size: 3, padding: 1}, BatchNorm2d]},
  ReLU, {type: MaxPool2d, kernel_size: 2}, Flatten, {type: Dropout, p: 0.2}, {type: Linear, name: head, out_features: 10}]"""
AGAIN = "model.checkpoint_activations=['^block[12]$', '^4$']"
SETTINGS = {
    "one process": [],
    "bfloat16": ["mixed_precision=bf16"],
    "accumulation": ["training.gradient_accumulation_steps=3"],
    "without fusions": ["training.fuse=false"],
    "copies": ["distributed_type=MULTI_CPU", "num_processes=2"],
    "copies that normalize together": ["distributed_type=MULTI_CPU", "num_processes=2", "sync_batchnorm=true", "training.gradient_accumulation_steps=2"],
    "pieces": ["distributed_type=FSDP", "num_processes=2", "mixed_precision=bf16"],
    "pieces within a layer": ["distributed_type=FSDP", "num_processes=2", "sharding.wrap=['block1[.]0', 'block2[.]main[.]0']"],
    "pieces of the optimizer's state": ["distributed_type=FSDP", "num_processes=2", "sharding.zero_stage=1", "training.gradient_accumulation_steps=2"],
}


def run(folder, *overrides, steps=NUM_STEPS):
    common = [LAYERS, f"training={{num_epochs: null, max_steps: {steps}}}", "dataloader.batch_size=16", "evaluation.every=3", "checkpoint={every: 2, keep_last: null}"]
    lines, _ = reference.run_trainrun(RECIPE, folder, *common, *overrides)
    for line in lines:
        line.pop("time")
        line.pop("train/samples_per_second", None)
    saved = folder / "checkpoints/latest"
    return lines, {file: (saved / f"{file}.safetensors").read_bytes() for file in ("model", "optimizer") if saved.exists()}


@pytest.mark.parametrize("setting", SETTINGS)
def test_computing_again_changes_no_number(tmp_path, setting):
    once = run(tmp_path / "once", *SETTINGS[setting])
    assert run(tmp_path / "again", AGAIN, *SETTINGS[setting]) == once


LANGUAGE_MODEL = """
version: 1
name: language
model:
  layers: [{{type: Qwen2ForCausalLM, vocab_size: 79, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2}}]
loss: CausalLMLoss
optimizer: {{type: SGD, lr: 0.5}}
dataset: {{train: {{type: Chat, path: {chats}/test.jsonl, tokenizer: {chats}, max_length: 40, train_on: all}}}}
dataloader: {{batch_size: 6}}
training: {{max_steps: 8}}
"""


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_sum_and_the_norm_of_the_next_block_are_what_they_are_apart(tmp_path, precision):
    """Blocks that are computed again begin and end there, where the two are computed as one otherwise."""
    recipe = tmp_path / "language.yaml"
    recipe.write_text(LANGUAGE_MODEL.format(chats=pathlib.Path("recipes/data/chats").resolve()))
    once, again = (reference.losses_of(reference.run_trainrun(recipe, tmp_path / name, f"mixed_precision='{precision}'", *more)[0])
                   for name, more in (("once", []), ("again", ["model.checkpoint_activations=['^model.layers.[0-9]+$']"])))
    assert len(once) == 8 and again == once


def test_a_run_goes_on_from_every_checkpoint_whether_or_not_it_computes_again(tmp_path):
    """The key changes no number, so it may change in the middle of a run."""
    lines, files = run(tmp_path / "whole", AGAIN)
    for step in (2, 4):
        for again in ([AGAIN], []):
            rest, same = run(tmp_path / f"from-{step}-{len(again)}", f"checkpoint.resume={tmp_path}/whole/checkpoints/step-{step:08}", *again)
            assert same == files
            assert rest == [line for line in lines if line["step"] > step]


class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False) if self.training else self.inner(x)


def test_the_losses_are_those_of_pytorch_and_its_checkpoints(tmp_path):
    """The running means, which PyTorch's checkpoint moves twice, have no influence on them."""
    lines, _ = run(tmp_path / "run", AGAIN, "optimizer={type: SGD, lr: 0.1, momentum: 0.9}")

    def make_model():
        def conv(before):
            return nn.Conv2d(before, 8, 3, padding=1)
        stem, first = conv(1), nn.Sequential(conv(8), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.2))
        second = nn.Sequential(conv(8), nn.BatchNorm2d(8))
        return nn.Sequential(stem, Checkpointed(first), Checkpointed(reference.Residual(OrderedDict({"0": second[0], "1": second[1]}), OrderedDict())), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10))

    expected = reference.train(make_model, lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                               lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1), reference.digits("train"),
                               seed=3, batch_size=16, num_steps=NUM_STEPS)
    losses = reference.losses_of(lines)
    assert losses == pytest.approx(expected, rel=1e-4)


def ask(*command):
    return subprocess.run([CALLED, *command], capture_output=True, text=True)


def test_a_pattern_that_matches_no_layer_is_refused_and_explain_shows_what_is_computed_again():
    done = ask("validate", RECIPE, LAYERS, "model.checkpoint_activations=['^blok']")
    assert done.returncode == 2
    assert "model.checkpoint_activations[0]: '^blok' matches no layer" in done.stderr
    plain = json.loads(ask("explain", RECIPE, LAYERS, "--json").stdout)
    again = json.loads(ask("explain", RECIPE, LAYERS, "model.checkpoint_activations=['^block1$']", "--json").stdout)
    assert "recomputed" not in plain
    image = 8 * 8 * 8 * 4  # bytes of a sample between the layers
    assert again["recomputed"] == [{"layer": "block1", "activation_bytes": 2 * image}]  # the ReLU works in place, the dropout's output is kept
    # Within one layer as much is there again as is saved; of two, the larger one.
    both = json.loads(ask("explain", RECIPE, LAYERS, "model.checkpoint_activations=['^block']", "--json").stdout)
    saved = plain["memory_bytes"]["activations"] - both["memory_bytes"]["activations"]
    assert saved == 32 * min(layer["activation_bytes"] for layer in both["recomputed"])
    assert "computed again" in ask("explain", RECIPE, LAYERS, "model.checkpoint_activations=['^block']").stdout


def test_what_ranks_send_is_foreseen_where_layers_that_normalize_together_are_computed_again(tmp_path):
    ranks = ["distributed_type=MULTI_CPU", "num_processes=2", "sync_batchnorm=true"]

    def calls_of(lines):
        return {(line["purpose"], line["operation"]): (line["calls"], line["bytes"]) for line in lines}["layers and hooks", "all_reduce"]

    foreseen = {again: calls_of(json.loads(ask("explain", RECIPE, LAYERS, "--world-size", "2", "--json", *ranks, f"model.checkpoint_activations={again}").stdout)["traffic"]["step"])
                for again in ("[]", "[block]")}
    assert foreseen["[]"][0] == 4 and foreseen["[block]"][0] == 6  # forward and backward of two layers; and both forward once more
    run(tmp_path / "run", "model.checkpoint_activations=[block]", *ranks, "evaluation.every=null", "checkpoint.every=null", steps=3)
    for rank in json.loads((tmp_path / "run/summary.json").read_text())["ranks"]:
        assert calls_of(rank["traffic"]) == tuple(3 * number for number in foreseen["[block]"])


def peak_of(folder: pathlib.Path, name: str, layers: str, again: str) -> int:
    """The peak resident bytes of a run of one step, whose convolutions are not chosen by the time that they take."""
    recipe = folder / f"{name}.yaml"
    recipe.write_text(f"""
model: {{layers: {layers}, checkpoint_activations: {again}}}
loss: CrossEntropyLoss
dataset: {{train: {{type: Synthetic, num_samples: 512, shape: [3, 64, 64]}}}}
dataloader: {{batch_size: 128, num_workers: 0}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{num_epochs: null, max_steps: 1, convolutions: direct}}
checkpoint: {{every: null}}
""")
    return peak_memory([os.environ["TRAINRUN_BINARY"], "--quiet", recipe, f"output_dir={folder / name}"])


def test_the_peak_of_memory_is_lower(tmp_path):
    block = "{type: Sequential, layers: [{type: Conv2d, out_channels: 16, kernel_size: 3, padding: 1}, BatchNorm2d, GELU, {type: Conv2d, out_channels: 16, kernel_size: 3, padding: 1}, BatchNorm2d, GELU], repeat: 3}"
    layers = f"[{{type: Conv2d, out_channels: 16, kernel_size: 3, padding: 1}}, {block}, {{type: AdaptiveAvgPool2d, output_size: 1}}, Flatten, {{type: Linear, out_features: 10}}]"
    peaks = {again: peak_of(tmp_path, name, layers, again) for name, again in (("once", "[]"), ("again", "['^[1-3]$']"))}
    print(json.dumps(peaks))
    activation = 128 * 16 * 64 * 64 * 4  # bytes: 32 MiB, below which chance decides what fits into the holes of the heap
    assert peaks["[]"] - peaks["['^[1-3]$']"] > 9 * activation  # of 18 that need not be kept, one block's six are there at a time
