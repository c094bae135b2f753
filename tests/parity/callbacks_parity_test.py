"""Callbacks against PyTorch: EMA and SWA against torch.optim.swa_utils.AveragedModel, fed with the weights that trainrun saved after each step, and SWA's last
pass against update_bn; one process, two ranks with copies, two ranks with pieces; resumed at every step."""

import json
import pathlib
import subprocess

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import reference

from tests.program import CALLED

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
TOLERANCE = 1e-6
NUM_STEPS = 6
DECAY = 0.8
LAYERS = "model.layers=[Flatten, {type: Linear, out_features: 33}, BatchNorm1d, ReLU, {type: Dropout, p: 0.2}, {type: Linear, out_features: 10}]"
RANKS = {
    "one process": [],
    "copies": ["distributed_type=MULTI_CPU", "num_processes=2"],
    "pieces": ["distributed_type=FSDP", "num_processes=2"],
    "pieces of the optimizer's state": ["distributed_type=FSDP", "num_processes=2", "sharding.zero_stage=1"],
}


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 33), nn.BatchNorm1d(33), nn.ReLU(), nn.Dropout(0.2), nn.Linear(33, 10))


def run(folder, *overrides, steps=NUM_STEPS):
    common = [LAYERS, f"training={{num_epochs: null, max_steps: {steps}}}", "dataloader={batch_size: 16, eval_batch_size: 100}",
              "checkpoint={every: 1, keep_last: null}", "evaluation.every=2"]
    return reference.run_trainrun(RECIPE, folder, *common, *overrides)[0]


def tensors_of(folder, step, file):
    return safetensors.torch.load_file(folder / f"checkpoints/step-{step:08}/{file}.safetensors")


def averages_of(folder, step):
    prefix, suffix = "callbacks[0].", ".average"
    return {name[len(prefix):-len(suffix)]: tensor for name, tensor in tensors_of(folder, step, "optimizer").items() if name.startswith(prefix)}


def loss_of(model):
    images, labels = reference.digits("test")
    model.eval()
    with torch.no_grad():
        return functional.cross_entropy(model(images), labels).item()


@pytest.mark.parametrize("ranks, use_buffers", [("one process", False), ("pieces", False), *((ranks, True) for ranks in RANKS)])
def test_an_average_of_the_weights_is_that_of_pytorch_and_is_what_is_evaluated(tmp_path, ranks, use_buffers):
    lines = run(tmp_path / "run", f"callbacks=[{{type: EMA, decay: {DECAY}, use_buffers: {str(use_buffers).lower()}}}]", *RANKS[ranks])
    evaluated = {line["step"]: line["eval/loss"] for line in lines if line["split"] == "eval"}
    model = make_model()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=use_buffers)
    for step in range(1, NUM_STEPS + 1):
        model.load_state_dict(tensors_of(tmp_path / "run", step, "model"))
        averaged.update_parameters(model)
        state = averaged.module.state_dict()
        expected = {name: state[name] for name, _ in averaged.module.named_parameters()}
        if use_buffers:
            expected |= {name: state[name] for name, _ in averaged.module.named_buffers()}
        actual = averages_of(tmp_path / "run", step)
        assert actual.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(actual[name], tensor, rtol=TOLERANCE, atol=TOLERANCE)
        if step in evaluated:
            assert evaluated[step] == pytest.approx(loss_of(averaged.module), rel=1e-5)
            assert evaluated[step] != pytest.approx(loss_of(model), rel=1e-3)
    assert sorted(evaluated) == [2, 4, 6]
    done = subprocess.run([CALLED, "eval", str(tmp_path / "run"), "--json", "num_processes=1"], capture_output=True, text=True,
                          check=True)
    assert json.loads(done.stdout)["eval/loss"] == pytest.approx(evaluated[6], rel=1e-5)


@pytest.mark.parametrize("ranks", ["one process", "copies", "pieces"])
def test_stochastic_weight_averaging_is_pytorchs_and_is_evaluated_once_it_has_begun(tmp_path, ranks):
    start, every = 2, 2
    lines = run(tmp_path / "run", f"callbacks=[{{type: SWA, start_step: {start}, every_steps: {every}}}]", "evaluation.every=1", *RANKS[ranks])
    evaluated = {line["step"]: line["eval/loss"] for line in lines if line["split"] == "eval"}
    model = make_model()
    averaged = AveragedModel(model, use_buffers=True)
    for step in range(1, NUM_STEPS + 1):
        model.load_state_dict(tensors_of(tmp_path / "run", step, "model"))
        if step >= start and (step - start) % every == 0:
            averaged.update_parameters(model)
        actual = averages_of(tmp_path / "run", step)
        if step < start:
            assert not actual
            assert evaluated[step] == pytest.approx(loss_of(model), rel=1e-5)
            continue
        for name, tensor in averaged.module.state_dict().items():
            torch.testing.assert_close(actual.pop(name), tensor, rtol=TOLERANCE, atol=TOLERANCE)
        assert not actual
        assert evaluated[step] == pytest.approx(loss_of(averaged.module), rel=1e-5)
    assert averaged.n_averaged == 3


def outcome_of(folder):
    """What a run leaves, without what measures time."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("time")
        line.pop("train/samples_per_second", None)
    files = {file: (folder / f"checkpoints/latest/{file}.safetensors").read_bytes() for file in ("model", "optimizer")}
    return {line["step"]: line for line in lines if line["split"] == "eval"}, files


@pytest.mark.parametrize("ranks", ["copies", "pieces"])
def test_ranks_go_on_from_every_step_with_the_same_average(tmp_path, ranks):
    overrides = [f"callbacks=[{{type: EMA, decay: {DECAY}, use_buffers: true}}]", *RANKS[ranks]]
    run(tmp_path / "whole", *overrides)
    evaluated, files = outcome_of(tmp_path / "whole")
    for step in range(1, NUM_STEPS):
        checkpoint = tmp_path / f"whole/checkpoints/step-{step:08}"
        run(tmp_path / f"from-{step}", *overrides, f"checkpoint.resume={checkpoint}")
        rest, same = outcome_of(tmp_path / f"from-{step}")
        assert same == files, step
        assert rest == {number: line for number, line in evaluated.items() if number > step}


@pytest.mark.parametrize("ranks", ["one process", "copies", "pieces"])
def test_all_ranks_stop_early_together_and_a_run_that_goes_on_stops_where_it_would_have(tmp_path, ranks):
    """A rate of 0: no evaluation after the first is better."""
    overrides = ["callbacks=[{type: EarlyStopping, patience: 2}]", "optimizer={type: SGD, lr: 0}", "evaluation.every=1",
                 LAYERS.replace("BatchNorm1d, ", "").replace("{type: Dropout, p: 0.2}, ", ""), *RANKS[ranks]]
    lines = run(tmp_path / "whole", *overrides, steps=20)
    assert max(line["step"] for line in lines) == 3
    summary = json.loads((tmp_path / "whole/summary.json").read_text())
    assert summary["step"] == 3
    assert summary["stopped"].startswith("eval/loss has not improved for 2 evaluations: ")
    for step in (1, 2):
        checkpoint = tmp_path / f"whole/checkpoints/step-{step:08}"
        rest = run(tmp_path / f"from-{step}", *overrides, f"checkpoint.resume={checkpoint}", steps=20)
        assert max(line["step"] for line in rest) == 3
        assert json.loads((tmp_path / f"from-{step}/summary.json").read_text())["stopped"] == summary["stopped"]


@pytest.mark.parametrize("ranks", ["copies", "pieces"])
def test_all_ranks_end_with_the_weights_of_the_best_evaluation_and_so_does_a_run_that_goes_on(tmp_path, ranks):
    """With mode max the best loss is the first."""
    stopping = "{type: EarlyStopping, mode: max, patience: 9, restore_best: true}"
    callbacks = f"callbacks=[{stopping}, {{type: EMA, decay: {DECAY}}}]"
    lines = run(tmp_path / "whole", callbacks, *RANKS[ranks])
    evaluated = [line["eval/loss"] for line in lines if line["split"] == "eval"]
    assert len(evaluated) == 4 and evaluated[3] == evaluated[0] > max(evaluated[1:3])  # the restored weights' at last
    best, last = tensors_of(tmp_path / "whole", 2, "model"), tensors_of(tmp_path / "whole", NUM_STEPS, "model")
    assert all(torch.equal(last[name], tensor) for name, tensor in best.items())
    checkpoint = tmp_path / "whole/checkpoints/step-00000003"
    run(tmp_path / "rest", callbacks, *RANKS[ranks], f"checkpoint.resume={checkpoint}")
    rest = tensors_of(tmp_path / "rest", NUM_STEPS, "model")
    assert all(torch.equal(rest[name], tensor) for name, tensor in best.items())


def batches_of_epoch(num_ranks):
    """Of all ranks, in epoch 0, as DistributedSampler deals them."""
    images, labels = reference.digits("train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3)).tolist()
    order += order[: -len(order) % num_ranks]
    return [images[rows] for rank in range(num_ranks) for rows in torch.tensor(order[rank::num_ranks]).split(16)]


def with_norms_estimated_anew(folder, num_ranks, start):
    model = make_model()
    averaged = AveragedModel(model, use_buffers=True)
    for step in range(start, NUM_STEPS + 1):
        model.load_state_dict(tensors_of(folder, step, "model"))
        averaged.update_parameters(model)
    update_bn(batches_of_epoch(num_ranks), averaged)
    return averaged.module


@pytest.mark.parametrize("ranks, num_ranks, more", [
    ("one process", 1, []), ("copies", 2, []), ("pieces", 2, []), ("pieces of the optimizer's state", 2, ["mixed_precision=no"]),
    ("one process", 1, ["training.gradient_accumulation_steps=2"]),
])
def test_what_batch_norms_keep_is_estimated_anew_for_the_average_as_update_bn_does(tmp_path, ranks, num_ranks, more):
    swa = ["callbacks=[{type: SWA, start_step: 2, update_bn: true}]", *RANKS[ranks], *more]
    lines = run(tmp_path / "run", *swa)
    plain = run(tmp_path / "plain", *RANKS[ranks], *more)
    assert reference.losses_of(lines) == reference.losses_of(plain)
    assert tensors_of(tmp_path / "run", NUM_STEPS, "model").keys() == tensors_of(tmp_path / "plain", NUM_STEPS, "model").keys()
    for name, tensor in tensors_of(tmp_path / "run", NUM_STEPS, "model").items():  # the model's own stay as they are
        assert torch.equal(tensor, tensors_of(tmp_path / "plain", NUM_STEPS, "model")[name])
    expected = with_norms_estimated_anew(tmp_path / "run", num_ranks, 2)
    actual = averages_of(tmp_path / "run", NUM_STEPS)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(actual[name], tensor, rtol=1e-5, atol=1e-6)
    assert actual["2.num_batches_tracked"] == 90
    evaluated = {line["step"]: line["eval/loss"] for line in lines if line["split"] == "eval"}
    assert evaluated[NUM_STEPS] == pytest.approx(loss_of(expected), rel=1e-5)
    outcome = outcome_of(tmp_path / "run")
    for step in (1, 4):
        checkpoint = tmp_path / f"run/checkpoints/step-{step:08}"
        run(tmp_path / f"from-{step}", *swa, f"checkpoint.resume={checkpoint}")
        rest, files = outcome_of(tmp_path / f"from-{step}")
        assert files == outcome[1]
        assert rest == {number: line for number, line in outcome[0].items() if number > step}


def test_a_run_that_stops_early_is_evaluated_once_more_with_the_norms_that_were_estimated_anew(tmp_path):
    callbacks = "callbacks=[{type: EarlyStopping, patience: 1, min_delta: 100}, {type: SWA, start_step: 1, update_bn: true}]"
    overrides = [callbacks, "optimizer={type: SGD, lr: 0}", "evaluation.every=1", LAYERS.replace("Linear, out_features: 33}, ", "Identity}, ")]
    lines = run(tmp_path / "run", *overrides, steps=20)
    evaluated = [(line["step"], line["eval/loss"]) for line in lines if line["split"] == "eval"]
    last = evaluated[-1][0]
    assert last < 20
    assert [step for step, _ in evaluated] == [*range(1, last + 1), last]
    assert evaluated[-1][1] != evaluated[-2][1]
    averages = {name[len("callbacks[1]."):]: tensor for name, tensor in tensors_of(tmp_path / "run", last, "optimizer").items() if name.startswith("callbacks[1].")}
    assert averages["2.num_batches_tracked.average"] == 90
    done = subprocess.run([CALLED, "eval", str(tmp_path / "run"), "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["eval/loss"] == pytest.approx(evaluated[-1][1], rel=1e-6)


def test_update_bn_without_averaged_buffers_is_refused():
    done = subprocess.run([CALLED, "validate", RECIPE, "callbacks=[{type: SWA, start_step: 2, use_buffers: false, update_bn: true}]"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "callbacks[0].update_bn: needs use_buffers: true" in done.stderr
