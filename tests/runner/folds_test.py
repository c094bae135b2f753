"""`dataset.fold: {folds: N}`: all folds in one call, their mean and deviation, and predictions for each row by the fold
that did not see it, compared with scikit-learn's splits and a plain computation."""

import csv
import json
import pathlib
import re
import signal
import subprocess
import time

import numpy as np
import pytest
import safetensors.torch
import sklearn.model_selection
import torch

from tests.program import BINARY, CALLED

NUM_ROWS = 61
RECIPE = """
name: folds
seed: 5
output_dir: run
model:
  layers: [{type: Linear, out_features: 3}]
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: CSV, path: rows.csv, label: kind, id: name, columns: {kind: category, a: {missing: mean}}}
  fold: {folds: 3}
  transforms: [Standardize]
dataloader: {batch_size: 8}
optimizer: {type: Adam, lr: 0.01}
training: {num_epochs: 4}
checkpoint: {keep_last: 1}
"""


def trainrun(folder, *arguments, status=0):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def rows(tmp_path):
    random = np.random.default_rng(0)
    found = [
        (
            f"row {i}",
            "" if i % 9 == 0 else f"{random.normal():.3f}",
            f"{random.normal():.3f}",
            "cab"[random.integers(3)],
        )
        for i in range(NUM_ROWS)
    ]
    (tmp_path / "rows.csv").write_text("name,a,b,kind\n" + "".join(",".join(row) + "\n" for row in found))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return found


def summary_of(run):
    return json.loads((pathlib.Path(run) / "summary.json").read_text())


def splits(num_folds, seed=5):
    """The training and the held-out rows of each fold."""
    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(seed)).numpy()
    return [
        (np.sort(order[train]), np.sort(order[test]))
        for train, test in sklearn.model_selection.KFold(num_folds).split(order)
    ]


def weights_of(run, prefix="0."):
    tensors = safetensors.torch.load_file(run / "checkpoints/latest/model.safetensors")
    return tensors[prefix + "weight"].double(), tensors[prefix + "bias"].double()


def scaled(rows, train):
    """What Standardize makes of the features of all rows, learnt from the training rows."""
    a = np.array([float(row[1] or "nan") for row in rows])
    a[np.isnan(a)] = np.nanmean(a[train])
    features = torch.tensor(np.stack([a, [float(row[2]) for row in rows]], 1)).float().double()
    return (features - features[train].mean(0)) / features[train].std(0, unbiased=False)


def test_each_row_is_predicted_by_the_fold_that_did_not_see_it(tmp_path, rows):
    said = trainrun(tmp_path, "recipe.yaml")
    run = tmp_path / "run"
    with open(run / "predictions.csv") as file:
        predicted = list(csv.DictReader(file))
    assert list(predicted[0]) == ["sample", "name", "fold", "kind", "probability", "p(a)", "p(b)", "p(c)"]
    assert [(row["sample"], row["name"]) for row in predicted] == [(str(i), row[0]) for i, row in enumerate(rows)]
    accuracies = []
    for fold, (train, test) in enumerate(splits(3)):
        assert [i for i, row in enumerate(predicted) if row["fold"] == str(fold)] == test.tolist()
        weight, bias = weights_of(run / f"fold-{fold}")
        probabilities = (scaled(rows, train)[test] @ weight.T + bias).softmax(1)
        for i, expected in zip(test, probabilities):
            assert [float(predicted[i][f"p({kind})"]) for kind in "abc"] == pytest.approx(expected.tolist(), rel=1e-4)
            assert predicted[i]["kind"] == "abc"[expected.argmax()]
        accuracies.append(np.mean([rows[i][3] == predicted[i]["kind"] for i in test]))
        assert summary_of(run / f"fold-{fold}")["metrics"]["eval/accuracy"] == pytest.approx(accuracies[-1])
    summary = summary_of(run)
    assert summary["folds"] == 3 and summary["of_folds"]["eval/accuracy"] == pytest.approx(accuracies)
    assert summary["metrics"]["eval/accuracy"] == pytest.approx(np.mean(accuracies))
    assert summary["deviations"]["eval/accuracy"] == pytest.approx(np.std(accuracies))
    assert f"eval/accuracy {np.mean(accuracies):.4g} ± {np.std(accuracies):.4g} (" in said
    assert "eval/accuracy" in (run / "log.txt").read_text()
    assert "holds a run for each fold; name one of them: run/fold-0" in trainrun(tmp_path, "eval", "run", status=1)
    again = trainrun(tmp_path, "recipe.yaml", "training.num_epochs=1")
    assert "run holds a finished run" in again and (tmp_path / "run-2/fold-2/summary.json").exists()


def test_folds_of_numbers_and_of_groups(tmp_path, rows):
    table = "{type: CSV, path: rows.csv, label: [b, a], id: [name, kind], features: [b2]}"
    recipe = re.sub(r"train: .*", f"train: {table}", RECIPE).replace("folds: 3", "folds: 4, group: group")
    recipe = recipe.replace("CrossEntropyLoss", "MSELoss").replace("out_features: 3", "out_features: 2")
    recipe = recipe.replace("[Accuracy]", "[{type: MAE, multioutput: raw_values}]")
    (tmp_path / "recipe.yaml").write_text(recipe)
    header, *lines = (tmp_path / "rows.csv").read_text().replace(",,", ",1,").splitlines()
    lines = [f"{line},{i / 9},{i % 7}" for i, line in enumerate(lines)]
    (tmp_path / "rows.csv").write_text("\n".join([header + ",b2,group", *lines]) + "\n")
    trainrun(tmp_path, "recipe.yaml")
    with open(tmp_path / "run/predictions.csv") as file:
        predicted = list(csv.DictReader(file))
    assert list(predicted[0]) == ["sample", "name", "kind", "fold", "b", "a"]
    folds = np.array([int(row["fold"]) for row in predicted])
    assert all(len(set(folds[group::7])) == 1 for group in range(7)) and len(set(folds)) == 4
    for fold in range(4):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        weight, bias = weights_of(tmp_path / f"run/fold-{fold}")
        feature = torch.tensor([[i / 9] for i in range(NUM_ROWS)]).double()
        outputs = (feature - feature[train].mean(0)) / feature[train].std(0, unbiased=False) @ weight.T + bias
        actual = np.array([[float(predicted[i][name]) for name in ("b", "a")] for i in test])
        assert actual == pytest.approx(outputs[test].numpy(), rel=1e-4, abs=1e-5)
    figures = summary_of(tmp_path / "run")["metrics"]
    assert figures.keys() >= {"eval/loss", "eval/mae", "eval/mae/b", "eval/mae/a"}


def test_a_run_that_is_killed_goes_on_at_the_fold_in_progress(tmp_path, rows):
    long = ["training.num_epochs=10", "checkpoint.every=5", "logging.every_steps=1"]
    trainrun(tmp_path, "recipe.yaml", *long, "output_dir=whole")
    command = [BINARY, "recipe.yaml", *long]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list((tmp_path / "run/fold-1/checkpoints").glob("*/state.json")):
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    first = (tmp_path / "run/fold-0/summary.json").stat().st_mtime_ns
    said = trainrun(tmp_path, "recipe.yaml", *long)
    assert "fold 0 of 3 is finished: run/fold-0" in said and "resumes the unfinished run in run/fold-1" in said
    assert (tmp_path / "run/fold-0/summary.json").stat().st_mtime_ns == first
    assert summary_of(tmp_path / "run")["of_folds"] == summary_of(tmp_path / "whole")["of_folds"]
    assert (tmp_path / "run/predictions.csv").read_text() == (tmp_path / "whole/predictions.csv").read_text()


def test_a_run_that_is_stopped_says_so_and_begins_no_other_fold(tmp_path, rows):
    running = subprocess.Popen(
        [BINARY, "recipe.yaml", "training.num_epochs=2000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (tmp_path / "run/fold-0/metrics.jsonl").exists():
        time.sleep(0.005)
    running.send_signal(signal.SIGTERM)
    assert running.wait() == 143
    assert not (tmp_path / "run/fold-1").exists() and not (tmp_path / "run/summary.json").exists()


def test_one_fold_of_several(tmp_path, rows):
    trainrun(tmp_path, "recipe.yaml", "dataset.fold={folds: 3, index: 1}", "output_dir=one")
    trainrun(tmp_path, "recipe.yaml", "dataset.fold=2/3", "output_dir=other")
    assert summary_of(tmp_path / "one")["metrics"] == summary_of(tmp_path / "other")["metrics"]
    for wrong, message in (
        ("{folds: 3, index: 3}", "there are only 3 folds, numbered from 0"),
        ("{folds: null, part: 1/3, index: 0}", "index: is for folds"),
        ("{folds: 3, part: 1/3}", "part"),
        ("{folds: 1}", "folds"),
        ("{folds: null, stratify: true}", "either part or folds must be given"),
    ):
        assert message in trainrun(tmp_path, "validate", "recipe.yaml", f"dataset.fold={wrong}", status=2)
    trainrun(tmp_path, "explain", "recipe.yaml")


def test_ranks_of_its_own_train_each_fold(tmp_path, rows):
    trainrun(tmp_path, "recipe.yaml", "distributed_type=MULTI_CPU", "num_processes=2", "training.num_epochs=1")
    assert sorted(summary_of(tmp_path / "run")["metrics"]) == ["eval/accuracy", "eval/loss"]
    assert len((tmp_path / "run/predictions.csv").read_text().splitlines()) == NUM_ROWS + 1


PICTURES = """
name: drawn
output_dir: run
model: {layers: [Flatten, {type: Linear, out_features: 64}, {type: Unflatten, dim: 1, unflattened_size: [1, 8, 8], name: drawn}]}
loss: {type: MSELoss, inputs: [drawn, image]}
dataset:
  train: {type: Digits, split: test}
  fold: {folds: 2}
dataloader: {batch_size: 256}
optimizer: {type: SGD, lr: 0.01}
training: {num_epochs: 1}
"""


def test_folds_end_well_where_a_table_cannot_hold_what_they_predict(tmp_path):
    (tmp_path / "recipe.yaml").write_text(PICTURES)
    said = trainrun(tmp_path, "recipe.yaml")
    assert "there is no predictions.csv of the folds: predict: 'output' is [" in said
    assert json.loads((tmp_path / "run/summary.json").read_text())["folds"] == 2
    assert not (tmp_path / "run/predictions.csv").exists()
