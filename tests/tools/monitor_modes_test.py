"""Which way a watched figure is better follows from its metric, for keep_best, plateau schedulers and EarlyStopping."""

import json
import subprocess

import pytest

from tests.program import CALLED

RECIPE = "tests/recipes/digits_small.yaml"
DATA = ["dataset.eval={type: Digits, split: test}", "metrics=[Accuracy, Perplexity, ConfusionMatrix]"]


def trainrun(*arguments, status=0):
    done = subprocess.run([CALLED, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_best_is_the_best_and_training_goes_on_while_it_gets_better(tmp_path):
    trainrun("--quiet", RECIPE, f"output_dir={tmp_path}/run", *DATA, "training={num_epochs: 5}", "optimizer={type: SGD, lr: 0.05}",
             "scheduler={type: ReduceLROnPlateau, monitor: eval/accuracy, patience: 1}",
             "callbacks=[{type: EarlyStopping, monitor: eval/accuracy, patience: 2}]",
             "checkpoint={every: epoch, keep_last: null, keep_best: {monitor: eval/accuracy}}", "logging.every_steps=1")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    evaluated = [line["eval/accuracy"] for line in lines if line["split"] == "eval"]
    assert len(evaluated) == 5 and evaluated[0] < min(evaluated[3:])  # it does get better
    assert {line["train/lr"] for line in lines if line["split"] == "train"} == {0.05}
    best = (tmp_path / "run/checkpoints/best").resolve().name
    assert best == f"epoch-{evaluated.index(max(evaluated)) + 1:04}"
    assert (tmp_path / "run/recipe.yaml").read_text().count("mode: max") == 3  # so running that file repeats the run


@pytest.mark.parametrize("figure, mode", [("eval/loss", None), ("eval/perplexity", None), ("eval/accuracy", "max")])
def test_a_loss_and_an_error_stay_as_they_were(tmp_path, figure, mode):
    trainrun("--quiet", RECIPE, f"output_dir={tmp_path}/run", *DATA, "training={num_epochs: null, max_steps: 1}",
             f"checkpoint={{every: epoch, keep_best: {{monitor: {figure}}}}}")
    assert ("mode: max" in (tmp_path / "run/recipe.yaml").read_text()) == (mode == "max")


def test_a_mode_that_contradicts_the_metric_is_noted():
    said = trainrun("validate", RECIPE, *DATA, "checkpoint={keep_best: {monitor: eval/accuracy, mode: min}}",
                    "callbacks=[{type: EarlyStopping, monitor: eval/loss, mode: max}]")
    assert "checkpoint.keep_best.mode: is min, but a larger 'eval/accuracy' is better" in said
    assert "callbacks[0].mode: is max, but a smaller 'eval/loss' is better" in said
    assert "is better" not in trainrun("validate", RECIPE, *DATA, "checkpoint={keep_best: {monitor: eval/accuracy, mode: max}}")


@pytest.mark.parametrize("watcher, path", [("checkpoint={keep_best: {monitor: eval/confusion_matrix/0/0}}", "checkpoint.keep_best.monitor"),
                                           ("scheduler={type: ReduceLROnPlateau, monitor: eval/confusion_matrix/0/0}", "scheduler.monitor"),
                                           ("callbacks=[{type: EarlyStopping, monitor: eval/confusion_matrix/0/0}]", "callbacks[0].monitor")])
def test_where_nobody_knows_the_mode_must_be_written(watcher, path):
    said = trainrun("validate", RECIPE, *DATA, watcher, status=2)
    assert f"{path}: whether a smaller or a larger 'eval/confusion_matrix/0/0' is better is not known; write mode: min or mode: max" in said
    trainrun("validate", RECIPE, *DATA, watcher.replace("0/0}", "0/0, mode: max}"))
