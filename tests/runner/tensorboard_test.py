"""What the loggers tensorboard and csv write, read by TensorBoard itself and by Python's csv, has every figure of
metrics.jsonl."""

import csv
import gzip
import io
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ShownAccumulator
from tensorboard.util import tensor_util

from tests.forged_state import forge
from tests.program import CALLED

FIELDS = ("step", "epoch", "time", "split")
TWO_GROUPS = "optimizer={type: SGD, lr: 0.1, param_groups: [{match: bias, lr: 0.01}]}"


def train(folder, *arguments, status=0, environment=None, output="stderr"):
    done = subprocess.run(
        [CALLED, "tests/recipes/digits_small.yaml", f"output_dir={folder}", "training={num_epochs: 2}",
         "logging={every_steps: 10, report_to: [jsonl, csv, tensorboard]}", TWO_GROUPS, "training.max_grad_norm=1", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **(environment or {})})
    assert done.returncode == status, done.stdout + done.stderr
    return getattr(done, output)


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
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0, "images": 0})
    accumulator.Reload()
    scalars = {}
    for tag in accumulator.Tags()["scalars"]:
        for event in accumulator.Scalars(tag):
            assert (tag, event.step) not in scalars
            scalars[tag, event.step] = event.value
    return accumulator, scalars


def shown_of(folder):
    """As TensorBoard's pages read the folder: restarts hide texts there, too, but the first restart of all hides nothing."""
    accumulator = ShownAccumulator(str(folder / "tensorboard"), size_guidance={"tensors": 0})
    accumulator.Reload()
    return accumulator


def assert_same(folder):
    expected = jsonl_of(folder)
    _, scalars = tensorboard_of(folder)
    assert scalars.keys() == expected.keys()
    shown = shown_of(folder)
    for tag in {name for name, _ in expected}:
        steps = [event.step for event in shown.Tensors(tag)]
        assert sorted(steps) == sorted(step for name, step in expected if name == tag), tag
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
    assert kinds == {"scalars", "text", "graphs"}
    assert len(values) == len(jsonl_of(run)) + 2  # the recipe and the graph


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


def test_what_comes_after_a_checkpoint_of_its_step_is_there_once_too(tmp_path):
    """As if the run had been killed right after the evaluation of epoch 1, whose step was saved before: the evaluation is made again, and the next
    epoch's images are written again; the step's own line and histograms are not. Then killed once more, when the checkpoint had the evaluation."""
    folder = tmp_path / "run"
    report = "logging={every_steps: 5, report_to: [console, jsonl, csv, {type: tensorboard, histograms_every: 45, images: 1}]}"
    train(folder, report)
    for files, is_due in enumerate([True, False], 2):
        (folder / "summary.json").unlink()
        shutil.rmtree(folder / "checkpoints/epoch-0002")
        forge(folder / "checkpoints/epoch-0001/state.json", evaluation_due=is_due)
        assert "resumed at step 45/90" in train(folder, report, output="stdout")
        assert len(list((folder / "tensorboard").iterdir())) == files
        assert_same(folder)
        accumulator, scalars = tensorboard_of(folder)
        assert {("train/loss", 45), ("eval/loss", 45), ("train/loss", 90), ("eval/loss", 90)} <= scalars.keys()
        assert [event.step for event in accumulator.Images("image/0")] == [0, 45]
        assert [event.step for event in accumulator.Histograms("weights/0.weight")] == [45, 90]
        shown = shown_of(folder)
        for tag, steps in {"recipe/text_summary": [0, 45], "image/0": [0, 45], "weights/0.weight": [45, 90]}.items():
            assert [event.step for event in shown.Tensors(tag)] == steps, tag


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


def test_tensorboard_has_histograms_of_weights_and_gradients_and_the_graph(tmp_path):
    """The weights' are those of the checkpoint of that step, counted by numpy in the same buckets."""
    folder = tmp_path / "run"
    train(folder, "logging.report_to=[jsonl, csv, {type: tensorboard, histograms_every: 45}]", "training.num_epochs=1")
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"histograms": 0, "compressedHistograms": 0})
    accumulator.Reload()
    weights = safetensors.numpy.load_file(folder / "checkpoints/latest/model.safetensors")
    tags = accumulator.Tags()["histograms"]
    assert set(tags) == {f"{kind}/{name}" for kind in ("weights", "gradients") for name in weights}
    for name, values in weights.items():
        (event,) = accumulator.Histograms("weights/" + name)
        histogram = event.histogram_value
        values = values.astype(np.float64).ravel()
        assert event.step == 45 and histogram.num == values.size
        assert (histogram.min, histogram.max) == (values.min(), values.max())
        np.testing.assert_allclose([histogram.sum, histogram.sum_squares], [values.sum(), np.square(values).sum()], rtol=1e-9)
        limits = np.array(histogram.bucket_limit)
        counts = np.histogram(values, np.concatenate([[-np.inf], limits]))[0]
        assert counts.tolist() == histogram.bucket
        assert (np.diff(limits) > 0).all()
    nodes = {node.name: node for node in accumulator.Graph().node}
    assert nodes["4"].op == "Linear" and list(nodes["4"].input) == ["3"] and nodes["4"].attr["out_features"].s == b"32"
    assert [dim.size for dim in nodes["4"].attr["_output_shapes"].list.shape[0].dim] == [-1, 32]


def test_tensorboard_has_images_of_the_first_batch_of_each_epoch(tmp_path):
    folder = tmp_path / "run"
    train(folder, "logging.report_to=[jsonl, {type: tensorboard, images: 3}]", "dataloader.shuffle=false")
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"images": 0})
    accumulator.Reload()
    assert accumulator.Tags()["images"] == ["image/0", "image/1", "image/2"]
    with gzip.open("recipes/data/digits.csv.gz", "rt") as file:
        digits = np.array([line.split(",")[:64] for line in file], dtype=float).reshape(-1, 8, 8) / 16 * 255
    rows = []  # of the file, which has those of the test, too
    for i in range(3):
        events = accumulator.Images(f"image/{i}")
        assert [event.step for event in events] == [0, 45]
        pixels = np.array(Image.open(io.BytesIO(events[0].encoded_image_string)))
        assert (events[0].height, events[0].width) == pixels.shape == (8, 8)
        (same,) = np.nonzero((np.abs(digits - pixels) <= 0.51).all((1, 2)))
        assert len(same) == 1
        rows.append(same[0])
    assert rows == sorted(set(rows)) and rows[2] < 10


def test_images_of_a_job_without_pictures_are_said_to_be_none(tmp_path):
    done = subprocess.run([CALLED, "recipes/cars_uncertainty.yaml", f"output_dir={tmp_path / 'run'}", "training={num_epochs: 2}",
                           "logging.report_to=[jsonl, {type: tensorboard, images: 3}]"],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("images: the batches hold no pictures") == 1
