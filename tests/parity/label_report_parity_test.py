"""`trainrun eval --report` of models of several labels and of regressions, against scikit-learn on what PyTorch makes of the same weights."""

import json
import subprocess

import numpy as np
import pytest
import safetensors.torch
import sklearn.metrics
import torch
from PIL import Image

from tests.program import CALLED

LABELS = ["indoors", "of people", "night"]
NUM = 24
RECIPE = """\
version: 1
model: {layers: [Flatten, {type: Linear, name: out, out_features: 3}]}
loss: %s
metrics: %s
dataset: {train: %s, eval: %s}
dataloader: {batch_size: 7}
optimizer: {type: SGD, lr: 0.5}
training: {num_epochs: 2}
checkpoint: {every: epoch, keep_best: {monitor: %s}}
output_dir: run
"""


def trainrun(folder, *arguments, status=0):
    done = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def outputs(folder, inputs):
    state = safetensors.torch.load_file(folder / "run/checkpoints/best/model.safetensors")
    return (torch.tensor(inputs).flatten(1) @ state["out.weight"].T + state["out.bias"]).double().numpy()


@pytest.fixture(name="tagged", scope="module")
def make_tagged(tmp_path_factory):
    """A folder with a trained run, and pixels and labels of its images."""
    folder = tmp_path_factory.mktemp("tagged")
    generator = np.random.default_rng(3)
    pixels = generator.integers(0, 256, size=(NUM, 3, 4, 3), dtype=np.uint8)
    truth = (generator.random((NUM, 3)) < [0.5, 0.3, 0.7]).astype(int)
    lines = ["path," + ",".join(LABELS)]
    for number, (image, row) in enumerate(zip(pixels, truth)):
        Image.fromarray(image).save(folder / f"{number}.png")
        lines.append(f"{number}.png," + ",".join(map(str, row)))
    (folder / "tags.csv").write_text("\n".join(lines) + "\n")
    data = f"{{type: ImageCSV, path: tags.csv, label: {json.dumps(LABELS)}}}"
    metrics = "[{type: F1, average: none}, {type: F1, name: mean}, {type: AUROC, average: none}, {type: Accuracy, subset: true}]"
    (folder / "recipe.yaml").write_text(RECIPE % ("BCEWithLogitsLoss", metrics, data, data, "eval/f1/of people"))
    trainrun(folder, "--quiet", "recipe.yaml")
    return folder, pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255, truth


def test_the_report_of_each_label_is_scikit_learns_and_called_by_its_name(tagged):
    folder, images, truth = tagged
    scores = outputs(folder, images)
    expected = sklearn.metrics.classification_report(truth, scores > 0, output_dict=True, zero_division=0, target_names=LABELS)

    found = json.loads(trainrun(folder, "eval", "run", "--json", "--report"))

    report = found["report"]["eval"]
    assert [row["name"] for row in report["labels"]] == LABELS
    for row, name in [*zip(report["labels"], LABELS), *((report[name], name) for name in ("micro avg", "macro avg", "weighted avg"))]:
        assert [row[key] for key in ("precision", "recall", "f1")] == pytest.approx([expected[name][key] for key in ("precision", "recall", "f1-score")])
        assert row["samples"] == expected[name]["support"]
    matrices = sklearn.metrics.multilabel_confusion_matrix(truth, scores > 0)
    assert [row["confusion_matrix"] for row in report["labels"]] == matrices.tolist()
    assert report["accuracy"] == pytest.approx(1 - sklearn.metrics.hamming_loss(truth, scores > 0))
    for i, name in enumerate(LABELS):
        assert found[f"eval/f1/{name}"] == pytest.approx(expected[name]["f1-score"])
        assert found[f"eval/auroc/{name}"] == pytest.approx(sklearn.metrics.roc_auc_score(truth[:, i], scores[:, i]))
    assert found["eval/mean"] == pytest.approx(expected["macro avg"]["f1-score"])
    assert found["eval/accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(truth, scores > 0))
    text = trainrun(folder, "eval", "run", "--report")
    assert "0 indoors" in text and "weighted avg" in text and "class_report" not in text


def test_the_report_of_a_regression_has_its_errors(tmp_path):
    generator = np.random.default_rng(4)
    x, y = generator.normal(size=(NUM, 5)).astype(np.float32), generator.normal(size=(NUM, 3)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, label=y)
    data = "{type: TensorFile, path: data.npz, fields: {x: x, label: label}}"
    (tmp_path / "recipe.yaml").write_text(RECIPE % ("MSELoss", "[MAE]", data, data, "eval/mae"))
    trainrun(tmp_path, "--quiet", "recipe.yaml")
    found = json.loads(trainrun(tmp_path, "eval", "run", "--json", "--report"))["report"]["eval"]
    output = outputs(tmp_path, x)
    assert found == {"rmse": pytest.approx(sklearn.metrics.mean_squared_error(y, output) ** 0.5), "mae": pytest.approx(sklearn.metrics.mean_absolute_error(y, output)),
                     "r2": pytest.approx(sklearn.metrics.r2_score(y, output))}
    assert "eval: errors of the predicted numbers" in trainrun(tmp_path, "eval", "run", "--report")

    said = trainrun(tmp_path, "eval", "run", "--report", "loss={type: OutputLoss, inputs: [out]}", status=1)
    assert "--report is for classifiers, models of several labels and regressions, but this model is trained by OutputLoss" in said
