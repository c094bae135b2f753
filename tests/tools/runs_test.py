"""`trainrun runs`: the runs in a folder, by what their folders keep."""

import fcntl
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = str(ROOT / "tests/recipes/digits_small.yaml")


def trained(folder, name, *changes):
    command = [CALLED, "run", RECIPE, f"name={name}", f"output_dir={folder / name}", "training.num_epochs=2", "logging.every_steps=10", *changes]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def runs(folder, *arguments):
    return subprocess.run([CALLED, "runs", str(folder), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def table(folder, *arguments):
    done = runs(folder, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(name="folder", scope="module")
def folder_of_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    best = "checkpoint.keep_best={monitor: eval/accuracy, mode: max}"
    assert trained(folder, "a", "optimizer.lr=1e-3", best).returncode == 0
    assert trained(folder, "b", "optimizer.lr=0.01", best, "training.num_epochs=3").returncode == 0
    assert trained(folder / "deep" if (folder / "deep").mkdir() is None else folder, "c").returncode == 0
    failing = trained(folder, "fails", "optimizer.type=SGD", "optimizer.lr=1e30", "training.max_grad_norm=null")
    assert failing.returncode == 1, failing.stdout
    return folder


def test_the_figures_are_those_of_the_runs_own_files(folder):
    found = {run["name"]: run for run in table(folder)["runs"]}
    assert set(found) == {"a", "b", "c", "fails"}
    for name, path in (("a", folder / "a"), ("b", folder / "b"), ("c", folder / "deep/c")):
        run, lines, summary = found[name], lines_of(path), json.loads((path / "summary.json").read_text())
        assert (run["state"], run["step"], run["seconds"], run["path"]) == ("finished", summary["step"], summary["seconds"], str(path))
        assert run["evaluation"] == summary["metrics"]
        assert run["epoch"] == lines[-1]["epoch"]
        assert run["loss"] == [line for line in lines if line["split"] == "train"][-1]["train/loss"]
        evaluations = [line for line in lines if line["split"] == "eval"]
        best = max(evaluations, key=lambda line: line["eval/accuracy"])
        assert run["best"] == {"name": "eval/accuracy", "value": best["eval/accuracy"], "step": best["step"], "is_last": False}
    assert found["fails"]["state"] == "failed" and "loss is nan at step 2" in found["fails"]["why"]
    assert found["fails"]["step"] == int(re.search(r"error: stopped at step (\d+)/", (folder / "fails/log.txt").read_text())[1])


def test_only_keys_that_differ_are_columns(folder):
    found = table(folder, "--filter", "state=finished")
    keys = {run["name"]: run["keys"] for run in found["runs"]}
    assert set(keys["a"]) == {"optimizer.lr", "training.num_epochs", "checkpoint.keep_best"}
    assert [keys[name]["optimizer.lr"] for name in "abc"] == [1e-3, 0.01, 3e-3]
    assert [keys[name]["training.num_epochs"] for name in "abc"] == [2, 3, 2]
    assert keys["c"]["checkpoint.keep_best"] == "null"
    text = runs(folder).stdout
    assert "optimizer.lr" in text.splitlines()[0] and "weight_decay" not in text


def unlike_runs(folder):
    """Folders of six runs whose recipes differ in forty keys: one in all of them, one in most, the others in one run."""
    for number in range(6):
        layers = "".join(f"    - {{type: Linear, out_features: {8 + (number == 0) * (layer + 1)}}}\n" for layer in range(36))
        (folder / f"r{number}").mkdir()
        (folder / f"r{number}/log.txt").write_text("")
        (folder / f"r{number}/recipe.yaml").write_text(
            f"version: 1\nname: r{number}\nmodel:\n  layers:\n{layers}loss: CrossEntropyLoss\n"
            f"dataset: {{train: {{type: Digits, split: train}}}}\ndataloader: {{batch_size: {16 if number < 3 else 32}}}\n"
            f"optimizer: {{type: AdamW, lr: 1e-{number + 1}}}\ntraining: {{num_epochs: 1}}\nlogging: {{every_steps: {number + 1}}}\n")
    return folder


def test_of_many_keys_that_differ_those_are_shown_that_tell_the_most(tmp_path):
    text = runs(unlike_runs(tmp_path)).stdout
    table_lines, said = text.splitlines()[:7], text.splitlines()[7]
    assert max(map(len, table_lines)) <= 120, text
    assert re.search(r" optimizer\.lr  +dataloader\.batch_size  ", table_lines[0]), text
    shown = re.findall(r"[a-z_]+\.[a-z_.\[\]0-9]+", table_lines[0])
    assert said.startswith(f"{39 - len(shown)} more keys differ: model.layers[") and "--columns NAME,… shows those named, --json all" in said
    assert "logging.every_steps" not in shown  # it changes nothing
    keys = table(tmp_path)["runs"][0]["keys"]
    assert len(keys) == 39 and "logging.every_steps" in keys


def test_columns_that_are_asked_for_are_shown_alone(tmp_path):
    wanted = ["optimizer.lr", "model.layers[35].out_features", "state", "optimizer.weight_decay", *(f"model.layers[{layer}].out_features" for layer in range(9))]
    lines = runs(unlike_runs(tmp_path), "--columns", ",".join(wanted)).stdout.splitlines()
    assert lines[0].split() == ["run", *wanted] and lines[1].split()[2:5] == ["44", "stopped", "(killed)"]
    assert [float(line.split()[1]) for line in lines[1:]] == [0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
    assert len(lines) == 7
    done = runs(tmp_path, "--columns", "optimizer.lrr")
    assert done.returncode == 2 and "did you mean optimizer.lr?" in done.stdout + done.stderr
    assert runs(tmp_path, "--columns", "state", "--json").returncode == 2
    assert runs(tmp_path, "--columns", "time,run,state").stdout.splitlines()[0].split() == ["run", "time", "state"]
    for option in (["--columns", "state"], ["--filter", "state=stopped", "--columns", "state"], ["--columns", "state", "--filter", "state=stopped"]):
        done = subprocess.run([CALLED, "runs", *option, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.splitlines()[0].split() == ["run", "state"], done.stderr


def test_the_value_of_a_layer_that_another_takes_the_place_of_is_not_that_of_the_first_run(folder, tmp_path):
    changes = {"a": "{type: Linear, out_features: 32}", "b": "{type: Linear, out_features: 16}", "c": "[Flatten, ReLU]"}
    for name, layer in changes.items():
        shutil.copytree(folder / "a", tmp_path / name)
        recipe = tmp_path / name / "recipe.yaml"
        text = recipe.read_text()
        assert "- {type: Linear, out_features: 32}" in text
        recipe.write_text(text.replace("- {type: Linear, out_features: 32}", f"- {layer}"))
    keys = {pathlib.Path(run["path"]).name: run["keys"] for run in table(tmp_path)["runs"]}
    assert [keys[name]["model.layers[4].out_features"] for name in "abc"] == [32, 16, ""]


def test_a_default_that_is_written_out_is_no_difference(folder, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(folder / "a", tmp_path / name)
    recipe = tmp_path / "b/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("{type: AdamW, lr: 1e-3}", "{type: AdamW, lr: 0.001, weight_decay: 0.01}"))
    assert "weight_decay" in recipe.read_text()
    assert all(run["keys"] == {} for run in table(tmp_path)["runs"])


def test_filters_and_sorting_know_keys_defaults_and_figures(folder):
    def names(*arguments):
        return [run["name"] for run in table(folder, *arguments)["runs"]]

    assert names("--filter", "optimizer.lr>1e-3 and state=finished") == ["b", "c"]
    assert names("--filter", "optimizer.lr>1e-3", "--filter", "training.num_epochs >= 3") == ["b"]
    assert names("--filter", "optimizer.weight_decay=0.01 and state!=failed") == ["a", "b", "c"]  # AdamW's default
    assert names("--filter", "optimizer.type=SGD") == ["fails"]
    assert names("--filter", "state=finished", "--sort", "optimizer.lr") == ["a", "c", "b"]
    assert names("--filter", "state=finished", "--sort", "optimizer.lr", "--descending") == ["b", "c", "a"]
    losses = {run["name"]: run["evaluation"]["eval/loss"] for run in table(folder, "--filter", "state=finished")["runs"]}
    assert names("--filter", "state=finished", "--sort", "eval/loss") == sorted(losses, key=losses.get)
    assert names("--sort", "eval/loss")[-1] == "fails"  # it has none
    left_out = table(folder, "--filter", "eval/loss<100")
    assert left_out["notes"] == ["1 run has no eval/loss and is left out"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--filter", "optimizer.lrr>1"], "did you mean optimizer.lr?"),
    (["--filter", "optimizer.lr"], "is not a condition"),
    (["--filter", ">1"], "is not a condition"),
    (["--filter", "eval/loss<1e"], "eval/loss is a number"),
    (["--filter", "step>100steps"], "but '100steps' is not"),
    (["--sort", "optimiser.lr"], "no run has the key 'optimiser.lr'; did you mean optimizer.lr? There are the keys of recipes"),
])
def test_a_key_that_no_run_has_is_refused(folder, arguments, message):
    done = runs(folder, *arguments)
    assert done.returncode == 2 and message in done.stdout + done.stderr


def test_a_folder_that_is_not_there_is_refused(folder):
    done = runs(folder / "nothing")
    assert done.returncode == 2 and f"there is no folder '{folder / 'nothing'}'; name the folder that holds the runs" in done.stderr
    done = runs(RECIPE)
    assert done.returncode == 2 and f"'{RECIPE}' is not a folder" in done.stderr


def test_no_runs_and_none_for_which_a_filter_holds_are_told_apart(folder, tmp_path):
    assert runs(tmp_path).stdout == f"there are no runs in {tmp_path}\n"
    said = runs(folder, "--filter", "step>1000000").stdout
    assert re.match(rf"the filter holds for none of the \d+ runs in {folder}\n", said), said


def test_a_running_and_a_stopped_run_are_told_apart(tmp_path):
    command = [BINARY, "run", RECIPE, "name=long", f"output_dir={tmp_path / 'long'}", "training.num_epochs=100000", "logging.every_steps=1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            if line.startswith("step 3/"):
                break
        [run] = table(tmp_path)["runs"]
        assert run["state"] == "running" and run["why"] is None and run["step"] >= 3
        running.send_signal(signal.SIGTERM)
        said = running.stdout.read()
    assert running.returncode == 128 + signal.SIGTERM
    [run] = table(tmp_path)["runs"]
    step = int(re.search(r"stopped by SIGTERM at step (\d+)", said).group(1))
    assert (run["state"], run["why"], run["step"]) == ("stopped", "SIGTERM", step)
    assert f"stopped at step {step} (SIGTERM)" in runs(tmp_path).stdout


def test_a_killed_run_is_stopped_at_its_last_line(tmp_path):
    command = [BINARY, "run", RECIPE, "name=long", f"output_dir={tmp_path / 'long'}", "training.num_epochs=100000", "logging.every_steps=1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            if line.startswith("step 3/"):
                break
        running.kill()
    [run] = table(tmp_path)["runs"]
    assert (run["state"], run["why"], run["step"]) == ("stopped", "killed", lines_of(tmp_path / "long")[-1]["step"])


def test_a_run_that_failed_after_its_last_checkpoint_came_as_far_as_it_says(folder, tmp_path):
    shutil.copytree(folder / "a", tmp_path / "a")
    (tmp_path / "a/summary.json").unlink()
    metrics = lines_of(tmp_path / "a")
    (tmp_path / "a/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics if line["step"] <= 50))
    shutil.rmtree(tmp_path / "a/checkpoints")
    (tmp_path / "a/checkpoints").mkdir()
    start = "2026-11-26 01:18:24.794 [rank 0] "
    log = tmp_path / "a/log.txt"
    log.write_text(f"{start}90 steps in 2 epochs, effective batch 32, device cpu, output in a\n{start}step 50/90 loss 1.0\n{start}error: the loss is nan at step 58\n{start}error: stopped at step 57/90 in 1.0 s\n")
    [run] = table(tmp_path)["runs"]
    assert (run["state"], run["why"], run["step"]) == ("failed", "the loss is nan at step 58", 57)
    assert "failed at step 57: the loss is nan" in runs(tmp_path).stdout
    with log.open("a") as again:
        again.write(f"{start}90 steps in 2 epochs, effective batch 32, device cpu, output in a\n{start}resumed at step 40/90\n{start}step 52/90 loss 1.0\n")
    [run] = table(tmp_path)["runs"]
    assert (run["state"], run["why"], run["step"]) == ("stopped", "killed", 52)


def test_a_run_that_logs_on_the_console_alone_came_as_far_as_its_log_says(tmp_path):
    done = trained(tmp_path, "quiet", "logging.report_to=[console]", "logging.every_steps=1", "checkpoint.every=null", "checkpoint.keep_best=null")
    assert done.returncode == 0, done.stderr
    (tmp_path / "quiet/summary.json").unlink()
    shutil.rmtree(tmp_path / "quiet/checkpoints", ignore_errors=True)
    assert table(tmp_path)["runs"][0]["step"] == 90


def test_a_run_without_metrics_is_known_by_its_checkpoint(tmp_path):
    assert trained(tmp_path, "quiet", "logging.report_to=[console]", "checkpoint.keep_best={monitor: eval/loss}").returncode == 0
    (tmp_path / "quiet/summary.json").unlink()
    [run] = table(tmp_path)["runs"]
    assert run["step"] == 90 and run["best"]["name"] == "eval/loss" and not run["best"]["is_last"]


def test_folders_of_other_things_and_damaged_runs_are_counted(folder, tmp_path):
    shutil.copytree(folder / "a", tmp_path / "good")
    shutil.copytree(folder / "a", tmp_path / "bad")
    (tmp_path / "bad/recipe.yaml").write_text("a: [1, 2\n")
    shutil.copytree(folder / "a", tmp_path / "worse")
    (tmp_path / "worse/summary.json").write_text('{"step": ')
    (tmp_path / "photos/cats").mkdir(parents=True)
    (tmp_path / "photos/recipe.yaml").write_text("version: 1\n")  # a recipe alone is no run
    shutil.copytree(folder / "a", tmp_path / "cut")
    metrics = (tmp_path / "cut/metrics.jsonl").read_text()
    (tmp_path / "cut/metrics.jsonl").write_text("nonsense\n" + metrics + '{"step": 91, "epo')
    os.mkfifo(tmp_path / "good/pipe")
    found = table(tmp_path)
    assert [pathlib.Path(run["path"]).name for run in found["runs"]] == ["cut", "good"]
    assert len(found["damaged"]) == 2 and "bad/recipe.yaml:" in found["damaged"][0] and "worse/summary.json" in found["damaged"][1]
    assert found["foreign"] == [str(tmp_path / "photos")]
    assert found["notes"] == [f"{tmp_path / 'cut'}/metrics.jsonl: 1 line cannot be read, and is left out"]
    text = runs(tmp_path).stdout
    assert "2 runs are damaged: " in text and "1 folder holds no run: " in text and "1 line cannot be read" in text


def test_pipes_in_place_of_a_runs_files_do_not_hang_it(folder, tmp_path):
    shutil.copytree(folder / "a", tmp_path / "odd")
    for name in (".lock", "log.txt", "metrics.jsonl"):
        (tmp_path / "odd" / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / "odd" / name)
    assert [run["name"] for run in table(tmp_path)["runs"]] == ["a"]


def test_a_folder_of_folds_is_shown_with_its_folds(tmp_path):
    done = trained(tmp_path, "folds", "dataset.eval=null", "dataset.fold={folds: 2}")
    assert done.returncode == 0, done.stderr
    found = {pathlib.Path(run["path"]).name: run for run in table(tmp_path)["runs"]}
    assert set(found) == {"folds", "fold-0", "fold-1"} and found["folds"]["folds"] == 2
    mean = sum(found[f"fold-{i}"]["evaluation"]["eval/loss"] for i in range(2)) / 2
    assert math.isclose(found["folds"]["evaluation"]["eval/loss"], mean)


def test_names_with_control_characters_do_not_reach_the_terminal(folder, tmp_path):
    shutil.copytree(folder / "a", tmp_path / "x\x1b[31mred")
    text = runs(tmp_path).stdout
    assert "\x1b" not in text and "x?[31mred" in text


def test_it_looks_without_taking_the_lock(folder, tmp_path):
    """A run that begins at the same moment must find its folder free."""
    shutil.copytree(folder / "a", tmp_path / "a")
    command = ["strace", "-f", "--seccomp-bpf", "-e", "trace=flock", "-o", str(tmp_path / "calls"), BINARY, "runs", str(tmp_path)]
    traced = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    if traced.returncode != 0:
        pytest.skip("strace cannot trace here")
    with open("/proc/locks", encoding="utf-8") as locks:
        assert locks.read() is not None
    assert "flock(" not in (tmp_path / "calls").read_text()
    with open(tmp_path / "a/.lock", "r+", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (tmp_path / "a/summary.json").unlink()
        held_now = table(tmp_path)["runs"][0]["state"]
    assert held_now == "running"
