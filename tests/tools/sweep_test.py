"""`trainrun sweep`: trials with other values, each a run of its own; killed and resumed; steps that are trained once."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest
import safetensors.numpy

from tests.forged_state import forge
from tests.program import BINARY, CALLED
from tests.tools.report_pages import Page

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = str(ROOT / "tests/recipes/digits_small.yaml")
SHORT = ["training.num_epochs=2", "logging.every_steps=10"]
EPOCH = 45  # steps
WSD = ["scheduler={type: WarmupStableDecay, warmup_steps: 5, num_decay_steps: 10}", "training.num_epochs=null"]


def command(folder, *arguments, program=BINARY):
    return [program, "sweep", RECIPE, "--output", str(folder), *arguments]


def sweep(folder, *arguments, code=0):
    done = subprocess.run(command(folder, *arguments, program=CALLED), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def table(folder):
    done = subprocess.run([CALLED, "sweep", str(folder), "--json"], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def lasting(found):
    """What of a table does not depend on how long anything took."""
    trials = [{key: value for key, value in trial.items() if key not in ("seconds", "folder")} for trial in found["trials"]]
    return {**{key: found[key] for key in ("best", "steps_trained", "steps_shared", "importance", "metric")}, "trials": trials}


def weights(run):
    return safetensors.numpy.load_file(run / "checkpoints/latest/model.safetensors")


def steps_trained_in(run):
    """Of the run's own processes, by the log: each says where it begins and what it came to."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["split"] == "train"]


def assert_same_weights(run, other):
    own, others = weights(run), weights(other)
    assert own.keys() == others.keys()
    for name, tensor in own.items():
        assert tensor.tobytes() == others[name].tobytes(), name


def test_a_grid_is_trained_and_its_table_says_what_the_runs_do(tmp_path):
    text = sweep(tmp_path / "s", *SHORT, "optimizer.lr=[1e-3,1e-2]", "seed=1..2", "--jobs", "2")
    found = table(tmp_path / "s")
    assert [trial["values"] for trial in found["trials"]] == [
        {"optimizer.lr": "1e-3", "seed": "1"}, {"optimizer.lr": "1e-3", "seed": "2"},
        {"optimizer.lr": "1e-2", "seed": "1"}, {"optimizer.lr": "1e-2", "seed": "2"}]  # fmt: skip
    assert (found["metric"], found["mode"]) == ("eval/accuracy", "max")
    for trial in found["trials"]:
        summary = json.loads((pathlib.Path(trial["folder"]) / "summary.json").read_text())
        assert (trial["state"], trial["figure"], trial["step"]) == ("finished", summary["metrics"]["eval/accuracy"], 2 * EPOCH)
    best = max(found["trials"], key=lambda trial: trial["figure"])
    assert found["best"]["trial"] == best["trial"]
    assert f"the best, trained again: {found['best']['command']}" in text
    again = subprocess.run([CALLED, *found["best"]["command"].split()[1:], f"output_dir={tmp_path / 'again'}"], cwd=ROOT, capture_output=True, check=True)
    assert again.returncode == 0
    assert_same_weights(pathlib.Path(best["folder"]), tmp_path / "again")
    assert (tmp_path / "s/sweep.html").read_text().count("<path") == 4


def test_finished_trials_are_found_again_when_the_space_grows(tmp_path):
    arguments = ["training.num_epochs=1"]
    sweep(tmp_path, *arguments, "optimizer.lr=[1e-3,1e-2]")
    before = table(tmp_path)
    changed = {trial["folder"]: os.stat(pathlib.Path(trial["folder"]) / "summary.json").st_mtime_ns for trial in before["trials"]}
    sweep(tmp_path, *arguments, "optimizer.lr=[3e-3,1e-2,1e-3]")
    after = table(tmp_path)
    assert [trial["trial"] for trial in after["trials"]] == [2, 1, 0]
    assert {trial["trial"]: trial["figure"] for trial in after["trials"][1:]} == {trial["trial"]: trial["figure"] for trial in before["trials"]}
    for folder, when in changed.items():
        assert os.stat(pathlib.Path(folder) / "summary.json").st_mtime_ns == when
    (tmp_path / "journal.jsonl").unlink()  # lost: their folders tell all
    sweep(tmp_path, *arguments, "optimizer.lr=[1e-3,1e-2]")
    assert [trial["figure"] for trial in table(tmp_path)["trials"]] == [trial["figure"] for trial in before["trials"]]
    for folder, when in changed.items():
        assert os.stat(pathlib.Path(folder) / "summary.json").st_mtime_ns == when


@pytest.mark.parametrize(("arguments", "message"), [
    (["optimizer.lrr=[1,2]"], "command line:1:11: optimizer.lrr: unknown parameter of AdamW"),
    (["optimizer.lr=log(-1,1)"], "command line:1:14: optimizer.lr: the bounds of a logarithmic range are to be above 0"),
    (["seed=1..2", "model.layers[4].out_features=[16,-1]"], "command line:2:30: model.layers[4].out_features: "),
    (["optimizer.lr=1e-3"], "a sweep needs a key with several values"),
    (["optimizer.lr=log(1e-5,1e-3)"], "Write --trials 30"),
    (["optimizer.lr=log(1e-5,1e-3)", "--method", "grid"], "--method grid needs values that can be counted"),
    (["seed=1..2", "--metric", "eval/acuracy"], "did you mean eval/accuracy?"),
    (["seed=1..2", "--scheduler", "asha"], "--scheduler asha needs --min-steps N"),
    (["seed=1..2", "--min-steps", "4"], "--min-steps is of --scheduler asha"),
    (["seed=1..2", "--scheduler", "asha", "--min-steps", "10", "evaluation.every=20"], "write evaluation.every=10"),
    (["seed=1..2", "evaluation.every=null"], "there are no evaluations to compare trials by"),
])  # fmt: skip
def test_what_cannot_be_swept_is_told_before_anything_starts(tmp_path, arguments, message):
    done = subprocess.run(command(tmp_path / "s", *arguments, program=CALLED), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2) and message in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "s").exists()


def test_a_trial_that_fails_is_told_and_harms_no_other(tmp_path):
    text = sweep(tmp_path, "training.num_epochs=1", "optimizer.type=SGD", "optimizer.lr=[1e-2,1e30]")
    assert "trial-0001 optimizer.lr=1e30 failed: " in text and "1 finished, 1 failed" in text
    found = table(tmp_path)
    assert [trial["state"] for trial in found["trials"]] == ["finished", "failed"]
    assert "nan" in found["trials"][1]["why"]
    again = sweep(tmp_path, "training.num_epochs=1", "optimizer.type=SGD", "optimizer.lr=[1e-2,1e30]")
    assert "goes on with the sweep" in again and "trial-0001 optimizer.lr=1e30 failed" not in again
    sweep(tmp_path, "training.num_epochs=1", "optimizer.type=SGD", "optimizer.lr=[1e30,1e31]", code=1)  # no trial has a figure


def kill_at_random_moments(arguments, kills, seed, takes):
    """Runs the command, which `takes` so many seconds undisturbed, killing it with all its children `kills` times, until it ends by itself."""
    chance = random.Random(seed)
    killed = 0
    for _ in range(20 * kills):
        with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
            try:
                output, _ = running.communicate(timeout=takes * chance.uniform(0.1, 0.7) if killed < kills else 300)
                assert running.returncode == 0, output.decode()
                return killed
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL)
                killed += 1
    raise AssertionError("the sweep does not end")


KILLS = int(os.environ.get("TRAINRUN_SWEEP_KILLS", "4"))


@pytest.mark.parametrize("kind", ["grid", "tpe", "asha"])
def test_killed_at_random_moments_and_resumed_a_sweep_has_the_same_table(tmp_path, kind):
    arguments = {
        "grid": [*WSD, "scheduler.num_decay_steps=[10,20,30]", "optimizer.lr=[1e-3,1e-2]", "training.max_steps=60", "checkpoint.every=10", "--jobs", "2"],
        "tpe": ["training.num_epochs=1", "optimizer.lr=log(1e-4,1e-1)", "model.layers[4].out_features=16..64", "--trials", "13", "--jobs", "2"],
        "asha": ["training={num_epochs: null, max_steps: 30}", "evaluation.every=10", "checkpoint.every=10", "optimizer.lr=log(1e-5,1e-1)", "--trials", "6",
                 "--method", "random", "--scheduler", "asha", "--min-steps", "10", "--jobs", "1"],
    }[kind]  # fmt: skip
    begin = time.monotonic()
    sweep(tmp_path / "whole", *arguments)
    killed = kill_at_random_moments(command(tmp_path / "killed", *arguments), KILLS, kind, takes=time.monotonic() - begin)
    assert killed > 0
    print(f"{kind}: killed {killed} times")
    assert lasting(table(tmp_path / "killed")) == lasting(table(tmp_path / "whole"))
    assert not list((tmp_path / "killed").glob("trial-*-2"))
    for trial in table(tmp_path / "whole")["trials"]:
        name = pathlib.Path(trial["folder"]).name
        assert_same_weights(tmp_path / "whole" / name, tmp_path / "killed" / name)


def take_back_the_end(folder, trial):
    """Leaves a trial as its last step is saved: evaluated, or not yet, and the journal has not heard of it."""
    run = pathlib.Path(trial["folder"])
    (run / "summary.json").unlink()
    journal = folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if json.loads(line).get("trial") == trial["trial"] and json.loads(line)["event"] == "finished")
    journal.write_text("".join(lines[:last] + lines[last + 1:]))
    return run


@pytest.mark.parametrize("is_evaluated", [True, False])
def test_a_trial_that_was_killed_just_before_its_end_is_brought_there(tmp_path, is_evaluated):
    """Its last checkpoint is of the step that it was to come to; that alone makes it neither finished nor compared."""
    arguments = ["training={num_epochs: null, max_steps: 20}", "evaluation.every=10", "checkpoint.every=10", "optimizer.lr=[1e-3,1e-2]",
                 "--scheduler", "asha", "--min-steps", "10", "--reduction", "2", "--jobs", "1"]  # fmt: skip
    sweep(tmp_path, *arguments)
    before = lasting(table(tmp_path))
    for trial in table(tmp_path)["trials"]:
        if trial["state"] != "finished":
            continue
        run = take_back_the_end(tmp_path, trial)
        if not is_evaluated:
            forge(run / "checkpoints/latest/state.json", evaluation_due=True)
    sweep(tmp_path, *arguments)
    assert lasting(table(tmp_path)) == before
    assert "finished" in [trial["state"] for trial in before["trials"]]


def test_a_signal_stops_the_trials_too_and_the_same_command_resumes(tmp_path):
    arguments = ["training.num_epochs=4", "logging.every_steps=5", "seed=1..3", "--jobs", "2"]
    running = subprocess.Popen(command(tmp_path, *arguments), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "trial-0000/metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM and "the same command resumes" in output, output
    assert "failed" not in output
    text = sweep(tmp_path, *arguments)
    assert "goes on with the sweep" in text
    assert [trial["step"] for trial in table(tmp_path)["trials"]] == [4 * EPOCH] * 3


def test_eight_decay_lengths_cost_one_run_and_eight_tails(tmp_path):
    lengths, total = [5, 10, 15, 20, 25, 30, 35, 40], 60
    arguments = [*WSD, f"training.max_steps={total}", f"scheduler.num_decay_steps={json.dumps(lengths).replace(' ', '')}", "checkpoint.every=25"]
    text = sweep(tmp_path / "shared", *arguments, "--jobs", "2")
    found = table(tmp_path / "shared")
    # The rate of the step that begins the decay is still the whole one: as PyTorch's formula has it.
    origins = {trial["values"]["scheduler.num_decay_steps"]: trial["origin"] for trial in found["trials"]}
    own = {trial["values"]["scheduler.num_decay_steps"]: trial["steps_trained"] for trial in found["trials"]}
    assert found["steps_trained"] + found["steps_shared"] == 8 * total
    # One run of the whole length, and of each other a tail: what comes after its own decay begins, or, of those that
    # decay later, after that of the trial that they share steps with.
    first = found["trials"][0]
    assert first["steps_trained"] == total and first["origin"] is None
    tails = sum(steps for key, steps in own.items() if key != "5")
    assert found["steps_trained"] == total + tails
    for length in lengths[1:]:
        begin = total - length
        assert origins[str(length)]["step"] in (begin, begin + 1), (length, origins)
        assert own[str(length)] == total - origins[str(length)]["step"]
    assert "7 trials begin with the first steps of another one" in text
    # The steps that processes made, as they say it themselves.
    for trial in found["trials"][1:]:
        log = (pathlib.Path(trial["folder"]) / "log.txt").read_text()
        assert f"resumed at step {trial['origin']['step']}/{total}" in log
    alone = tmp_path / "alone"
    sweep(alone, *arguments, "--jobs", "2", "--no-sharing")
    apart = table(alone)
    assert apart["steps_trained"] == 8 * total and apart["steps_shared"] == 0
    for trial, other in zip(found["trials"], apart["trials"], strict=True):
        assert trial["figure"] == other["figure"] and trial["values"] == other["values"]
        run, same = pathlib.Path(trial["folder"]), pathlib.Path(other["folder"])
        assert_same_weights(run, same)
        figures = [[{k: v for k, v in json.loads(line).items() if k in ("step", "train/loss", "train/lr", "eval/loss", "eval/accuracy")}
                    for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (run, same)]  # fmt: skip
        assert figures[0] == figures[1]


@pytest.mark.parametrize(("changes", "shared"), [
    (["training.num_epochs=1..2"], EPOCH - 1),  # without a scheduler, rates are equal: all but the last step of the shorter one
    (["training.num_epochs=1..2", "scheduler=CosineWithWarmup"], 0),  # the whole cosine is another one
    (["training.num_epochs=2", "scheduler={type: StepLR, step_size: 1, interval: epoch}", "scheduler.gamma=[0.5,0.1]"], EPOCH),
    (["training.num_epochs=1", "optimizer.lr=[1e-3,1e-2]"], 0),
    (["training.num_epochs=1", "seed=1..2"], 0),
    (["training.num_epochs=2", "scheduler={type: ReduceLROnPlateau, monitor: eval/loss}", "scheduler.factor=[0.1,0.5]"], 0),
    (["training.num_epochs=1..2", "callbacks=[{type: ProgressiveResizing, initial_scale: 1}]"], 0),
    (["training.num_epochs=1..2", "checkpoint.every=null"], 0),
])  # fmt: skip
def test_steps_are_shared_where_they_are_equal_and_nowhere_else(tmp_path, changes, shared):
    sweep(tmp_path / "s", *changes)
    found = table(tmp_path / "s")
    assert [trial["origin"] and trial["origin"]["step"] for trial in found["trials"]] == [None, shared or None]
    if shared:
        sweep(tmp_path / "alone", *changes, "--no-sharing")
        for trial in found["trials"]:
            name = pathlib.Path(trial["folder"]).name
            assert_same_weights(tmp_path / "s" / name, tmp_path / "alone" / name)


def test_a_trial_that_begins_with_anothers_steps_has_the_records_of_them(tmp_path):
    changes = [*WSD, "training.max_steps=60", "scheduler.num_decay_steps=[5,20]", "logging={every_steps: 10, report_to: [console, jsonl, csv]}"]
    sweep(tmp_path / "s", *changes)
    assert table(tmp_path / "s")["trials"][1]["origin"]["step"] > 30
    for name in ("trial-0000", "trial-0001"):
        steps = [line.split(",")[0] for line in (tmp_path / "s" / name / "metrics.csv").read_text().splitlines()[1:]]
        assert {"10", "20", "30", "40", "50", "60"} <= set(steps), steps


def test_a_trial_that_begins_with_anothers_steps_takes_its_best_checkpoint_and_averages_along(tmp_path):
    changes = [*WSD, "training.max_steps=60", "scheduler.num_decay_steps=[5,20]", "evaluation.every=10", "checkpoint={every: 20, keep_best: {monitor: eval/accuracy}}",
               "callbacks=[{type: EMA, decay: 0.9}]"]  # fmt: skip
    sweep(tmp_path / "s", *changes)
    sweep(tmp_path / "alone", *changes, "--no-sharing")
    assert table(tmp_path / "s")["trials"][1]["origin"]
    for name in ("trial-0000", "trial-0001"):
        states = [json.loads((tmp_path / folder / name / "checkpoints/latest/state.json").read_text()) for folder in ("s", "alone")]
        assert states[0]["best"] == states[1]["best"] and states[0]["metrics"] == states[1]["metrics"]
        assert_same_weights(tmp_path / "s" / name, tmp_path / "alone" / name)
        best = [(tmp_path / folder / name / "checkpoints/best").resolve() for folder in ("s", "alone")]
        assert best[0].name == best[1].name and (best[0] / "model.safetensors").read_bytes() == (best[1] / "model.safetensors").read_bytes()


def test_of_trials_at_a_rung_the_best_go_on_from_their_checkpoints(tmp_path):
    sweep(tmp_path / "s", "training.num_epochs=2", "evaluation.every=10", "checkpoint.every=10", "optimizer.lr=log(1e-6,1e-2)", "--method", "random",
          "--trials", "9", "--scheduler", "asha", "--min-steps", "10", "--jobs", "1")  # fmt: skip
    found = table(tmp_path / "s")
    rungs = {}
    for trial in found["trials"]:
        for rung in trial["rungs"]:
            rungs.setdefault(rung["step"], {})[trial["trial"]] = rung["figure"]
    assert len(rungs[10]) == 9 and len(rungs[30]) >= 3
    best = sorted(rungs[10].values(), reverse=True)[:3]
    assert all(figure in [rungs[10][trial] for trial in rungs[30]] for figure in best)
    finished = [trial for trial in found["trials"] if trial["state"] == "finished"]
    assert finished and all(trial["step"] == 2 * EPOCH for trial in finished)
    for trial in finished:  # in three pieces, the same as in one
        lr = trial["values"]["optimizer.lr"]
        subprocess.run([CALLED, RECIPE, "training.num_epochs=2", "evaluation.every=10", "checkpoint.every=10", f"optimizer.lr={lr}",
                        f"output_dir={tmp_path / 'alone'}"], cwd=ROOT, capture_output=True, check=True, timeout=60)  # fmt: skip
        assert_same_weights(pathlib.Path(trial["folder"]), tmp_path / "alone")
        shutil.rmtree(tmp_path / "alone")
    assert found["steps_trained"] < 9 * 2 * EPOCH / 1.5


def test_a_trial_can_be_stopped_for_good_at_once(tmp_path):
    sweep(tmp_path / "s", "training.num_epochs=1", "evaluation.every=10", "checkpoint.every=10", "optimizer.lr=[1e-2,1e-6,2e-6,3e-6]",
          "--scheduler", "asha-stop", "--min-steps", "10", "--jobs", "1")  # fmt: skip
    assert [trial["state"] for trial in table(tmp_path / "s")["trials"]] == ["finished", "paused", "paused", "paused"]


def test_a_run_stops_after_a_step_and_goes_on(tmp_path):
    run = [CALLED, "run", RECIPE, *SHORT, "evaluation.every=7", f"output_dir={tmp_path / 'a'}"]
    stopped = subprocess.run([*run, "--stop-after", "14"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "stopped by --stop-after at step 14/90" in stopped and "eval step 14/90" in stopped
    again = subprocess.run([*run, "--stop-after", "14"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "stopped by --stop-after at step 14/90" in again
    subprocess.run([*run, "--stop-after", "1000"], cwd=ROOT, capture_output=True, check=True, timeout=60)
    subprocess.run([*run[:-1], f"output_dir={tmp_path / 'b'}"], cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert (tmp_path / "a/summary.json").exists()
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert steps_trained_in(tmp_path / "a") == steps_trained_in(tmp_path / "b")
    refused = subprocess.run([*run, "checkpoint.every=null", "--stop-after", "14"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and "checkpoint.every is null" in refused.stderr


def test_the_page_is_well_formed_and_holds_the_tables_numbers(tmp_path):
    sweep(tmp_path, "training.num_epochs=1", "optimizer.lr=log(1e-4,1e-2)", "loss=[CrossEntropyLoss,MultiMarginLoss]", "--trials", "5", "--method", "random")
    page = Page(tmp_path / "sweep.html")
    found = table(tmp_path)
    rows = page.tables["the trials, in the order in which they were chosen"]
    assert rows[0][:5] == ["trial", "state", "optimizer.lr", "loss", "eval/accuracy"]
    assert [row[2:4] for row in rows[1:]] == [list(trial["values"].values()) for trial in found["trials"]]
    assert [float(row[4]) for row in rows[1:]] == pytest.approx([trial["figure"] for trial in found["trials"]], rel=1e-4)
    assert sum(tag == "path" for tag, _ in page.tags) == 5
    assert {row[0] for row in page.tables["share of the variance that each key alone explains"][1:]} == {"optimizer.lr", "loss"}
    assert any(tag == "svg" and attributes.get("role") == "img" for tag, attributes in page.tags)
