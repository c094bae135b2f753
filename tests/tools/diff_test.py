"""`trainrun diff`: what differs between two recipes, runs or checkpoints, and whether it breaks a resume."""

import json
import pathlib
import random
import re
import shutil
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = (ROOT / "tests/recipes/digits_small.yaml").read_text()


def called(folder, *arguments):
    return subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def diff(folder, a, b):
    done = called(folder, "diff", a, b, "--json")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["equal"] == (done.returncode == 0)
    return found


def changes(found, effect):
    return {change["path"]: (change["before"], change["now"]) for change in found["changes"] if change["effect"] == effect}


@pytest.fixture(name="recipes")
def two_recipes(tmp_path):
    def write(**replaced):
        (tmp_path / "a.yaml").write_text(RECIPE)
        text = RECIPE
        for old, new in replaced.values():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "b.yaml").write_text(text)
        return diff(tmp_path, "a.yaml", "b.yaml")

    return write


def test_one_recipe_in_two_spellings_is_equal(recipes):
    found = recipes(lr=("{type: AdamW, lr: 3e-3}", "{weight_decay: 0.01, lr: 0.003, type: AdamW}"), layer=("    - ReLU\n", "    - {type: ReLU}\n"))
    assert found["equal"] and found["changes"] == [] and not found["breaks_resume"]


def test_changes_are_grouped_by_what_they_mean(recipes):
    found = recipes(workers=("num_workers: 1", "num_workers: 3"), lr=("lr: 3e-3", "lr: 1e-3"), length=("num_epochs: 4", "num_epochs: 9"))
    assert changes(found, "none") == {"dataloader.num_workers": ("1", "3")}
    assert changes(found, "length") == {"training.num_epochs": ("4", "9")}
    assert changes(found, "numbers") == {"optimizer.lr": ("3e-3", "1e-3")}
    assert found["breaks_resume"] and sum("why" in change for change in found["changes"]) == 1
    assert next(change["why"] for change in found["changes"] if change["path"] == "optimizer.lr") == "the steps so far were those of another optimizer"


def test_lists_that_differ_by_an_empty_text_look_different(tmp_path):
    for name, values in (("a", "['', k.A.]"), ("b", "[k.A.]")):
        (tmp_path / f"{name}.yaml").write_text(f"""
version: 1
model: {{layers: [{{type: Linear, out_features: 1}}]}}
loss: MSELoss
dataset: {{train: {{type: CSV, path: t.csv, label: y, task: regression, na_values: {values}}}}}
optimizer: SGD
training: {{num_epochs: 1}}
""")
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    assert "['', k.A.] → [k.A.]" in called(tmp_path, "diff", "a.yaml", "b.yaml").stdout


def test_what_changes_no_number_does_not_break_a_resume(recipes):
    found = recipes(workers=("num_workers: 1", "num_workers: 3"), name=("name: digits_small", "name: other"))
    assert not found["equal"] and not found["breaks_resume"]


def test_a_layer_that_came_does_not_change_those_after_it(recipes):
    found = recipes(layer=("    - Flatten\n", "    - Flatten\n    - {type: Dropout, p: 0.3}\n"))
    [change] = found["changes"]
    assert (change["path"], change["kind"], change["now"]) == ("model.layers[4]", "added", "{type: Dropout, p: 0.3}")
    assert change["effect"] == "numbers"


def test_a_layer_that_went_is_named_by_its_old_place(recipes):
    found = recipes(layer=("    - {type: Dropout2d, p: 0.1}\n", ""))
    [change] = found["changes"]
    assert (change["path"], change["kind"], change["before"]) == ("model.layers[2]", "removed", "{type: Dropout2d, p: 0.1}")


def test_layers_are_found_again_by_their_names(recipes, tmp_path):
    named = RECIPE.replace("{type: Linear, out_features: 32}", "{type: Linear, out_features: 32, name: hidden}")
    (tmp_path / "a.yaml").write_text(named)
    (tmp_path / "b.yaml").write_text(named.replace("    - {type: Dropout2d, p: 0.1}\n", "").replace("out_features: 32", "out_features: 48"))
    found = diff(tmp_path, "a.yaml", "b.yaml")
    assert {(change["path"], change["kind"]) for change in found["changes"]} == {("model.layers[2]", "removed"), ("model.layers[3].out_features", "changed")}


def test_a_recipe_that_cannot_be_read_is_an_error_and_no_difference(tmp_path):
    (tmp_path / "a.yaml").write_text(RECIPE)
    (tmp_path / "b.yaml").write_text(RECIPE.replace("out_features: 32", "out_featurs: 32"))
    done = called(tmp_path, "diff", "a.yaml", "b.yaml")
    assert done.returncode == 2 and "did you mean out_features?" in done.stderr and done.stdout == ""
    done = called(tmp_path, "diff", "a.yaml", "c.yaml")
    assert done.returncode == 2 and "c.yaml: there is no recipe, run or checkpoint" in done.stderr
    (tmp_path / "empty").mkdir()
    done = called(tmp_path, "diff", "empty", "a.yaml")
    assert done.returncode == 2 and "neither a recipe" in done.stderr


CHANGES = ["optimizer.lr=0.1", "seed=9", "logging.every_steps=7", "training.num_epochs=9", "dataloader.num_workers=2", "dataloader.batch_size=16",
           "model.layers[1]=GELU", "model.layers[3].start_dim=1", "model.layers[2].p=0.5", "checkpoint.every=5", "evaluation.every=11",
           "checkpoint.keep_best={monitor: eval/loss}", "training.max_grad_norm=1", "callbacks=[{type: EMA, decay: 0.9}]",
           "scheduler={type: ReduceLROnPlateau, monitor: eval/loss}", "metrics=[]", "num_threads=1", "training.max_time=1h"]


def test_it_says_what_a_resume_does(tmp_path):
    """A stopped run is gone on with if and only if diff does not say that the change breaks a resume."""
    draw = random.Random(5)
    base, outcomes = ["training.max_steps=3", "checkpoint.every=2"], set()
    for changed in [[one] for one in CHANGES] + [draw.sample(CHANGES, 2) for _ in range(4)]:
        folder = tmp_path / re.sub(r"\W+", "_", "_".join(changed))[:60]
        folder.mkdir()
        (folder / "a.yaml").write_text(RECIPE)
        first = called(folder, "run", "a.yaml", *base, "output_dir=run")
        assert first.returncode == 0, first.stderr
        shutil.copy(folder / "run/recipe.yaml", folder / "before.yaml")
        (folder / "run/summary.json").unlink()  # as if it had been stopped
        second = called(folder, "run", "a.yaml", *base, "output_dir=run", *changed)
        assert second.returncode == 0, second.stderr
        was_resumed = not (folder / "run-2").exists()
        found = diff(folder, "before.yaml", ("run" if was_resumed else "run-2") + "/recipe.yaml")
        assert found["breaks_resume"] == (not was_resumed), (changed, found["changes"])
        outcomes.add(was_resumed)
    assert outcomes == {True, False}


def test_two_runs_are_compared_with_their_figures_and_machines(tmp_path):
    (tmp_path / "a.yaml").write_text(RECIPE)
    for name, lr in (("a", "1e-3"), ("b", "1e-2")):
        assert called(tmp_path, "run", "a.yaml", f"output_dir={name}", "training.num_epochs=1", f"optimizer.lr={lr}").returncode == 0
    found = diff(tmp_path, "a", "b")
    assert changes(found, "numbers") == {"optimizer.lr": ("1e-3", "1e-2")} and changes(found, "none") == {"output_dir": ("a", "b")}
    figures = {row["name"]: row for row in found["figures"]}
    for name, side in (("a", "a"), ("b", "b")):
        metrics = json.loads((tmp_path / name / "summary.json").read_text())["metrics"]
        assert figures["eval/loss"][side] == f"{metrics['eval/loss']:.6g}"
    environment = {row["name"]: row for row in found["environment"]}
    assert {"torch", "trainrun", "processor", "threads", "kernels"} <= set(environment)
    assert not any(row["differs"] for row in found["environment"])
    text = called(tmp_path, "diff", "a", "b").stdout
    assert "breaks a resume" in text and "optimizer.lr 1e-3 → 1e-2" in re.sub(" +", " ", text)
    assert diff(tmp_path, "a", "a")["equal"]
    checkpoint = next((tmp_path / "b/checkpoints").glob("epoch-*"))
    of_checkpoint = diff(tmp_path, "a", checkpoint)
    assert of_checkpoint["b"]["kind"] == "checkpoint" and of_checkpoint["b"]["step"] == 45


def test_runs_on_other_data_say_so(tmp_path):
    for name, last in (("a", 1), ("b", 2)):
        (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},{i % 2 if i else last}\n" for i in range(12)))
        (tmp_path / "r.yaml").write_text("""\
version: 1
name: t
model: {layers: [{type: Linear, out_features: 1}]}
loss: MSELoss
dataset: {train: {type: CSV, path: t.csv, label: y, task: regression}}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 1e-3}
training: {num_epochs: 1}
""")
        done = called(tmp_path, "run", "r.yaml", f"output_dir={name}")
        assert done.returncode == 0, done.stderr
    found = diff(tmp_path, "a", "b")
    assert found["data"] == ["dataset.train: 12 samples hold other values"] and found["breaks_resume"]


def test_secrets_of_the_environment_are_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2hunter2")
    (tmp_path / "a.yaml").write_text(RECIPE.replace("name: digits_small", "name: plain"))
    (tmp_path / "b.yaml").write_text(RECIPE.replace("name: digits_small", "name: ${env:MY_TOKEN}"))
    done = called(tmp_path, "diff", "a.yaml", "b.yaml")
    assert done.returncode == 1 and "hunter2" not in done.stdout + done.stderr, done.stdout
