"""Tables read from files that Python wrote (csv, json, sqlite3, pyarrow), and that every data set has a test."""

import gzip
import json
import sqlite3
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from dataset_reading import USED, error_of, read
from probe import assert_same, missing_rows


# --- tables


def test_time_to_read_a_wide_table_does_not_grow_with_the_square_of_its_columns(probe, tmp_path):
    """Were it to, each would take minutes of a processor: the page of tests would run into its time limit."""
    row = {f"k{i}": i for i in range(150_000)} | {"label": 1}
    (tmp_path / "a.jsonl").write_text((json.dumps(row) + "\n") * 2)
    (tmp_path / "a.csv").write_text((",".join(row) + "\n") + (",".join(map(str, row.values())) + "\n") * 2)
    for spec in ({"type": "JSONL", "path": str(tmp_path / "a.jsonl")}, {"type": "CSV", "path": str(tmp_path / "a.csv")}):
        fields, _ = read(probe, spec | {"label": "label"})
        assert fields["features"][1].tolist() == list(range(150_000))


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


@pytest.mark.parametrize("kind", ["CSV", "JSONL", "SQLite", "Parquet"])
def test_rows_that_cannot_be_read_are_as_if_they_were_not_there(probe, tmp_path, kind):
    """Categories and means, too, are those of the rows that are left: a label is missing, and an integer."""
    rows = [{**ROWS[0], "city": "Paris", "age": 99, "label": None}, *ROWS[:2], {**ROWS[0], "city": "Nice", "age": 98, "zip": None}, *ROWS[2:4]]
    columns = COLUMNS | {"zip": "integer"}
    whole = read(probe, write_table(tmp_path, kind, ROWS[:4]) | {"columns": columns})
    spec = write_table(tmp_path, kind, rows)
    message = error_of(probe, spec | {"columns": columns})
    assert "label: the value is missing" in message and "write broken: skip to leave such rows out" in message
    fields, reply = read(probe, spec | {"columns": columns, "broken": "skip"})
    assert_same(fields, whole[0], kind)
    assert reply["learnt"] == whole[1]["learnt"]


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
    assert ":1:b: the value is missing" in error_of(probe, {"type": "JSONL", "path": str(path), "label": "label"})
    path.write_text("\n")
    assert "is empty" in error_of(probe, {"type": "JSONL", "path": str(path), "label": "label"})


def test_the_columns_of_jsonl_are_the_keys_of_all_its_objects_in_any_order(probe, tmp_path):
    """What no row can be made of adds none."""
    path = tmp_path / "t.jsonl"
    lines = ['{"a": 1, "label": 0}', '{"b": 3, "a": 2, "label": 1}', '{"c": 1, "c": 2, "label": 0}', '{"d": 1', '{"label": 1, "c": 5}']
    spec = {"type": "JSONL", "path": str(path), "label": "label", "broken": "skip", "columns": {name: {"missing": -1} for name in "abc"}}
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 4, 0, 2, 3]):
        path.write_text("".join(lines[i] + "\n" for i in order))
        fields, _ = read(probe, spec)
        rows = [json.loads(lines[i]) for i in order if i not in (2, 3)]
        names = []
        for row in rows:  # a new key comes behind the one before it
            for at, name in enumerate(row):
                before = list(row)[at - 1] if at > 0 else None
                if name not in names:
                    names.insert(names.index(before) + 1 if before else 0, name)
        names.remove("label")
        assert_same(fields, {"features": torch.tensor([[float(row.get(name, -1)) for name in names] for row in rows]),
                             "label": torch.tensor([row["label"] for row in rows])}, str(order))
    path.write_text('{"label": 0}\n' + "".join(json.dumps({f"k{i}": 1}) + "\n" for i in range(10_001)))
    assert ":10002: with this object there are more than 10000 keys that the first does not have" in error_of(probe, spec | {"columns": {}})


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
    assert ":x: holds BLOBs, which are not read" in error_of(probe, {"type": "SQLite", "path": str(tmp_path / "b.db"), "table": "b", "label": "label"})


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
    assert "the query has returned no row for 0.2 s; if it needs that long, write a larger timeout_seconds" in error_of(probe, spec)


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
    assert "t.csv:3: byte 1 of the line, 0x00 at offset 8 of the text, is in no text" in error_of(probe, spec)
    with path.open("wb") as file:
        file.write(b'a,y\n1,2\n"')
        for _ in range(257):
            file.write(b"a" * mib)
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


# Compared with figures from Python in tests/registry/datasets_test.cpp and synthetic_test.cpp.
# Tested in C++, and those of images in image_folder_parity_test.py, image_datasets_parity_test.py,
# segmentation_parity_test.py and shards_parity_test.py; those of text in text_data_parity_test.py;
# Chat in chat_data_parity_test.py; DesirableAnswers in alignment_parity_test.py; mixtures in mixture_parity_test.py; tensors in tensor_files_parity_test.py;
# parts and windows in dataset_parts_parity_test.py.
ELSEWHERE = ("Digits", "HubDataset", "FashionMNIST", "KMNIST", "MNIST", "Synthetic", "ImageFolder", "CIFAR10", "CIFAR100", "ImageCSV", "OxfordIIITPet",
             "SegmentationFolder", "Shards", "TextLM", "TinyShakespeare", "TokenFile", "TextClassification", "MRPC", "PreferencePairs",
             "Chat", "DesirableAnswers", "Mixture", "GLUE", "TokenClassification", "Texts", "SentencePairs", "TensorFile", "Concat", "Split", "Windows")
IDS = {f"{table}.id" for table in ("CSV", "JSONL", "Parquet", "SQLite")}  # in table_targets_parity_test.py


def test_every_data_set_and_every_parameter_has_a_test(probe):
    known = {name: parameters for name, parameters in probe.ask("catalog")["dataset"].items() if name not in ELSEWHERE}
    assert len(known) >= 4
    # One description serves all tables: what one kind of table is tested with holds for the others.
    table = set().union(*(set(spec) for spec in USED if spec["type"] in ("CSV", "JSONL", "SQLite", "Parquet")))
    elsewhere = IDS | {f"{name}.split" for name in known}  # in dataset_parts_parity_test.py
    assert missing_rows({k: [p for p in v if p not in table] for k, v in known.items()}, USED, ignored=elsewhere) == []
