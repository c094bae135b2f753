"""What is otherwise when a run is started again: its data, its recipe, its folder, what its files say. Nothing that was trained is
lost, and nothing else is trained instead, without a word."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

from tests.forged_state import forge
from tests.program import CALLED

ROWS = 1000
RECIPE = """\
version: 1
model: {layers: [{type: Linear, out_features: 1}]}
loss: MSELoss
dataset:
  train: {type: CSV, path: train.csv, label: y, task: regression}
  eval: {type: CSV, path: eval.csv, label: y, task: regression}
dataloader: {batch_size: 10, num_workers: 1}
optimizer: {type: SGD, lr: 1e-3}
training: {num_epochs: 2, max_steps: 35}
checkpoint: {every: 5}
logging: {every_steps: 1}
"""
WHOLE = "training.max_steps=200"  # both epochs


def table(rows: int) -> str:
    return "a,b,y\n" + "".join(f"{i % 7},{i % 11},{(i % 7) + 2 * (i % 11)}\n" for i in range(rows))


def run(folder: pathlib.Path, *overrides: str, recipe: str = "recipe.yaml", environment: dict[str, str] | None = None,
        output: str = "o"):
    return subprocess.run([CALLED, recipe, f"output_dir={output}", *overrides], cwd=folder, text=True,
                          capture_output=True, timeout=120, env={**os.environ, **(environment or {})}, check=False)


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Of all files that a run's work lies in."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("log.txt", ".lock")]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A run that was stopped after 35 of 200 steps."""
    folder = tmp_path_factory.mktemp("unfinished")
    (folder / "train.csv").write_text(table(ROWS))
    (folder / "eval.csv").write_text(table(30))
    (folder / "recipe.yaml").write_text(RECIPE)
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "o" / "summary.json").unlink()
    return folder


@pytest.fixture(name="folder")
def copy_of_the_unfinished_run(unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path


def assert_goes_on(folder: pathlib.Path, done, output: str = "o"):
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed at step 35/" in done.stdout, done.stdout + done.stderr
    assert not list(folder.glob("*-2"))
    assert (folder / output / "summary.json").exists()


def assert_stops(folder: pathlib.Path, message: str, *overrides: str, recipe: str = "recipe.yaml"):
    before = contents(folder)
    done = run(folder, WHOLE, *overrides, recipe=recipe)
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in done.stderr, done.stderr
    assert "exception" not in done.stderr and "stoi" not in done.stderr, done.stderr
    after = contents(folder)
    del before["o/recipe.yaml"], after["o/recipe.yaml"]  # says how long the run is to be
    assert after == before
    assert not list(folder.glob("*-2"))


def state_of(folder: pathlib.Path, output: str = "o") -> dict:
    return json.loads((folder / output / "checkpoints/latest/state.json").read_text())


# --- data ---

@pytest.mark.parametrize("rows", [350, 9, 1001])
def test_data_that_became_fewer_or_more_are_refused(folder, rows):
    (folder / "train.csv").write_text(table(rows))
    assert_stops(folder, f"dataset.train has changed since the checkpoint was made: it had 1000 samples and now has {rows}; put the "
                         "data back as they were, or write checkpoint.allow_changed=[data]")


@pytest.mark.parametrize("rows,steps", [(350, 35 + 35), (9, 35 + 1), (1001, 35 + 66 + 101), (1000, 200)])
def test_allowed_it_goes_on_with_what_there_is(folder, rows, steps):
    """Of an epoch that has become too short nothing is left: the next one comes."""
    (folder / "train.csv").write_text(table(rows))
    done = run(folder, "training.max_steps=null", "checkpoint.allow_changed=[data]")
    assert_goes_on(folder, done)
    assert state_of(folder)["step"] == steps
    assert ("dataset.train has changed" in done.stderr) == (rows != ROWS)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_one_other_value_is_a_change(folder, split):
    path = folder / f"{split}.csv"
    path.write_text(path.read_text().replace("\n5,5,15\n", "\n5,5,16\n", 1))
    assert_stops(folder, f"dataset.{split} has changed since the checkpoint was made: its {ROWS if split == 'train' else 30} samples "
                         "hold other values")


def test_a_copy_of_the_same_data_with_another_time_is_no_change(folder):
    os.rename(folder / "train.csv", folder / "old.csv")
    shutil.copyfile(folder / "old.csv", folder / "train.csv")
    os.utime(folder / "train.csv", (1, 1))
    done = run(folder, WHOLE)
    assert_goes_on(folder, done)
    assert "dataset" not in done.stderr


def test_a_shorter_length_than_what_is_done_is_an_error(folder):
    before = contents(folder / "o")
    done = run(folder, "training.max_steps=20")
    assert done.returncode == 1
    assert "is of step 35, epoch 0, beyond the length that the recipe asks for (training.max_steps: 20)" in done.stderr
    assert {**contents(folder / "o"), "recipe.yaml": ""} == {**before, "recipe.yaml": ""}


# --- the recipe ---

@pytest.mark.parametrize("overrides,note", [
    ([], "training.max_steps was 35 and is 200"),
    (["dataloader.num_workers=2"], "dataloader.num_workers was 1 and is 2"),
    (["logging.every_steps=7"], "logging.every_steps was 1 and is 7"),
    (["checkpoint.keep_last=9"], "checkpoint.keep_last was 2 and is 9"),
    (["optimizer.lr=0.001", "optimizer.momentum=0", "loss={type: MSELoss, reduction: mean}"], "resumes the unfinished run"),
    (["evaluation.every=11"], "evaluation.every differs"),
    (["name=other"], "name differs"),
])
def test_what_changes_no_numbers_goes_on_and_is_noted(folder, overrides, note):
    done = run(folder, WHOLE, *overrides)
    assert_goes_on(folder, done)
    assert note in done.stdout
    again = (folder / "o" / "recipe.yaml").read_text()
    assert "max_steps: 200" in again


def test_a_folder_that_was_moved_and_one_by_its_absolute_path_go_on(folder):
    os.rename(folder / "o", folder / "moved")
    assert_goes_on(folder, run(folder, "training.max_steps=100", output="moved"), "moved")
    (folder / "moved" / "summary.json").unlink()
    done = run(folder, WHOLE, f"dataset.train.path={folder}/train.csv", output=f"{folder}/moved")
    assert done.returncode == 0 and "resumed at step 100/200" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("override,difference", [
    ("optimizer.lr=0.01", "optimizer.lr was 1e-3 and is 0.01"), ("seed=7", "seed was 42 and is 7"),
    ("dataloader.batch_size=20", "dataloader.batch_size was 10 and is 20"), ("optimizer.type=Adam", "optimizer.type differs"),
    ("optimizer.momentum=0.9", "optimizer.momentum was 0 and is 0.9"), ("mixed_precision=bf16", "mixed_precision differs"),
])
def test_what_changes_numbers_is_another_run_and_says_what(folder, override, difference):
    before = contents(folder / "o")
    done = run(folder, override)
    assert done.returncode == 0, done.stderr
    assert f"o holds another run ({difference}" in done.stdout
    assert "this one goes to o-2" in done.stdout
    assert contents(folder / "o") == before


# --- files that cannot be read, or are not what they should be ---

def unreadable(path: pathlib.Path):
    """ELOOP, for whatever the system may say but that there is no such file."""
    path.rename(path.with_name("kept-" + path.name))
    path.symlink_to(path.name)


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimizer.safetensors"])
def test_a_checkpoint_that_cannot_be_read_now_stops_the_run(folder, name):
    newest = folder / "o/checkpoints/step-00000035"
    unreadable(newest / name)
    assert_stops(folder, f"{newest.relative_to(folder)} cannot be used now, though it may be whole: ")
    (newest / name).unlink()
    (newest / ("kept-" + name)).rename(newest / name)
    assert_goes_on(folder, run(folder, WHOLE))


def test_a_recipe_that_cannot_be_read_now_stops_the_run(folder):
    unreadable(folder / "o/recipe.yaml")
    done = run(folder, WHOLE)
    assert done.returncode == 1
    assert "it may be the recipe of this run" in done.stderr, done.stderr
    assert not (folder / "o-2").exists()


@pytest.mark.parametrize("keys,message", [
    ({"format": 2, "versions": {"trainrun": "8.0"}}, "has format 2, written by trainrun 8.0; this is trainrun "),
    ({"random": [{"cpu": "zz"}]}, "the state of the random numbers is not in hexadecimal digits"),
    ({"random": [{"cpu": "abcd"}]}, "does not hold the state of this job: "),
    ({"random": []}, "does not hold the state of this job: "),
    ({"batch": -1}, "state.json: batch is -1, expected a number >= 0"),
    ({"epoch": "many"}, 'state.json: epoch is "many", expected a number >= 0'),
    ({"seconds": None}, "does not hold the state of this job: type must be number"),
    ({"metrics": [1]}, "does not hold the state of this job: "),
    ({"data": {"train": 7}}, "does not hold the state of this job: "),
    ({"global_batch_size": 0}, "state.json: global_batch_size is 0"),
])
def test_a_forged_or_newer_state_is_an_error_in_plain_words(folder, keys, message):
    forge(folder / "o/checkpoints/step-00000035/state.json", **keys)
    assert_stops(folder, message)


def test_a_resume_with_another_libtorch_says_so(folder):
    path = folder / "o/checkpoints/step-00000035/state.json"
    forge(path, versions=json.loads(path.read_text())["versions"] | {"torch": "2.10.0"})
    done = run(folder, WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("the checkpoint was made with LibTorch 2.10.0, this is ") == 1


def test_where_all_checkpoints_are_damaged_nothing_is_begun_in_their_place(folder):
    for path in (folder / "o/checkpoints").glob("step-*/model.safetensors"):
        if not path.is_symlink():
            path.write_bytes(path.read_bytes()[:-1])
    fault = r"all \d+ checkpoints are damaged; the last by name: \S*o/checkpoints/step-\d+/model.safetensors: has \d+ bytes, expected \d+\. Nothing was changed"
    assert_stops(folder, "checkpoints are damaged; the last by name: ")
    for verb in (["eval"], ["predict"], ["export", "--output", "m.safetensors"], ["run", "recipe.yaml", "output_dir=other", "checkpoint.resume=o"]):
        words = verb if verb[0] == "run" else [verb[0], "o", *verb[1:]]
        done = subprocess.run([CALLED, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 1 and re.search(fault, done.stdout + done.stderr), done.stdout + done.stderr


def test_who_reads_a_run_hears_of_a_damaged_checkpoint_that_is_passed_over(folder):
    newest = (folder / "o/checkpoints/latest").resolve()
    (folder / "o/checkpoints/best").unlink(missing_ok=True)
    path = newest / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    said = f"skipped a checkpoint: o/checkpoints/{newest.name}/model.safetensors: has "
    for words in (["eval", "o"], ["run", "recipe.yaml", "output_dir=other", "checkpoint.resume=o"]):
        done = subprocess.run([CALLED, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0 and (done.stdout + done.stderr).count(said) == 1, done.stdout + done.stderr


def test_what_a_user_keeps_beside_the_checkpoints_stays(folder):
    checkpoints = folder / "o/checkpoints"
    own = ["my-copy", "my-epoch-0001", ".keep.tmp-dir", "step-00000035-good"]
    for name in own:
        shutil.copytree(checkpoints / "step-00000035", checkpoints / name)
    (checkpoints / ".step-00000040.tmp-4711").mkdir()  # of a killed save
    (folder / "o/.metrics.jsonl.tmp-4711").write_text("half")
    assert_goes_on(folder, run(folder, WHOLE))
    assert all((checkpoints / name / "state.json").exists() for name in own)
    assert not (checkpoints / ".step-00000040.tmp-4711").exists()
    assert not (folder / "o/.metrics.jsonl.tmp-4711").exists()


@contextlib.contextmanager
def running(folder: pathlib.Path, *overrides: str):
    """A run that waits for whoever reads its lines."""
    process = subprocess.Popen([os.environ["TRAINRUN_BINARY"], "recipe.yaml", "output_dir=o", *overrides], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_folder_that_goes_while_the_run_goes_on_is_made_whole(folder, how):
    with running(folder, "training={num_epochs: 100, max_steps: null}", "evaluation.every=null", "checkpoint.every=100",
                 "logging.every_steps=10") as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("checkpoint step 200/"):
                os.rename(folder / "o", folder / "elsewhere")  # in one instant
                if how == "removed":
                    shutil.rmtree(folder / "elsewhere")
        assert process.wait() == 0, "".join(said)
    assert "o was removed or renamed during the run: it is created again" in "".join(said)
    assert (folder / "o/recipe.yaml").exists() and (folder / "o/summary.json").exists()
    assert state_of(folder)["step"] == 10000
    if how == "removed":
        lines = [json.loads(line) for line in (folder / "o/metrics.jsonl").read_text().splitlines()]
        assert lines[-1]["step"] == 10000


# --- what is written, and where ---

@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_printed_with_a_closed_stream_goes_into_no_file(folder, closed):
    shutil.rmtree(folder / "o")
    command = f'exec "$TRAINRUN_BINARY" recipe.yaml output_dir=o {closed}'
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "o/.lock").read_text().startswith("process ")
    assert "step 35/35" not in (folder / "o/.lock").read_text()
    state = json.loads((folder / "o/checkpoints/latest/state.json").read_text())
    assert state["step"] == 35


SECRET_RECIPE = RECIPE.replace("label: y, task: regression}\n  eval", 'label: y, task: regression, na_values: ["${env:SOME_TEXT}", '
                               '"x${env:MY_PASSWORD}"]}\n  eval').replace("lr: 1e-3", "lr: '${env:LR}'")


def test_secrets_of_the_environment_are_not_written_and_the_recipe_repeats_the_run(folder):
    shutil.rmtree(folder / "o")
    (folder / "recipe.yaml").write_text(SECRET_RECIPE)
    environment = {"SOME_TEXT": "hunter2", "MY_PASSWORD": "1234567", "LR": "0.004"}
    done = run(folder, environment=environment)
    assert done.returncode == 0, done.stderr
    text = (folder / "o/recipe.yaml").read_text()
    assert "${env:SOME_TEXT}" in text and "x${env:MY_PASSWORD}" in text
    assert "0.004" in text, "what changes numbers is put in"
    assert stat.S_IMODE((folder / "o/recipe.yaml").stat().st_mode) == 0o600
    for path in (folder / "o").rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes() and b"x1234567" not in path.read_bytes(), path
    again = run(folder, recipe="o/recipe.yaml", output="again", environment={**environment, "LR": "7"})
    assert again.returncode == 0, again.stderr
    weights = "checkpoints/latest/model.safetensors"
    assert (folder / "again" / weights).read_bytes() == (folder / "o" / weights).read_bytes()
    (folder / "o/summary.json").unlink()
    rotated = run(folder, WHOLE, environment={**environment, "SOME_TEXT": "hunter3", "MY_PASSWORD": "7654321"})
    assert_goes_on(folder, rotated)


@pytest.mark.parametrize("where, is_shown", [("name: '${env:MY_SECRET}'", False), ("name: 'x-${env:SOME_NAME}'", True)])
def test_a_log_that_may_have_secrets_is_for_its_owner_alone(folder, where, is_shown):
    """What the variable's name calls a secret is not shown at all."""
    (folder / "recipe.yaml").write_text(RECIPE + where + "\n")
    done = run(folder, output="secret", environment={"MY_SECRET": "hunter2", "SOME_NAME": "hunter2"})
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((folder / "secret/log.txt").stat().st_mode) == 0o600
    for path in (folder / "secret").rglob("*"):
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            assert b"hunter2" not in path.read_bytes(), path
    assert ("hunter2" in done.stdout) == is_shown, done.stdout
    assert ("hunter2" in (folder / "secret/log.txt").read_text()) == is_shown
    assert is_shown or "${env:MY_SECRET}: " in done.stdout


def test_a_failure_does_not_show_a_secret(folder):
    (folder / "recipe.yaml").write_text(RECIPE.replace("path: train.csv", "path: '${env:MY_PASSWORD}'"))
    done = run(folder, output="failed", environment={"MY_PASSWORD": "hunter2.csv"})
    assert done.returncode != 0
    assert "${env:MY_PASSWORD}" in done.stderr and "hunter2" not in done.stdout + done.stderr


def test_a_recipe_without_secrets_can_be_read_by_all(folder):
    assert stat.S_IMODE((folder / "o/recipe.yaml").stat().st_mode) & 0o044
    assert stat.S_IMODE((folder / "o/log.txt").stat().st_mode) & 0o044


@pytest.mark.parametrize("text", ["root:x:0:0:hunter2\nadmin:x:1:1:hunter2\n", "hunter2", "[hunter2, hunter2]", "a: {hunter2", "\x00hunter2"])
def test_a_base_that_is_not_a_recipe_is_not_shown(folder, text):
    (folder / "passwords").write_text(text)
    (folder / "recipe.yaml").write_text("base: passwords\n" + RECIPE)
    done = subprocess.run([CALLED, "validate", "recipe.yaml"], cwd=folder, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 2
    assert "hunter2" not in done.stdout + done.stderr
    assert done.stderr == "recipe.yaml:1:7: base: passwords is not a recipe: it does not hold a mapping (key: value) [T0207]\n"


@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "/proc/self/environ"])
@pytest.mark.parametrize("where", ["recipe", "base"])
def test_what_is_not_a_file_is_refused_at_once(folder, what, where):
    if what == "pipe":
        os.mkfifo(folder / "pipe")
    (folder / "recipe.yaml").write_text(f"base: {what}\n" + RECIPE)
    done = subprocess.run([CALLED, "validate", what if where == "recipe" else "recipe.yaml"], cwd=folder,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "expected a file, found " in done.stderr


@pytest.mark.parametrize("override", ["training.num_epochs=9223372036854775807", "dataloader.batch_size=9223372036854775807",
                                      "training.gradient_accumulation_steps=9223372036854775807", "num_processes=9223372036854775807",
                                      "distributed.timeout=9223372036854775807"])
def test_numbers_that_nothing_can_be_counted_with_are_refused(folder, override):
    done = run(folder, override)
    assert done.returncode == 2
    assert f"{override.split('=', maxsplit=1)[0]}: must be " in done.stderr
    assert done.stderr.rstrip().endswith("9223372036854775807 [T0104]")  # not as a float64 rounds it
    assert "-" not in done.stdout


def test_the_largest_numbers_that_are_taken_do_not_turn_negative(folder):
    done = run(folder, "training={num_epochs: 1000000000, max_steps: 3, gradient_accumulation_steps: 1000000}", "seed=1",
               "dataloader.batch_size=1000000000")
    assert done.returncode == 0, done.stderr
    explained = subprocess.run([CALLED, "explain", "recipe.yaml", "num_processes=1000000",
                                "distributed_type=MULTI_CPU", "training.gradient_accumulation_steps=1000000",
                                "dataloader.batch_size=1000000000"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert explained.returncode == 0, explained.stderr
    assert "effective batch" in explained.stdout and " -" not in explained.stdout.split("effective batch")[1].split("\n")[0]


def test_a_start_that_is_refused_changes_nothing(unfinished, tmp_path):
    """recipe.yaml least of all: the next command would train what it says."""
    folder = tmp_path / "copy"
    shutil.copytree(unfinished, folder, symlinks=True)
    before = contents(folder)
    refused = run(folder, "training.max_steps=20")
    assert refused.returncode != 0 and "nothing is left to train" in refused.stdout + refused.stderr
    assert contents(folder) == before
    assert run(folder, "training.max_steps=40").returncode == 0
    assert "max_steps: 40" in (folder / "o" / "recipe.yaml").read_text()
