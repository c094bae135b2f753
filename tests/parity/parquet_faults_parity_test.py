"""Damaged Parquet and Arrow files, which are errors with their places, and the library that reads them: opened where a recipe
names such a file, missed with a message that says what to do, and using little memory."""

import datetime
import os
import pathlib
import re
import struct
import subprocess

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: tools/setup --tests fetches it")

import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

import fuzzing  # noqa: E402
from parquet_rows import COLUMNS, FORMS, RECIPE_COLUMNS, error_of, read, table, write_csv, write_recipe, write_stream  # noqa: E402
from probe import ProbeError  # noqa: E402
from tests.program import BINARY, peak_memory  # noqa: E402

BUILD = pathlib.Path(os.environ["TRAINRUN_BUILD_DIR"])
ROOT = pathlib.Path(__file__).resolve().parents[2]

# --- what is wrong


def parquet_bytes(rows=None, **options):
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table() if rows is None else rows, sink, **options)
    return sink.getvalue().to_pybytes()


def refused(probe, path, content, **spec):
    path.write_bytes(content)
    message = error_of(probe, type="Parquet", path=str(path), **{"label": "label", "columns": RECIPE_COLUMNS} | spec)
    assert str(path) in message and "terminate" not in message
    return message


def is_refused(probe, path, content):
    """Whether 1000 numbered rows are refused, by a DataError; where they are not, what was changed is nothing that they depend on."""
    path.write_bytes(content)
    try:
        fields, _ = read(probe, type="Parquet", path=str(path), label="label")
    except ProbeError as error:
        assert str(path) in str(error) and "died" not in str(error)
        return True
    assert fields["features"].flatten().tolist() == list(range(1000))
    return False


def test_files_that_are_something_else_are_named(probe, tmp_path):
    path = tmp_path / "t.parquet"
    assert "No such file" in error_of(probe, type="Parquet", path=str(path), label="y")
    assert "is empty" in refused(probe, path, b"")
    assert "is neither a Parquet nor an Arrow file" in refused(probe, path, b"a,b\n1,2\n")
    assert "is neither a Parquet nor an Arrow file" in refused(probe, path, b"\x1f\x8b" + bytes(100))
    assert "Feather file of version 1" in refused(probe, path, b"FEA1" + bytes(100))
    assert "footer" in refused(probe, path, b"PAR1" + bytes(100))
    assert "t.parquet" in refused(probe, path, b"ARROW1\0\0" + bytes(100))
    assert "t.parquet" in refused(probe, path, b"\xff\xff\xff\xff" + bytes(100))
    assert "expected a file, found a folder" in error_of(probe, type="Parquet", path=str(tmp_path), label="y")
    assert "has no columns" in refused(probe, path, parquet_bytes(pyarrow.table({})))
    assert "has no rows" in refused(probe, path, parquet_bytes(table()[:0]))


def test_files_that_are_cut_off_or_changed_are_named(probe, tmp_path):
    path, whole = tmp_path / "t.parquet", parquet_bytes(row_group_size=50, compression="zstd")
    for length in (3, 4, 8, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        refused(probe, path, whole[:length])
    (size,) = struct.unpack("<I", whole[-8:-4])
    for claimed in (0, size - 1, size + 1, len(whole), 2**31 - 1, 2**31, 2**32 - 1):
        refused(probe, path, whole[:-8] + struct.pack("<I", claimed) + whole[-4:])
    refused(probe, path, whole[: -8 - size] + bytes(size) + whole[-8:])
    refused(probe, path, whole[: -8 - size] + b"\xff" * size + whole[-8:])


def test_a_damaged_page_is_found_by_its_checksum_and_its_row_group_named(probe, tmp_path):
    path = tmp_path / "t.parquet"
    rows = pyarrow.table({"x": list(range(30)), "label": [0, 1] * 15})
    pyarrow.parquet.write_table(rows, path, row_group_size=10, compression="none", use_dictionary=False, write_page_checksum=True)
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(2).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 16
    message = refused(probe, path, bytes(content), columns={})
    assert f"{path}: row group 2 (the first is 0): " in message and "CRC checksum" in message


def test_a_footer_that_claims_other_numbers_of_rows_is_refused(probe, tmp_path):
    path = tmp_path / "t.parquet"
    whole = parquet_bytes(pyarrow.table({"x": list(range(1000)), "label": [0, 1] * 500}), compression="none", use_dictionary=False)
    at = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
    varint = bytes([0xD0, 0x0F])  # 1000, in zigzag
    places = [i for i in range(at, len(whole) - 1) if whole[i: i + 2] == varint]
    assert len(places) >= 4
    found = []
    for place in places:  # of the file, of the row group, of each column
        for changed in (bytes([0xD2, 0x0F]), bytes([0xCE, 0x0F]), bytes([0xFE, 0x7F])):
            found.append(is_refused(probe, path, whole[:place] + changed + whole[place + 2:]))
    assert sum(found) >= 12
    path.write_bytes(whole[: places[-1]] + bytes([0xCE, 0x0F]) + whole[places[-1] + 2:])
    assert "together do not have the number of rows" in error_of(probe, type="Parquet", path=str(path), label="label")


def varint(number):
    """As Thrift writes a positive number, in zigzag."""
    number, found = 2 * number, []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize("claimed", [2**20, 2**30, 2**31 - 1, 2**40, 2**62])
def test_sizes_that_are_claimed_and_not_there_are_refused(probe, tmp_path, claimed):
    path = tmp_path / "t.parquet"
    rows = pyarrow.table({"label": [0, 1] * 500, "x": list(range(1000))})
    for codec in ("none", "zstd"):
        whole = parquet_bytes(rows, compression=codec, use_dictionary=False)
        column = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(whole)).metadata.row_group(0).column(1)
        header = column.data_page_offset  # of the last page; its sizes are the second and the third field
        at = header + whole[header:].index(b"\x15", 1) + 1
        size = varint(8000 + 6)
        assert whole[at: at + 2] == size[:2] or codec == "zstd" or whole[at] & 128
        end = at + next(i for i in range(9) if whole[at + i] < 128) + 1
        refused(probe, path, whole[:at] + varint(claimed) + whole[end:], columns={})
        footer = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
        found = 0
        for number in {column.total_compressed_size, column.total_uncompressed_size, column.data_page_offset}:
            for place in range(footer, len(whole) - 8):
                if whole[place:].startswith(varint(number)):
                    changed = whole[footer:place] + varint(claimed) + whole[place + len(varint(number)): -8]
                    found += is_refused(probe, path, whole[:footer] + changed + struct.pack("<I", len(changed)) + b"PAR1")
        assert found > 0
    write_stream(rows, path)
    whole = path.read_bytes()
    (size,) = struct.unpack("<i", whole[4:8])  # of the schema, then a message of the first rows
    rows_at = 8 + size
    for place in (4, rows_at + 4):
        refused(probe, path, whole[:place] + struct.pack("<i", min(claimed, 2**31 - 1)) + whole[place + 4:], columns={})
    lengths = [i for i in range(rows_at, rows_at + 300, 8) if struct.unpack("<q", whole[i: i + 8])[0] in (70, 560)]
    assert len(lengths) > 3  # of the rows, of each column, of each buffer; the place of an empty buffer, too
    assert sum(is_refused(probe, path, whole[:place] + struct.pack("<q", claimed) + whole[place + 8:]) for place in lengths) >= len(lengths) - 1


def test_columns_that_cannot_be_read_are_named(probe, tmp_path):
    path = tmp_path / "t.parquet"
    good = {"x": [1, 2], "label": [0, 1]}
    for values, kind in [([{"a": 1}] * 2, "struct<a: int64>"), ([b"a", b"b"], "binary"), ([datetime.time(1)] * 2, "time64[us]"), ([[{"a": 1}]] * 2, "list<element: struct")]:
        pyarrow.parquet.write_table(pyarrow.table(good | {"odd": values}), path)
        for more in ({}, {"columns": "auto"}, {"features": ["odd"]}):
            message = error_of(probe, type="Parquet", path=str(path), label="label", **more)
            assert f"{path}:odd: holds values of the type {kind}" in message and "by listing the others in features" in message
        assert read(probe, type="Parquet", path=str(path), label="label", features=["x"])[0]["features"].tolist() == [[1], [2]]
    spec = {"type": "Parquet", "path": str(path), "label": "label"}
    pyarrow.parquet.write_table(pyarrow.table({"x": ["1", "two"], "label": [0, 1]}), path)
    assert "t.parquet:2:x: 'two' is not a number" in error_of(probe, **spec)
    assert "t.parquet:1:y: there is no such column" in error_of(probe, **spec | {"features": ["y"]})
    pyarrow.parquet.write_table(pyarrow.table({"x": ["a", "b"], "label": [0.5, 1]}), path)
    assert "t.parquet:1:label: '0.5' is not a class" in error_of(probe, **spec | {"columns": {"x": "category"}})
    pyarrow.parquet.write_table(pyarrow.table([[1], [2], [0]], names=["x", "x", "label"]), path)
    assert "t.parquet:1:x: two columns are called 'x'" in error_of(probe, **spec)
    distant = pyarrow.table({"x": pyarrow.array([2**62, 0], pyarrow.timestamp("s")), "label": [0, 1]})
    pyarrow.feather.write_feather(distant, path)
    assert "t.parquet:1:x: " in error_of(probe, **spec | {"columns": {"x": "date"}})


def test_texts_that_are_not_utf_8_are_refused(probe, tmp_path):
    path = tmp_path / "t.parquet"
    offsets = pyarrow.py_buffer(struct.pack("<3i", 0, 4, 6))
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, offsets, pyarrow.py_buffer(b"good\xff\xfe")])
    rows = pyarrow.table({"x": texts, "label": [0, 1]})
    pyarrow.parquet.write_table(rows, path)
    message = error_of(probe, type="Parquet", path=str(path), label="label", columns={"x": "category"})
    assert "row group 0" in message and "UTF8" in message


def test_encrypted_files_say_so(probe, tmp_path):
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):
        def __init__(self, _):
            super().__init__()

        def wrap_key(self, key_bytes, _):
            return key_bytes.hex()

        def unwrap_key(self, wrapped_key, _):
            return bytes.fromhex(wrapped_key)

    for plain_footer in (False, True):
        made = encryption.CryptoFactory(Keys)
        properties = made.file_encryption_properties(encryption.KmsConnectionConfig(), encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["x"]}, plaintext_footer=plain_footer))
        path = tmp_path / "t.parquet"
        with pyarrow.parquet.ParquetWriter(path, pyarrow.schema({"x": pyarrow.int64(), "label": pyarrow.int64()}), encryption_properties=properties) as writer:
            writer.write_table(pyarrow.table({"x": [1, 2], "label": [0, 1]}))
        assert "is encrypted, and there is no key to decrypt it with" in error_of(probe, type="Parquet", path=str(path), label="label")


def test_files_changed_at_random_are_read_or_refused(probe, tmp_path):
    rows = table([name for name in COLUMNS if not name.startswith(("int", "uint", "decimal_6"))])[:40]
    rows = rows.append_column("chat", pyarrow.array([[{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]] * 40))
    rows = rows.append_column("list", pyarrow.array([[1, 2], None, [], [3]] * 10))
    files = []
    for codec, group, options in FORMS:
        files.append(tmp_path / f"{codec}.parquet")
        options = {key: value for key, value in options.items() if key != "write_page_checksum"}
        options |= {"column_encoding": {"city": "DELTA_BYTE_ARRAY", "double": "BYTE_STREAM_SPLIT"}} if "column_encoding" in options else {}
        pyarrow.parquet.write_table(rows, files[-1], compression=codec, row_group_size=max(group, 9), **options)
    for codec in ("uncompressed", "lz4"):
        files.append(tmp_path / f"{codec}.arrow")
        pyarrow.feather.write_feather(rows, files[-1], compression=codec, chunksize=16)
    files.append(tmp_path / "stream.arrow")
    write_stream(rows, files[-1])
    small = [file for file in files if file.stat().st_size < 2**20]
    assert len(small) == len(files)
    fuzzing.fuzz(probe, tmp_path, "arrow", [str(file) for file in files])


# --- the library

OF_ARROW = re.compile(r"libtrainrun_arrow|libarrow|libparquet")


def opened_by(folder, recipe) -> list[str]:
    """The files that a run opens, by strace."""
    log = folder / "strace.log"
    done = subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=openat,open", "-o", log, BINARY, recipe, f"output_dir={folder}/run", "--quiet"], cwd=ROOT,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [file for file in re.findall(r'open(?:at)?\([^"]*"([^"]+)"', log.read_text()) if OF_ARROW.search(file)]


def test_arrow_is_opened_where_a_recipe_names_such_a_file_and_nowhere_else(tmp_path):
    names = ["int16", "label"]
    spec = {"type": "CSV", "path": write_csv(tmp_path / "t.csv", {name: COLUMNS[name][0] for name in names}), "label": "label",
            "columns": {name: RECIPE_COLUMNS[name] for name in names}}
    assert opened_by(tmp_path, write_recipe(tmp_path, spec)) == []
    pyarrow.parquet.write_table(table(names), tmp_path / "t.parquet")
    files = opened_by(tmp_path, write_recipe(tmp_path, spec | {"type": "Parquet", "path": str(tmp_path / "t.parquet")}))
    assert any("libparquet" in file for file in files), "strace sees nothing"


@pytest.mark.parametrize("file", ["bin/trainrun", "lib/libtrainrun_registry.so"])
def test_the_program_links_nothing_of_arrow(file):
    sections = subprocess.run(["readelf", "-d", BUILD / file], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in sections or "libtrainrun_registry.so" in sections, "not what was meant"
    assert not OF_ARROW.search(sections)


def test_a_program_that_was_built_without_it_says_what_to_do(tmp_path):
    """The library is hidden from the program by strace."""
    pyarrow.parquet.write_table(table(["int16", "label"]), tmp_path / "t.parquet")
    recipe = write_recipe(tmp_path, {"type": "Parquet", "path": str(tmp_path / "t.parquet"), "label": "label"})
    library = BUILD / "lib/libtrainrun_arrow.so"
    assert library.exists()
    done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-P", library, "-e", "inject=stat,newfstatat,statx:error=ENOENT", BINARY, "validate", recipe],
                          cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and f"{tmp_path}/t.parquet: Parquet and Arrow files are read and written by a part that this trainrun was built without" in said
    assert f"there is no {library}" in said and "run tools/setup --arrow" in said
    done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-P", next(pathlib.Path(pyarrow.__file__).parent.glob("libparquet.so.*")), "-e",
                           "inject=openat:error=ENOENT", BINARY, "validate", recipe], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "the libraries for Parquet and Arrow files cannot be opened (libparquet.so" in said
    assert f"pip install pyarrow=={pyarrow.__version__}" in said


def test_a_row_group_is_read_a_piece_at_a_time(tmp_path):
    """A column of 150 MB in one row group costs the memory of its categories."""
    count, texts = 60_000, [character * 2500 for character in "abc"]
    rows = pyarrow.table({"x": [float(i) for i in range(count)], "text": [texts[i % 3] for i in range(count)], "label": [i % 3 for i in range(count)]})
    pyarrow.parquet.write_table(rows, tmp_path / "t.parquet", row_group_size=count, compression="none", use_dictionary=False)
    assert (tmp_path / "t.parquet").stat().st_size > 150_000_000
    spec = {"type": "Parquet", "path": str(tmp_path / "t.parquet"), "label": "label", "num_classes": 3,
            "columns": {"text": {"type": "category", "categories": texts, "one_hot": True}}}
    short = ["training={num_epochs: null, max_steps: 1}", "--quiet"]
    without = peak_memory([BINARY, write_recipe(tmp_path, {**spec, "features": ["x"], "columns": {}}), f"output_dir={tmp_path}/without", *short])
    whole = peak_memory([BINARY, write_recipe(tmp_path, spec), f"output_dir={tmp_path}/with", *short])
    assert whole - without < 60 * 2**20
