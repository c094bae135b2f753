"""What a newcomer stumbled over who had the guides alone (2026-11-26): what was silently wrong is told or refused, advice works when it is
followed to the letter, and a model that was trained can be used."""

import csv
import io
import json
import re
import shlex
import sqlite3

import numpy as np
import pytest
import torch
from PIL import Image

from newcomer import FLATS, ISO, TABLE, as_csv, fixture_flats, followed, recipe, trainrun, write_tokenizer  # noqa: F401: a fixture


# --- Predictions for tables that are written in another way -----------------------------------------------------


@pytest.mark.parametrize("name, text", [
    ("semicolons.csv", as_csv(FLATS, ";")),
    ("tabs.csv", as_csv(FLATS, "\t")),
    ("commas.csv", as_csv(FLATS, ",", lambda x: f"{x:.1f}".replace(".", ","))),
    ("thousands.csv", as_csv([{**row, "area": row["area"] + 1000} for row in FLATS], ",", lambda x: f"{x:,.1f}")),
])
def test_advice_on_how_new_data_are_written_is_for_the_command(flats, name, text):
    (flats / name).write_text(text)
    said = trainrun(flats, "predict", "run", name, status=1)
    assert len(said.strip().splitlines()) == 1, said
    assert "write " not in said
    got = trainrun(flats, "predict", "run", name, *followed(said))
    if name != "thousands.csv":
        (flats / "same.csv").write_text(as_csv(FLATS))
        assert got == trainrun(flats, "predict", "run", "same.csv")


def test_advice_names_the_data_within_what_wraps_them(tmp_path):
    (tmp_path / "train.csv").write_text(as_csv(FLATS))
    (tmp_path / "new.csv").write_text(as_csv(FLATS, ";"))
    wrapped = TABLE.replace("train: {type: CSV, path: train.csv, label: rent, columns: auto, id: flat}",
                            "train: {type: Split, dataset: {type: CSV, path: train.csv, label: rent, columns: auto, id: flat}}")
    (tmp_path / "r.yaml").write_text(wrapped)
    trainrun(tmp_path, "r.yaml")
    advice = followed(trainrun(tmp_path, "predict", "run", "new.csv", status=1))
    assert advice == ['dataset.train.dataset.delimiter=";"']
    assert trainrun(tmp_path, "predict", "run", "new.csv", *advice) == trainrun(tmp_path, "predict", "run", "train.csv")


def test_dates_of_iso_8601_are_read_where_the_training_data_had_another_form(flats):
    (flats / "iso.csv").write_text(as_csv(ISO))
    (flats / "iso.jsonl").write_text("".join(json.dumps({**row, "built": row["built"] + "T00:00:00.000"}) + "\n" for row in ISO))
    (flats / "same.csv").write_text(as_csv(FLATS))
    want = trainrun(flats, "predict", "run", "same.csv")
    assert trainrun(flats, "predict", "run", "iso.csv") == want
    assert trainrun(flats, "predict", "run", "iso.jsonl") == want
    for other in ("1/2/1999", "01.02.99"):  # strptime alone would take the second for a day in the year 99
        (flats / "other.csv").write_text(as_csv([{**row, "built": other} for row in FLATS]))
        assert f"'{other}' is not a date of the form %d.%m.%Y" in trainrun(flats, "predict", "run", "other.csv", status=1)


def test_a_format_that_begins_with_the_year_takes_no_other_date(tmp_path):
    rows = [{**row, "built": "-".join([row["built"][6:], row["built"][:2], row["built"][3:5]])} for row in FLATS]  # year, day, month
    (tmp_path / "train.csv").write_text(as_csv(rows))
    (tmp_path / "r.yaml").write_text(TABLE.replace("columns: auto", "columns: {built: {type: date, format: '%Y-%d-%m'}}"))
    trainrun(tmp_path, "r.yaml")
    (tmp_path / "iso.csv").write_text(as_csv([{**row, "built": "1999-01-31"} for row in FLATS]))
    assert "'1999-01-31' is not a date of the form %Y-%d-%m" in trainrun(tmp_path, "predict", "run", "iso.csv", status=1)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_in_json_is_refused_with_what_pandas_writes_instead(flats, indent):
    (flats / "list.json").write_text(json.dumps(FLATS, indent=indent))
    said = trainrun(flats, "predict", "run", "list.json", status=1)
    assert "list.json: is a list in JSON; write JSON lines" in said and "to_json(path, orient='records', lines=True)" in said
    (flats / "lines.json").write_text("".join(json.dumps(row) + "\n" for row in FLATS))
    trainrun(flats, "predict", "run", "lines.json")


def test_standard_input_is_called_so(flats):
    said = trainrun(flats, "predict", "run", "-", status=1, stdin=as_csv(FLATS).replace("40.5", "forty").encode())
    assert "trainrun-standard-input" not in said
    assert "standard input:12:area: 'forty' is not a number" in said
    said = trainrun(flats, "predict", "run", "-", "--broken", "skip", stdin=as_csv(FLATS).replace("40.5", "forty").encode())
    assert "left out: standard input:12:area" in said


# --- Parts of the same data -------------------------------------------------------------------------------------

SAME = "[0.8, 0.2]"


@pytest.mark.parametrize("train, evaluation, note", [
    (f"split: {{fractions: {SAME}, part: train}}", f"split: {{fractions: {SAME}, part: validation}}", None),
    (f"split: {{fractions: {SAME}, part: train, seed: 0}}", "split: {part: test}", None),
    (f"split: {{fractions: {SAME}, part: train, seed: 1}}", f"split: {{fractions: {SAME}, part: test}}", "by another seed, so that they have samples in common"),
    ("split: {part: train, stratify: true}", "split: {part: test, fractions: [0.7, 0.3]}", "by another fractions, stratify, so that"),
    ("split: {part: train}", "split: {part: train}", "is the part of the data that dataset.train is"),
    ("split: {part: train}", "task: classification", "reads all the data of which dataset.train has a part"),
    ("task: classification", "split: {part: test}", "has a part of the data that dataset.train reads whole"),
    ("task: classification", "task: classification", None),
])
@pytest.mark.parametrize("wraps", [False, True])
def test_parts_that_have_samples_in_common_are_told(tmp_path, train, evaluation, note, wraps):
    (tmp_path / "train.csv").write_text("x,kind\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))

    def data(options):
        inner = "{type: CSV, path: train.csv, label: kind"
        if not wraps or "split" not in options:
            return f"{inner}, {options}}}"
        return f"{{type: Split, dataset: {inner}}}, {options.removeprefix('split: {')}"

    if wraps and ("split" not in train or "split" not in evaluation):
        pytest.skip("a Split is around both")
    (tmp_path / "r.yaml").write_text(
        f"version: 1\nmodel: {{layers: [{{type: Linear, out_features: 2}}]}}\nloss: CrossEntropyLoss\ndataset:\n  train: {data(train)}\n  eval: {data(evaluation)}\n"
        "dataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\n")
    said = trainrun(tmp_path, "validate", "r.yaml")
    assert (note in said) if note else ("part" not in said and "dataset" not in said), said


def test_a_fault_of_the_evaluation_data_says_that_it_is_of_them(tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n1,0\n2,1\n3,0\n4,1\n")
    (tmp_path / "b.csv").write_text("x,kind\n1,0\n,1\n")
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [{type: Linear, out_features: 2}]}\nloss: CrossEntropyLoss\ndataset:\n  train: {type: CSV, path: a.csv, label: kind}\n"
        "  eval: {type: CSV, path: b.csv, label: kind}\ndataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\n")
    assert "dataset.eval: b.csv:3:x: the value is missing" in trainrun(tmp_path, "r.yaml", status=1)


def test_predictions_for_a_part_of_other_evaluation_data_are_told(tmp_path):
    rows = np.arange(80, dtype="f4").reshape(20, 4)
    np.savez(tmp_path / "a.npz", x=rows, label=np.arange(20) % 2)
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [{type: Linear, out_features: 2}]}\nloss: CrossEntropyLoss\ndataset:\n  train: {type: TensorFile, path: a.npz, num_classes: 2, split: {part: train}}\n"
        "  eval: {type: TensorFile, path: a.npz, num_classes: 2, split: {part: test}}\ndataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.001}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    trainrun(tmp_path, "r.yaml")
    assert "part" not in trainrun(tmp_path, "predict", "run")
    said = trainrun(tmp_path, "predict", "run", "dataset.eval.path=a.npz")
    assert "for the part of the data that dataset.eval.split takes, numbered from 0; for all of them add 'dataset.eval.split=!remove'" in said
    said = trainrun(tmp_path, "predict", "run", "dataset.eval.path=a.npz", "dataset.eval.split=!remove")
    assert len(said.splitlines()) == 21 and "part" not in said
    assert "part" not in trainrun(tmp_path, "eval", "run")
    said = trainrun(tmp_path, "eval", "run", "dataset.eval.path=a.npz")
    assert "the figures are for the part of the data that dataset.eval.split takes (samples: 4); for all of them add 'dataset.eval.split=!remove'" in said
    assert "part" not in trainrun(tmp_path, "eval", "run", "dataset.eval.path=a.npz", "dataset.eval.split=!remove")


# --- Pictures, series, the command line -------------------------------------------------------------------------


def write_masks(folder, most):
    for name in ("images", "masks"):
        (folder / name).mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(generator.integers(0, 255, (8, 8, 3), dtype="u1")).save(folder / "images" / f"{i}.png")
        Image.fromarray(np.full((8, 8), i % (most + 1), dtype="u1")).save(folder / "masks" / f"{i}.png")


def test_masks_with_more_classes_than_the_recipe_says(tmp_path):
    write_masks(tmp_path, 3)
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [{type: Conv2d, out_channels: 4, kernel_size: 1}]}\nloss: {type: CrossEntropyLoss, ignore_index: 255}\n"
        "dataset: {train: {type: SegmentationFolder, root: ., num_classes: 3}}\ndataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    said = trainrun(tmp_path, "r.yaml", status=1)
    assert "images/3.png: 3 is not from 0 to 2: the data set says that 'mask' has 3 classes; write num_classes: 4, or more, there" in said
    trainrun(tmp_path, "r.yaml", "dataset.train.num_classes=4", "output_dir=four")
    Image.fromarray(np.full((8, 8), 255, dtype="u1")).save(tmp_path / "masks" / "3.png")  # which does not count
    trainrun(tmp_path, "r.yaml", "output_dir=void")


def test_a_picture_that_cannot_be_read_has_the_option_of_predict(tmp_path):
    for kind in "ab":
        (tmp_path / "p" / kind).mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), ord(kind), dtype="u1")).save(tmp_path / "p" / kind / "1.png")
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [Flatten, {type: Linear, out_features: 2}]}\nloss: CrossEntropyLoss\ndataset: {train: {type: ImageFolder, root: p}}\n"
        "dataloader: {batch_size: 2}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    trainrun(tmp_path, "r.yaml")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0no picture")
    said = trainrun(tmp_path, "predict", "run", "broken.jpg", "p/a/1.png", status=1)
    assert "--broken skip leaves such files out" in said and "broken: skip" not in said
    trainrun(tmp_path, "predict", "run", "broken.jpg", "p/a/1.png", "--broken", "skip")
    said = trainrun(tmp_path, "predict", "run", "-", stdin=(tmp_path / "p" / "b" / "1.png").read_bytes())
    assert said.splitlines()[1].startswith("-,")


@pytest.mark.parametrize("layer", [
    "{type: GRU, hidden_size: 5, batch_first: true}",
    "{type: LSTM, hidden_size: 5, num_layers: 2, bidirectional: true, proj_size: 3, batch_first: true}",
    "{type: RNN, hidden_size: 5, batch_first: true}",
])
def test_a_forecast_is_exported_for_any_number_of_samples(tmp_path, layer):
    generator = np.random.default_rng(0)
    (tmp_path / "s.csv").write_text("day,price,sales\n" + "".join(f"2024-01-{i + 1:02},{generator.normal():.4f},{generator.normal():.4f}\n" for i in range(31)))
    (tmp_path / "r.yaml").write_text(
        f"version: 1\nmodel: {{layers: [{layer}, {{type: Select, dim: 1, index: -1}}, {{type: Linear, out_features: 2}}]}}\nloss: L1Loss\n"
        "dataset:\n  train: &w {type: Windows, length: 6, horizon: 2, time: day, dataset: {type: CSV, path: s.csv, label: sales, task: regression, features: [price]}}\n  eval: *w\n"
        "dataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    trainrun(tmp_path, "r.yaml")
    trainrun(tmp_path, "export", "run", "--format", "torchscript", "--output", "model.pt")
    trainrun(tmp_path, "predict", "run", "--output", "p.npz")
    rows = list(csv.DictReader((tmp_path / "s.csv").open()))
    table = np.array([[float(row["price"]), float(row["sales"])] for row in rows], dtype="f4")
    windows = torch.tensor(np.stack([table[i : i + 6] for i in range(31 - 7)]))
    module = torch.jit.load(tmp_path / "model.pt")
    arrays = np.load(tmp_path / "p.npz")
    want = np.stack([arrays[name] for name in ("sales[1]", "sales[2]")], 1)
    for count in (1, 5, 24):
        with torch.no_grad():
            np.testing.assert_allclose(module(windows[:count]).numpy(), want[:count], rtol=1e-5, atol=1e-6)


def test_two_transforms_that_are_advised_can_both_be_added(tmp_path):
    (tmp_path / "train.csv").write_text("x,rent\n" + "".join(f"{5000 * i},{900 * i}\n" for i in range(40)))
    (tmp_path / "r.yaml").write_text(TABLE.replace(", columns: auto, id: flat", ", task: regression").replace(
        "  transforms: [Standardize, {type: Standardize, field: label}]\n", "").replace("lr: 0.1", "lr: 1e-12"))
    said = trainrun(tmp_path, "r.yaml")
    assert "write dataset.transforms: [Standardize]" in said and "add {type: Standardize, field: label} to dataset.transforms" in said
    said = trainrun(tmp_path, "r.yaml", "dataset.transforms=[{type: Standardize, field: label}]", "output_dir=two")
    assert "add Standardize to dataset.transforms" in said and "deviation" not in said
    said = trainrun(tmp_path, "r.yaml", "dataset.transforms=[{type: Standardize, field: label}, Standardize]", "output_dir=three")
    assert "dataset.transforms" not in said


def test_a_value_that_begins_with_a_percent_sign_is_told_to_be_quoted(tmp_path):
    (tmp_path / "train.csv").write_text(as_csv(FLATS))
    (tmp_path / "r.yaml").write_text(TABLE.replace("columns: auto", "columns: {built: date}"))
    said = trainrun(tmp_path, "validate", "r.yaml", "dataset.train.columns.built={type: date}", "dataset.train.columns.built.format=%d.%m.%Y", status=2)
    advice = re.search(r"write ('.*')", said)
    assert "a value that begins with % needs quotation marks" in said and advice, said
    trainrun(tmp_path, "r.yaml", "dataset.train.columns.built={type: date}", *shlex.split(advice[1]))


@pytest.mark.parametrize("change, near", [
    ("metrics=[JaccardIndex]", "MeanIoU"), ("metrics=[mIoU]", "MeanIoU"), ("metrics=[R2Score]", "R2"), ("metrics=[r2_score]", "R2"), ("loss=MAELoss", "L1Loss"),
    ("metrics=[mape]", "MAPE"), ("metrics=[MeanAbsolutePercentageError]", "MAPE"),
])
def test_names_that_other_libraries_have(flats, change, near):
    assert f"did you mean {near}?" in trainrun(flats, "validate", "r.yaml", change, status=2)


# --- What the second round mended -------------------------------------------------------------------------------


YES_NO = "stays,age\n" + "".join(f"{'yes' if i % 3 else 'no'},{i}\n" for i in range(24))


def test_a_class_that_training_lacks_is_given_an_output_as_advised(tmp_path):
    (tmp_path / "t.csv").write_text(YES_NO)
    (tmp_path / "e.csv").write_text(YES_NO + "maybe,7\n")
    tables = ["{type: CSV, path: %s.csv, label: stays, columns: COLUMNS}" % name for name in "te"]
    dataset = f"train: {tables[0]}, eval: {tables[1]}"
    recipe(tmp_path, "{type: Linear, out_features: 2}", "CrossEntropyLoss", dataset.replace("COLUMNS", "{stays: category}"))
    said = trainrun(tmp_path, "r.yaml", status=1)
    assert "allow_unknown" not in said and "e.csv:26:stays: category 'maybe' is in no training sample" in said
    columns = re.search(r"columns: (\{stays: \{.*?\}\})", said)[1]
    recipe(tmp_path, "{type: Linear, out_features: 3}", "CrossEntropyLoss", dataset.replace("COLUMNS", columns))
    trainrun(tmp_path, "r.yaml")


def test_the_width_and_the_squeeze_that_numbers_need_are_told(tmp_path):
    numbers = np.arange(12, dtype=np.float32)
    np.savez(tmp_path / "one.npz", x=np.stack([numbers, numbers], 1), y=numbers)
    np.savez(tmp_path / "three.npz", x=np.stack([numbers, numbers], 1), y=np.stack([numbers] * 3, 1))
    linear = "{type: Linear, out_features: 1}"
    recipe(tmp_path, linear, "MSELoss", "train: {type: TensorFile, path: one.npz}")
    assert "target: says which is to be predicted" in trainrun(tmp_path, "r.yaml", status=2)
    recipe(tmp_path, linear, "MSELoss", "train: {type: TensorFile, path: one.npz, target: y}")
    squeeze = re.search(r"put (\{.*?\}) behind", trainrun(tmp_path, "r.yaml", status=2))[1]
    recipe(tmp_path, f"{linear}, {squeeze}", "MSELoss", "train: {type: TensorFile, path: one.npz, target: y}")
    trainrun(tmp_path, "r.yaml")
    recipe(tmp_path, linear, "MSELoss", "train: {type: TensorFile, path: three.npz, target: y}")
    width = re.search(r"write (out_features: \d+)", trainrun(tmp_path, "r.yaml", status=2))[1]
    recipe(tmp_path, linear.replace("out_features: 1", width), "MSELoss", "train: {type: TensorFile, path: three.npz, target: y}")
    trainrun(tmp_path, "r.yaml", "output_dir=other")


def test_a_database_says_which_tables_it_has(tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("CREATE TABLE flats (area REAL, rent REAL)")
        database.execute("CREATE TABLE streets (name TEXT)")
    recipe(tmp_path, "{type: Linear, out_features: 1}", "MSELoss", "train: {type: SQLite, path: t.db, label: rent}")
    assert "the file has the tables flats, streets" in trainrun(tmp_path, "validate", "r.yaml", status=2)


def test_a_table_of_pictures_is_predicted_for(tmp_path):
    for i in range(6):
        Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(tmp_path / f"p{i}.png")
    (tmp_path / "t.csv").write_text("photo,label\n" + "".join(f"p{i}.png,{'dark' if i < 3 else 'red'}\n" for i in range(6)))
    (tmp_path / "new").mkdir()
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "new" / "n.png")
    (tmp_path / "new" / "new.csv").write_text("photo\nn.png\n../p0.png\n")
    recipe(tmp_path, "Flatten, {type: Linear, out_features: 2}", "CrossEntropyLoss", "train: {type: ImageCSV, path: t.csv, image: photo}")
    trainrun(tmp_path, "r.yaml")
    rows = list(csv.DictReader(io.StringIO(trainrun(tmp_path, "predict", "run", "new/new.csv"))))
    assert [row["file"] for row in rows] == ["new/n.png", "new/../p0.png"]
    same = list(csv.DictReader(io.StringIO(trainrun(tmp_path, "predict", "run", "new/n.png", "p0.png"))))
    assert [row["p(red)"] for row in rows] == [row["p(red)"] for row in same]
    (tmp_path / "new" / "bad.csv").write_text("picture\nn.png\n")
    assert "bad.csv: there is no column 'photo'" in trainrun(tmp_path, "predict", "run", "new/bad.csv", status=1)


def test_a_table_that_is_read_as_bare_text_is_told(tmp_path):
    (tmp_path / "t.csv").write_text(YES_NO)
    (tmp_path / "t.txt").write_text(YES_NO)
    for name, is_told in [("t.csv", True), ("t.txt", False)]:
        recipe(tmp_path, "{type: Embedding, num_embeddings: 64, embedding_dim: 8, inputs: input_ids}, {type: Linear, out_features: 64}", "CausalLMLoss", f"train: {{type: TextLM, path: {name}, tokenizer: characters, block_size: 8}}")
        assert ("is a table, and is read as bare text" in trainrun(tmp_path, "data", "r.yaml")) == is_told


def test_a_sentence_a_line_is_told_how_words_are_written(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "t.conll").write_text("the O\nsoup B\n\nwas O\ngood B\n")
    recipe(tmp_path, "{type: Embedding, num_embeddings: 16, embedding_dim: 8, inputs: input_ids}, {type: Linear, out_features: 2}",
           "{type: CrossEntropyLoss, class_dim: -1}", "train: {type: TokenClassification, path: t.conll, tokenizer: tokenizer.json, max_length: 8}")
    trainrun(tmp_path, "r.yaml")
    (tmp_path / "new.txt").write_text("the soup was good\nbad soup\n")
    assert "new.txt:2: has 2 columns, line 1 has 4; expected a word a line, and an empty line after" in trainrun(tmp_path, "predict", "run", "new.txt", status=1)


@pytest.mark.parametrize("columns", ["columns: auto", "columns: {stays: boolean}"])
def test_a_label_of_yes_and_no_is_predicted_by_these_words(tmp_path, columns):
    (tmp_path / "t.csv").write_text(YES_NO)
    table = f"{{type: CSV, path: t.csv, label: stays, {columns}}}"
    recipe(tmp_path, "{type: Linear, out_features: 1}", "BCEWithLogitsLoss", f"train: {table}, eval: {table}", "metrics: [F1]\n")
    trainrun(tmp_path, "r.yaml")
    header, *rows = trainrun(tmp_path, "predict", "run", "t.csv").splitlines()
    assert "p(no)" in header and "p(yes)" in header
    assert {row.split(",")[header.split(",").index("stays")] for row in rows if row} <= {"yes", "no"}
    assert "yes" in trainrun(tmp_path, "eval", "run", "--report")


@pytest.mark.parametrize("text", [YES_NO.replace("yes,1\n", "true,1\n"), YES_NO.replace("yes", "1").replace("no,", "0,")])
def test_a_label_of_several_words_or_numbers_is_predicted_as_0_and_1(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    recipe(tmp_path, "{type: Linear, out_features: 1}", "BCEWithLogitsLoss", "train: {type: CSV, path: t.csv, label: stays, columns: {stays: boolean}}")
    trainrun(tmp_path, "r.yaml")
    assert "p(0)" in trainrun(tmp_path, "predict", "run", "t.csv").splitlines()[0]
