"""`trainrun predict` on folders of images and `trainrun eval --report`, against the same in plain PyTorch and scikit-learn."""

import csv
import io
import json
import subprocess

import numpy as np
import pytest
import safetensors.torch
import sklearn.metrics
import torch
from PIL import Image

from tests.program import CALLED

CLASSES = ["ant", "bee, honey", "cat"]
RECIPE = """\
version: 1
model: {layers: [Flatten, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: ImageFolder, root: train, image_transforms: [{type: Resize, size: [6, 5]}]}
  eval: {type: ImageFolder, root: eval, image_transforms: [{type: Resize, size: [6, 5]}]}
  transforms: [{type: Normalize, mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4]}]
dataloader: {batch_size: 8, num_workers: 1}
optimizer: {type: SGD, lr: 0.5}
training: {num_epochs: 2}
output_dir: run
"""


def trainrun(folder, *arguments):
    done = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(name="folder", scope="module")
def folder_with_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    draw = np.random.default_rng(1)
    for split, count in (("train", 12), ("eval", 5)):
        for number, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 120, (6, 5, 3)) + np.eye(3, dtype=int)[number] * 60
                Image.fromarray(pixels.astype(np.uint8)).save(folder / split / name / f"{i}.png")
    (folder / "mixed/deeper").mkdir(parents=True)
    for i in range(11):
        place = folder / "mixed" / ("deeper" if i % 2 else "") / f"photo {i}.PNG"
        Image.fromarray(draw.integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(place)
    (folder / "mixed/notes.txt").write_text("not an image")
    (folder / "recipe.yaml").write_text(RECIPE)
    trainrun(folder, "--quiet", "recipe.yaml")
    return folder


def reference(folder, paths):
    """Probabilities [n, 3] of the images, computed by PyTorch from the saved weights."""
    state = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    images = torch.stack([torch.tensor(np.asarray(Image.open(path).convert("RGB"))).permute(2, 0, 1) / 255 for path in paths])
    images = (images - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    return (images.flatten(1) @ state["1.weight"].T + state["1.bias"]).double().softmax(1)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_images_of_a_folder_get_the_classes_and_probabilities_of_pytorch(folder, kind):
    trainrun(folder, "predict", "run", "mixed", "--format", kind, "--output", f"out.{kind}")
    text = (folder / f"out.{kind}").read_text()
    if kind == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        found = [[float(row[f"p({name})"]) for name in CLASSES] for row in rows]
    else:
        rows = [json.loads(line) for line in text.splitlines()]
        found = [[row["probabilities"][name] for name in CLASSES] for row in rows]
    paths = sorted((path for path in (folder / "mixed").rglob("*") if path.suffix == ".PNG"), key=lambda path: (str(path.parent), path.name))
    assert [row["file"] for row in rows] == [str(path.relative_to(folder)) for path in paths] and len(rows) == 11
    expected = reference(folder, paths)
    assert torch.allclose(torch.tensor(found, dtype=torch.float64), expected, atol=1e-5)
    assert [row["label"] for row in rows] == [CLASSES[i] for i in expected.argmax(1)]
    assert [float(row["probability"]) for row in rows] == pytest.approx([max(row) for row in found], rel=1e-4)


def test_the_report_of_each_class_is_scikit_learns(folder):
    report = json.loads(trainrun(folder, "eval", "run", "--json", "--report"))["report"]["eval"]
    paths = sorted((folder / "eval").rglob("*.png"), key=lambda path: (path.parent.name, path.name))
    labels = [CLASSES.index(path.parent.name) for path in paths]
    predicted = reference(folder, paths).argmax(1).tolist()
    assert report["confusion_matrix"] == sklearn.metrics.confusion_matrix(labels, predicted).tolist()
    expected = sklearn.metrics.classification_report(labels, predicted, output_dict=True, zero_division=0)
    assert report["accuracy"] == pytest.approx(expected["accuracy"])
    for row in report["classes"]:
        own = expected[str(row["class"])]
        assert [row[key] for key in ("precision", "recall", "f1")] == pytest.approx([own[key] for key in ("precision", "recall", "f1-score")])
        assert row["samples"] == own["support"]
    assert "rows: the samples' classes" in trainrun(folder, "eval", "run", "--report")
