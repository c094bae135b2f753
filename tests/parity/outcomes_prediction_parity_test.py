"""What `trainrun predict` writes for each kind of job: several labels, numbers with their deviation, counts, masks, two outputs, arrays, and
through what wraps the data; against the same in NumPy and PyTorch, from the saved weights."""

import csv
import io
import json
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from tests.program import CALLED


def trainrun(folder, *arguments):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def trained(folder, model, loss, dataset, more=""):
    (folder / "recipe.yaml").write_text(f"""
version: 1
name: job
model: {{layers: {model}}}
loss: {loss}
dataset: {dataset}
dataloader: {{batch_size: 8}}
optimizer: {{type: AdamW, lr: 1e-2}}
training: {{num_epochs: 2}}
output_dir: run
{more}
""")
    trainrun(folder, "--quiet", "recipe.yaml")
    return {name: tensor.double() for name, tensor in safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors").items()}


def pictures(folder, count, seed, size=(5, 4)):
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    paths = [folder / f"{i}.png" for i in range(count)]
    for path in paths:
        Image.fromarray(draw.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    return paths


def pixels_of(paths):
    return torch.stack([torch.tensor(np.asarray(Image.open(path))).permute(2, 0, 1).double() / 255 for path in paths])


def linear(state, inputs, name):
    return inputs @ state[f"{name}.weight"].T + state[f"{name}.bias"]


LABELS = ["rain", "snow, ice", "sun"]


def test_several_labels_of_pictures(tmp_path):
    draw = np.random.default_rng(1)
    paths = pictures(tmp_path / "photos", 20, 1)
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", *LABELS], *([f"photos/{path.name}", *map(int, draw.integers(0, 2, 3))] for path in paths)])
    source = "{type: ImageCSV, path: list.csv, image: image, label: [rain, 'snow, ice', sun]}"
    state = trained(tmp_path, "[Flatten, {type: Linear, out_features: 3}]", "BCEWithLogitsLoss", f"{{train: {source}}}")
    new = pictures(tmp_path / "new", 7, 2)
    expected = linear(state, pixels_of(new).flatten(1), "1").sigmoid()
    found = rows_of(trainrun(tmp_path, "predict", "run", "new", "--threshold", "0.6"))
    assert list(found[0]) == ["file", *LABELS, *(f"p({label})" for label in LABELS)]
    for i, label in enumerate(LABELS):
        assert [float(row[f"p({label})"]) for row in found] == pytest.approx(expected[:, i].tolist(), abs=1e-5)
        assert [row[label] for row in found] == [str(bool(p >= 0.6)).lower() for p in expected[:, i]]
    refused = subprocess.run([CALLED, "predict", "run", "new", "--top-k", "2"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "trained by BCEWithLogitsLoss, does not; leave it out" in refused.stderr
    line = json.loads(trainrun(tmp_path, "predict", "run", "new/3.png", "--format", "jsonl"))
    assert line["labels"] == {label: bool(expected[3, i] >= 0.5) for i, label in enumerate(LABELS)}


def table(path, count, seed, columns=("a", "b", "y")):
    draw = np.random.default_rng(seed)
    values = draw.normal(0, 1, (count, 2)).round(3)
    target = (5000 + 300 * values[:, 0] - 100 * values[:, 1] + draw.normal(0, 20, count)).round(2)
    rows = {"a": values[:, 0], "b": values[:, 1], "y": target, "n": np.clip((target / 1000).round(), 0, None).astype(int)}
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*(rows[name].tolist() for name in columns), strict=True)])
    return torch.tensor(values), target


HEADS = """[{type: Linear, out_features: 4, name: hidden}, {type: Linear, out_features: 1, name: mean, inputs: hidden},
  {type: Linear, out_features: 1, name: raw, inputs: hidden}, {type: Softplus, name: variance, inputs: raw}]"""


def test_a_number_and_its_standard_deviation_in_the_units_of_the_data(tmp_path):
    _, target = table(tmp_path / "train.csv", 60, 1)
    state = trained(tmp_path, HEADS, "{type: GaussianNLLLoss, inputs: [mean, label, variance]}",
                    "{train: {type: CSV, path: train.csv, label: y, task: regression}, transforms: [{type: Standardize, field: label}]}")
    values, _ = table(tmp_path / "new.csv", 9, 2, ("b", "a"))
    hidden = linear(state, values, "hidden")
    mean = linear(state, hidden, "mean")[:, 0] * target.std() + target.mean()
    deviation = torch.nn.functional.softplus(linear(state, hidden, "raw"))[:, 0].sqrt() * target.std()
    found = rows_of(trainrun(tmp_path, "predict", "run", "new.csv"))
    assert list(found[0]) == ["line", "y", "std(y)"]
    assert [float(row["y"]) for row in found] == pytest.approx(mean.tolist(), rel=1e-5)
    assert [float(row["std(y)"]) for row in found] == pytest.approx(deviation.tolist(), rel=1e-4)


def test_quantiles_in_the_units_of_the_data(tmp_path):
    _, target = table(tmp_path / "train.csv", 60, 1)
    state = trained(tmp_path, "[{type: Linear, out_features: 2}]", "{type: QuantileLoss, quantiles: [0.05, 0.5]}",
                    "{train: {type: CSV, path: train.csv, label: y, task: regression}, transforms: [{type: Standardize, field: label}]}")
    values, _ = table(tmp_path / "new.csv", 9, 2, ("b", "a"))
    expected = linear(state, values, "0") * target.std() + target.mean()
    found = rows_of(trainrun(tmp_path, "predict", "run", "new.csv"))
    assert list(found[0]) == ["line", "y q0.05", "y q0.5"]
    for i, name in enumerate(list(found[0])[1:]):
        assert [float(row[name]) for row in found] == pytest.approx(expected[:, i].tolist(), rel=1e-4)


def test_counts_are_predicted_and_not_their_logarithms(tmp_path):
    table(tmp_path / "train.csv", 60, 1, ("a", "b", "n"))
    state = trained(tmp_path, "[{type: Linear, out_features: 1}]", "PoissonNLLLoss", "{train: {type: CSV, path: train.csv, label: n, task: regression}}")
    values, _ = table(tmp_path / "new.csv", 9, 2, ("a", "b"))
    found = rows_of(trainrun(tmp_path, "predict", "run", "new.csv"))
    assert [float(row["n"]) for row in found] == pytest.approx(linear(state, values, "0").exp()[:, 0].tolist(), rel=1e-5)


@pytest.mark.parametrize("wrapped", [
    "{type: CSV, path: train.csv, label: y, task: regression, split: {fractions: [0.5, 0.5], part: train}}",
    "{type: Split, dataset: {type: CSV, path: train.csv, label: y, task: regression}, fractions: [0.5, 0.5], part: test}",
    "{type: Concat, datasets: [{type: CSV, path: train.csv, label: y, task: regression}, {type: CSV, path: turned.csv, label: y, task: regression}]}",
    "{type: Mixture, of: [{dataset: {type: CSV, path: train.csv, label: y, task: regression}, weight: 1}]}",
    "{type: CSV, path: train.csv, label: y, task: regression, subset: 20}",
    "fold",
])
def test_what_wraps_the_data_makes_no_difference(tmp_path, wrapped):
    table(tmp_path / "train.csv", 40, 1)
    table(tmp_path / "turned.csv", 40, 3, ("b", "y", "a"))  # columns go by their names
    source = f"{{train: {wrapped}}}" if wrapped != "fold" else "{train: {type: CSV, path: train.csv, label: y, task: regression}, fold: 2/4}"
    state = trained(tmp_path, "[{type: Linear, out_features: 1}]", "L1Loss", source)
    values, _ = table(tmp_path / "new.csv", 6, 2, ("b", "a", "y"))
    found = rows_of(trainrun(tmp_path, "predict", "run", "new.csv"))
    assert [float(row["y"]) for row in found] == pytest.approx(linear(state, values, "0")[:, 0].tolist(), rel=1e-5, abs=1e-5)


def test_masks_keep_the_palette(tmp_path):
    draw = np.random.default_rng(4)
    palette = [0, 0, 0, 200, 30, 30, 10, 120, 240]
    paths = pictures(tmp_path / "data/images", 8, 1)
    (tmp_path / "data/masks").mkdir()
    for path in paths:
        mask = Image.fromarray(draw.integers(0, 3, (5, 4), dtype=np.uint8), mode="P")
        mask.putpalette(palette)
        mask.save(tmp_path / "data/masks" / path.name)
    state = trained(tmp_path, "[{type: Conv2d, out_channels: 3, kernel_size: 1}]", "CrossEntropyLoss",
                    "{train: {type: SegmentationFolder, root: data, num_classes: 3}}")
    new = pictures(tmp_path / "new/deeper", 5, 2)
    expected = torch.nn.functional.conv2d(pixels_of(new), state["0.weight"], state["0.bias"]).argmax(1)
    found = rows_of(trainrun(tmp_path, "predict", "run", "new", "--masks", "out"))
    assert [row["mask"] for row in found] == [f"out/deeper/{path.name}" for path in new]
    for row, mask in zip(found, expected, strict=True):
        written = Image.open(tmp_path / row["mask"])
        assert written.mode == "P" and written.getpalette()[:9] == palette
        assert np.array_equal(np.asarray(written), mask.numpy())


def test_arrays_and_other_evaluation_data(tmp_path):
    draw = np.random.default_rng(5)
    for name, count in (("train", 30), ("test", 10), ("other", 6)):
        np.savez(tmp_path / f"{name}.npz", x=draw.normal(0, 1, (count, 4)).astype(np.float32), label=draw.normal(0, 1, (count, 2)).astype(np.float32))
    state = trained(tmp_path, "[{type: Linear, out_features: 2}]", "MSELoss", "{train: {type: TensorFile, path: train.npz}, eval: {type: TensorFile, path: test.npz}}")
    expected = linear(state, torch.tensor(np.load(tmp_path / "other.npz")["x"]).double(), "0")
    found = rows_of(trainrun(tmp_path, "predict", "run", "dataset.eval.path=other.npz"))
    assert list(found[0]) == ["sample", "prediction[0]", "prediction[1]"]
    assert [[float(row[f"prediction[{i}]"]) for i in range(2)] for row in found] == [pytest.approx(row, abs=1e-5) for row in expected.tolist()]


def test_two_outputs_with_losses_of_their_own(tmp_path):
    draw = np.random.default_rng(6)
    for name, count in (("train", 30), ("test", 10)):
        np.savez(tmp_path / f"{name}.npz", x=draw.normal(0, 1, (count, 4)).astype(np.float32), kind=draw.integers(0, 3, count),
                 size=draw.normal(0, 1, (count, 1)).astype(np.float32))
    model = "[{type: Linear, out_features: 4, name: hidden}, {type: Linear, out_features: 3, name: kinds, inputs: hidden}, {type: Linear, out_features: 1, name: sizes, inputs: hidden}]"
    state = trained(tmp_path, model, "[{type: CrossEntropyLoss, inputs: [kinds, kind]}, {type: MSELoss, inputs: [sizes, size]}]",
                    "{train: {type: TensorFile, path: train.npz, target: kind}, eval: {type: TensorFile, path: test.npz, target: kind}}")
    hidden = linear(state, torch.tensor(np.load(tmp_path / "test.npz")["x"]).double(), "hidden")
    found = rows_of(trainrun(tmp_path, "predict", "run"))
    assert [int(row["label"]) for row in found] == linear(state, hidden, "kinds").argmax(1).tolist()
    assert [float(row["prediction"]) for row in found] == pytest.approx(linear(state, hidden, "sizes")[:, 0].tolist(), abs=1e-5)


def test_exports_tell_how_the_data_are_read(tmp_path):
    table(tmp_path / "train.csv", 40, 1)
    trained(tmp_path, "[{type: Linear, out_features: 1}]", "L1Loss",
            "{train: {type: CSV, path: train.csv, label: y, task: regression}, transforms: [{type: Standardize, field: label}]}")
    trainrun(tmp_path, "export", "run", "--output", "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        of_weights = json.loads(file.metadata()["trainrun.contract"])
    trainrun(tmp_path, "export", "run", "--format", "torchscript", "--output", "model.pt")
    extra = {"trainrun.contract": ""}
    torch.jit.load(tmp_path / "model.pt", _extra_files=extra)
    assert json.loads(extra["trainrun.contract"]) == of_weights
    assert of_weights["columns"] == {"features": ["a", "b"]} and of_weights["target"] == "label"
    [label] = [field for field in of_weights["fields"] if field["name"] == "label"]
    assert label["called"] == "y" and label["scaling"]["offset"][0] == pytest.approx(np.loadtxt(tmp_path / "train.csv", delimiter=",", skiprows=1)[:, 2].mean())
