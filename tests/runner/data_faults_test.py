"""Data that does not go with its recipe: said in one line with its place, before the first step."""

import json
import os
import sqlite3
import subprocess

import numpy as np
import pytest

from tests.program import CALLED


def trainrun(folder, *arguments, status=0):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    assert done.returncode == status, text
    assert "frame #" not in text and "Exception raised from" not in text, text
    return text


def recipe(folder, train, layers, loss="CrossEntropyLoss", more="", evaluation=""):
    """A recipe file of these parts; line 4 holds the layers, line 5 the loss."""
    (folder / "r.yaml").write_text(
        f"version: 1\nname: r\nmodel:\n  layers: {layers}\nloss: {loss}\ndataset:\n  train: {train}\n{evaluation}"
        "dataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n" + more)
    return "r.yaml"


def csv(folder, text, name="t.csv"):
    (folder / name).write_text(text)
    return f"{{type: CSV, path: {name}, label: y"


LINEAR = "[{type: Linear, out_features: 3}]"


def started(folder):
    """Whether a step was made."""
    return (folder / "run" / "metrics.jsonl").exists() and "train/loss" in (folder / "run" / "metrics.jsonl").read_text()


def test_a_class_beyond_the_output_is_named_before_the_first_step(tmp_path):
    table = csv(tmp_path, "a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(40)) + "7,3\n")
    said = trainrun(tmp_path, recipe(tmp_path, table + "}", LINEAR), status=1)
    assert "t.csv:42:y: 3 is not from 0 to 2: the output that CrossEntropyLoss (r.yaml:5:7: loss) reads has 3 classes" in said
    assert "classes go up to 3; write model.layers[0].out_features: 4" in said
    assert not started(tmp_path)


def test_classes_counted_from_one_are_recognized(tmp_path):
    table = csv(tmp_path, "a,y\n" + "".join(f"{i},{i % 3 + 1}\n" for i in range(9)))
    said = trainrun(tmp_path, recipe(tmp_path, table + "}", LINEAR), status=1)
    assert "t.csv:4:y: 3 is not from 0 to 2" in said and "must count from 0, and these count from 1; write columns: {'y': category}" in said


def test_evaluation_data_is_looked_at_before_training(tmp_path):
    table = csv(tmp_path, "a,y\n1,0\n2,1\n3,2\n4,0\n")
    csv(tmp_path, "a,y\n1,0\n2,5\n", "e.csv")
    said = trainrun(tmp_path, recipe(tmp_path, table + "}", LINEAR, evaluation="  eval: {type: CSV, path: e.csv, label: y}\n"), status=1)
    assert "e.csv:3:y: 5 is not from 0 to 2" in said
    assert not started(tmp_path)


EMBEDDED = "[{type: Embedding, inputs: city, num_embeddings: 5, embedding_dim: 2}, {type: Linear, out_features: 3}]"


@pytest.mark.parametrize("value, cure", [(7, "write model.layers[0].num_embeddings: 8 or more"), (-1, "indices count from 0")])
def test_an_index_outside_an_embedding_is_named_with_its_row_and_column(tmp_path, value, cure):
    table = csv(tmp_path, f"a,city,y\n1,4,0\n2,{value},1\n")
    said = trainrun(tmp_path, recipe(tmp_path, table + ", columns: {city: integer}}", EMBEDDED), status=1)
    assert f"t.csv:3:city: {value} is not from 0 to 4: Embedding (r.yaml:4:12: model.layers[0]) has num_embeddings 5; {cure}" in said


def test_embeddings_within_blocks_and_bags_are_checked(tmp_path):
    np.savez(tmp_path / "t.npz", ids=np.array([[0, 1], [2, 9], [1, 1], [0, 0]]), label=np.array([0, 1, 2, 0]))
    layers = "[{type: Sequential, layers: [{type: EmbeddingBag, num_embeddings: 5, embedding_dim: 2}]}, {type: Linear, out_features: 3}]"
    said = trainrun(tmp_path, recipe(tmp_path, "{type: TensorFile, path: t.npz}", layers), status=1)
    assert "t.npz:1:ids: 9 is not from 0 to 4: EmbeddingBag (" in said and "model.layers[0].layers[0]" in said


def test_ignored_labels_are_no_fault_and_other_negative_ones_are(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.ones((4, 2), np.float32), label=np.array([0, -100, 2, 0]))
    data = "{type: TensorFile, path: t.npz}"
    trainrun(tmp_path, recipe(tmp_path, data, LINEAR))
    said = trainrun(tmp_path, recipe(tmp_path, data, LINEAR, "{type: CrossEntropyLoss, ignore_index: -1}"), status=1)
    assert "t.npz:1:label: -100 is not from 0 to 2" in said and "ignore_index" in said


def test_what_is_made_sample_by_sample_is_checked_as_it_comes(tmp_path):
    csv(tmp_path, "a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(20)) + "1,6\n")
    windows = "{type: Windows, length: 2, dataset: {type: CSV, path: t.csv, label: y}}"
    said = trainrun(tmp_path, recipe(tmp_path, windows, "[Flatten, {type: Linear, out_features: 3}]"), status=1)
    assert "t.csv:22:y: 6 is not from 0 to 2" in said


def test_parts_and_subsets_name_the_row_of_the_file(tmp_path):
    csv(tmp_path, "a,y\n" + "".join(f"{i},{5 if i == 17 else i % 3}\n" for i in range(20)))
    concat = "{type: Concat, datasets: [{type: CSV, path: t.csv, label: y, subset: 3}, {type: CSV, path: t.csv, label: y, subset: [17, 1]}]}"
    assert "t.csv:19:y: 5 is not" in trainrun(tmp_path, recipe(tmp_path, concat, LINEAR), status=1)


def test_a_vocabulary_above_the_embedding_is_an_error_of_the_recipe(tmp_path):
    tokens = "{type: Synthetic, num_samples: 8, shape: [4], vocab_size: 100}"
    layers = "[{type: Embedding, num_embeddings: 50, embedding_dim: 2}, Flatten, {type: Linear, out_features: 10}]"
    said = trainrun(tmp_path, "validate", recipe(tmp_path, tokens, layers), status=2)
    assert "r.yaml:4:12: model.layers[0]: num_embeddings is 50, but the indices in 'input_ids' go up to 99; write model.layers[0].num_embeddings: 100" in said


def test_a_last_batch_of_one_is_named_where_batch_norm_needs_more(tmp_path):
    layers = "[{type: Linear, out_features: 3}, BatchNorm1d]"
    known = recipe(tmp_path, "{type: Synthetic, num_samples: 9, shape: [2], num_classes: 3}", layers)
    said = trainrun(tmp_path, "validate", known, status=2)
    assert "r.yaml:4:45: model.layers[1]: BatchNorm1d cannot normalize one value per channel in training" in said
    assert "9 samples in batches of 4; write dataloader.drop_last: true" in said
    trainrun(tmp_path, known, "dataloader.drop_last=true")
    table = csv(tmp_path, "a,y\n" + "1,0\n" * 5)
    counted = recipe(tmp_path, table + "}", layers)
    trainrun(tmp_path, "validate", counted)  # how many rows there are is not known
    assert "5 samples in batches of 4" in trainrun(tmp_path, counted, status=2)
    images = recipe(tmp_path, "{type: Synthetic, num_samples: 9, shape: [1, 4, 4], num_classes: 3}",
                    "[{type: BatchNorm2d}, Flatten, {type: Linear, out_features: 3}]")
    trainrun(tmp_path, images)  # 16 values a channel


@pytest.mark.parametrize("more", ["", ", subset: 1000000000000"])
def test_samples_beyond_all_memory_are_refused(tmp_path, more):
    data = "{type: Synthetic, num_samples: 1000000000000, shape: [2], num_classes: 3%s}" % more
    said = trainrun(tmp_path, recipe(tmp_path, data, LINEAR), status=2)
    assert "r.yaml:7:10: dataset.train: 1000000000000 samples: their numbers alone" in said


def test_a_file_that_is_not_there_is_an_error_of_validate(tmp_path):
    table = "{type: CSV, path: none.csv, label: y, features: [a]}"
    said = trainrun(tmp_path, "validate", recipe(tmp_path, table, LINEAR), status=2)
    assert "r.yaml:7:10: dataset.train: none.csv: cannot open: No such file or directory" in said


@pytest.mark.parametrize("kind", ["CSV", "JSONL", "SQLite"])
def test_pipes_devices_and_the_kernels_files_are_refused_at_once(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    for path, what in [("pipe", "a pipe"), ("/dev/zero", "a device"), ("/proc/self/environ", "what the kernel makes up")]:
        more = ", table: t" if kind == "SQLite" else ""
        said = trainrun(tmp_path, "validate", recipe(tmp_path, f"{{type: {kind}, path: {path}, label: y{more}}}", LINEAR), status=2)
        assert f"{path}: expected a file, found {what}" in said


def test_unscaled_features_are_named_with_the_cure(tmp_path):
    rows = "".join(f"{i},{30000 + 900 * i},{i % 3}\n" for i in range(12))
    table = csv(tmp_path, "age,income,y\n" + rows) + "}"
    said = trainrun(tmp_path, recipe(tmp_path, table, LINEAR))
    assert "dataset.train: the model learns best from numbers of about 1 and gets larger ones: 'income' (up to 3.99e+04)" in said and "[Standardize]" in said
    assert "'age'" not in said
    assert "larger ones" not in trainrun(tmp_path, recipe(tmp_path, table, LINEAR), "dataset.transforms=[Standardize]", "output_dir=b")
    assert "larger ones" not in trainrun(tmp_path, recipe(tmp_path, table, "[BatchNorm1d, {type: Linear, out_features: 3}]"), "output_dir=c")


def test_weights_that_leave_nothing_to_draw_are_refused(tmp_path):
    table = csv(tmp_path, "a,w,y\n" + "1,0,0\n2,0,1\n" * 4)
    name = recipe(tmp_path, table + ", columns: {w: integer}}", "[{type: Linear, inputs: features, out_features: 3}]")
    said = trainrun(tmp_path, "validate", name, "dataloader.sampler={type: WeightedRandom, weights: [0, 0]}", status=2)
    assert "dataloader.sampler.weights: are all 0" in said
    said = trainrun(tmp_path, name, "dataloader.sampler={type: WeightedRandom, weights: [0, 0, 1]}", status=1)
    assert "no sample is of a class whose weight is above 0" in said
    assert "some above 0" in trainrun(tmp_path, name, "dataloader.sampler={type: WeightedRandom, weights: w}", status=1)


# --- tables


def test_all_columns_that_cannot_be_read_are_told_at_once_with_what_to_write(tmp_path):
    rows = [f"{30 + i},{['Bern', 'Oslo'][i % 2]},{'true' if i % 3 else 'false'},2024-05-{i + 1:02},{i / 2},{'NA' if i == 4 else i},{i % 2}" for i in range(12)]
    table = csv(tmp_path, "age,city,member,joined,rate,visits,y\n" + "\n".join(rows) + "\n")
    said = trainrun(tmp_path, recipe(tmp_path, table + "}", LINEAR), status=1)
    lines = [line for line in said.splitlines() if "t.csv:" in line]
    assert [line[line.index("t.csv:"):] for line in lines] == [
        "t.csv:2:city: 'Bern' is not a number; write columns: {city: category}",
        "t.csv:2:member: 'false' is not a number; write columns: {member: boolean}",
        "t.csv:2:joined: '2024-05-01' is not a number; write columns: {joined: date}",
        "t.csv:6:visits: the value is missing ('NA'); write columns: {visits: {missing: median}}",
    ]
    cured = "columns: {city: category, member: boolean, joined: date, visits: {missing: median}}"
    trainrun(tmp_path, recipe(tmp_path, table + ", " + cured + "}", "[{type: Linear, inputs: features, out_features: 3}]"))


def test_a_header_that_names_a_column_twice_is_an_error(tmp_path):
    table = csv(tmp_path, "a,b,b,y\n1,2,3,0\n")
    said = trainrun(tmp_path, "validate", recipe(tmp_path, table + ", features: [a]}", LINEAR), status=2)
    assert "t.csv:1:b: two columns are called 'b'" in said
    (tmp_path / "t.jsonl").write_text('{"a": 1, "y": 0}\n{"a": 1, "a": 2, "y": 1}\n')
    said = trainrun(tmp_path, recipe(tmp_path, "{type: JSONL, path: t.jsonl, label: y}", LINEAR), status=1)
    assert "t.jsonl:2: the key 'a' occurs twice" in said
    database = sqlite3.connect(tmp_path / "t.db")
    database.execute("CREATE TABLE t (a, y)")
    database.commit()
    database.close()
    twice = "{type: SQLite, path: t.db, query: 'SELECT a, a, y FROM t', label: y, features: [y, a]}"
    assert "two columns are called 'a'" in trainrun(tmp_path, "validate", recipe(tmp_path, twice.replace("features: [y, a]", "features: [a]"), LINEAR), status=2)


COLUMNS = ["age", "income", "city", "member", "joined", "left", "score", "plan", "visits", "rating"]
TYPES = {"age": "number", "income": "number", "city": "category", "member": "boolean", "joined": "date", "left": "date", "score": "number",
         "plan": "category", "visits": "number", "rating": "number", "churn": "category"}


def mixed_rows(random, count):
    rows = []
    for _ in range(count):
        age, visits, member = random.integers(18, 80), random.integers(0, 40), random.random() < 0.5
        row = [age, f"{random.normal(50000, 9000):.2f}", random.choice(["Bern", "Oslo", "Rome"]), random.choice(["yes", "Yes"]) if member else "no",
               f"20{random.integers(10, 25)}-0{random.integers(1, 10)}-1{random.integers(0, 10)}",
               f"{random.integers(13, 29)}.0{random.integers(1, 10)}.2024", f"{random.random():.3f}", random.choice(["free", "pro", "NA"]), visits,
               random.integers(1, 6)]
        row = [value if random.random() > 0.05 else random.choice(["", "NA", "nan"] if name not in ("city", "plan") else [""])
               for name, value in zip(COLUMNS, row)]
        rows.append(row + ["stays" if age + 2 * visits + 30 * member > 90 else "leaves"])
    return rows


def table_text(rows):
    return "\n".join([",".join(COLUMNS + ["churn"])] + [",".join(map(str, row)) for row in rows]) + "\n"


def write(value, kind):
    """A cell as JSON or SQLite has it."""
    text = str(value)
    if text in ("", "NA", "nan") and kind != "plan":
        return None
    if kind == "member":
        return text.lower() == "yes"
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("kind", ["CSV", "JSONL", "SQLite"])
def test_a_table_of_mixed_types_trains_with_columns_auto_at_the_first_try(tmp_path, kind):
    random = np.random.default_rng(0)
    train, test = mixed_rows(random, 300), mixed_rows(random, 60)
    test[0][COLUMNS.index("city")] = "Paris"  # which training has not seen
    for name, rows in [("train", train), ("test", test)]:
        if kind == "CSV":
            (tmp_path / f"{name}.csv").write_text(table_text(rows))
            continue
        cells = [[write(value, column) for column, value in zip(COLUMNS + ["churn"], row)] for row in rows]
        if kind == "JSONL":
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(dict(zip(COLUMNS + ["churn"], row))) + "\n" for row in cells))
            continue
        database = sqlite3.connect(tmp_path / f"{name}.db")
        database.execute("CREATE TABLE t (" + ", ".join(f'"{column}"' for column in COLUMNS + ["churn"]) + ")")
        database.executemany("INSERT INTO t VALUES (" + ", ".join("?" * 11) + ")", cells)
        database.commit()
        database.close()
    ending = {"CSV": "csv", "JSONL": "jsonl", "SQLite": "db"}[kind]
    more = ", table: t" if kind == "SQLite" else ""
    data = {name: f"{{type: {kind}, path: {name}.{ending}, label: churn, columns: auto{more}}}" for name in ("train", "test")}
    layers = "[{type: Linear, out_features: 16}, ReLU, {type: Linear, out_features: 2}]"
    evaluation = f"  eval: {data['test']}\n  transforms: [Standardize]\n"
    name = recipe(tmp_path, data["train"], layers, more="metrics: [Accuracy]\n", evaluation=evaluation)
    trainrun(tmp_path, "validate", name)

    explained = trainrun(tmp_path, "explain", name)
    for column, type_name in TYPES.items():
        assert any(line.split()[:2] == [column, type_name] or line.split()[:2] == [column, type_name + ","] for line in explained.splitlines()), column
    assert "inferred from its 300 rows" in explained and "format: '%d.%m.%Y'" in explained

    said = trainrun(tmp_path, name, "training.num_epochs=12", "optimizer={type: AdamW, lr: 0.01}")
    assert "columns: auto: age number (" in said
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line for line in lines if line["split"] == "eval"][-1]["eval/accuracy"] > 0.8

    # The line that explain gives says the same without looking at the values.
    fixed = next(line.strip() for line in explained.splitlines() if line.strip().startswith("columns: {"))
    (tmp_path / "fixed.yaml").write_text((tmp_path / name).read_text().replace("columns: auto", fixed))
    said = trainrun(tmp_path, "fixed.yaml", "training.num_epochs=12", "optimizer={type: AdamW, lr: 0.01}", "output_dir=fixed")
    losses = [[json.loads(line).get("train/loss") for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()] for run in ("run", "fixed")]
    assert losses[0] == losses[1]
    assert "accuracy" in trainrun(tmp_path, "eval", "run")


@pytest.mark.parametrize("values, expected", [
    (["1", "2.5", "", "NA"], "number"), (["true", "False", "T"], "boolean"), (["0", "1", "1"], "boolean"),
    (["2024-01-31", "2023-12-01T08:00:00Z"], "date"), (["31/01/2024", "01/02/2024"], "{type: date, format: '%d/%m/%Y'"),
    (["31.01.24", "01.02.99"], "{type: date, format: '%d.%m.%y'"), (["31/1/24", "1/2/99"], "{type: date, format: '%d/%m/%y'"),
    (["1.2.10", "1.10.3", "2.0.11"], "categories: ['1.10.3', '1.2.10', '2.0.11']"),
    (["Oslo", "Bern", "NA"], "categories: [Bern, NA, Oslo]"), (["a", "", "b"], "categories: [a, b, '(missing)']"),
], ids=str)
def test_what_a_column_is_inferred_to_be(tmp_path, values, expected):
    rows = [f"{values[i % len(values)]},{i % 3}" for i in range(30)]
    table = csv(tmp_path, "x,y\n" + "\n".join(rows) + "\n")
    explained = trainrun(tmp_path, "explain", recipe(tmp_path, table + ", columns: auto}", LINEAR))
    line = next(line for line in explained.splitlines() if line.split()[:1] == ["x"] or line.strip().startswith("x "))
    given = next(line for line in explained.splitlines() if line.strip().startswith("columns: {"))
    assert expected in line + given


@pytest.mark.parametrize("values, expected, cure", [
    ([f"text number {i}" for i in range(30)], "t.csv:x: holds text: 30 different values in 30 rows", "write features: [z]"),
    (["01/02/2024", "03/04/2024"], "may be month/day/year ('%m/%d/%Y') or day/month/year ('%d/%m/%Y')",
     "write columns: {x: {type: date, format: '%m/%d/%Y', missing: median}, z: {missing: median}}"),
    (["01/02/24", "03/04/24"], "may be month/day/year ('%m/%d/%y') or day/month/year ('%d/%m/%y')", "format: '%m/%d/%y'"),
    (["03.05.2021", "04.05.2021", "05.05.21"], "holds dates written in different ways: 20 as %d.%m.%Y, 10 as %d.%m.%y", "write features: [z]"),
    (["", "NA"], "has no value in any row", "write features: [z]"),
], ids=str)
def test_what_cannot_be_inferred_is_refused_with_a_hint(tmp_path, values, expected, cure):
    rows = [f"{values[i % len(values)]},{i},{i % 3}" for i in range(30)]
    table = csv(tmp_path, "x,z,y\n" + "\n".join(rows) + "\n")
    said = trainrun(tmp_path, "explain", recipe(tmp_path, table + ", columns: auto}", LINEAR), status=2)
    assert expected in said
    assert cure in said


@pytest.mark.parametrize("text, days", [("1970-01-02", 1), ("2000-02-29T12:00", 11016.5), ("1969-12-31 18:00:00-06:00", 0), ("1970-01-01T00:00:00Z", 0)])
def test_dates_are_days_since_1970(tmp_path, text, days):
    table = csv(tmp_path, "x,y\n" + f"{text},0\n1970-01-01,1\n")
    layers = "[{type: Linear, out_features: 1, bias: false, init: [{match: weight, type: Ones}]}]"
    regression = table.replace("label: y", "label: y, task: regression") + ", columns: {x: date}, subset: 1}"
    trainrun(tmp_path, recipe(tmp_path, regression, layers, "L1Loss", more="logging: {every_steps: 1}\n"))
    line = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    assert line["train/loss"] == pytest.approx(days)
