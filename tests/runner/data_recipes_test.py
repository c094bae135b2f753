"""Recipes whose data learn, are folded, sampled or split: trained, stopped, resumed and evaluated from outside."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
import safetensors.torch
import sklearn.model_selection
import torch

from tests.program import CALLED


def trainrun(folder, *arguments, status=0):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def metrics(run, split):
    lines = [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == split]


TABLE = """
name: table
model:
  layers:
    - {type: Embedding, inputs: [city], num_embeddings: 3, embedding_dim: 2, name: city_vector}
    - {type: Concat, inputs: [features, city_vector]}
    - {type: Linear, out_features: 8}
    - ReLU
    - {type: Linear, out_features: 2}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: &table
    type: CSV
    path: people.csv
    label: income
    columns: {age: {missing: median}, city: {type: category, missing: most_frequent}, income: category}
    split: {fractions: [0.75, 0.25], seed: 1, part: train}
  eval: {<<: *table, split: {fractions: [0.75, 0.25], seed: 1, part: validation}}
  transforms: [Standardize]
dataloader: {batch_size: 16}
optimizer: {type: AdamW, lr: 0.01}
training: {num_epochs: 4}
checkpoint: {every: 3, keep_last: null}
logging: {every_steps: 1}
"""


@pytest.fixture
def people(tmp_path):
    random = np.random.default_rng(0)
    lines = ["age,city,hours,income"]
    for _ in range(200):
        age, city, hours = random.integers(18, 80), random.choice(["Bern", "Oslo", "Rome"]), random.integers(0, 60)
        income = "high" if 2 * age + 3 * hours + 40 * (city == "Oslo") > 190 else "low"
        lines.append(f"{'' if random.random() < 0.1 else age},{'' if random.random() < 0.1 else city},{hours},{income}")
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "table.yaml").write_text(TABLE)
    return tmp_path


def test_a_table_is_learnt_from_resumed_and_evaluated_with_what_was_learnt(people):
    trainrun(people, "table.yaml", "output_dir=whole")
    whole = metrics(people / "whole", "train")
    checkpoint = people / "whole/checkpoints/step-000009"
    if not checkpoint.exists():
        checkpoint = sorted((people / "whole/checkpoints").glob("*9"))[0]
    learnt = json.loads((checkpoint / "state.json").read_text())["learnt"]
    assert learnt["dataset"]["income"] == {"categories": ["high", "low"]}
    assert set(learnt["dataset"]) == {"age", "city", "income"}
    assert len(learnt["transforms"]["transforms"]["0"]["mean"]) == 2

    # From the middle of an epoch on, the same losses, bit for bit.
    trainrun(people, "table.yaml", "output_dir=part", f"checkpoint.resume={checkpoint}")
    part = {line["step"]: line["train/loss"] for line in metrics(people / "part", "train")}
    assert part and part == {line["step"]: line["train/loss"] for line in whole if line["step"] in part}

    # Evaluation takes what was learnt: the training part of the file may be gone.
    evaluated = trainrun(people, "eval", "whole")
    assert f"{metrics(people / 'whole', 'eval')[-1]['eval/accuracy']:.3f}"[:5] in evaluated or "accuracy" in evaluated
    assert metrics(people / "whole", "eval")[-1]["eval/accuracy"] > 0.7


TWO_FILES = """
model: {layers: [{type: Linear, out_features: 2}]}
loss: CrossEntropyLoss
dataset:
  train: {type: CSV, path: train.csv, label: kind, columns: {kind: {type: category, categories: [no, yes]}}}
  eval: {type: CSV, path: test.csv, label: kind, columns: {kind: {type: category, categories: [no, yes]}}}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
output_dir: run
"""


@pytest.mark.parametrize("header, override, message", [
    ("x,y", "dataset.eval.columns.kind.categories=[yes, no]",
     "the classes of 'kind' are yes, no, but those of dataset.train are no, yes; list them in one order"),
    ("y,x", "dataset.eval.features=[y, x]",
     "the columns of 'features' are y, x, but those of dataset.train are x, y; name them in one order by `features`"),
])
def test_a_table_whose_numbers_mean_something_else_than_in_training_is_refused(tmp_path, header, override, message):
    message = "dataset.eval: " + message.replace("'kind'", "'label'")
    for name, columns in (("train", "x,y"), ("same", "x,y"), ("test", header)):
        (tmp_path / f"{name}.csv").write_text(f"{columns},kind\n1,2,no\n3,4,yes\n")
    (tmp_path / "recipe.yaml").write_text(TWO_FILES)
    assert message in trainrun(tmp_path, "recipe.yaml", override, status=1)
    trainrun(tmp_path, "recipe.yaml", "dataset.eval.path=same.csv")
    for verb in (["eval", "run"], ["predict", "run"]):
        assert message in trainrun(tmp_path, *verb, "dataset.eval.path=test.csv", override, status=1)
    if header == "y,x":  # by their names, where the recipe names no order
        trainrun(tmp_path, "recipe.yaml", "dataset.eval.path=test.csv", "output_dir=on")


def test_what_was_inferred_of_a_table_is_kept_with_the_run(tmp_path):
    recipe = TWO_FILES.replace("columns: {kind: {type: category, categories: [no, yes]}}", "columns: auto")
    for name in ("train", "test"):
        rows = "".join(f"{x},{'left' if x % 2 else 'right'},{'yes' if x > 30 else 'no'}\n" for x in range(60))
        (tmp_path / f"{name}.csv").write_text("x,side,kind\n" + rows)
    (tmp_path / "recipe.yaml").write_text(recipe)
    trainrun(tmp_path, "recipe.yaml")
    before = trainrun(tmp_path, "eval", "run")
    rows = "".join(f"{x % 3}a,{x},{'yes' if x > 30 else 'no'}\n" for x in range(60))  # the columns hold other things now
    (tmp_path / "train.csv").write_text("x,side,kind\n" + rows)
    assert trainrun(tmp_path, "eval", "run") == before


def test_folds_are_those_of_scikit_learn_and_each_trains_on_the_others(people):
    recipe = TABLE.replace("    split: {fractions: [0.75, 0.25], seed: 1, part: train}\n", "")
    recipe = "\n".join(line for line in recipe.splitlines() if not line.startswith("  eval:")) + "\n"
    (people / "fold.yaml").write_text(recipe.replace("  transforms:", "  fold: 1/3\n  transforms:"))
    order = torch.randperm(200, generator=torch.Generator().manual_seed(42))
    medians = []
    ages = [line.split(",")[0] for line in (people / "people.csv").read_text().splitlines()[1:]]
    for fold, (train, test) in enumerate(sklearn.model_selection.KFold(3).split(order)):
        run = people / f"fold{fold}"
        trainrun(people, "fold.yaml", f"dataset.fold={fold + 1}/3", f"output_dir={run}", "training.num_epochs=1")
        state = json.loads(next((run / "checkpoints").glob("*/state.json")).read_text())
        expected = np.median([float(ages[order[i]]) for i in train if ages[order[i]]])
        assert state["learnt"]["dataset"]["age"]["missing"] == expected
        medians.append(expected)
        assert len(metrics(run, "eval")) == 1
    explained = trainrun(people, "explain", "fold.yaml")
    assert "fold" in trainrun(people, "validate", "fold.yaml", "dataset.fold=4/3", status=2)
    assert "leave out eval" in trainrun(people, "validate", "table.yaml", "dataset.fold=1/3", status=2)
    assert explained


@pytest.mark.parametrize("sampler", ["WeightedRandom", "Stratified", "{type: WeightedRandom, weights: [1, 3], num_samples: 64}"])
def test_samplers_resume_in_mid_epoch(people, sampler):
    trainrun(people, "table.yaml", "output_dir=whole", f"dataloader.sampler={sampler}")
    whole = {line["step"]: line["train/loss"] for line in metrics(people / "whole", "train")}
    checkpoint = sorted((people / "whole/checkpoints").glob("*6"))[0]
    trainrun(people, "table.yaml", "output_dir=part", f"dataloader.sampler={sampler}", f"checkpoint.resume={checkpoint}")
    part = {line["step"]: line["train/loss"] for line in metrics(people / "part", "train")}
    assert part and part == {step: whole[step] for step in part}
    if "num_samples" in sampler:
        assert max(whole) == 4 * 4


def test_sampler_errors(people):
    assert "draws at random" in trainrun(people, "validate", "table.yaml", "dataloader={sampler: Stratified, shuffle: false}", status=2)
    assert "are only for WeightedRandom" in trainrun(
        people, "validate", "table.yaml", "dataloader.sampler={type: Stratified, num_samples: 3}", status=2)
    assert "weights has 1 numbers, there is a class 1" in trainrun(
        people, "table.yaml", "dataloader.sampler={type: WeightedRandom, weights: [1]}", status=1)


MIXED = """
name: mixed
model: {layers: [Flatten, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: Digits, split: train, subset: 640}
  eval: {type: Digits, split: test}
  train_transforms: [{type: RandomRotation, degrees: 10}, {type: Mixup, alpha: 0.2}]
dataloader: {batch_size: 32}
optimizer: {type: AdamW, lr: 0.01}
training: {num_epochs: 6}
checkpoint: {every: 7}
logging: {every_steps: 1}
"""


def test_mixup_trains_on_soft_labels_and_evaluates_on_hard_ones(tmp_path):
    (tmp_path / "mixed.yaml").write_text(MIXED)
    trainrun(tmp_path, "mixed.yaml", "output_dir=run")
    assert metrics(tmp_path / "run", "eval")[-1]["eval/accuracy"] > 0.8


def test_weights_are_transposed_where_rename_says_so(tmp_path):
    """GPT-2's Conv1D keeps [in, out], a Linear [out, in]."""
    (tmp_path / "mixed.yaml").write_text(MIXED)
    weight, bias = torch.randn(64, 10), torch.randn(10)
    torch.save({"h.c_fc.weight": weight, "h.c_fc.bias": bias}, tmp_path / "w.pt")
    common = ["mixed.yaml", "training={max_steps: 1, num_epochs: null}", "optimizer.lr=0", "optimizer.weight_decay=0",
              "checkpoint.every=1"]
    for name, rename in {"once": "'^h\\.c_fc\\.(weight)$': {to: '1.$1', transpose: true}, '^h\\.c_fc': '1'",
                         "apart": "'c_fc\\.weight$': {transpose: true}, '^h\\.c_fc': {to: '1'}"}.items():
        trainrun(tmp_path, *common, f"output_dir={name}", "model.weights={path: w.pt, rename: {%s}}" % rename)
        saved = safetensors.torch.load_file(next((tmp_path / name / "checkpoints").glob("*/model.safetensors")))
        assert torch.equal(saved["1.weight"], weight.T) and torch.equal(saved["1.bias"], bias)
    assert "rename would transpose 'h.c_fc.bias', which is [10] and does not have two dimensions" in trainrun(
        tmp_path, *common, "output_dir=one", "model.weights={path: w.pt, rename: {'c_fc': {transpose: true}}}", status=1)
    assert "unknown parameter of model.weights.rename" in trainrun(
        tmp_path, "validate", "mixed.yaml", "model.weights={path: w.pt, rename: {x: {transposed: true}}}", status=2)


def test_weights_are_renamed_and_what_does_not_fit_is_listed(tmp_path):
    (tmp_path / "mixed.yaml").write_text(MIXED)
    weight = torch.randn(10, 64)
    torch.save({"epoch": 1, "net": {"module.fc.weight": weight, "module.extra": torch.ones(2)}}, tmp_path / "w.pt")
    weights = "{path: w.pt, key: net, rename: {'^module\\.': '', '^fc\\.(.*)': '1.$1'}%s}"
    common = ["mixed.yaml", "training={max_steps: 1, num_epochs: null}", "optimizer.lr=0", "optimizer.weight_decay=0"]
    strict = trainrun(tmp_path, *common, "output_dir=strict", "model.weights=" + weights % "", status=1)
    assert "missing 1.bias [10]; unexpected extra [2]" in strict
    loose = trainrun(tmp_path, *common, "output_dir=loose", "model.weights=" + weights % ", strict: false", "checkpoint.every=1")
    assert "model.weights: skipped tensors that do not match the model, " in loose
    assert "which keeps its initial values there: missing 1.bias [10]; unexpected extra [2]" in loose
    saved = safetensors.torch.load_file(next((tmp_path / "loose/checkpoints").glob("*/model.safetensors")))
    assert torch.equal(saved["1.weight"], weight)
    left_out = "{path: w.pt, key: net, rename: {'^module\\.fc\\.': '1.', extra: null}, strict: false}"
    assert "unexpected" not in trainrun(tmp_path, *common, "output_dir=left", "model.weights=" + left_out)
    assert "is not a regular expression" in trainrun(
        tmp_path, "validate", "mixed.yaml", "model.weights={path: w.pt, rename: {'(': x}}", status=2)
    torch.save({"1.weight": torch.ones(3, 3)}, tmp_path / "w.pt")
    assert "1.weight is [3, 3], the model's is [10, 64]" in trainrun(
        tmp_path, *common, "output_dir=shape", "model.weights={path: w.pt, strict: false}", status=1)
    torch.save({"x": torch.ones(3, 3)}, tmp_path / "w.pt")
    assert "has no tensor of the model" in trainrun(
        tmp_path, *common, "output_dir=none", "model.weights={path: w.pt, strict: false}", status=1)


def test_a_trained_model_is_evaluated_where_its_initial_weights_are_gone(tmp_path):
    (tmp_path / "mixed.yaml").write_text(MIXED)
    torch.save({"1.weight": torch.randn(10, 64), "1.bias": torch.randn(10)}, tmp_path / "w.pt")
    trainrun(tmp_path, "mixed.yaml", "output_dir=run", "model.weights=w.pt", "training.num_epochs=1")
    (tmp_path / "w.pt").unlink()
    assert "accuracy" in trainrun(tmp_path, "eval", "run")
    assert "there is no file or folder w.pt" in trainrun(tmp_path, "run/recipe.yaml", "output_dir=again", status=2)
    assert not (tmp_path / "again").exists()
