"""The recipes for pictures, on pictures that are made here: those whose data one must bring along, and what they are for."""

import csv
import io
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from PIL import Image

from tests.program import CALLED

models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def trainrun(*arguments, **environment):
    result = subprocess.run([CALLED, *map(str, arguments)], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def write_picture(path, random):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(path)


def make_pets(folder):
    """Two breeds in the layout of Oxford-IIIT Pet, and torchvision's ResNet-50 of a thousand classes."""
    random = np.random.default_rng(0)
    (folder / "annotations").mkdir(parents=True)
    for split, count in {"trainval": 6, "test": 2}.items():
        lines = []
        for number, breed in enumerate(["Abyssinian", "beagle"]):
            for i in range(count):
                name = f"{breed}_{split}_{i}"
                write_picture(folder / "images" / f"{name}.jpg", random)
                lines.append(f"{name} {number + 1} {2 - number} 1")
        (folder / "annotations" / f"{split}.txt").write_text("\n".join(lines) + "\n")
    torch.manual_seed(0)
    weights = models.resnet50().state_dict()
    torch.save(weights, folder / "resnet50.pth")
    return weights


def test_pets_learn_on_torchvisions_weights_of_which_only_the_last_layer_changes(tmp_path):
    weights = make_pets(tmp_path / "pets")
    run = tmp_path / "run"
    trainrun("recipes/pets_resnet50.yaml", "training.num_epochs=1", "dataloader={batch_size: 6, num_workers: 1}", "dataset.train.image_transforms[0].size=64",
             "dataset.eval.image_transforms[0].size=[64, 64]", f"output_dir={run}", "--quiet", TRAINRUN_DATA=str(tmp_path))
    from safetensors.torch import load_file
    learnt = load_file(run / "checkpoints/latest/model.safetensors")
    assert learnt["fc.weight"].shape == (37, 2048)
    for name, before in weights.items():
        if name.endswith(("running_mean", "running_var", "num_batches_tracked")) or name.startswith("fc."):
            continue
        assert torch.equal(learnt[name], before), name
    assert "fc.weight" in (run / "log.txt").read_text()  # what was skipped is listed


def test_the_recipe_for_a_folder_of_pictures_does_for_another_folder_and_predicts(tmp_path):
    """As its comment says; what is in the folder is made up, so nothing is expected of the accuracy."""
    random = np.random.default_rng(1)
    for split, count in {"train": 4, "test": 3}.items():
        for kind in ["ant", "bee", "cat", "dog", "emu"]:
            for i in range(count):
                write_picture(tmp_path / split / kind / f"{i}.png", random)
    (tmp_path / "train/emu/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n but no picture")
    torch.manual_seed(0)
    torch.save(models.resnet18().state_dict(), tmp_path / "resnet18.pth")
    run = tmp_path / "run"
    small = ["training.num_epochs=2", "dataloader={batch_size: 8, num_workers: 1}",
             "dataset.train.image_transforms=[{type: RandomResizedCrop, size: 32}]", "dataset.eval.image_transforms=[{type: Resize, size: [32, 32]}]"]
    trainrun("recipes/image_folder_finetune.yaml", f"dataset.train.root={tmp_path}/train", f"dataset.eval.root={tmp_path}/test", "model.layers[0].num_classes=5",
             f"model.weights={{path: {tmp_path}/resnet18.pth, strict: false}}", "name=photos", f"output_dir={run}", "--quiet", *small)
    assert "broken.png" in (run / "log.txt").read_text()
    rows = list(csv.DictReader(io.StringIO(trainrun("predict", run, tmp_path / "test"))))
    assert len(rows) == 15
    assert {row["label"] for row in rows} <= {"ant", "bee", "cat", "dog", "emu"}
