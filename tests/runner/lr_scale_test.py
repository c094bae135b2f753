"""A layer's `lr_scale` does to its parameters what a parameter group with that learning rate does."""

import subprocess

import pytest
import safetensors.torch
import torch

from tests.program import CALLED

RECIPE = """
name: scaled
seed: 3
model:
  layers:
    - Flatten
    - {type: Linear, out_features: 16, name: first FIRST}
    - ReLU
    - {type: Linear, out_features: 10, name: second}
loss: CrossEntropyLoss
dataset: {train: {type: Digits, split: train}}
dataloader: {batch_size: 32}
optimizer: OPTIMIZER
SCHEDULER
training: {max_steps: 60}
checkpoint: {every: 60}
"""


def train(folder, name, first="", optimizer="{type: AdamW, lr: 0.01}", scheduler=""):
    """The weights after 60 steps."""
    text = RECIPE.replace(" FIRST", first).replace("OPTIMIZER", optimizer)
    (folder / f"{name}.yaml").write_text(text.replace("SCHEDULER", scheduler and f"scheduler: {scheduler}"))
    done = subprocess.run([CALLED, f"{name}.yaml", f"output_dir={name}", "--quiet"], cwd=folder,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return safetensors.torch.load_file(next((folder / name / "checkpoints").glob("*/model.safetensors")))


@pytest.mark.parametrize("optimizer", ["type: SGD, lr: 0.1, momentum: 0.9", "type: AdamW, lr: 0.01", "type: RMSprop, lr: 0.01"])
@pytest.mark.parametrize("scheduler", ["", "{type: CosineAnnealingLR}", "{type: StepLR, step_size: 20, gamma: 0.5}"])
def test_a_scaled_layer_learns_as_its_group_would(tmp_path, optimizer, scheduler):
    lr = float(optimizer.split("lr: ")[1].split(",")[0])
    scaled = train(tmp_path, "scaled", ", lr_scale: 0.25", f"{{{optimizer}}}", scheduler)
    group = f"{{{optimizer}, param_groups: [{{match: '^first', lr: {lr * 0.25}}}]}}"
    grouped = train(tmp_path, "grouped", "", group, scheduler)
    assert scaled.keys() == grouped.keys()
    for name, weight in scaled.items():
        assert torch.equal(weight, grouped[name]), name
    plain = train(tmp_path, "plain", "", f"{{{optimizer}}}", scheduler)
    assert not torch.equal(plain["first.weight"], scaled["first.weight"])


def test_a_scale_of_zero_keeps_a_layer_as_it_is_also_within_a_wrapper(tmp_path):
    adam = "{type: AdamW, lr: 0.01}"
    still = train(tmp_path, "still", ", lr_scale: 0", adam)
    wrapped = train(tmp_path, "wrapped", ", lr_scale: 0", f"{{type: Lookahead, optimizer: {adam}}}", "{type: OneCycleLR, max_lr: 0.05}")
    fewer = train(tmp_path, "fewer", ", lr_scale: 0", "{type: SGD, lr: 1e-30}")
    assert torch.equal(still["first.weight"], wrapped["first.weight"])
    assert torch.equal(still["first.weight"], fewer["first.weight"])
    assert not torch.equal(still["second.weight"], wrapped["second.weight"])


def test_a_bad_scale_is_an_error_and_explain_shows_the_groups(tmp_path):
    train(tmp_path, "scaled", ", lr_scale: 0.5")
    run = [CALLED]
    text = subprocess.run([*run, "explain", "scaled.yaml"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "1.0e-02" in text and "5.0e-03" in text
    (tmp_path / "bad.yaml").write_text((tmp_path / "scaled.yaml").read_text().replace("lr_scale: 0.5", "lr_scale: -1"))
    bad = subprocess.run([*run, "validate", "bad.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "lr_scale: must be >= 0, is -1" in bad.stderr
