"""Models that Python saved by torch.jit, as layers: trained to Python's losses, checkpointed under Python's names, resumed."""

import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import reference
from probe import ProbeError, assert_same, named
from tests.program import CALLED

TOLERANCE = 1e-5
BATCH_SIZE, STEPS = 8, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.scale = nn.Parameter(torch.full((6, 1, 1), 0.5))

    def forward(self, x):
        return x + self.scale * torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    """With what TorchScript keeps besides tensors: a loop, a condition on `training`, a constant."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3)
        self.blocks = nn.Sequential(Block(), Block())
        self.register_buffer("shift", torch.tensor(0.25))
        self.head = nn.Linear(6, 5)
        self.gain = 2.0

    def forward(self, x):
        x = self.stem(x) + self.shift
        for block in self.blocks:
            x = block(x)
        if self.training:
            x = x * self.gain
        return self.head(x.mean([2, 3]))


class Two(nn.Module):
    def forward(self, a, b):
        return a + b, a * b


@pytest.fixture
def script(tmp_path):
    """A saved model, and the same in Python."""
    torch.manual_seed(9)
    net = Net()
    torch.jit.script(net).save(str(tmp_path / "net.pt"))
    return tmp_path / "net.pt", net


@pytest.fixture
def recipe(script, tmp_path):
    generator = torch.Generator().manual_seed(4)
    images = torch.randn((3 * BATCH_SIZE, 1, 8, 8), generator=generator)
    labels = torch.randint(5, (3 * BATCH_SIZE,), generator=generator)
    np.savez(tmp_path / "data.npz", image=images.numpy(), label=labels.numpy())
    path = tmp_path / "script.yaml"
    path.write_text(f"""
version: 1
name: script
seed: 6
model: {{layers: [{{type: TorchScript, path: {script[0]}}}]}}
loss: CrossEntropyLoss
dataset: {{train: {{type: TensorFile, path: {tmp_path / 'data.npz'}}}}}
dataloader: {{batch_size: {BATCH_SIZE}, shuffle: false}}
optimizer: {{type: SGD, lr: 0.1, momentum: 0.9}}
training: {{max_steps: {STEPS}}}
evaluation: {{every: null}}
checkpoint: {{every: 1, keep_last: null}}
""")
    return path, images, labels


def weights(run) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "checkpoints" / "latest" / "model.safetensors")


def test_a_saved_model_trains_to_pythons_losses_and_keeps_its_names(script, recipe, tmp_path):
    _, net = script
    path, images, labels = recipe
    lines, run = reference.run_trainrun(str(path), tmp_path / "run")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        part = slice(step % 3 * BATCH_SIZE, (step % 3 + 1) * BATCH_SIZE)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[part]), labels[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert [line["train/loss"] for line in lines] == pytest.approx(losses, rel=TOLERANCE)
    assert_same(weights(run), net.state_dict(), "weights", TOLERANCE)
    middle = run / "checkpoints" / "step-00000002"
    _, rest = reference.run_trainrun(str(path), tmp_path / "rest", f"checkpoint.resume={middle}")
    assert_same(weights(rest), weights(run), "weights after a resume")


def test_ranks_with_pieces_of_a_saved_model_train_as_one_process_does(recipe, tmp_path):
    path, _, _ = recipe
    evaluating = ["model.layers=[{type: TorchScript, path: %s}]" % (tmp_path / "plain.pt")]
    torch.manual_seed(1)
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Linear(7, 5))).save(str(tmp_path / "plain.pt"))
    _, alone = reference.run_trainrun(str(path), tmp_path / "alone", *evaluating)
    _, pieces = reference.run_trainrun(str(path), tmp_path / "pieces", *evaluating, "distributed_type=FSDP",
                                       "num_processes=2", f"dataloader.batch_size={BATCH_SIZE // 2}")
    assert_same(weights(pieces), weights(alone), "weights", TOLERANCE)


def test_a_saved_model_with_several_inputs_and_outputs_computes_in_both_modes(probe, script, tmp_path):
    torch.jit.script(Two()).save(str(tmp_path / "two.pt"))
    inputs = {"a": torch.randn(3, 4), "b": torch.randn(3, 4)}
    spec = {"type": "TorchScript", "path": str(tmp_path / "two.pt"), "inputs": ["a", "b"]}
    _, results = probe.ask("layer", named("input", inputs), spec=spec, seed=0)
    assert_same(results.under("output"), {"0": inputs["a"] + inputs["b"], "1": inputs["a"] * inputs["b"]}, "outputs")
    path, net = script
    images = torch.randn(4, 1, 8, 8)
    _, results = probe.ask("layer", named("input", {"a": images}), spec={"type": "TorchScript", "path": str(path)}, seed=0,
                           whole=True)
    assert_same(results.under("output"), {"0": net(images)}, "output in training", TOLERANCE)
    with torch.no_grad():
        assert_same(results.under("evaluated"), {"0": net.eval()(images)}, "output in evaluation", TOLERANCE)


def test_what_a_saved_model_cannot_compute_is_told_by_torchs_reason(recipe, tmp_path):
    class Rounding(nn.Module):
        def forward(self, x):
            return torch.quantize_per_tensor(x.flatten(1), 0.1, 0, torch.qint8).dequantize()

    torch.jit.script(Rounding()).save(str(tmp_path / "rounding.pt"))
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(63, 5))).save(str(tmp_path / "linear.pt"))
    for file, reason in (("rounding", "'QuantizedMeta' backend [T0301]\n"), ("linear", "cannot be multiplied (2x64 and 63x5) [T0301]\n")):
        done = subprocess.run([CALLED, "validate", recipe[0], "model.layers=[{type: TorchScript, path: %s}]" % (tmp_path / f"{file}.pt")], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2 and "model.layers[0]: TorchScript does not fit its input" in done.stderr and "The following operation failed" not in done.stderr
        assert reason in done.stderr, done.stderr


def test_what_is_no_saved_model_is_refused_by_name(probe, tmp_path):
    (tmp_path / "text.pt").write_text("no model")
    for path, message in ((tmp_path / "text.pt", "is not a file of torch.jit.save"), (tmp_path / "none.pt", "there is no file")):
        with pytest.raises(ProbeError, match=message):
            probe.ask("layer", named("input", {"a": torch.ones(2, 3)}), spec={"type": "TorchScript", "path": str(path)}, seed=0)
