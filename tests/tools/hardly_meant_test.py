"""What a job is told at its start that is no fault, but hardly meant: each note where it belongs, and none where all is well."""

import json
import subprocess

import pytest
import tokenizers

from tests.program import CALLED

RECIPE = """
version: 1
model: {layers: [{type: Linear, out_features: 1}]}
loss: MSELoss
dataset: {train: {type: CSV, path: a.csv, label: y, task: regression}}
dataloader: {batch_size: 10}
optimizer: {type: SGD, lr: 1e-9}
training: {num_epochs: 2}
evaluation: {every: null}
checkpoint: {every: null}
output_dir: run
"""
CHAT = """
version: 1
model: {layers: [{type: Embedding, num_embeddings: 8, embedding_dim: 4}, {type: Linear, out_features: 8}, {type: Permute, dims: [0, 2, 1]}]}
loss: CrossEntropyLoss
dataset: {train: {type: Chat, path: a.jsonl, tokenizer: tokenizer.json, max_length: 400, packing: true}}
dataloader: {batch_size: 2}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
checkpoint: {every: null}
output_dir: run
"""


def warnings(folder, *overrides, recipe=RECIPE):
    (folder / "r.yaml").write_text(recipe)
    done = subprocess.run([CALLED, "r.yaml", *overrides], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return " ".join((done.stdout + done.stderr).split())


def write_rows(folder, scale, count=100):
    (folder / "a.csv").write_text("x,y\n" + "".join(f"{i / count},{scale * (i % 7)}\n" for i in range(count)))


@pytest.mark.parametrize("overrides, note", [
    (["callbacks=[{type: SWA, start_step: 21}]"], "callbacks[0]: SWA begins at step 21, but the job has 20 steps, so that it never does anything"),
    (["callbacks=[{type: SWA, start_step: 20}]"], None),
    (["scheduler={type: LinearWithWarmup, warmup_steps: 20}"],
     "scheduler: the rate of LinearWithWarmup rises for 20 steps, but the job has 20, so that it never reaches optimizer.lr"),
    (["scheduler={type: CosineWithWarmup, warmup_steps: 500}"], "rises for 500 steps, but the job has 20"),
    (["scheduler={type: LinearLR, total_iters: 30}"], "the rate of LinearLR rises for 30 steps, but the job has 20"),
    (["scheduler={type: LinearLR, total_iters: 30, start_factor: 1.0, end_factor: 0.5}"], None),
    (["scheduler={type: LinearWithWarmup, warmup_steps: 2, interval: epoch}"], "rises for 2 epochs, but the job has 2"),
    (["scheduler={type: LinearWithWarmup, warmup_steps: 19}"], None),
    (["scheduler={type: StepLR, step_size: 1, interval: epoch}", "training.max_steps=9"],
     "scheduler: StepLR counts epochs, but the job ends after 9 steps of the first epoch's 10, so that the rate never changes; write interval: step"),
    (["scheduler={type: StepLR, step_size: 1, interval: epoch}", "training.max_steps=11"], None),
])
def test_a_schedule_or_average_that_the_job_ends_before(tmp_path, overrides, note):
    write_rows(tmp_path, 0.5)
    said = warnings(tmp_path, *overrides)
    assert (note in said) if note else ("never" not in said), said


@pytest.mark.parametrize("scale, note", [
    (1e5, "loss: the numbers of 'label' have a standard deviation of 2e+05 around 3e+05, and MSELoss learns best where it is about 1; "
          "add {type: Standardize, field: label} to dataset.transforms"),
    (1e-3, "have a standard deviation of 0.002 around 0.003"),
    (0.5, None), (5, None),
])
def test_a_target_whose_deviation_is_far_from_1(tmp_path, scale, note):
    write_rows(tmp_path, scale, count=98)
    said = warnings(tmp_path)
    assert (note in said) if note else ("deviation" not in said), said
    if note:
        assert "deviation" not in warnings(tmp_path, "dataset.transforms=[{type: Standardize, field: label}]")  # what was advised helps
        assert "deviation" not in warnings(tmp_path, "model.layers=[{type: Linear, out_features: 1}, Exp]", "loss=PoissonNLLLoss")


def test_a_target_that_is_always_the_same(tmp_path):
    write_rows(tmp_path, 0)
    assert "loss: 'label' is 0 in all samples that were looked at, so that MSELoss has nothing to tell apart" in warnings(tmp_path)


def test_packing_that_leaves_hardly_any_steps(tmp_path):
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "a": 1, "b": 2, "c": 3}, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.jsonl").write_text((json.dumps({"prompt": "a b", "completion": " c a"}) + "\n") * 200)
    said = warnings(tmp_path, recipe=CHAT)
    assert "dataset.train: packing leaves 2 samples, and the job has 1 step, in which hardly anything can be learnt" in said
    assert "hardly anything" not in warnings(tmp_path, "dataset.train.packing=false", recipe=CHAT)
    assert "hardly anything" not in warnings(tmp_path, "training.num_epochs=10", recipe=CHAT)
    assert "hardly anything" not in warnings(tmp_path, "training.max_steps=1", recipe=CHAT)  # as the recipe wants it


@pytest.mark.parametrize("change, note", [
    ("city: category", "dataset.train: no layer, loss or metric reads the field 'city'; a layer reads a field by its name in `inputs`, and a category is among "
                       "the features where its column says `one_hot: true`"),
    ("city: {type: category, categories: [a, b], one_hot: true}", None),
])
def test_fields_that_nothing_reads(tmp_path, change, note):
    (tmp_path / "a.csv").write_text("x,city,y\n" + "".join(f"{i / 20},{'ab'[i % 2]},{i % 7}\n" for i in range(20)))
    said = warnings(tmp_path, recipe=RECIPE.replace("task: regression", "task: regression, columns: {" + change + "}"))
    assert note in said if note else "reads the field" not in said


def test_the_future_that_nothing_reads(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i % 3},{i % 7}\n" for i in range(30)))
    recipe = RECIPE.replace("{type: CSV,", "{type: Windows, length: 3, known: [x], dataset: {type: CSV,").replace("}}\n", "}}}\n", 1)
    recipe = recipe.replace("[{type: Linear,", "[Flatten, {type: Linear,")
    assert "no layer, loss or metric reads the field 'known'" in warnings(tmp_path, recipe=recipe)
