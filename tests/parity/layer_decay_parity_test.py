"""optimizer.layer_decay against parameter groups that are made by hand, and the layers that it finds in models against those of timm."""

import json
import pathlib
import subprocess

import pytest
import safetensors.torch
import torch
from torch import nn

import reference
from probe import assert_same

from tests.program import CALLED

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
DECAY, RATE, NUM_STEPS = 0.5, 0.01, 6
BLOCK = "{type: Sequential, layers: [{type: Linear, out_features: 16}, LayerNorm, ReLU]}"
LAYERS = (f"model.layers=[Flatten, {{type: Linear, name: stem, out_features: 16}}, {{type: LayerNorm, name: norm}}, "
          f"{{type: Sequential, name: blocks, layers: [{BLOCK}, {BLOCK}, {BLOCK}]}}, {{type: Linear, name: head, out_features: 10}}]")
LAYER_OF = {"stem": 0, "norm": 0, "blocks.0": 1, "blocks.1": 2, "blocks.2": 3, "head": 4}
OPTIMIZER = (f"optimizer={{type: AdamW, lr: {RATE}, weight_decay: 0.1, layer_decay: {DECAY}, "
             "param_groups: [{match: 'bias$|norm|blocks..[.]1', weight_decay: 0}]}")


def run(folder, *overrides):
    common = [LAYERS, OPTIMIZER, f"training={{num_epochs: null, max_steps: {NUM_STEPS}}}", "evaluation.every=null", "checkpoint={every: 2, keep_last: null}"]
    reference.run_trainrun(RECIPE, folder, *common, *overrides)
    return safetensors.torch.load_file(folder / "checkpoints/latest/model.safetensors")


def make_model():
    def block():
        return nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU())
    model = nn.Sequential()
    for name, module in (("0", nn.Flatten()), ("stem", nn.Linear(64, 16)), ("norm", nn.LayerNorm(16)), ("blocks", nn.Sequential(block(), block(), block())),
                         ("head", nn.Linear(16, 10))):
        model.add_module(name, module)
    return model


def groups_of(model):
    groups = []
    for name, parameter in model.named_parameters():
        layer = next(number for prefix, number in LAYER_OF.items() if name.startswith(prefix + "."))
        groups.append({"params": [parameter], "lr": RATE * DECAY ** (4 - layer), "weight_decay": 0.0 if parameter.ndim == 1 else 0.1})
    return groups


def expected_weights():
    torch.manual_seed(3)
    model = make_model()
    optimizer = torch.optim.AdamW(groups_of(model))
    images, labels = reference.digits("train")
    for step, (_, rows) in enumerate(reference.batches(len(labels), 32, 3)):
        if step == NUM_STEPS:
            return model.state_dict()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def test_each_layer_has_the_rate_of_the_next_one_times_the_decay(tmp_path):
    weights = run(tmp_path / "run")
    assert_same(weights, expected_weights(), "weights", 2e-5)
    for step in (2, 4):
        rest = run(tmp_path / f"from-{step}", f"checkpoint.resume={tmp_path}/run/checkpoints/step-{step:08}")
        assert_same(rest, weights, "weights of a resumed run")


@pytest.mark.parametrize("ranks", ["MULTI_CPU", "FSDP"])
def test_ranks_have_the_same_rates(tmp_path, ranks):
    one = run(tmp_path / "one")
    two = run(tmp_path / "two", f"distributed_type={ranks}", "num_processes=2", "dataloader.batch_size=16")
    assert_same(two, one, "weights", 1e-4)


def rates_of(layers, *more):
    """Of explain: the number of tensors with each rate, from the highest."""
    data = "dataset={train: null, eval: null}", "dataset={train: {type: Synthetic, num_samples: 64, shape: [3, 64, 64]}}"
    done = subprocess.run([CALLED, "explain", RECIPE, "--json", *data, "metrics=[]", f"model.layers=[{layers}]",
                           "optimizer=null", f"optimizer={{type: SGD, lr: 1.0, layer_decay: {DECAY}}}", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rates = {}
    for group in json.loads(done.stdout)["param_groups"]:
        rates[group["lr"]] = rates.get(group["lr"], 0) + group["tensors"]
    return [rates[rate] for rate in sorted(rates, reverse=True)], sorted(rates, reverse=True)


def test_the_layers_of_vision_models_are_their_blocks():
    tensors, rates = rates_of("{type: ResNet18, num_classes: 10}")  # fc, the eight blocks, conv1 and bn1
    assert rates == [DECAY ** i for i in range(10)]
    assert tensors == [2, 6, 9, 6, 9, 6, 9, 6, 6, 3]
    tensors, rates = rates_of("{type: ViT_S_16, num_classes: 10}")  # the head; twelve blocks, the last one's with the norm after it; patches, positions and token
    assert rates == [DECAY ** i for i in range(14)]
    assert tensors == [2, 14, *[12] * 11, 4]
