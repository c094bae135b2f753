"""The commands of docs/guide/evaluating.md and learning_rate.md, run on the data that ships with the project."""

import json
import pathlib
import re
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/evaluating.md").read_text()
RECIPE = """\
version: 1
name: sets
model: {layers: [Flatten, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
optimizer: {type: AdamW, lr: 1e-2}
training: {num_epochs: 1}
"""


def trainrun(*arguments, folder):
    return subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(name="folder", scope="module")
def folder_with_the_guides_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    (folder / "recipe.yaml").write_text(RECIPE + re.search(r"^```yaml\n(dataset:.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL).group(1))
    result = trainrun("recipe.yaml", "output_dir=runs/sets", folder=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_each_set_has_figures_of_its_own(folder):
    figures = [line for line in map(json.loads, (folder / "runs/sets/metrics.jsonl").read_text().splitlines()) if line["split"] == "eval"][-1]
    assert {"eval/clean/loss", "eval/clean/accuracy", "eval/noisy/loss", "eval/noisy/accuracy"} <= set(figures)
    assert figures["eval/clean/accuracy"] > 0.8 > figures["eval/noisy/accuracy"]


def test_the_report_names_each_class(folder):
    result = trainrun("eval", "runs/sets", "--report", folder=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "precision" in result.stdout and "recall" in result.stdout


def test_the_model_is_exported_and_predicts(folder):
    for arguments in [["export", "runs/sets"], ["export", "runs/sets", "--format", "torchscript", "--output", "sets.pt"], ["predict", "runs/sets"]]:
        result = trainrun(*arguments, folder=folder)
        assert result.returncode == 0, result.stdout + result.stderr
    assert (folder / "model.safetensors").exists() and (folder / "sets.pt").exists()
    assert len(result.stdout.splitlines()) > 300


def test_the_finder_names_a_rate(folder):
    result = trainrun("lr-find", "recipe.yaml", "--json", folder=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)
