"""What travels with a model, and what is said of data on the way: names of categories and of one-hot numbers in what is exported, ids beside predictions
for the recipe's own data, files without rows, columns that nobody reads, leaks that `init` finds, and runs that go on without their first weights."""

import csv
import json
import random
import sqlite3
import subprocess

import pytest

from tests.program import CALLED

RECIPE = """
version: 1
name: a
seed: 1
model:
  layers:
    - {type: Embedding, name: town_vector, inputs: [town], num_embeddings: 4, embedding_dim: 3}
    - {type: Concat, inputs: [features, town_vector], dim: 1}
    - {type: Linear, out_features: 3}
loss: CrossEntropyLoss
dataset:
  train: {type: CSV, path: t.csv, label: kind, id: [name], columns: {kind: category, town: {type: category, allow_unknown: true},
          colour: {type: category, one_hot: true}}}
  eval: {type: CSV, path: u.csv, label: kind, id: [name], columns: {kind: category, town: {type: category, allow_unknown: true},
         colour: {type: category, one_hot: true}}}
dataloader: {batch_size: 16}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 2}
output_dir: run
"""
TOWNS = ["Bern", "Rom", "Wien"]
COLOURS = ["blue", "green", "red"]
KINDS = ["apple", "pear", "plum"]
PLAIN = """
version: 1
name: a
model: {layers: [{type: Linear, out_features: 2}]}
loss: CrossEntropyLoss
dataset: {train: {DATA}}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
output_dir: run
"""


def call(folder, *words, code=0):
    done = subprocess.run([CALLED, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    return said


def write_tables(folder):
    draw = random.Random(1)
    for name, count in (("t", 60), ("u", 20)):
        with open(folder / f"{name}.csv", "w", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["name", "size", "colour", "town", "kind"])
            rows.writerows([f"{name}{i}", round(draw.random(), 3), draw.choice(COLOURS), draw.choice(TOWNS), KINDS[i % 3]] for i in range(count))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_tables(folder)
    (folder / "a.yaml").write_text(RECIPE)
    call(folder, "a.yaml")
    return folder


def check_contract(contract):
    assert contract["classes"] == {"label": KINDS, "town": TOWNS}
    assert contract["columns"] == {"features": ["size", *["colour"] * 3]}
    assert contract["numbers"] == {"features": ["size", *(f"colour={colour}" for colour in COLOURS)]}


def test_the_names_of_categories_and_of_one_hot_numbers_travel_with_an_onnx_file(trained):
    onnx = pytest.importorskip("onnx")
    call(trained, "export", "run", "--format", "onnx", "--output", "a.onnx")
    known = {entry.key: entry.value for entry in onnx.load(trained / "a.onnx").metadata_props}
    check_contract(json.loads(known["trainrun.contract"]))
    assert json.loads(known["trainrun.outputs"]) == KINDS


def test_the_names_travel_with_torchscript_and_safetensors_files(trained):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors")
    call(trained, "export", "run", "--format", "torchscript", "--output", "a.pt")
    extra = {"trainrun.contract": ""}
    torch.jit.load(trained / "a.pt", _extra_files=extra)
    check_contract(json.loads(extra["trainrun.contract"]))
    call(trained, "export", "run", "--format", "safetensors", "--output", "a.safetensors")
    with safetensors.safe_open(trained / "a.safetensors", framework="pt") as file:
        check_contract(json.loads(file.metadata()["trainrun.contract"]))


def test_a_page_about_the_data_names_one_hot_numbers_with_their_values(trained):
    said = call(trained, "data", "a.yaml", "--output", "data.html")
    assert "colour=red" in said and "colour=blue" in (trained / "data.html").read_text()


def test_categories_listed_in_another_order_for_the_evaluation_are_refused(trained):
    for column, kind in (("town", "classes"), ("colour", "numbers")):
        text = (trained / "a.yaml").read_text()
        values = {"town": TOWNS, "colour": COLOURS}[column]
        head, evaluation = text.split("  eval:")
        option = f"{column}: {{type: category, "
        head = head.replace(option, f"{option}categories: [{', '.join(values)}], ")
        evaluation = evaluation.replace(option, f"{option}categories: [{', '.join(reversed(values))}], ")
        (trained / "other.yaml").write_text(f"{head}  eval:{evaluation}")
        said = call(trained, "other.yaml", "output_dir=other", code=1)
        assert f"the {kind} of '{'town' if column == 'town' else 'features'}' are" in said and "but those of dataset.train are" in said


def test_predictions_for_the_recipes_own_data_have_the_ids(trained):
    call(trained, "predict", "run", "--output", "own.csv")
    call(trained, "predict", "run", "u.csv", "--output", "file.csv")
    own, file = (list(csv.DictReader(open(trained / name, encoding="utf-8"))) for name in ("own.csv", "file.csv"))
    assert [row["name"] for row in own] == [f"u{i}" for i in range(20)] == [row["name"] for row in file]
    assert list(own[0])[:3] == ["sample", "name", "kind"] and [row["sample"] for row in own] == [str(i) for i in range(20)]
    assert [row["kind"] for row in own] == [row["kind"] for row in file]


def test_files_without_rows_beside_others_are_named(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = {"a": [float(i) for i in range(12)], "b": [0.5] * 12, "y": [i % 2 for i in range(12)]}
    for i, count in enumerate((12, 0, 12, 0)):
        pandas.DataFrame(rows).head(count).to_parquet(tmp_path / f"part-{i}.parquet")
        pandas.DataFrame(rows).head(count).to_csv(tmp_path / f"part-{i}.csv", index=False)
    (tmp_path / "a.yaml").write_text(PLAIN.replace("DATA", "type: Parquet, path: 'part-*.parquet', label: y"))
    assert "part-*.parquet: 2 of 4 files have no rows: part-1.parquet, part-3.parquet" in call(tmp_path, "a.yaml")
    said = call(tmp_path, "predict", "run", "part-0.parquet", "part-1.parquet", "--output", "p.csv")
    assert "1 of 2 files has no rows: part-1.parquet" in said and len((tmp_path / "p.csv").read_text().splitlines()) == 13
    assert "1 of 3 files has no rows: part-3.csv" in call(tmp_path, "predict", "run", "part-0.csv", "part-2.csv", "part-3.csv", "--output", "q.csv")
    assert "has no rows" in call(tmp_path, "predict", "run", "part-1.csv", "part-3.csv", "--output", "q.csv", code=1)
    (tmp_path / "a.yaml").write_text(PLAIN.replace("DATA", "type: Parquet, path: 'part-[13].parquet', label: y"))
    assert "has no rows" in call(tmp_path, "a.yaml", code=1)
    for name in ("part-1", "part-3"):
        (tmp_path / f"{name}.parquet").unlink()
    (tmp_path / "a.yaml").write_text(PLAIN.replace("DATA", "type: Parquet, path: 'part-*.parquet', label: y").replace("dir: run", "dir: all"))
    assert "no rows" not in call(tmp_path, "a.yaml")


@pytest.mark.parametrize("ending, empty", [("txt", ""), ("jsonl", "\n")])
def test_texts_without_a_word_beside_others_are_named(ending, empty, tmp_path):
    line = "the plum is red " * 30
    (tmp_path / f"a.{ending}").write_text(json.dumps({"text": line}) + "\n" if ending == "jsonl" else line)
    (tmp_path / f"b.{ending}").write_text(empty)
    text = PLAIN.replace("DATA", f"type: TextLM, path: 'a.{ending}', block_size: 8")
    text = text.replace("layers: [", "layers: [{type: Embedding, num_embeddings: 40, embedding_dim: 4}, ").replace("out_features: 2", "out_features: 40")
    (tmp_path / "a.yaml").write_text(text.replace("CrossEntropyLoss", "CausalLMLoss"))
    assert " no text" not in call(tmp_path, "a.yaml")
    said = call(tmp_path, "a.yaml", f"dataset.train.path=[a.{ending}, b.{ending}]", "output_dir=other")
    assert f"TextLM: 1 of 2 files has no text: b.{ending}" in said


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "t.db")
    connection.execute("create table rows (name text, a real, photo blob, picture, b real, y integer)")
    rows = [(f"r{i}", i * 0.5, bytes([i, 255]), bytes([i]) if i else None, float(i * 7 % 11), i % 2) for i in range(40)]
    connection.executemany("insert into rows values (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return tmp_path


def test_a_column_of_blobs_that_nobody_reads_is_left_out(database):
    said = call(database, "init", "t.db", "--target", "y", "--output", "i.yaml")
    assert "left out: photo (values of a type that is not read), picture (values of a type that is not read)" in said
    call(database, "i.yaml", "output_dir=first", "training.num_epochs=1")
    for data in ("table: rows", "query: 'SELECT * FROM rows'"):
        (database / "a.yaml").write_text(PLAIN.replace("DATA", f"type: SQLite, path: t.db, {data}, label: y, features: [a, b]"))
        call(database, "a.yaml", f"output_dir=by_{data[0]}")
    said = call(database, "predict", "by_t", "t.db", "--output", "p.csv")
    assert "t.db: holds values of types that are not read in photo, picture, which the model does not need" in said
    assert (database / "p.csv").read_text().splitlines()[0].startswith("row,name,y,")


def test_a_column_of_blobs_that_would_be_read_is_refused_with_what_to_do(database):
    for features in ("", ", features: [a, photo]", ", columns: auto"):
        (database / "a.yaml").write_text(PLAIN.replace("DATA", f"type: SQLite, path: t.db, table: rows, label: y, id: name{features}"))
        said = call(database, "a.yaml", code=2)
        assert "t.db:photo: holds BLOBs, which are not read; write what is needed of them as columns of plain values, or leave this column out" in said
    assert "the column 'photo' holds values of a type that is not read" in call(database, "init", "t.db", "--target", "photo", code=1)


def test_init_leaves_out_columns_of_objects_in_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    photos = arrow.array([{"bytes": b"x", "path": "p"}] * 40)
    parquet.write_table(arrow.table({"a": [i * 0.5 for i in range(40)], "photo": photos, "y": [i % 2 for i in range(40)]}), tmp_path / "t.parquet")
    assert "left out: photo (values of a type that is not read)" in call(tmp_path, "init", "t.parquet", "--target", "y", "--output", "i.yaml")
    call(tmp_path, "i.yaml", "training.num_epochs=1")


def test_init_names_leaks_as_data_does(tmp_path):
    draw = random.Random(3)
    rows = [[round(draw.uniform(0, 9), 3), round(draw.uniform(0, 9), 3)] for _ in range(100)]
    rows = [[a, b, a + b, 2 * (a + b) + 1] for a, b in rows]
    rows += rows[:30]
    with open(tmp_path / "t.csv", "w", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "b", "price", "twice"], *rows])
    said = call(tmp_path, "init", "t.csv", "--target", "price", "--output", "i.yaml")
    assert "train: 1 feature is the label but for a factor and an offset: twice" in said
    assert "samples are also in train" in said
    found = call(tmp_path, "data", "i.yaml", "--terminal")
    for leak in ("train: 1 feature is the label but for a factor and an offset: twice", "samples are also in train"):
        assert leak in found
    with open(tmp_path / "clean.csv", "w", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "b", "price"], *(row[:3] for row in rows[:100])])
    said = call(tmp_path, "init", "clean.csv", "--target", "price", "--output", "j.yaml")
    assert "also in" not in said and "but for a factor" not in said


def test_a_run_goes_on_without_the_weights_that_it_began_with(tmp_path):
    write_tables(tmp_path)
    (tmp_path / "a.yaml").write_text(RECIPE)
    call(tmp_path, "a.yaml", "output_dir=first")
    (tmp_path / "first/checkpoints/epoch-0002/model.safetensors").rename(tmp_path / "w.safetensors")
    weights = ["model.weights=w.safetensors", "training.num_epochs=3"]
    call(tmp_path, "a.yaml", "output_dir=whole", *weights)
    call(tmp_path, "a.yaml", "output_dir=run", *weights, "--stop-after", "4", code=0)
    (tmp_path / "w.safetensors").unlink()
    fault = "model.weights: there is no file or folder w.safetensors"
    assert fault in call(tmp_path, "a.yaml", "output_dir=new", *weights, code=2) and not (tmp_path / "new").exists()
    assert fault in call(tmp_path, "a.yaml", "output_dir=run", *weights, "checkpoint.resume=no", code=2)
    said = call(tmp_path, "a.yaml", "output_dir=run", *weights)
    assert "the initial weights are not there any more, nor needed: all weights come from the checkpoint" in said
    whole, resumed = ((tmp_path / folder / "checkpoints/epoch-0003/model.safetensors").read_bytes() for folder in ("whole", "run"))
    assert whole == resumed
    # Another job's unfinished run lies in the folder: this one begins anew, and cannot.
    call(tmp_path, "a.yaml", "output_dir=other", "seed=2", "--stop-after", "4")
    assert fault in call(tmp_path, "a.yaml", "output_dir=other", *weights, code=2)
