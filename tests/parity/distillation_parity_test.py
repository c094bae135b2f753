"""Frozen models beside the recipe's own (`models`), and DistillationLoss, against plain loops in PyTorch."""

import pathlib
import re
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

import reference
from probe import ProbeError, assert_same
from tests.program import CALLED

BATCHES, BATCH_SIZE, EPOCHS = 3, 8, 2
NET = "[Flatten, {type: Linear, name: body, out_features: 12}, ReLU, {type: Dropout, name: drop, p: 0.5}, {type: Linear, name: head, out_features: 5}]"
TEACHER = NET.replace("12", "20").replace("0.5", "0.3")
LOSS = ("[{type: CrossEntropyLoss, inputs: [head, label], loss_weight: 0.25}, "
        "{type: DistillationLoss, temperature: 3, inputs: [head, teacher], loss_weight: 0.75}]")


def make_net(width: int, dropout: float) -> nn.Module:
    net = nn.Sequential()
    for name, module in (("0", nn.Flatten()), ("body", nn.Linear(64, width)), ("2", nn.ReLU()), ("drop", nn.Dropout(dropout)), ("head", nn.Linear(width, 5))):
        net.add_module(name, module)
    return net


@pytest.fixture
def data(tmp_path):
    """The recipe's path, images, labels, and the teacher, which is saved as teacher.safetensors."""
    generator = torch.Generator().manual_seed(4)
    count = BATCHES * BATCH_SIZE
    images = torch.randn((count, 1, 8, 8), generator=generator)
    labels = torch.randint(5, (count,), generator=generator)
    np.savez(tmp_path / "data.npz", image=images.numpy(), label=labels.numpy())
    torch.manual_seed(99)
    teacher = make_net(20, 0.3).eval()
    safetensors.torch.save_file(teacher.state_dict(), tmp_path / "teacher.safetensors")
    (tmp_path / "recipe.yaml").write_text(f"""
version: 1
name: distilled
seed: 6
model: {{layers: {NET}}}
models: {{teacher: {{layers: {TEACHER}, weights: {tmp_path / 'teacher.safetensors'}}}}}
loss: {LOSS}
dataset:
  train: {{type: TensorFile, path: {tmp_path / 'data.npz'}}}
  eval: {{type: TensorFile, path: {tmp_path / 'data.npz'}}}
dataloader: {{batch_size: {BATCH_SIZE}, shuffle: false}}
optimizer: {{type: SGD, lr: 0.1, momentum: 0.9}}
training: {{num_epochs: {EPOCHS}}}
checkpoint: {{every: 1, keep_last: null}}
""")
    return str(tmp_path / "recipe.yaml"), images, labels, teacher


def weights(run) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "checkpoints" / "latest" / "model.safetensors")


def distillation(student, teacher, temperature):
    """As PyTorch's tutorial on knowledge distillation has it."""
    soft = functional.softmax(teacher / temperature, dim=-1)
    return functional.kl_div(functional.log_softmax(student / temperature, dim=-1), soft, reduction="batchmean") * temperature**2


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_teacher_is_frozen_and_heard_at_each_step_as_in_python(data, tmp_path, precision):
    recipe, images, labels, teacher = data
    torch.manual_seed(6)
    net = make_net(12, 0.5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    expected = []
    for batch in range(EPOCHS * BATCHES):
        part = slice(batch % BATCHES * BATCH_SIZE, (batch % BATCHES + 1) * BATCH_SIZE)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = net(images[part]).float()
            with torch.no_grad():
                taught = teacher(images[part]).float()
        loss = 0.25 * functional.cross_entropy(logits, labels[part]) + 0.75 * distillation(logits, taught, 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    lines, run = reference.run_trainrun(recipe, tmp_path / "run", f"mixed_precision='{precision}'")

    assert reference.losses_of(lines) == pytest.approx(expected, rel=1e-5)
    assert_same(weights(run), net.state_dict(), "weights", 1e-5)
    net.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        logits, taught = net(images).float(), teacher(images).float()
    assert lines[-1]["eval/loss"] == pytest.approx((0.25 * functional.cross_entropy(logits, labels) + 0.75 * distillation(logits, taught, 3)).item(), rel=1e-5)


@pytest.mark.parametrize("ranks", ["distributed_type=MULTI_CPU", "distributed_type=FSDP"])
def test_two_ranks_hear_the_teacher_as_one_process_does(data, tmp_path, ranks):
    without_dropout = f"model.layers={NET.replace('0.5', '0')}"
    one, _ = reference.run_trainrun(data[0], tmp_path / "one", without_dropout)
    two, _ = reference.run_trainrun(data[0], tmp_path / "two", without_dropout, ranks, "num_processes=2", f"dataloader.batch_size={BATCH_SIZE // 2}")
    assert reference.losses_of(two) == pytest.approx(reference.losses_of(one), rel=1e-5)


def test_a_resume_reads_the_teacher_again_and_ends_in_the_same_bits(data, tmp_path):
    lines, whole = reference.run_trainrun(data[0], tmp_path / "whole")
    for step in (1, 4):
        rest, run = reference.run_trainrun(data[0], tmp_path / str(step), f"checkpoint.resume={whole}/checkpoints/step-{step:08d}")
        assert reference.losses_of(rest) == reference.losses_of(lines)[step:]
        assert_same(weights(run), weights(whole), f"weights of a run resumed at step {step}")


def with_models(recipe: str, models: str) -> str:
    """The recipe with other `models`, which an override would only add to."""
    path = pathlib.Path(recipe)
    lines = [f"models: {models}" if line.startswith("models:") else line for line in path.read_text().splitlines()]
    path.with_name("other.yaml").write_text("\n".join(lines))
    return str(path.with_name("other.yaml"))


def evaluated(run) -> float:
    """The loss that `trainrun eval` computes of a run."""
    done = subprocess.run([CALLED, "eval", str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(re.search(r"eval/loss\W+(\S+)", done.stdout)[1])


@pytest.mark.parametrize("adapters", ["null", "{type: LoRA, r: 2, target: ['body', 'head']}", "{type: LoRA, r: 2, target: ['body'], modules_to_save: ['head']}"])
def test_the_model_before_training_is_a_frozen_copy_or_itself_without_adapters(data, tmp_path, adapters):
    start = make_net(12, 0.5).state_dict()
    safetensors.torch.save_file(start, tmp_path / "start.safetensors")
    common = [f"model.weights={tmp_path / 'start.safetensors'}", f"model.adapters={adapters}"]
    copied, _ = reference.run_trainrun(with_models(data[0], f"{{teacher: {{layers: {NET}, weights: {tmp_path / 'start.safetensors'}}}}}"), tmp_path / "copied", *common)
    recipe = with_models(data[0], "{teacher: {from: model}}")
    taken, whole = reference.run_trainrun(recipe, tmp_path / "taken", *common)
    assert reference.losses_of(taken) == reference.losses_of(copied)
    assert [line["eval/loss"] for line in taken if line["split"] == "eval"] == [line["eval/loss"] for line in copied if line["split"] == "eval"]
    rest, _ = reference.run_trainrun(recipe, tmp_path / "rest", *common, f"checkpoint.resume={whole}/checkpoints/step-00000004")
    assert reference.losses_of(rest) == reference.losses_of(taken)[4:]
    assert evaluated(whole) == pytest.approx(taken[-1]["eval/loss"], rel=1e-4)


@pytest.mark.parametrize("adapters", ["null", "{type: LoRA, r: 2, target: ['body']}", "{type: LoRA, r: 2, target: ['body'], modules_to_save: ['norm', 'head']}"])
def test_the_model_before_training_has_the_statistics_of_its_file_and_the_head_that_was_drawn(data, tmp_path, adapters):
    """At a learning rate of 0 it gives what the model itself gives, but for the means that its BatchNorm learns: from the second epoch on they part."""
    net = NET.replace("ReLU", "{type: BatchNorm1d, name: norm}").replace("0.5", "0")
    start = {f"body.{name}": tensor for name, tensor in nn.Linear(64, 12).state_dict().items()} | {
        f"norm.{name}": tensor + (0.5 if tensor.is_floating_point() else 0) for name, tensor in nn.BatchNorm1d(12).state_dict().items()}
    safetensors.torch.save_file(start, tmp_path / "start.safetensors")
    recipe = with_models(data[0], "{teacher: {from: model}}")
    overrides = [f"model.layers={net}", f"model.weights={{path: {tmp_path / 'start.safetensors'}, strict: false}}", f"model.adapters={adapters}", "optimizer.lr=0",
                 "loss=[{type: DistillationLoss, temperature: 3, inputs: [head, teacher]}]"]
    lines, run = reference.run_trainrun(recipe, tmp_path / "run", *overrides, "training.num_epochs=1")
    saved = weights(run)

    def logits(mean, variance):
        normed = functional.batch_norm(functional.linear(data[1].flatten(1), saved["body.weight"], saved["body.bias"]), mean, variance, saved["norm.weight"],
                                       saved["norm.bias"])
        return functional.linear(normed, saved["head.weight"], saved["head.bias"])

    before = logits(start["norm.running_mean"], start["norm.running_var"])
    after = distillation(logits(saved["norm.running_mean"], saved["norm.running_var"]), before, 3).item()
    assert lines[-1]["eval/loss"] == pytest.approx(after, rel=2e-3) and after > 1e-4  # of logits that are rounded
    assert evaluated(run) == pytest.approx(after, rel=2e-3)


@pytest.mark.parametrize("models, message", [
    ("{label: {from: model}}", "models.label: a layer or a field of the batch is called 'label', too"),
    ("{head: {from: model}}", "models.head: a layer or a field of the batch is called 'head', too"),
    ("{teacher: {from: model}}", "models.teacher: the model begins with random weights, which a resumed run could not get back"),
    (f"{{teacher: {{layers: {TEACHER}}}}}", "models.teacher: has no weights; write `weights`, or `pretrained` in its layer"),
    ("{teacher: {weights: a.pt}}", "models.teacher.from: either from or layers must be given, and not both"),
    (f"{{teacher: {{from: model, layers: {TEACHER}}}}}", "models.teacher.layers: either from or layers must be given, and not both"),
    ("{teacher: {from: model, weights: a.pt}}", "models.teacher.weights: the weights are the model's own"),
    ("{tutor: {from: model}}", "models.tutor: the model begins with random weights"),
    ("{teacher: {layers: [Flatten, {type: Linear, out_features: 7}], weights: a.pt}}", "[N, 5] and the teacher's output [N, 7]; they must have the same shape"),
    ("{}", "no layer and no field of the batch is called 'teacher'"),
])
def test_models_that_do_not_fit_are_said_before_training(probe, data, models, message):
    with pytest.raises(ProbeError, match=re.escape(message)):
        probe.ask("model", recipe=with_models(data[0], models), overrides=[])
