"""Parquet and Arrow files that pyarrow wrote: the same values as from a CSV file of the same rows, and the same training."""

import math
import pathlib
import re
import subprocess

import pytest
import torch

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: tools/setup --tests fetches it")

import pyarrow.feather  # noqa: E402
import pyarrow.ipc  # noqa: E402
import pyarrow.parquet  # noqa: E402

import reference  # noqa: E402
from parquet_rows import CITIES, COLUMNS, FORMS, RECIPE_COLUMNS, ROWS, TRAINED, error_of, read, table, write_csv, write_recipe, write_stream  # noqa: E402
from probe import assert_same  # noqa: E402
from reference import training_losses  # noqa: E402
from tests.program import CALLED  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", name="of_csv")
def values_of_csv(probe, tmp_path_factory):
    path = write_csv(tmp_path_factory.mktemp("csv") / "t.csv", {name: values for name, (values, _, _) in COLUMNS.items()})
    return read(probe, type="CSV", path=path, label="label", columns=RECIPE_COLUMNS)


@pytest.mark.parametrize("codec, group, options", FORMS, ids=[form[0] for form in FORMS])
def test_parquet_has_the_values_of_csv(probe, tmp_path, of_csv, codec, group, options):
    path = tmp_path / "rows"  # what the file is, is seen by its content
    pyarrow.parquet.write_table(table(), path, compression=codec, row_group_size=group, **options)
    assert pyarrow.parquet.ParquetFile(path).num_row_groups == math.ceil(ROWS / group)
    fields, reply = read(probe, type="Parquet", path=str(path), label="label", columns=RECIPE_COLUMNS)
    assert_same(fields, of_csv[0], codec)
    assert reply["learnt"] == of_csv[1]["learnt"] and reply["fields"] == of_csv[1]["fields"]


@pytest.mark.parametrize("write", [
    lambda rows, path: pyarrow.feather.write_feather(rows, path, compression="uncompressed", chunksize=64),
    lambda rows, path: pyarrow.feather.write_feather(rows, path, compression="lz4"),
    lambda rows, path: pyarrow.feather.write_feather(rows, path, compression="zstd", chunksize=10),
    write_stream,
    lambda rows, path: write_stream(rows, path, options=pyarrow.ipc.IpcWriteOptions(compression="zstd")),
], ids=["feather", "lz4", "zstd", "stream", "zstd_stream"])
def test_arrow_has_the_values_of_csv(probe, tmp_path, of_csv, write):
    write(table(), tmp_path / "t.arrow")
    fields, reply = read(probe, type="Parquet", path=str(tmp_path / "t.arrow"), label="label", columns=RECIPE_COLUMNS)
    assert_same(fields, of_csv[0], "arrow")
    assert reply["learnt"] == of_csv[1]["learnt"]


def test_views_of_texts_and_columns_of_nothing(probe, tmp_path):
    rows = pyarrow.table({"view": pyarrow.array(["a", None, "a text that is longer than twelve bytes"], pyarrow.string_view()),
                          "none": pyarrow.nulls(3), "label": [0, 1, 1]})
    pyarrow.feather.write_feather(rows, tmp_path / "t.feather")
    columns = {"view": {"type": "category", "missing": "b"}, "none": {"missing": 2}}
    fields, reply = read(probe, type="Parquet", path=str(tmp_path / "t.feather"), label="label", columns=columns)
    assert fields["features"].tolist() == [[2], [2], [2]] and fields["view"].tolist() == [0, 2, 1]
    assert reply["learnt"] == {"view": {"categories": ["a", "a text that is longer than twelve bytes", "b"]}}


def test_nan_is_a_missing_value_as_pandas_has_it_and_infinity_is_an_error(probe, tmp_path):
    spec = {"type": "Parquet", "path": str(tmp_path / "t.parquet"), "label": "label", "columns": {"x": {"missing": "mean"}}}
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, math.nan, 3.0], "label": [0, 1, 0]}), spec["path"])
    assert read(probe, **spec)[0]["features"].tolist() == [[1], [2], [3]]
    assert "t.parquet:2:x: the value is missing" in error_of(probe, **spec | {"columns": {}})
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, -math.inf], "label": [0, 1]}), spec["path"])
    assert "t.parquet:2:x: '-inf' is too large or too small" in error_of(probe, **spec)


@pytest.mark.parametrize("kind", [pyarrow.list_, pyarrow.large_list, lambda item: pyarrow.list_(item, 3)], ids=["list", "large", "fixed"])
def test_lists_are_fields_of_their_own(probe, tmp_path, kind):
    ids, boxes = [[5, 6, 7], [1, 2, 3]], [[[1, 2.5], [3, 4]], [[0, 0], [0, 1]]]
    rows = pyarrow.table({"ids": pyarrow.array(ids, kind(pyarrow.int32())), "box": pyarrow.array(boxes, pyarrow.list_(pyarrow.list_(pyarrow.float32()))),
                          "label": [1, 0], "info": [{"not": "read"}] * 2, "picture": [b"\xff", b""]})
    spec = {"type": "Parquet", "path": str(tmp_path / "t.parquet"), "label": "label", "features": ["ids", "box"],
            "columns": {"ids": {"type": "integer", "shape": [3]}, "box": {"shape": [2, 2]}}}
    pyarrow.parquet.write_table(rows, spec["path"])
    fields, _ = read(probe, **spec)
    assert_same(fields, {"ids": torch.tensor(ids), "box": torch.tensor(boxes), "label": torch.tensor([1, 0])}, "lists")
    ragged = pyarrow.table({"ids": [[1, 2, 3], [1, 2]], "box": boxes, "label": [0, 1]})
    pyarrow.parquet.write_table(ragged, spec["path"])
    assert "t.parquet:2:ids: a list of 2 numbers, expected 3" in error_of(probe, **spec)


def test_types_are_inferred_as_from_csv(probe, tmp_path):
    names = ["int32", "double", "decimal_64", "flag", "day", "micros", "city", "coded", "label"]
    write_csv(tmp_path / "t.csv", {name: COLUMNS[name][0] for name in names})
    pyarrow.parquet.write_table(table(names), tmp_path / "t.parquet", row_group_size=90)
    split = {"fractions": [0.8, 0.2], "seed": 1, "part": "train"}
    for more in ({}, {"split": split}, {"split": split | {"stratify": True}}, {"split": split | {"group": "city"}}):
        expected, of_csv = read(probe, type="CSV", path=str(tmp_path / "t.csv"), label="label", columns="auto", **more)
        fields, reply = read(probe, type="Parquet", path=str(tmp_path / "t.parquet"), label="label", columns="auto", **more)
        assert_same(fields, expected, "inferred")
        assert reply == of_csv


def test_several_files_follow_each_other_whatever_the_order_of_their_columns(probe, tmp_path):
    rows = table(["int32", "city", "flag", "label"])
    spec = {"type": "Parquet", "label": "label", "columns": {name: RECIPE_COLUMNS[name] for name in ("int32", "city", "flag", "label")}}
    pyarrow.parquet.write_table(rows, tmp_path / "whole.parquet")
    expected, of_whole = read(probe, path=str(tmp_path / "whole.parquet"), **spec)
    for name, piece in [("a-0.parquet", rows[:100]), ("a-1.parquet", rows[100:100]), ("a-2.parquet", rows[100:170].select(["label", "flag", "int32", "city"])),
                        ("a-3.parquet", rows[170:].append_column("more", pyarrow.array([{"a": 1}] * 130)))]:
        pyarrow.parquet.write_table(piece, tmp_path / name)
    for pattern in ("a-*.parquet", "a-{0..3}.parquet", "{a-0,a-1,a-2,a-3}.parquet", "a-[0-3].parquet"):
        fields, reply = read(probe, path=str(tmp_path / pattern), **spec)
        assert_same(fields, expected, pattern)
        assert reply["learnt"] == of_whole["learnt"]
    message = error_of(probe, path=str(tmp_path / "a-*.parquet"), type="Parquet", label="label", features=["int32"])
    missing = [i for i, value in enumerate(COLUMNS["int32"][0]) if value is None][0]
    assert f"a-0.parquet:{missing + 1}:int32: the value is missing" in message
    late = pyarrow.table({"x": [1, 2, None], "label": [0, 0, 1]})
    pyarrow.parquet.write_table(late[:2], tmp_path / "b-0.parquet")
    pyarrow.parquet.write_table(late.select(["label", "x"])[1:], tmp_path / "b-1.parquet")
    assert "b-1.parquet:2:x: the value is missing" in error_of(probe, type="Parquet", path=str(tmp_path / "b-*.parquet"), label="label")
    pyarrow.parquet.write_table(late.rename_columns(["xx", "label"]), tmp_path / "b-1.parquet")
    message = error_of(probe, type="Parquet", path=str(tmp_path / "b-*.parquet"), label="label")
    assert re.search(r"b-1\.parquet: has no column 'x', which .*b-0\.parquet has; known: xx, label", message)
    assert "Parquet: there is no file" in error_of(probe, type="Parquet", path=str(tmp_path / "c-*.parquet"), label="label")


# --- training


def test_training_is_that_of_csv_for_any_workers_and_resumes(tmp_path):
    columns = {name: RECIPE_COLUMNS[name] for name in TRAINED} | {
        "city": {"type": "category", "categories": CITIES, "one_hot": True, "missing": "Oslo"}, "label": {"type": "category", "categories": ["no", "maybe", "yes"]}}
    spec = {"type": "CSV", "path": write_csv(tmp_path / "t.csv", {name: COLUMNS[name][0] for name in TRAINED}), "label": "label", "columns": columns}
    expected = training_losses(write_recipe(tmp_path, spec), tmp_path / "csv", "checkpoint.every=null")
    assert len(expected) == 57 == len(set(expected))
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table(TRAINED), path, row_group_size=40)
    recipe = write_recipe(tmp_path, spec | {"type": "Parquet", "path": str(path)})
    whole = tmp_path / "parquet"
    assert training_losses(recipe, whole, "checkpoint={every: 25, keep_last: null}") == expected
    for workers in (1, 4):
        assert training_losses(recipe, tmp_path / f"workers{workers}", f"dataloader.num_workers={workers}", "checkpoint.every=null") == expected
    resumed = training_losses(recipe, tmp_path / "resumed", f"checkpoint.resume={whole}/checkpoints/step-00000025")
    assert resumed[-32:] == expected[25:]
    two, _ = reference.run_trainrun(recipe, tmp_path / "two", "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=8")
    assert [line["train/loss"] for line in two if line["split"] == "train"] == pytest.approx(expected, rel=1e-4)


def ask(*arguments, code=0):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_explain_and_data_know_the_columns(tmp_path):
    pyarrow.parquet.write_table(table(TRAINED), tmp_path / "t.parquet")
    recipe = write_recipe(tmp_path, {"type": "Parquet", "path": str(tmp_path / "t.parquet"), "label": "label", "columns": "auto"})
    said = ask("explain", recipe)
    assert f"columns of {tmp_path}/t.parquet, inferred from its 300 rows" in said
    assert re.search(r"day +date", said) and re.search(r"flag +boolean", said) and "300" in said
    said = ask("data", recipe, "--terminal")
    assert "maybe" in said and "300" in said
    wrong = write_recipe(tmp_path, {"type": "Parquet", "path": str(tmp_path / "t.parquet"), "label": "labels"})
    assert "t.parquet:1:labels: there is no such column; did you mean label?" in ask("validate", wrong, code=2)
