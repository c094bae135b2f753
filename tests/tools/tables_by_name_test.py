"""Tables whose columns, classes, order or encoding differ from those of training, through `predict` and `eval`: what they hold is read by
name, or they are refused with the place of what is wrong; none gives other predictions in silence."""

import csv
import gzip
import io
import json
import sqlite3
import subprocess

import numpy as np
import pytest
import safetensors.torch

from tests.program import CALLED

KINDS = ["ant", "bee", "cat"]
CITIES = ["Oslo", "Zürich"]
COLUMNS = ["id", "age", "city", "member", "kind"]
RECIPE = """\
version: 1
name: table
model: {layers: [{type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: CSV, path: train.csv, label: kind, id: id, columns: {city: {type: category, categories: [Oslo, Zürich], one_hot: true}, member: boolean, age: {missing: median}, kind: category}}
  eval: {type: CSV, path: eval.csv, label: kind, id: id, columns: {city: {type: category, categories: [Oslo, Zürich], one_hot: true}, member: boolean, age: {missing: median}, kind: category}}
optimizer: {type: SGD, lr: 0.01}
training: {num_epochs: 3}
output_dir: run
"""
ROWS = [{"id": f"r{i}", "age": [3, 41, 7.5, 22, 1, 60, 12, 33, 5][i], "city": CITIES[i % 2], "member": "yes" if i % 3 else "no", "kind": KINDS[i * 5 % 3]} for i in range(9)]


def as_csv(rows, columns=COLUMNS, delimiter=",", end="\n", quoting=csv.QUOTE_MINIMAL):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_lines(rows, columns=COLUMNS, turned=False):
    lines = [{name: row[name] for name in (columns[::-1] if turned and i % 2 else columns)} for i, row in enumerate(rows)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def without(name, *numbers):
    """The rows as JSON lines, those of these numbers without a key."""
    return "".join(json.dumps({key: value for key, value in row.items() if key != name or i not in numbers}) + "\n" for i, row in enumerate(ROWS))


def changed(**columns):
    """The rows, with some columns made anew: of a row and its number."""
    return [{**row, **{name: make(row, i) for name, make in columns.items()}} for i, row in enumerate(ROWS)]


def sqlite_file(path):
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE t (kind, member, city, age, id)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [[row[name] for name in ("kind", "member", "city", "age", "id")] for row in ROWS])
    base.close()


def parquet_file(path, **more):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: tools/setup --tests fetches it")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist([{**row, "member": row["member"] == "yes", **more} for row in ROWS]), path)


def trainrun(folder, *arguments):
    return subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(name="folder", scope="module")
def folder_with_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name in ("train", "eval"):
        (folder / f"{name}.csv").write_text(as_csv(ROWS))
    (folder / "recipe.yaml").write_text(RECIPE)
    done = trainrun(folder, "--quiet", "recipe.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def scores_of(folder, rows):
    """[rows, classes], computed from the saved weights."""
    state = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    median = np.median([row["age"] for row in ROWS])
    features = np.array([[row["age"] if row["age"] not in ("", "NA") else median, *(row["city"] == city for city in CITIES), row["member"] == "yes"] for row in rows], dtype=np.float64)
    return features @ state["0.weight"].double().numpy().T + state["0.bias"].double().numpy()


FEATURES = ["id", "age", "city", "member"]
# What predict reads: its name, what is written into the file (or what writes it), and the rows that it means or what is said of it.
TABLES = {
    "as in training": ("a.csv", as_csv(ROWS), ROWS),
    "no label": ("a.csv", as_csv(ROWS, FEATURES), ROWS),
    "columns turned": ("a.csv", as_csv(ROWS, COLUMNS[::-1]), ROWS),
    "columns mixed": ("a.csv", as_csv(ROWS, ["city", "id", "member", "age"]), ROWS),
    "a column more": ("a.csv", as_csv(changed(note=lambda row, i: f"n{i}"), ["note", *COLUMNS]), ROWS),
    "no id": ("a.csv", as_csv(ROWS, ["member", "city", "age"]), ROWS),
    "labels of other classes": ("a.csv", as_csv(changed(kind=lambda row, i: "dog")), ROWS),
    "empty labels": ("a.csv", as_csv(changed(kind=lambda row, i: "")), ROWS),
    "all in quotation marks": ("a.csv", as_csv(ROWS, quoting=csv.QUOTE_ALL), ROWS),
    "Windows line ends": ("a.csv", as_csv(ROWS, end="\r\n"), ROWS),
    "a byte-order mark": ("a.csv", "\ufeff" + as_csv(ROWS), ROWS),
    "compressed": ("a.csv.gz", gzip.compress(as_csv(ROWS).encode()), ROWS),
    "blank lines": ("a.csv", as_csv(ROWS).replace("\n", "\n\n"), ROWS),
    "space around values": ("a.csv", as_csv(changed(city=lambda row, i: f" {row['city']} ", age=lambda row, i: f" {row['age']}")), ROWS),
    "booleans in other words": ("a.csv", as_csv(changed(member=lambda row, i: [["TRUE", "1", "Y"], ["False", "0", "no"]][row["member"] == "no"][i % 3])), ROWS),
    "ages that are missing": ("a.csv", as_csv(changed(age=lambda row, i: "" if i == 2 else row["age"])), changed(age=lambda row, i: "" if i == 2 else row["age"])),
    "ages that are NA": ("a.csv", as_csv(changed(age=lambda row, i: "NA" if i == 2 else row["age"])), changed(age=lambda row, i: "" if i == 2 else row["age"])),
    "JSON lines": ("a.jsonl", as_lines(ROWS), ROWS),
    "keys in turn": ("a.jsonl", as_lines(ROWS, turned=True), ROWS),
    "no key in the first object": ("a.jsonl", without("age", 0, 3), changed(age=lambda row, i: "" if i in (0, 3) else row["age"])),
    "no key in the last object": ("a.jsonl", without("age", 8), changed(age=lambda row, i: "" if i == 8 else row["age"])),
    "no key in any object": ("a.jsonl", without("age", *range(9)), "a.jsonl:1:age: there is no such column"),
    "numbers as texts": ("a.jsonl", as_lines(changed(age=lambda row, i: str(row["age"]))), ROWS),
    "JSON lines called .csv": ("a.csv", as_lines(ROWS), ROWS),
    "SQLite": ("a.db", sqlite_file, ROWS),
    "Parquet": ("a.parquet", parquet_file, ROWS),
    "Parquet with nested columns more": ("a.parquet", lambda path: parquet_file(path, place={"x": 1.5, "y": [2]}, marks=[{"z": "a"}]), ROWS),
    "Parquet with a nested age": ("a.parquet", lambda path: parquet_file(path, age={"years": 3}), "a.parquet:age: holds values of the type struct<years: int64>, which is not read; write what is needed of it as columns of plain values"),
    "semicolons": ("a.csv", as_csv(ROWS, delimiter=";"), "add 'dataset.train.delimiter=\";\"' to the command"),
    "tabulators": ("a.csv", as_csv(ROWS, delimiter="\t"), "add 'dataset.train.delimiter=\"\\t\"' to the command"),
    "no age": ("a.csv", as_csv(ROWS, ["id", "city", "member"]), "a.csv:1:age: there is no such column"),
    "neither age nor city": ("a.jsonl", as_lines(ROWS, ["id", "member"]), "a.jsonl:1:city: there is no such column"),
    "a capital letter": ("a.csv", as_csv(ROWS).replace("age", "Age", 1), "a.csv:1:age: there is no such column, which the model reads; did you mean Age?"),
    "a column twice": ("a.csv", as_csv(ROWS, [*FEATURES, "age"]), "two columns are called 'age'"),
    "an unknown city": ("a.csv", as_csv(changed(city=lambda row, i: "Bern" if i == 4 else row["city"])), "a.csv:6:city: category 'Bern' is not listed"),
    "a city in small letters": ("a.csv", as_csv(changed(city=lambda row, i: row["city"].lower())), "a.csv:2:city: category 'oslo' is not listed"),
    "no city": ("a.csv", as_csv(changed(city=lambda row, i: "" if i == 1 else row["city"])), "a.csv:3:city: the value is missing"),
    "decimal commas": ("a.csv", as_csv(changed(age=lambda row, i: str(row["age"]).replace(".", ","))), "a.csv:4:age: '7,5' is not a number"),
    "decimal commas in JSON lines": ("a.jsonl", as_lines(changed(age=lambda row, i: str(row["age"]).replace(".", ","))), "a.jsonl:3:age: '7,5' is not a number; numbers are read with a point and no other mark, 1234.5; convert these in the file"),
    "words for numbers": ("a.csv", as_csv(changed(age=lambda row, i: "old" if i == 5 else row["age"])), "a.csv:7:age: 'old' is not a number"),
    "a third boolean": ("a.csv", as_csv(changed(member=lambda row, i: "perhaps" if i == 0 else "no")), "a.csv:2:member: 'perhaps' is neither true nor false"),
    "latin-1": ("a.csv", as_csv(ROWS).encode("latin-1"), "a.csv:3"),
    "UTF-16": ("a.csv", as_csv(ROWS).encode("utf-16"), "add dataset.train.encoding=utf-16 to the command"),
    "no names": ("a.csv", as_csv(ROWS).split("\n", 1)[1], "a.csv:1:age: there is no such column"),
    "no rows": ("a.csv", "id,age,city,member\n", "a.csv: has no rows"),
    "nothing": ("a.csv", "", "a.csv: is empty"),
    "a short row": ("a.csv", as_csv(ROWS, FEATURES) + "r9,1,Oslo\n", "a.csv:11: 3 columns, the first line has 4"),
    "two tables": ("a.db", lambda path: [sqlite_file(path), sqlite3.connect(path).execute("CREATE TABLE u (x)")], "several tables (t, u)"),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_predicted_is_read_by_name_or_refused(folder, tmp_path, name):
    file, content, means = TABLES[name]
    path = tmp_path / file
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = trainrun(folder, "predict", "run", path)
    if isinstance(means, str):
        assert done.returncode == 1 and means in done.stderr and not done.stdout, done.stdout + done.stderr
        return
    assert done.returncode == 0, done.stderr
    scores = scores_of(folder, means)
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [[float(row[f"p({kind})"]) for kind in KINDS] for row in found] == [pytest.approx(row.tolist(), abs=1e-5) for row in expected]
    assert [row["kind"] for row in found] == [KINDS[i] for i in expected.argmax(1)]
    if "id" in found[0]:
        assert [row["id"] for row in found] == [row["id"] for row in ROWS]


def test_other_keys_of_json_lines_stand_beside_what_is_predicted_whichever_objects_have_them(folder, tmp_path):
    rows = [{key: row[key] for key in ("age", "city", "member")} for row in ROWS]
    for name, noted in (("a", 4), ("b", None)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row | ({"note": "n"} if i == noted else {})) + "\n" for i, row in enumerate(rows)))
    done = trainrun(folder, "predict", "run", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert done.returncode == 0, done.stderr
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["note"] for row in found] == [*("n" if i == 4 else "" for i in range(9)), *[""] * 9]
    assert [row["line"] for row in found] == [str(i + 1) for i in range(9)] * 2


def test_what_cannot_stand_beside_the_predictions_is_named(folder, tmp_path):
    parquet_file(tmp_path / "a.parquet", place={"x": 1.5}, note="n")
    done = trainrun(folder, "predict", "run", tmp_path / "a.parquet")
    assert done.returncode == 0 and "a.parquet: holds values of types that are not read in place, which the model does not need" in done.stderr, done.stderr
    assert "note" in done.stdout.splitlines()[0] and "place" not in done.stdout.splitlines()[0]


CODES = """\
version: 1
name: codes
model: {layers: [{type: Linear, out_features: 2}]}
loss: CrossEntropyLoss
dataset: {train: {type: CSV, path: train.csv, label: kind, columns: {code: {type: category, categories: CATEGORIES, one_hot: true}, kind: category}}}
optimizer: {type: SGD, lr: 0.5}
training: {num_epochs: 3}
output_dir: run
"""


@pytest.mark.parametrize("ends", ["", ".0"])
def test_codes_are_the_same_as_integers_and_as_floats(tmp_path, ends):
    """Beside a missing value, pandas makes floats of them."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: tools/setup --tests fetches it")
    parquet = pytest.importorskip("pyarrow.parquet")
    codes = [1, 2, 3, 3, 2, 1]
    (tmp_path / "train.csv").write_text("code,kind\n" + "".join(f"{code}{ends},{'ab'[code % 2]}\n" for code in codes))
    (tmp_path / "recipe.yaml").write_text(CODES.replace("CATEGORIES", json.dumps([f"{code}{ends}" for code in (1, 2, 3)])))
    assert trainrun(tmp_path, "--quiet", "recipe.yaml").returncode == 0
    for name, written in {"whole": codes, "floats": [float(code) for code in codes]}.items():
        (tmp_path / f"{name}.csv").write_text("code\n" + "".join(f"{code}\n" for code in written))
        parquet.write_table(arrow.table({"code": written}), tmp_path / f"{name}.parquet")
    told = [trainrun(tmp_path, "predict", "run", f"{name}.{kind}") for kind in ("csv", "parquet") for name in ("whole", "floats")]
    rows = [[(row["p(a)"], row["kind"]) for row in csv.DictReader(io.StringIO(one.stdout))] for one in told]
    assert len(rows[0]) == 6 and len(set(rows[0])) == 3 and all(one == rows[0] for one in rows), [one.stderr for one in told]
    for odd in ("4.0", "1.5", "01", "1.", "x.0"):
        (tmp_path / "odd.csv").write_text(f"code\n{odd}\n")
        done = trainrun(tmp_path, "predict", "run", "odd.csv")
        assert done.returncode == 1 and f"odd.csv:2:code: category '{odd}' is not listed" in done.stderr, done.stdout + done.stderr


def test_codes_in_both_forms_are_two_categories(tmp_path):
    (tmp_path / "train.csv").write_text("code,kind\n" + "1,a\n1.0,b\n" * 4)
    (tmp_path / "recipe.yaml").write_text(CODES.replace("CATEGORIES", '["1", "1.0"]'))
    assert trainrun(tmp_path, "--quiet", "recipe.yaml").returncode == 0
    (tmp_path / "a.csv").write_text("code\n1\n1.0\n")
    found = [row["kind"] for row in csv.DictReader(io.StringIO(trainrun(tmp_path, "predict", "run", "a.csv").stdout))]
    assert found == ["a", "b"]


# The same for data with labels, whose accuracy is that of the rows given, or of which something is said.
EVALUATED = {
    "as in training": (as_csv(ROWS), [], ROWS),
    "rows turned, so that other classes come first": (as_csv(ROWS[::-1]), [], ROWS),
    "columns turned": (as_csv(ROWS, COLUMNS[::-1]), [], ROWS),
    "two of three classes": (as_csv([row for row in ROWS if row["kind"] != "ant"]), [], [row for row in ROWS if row["kind"] != "ant"]),
    "one class": (as_csv([row for row in ROWS if row["kind"] == "cat"]), [], [row for row in ROWS if row["kind"] == "cat"]),
    "classes with space around them": (as_csv(changed(kind=lambda row, i: f" {row['kind']} ")), [], ROWS),
    "a class that is new": (as_csv(changed(kind=lambda row, i: "dog" if i == 3 else row["kind"])), [], "eval.csv:5:kind (id 'r3'): category 'dog' is in no training sample"),
    "classes in capital letters": (as_csv(changed(kind=lambda row, i: row["kind"].upper())), [], "category 'ANT' is in no training sample"),
    "numbers for classes": (as_csv(changed(kind=lambda row, i: KINDS.index(row["kind"]))), [], "is in no training sample"),
    "no label": (as_csv(ROWS, FEATURES), [], "eval.csv:1:kind: there is no such column"),
    "no age": (as_csv(ROWS, ["id", "city", "member", "kind"]), [], "eval.csv:1:age: there is no such column"),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_what_is_evaluated_is_read_by_name_or_refused(folder, tmp_path, name):
    content, overrides, means = EVALUATED[name]
    (tmp_path / "eval.csv").write_text(content)
    done = trainrun(folder, "eval", "run", f"dataset.eval.path={tmp_path / 'eval.csv'}", "--json", *overrides)
    if isinstance(means, str):
        assert done.returncode != 0 and means in done.stderr, done.stdout + done.stderr
        return
    assert done.returncode == 0, done.stderr
    expected = np.mean([KINDS[i] == row["kind"] for i, row in zip(scores_of(folder, means).argmax(1), means, strict=True)])
    assert json.loads(done.stdout)["eval/accuracy"] == pytest.approx(expected)
