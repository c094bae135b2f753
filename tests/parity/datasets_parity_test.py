"""Data sets read from files that Python wrote (NumPy, safetensors, csv, json, sqlite3, pyarrow), and their parts as
torch.utils.data, scikit-learn and NumPy give them."""

import gzip
import json
import sqlite3
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import safetensors.torch
import sklearn.model_selection
import torch

from probe import ProbeError, assert_same, missing_rows

USED = []  # what the tests below say of data sets: every parameter must be among it


def read(probe, spec, learnt=None):
    """All samples of a data set, and the reply."""
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, learnt=learnt)
    return results.under("output"), reply


def error_of(probe, spec, learnt=None):
    with pytest.raises(ProbeError) as error:
        read(probe, spec, learnt)
    return str(error.value)


def save(folder, name, array):
    np.save(folder / name, array, allow_pickle=True)
    return str(folder / f"{name}.npy")


# --- tables


def test_time_to_read_a_wide_table_does_not_grow_with_the_square_of_its_columns(probe, tmp_path):
    """Were it to, each would take minutes of a processor: the page of tests would run into its time limit."""
    row = {f"k{i}": i for i in range(150_000)} | {"label": 1}
    (tmp_path / "a.jsonl").write_text((json.dumps(row) + "\n") * 2)
    (tmp_path / "a.csv").write_text((",".join(row) + "\n") + (",".join(map(str, row.values())) + "\n") * 2)
    for spec in ({"type": "JSONL", "path": str(tmp_path / "a.jsonl")}, {"type": "CSV", "path": str(tmp_path / "a.csv")}):
        fields, _ = read(probe, spec | {"label": "label"})
        assert fields["features"][1].tolist() == list(range(150_000))


# --- tensor files


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {"image": random.integers(0, 256, (7, 3, 4, 5), dtype=np.uint8), "label": random.integers(0, 3, 7),
            "weight": random.standard_normal((7, 2))}


def given(name, array):
    """What a field of this array is given as."""
    if array.dtype == np.uint8 and name != "label":
        return torch.from_numpy(array).float() / 255
    if array.dtype == bool and name != "label":
        return torch.from_numpy(array)
    if array.dtype.kind == "f":
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="))).float()
    return torch.from_numpy(array.astype(np.int64))


@pytest.mark.parametrize("kind", ["npz", "deflated npz", "safetensors"])
def test_all_tensors_of_a_file_are_fields_the_target_last(probe, tmp_path, arrays, kind):
    path = tmp_path / "data"
    if kind == "safetensors":
        safetensors.torch.save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, path)
    else:
        with open(path, "wb") as file:
            (np.savez if kind == "npz" else np.savez_compressed)(file, **arrays)
    fields, reply = read(probe, {"type": "TensorFile", "path": str(path)})
    assert_same(fields, {k: given(k, v) for k, v in arrays.items()}, kind)
    assert reply["fields"][-1] == reply["target"] == "label"

    named = {"type": "TensorFile", "path": str(path), "fields": {"input": "weight", "label": "label"}, "num_classes": 3}
    fields, reply = read(probe, named)
    assert_same(fields, {"input": given("x", arrays["weight"]), "label": given("label", arrays["label"])}, kind)
    assert reply["fields"] == ["input", "label"]  # (the probe sorts keys)
    assert "class 2 is not from 0 to 1" in error_of(probe, named | {"num_classes": 2})
    assert "there is no tensor 'wieght'; did you mean weight?" in error_of(probe, named | {"fields": {"x": "wieght", "label": "label"}})
    assert "target: there is no field 'y'" in error_of(probe, named | {"target": "y"})


def test_masks_stay_masks_and_only_images_are_scaled(probe, tmp_path):
    random = np.random.default_rng(2)
    arrays = {"image": random.integers(0, 256, (5, 3, 4, 4), dtype=np.uint8), "mask": random.integers(0, 2, (5, 4, 4), dtype=np.uint8),
              "flags": random.integers(0, 256, (5, 6), dtype=np.uint8), "padding": random.random((5, 6)) < 0.5,
              "label": random.random(5) < 0.5}
    path = tmp_path / "data.safetensors"
    safetensors.torch.save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, path)
    spec = {"type": "TensorFile", "path": str(path)}
    whole = {k: torch.from_numpy(v.astype(np.int64)) for k, v in arrays.items()} | {"padding": torch.from_numpy(arrays["padding"])}
    scaled = {k: torch.from_numpy(arrays[k]).float() / 255 for k in arrays}
    assert_same(read(probe, spec)[0], whole | {"image": scaled["image"]}, "by default")
    assert_same(read(probe, spec | {"images": []})[0], whole, "no images")
    chosen = {"x": "flags", "again": "flags", "mask": "mask", "label": "label"}  # a signal of bytes, the model's input
    signals = {"x": scaled["flags"], "again": scaled["flags"], "mask": whole["mask"], "label": whole["label"]}
    assert_same(read(probe, spec | {"fields": chosen})[0], signals, "the first field and those of its shape")
    assert_same(read(probe, spec | {"images": ["mask", "flags"]})[0], whole | {k: scaled[k] for k in ("mask", "flags")}, "chosen")
    assert "images: there is no field 'imag'; did you mean image?" in error_of(probe, spec | {"images": ["imag"]})
    assert "images: field 'padding' holds Bool, not bytes (uint8)" in error_of(probe, spec | {"images": ["padding"]})
    assert "images: there is no field 'y'" in error_of(
        probe, spec | {"fields": {"x": "flags", "label": "label"}, "images": ["y"]})


@pytest.mark.parametrize("dtype", "<f2 <f4 <f8 >f4 >f8 >i2 >u4 |i1 |u1 <i2 <i4 <i8 <u2 <u4 <u8 |b1 =f4".split())
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_of_npy_is_read(probe, tmp_path, dtype, order):
    random = np.random.default_rng(1)
    array = np.array(random.integers(0, 2 if dtype == "|b1" else 100, (4, 2, 3)).astype(dtype), order=order)
    fields = {"x": save(tmp_path, "x", array), "y": save(tmp_path, "y", array[:, 0, 0].astype(np.int64))}
    read_fields, _ = read(probe, {"type": "TensorFile", "fields": fields, "target": "y"})
    assert_same(read_fields, {"x": given("x", array), "y": given("y", array[:, 0, 0].astype(np.int64))}, dtype)


def test_npy_of_every_version_and_of_no_elements(probe, tmp_path):
    y = save(tmp_path, "y", np.zeros(2, np.int64))
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "x.npy", "wb") as file:
            np.lib.format.write_array(file, np.arange(6.0).reshape(2, 3), version=version)
        fields, _ = read(probe, {"type": "TensorFile", "fields": {"x": str(tmp_path / "x.npy"), "y": y}, "target": "y"})
        assert fields["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    fields, _ = read(probe, {"type": "TensorFile", "fields": {"x": save(tmp_path, "e", np.zeros((2, 0))), "y": y}, "target": "y"})
    assert fields["x"].shape == (2, 0)


def test_a_damaged_tensor_file_is_an_error_that_names_it(probe, tmp_path):
    whole = save(tmp_path, "x", np.arange(12, dtype=np.float32).reshape(4, 3))
    content = open(whole, "rb").read()
    y = save(tmp_path, "y", np.zeros(4, np.int64))
    cases = {
        "short": (content[:-1], "has 47 bytes of data, but its shape and type need 48"),
        "long": (content + b"x", "has 49 bytes of data"),
        "header": (content[:60], "ends within the header"),
        "magic": (b"x" + content, "expected a .safetensors, .npy or .npz file"),
        "empty": (b"", "expected a .safetensors, .npy or .npz file"),
        "six": (content[:6], "ends within the header"),
        "version": (content.replace(b"NUMPY\x01", b"NUMPY\x09"), "is of version 9"),
        "dict": (content.replace(b"'shape'", b"'shapo'"), "'shapo' is unknown"),
        "negative": (content.replace(b"(4, 3)", b"(-4,3)"), "a size is not a number"),
        "huge": (content.replace(b"(4, 3), }" + b" " * 20, b"(4000000000000, 30000000000), }"[:29].ljust(29)), ""),
        "record": (content.replace(b"'<f4'", b"[('a'"), "records of several fields"),
        "text": (content.replace(b"'<f4'", b"'<U4'"), "holds numbers of type '<U4'"),
    }
    for name, (damaged, expected) in cases.items():
        path = tmp_path / f"{name}.npy"
        path.write_bytes(damaged)
        message = error_of(probe, {"type": "TensorFile", "fields": {"x": str(path), "y": y}, "target": "y"})
        assert expected in message and str(path) in message
    objects = save(tmp_path, "objects", np.array([{}, None, 1, 2], dtype=object))
    assert "holds Python objects" in error_of(probe, {"type": "TensorFile", "fields": {"x": objects, "y": y}, "target": "y"})
    three = save(tmp_path, "three", np.zeros((3, 2)))
    assert "field 'y' has 4 samples, but 'x' has 3" in error_of(
        probe, {"type": "TensorFile", "fields": {"x": three, "y": y}, "target": "y"})
    scalar = save(tmp_path, "scalar", np.zeros(()))
    assert "is a single number" in error_of(probe, {"type": "TensorFile", "fields": {"x": scalar, "y": y}, "target": "y"})
    assert "must name a file" in error_of(probe, {"type": "TensorFile"})
    assert "No such file" in error_of(probe, {"type": "TensorFile", "path": str(tmp_path / "none.npz")})


def test_a_damaged_npz_file_is_an_error_and_no_crash(probe, tmp_path, arrays):
    rng = np.random.default_rng(5)
    for compressed in (False, True):
        path = tmp_path / "w.npz"
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
        whole = path.read_bytes()
        silent = 0
        for number in range(150):
            content = bytearray(whole)
            if number % 3 == 0:
                del content[rng.integers(len(content)):]
            else:
                content[rng.integers(len(content))] ^= 1 << rng.integers(8)
            path.write_bytes(content)
            try:
                fields, _ = read(probe, {"type": "TensorFile", "path": str(path)})
                assert_same(fields, {k: given(k, v) for k, v in arrays.items()}, "a change in what is not read")
                silent += 1
            except ProbeError as error:
                assert str(path) in str(error)
        assert silent < 60
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "x")
    assert "is a zip archive, but not an .npz file: it holds 'readme.txt'" in error_of(probe, {"type": "TensorFile", "path": str(path)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", "x" * 100)
    assert "compressed by method 12" in error_of(probe, {"type": "TensorFile", "path": str(path)})


# --- tables

ROWS = [
    {"age": 39, "city": "Oslo", "size": 1.5, "zip": 10, "label": "yes"},
    {"age": 25, "city": "Rome", "size": None, "zip": 20, "label": "no"},
    {"age": None, "city": None, "size": 2.5, "zip": 9007199254740993, "label": "yes"},
    {"age": 61, "city": "Oslo", "size": 4.0, "zip": 40, "label": "no"},
    {"age": 18, "city": "Bern", "size": 3.0, "zip": None, "label": "maybe"},
]


def write_table(folder, kind, rows=ROWS):
    """The rows as a file of this kind; what a recipe says of it."""
    names = list(rows[0])
    if kind == "CSV":
        text = ";".join(names) + "\n" + "".join(";".join("?" if r[n] is None else str(r[n]) for n in names) + "\n" for r in rows)
        (folder / "t.csv").write_text(text)
        return {"type": "CSV", "path": str(folder / "t.csv"), "delimiter": ";", "na_values": ["?"], "label": "label"}
    if kind == "JSONL":
        text = "\n\n".join(json.dumps({k: v for k, v in r.items() if v is not None or r is rows[0]}) for r in rows)
        (folder / "t.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        return {"type": "JSONL", "path": str(folder / "t.jsonl.gz"), "label": "label"}
    if kind == "Parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "t.parquet", row_group_size=2)
        return {"type": "Parquet", "path": str(folder / "t.parquet"), "label": "label"}
    (folder / "t.db").unlink(missing_ok=True)
    database = sqlite3.connect(folder / "t.db")
    database.execute('CREATE TABLE "my ""rows""" (' + ", ".join(names) + ")")
    for row in rows:
        database.execute(f'INSERT INTO "my ""rows""" VALUES ({", ".join("?" * len(names))})', list(row.values()))
    database.commit()
    database.close()
    return {"type": "SQLite", "path": str(folder / "t.db"), "table": 'my "rows"', "label": "label"}


COLUMNS = {"age": {"missing": "mean"}, "size": {"type": "number", "missing": "median"},
           "city": {"type": "category", "missing": "most_frequent"}, "zip": {"type": "integer", "missing": -1},
           "label": "category"}


@pytest.mark.parametrize("decimal, thousands", [(",", "."), (".", ","), (",", " "), (".", None)])
def test_numbers_are_read_as_other_countries_write_them(probe, tmp_path, decimal, thousands):
    numbers = [0.5, -1.25, 1234.5, -1234567.75, 999.0]
    marks = str.maketrans({",": thousands or "", ".": decimal})
    written = [f"{number:,.2f}".translate(marks) for number in numbers]
    (tmp_path / "t.csv").write_text("a|y\n" + "".join(f"{text}|{i}\n" for i, text in enumerate(written)))
    spec = {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "y", "delimiter": "|", "decimal": decimal}
    fields, _ = read(probe, spec | ({"thousands": thousands} if thousands else {}))
    assert torch.equal(fields["features"], torch.tensor(numbers).unsqueeze(1))


@pytest.mark.parametrize("kind", ["CSV", "JSONL", "SQLite", "Parquet"])
def test_columns_have_types_missing_values_and_categories(probe, tmp_path, kind):
    spec = write_table(tmp_path, kind)
    fields, reply = read(probe, spec | {"columns": COLUMNS})
    mean, median = np.mean([39, 25, 61, 18]), np.median([1.5, 2.5, 4.0, 3.0])
    expected = {
        "features": torch.tensor([[39, 1.5], [25, median], [mean, 2.5], [61, 4], [18, 3]], dtype=torch.float32),
        "city": torch.tensor([1, 2, 1, 1, 0]),  # Bern, Oslo, Rome
        "zip": torch.tensor([10, 20, 9007199254740993, 40, -1]),
        "label": torch.tensor([2, 1, 2, 1, 0]),  # maybe, no, yes
    }
    assert_same(fields, expected, kind)
    assert reply["fields"] == ["features", "city", "zip", "label"]
    assert reply["learnt"] == {"age": {"missing": mean}, "size": {"missing": median}, "label": {"categories": ["maybe", "no", "yes"]},
                               "city": {"categories": ["Bern", "Oslo", "Rome"], "missing": "Oslo"}}

    # Evaluation data read as the training data says.
    other = write_table(tmp_path, kind, [
        {"age": None, "city": "Rome", "size": 1, "zip": 1, "label": "no"}, {"age": 1, "city": None, "size": None, "zip": 2, "label": "yes"}])
    fields, again = read(probe, other | {"columns": COLUMNS}, learnt=reply["learnt"])
    expected = {"features": torch.tensor([[mean, 1], [1, median]], dtype=torch.float32), "city": torch.tensor([2, 1]), "zip": torch.tensor([1, 2]),
                "label": torch.tensor([1, 2])}
    assert_same(fields, expected, kind)
    assert again["learnt"] == reply["learnt"]

    unknown = write_table(tmp_path, kind, [{"age": 1, "city": "Rom", "size": 1, "zip": 1, "label": "no"}])
    message = error_of(probe, unknown | {"columns": COLUMNS}, learnt=reply["learnt"])
    row = ":2:" if kind == "CSV" else ":1:"
    assert row + "city: category 'Rom' is in no training sample; did you mean Rome?; allow_unknown: true" in message
    allowed = COLUMNS | {"city": COLUMNS["city"] | {"allow_unknown": True}}
    fields, _ = read(probe, unknown | {"columns": allowed}, learnt=reply["learnt"])
    assert fields["city"].tolist() == [3]


@pytest.mark.parametrize("kind", ["CSV", "JSONL", "SQLite"])
@pytest.mark.parametrize("column, options", [("age", {"type": "number", "missing": "median"}), ("city", {"type": "category", "missing": "most_frequent"}),
                                             ("city", {"type": "category", "missing": "none"})])
def test_a_column_without_a_value_is_named_with_its_file(probe, tmp_path, kind, column, options):
    rows = [{"age": i, "city": "Rome", "label": i} | {column: None} for i in range(3)]
    spec = write_table(tmp_path, kind, rows)
    message = error_of(probe, spec | {"columns": {column: options}, "features": [column]})
    assert message == f"{spec['path']}: column '{column}': no training sample has a value"


@pytest.mark.parametrize("kind", ["CSV", "JSONL", "SQLite", "Parquet"])
def test_what_is_listed_needs_no_learning(probe, tmp_path, kind):
    columns = {"city": {"type": "category", "categories": ["Rome", "Oslo", "none"], "missing": "none", "allow_unknown": True},
               "age": {"missing": 0.5}, "label": {"type": "category", "categories": ["no", "yes"], "allow_unknown": True}}
    fields, reply = read(probe, write_table(tmp_path, kind) | {"columns": columns, "features": ["city", "age"]})
    assert reply["learnt"] is None
    assert reply["fields"] == ["features", "city", "label"]
    assert_same(fields, {"features": torch.tensor([[39], [25], [0.5], [61], [18]]), "city": torch.tensor([1, 0, 2, 1, 3]),
                         "label": torch.tensor([1, 0, 1, 0, 2])}, kind)


def test_lists_of_jsonl_are_fields_of_their_own(probe, tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [{"input_ids": [5, 6, 7], "box": [[1, 2.5], [3, 4]], "label": 1, "comment": {"not": "read"}},
            {"label": 0, "box": [[0, 0], [0, 1]], "input_ids": [1, 2, 3]}]
    path.write_text("".join(json.dumps(row) + "\r\n" for row in rows))
    spec = {"type": "JSONL", "path": str(path), "label": "label", "features": ["input_ids", "box"],
            "columns": {"input_ids": {"type": "integer", "shape": [3]}, "box": {"shape": [2, 2]}}}
    fields, _ = read(probe, spec)
    assert_same(fields, {"input_ids": torch.tensor([[5, 6, 7], [1, 2, 3]]), "label": torch.tensor([1, 0]),
                         "box": torch.tensor([[[1, 2.5], [3, 4]], [[0, 0], [0, 1]]])}, "lists")
    for line, expected in [
        ('{"input_ids": [1, 2], "box": [1, 2, 3, 4], "label": 0}', ":3:input_ids: a list of 2 numbers, expected 3"),
        ('{"input_ids": [1, 2, "x"], "box": [1, 2, 3, 4], "label": 0}', ":3:input_ids: 'x' is not an integer"),
        ('{"input_ids": 3, "box": [1, 2, 3, 4], "label": 0}', ":3:input_ids: '3' is not a list"),
        ('{"input_ids": [1, 2, 3], "label": 0}', ":3:box: '' is not a list"),
        ('{"input_ids": {"a": 1}, "label": 0}', ":3:input_ids: an object within an object"),
        ('{"input_ids": [1, 2', ":3: is not JSON: parse error"),
        ("[1, 2]", ":3: expected an object"),
        ("[" * 100000, ":3: is nested too deeply"),
        ('{"input_ids": [1, 2, 3], "box": [1, 2, 3, 1e999], "label": 0}', ":3: is not JSON"),
    ]:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + line)
        message = error_of(probe, spec)
        assert f"{path}{expected}" in message
    path.write_text('{"a": 1, "label": 0}\n{"a": 2, "b": 3, "label": 0}')
    assert ":2: the first line has no key 'b'" in error_of(probe, {"type": "JSONL", "path": str(path), "label": "label"})
    path.write_text("\n")
    assert "is empty" in error_of(probe, {"type": "JSONL", "path": str(path), "label": "label"})


def test_sqlite_reads_a_query_and_says_what_is_wrong(probe, tmp_path):
    spec = write_table(tmp_path, "SQLite")
    by_query = {k: v for k, v in spec.items() if k != "table"} | {
        "query": 'SELECT age / 2.0 AS half, zip FROM "my ""rows""" WHERE age > 20 ORDER BY age DESC', "label": "zip", "task": "regression"}
    fields, _ = read(probe, by_query)
    assert_same(fields, {"features": torch.tensor([[30.5], [19.5], [12.5]]), "label": torch.tensor([[40.0], [10], [20]])}, "query")
    assert "there is no table 'my rows'; did you mean my \"rows\"?" in error_of(probe, spec | {"table": "my rows"})
    assert "no such column: nope" in error_of(probe, by_query | {"query": "SELECT nope FROM sqlite_master"})
    assert "syntax error" in error_of(probe, by_query | {"query": "SELEKT 1"})
    assert "expected a SELECT" in error_of(probe, by_query | {"query": "CREATE TABLE x (a)"})
    assert "either table or query must be given, and not both" in error_of(probe, by_query | {"table": "x"})
    assert ":3:age: the value is missing" in error_of(
        probe, spec | {"features": ["age"], "columns": {"label": "category"}})
    (tmp_path / "t.db").write_text("this is no database, but a text that is long enough to be one, or is it not?" * 20)
    assert "file is not a database" in error_of(probe, spec)
    assert "No such file or directory" in error_of(probe, spec | {"path": str(tmp_path / "none.db")})
    database = sqlite3.connect(tmp_path / "b.db")
    database.execute("CREATE TABLE b (x, label)")
    database.execute("INSERT INTO b VALUES (?, 1)", [b"bytes"])
    database.commit()
    database.close()
    assert ":1:x: is a BLOB" in error_of(probe, {"type": "SQLite", "path": str(tmp_path / "b.db"), "table": "b", "label": "label"})


@pytest.mark.parametrize("columns, expected", [
    ({"age": "numbr"}, "'age': expected number, integer, boolean, date or category, found 'numbr'; did you mean number?"),
    ({"age": {"missing": "most_frequent"}}, "missing: most_frequent is only for columns of type category"),
    ({"city": {"type": "category", "missing": "mean"}}, "categories have no mean"),
    ({"city": {"type": "category", "categories": []}}, "categories must name at least one category"),
    ({"zip": {"type": "integer", "missing": 0.5}}, "missing must be an integer or error"),
    ({"zip": {"type": "integer", "missing": "mean"}}, "missing must be an integer or error"),
    ({"age": {"missing": "whatever"}}, "missing must be a number, mean, median or error"),
    ({"age": {"shape": [2], "missing": 0}}, "in a list no value may be missing"),
    ({"age": {"categories": ["a"]}}, "categories are only for columns of type category"),
    ({"age": {"typ": "number"}}, "did you mean type?"),
    ({"label": "integer"}, "may only be a category or a boolean"),
    ({"nothing": "category", "label": "category"}, ":1:nothing: there is no such column"),
], ids=str)
def test_columns_that_do_not_fit_are_errors(probe, tmp_path, columns, expected):
    assert expected in error_of(probe, write_table(tmp_path, "CSV") | {"columns": columns})


def test_a_csv_table_of_numbers_by_name_without_header(probe, tmp_path):
    (tmp_path / "t.csv").write_text("1,2,0\n3,4,1\n")
    fields, _ = read(probe, {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "2", "header": False, "num_classes": 2})
    assert_same(fields, {"features": torch.tensor([[1.0, 2], [3, 4]]), "label": torch.tensor([0, 1])}, "numbers")


# --- parts of data sets


def counting(folder, size=10):
    return {"type": "TensorFile", "fields": {"x": save(folder, "count", np.arange(float(size))),
                                             "label": save(folder, "count_label", np.arange(size) % 3)}}


@pytest.mark.parametrize("fractions", [[0.8, 0.2], [0.5, 0.25, 0.25], [0.3, 0.3, 0.4], [1.0]], ids=str)
def test_split_equals_random_split(probe, tmp_path, fractions):
    for size in (10, 17):
        data = counting(tmp_path, size)
        expected = torch.utils.data.random_split(range(size), fractions, torch.Generator().manual_seed(5))
        for part, indices in enumerate(expected):
            split = {"fractions": fractions, "seed": 5, "part": part}
            for spec in ({"type": "Split", "dataset": data} | split, data | {"split": split}):
                assert read(probe, spec)[0]["x"].tolist() == list(indices)
        words = {"train": 0, "test": len(fractions) - 1} | ({"validation": 1} if len(fractions) > 1 else {})
        for word, part in words.items():
            assert read(probe, data | {"split": {"fractions": fractions, "seed": 5, "part": word}})[0]["x"].tolist() == list(expected[part])


def test_what_a_split_learns_comes_from_its_training_part(probe, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{'' if i % 4 == 0 else i},0\n" for i in range(40)))
    spec = {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "y", "columns": {"a": {"missing": "mean"}}}
    train, rest = torch.utils.data.random_split(range(40), [0.8, 0.2], torch.Generator().manual_seed(0))
    mean = np.mean([i for i in train if i % 4])
    fields, reply = read(probe, spec | {"split": {}})
    assert reply["learnt"] == {"a": {"missing": mean}}
    assert fields["features"].flatten().tolist() == pytest.approx([i if i % 4 else mean for i in train])
    fields, _ = read(probe, spec | {"split": {"part": "validation"}}, learnt=reply["learnt"])
    assert fields["features"].flatten().tolist() == pytest.approx([i if i % 4 else mean for i in rest])


def test_subset_and_concat(probe, tmp_path):
    data = counting(tmp_path)
    assert read(probe, data | {"subset": 4})[0]["x"].tolist() == [0, 1, 2, 3]
    assert read(probe, data | {"subset": [7, 1, 1]})[0]["x"].tolist() == [7, 1, 1]
    both = {"type": "Concat", "datasets": [data | {"subset": 3}, data | {"subset": [9, 8]}], "weights": [1, 0]}
    fields, _ = read(probe, both)
    assert fields["x"].tolist() == [0, 1, 2, 9, 8]
    assert fields["label"].tolist() == [0, 1, 2, 0, 2]
    assert "the subset goes to sample 10, but there are only 10, from 0" in error_of(probe, data | {"subset": 11})
    assert "the subset goes to sample 12" in error_of(probe, data | {"subset": [3, 12]})
    assert "expected 2, one for each data set, found 1" in error_of(probe, both | {"weights": [1]})
    other = {"type": "TensorFile", "fields": {"z": data["fields"]["x"], "label": data["fields"]["label"]}}
    assert "the fields of data set 1 are not those of data set 0: label [] Long, z [] Float; expected label [] Long, x [] Float" in error_of(
        probe, {"type": "Concat", "datasets": [data, other]})
    for fractions, part, expected in [([0.5, 0.4], 0, "their sum must be 1, but is 0.9"), ([0.5, 0.5], 2, "there are only 2 parts"),
                                      ([0.5, 0.5], "eval", "'eval' is not one of train, validation, test, integer"), ([1.5, -0.5], 0, "must be > 0")]:
        assert expected in error_of(probe, data | {"split": {"fractions": fractions, "part": part}})


def test_a_split_without_shuffle_keeps_the_order(probe, tmp_path):
    data = counting(tmp_path)
    split = {"fractions": [0.7, 0.3], "shuffle": False}
    assert read(probe, data | {"split": split})[0]["x"].tolist() == list(range(7))
    assert read(probe, {"type": "Split", "dataset": data, "part": 1} | split)[0]["x"].tolist() == [7, 8, 9]


@pytest.mark.parametrize("length, horizon, stride", [(3, 1, 1), (4, 2, 1), (2, 1, 3), (5, 5, 2)])
def test_windows_are_those_of_numpy(probe, tmp_path, length, horizon, stride):
    rows = np.random.default_rng(2).standard_normal((11, 3)).round(3)
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    spec = {"type": "Windows", "length": length, "horizon": horizon, "stride": stride,
            "dataset": {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "y", "task": "regression"}}
    fields, reply = read(probe, spec)
    windows = np.lib.stride_tricks.sliding_window_view(rows, length + horizon, axis=0)[::stride].swapaxes(1, 2)
    assert_same(fields, {"features": torch.from_numpy(windows[:, :length]).float(),
                         "label": torch.from_numpy(windows[:, length:, 2]).float()}, "windows", 1e-6)
    assert reply["fields"] == ["features", "label"] and reply["target"] == "label"


def test_windows_over_classes_and_fields_of_their_own(probe, tmp_path):
    spec = {"type": "Windows", "length": 2, "dataset": counting(tmp_path, 6)}
    fields, _ = read(probe, spec)
    assert_same(fields, {"x": torch.tensor([[0.0, 1], [1, 2], [2, 3], [3, 4]]), "label": torch.tensor([2, 0, 1, 2])}, "windows")
    assert "10 rows hold no window of 10 and the 1 after it" in error_of(
        probe, {"type": "Windows", "length": 10, "dataset": counting(tmp_path)})
    assert "horizon must be 1" in error_of(probe, spec | {"horizon": 2})
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{'' if i == 3 else i},{i}\n" for i in range(8)))
    table = {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "y", "task": "regression", "columns": {"a": {"missing": "mean"}}}
    _, reply = read(probe, {"type": "Windows", "length": 2, "dataset": table, "subset": 2})
    assert reply["learnt"] == {"a": {"missing": 1.0}}  # of rows 0 to 3, which the two windows touch
    only = {"type": "TensorFile", "fields": {"label": save(tmp_path, "only", np.arange(5.0))}}
    fields, _ = read(probe, {"type": "Windows", "length": 2, "horizon": 2, "dataset": only})
    assert_same(fields, {"features": torch.tensor([[[0.0], [1]], [[1], [2]]]), "label": torch.tensor([[2.0, 3], [3, 4]])}, "windows")


def shops(folder, kind="csv"):
    """Three series whose rows lie mixed, in the order of days; the last is too short for windows of 3 rows."""
    rows = [(shop, day, 100 * i + day) for day in range(6) for i, shop in enumerate(["é", "b", "c"]) if shop != "c"
            or day < 3]
    (folder / "shops.csv").write_text("shop,day,y\n" + "".join(f"{shop},{day},{y}\n" for shop, day, y in rows))
    return {"type": "CSV", "path": str(folder / "shops.csv"), "label": "y", "task": "regression",
            "features": ["day"]}, rows


def windows_of(series, length):
    return [series[i:i + length + 1] for i in range(len(series) - length)]


def test_windows_never_run_from_one_series_into_another(probe, tmp_path):
    table, rows = shops(tmp_path)
    spec = {"type": "Windows", "length": 3, "dataset": table, "group": "shop"}
    fields, reply = read(probe, spec)
    series = [[row[1:] for row in rows if row[0] == shop] for shop in ("é", "b", "c")]
    expected = [window for one in series for window in windows_of(one, 3)]
    assert len(expected) == 6
    assert fields["features"].tolist() == [[list(row) for row in window[:3]] for window in expected]
    assert fields["label"].tolist() == [[window[3][1]] for window in expected]
    ids = np.array(["ébc".index(row[0]) for row in rows])
    arrays = {"x": save(tmp_path, "x", np.array([[row[1]] for row in rows], np.float32)),
              "label": save(tmp_path, "label", np.array([row[2] for row in rows], np.float32)),
              "shop": save(tmp_path, "shop", ids)}
    fields, _ = read(probe, spec | {"dataset": {"type": "TensorFile", "fields": arrays}})
    assert fields["label"].tolist() == [[window[3][1]] for window in expected]  # by a field, where there are no columns
    (tmp_path / "other").mkdir()
    joined = {"type": "Concat", "datasets": [counting(tmp_path, 5), counting(tmp_path / "other", 4)]}
    fields, _ = read(probe, {"type": "Windows", "length": 2, "dataset": joined})
    assert fields["x"].tolist() == [[0, 1], [1, 2], [2, 3], [0, 1], [1, 2]]  # none across the two
    assert "15 rows in 3 series hold no window of 6" in error_of(probe, spec | {"length": 6})
    assert "shopp" in error_of(probe, spec | {"group": "shopp"})


def test_windows_of_a_part_are_those_of_its_series(probe, tmp_path):
    table, rows = shops(tmp_path)
    split = {"fractions": [0.5, 0.5], "group": "shop"}
    spec = {"type": "Windows", "length": 2, "group": "shop"}
    found = []
    for part in (0, 1):
        for data in (table | {"split": split | {"part": part}},
                     {"type": "Split", "dataset": table, "part": part} | split):
            fields, _ = read(probe, spec | {"dataset": data})
        found += fields["label"].flatten().tolist()
        # and windows, parted by their series
        whole = {"type": "Split", "dataset": spec | {"dataset": table}, "part": part} | split
        assert sorted(read(probe, whole)[0]["label"].flatten().tolist()) == sorted(fields["label"].flatten().tolist())
    assert sorted(found) == sorted(row[2] for row in rows if row[1] >= 2)


@pytest.mark.parametrize("change, cure", [
    ({"split": {"part": 0}}, {"split": {"part": 0, "shuffle": False}}),
    ({"split": {"part": 0, "stratify": True, "shuffle": False}}, {"split": {"part": 0, "shuffle": False}}),
    ({"subset": [0, 1, 2, 5, 6, 7]}, {"subset": [0, 2, 4, 6, 8]}),
    ({"subset": [5, 4, 3, 2, 1, 0]}, {"subset": 6}),
])
def test_windows_of_rows_that_do_not_follow_each_other_are_refused(probe, tmp_path, change, cure):
    data = counting(tmp_path)
    for wrap in (lambda data: data, lambda data: {"type": "Concat", "datasets": [data]},
                 lambda data: {"type": "Split", "part": 0, "fractions": [1.0], "shuffle": False, "dataset": data}):
        said = error_of(probe, {"type": "Windows", "length": 2, "dataset": wrap(data | change)})
        assert "rows that follow each other in time" in said
        fields, _ = read(probe, {"type": "Windows", "length": 2, "dataset": wrap(data | cure)})
        assert (fields["x"].diff() > 0).all() and len(fields["x"].diff().unique()) == 1
    if "split" in change:
        drawn = {"type": "Split", "dataset": data}
        assert "shuffle: false" in error_of(probe, {"type": "Windows", "length": 2, "dataset": drawn})


def test_parts_of_whole_groups_need_windows_by_group(probe, tmp_path):
    table, _ = shops(tmp_path)
    data = table | {"split": {"part": 0, "group": "shop"}}
    windows = {"type": "Windows", "length": 2, "dataset": data}
    assert "write group: shop beside length" in error_of(probe, windows)
    assert "write group: shop beside length" in error_of(probe, windows | {"group": "day"})
    read(probe, windows | {"group": "shop"})


# --- encodings and limits

CITIES = ["Zürich", "Málaga", "Zürich", "Ærø", "naïve €"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", ["CSV", "JSONL"])
def test_tables_are_read_in_their_encoding(probe, tmp_path, kind, encoding):
    cities = [city for city in CITIES if encoding != "latin-1" or "€" not in city] * 6_000  # in several pieces
    if kind == "CSV":
        text = "größe,stadt,y\n" + "".join(f"{i},{city},{i % 2}\n" for i, city in enumerate(cities))
    else:
        rows = [{"größe": i, "stadt": city, "y": i % 2} for i, city in enumerate(cities)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "t").write_bytes(text.encode(encoding))
    spec = {"type": kind, "path": str(tmp_path / "t"), "label": "y", "columns": {"stadt": "category"}}
    fields, reply = read(probe, spec | {"encoding": encoding})
    names = sorted(set(cities), key=lambda name: name.encode())
    assert reply["learnt"] == {"stadt": {"categories": names}}
    assert fields["stadt"].tolist() == [names.index(city) for city in cities]
    assert fields["features"][:, 0].tolist() == list(range(len(cities)))
    if encoding not in ("utf-8", "latin-1"):
        return
    (tmp_path / "g").write_bytes(gzip.compress(text.encode("latin-1", "replace")))
    said = error_of(probe, spec | {"path": str(tmp_path / "g")})
    place = "byte 3 of the line, 0xF6 at offset 2" if kind == "CSV" else "byte 5 of the line, 0xF6 at offset 4"
    assert f"{tmp_path}/g:1: {place} of the text, is not UTF-8; write encoding: latin-1" in said


@pytest.mark.parametrize("content, expected", [
    (b"a,y\n1,0\n\xe4,1\n",
     ":3: byte 1 of the line, 0xE4 at offset 8 of the text, is not UTF-8; write encoding: latin-1"),
    (b"a,y\n1\x80,0\n", ":2: byte 2 of the line, 0x80 at offset 5 of the text, is not UTF-8; write encoding: cp1252"),
    (b"a,y\n1\xe2\x82", ":2: byte 2 of the line, 0xE2 at offset 5 of the text, is not UTF-8"),
    ("a,y\n1,0\n".encode("utf-16"), ":1: begins with the byte-order mark of UTF-16; write encoding: utf-16"),
    ("a,y\n1,0\n".encode("utf-16-le"), ":1: looks like UTF-16: every other byte is 0; write encoding: utf-16-le"),
    ("a,y\n1,0\n".encode("utf-16-be"), ":1: looks like UTF-16: every other byte is 0; write encoding: utf-16-be"),
])
def test_what_is_not_utf_8_is_named_with_line_and_byte(probe, tmp_path, content, expected):
    (tmp_path / "t.csv").write_bytes(content)
    assert f"{tmp_path}/t.csv{expected}" in error_of(probe, {"type": "CSV", "path": str(tmp_path / "t.csv"),
                                                             "label": "y"})


@pytest.mark.parametrize("encoding, content, expected", [
    ("cp1252", b"a,y\n\x81,0\n",
     ":2: byte 1 of the line, 0x81 at offset 4 of the text, is not a character of cp1252; write encoding: latin-1"),
    ("latin-1", b"\xef\xbb\xbfa,y\n", ":1: begins with the byte-order mark of UTF-8; write encoding: utf-8"),
    ("utf-16", b"a,y\n1,0\n",
     ":1: does not begin with the byte-order mark of UTF-16; write encoding: utf-16-le or utf-16-be"),
    ("utf-16", "a,y\n1,0".encode("utf-16") + b"!",
     ":2: byte 7 of the line, 0x21 at offset 16 of the text, is half a character"),
    ("utf-16-be", "a,y\n".encode("utf-16-be") + b"\xd8\x00\x00a",
     ":2: byte 1 of the line, 0xD8 at offset 8 of the text, is half a character"),
    ("ascii", b"", "'ascii' is not one of utf-8, latin-1, cp1252"),
])
def test_what_is_not_of_the_encoding_named_is_an_error(probe, tmp_path, encoding, content, expected):
    (tmp_path / "t.csv").write_bytes(content)
    assert expected in error_of(probe, {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "y",
                                        "encoding": encoding})


def test_text_of_a_database_and_names_of_arrays_are_utf_8(probe, tmp_path):
    base = sqlite3.connect(tmp_path / "t.db")
    base.execute("CREATE TABLE t (city TEXT, y INTEGER)")
    base.executemany("INSERT INTO t VALUES (CAST(? AS TEXT), ?)", [(b"Bern", 0), (b"Z\xfcrich", 1)])
    base.commit()
    base.close()
    spec = {"type": "SQLite", "path": str(tmp_path / "t.db"), "table": "t", "label": "y",
            "columns": {"city": "category"}}
    assert f"{tmp_path}/t.db:2:city: byte 2, 0xFC, is not UTF-8" in error_of(probe, spec)
    np.savez(tmp_path / "t.npz", xx=np.zeros((2, 1)), label=np.zeros(2))
    (tmp_path / "t.npz").write_bytes((tmp_path / "t.npz").read_bytes().replace(b"xx.npy", b"x\xfc.npy"))
    assert "t.npz: the name of an array is not UTF-8" in error_of(probe, {"type": "TensorFile",
                                                                          "path": str(tmp_path / "t.npz")})


def test_a_query_that_never_gives_a_row_ends(probe, tmp_path):
    sqlite3.connect(tmp_path / "t.db").close()
    (tmp_path / "t.db").touch()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c, 1 AS y FROM n"
    spec = {"type": "SQLite", "path": str(tmp_path / "t.db"), "query": endless, "label": "y", "timeout_seconds": 0.2}
    assert "given no row for 0.2 s; if it needs that long, write a larger timeout_seconds" in error_of(probe, spec)


def test_bombs_and_endless_lines_are_refused_by_named_limits(probe, tmp_path):
    mib = 1 << 20
    path = tmp_path / "t.csv"
    spec = {"type": "CSV", "path": str(path), "label": "y"}
    path.write_bytes(gzip.compress(b"a" * mib) * 260)  # members of a gzip file follow each other
    assert "t.csv: its gzip data unpack to more than 200 times their size" in error_of(
        probe, {"type": "TextLM", "path": str(path), "block_size": 4})
    path.write_text("a,y\n1,2\n")
    with path.open("r+b") as file:
        file.truncate(600 * mib)  # a field of zeros, which take no room on the disk
    assert "t.csv:3: the record is longer than 256 MiB; is a quotation mark never closed?" in error_of(probe, spec)
    path.write_text("a,y\n" + "," * (mib + 1) + "\n")
    assert "t.csv:2: has more than 1048576 columns; is the delimiter the right one?" in error_of(probe, spec)
    path.write_text('{"a": [' + "1," * (4 * mib) + '1], "y": 0}\n')
    assert "t.csv:1: holds more than 4194304 values" in error_of(probe, spec | {"type": "JSONL"})
    with zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", np.random.default_rng(0).bytes(mib))
    content = (tmp_path / "t.npz").read_bytes()
    claims = content.replace(mib.to_bytes(4, "little"), (300 * mib).to_bytes(4, "little"))
    assert claims != content
    (tmp_path / "t.npz").write_bytes(claims)
    said = error_of(probe, {"type": "TensorFile", "path": str(tmp_path / "t.npz")})
    assert "member 'x.npy' unpacks to 314572800 bytes, more than 200 times what it takes" in said


# Compared with figures from Python in tests/registry/datasets_test.cpp.
# Tested in C++, and those of images in image_folder_parity_test.py, image_datasets_parity_test.py,
# segmentation_parity_test.py and shards_parity_test.py; those of text in text_data_parity_test.py;
# Chat in chat_data_parity_test.py; mixtures in mixture_parity_test.py.
ELSEWHERE = ("Digits", "FashionMNIST", "KMNIST", "MNIST", "Synthetic", "ImageFolder", "CIFAR10", "CIFAR100", "ImageCSV", "OxfordIIITPet",
             "SegmentationFolder", "Shards", "TextLM", "TinyShakespeare", "TokenFile", "TextClassification", "MRPC", "PreferencePairs",
             "Chat", "Mixture", "GLUE")
# In partition_parity_test.py, table_targets_parity_test.py and forecasts_parity_test.py.
BY_VALUE = ({"Split.stratify", "Split.group", "TensorFile.sequences", "TensorFile.padding"}
            | {f"{table}.id" for table in ("CSV", "JSONL", "Parquet", "SQLite")}
            | {f"Windows.{name}" for name in ("known", "time", "gaps", "holdout", "origins")})


def test_every_data_set_and_every_parameter_has_a_test(probe):
    known = {name: parameters for name, parameters in probe.ask("catalog")["dataset"].items() if name not in ELSEWHERE}
    assert len(known) >= 7
    # One description serves all tables: what one kind of table is tested with holds for the others.
    table = set().union(*(set(spec) for spec in USED if spec["type"] in ("CSV", "JSONL", "SQLite", "Parquet")))
    assert missing_rows({k: [p for p in v if p not in table] for k, v in known.items()}, USED, ignored=BY_VALUE) == []


# --- the order of samples


@pytest.mark.parametrize("num_samples, replacement", [(0, True), (25, True), (7, False)])
def test_weighted_order_equals_weighted_random_sampler(probe, num_samples, replacement):
    weights = torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for epoch in (0, 3):
        generator = torch.Generator().manual_seed(42 + epoch)
        expected = list(torch.utils.data.WeightedRandomSampler(weights, num_samples or 12, replacement, generator))
        _, results = probe.ask("sampler", {"drawing.weights": weights}, seed=42, epoch=epoch, num_samples=num_samples,
                               replacement=replacement)
        assert results["order.0"].tolist() == expected
    with pytest.raises(ProbeError, match="without replacement 13 samples cannot be drawn, only 12"):
        probe.ask("sampler", {"drawing.weights": weights}, seed=42, epoch=0, num_samples=13, replacement=False)


def test_stratified_order_has_of_each_class_its_share_in_every_stretch(probe):
    classes = torch.cat([torch.zeros(300), torch.ones(100), torch.full((40,), 3.0)]).long()
    classes = classes[torch.randperm(440, generator=torch.Generator().manual_seed(0))]
    orders = []
    for epoch in (0, 1):
        _, results = probe.ask("sampler", {"drawing.strata": classes}, seed=7, epoch=epoch, num_samples=0, replacement=True)
        order = results["order.0"]
        orders.append(order.tolist())
        assert sorted(orders[-1]) == list(range(440))
        for begin in range(0, 440, 44):
            counts = classes[order[begin:begin + 44]].bincount(minlength=4)
            assert (counts - torch.tensor([30, 10, 0, 4])).abs().max() <= 2
    assert orders[0] != orders[1]
