"""`trainrun predict` and `eval` on tables: rows without labels, of whatever kind of table, by the names of their columns and in
the units of their target; against the same in NumPy and PyTorch, from the saved weights."""

import csv
import io
import json
import signal
import sqlite3
import subprocess
import time

import numpy as np
import pyarrow.parquet
import pytest
import safetensors.torch
import torch

from tests.program import BINARY, CALLED

CITIES = ["Oslo", "Paris", "Rome"]
SPECIES = ["ant", "bee, honey", "cat"]
HEADER = ["order", "age", "city", "member", "height", "species", "price"]
COLUMNS = "{city: {type: category, categories: [Oslo, Paris, Rome], one_hot: true}, member: boolean, age: {missing: median}%s}"
FEATURES = "[age, city, member, height]"
WIDTH = 6  # age, three cities, member, height

RECIPE = """\
version: 1
name: table
model: {layers: [{type: Linear, out_features: 8}, ReLU, {type: Linear, out_features: OUTPUTS}]}
loss: LOSS
metrics: METRICS
dataset:
  train: {type: CSV, path: train.csv, label: LABEL, id: order, task: TASK, features: FEATURES, columns: COLUMNS}
  eval: {type: CSV, path: eval.csv, label: LABEL, id: order, task: TASK, features: FEATURES, columns: COLUMNS}
  transforms: TRANSFORMS
dataloader: {batch_size: 16}
optimizer: {type: AdamW, lr: 1e-2}
training: {num_epochs: 3}
output_dir: run
"""


def trainrun(folder, *arguments, fails=False, **options):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False, **options)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def people(count, seed):
    draw = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        age, height = int(draw.integers(18, 90)), round(float(draw.normal(170, 10)), 2)
        city, member = CITIES[draw.integers(3)], bool(draw.integers(2))
        price = round(1000 * age + 20 * height + 500 * member + float(draw.normal(0, 300)), 2)
        rows.append({"order": f"A{seed}-{i}", "age": "" if i % 7 == 3 else age, "city": city, "member": "yes" if member else "no",
                     "height": height, "species": SPECIES[(age // 10 + member) % 3], "price": price})
    return rows


def write_csv(path, rows, columns, delimiter=","):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def trained(folder, **words):
    write_csv(folder / "train.csv", people(120, 1), HEADER)
    write_csv(folder / "eval.csv", people(40, 2), HEADER)
    text = RECIPE
    for key, value in {"FEATURES": FEATURES, **words}.items():
        text = text.replace(key, value)
    (folder / "recipe.yaml").write_text(text)
    trainrun(folder, "--quiet", "recipe.yaml")
    return folder


@pytest.fixture(name="classes", scope="module")
def folder_of_classes(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("classes"), OUTPUTS="3", LOSS="CrossEntropyLoss", METRICS="[Accuracy]", LABEL="species",
                   TASK="classification", COLUMNS=COLUMNS % ", species: category", TRANSFORMS="[Standardize]")


@pytest.fixture(name="prices", scope="module")
def folder_of_prices(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("prices"), OUTPUTS="1", LOSS="MSELoss", METRICS="[MAE, RMSE, R2]", LABEL="price", TASK="regression",
                   COLUMNS=COLUMNS % "", TRANSFORMS="[Standardize, {type: Standardize, field: label}]")


def numbers_of(rows, median):
    return np.array([[float(row["age"]) if row["age"] != "" else median, *(row["city"] == city for city in CITIES), row["member"] in ("yes", True), row["height"]]
                     for row in rows], dtype=np.float64)


def outputs_of(folder, rows):
    """What the trained model gives, computed from the saved weights and the training file alone."""
    train = people(120, 1)
    median = float(np.median([row["age"] for row in train if row["age"] != ""]))
    known = numbers_of(train, median)
    features = (numbers_of(rows, median) - known.mean(0)) / np.where(known.std(0) == 0, 1, known.std(0))
    state = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    hidden = (torch.tensor(features, dtype=torch.float32) @ state["0.weight"].T + state["0.bias"]).relu()
    return (hidden @ state["2.weight"].T + state["2.bias"]).double()


def prices_of(folder, rows):
    known = np.array([row["price"] for row in people(120, 1)])
    return outputs_of(folder, rows)[:, 0].numpy() * known.std() + known.mean()


def write_table(path, rows, columns):
    """As a table of the kind that the file's name says."""
    typed = [{name: (row[name] == "yes" if name == "member" else None if row[name] == "" else row[name]) for name in columns} for row in rows]
    if path.suffix == ".csv":
        write_csv(path, rows, columns)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in typed))
    elif path.suffix == ".sqlite":
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE people (" + ", ".join(f'"{name}"' for name in columns) + ")")
            base.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(columns))})", [[row[name] for name in columns] for row in typed])
        base.close()
    else:
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: tools/setup --tests fetches it")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(typed), path)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "sqlite", "parquet"])
def test_rows_without_labels_get_the_classes_of_pytorch_from_any_kind_of_table(classes, kind):
    rows = [{**row, "note": f"n{i}"} for i, row in enumerate(people(25, 3))]
    path = classes / f"new.{kind}"
    write_table(path, rows, ["height", "note", "member", "city", "order", "age"])  # another order, an unknown column, no label
    expected = outputs_of(classes, rows).softmax(1)
    text = trainrun(classes, "predict", "run", path)
    found = list(csv.DictReader(io.StringIO(text)))
    assert text.splitlines()[0] == 'order,note,species,probability,p(ant),"p(bee, honey)",p(cat)'
    assert [row["order"] for row in found] == [row["order"] for row in rows]
    assert [row["note"] for row in found] == [row["note"] for row in rows]
    assert [row["species"] for row in found] == [SPECIES[i] for i in expected.argmax(1)]
    assert torch.allclose(torch.tensor([[float(row[f"p({name})"]) for name in SPECIES] for row in found], dtype=torch.float64), expected, atol=1e-5)
    lines = [json.loads(line) for line in trainrun(classes, "predict", "run", path, "--format", "jsonl").splitlines()]
    assert [[line["probabilities"][name] for name in SPECIES] for line in lines] == [pytest.approx(list(row), abs=1e-5) for row in expected.tolist()]


def test_a_regression_is_predicted_and_evaluated_in_the_units_of_its_target(prices):
    rows = people(30, 4)
    write_csv(prices / "new.csv", rows, ["order", "city", "age", "height", "member"])
    expected = prices_of(prices, rows)
    found = list(csv.DictReader(io.StringIO(trainrun(prices, "predict", "run", "new.csv"))))
    assert list(found[0]) == ["order", "price"]
    assert [float(row["price"]) for row in found] == pytest.approx(expected, rel=1e-5)
    assert expected.std() > 1000, "the model says nothing"
    held = people(40, 2)
    errors = prices_of(prices, held) - np.array([row["price"] for row in held])
    targets = np.array([row["price"] for row in held])
    figures = json.loads(trainrun(prices, "eval", "run", "--json", "--report"))
    assert figures["eval/mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    assert figures["eval/rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-4)
    assert figures["report"]["eval"]["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    assert figures["eval/r2"] == pytest.approx(1 - (errors**2).sum() / ((targets - targets.mean()) ** 2).sum(), rel=1e-4)
    last = [line for line in map(json.loads, (prices / "run/metrics.jsonl").read_text().splitlines()) if "eval/mae" in line][-1]
    assert last["eval/mae"] == pytest.approx(figures["eval/mae"], rel=1e-4)


def test_what_is_predicted_needs_no_training_data(prices):
    rows = people(5, 5)
    write_csv(prices / "five.csv", rows, HEADER)  # with labels, which are not looked at
    (prices / "train.csv").rename(prices / "away.csv")
    try:
        found = list(csv.DictReader(io.StringIO(trainrun(prices, "predict", "run", "five.csv"))))
    finally:
        (prices / "away.csv").rename(prices / "train.csv")
    assert [float(row["price"]) for row in found] == pytest.approx(prices_of(prices, rows), rel=1e-5)


def test_what_is_wrong_with_a_table_is_said_at_its_place(classes):
    rows = people(6, 6)
    write_csv(classes / "lacks.csv", rows, ["order", "age", "city", "height"])
    assert "lacks.csv:1:member: there is no such column" in trainrun(classes, "predict", "run", "lacks.csv", fails=True)
    write_csv(classes / "named.csv", [{**row, "Age": row["age"]} for row in rows], ["Age", "city", "height", "member"])
    assert "named.csv:1:age: there is no such column, which the model reads; did you mean Age?" in trainrun(classes, "predict", "run", "named.csv", fails=True)
    write_csv(classes / "semicolons.csv", rows, ["age", "city", "height", "member"], delimiter=";")
    assert "add 'dataset.train.delimiter=\";\"' to the command" in trainrun(classes, "predict", "run", "semicolons.csv", fails=True)
    rows[2]["city"], rows[4]["height"] = "Bern", "tall"
    write_csv(classes / "broken.csv", rows, ["order", "age", "city", "height", "member"])
    assert "broken.csv:4:city: category 'Bern' is not listed" in trainrun(classes, "predict", "run", "broken.csv", fails=True)
    (classes / "nothing.csv").write_text("age,city,height,member\n")
    assert "nothing.csv: has no rows" in trainrun(classes, "predict", "run", "nothing.csv", fails=True)


def test_broken_rows_are_named_counted_and_left_out_where_asked(classes):
    rows = people(9, 6)
    rows[2]["city"], rows[4]["height"], rows[7]["city"] = "Bern", "tall", "Bern"
    write_csv(classes / "skipped.csv", rows, ["order", "age", "city", "height", "member"])
    with (classes / "skipped.csv").open("a") as file:
        file.write("A,1,Oslo\n")
    done = subprocess.run([CALLED, "predict", "run", "skipped.csv", "--broken", "skip"], cwd=classes, capture_output=True, text=True, timeout=60, check=True)
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    left = [row for i, row in enumerate(rows) if i not in (2, 4, 7)]
    assert [row["order"] for row in found] == [row["order"] for row in left]
    expected = outputs_of(classes, left).softmax(1)
    assert [float(row["probability"]) for row in found] == pytest.approx(expected.max(1).values.tolist(), abs=1e-5)
    for place in ("skipped.csv:4:city", "skipped.csv:6:height", "skipped.csv:9:city", "skipped.csv:11: 3 columns"):
        assert f"left out: {place}" in done.stderr, done.stderr
    assert "4 of 10 samples could not be read" in done.stderr


def test_standard_input_and_several_files(classes):
    rows = people(8, 7)
    write_csv(classes / "one.csv", rows[:5], ["order", "age", "city", "height", "member"])
    write_table(classes / "two.jsonl", rows[5:], ["member", "order", "city", "height", "age"])
    expected = [SPECIES[i] for i in outputs_of(classes, rows).argmax(1)]
    with (classes / "one.csv").open() as file:
        found = list(csv.DictReader(io.StringIO(trainrun(classes, "predict", "run", "-", stdin=file))))
    assert [row["species"] for row in found] == expected[:5]
    found = list(csv.DictReader(io.StringIO(trainrun(classes, "predict", "run", "one.csv", "two.jsonl"))))
    assert [row["species"] for row in found] == expected
    assert [row["file"] for row in found] == ["one.csv"] * 5 + ["two.jsonl"] * 3


def test_the_most_probable_classes_and_arrays(classes):
    rows = people(7, 8)
    write_csv(classes / "seven.csv", rows, ["age", "city", "height", "member"])
    expected = outputs_of(classes, rows).softmax(1).sort(1, descending=True)
    found = list(csv.DictReader(io.StringIO(trainrun(classes, "predict", "run", "seven.csv", "--top-k", "2"))))
    assert list(found[0]) == ["line", "species", "probability", "species 2", "probability 2"]
    assert [row["species 2"] for row in found] == [SPECIES[i] for i in expected.indices[:, 1]]
    assert [int(row["line"]) for row in found] == list(range(2, 9))
    trainrun(classes, "predict", "run", "seven.csv", "--output", "out.npz")
    arrays = np.load(classes / "out.npz")
    assert arrays["species"].tolist() == [SPECIES[i] for i in expected.indices[:, 0]]
    assert arrays["probability"] == pytest.approx(expected.values[:, 0].numpy(), abs=1e-5)


@pytest.mark.parametrize("name", ["out.xlsx", "out.XLS", "out.html", "out.pdf", "out.csv.gz", "out.tsv", "out.feather"])
def test_files_of_formats_that_are_not_written_are_refused(classes, name):
    write_csv(classes / "few.csv", people(3, 8), ["age", "city", "height", "member"])
    said = trainrun(classes, "predict", "run", "few.csv", "-o", name, fails=True)
    assert f"files that end in .{name.lower().rsplit('.', 1)[1]} are not written" in said and "ends in .csv, .jsonl, .parquet, .npz or" in said
    assert not (classes / name).exists()
    trainrun(classes, "predict", "run", "few.csv", "-o", name, "--format", "csv")
    assert (classes / name).read_text() == trainrun(classes, "predict", "run", "few.csv")
    (classes / name).unlink()


def test_a_file_that_is_replaced_is_named(classes):
    write_csv(classes / "few.csv", people(1, 8), ["age", "city", "height", "member"])
    for written in ["twice.csv", "twice.npz"]:
        first, second = (subprocess.run([CALLED, "predict", "run", "few.csv", "-o", written], cwd=classes, capture_output=True, text=True, check=True).stderr for _ in range(2))
        assert f"note: {written} was there already, and has been replaced\n" in second and "replaced" not in first
        assert f"{written}: predictions for 1 sample\n" in first


def test_options_without_an_effect_are_refused(classes, prices):
    for folder in (classes, prices):
        write_csv(folder / "few.csv", people(3, 8), ["age", "city", "height", "member"])
    said = trainrun(prices, "predict", "run", "few.csv", "--top-k", "2", "-o", "never.csv", fails=True)
    assert "--top-k writes only the most probable classes of a model that gives each sample one class, and this one, which is trained by" in said
    said = trainrun(prices, "predict", "run", "few.csv", "--threshold", "0.5", "-o", "never.csv", fails=True)
    assert "any number of several labels, and this one, which is trained by" in said and "most probable class" not in said
    said = trainrun(classes, "predict", "run", "few.csv", "--threshold", "0.9", "-o", "never.csv", fails=True)
    assert "trained by CrossEntropyLoss, does not; leave it out. It writes the most probable class, and the probability of each" in said
    assert not list(classes.glob("never*")) and not list(prices.glob("never*"))


def test_what_was_killed_goes_on_at_the_next_row(prices):
    rows = people(3000, 9)
    with (prices / "long.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["order", "age", "city", "height", "member"], extrasaction="ignore")
        writer.writeheader()
        for i in range(100):
            writer.writerows({**row, "order": f"{i}-{k}"} for k, row in enumerate(rows))
    command = [BINARY, "predict", "run", "long.csv", "--output", "long-out.csv", "--batch-size", "1"]
    killed = False
    for _ in range(20):
        (prices / "long-out.csv").unlink(missing_ok=True)
        running = subprocess.Popen(command, cwd=prices, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while running.poll() is None and not (prices / "long-out.csv.partial.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            killed = True
        running.wait()
        if killed:
            break
    assert killed and (prices / "long-out.csv.partial").exists() and not (prices / "long-out.csv").exists()
    with (prices / "long-out.csv.partial").open("a") as file:
        file.write("torn,1")
    command[-1] = "4096"
    done = subprocess.run(command, cwd=prices, capture_output=True, text=True, timeout=120, check=True)
    assert "goes on after its" in done.stderr, done.stderr
    with (prices / "long-out.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["order"] for row in found] == [f"{i}-{k}" for i in range(100) for k in range(len(rows))]
    assert [float(row["price"]) for row in found[-3000:]] == pytest.approx(prices_of(prices, rows), rel=1e-5)
    assert not list(prices.glob("long-out.csv.partial*"))


def test_parquet_has_the_types_of_the_columns(classes):
    rows = [row | {"note": f"n{i}", "count": i, "share": None if i == 2 else i / 4} for i, row in enumerate(people(9, 23))]
    names = [name for name in HEADER if name not in ("species", "price")] + ["note", "count", "share"]
    (classes / "typed.jsonl").write_text("".join(json.dumps({name: row[name] for name in names}) + "\n" for row in rows))
    trainrun(classes, "predict", "run", "typed.jsonl", "--output", "typed.parquet")
    found = pyarrow.parquet.read_table(classes / "typed.parquet")
    lines = [json.loads(line) for line in trainrun(classes, "predict", "run", "typed.jsonl", "--format", "jsonl").splitlines()]
    assert {name: str(found.schema.field(name).type) for name in ("order", "note", "count", "share", "species", "probability")} == {
        "order": "string", "note": "string", "count": "int64", "share": "double", "species": "string", "probability": "double"}
    assert found.column("count").to_pylist() == list(range(9)) and found.column("share").to_pylist()[2] is None
    assert found.column("species").to_pylist() == [line["species"] for line in lines]
    np.testing.assert_allclose(found.column("p(cat)").to_numpy(), [line["probabilities"]["cat"] for line in lines], rtol=1e-6)
    assert not list(classes.glob("*.partial"))


def test_categories_that_training_did_not_have_are_counted_where_they_are_allowed(tmp_path):
    (tmp_path / "train.csv").write_text("city,y\n" + "".join(f"{CITIES[i % 3]},{i}\n" for i in range(30)))
    (tmp_path / "new.csv").write_text("city\n" + "Oslo\nBern\nRome\nParma\nBern\n")
    (tmp_path / "recipe.yaml").write_text("""\
version: 1
name: cities
model: {layers: [{type: Linear, out_features: 1}]}
loss: MSELoss
dataset: {train: {type: CSV, path: train.csv, label: y, task: regression, columns: auto}}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
output_dir: run
""")
    trainrun(tmp_path, "--quiet", "recipe.yaml")
    done = subprocess.run([CALLED, "predict", "run", "new.csv"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.splitlines()) == 6
    assert "new.csv: city: 3 values are none of the training data's categories, such as 'Bern'; the model reads them as unknown" in done.stderr
