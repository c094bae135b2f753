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

TWO_LAYERS = ["model.layers=[{type: Linear, out_features: 2, bias: true}, {type: Linear, out_features: 1}]", "model.freeze=['0.bias']"]


def warnings(folder, *overrides, recipe=RECIPE):
    (folder / "r.yaml").write_text(recipe)
    done = subprocess.run([CALLED, "r.yaml", *overrides], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return " ".join((done.stdout + done.stderr).split())


def notes(folder, *overrides, verb="validate"):
    (folder / "r.yaml").write_text(RECIPE)
    write_rows(folder, 0.5)
    done = subprocess.run([CALLED, verb, "r.yaml", *overrides], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return " ".join(done.stderr.split())


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
    (["scheduler={type: OneCycleLR, max_lr: 0.1, total_steps: 30, pct_start: 0.9}"], "the rate of OneCycleLR rises for 26 steps, but the job has 20, so that it never reaches max_lr"),
    (["scheduler={type: SequentialLR, milestones: [10], schedulers: [{type: LinearLR, total_iters: 12}, CosineAnnealingLR]}"],
     "scheduler.schedulers[0]: the rate of LinearLR rises for 12 steps, but its stretch has 10, so that it never reaches optimizer.lr"),
    (["scheduler={type: SequentialLR, milestones: [10, 20, 30], schedulers: [LinearLR, ConstantLR, CosineAnnealingLR, ConstantLR]}"],
     "scheduler: milestones[1] of SequentialLR is 20, but the job has 20 steps, so that CosineAnnealingLR and ConstantLR never begin"),
    (["scheduler={type: SequentialLR, milestones: [10], schedulers: [{type: LinearLR, total_iters: 10}, CosineAnnealingLR]}"], None),
    (["scheduler={type: StepLR, step_size: 20}"], "scheduler: the rate of StepLR never changes in the job's 20 steps"),
    (["scheduler={type: StepLR, step_size: 19}"], None),
    (["scheduler={type: Piecewise, points: [[30, 1], [40, 0]]}"], "scheduler: the rate of Piecewise never changes in the job's 20 steps"),
    (["scheduler={type: ConstantLR, total_iters: 0}"], None),
    ([*TWO_LAYERS, "model.unfreeze_at_epoch=2"],
     "model.unfreeze_at_epoch: is 2, but the job has 2 epochs, counted from 0, so that the parameters that model.freeze names are never trained"),
    ([*TWO_LAYERS, "model.unfreeze_at_epoch=1", "training.max_steps=10"], "model.unfreeze_at_epoch: is 1, but the job has 1 epoch, counted from 0"),
    ([*TWO_LAYERS, "model.unfreeze_at_epoch=1"], None),
])
def test_a_schedule_or_average_that_the_job_ends_before(tmp_path, overrides, note):
    write_rows(tmp_path, 0.5)
    said = warnings(tmp_path, *overrides)
    assert (note in said) if note else ("never" not in said), said


@pytest.mark.parametrize("scheduler, note", [
    ("{type: OneCycleLR, max_lr: 0.1, total_steps: 19}",
     "scheduler: total_steps of OneCycleLR is 19, but the job has 20 steps, so that the rate stays at its lowest in the last one, where PyTorch would end with an error; "
     "without total_steps it lasts as long as the job"),
    ("{type: OneCycleLR, max_lr: 0.1, total_steps: 20}", None),
    ("PolynomialLR", "scheduler: total_iters of PolynomialLR is 5, but the job has 20 steps, so that the rate is 0 and nothing is learnt in the last 15"),
    ("{type: PolynomialLR, total_iters: 19}", None),
    ("{type: LinearLR, start_factor: 1, end_factor: 0, total_iters: 10}", "total_iters of LinearLR is 10, but the job has 20 steps, so that the rate is 0"),
    ("{type: LinearLR, start_factor: 1, end_factor: 0.1, total_iters: 10}", None),
    ("{type: CosineAnnealingLR, T_max: 2}", "scheduler: T_max of CosineAnnealingLR is 2, but the job has 20 steps, so that the rate rises again in the last 18; "
                                            "if epochs are meant, write interval: epoch"),
    ("{type: CosineAnnealingLR, T_max: 10}", "so that the rate rises again in the last 10; without T_max it lasts as long as the job"),
    ("{type: CosineAnnealingLR, T_max: 2, interval: epoch}", None),
    ("{type: CosineAnnealingLR, T_max: 19}", None),
    ("CosineAnnealingLR", None),
    ("{type: CosineWithWarmup, total_steps: 10}", "total_steps of CosineWithWarmup is 10, but the job has 20 steps, so that the rate rises again"),
    ("{type: LinearWithWarmup, total_steps: 10}", "so that the rate is 0 and nothing is learnt in the last 10"),
    ("{type: WarmupStableDecay, num_stable_steps: 5, num_decay_steps: 5}",
     "the sum of warmup_steps, num_stable_steps and num_decay_steps of WarmupStableDecay is 10, but the job has 20 steps, so that the rate is 0"),
    ("{type: WarmupStableDecay, num_decay_steps: 5}", None),
    ("{type: SequentialLR, milestones: [10], schedulers: [ConstantLR, {type: CosineAnnealingLR, T_max: 5}]}",
     "scheduler.schedulers[1]: T_max of CosineAnnealingLR is 5, but its stretch has 10 steps, so that the rate rises again in the last 5; "
     "without T_max it lasts as long as its stretch"),
    ("{type: MultiStepLR, milestones: [5, 20, 30]}",
     "scheduler: MultiStepLR has milestones at 20 and 30, but the job has 20 steps, so that the rate does not change there"),
    ("{type: MultiStepLR, milestones: [5, 20], interval: epoch}", "but the job has 2 epochs, so that the rate does not change there; if steps are meant, write interval: step"),
    ("{type: MultiStepLR, milestones: [5, 19]}", None),
    ("{type: StepLR, step_size: 1}",
     "scheduler: the rate of StepLR is less than a hundred-thousandth of its highest in the last 14 of the job's 20 steps, so that hardly anything is learnt there; "
     "if epochs are meant, write interval: epoch"),
    ("{type: StepLR, step_size: 5}", None),
    ("{type: SequentialLR, milestones: [10], schedulers: [LinearLR, PolynomialLR]}",
     "scheduler: the rate of SequentialLR is 0 in the last 5 of the job's 20 steps, so that nothing is learnt there"),
    ("{type: CyclicLR, base_lr: 0.1, max_lr: 0.2}", None),
])
def test_a_schedule_that_ends_before_the_job(tmp_path, scheduler, note):
    write_rows(tmp_path, 0.5)
    said = warnings(tmp_path, f"scheduler={scheduler}")
    assert (note in said) if note else ("scheduler:" not in said), said


@pytest.mark.parametrize("verb", ["validate", "explain"])
def test_what_the_length_makes_of_a_schedule_is_told_before_the_job_starts_too(tmp_path, verb):
    length = ["dataset.train=!replace {type: Digits, split: train}", "loss=CrossEntropyLoss", "model.layers=[Flatten, {type: Linear, out_features: 10}]"]
    said = notes(tmp_path, *length, "scheduler=PolynomialLR", verb=verb)
    assert "note: command line:4:11: scheduler: total_iters of PolynomialLR is 5, but the job has 288 steps" in said
    assert "scheduler:" not in notes(tmp_path, *length, "scheduler=CosineAnnealingLR", verb=verb)
    by_epochs = "scheduler={type: MultiStepLR, milestones: [2], interval: epoch}"
    assert "scheduler: MultiStepLR has a milestone at 2, but the job has 2 epochs" in notes(tmp_path, by_epochs)  # whatever the data are
    done = subprocess.run([CALLED, verb, "r.yaml", *length, "scheduler=PolynomialLR", "--quiet"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and done.stderr == ""


def test_json_of_validate_has_the_notes_with_their_places_and_standard_error_has_none(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    words = ["dataset.train=!replace {type: Digits, split: train}", "loss=CrossEntropyLoss", "model.layers=[Flatten, {type: Linear, out_features: 10}]",
             "optimizer.lr=0", "scheduler=PolynomialLR"]
    done = subprocess.run([CALLED, "validate", "r.yaml", *words, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["valid"] and found["problems"] == [] and done.stderr == "", done.stderr
    assert {"file": "command line", "line": 4, "column": 14, "path": "optimizer.lr", "message": "is 0: the weights will not change"} in found["notes"]
    assert [(note["path"], note["line"], note["column"]) for note in found["notes"]] == [("optimizer.lr", 4, 14), ("scheduler", 5, 11)], found["notes"]
    assert found["notes"][1]["message"].startswith("total_iters of PolynomialLR is 5, but the job has 288 steps")


@pytest.mark.parametrize("lr, scheduler, note", [
    ("0", "{type: Piecewise, points: [[0, 1], [9, 0.1]]}", "optimizer.lr: is 0: the weights will not change"),
    ("1e-12", "{type: ExponentialLR, gamma: 0.9}", "optimizer.lr: is 1e-12, which is too small"),
    ("100", "{type: Piecewise, points: [[0, 0.001], [9, 0.0001]]}", None),  # the points are the rates, by a hundred
    ("0", "{type: OneCycleLR, max_lr: 0.1}", None),
])
def test_a_rate_is_judged_only_where_the_schedule_goes_by_it(tmp_path, lr, scheduler, note):
    said = notes(tmp_path, f"optimizer.lr={lr}", f"scheduler={scheduler}")
    assert (note in said) if note else ("optimizer.lr" not in said), said


def test_batches_that_drop_last_leaves_none_of(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    words = ["dataset.train=!replace {type: Digits, split: train}", "loss=CrossEntropyLoss", "model.layers=[Flatten, {type: Linear, out_features: 10}]",
             "dataloader={batch_size: 2000, drop_last: true}"]
    done = subprocess.run([CALLED, "validate", "r.yaml", *words, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 2 and not found["valid"]
    assert [problem["message"] for problem in found["problems"]] == ["with drop_last not one batch is left: 1438 samples, batch_size 2000"]


@pytest.mark.parametrize("overrides, note", [
    (["optimizer={type: SGD, lr: 0.1, param_groups: [{match: weight, lr: 0.2}, {match: '^1', lr: 0.1}, {match: '^1.weight', lr: 0.3}]}"],
     "optimizer.param_groups[2].match: '^1.weight' changes nothing: it matches only parameters that are in param_groups[0], since the first pattern that matches wins; "
     "write this group before that one"),
    (["optimizer={type: SGD, lr: 0.1, param_groups: [{match: weight, lr: 0.2}, {match: bias, lr: 0.1}, {match: '^1', lr: 0.3}]}"],
     "in param_groups[0] and param_groups[1], since the first pattern that matches wins; write this group before those"),
    (["optimizer={type: SGD, lr: 0.1, param_groups: [{match: '^0', lr: 0.2}]}", "model.freeze=['^0']"], "it matches only parameters that are frozen"),
    (["optimizer={type: SGD, lr: 0.1, param_groups: [{match: weight, lr: 0.2}, {match: '^1', lr: 0.1}]}"], None),
])
def test_a_parameter_group_of_nothing(tmp_path, overrides, note):
    said = notes(tmp_path, TWO_LAYERS[0], *overrides)
    assert (note in said) if note else ("changes nothing" not in said), said


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
