"""ParameterMonitor against the weights that trainrun saved after each step: with plain SGD a gradient is what a step changes, divided by the rate."""

import pytest
import safetensors.torch
import torch
from torch import nn

import reference

RECIPE = "tests/recipes/digits_small.yaml"
RATE, NUM_STEPS = 0.05, 6
LAYERS = "model.layers=[Flatten, {type: Linear, name: body, out_features: 33}, BatchNorm1d, ReLU, {type: Linear, name: head, out_features: 10}]"
MONITOR = "callbacks=[{type: ParameterMonitor, groups: {head: '^head', vectors: 'bias$'}}]"
RANKS = {
    "one process": [],
    "copies": ["distributed_type=MULTI_CPU", "num_processes=2"],
    "pieces": ["distributed_type=FSDP", "num_processes=2"],
    "pieces of the optimizer's state": ["distributed_type=FSDP", "num_processes=2", "sharding.zero_stage=1"],
}


def run(folder, *overrides):
    common = [LAYERS, f"optimizer={{type: SGD, lr: {RATE}}}", f"training={{num_epochs: null, max_steps: {NUM_STEPS}, max_grad_norm: 0.5}}",
              "dataloader.batch_size=16", "evaluation.every=null", "checkpoint={every: 1, keep_last: null}"]
    return [line for line in reference.run_trainrun(RECIPE, folder, *common, *overrides)[0] if line["split"] == "train"]


def weights_after(folder, step):
    if step == 0:
        torch.manual_seed(3)
        layers = {"body": nn.Linear(64, 33), "2": nn.BatchNorm1d(33), "head": nn.Linear(33, 10)}
        return {f"{name}.{key}": tensor.detach() for name, layer in layers.items() for key, tensor in layer.named_parameters()}
    tensors = safetensors.torch.load_file(folder / f"checkpoints/step-{step:08}/model.safetensors")
    return {name: tensor for name, tensor in tensors.items() if "running" not in name and "tracked" not in name}


def norm_of(tensors, chosen):
    return torch.cat([tensor.double().ravel() for name, tensor in tensors.items() if chosen(name)]).norm().item()


GROUPS = {"all": lambda name: True, "head": lambda name: name.startswith("head"), "vectors": lambda name: name.endswith("bias")}


@pytest.mark.parametrize("ranks", RANKS)
def test_norms_are_those_of_the_whole_parameters_and_of_what_a_step_changes(tmp_path, ranks):
    lines = run(tmp_path / "run", MONITOR, *RANKS[ranks])
    assert len(lines) == NUM_STEPS
    for line in lines:
        before, after = (weights_after(tmp_path / "run", step) for step in (line["step"] - 1, line["step"]))
        change = {name: after[name] - before[name] for name in after}
        for group, chosen in GROUPS.items():
            assert line[f"train/weight_norm/{group}"] == pytest.approx(norm_of(after, chosen), rel=1e-5)
            assert line[f"train/update_ratio/{group}"] == pytest.approx(norm_of(change, chosen) / norm_of(before, chosen), rel=1e-3)
            assert line[f"train/grad_norm/{group}"] == pytest.approx(norm_of(change, chosen) / RATE, rel=1e-3)
        # train/grad_norm, without a group, is of before clipping
        assert line["train/grad_norm/all"] == pytest.approx(min(line["train/grad_norm"], 0.5), rel=1e-4)


@pytest.mark.parametrize("ranks", ["one process", "pieces"])
def test_a_monitor_changes_nothing_and_a_resumed_run_logs_the_same(tmp_path, ranks):
    def without_time(lines):
        return [{key: value for key, value in line.items() if key not in ("time", "train/samples_per_second")} for line in lines]
    plain = run(tmp_path / "plain", *RANKS[ranks])
    lines = without_time(run(tmp_path / "run", MONITOR, *RANKS[ranks]))
    assert [{key: line[key] for key in other} for line, other in zip(lines, without_time(plain))] == without_time(plain)
    for step in (1, 3, 5):
        rest = run(tmp_path / f"from-{step}", MONITOR, *RANKS[ranks], f"checkpoint.resume={tmp_path}/run/checkpoints/step-{step:08}")
        assert without_time(rest) == lines[step:]
    sparse = run(tmp_path / "sparse", MONITOR, *RANKS[ranks], "logging.every_steps=3")
    assert [line["step"] for line in sparse] == [3, 6]
    for line in sparse:
        for key in ("grad_norm/all", "weight_norm/head", "update_ratio/vectors"):
            assert line[f"train/{key}"] == lines[line["step"] - 1][f"train/{key}"]


def test_what_is_told_can_be_chosen_and_each_parameter_can_be_told(tmp_path):
    gradients = run(tmp_path / "gradients", "callbacks=[{type: ParameterMonitor, log: gradients, each_parameter: true}]")[0]
    names = {key for key in gradients if key.startswith("train/") and key.count("/") > 1}
    assert names == {f"train/grad_norm/{name}" for name in ("all", "body.weight", "body.bias", "2.weight", "2.bias", "head.weight", "head.bias")}
    parameters = run(tmp_path / "parameters", "callbacks=[{type: ParameterMonitor, log: parameters}]")[0]
    assert {key for key in parameters if key.count("/") > 1} == {"train/weight_norm/all", "train/update_ratio/all"}
