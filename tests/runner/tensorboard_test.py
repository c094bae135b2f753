"""What the loggers tensorboard and csv write, read by TensorBoard itself and by Python's csv, has every figure of
metrics.jsonl."""

import csv
import json
import os
import subprocess

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

from tests.program import CALLED

FIELDS = ("step", "epoch", "time", "split")
TWO_GROUPS = "optimizer={type: SGD, lr: 0.1, param_groups: [{match: bias, lr: 0.01}]}"


def train(folder, *arguments, status=0, environment=None):
    done = subprocess.run(
        [CALLED, "tests/recipes/digits_small.yaml", f"output_dir={folder}", "training={num_epochs: 2}",
         "logging={every_steps: 10, report_to: [jsonl, csv, tensorboard]}", TWO_GROUPS, "training.max_grad_norm=1", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **(environment or {})})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr


def jsonl_of(folder):
    """{(tag, step): figure}; null is NaN."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figures = {}
    for line in lines:
        for name in line.keys() - FIELDS:
            assert (name, line["step"]) not in figures
            figures[name, line["step"]] = float("nan") if line[name] is None else line[name]
    return figures


def tensorboard_of(folder):
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    scalars = {}
    for tag in accumulator.Tags()["scalars"]:
        for event in accumulator.Scalars(tag):
            assert (tag, event.step) not in scalars
            scalars[tag, event.step] = event.value
    return accumulator, scalars


def assert_same(folder):
    expected = jsonl_of(folder)
    _, scalars = tensorboard_of(folder)
    assert scalars.keys() == expected.keys()
    for key, value in expected.items():
        assert np.float32(value).tobytes() == np.float32(scalars[key]).tobytes(), key
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    of_csv = {}
    for row in rows:
        for name in row.keys() - FIELDS:
            if row[name] != "":
                of_csv[name, int(row["step"])] = float(row[name])
    assert of_csv == expected
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [[row[name] for name in FIELDS] for row in rows] == [[str(line[name]).removesuffix(".0") for name in FIELDS] for line in lines]


@pytest.fixture(scope="module", name="run")
def run_of_two_epochs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorboard") / "run"
    train(folder)
    return folder


def test_tensorboard_and_csv_have_every_figure(run):
    assert_same(run)
    names = {name for name, _ in jsonl_of(run)}
    assert {"train/loss", "train/lr", "train/lr/0", "train/lr/1", "train/grad_norm", "eval/loss", "eval/accuracy"} <= names


def test_tensorboard_has_the_recipe_as_a_text(run):
    accumulator, _ = tensorboard_of(run)
    assert accumulator.SummaryMetadata("recipe/text_summary").plugin_data.plugin_name == "text"
    (event,) = accumulator.Tensors("recipe/text_summary")
    (text,) = tensor_util.make_ndarray(event.tensor_proto)
    assert text.decode() == "```yaml\n" + (run / "recipe.yaml").read_text() + "```\n"


def test_the_loader_that_tensorboard_shows_files_with_reads_them_to_the_end(run):
    """It checks every checksum, and turns scalars into tensors of its own plugin for them."""
    (path,) = (run / "tensorboard").iterdir()
    events = list(EventFileLoader(str(path)).Load())
    assert events[0].file_version == "brain.Event:2"
    values = [value for event in events for value in event.summary.value]
    kinds = {value.metadata.plugin_data.plugin_name for value in values}
    assert kinds == {"scalars", "text"}
    assert len(values) == len(jsonl_of(run)) + 1


def test_a_run_that_was_killed_and_goes_on_has_each_figure_once(tmp_path):
    """Saved at step 40, killed once step 50 has come to TensorBoard's thread."""
    folder = tmp_path / "run"
    job = subprocess.Popen(
        [os.environ["TRAINRUN_BINARY"], "tests/recipes/digits_small.yaml", f"output_dir={folder}", "training={num_epochs: 50}",
         "logging={every_steps: 10, report_to: [console, jsonl, csv, tensorboard]}", "checkpoint.every=40", TWO_GROUPS,
         "training.max_grad_norm=1"], stdout=subprocess.PIPE, text=True)
    for line in job.stdout:
        if line.startswith("step 50/"):
            break
    while ("train/loss", 50) not in tensorboard_of(folder)[1]:
        assert job.poll() is None, "it ended before"
    job.kill()
    job.wait()
    before = jsonl_of(folder)
    last = max(step for _, step in before)
    with open(folder / "metrics.csv", "a") as file:
        file.write("60,1,0.1,tr")  # as if it had been killed in the midst of it
    train(folder, "training={num_epochs: 50, max_grad_norm: 1}", "checkpoint.every=40", f"training.max_steps={last + 30}")
    after = jsonl_of(folder)
    assert {step for _, step in after} >= {10, 40, 50, last, last + 30}
    assert len(list((folder / "tensorboard").iterdir())) == 2
    assert_same(folder)


def test_secrets_of_the_environment_do_not_reach_tensorboard(tmp_path):
    train(tmp_path / "run", "name=${env:SERVICE_TOKEN}", environment={"SERVICE_TOKEN": "hunter2"})
    content = b"".join(path.read_bytes() for path in (tmp_path / "run/tensorboard").iterdir())
    assert b"hunter2" not in content
    assert b"${env:SERVICE_TOKEN}" in content


def test_a_folder_of_event_files_of_one_s_own_choice(tmp_path):
    train(tmp_path / "run", f"logging.report_to=[jsonl, {{type: tensorboard, log_dir: {tmp_path / 'events'}}}]")
    assert [path.name[:20] for path in (tmp_path / "events").iterdir()] == ["events.out.tfevents."]
    assert not (tmp_path / "run/tensorboard").exists()


def test_a_folder_that_cannot_be_made_leaves_tensorboard_out_and_the_job_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    said = train(tmp_path / "run", f"logging.report_to=[jsonl, {{type: tensorboard, log_dir: {tmp_path / 'file/events'}}}]")
    assert said.count("tensorboard cannot write; until it can, its lines are dropped and counted, and training continues: ") == 1
    assert jsonl_of(tmp_path / "run")
