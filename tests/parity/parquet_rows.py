"""Rows of every type that Parquet has and trainrun reads, and the files and recipes that the tests of them share."""

import csv
import datetime
import decimal
import json
import random
import struct

import pyarrow
import pyarrow.ipc
import pytest

from probe import ProbeError


def read(probe, **spec):
    reply, results = probe.ask("dataset", spec=spec)
    return results.under("output"), reply


def error_of(probe, **spec):
    with pytest.raises(ProbeError) as error:
        read(probe, **spec)
    return str(error.value)


ROWS = 300
UTC = datetime.timezone.utc


def some(make, empty=0.1, seed=0):
    """Values of a column, of which a tenth is missing."""
    draw = random.Random(seed)
    return [None if draw.random() < empty else make(draw) for _ in range(ROWS)]


def instants(digits, zone=None):
    step = 10 ** (6 - digits) if digits else 1000000
    return some(lambda d: datetime.datetime(1950, 1, 1, tzinfo=zone) + datetime.timedelta(microseconds=d.randrange(9 * 10**15) // step * step))


def decimals(digits, scale):
    return some(lambda d: decimal.Decimal(d.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale, decimal.Context(prec=80)))


def halves(draw):
    return struct.unpack("e", struct.pack("e", draw.gauss(0, 100)))[0]


def singles(draw):
    return struct.unpack("f", struct.pack("f", draw.gauss(0, 1e5)))[0]


CITIES = ["Oslo", "Rome", "São Paulo", "two, words", 'with "quotes"', "東京"]
# Of each column the values, Arrow's type, and what a recipe says of it.
COLUMNS = {
    **{f"int{bits}": (some(lambda d, b=bits: d.randrange(-(2 ** (b - 1)), 2 ** (b - 1))), getattr(pyarrow, f"int{bits}")(), {"missing": "median"})
       for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (some(lambda d, b=bits: d.randrange(2**b)), getattr(pyarrow, f"uint{bits}")(), {"missing": "mean"}) for bits in (8, 16, 32, 64)},
    "half": (some(halves), pyarrow.float16(), {"missing": 0.5}),
    "single": (some(singles), pyarrow.float32(), {"missing": -1}),
    "double": (some(lambda d: d.gauss(0, 1) * 10.0 ** d.randrange(-30, 30)), pyarrow.float64(), {"missing": "median"}),
    "decimal_32": (decimals(7, 2), pyarrow.decimal32(9, 2), {"missing": 0}),
    "decimal_64": (decimals(15, 9), pyarrow.decimal64(18, 9), {"missing": 0}),
    "decimal_128": (decimals(30, 10), pyarrow.decimal128(38, 10), {"missing": 0}),
    "decimal_256": (decimals(60, 40), pyarrow.decimal256(76, 40), {"missing": 0}),
    "flag": (some(lambda d: d.random() < 0.5), pyarrow.bool_(), {"type": "boolean", "missing": "median"}),
    "day": (some(lambda d: datetime.date(1900, 1, 1) + datetime.timedelta(days=d.randrange(80000))), pyarrow.date32(), {"type": "date", "missing": 0}),
    "day_64": (some(lambda d: datetime.date(1900, 1, 1) + datetime.timedelta(days=d.randrange(80000))), pyarrow.date64(), {"type": "date", "missing": 0}),
    "seconds": (instants(0), pyarrow.timestamp("s"), {"type": "date", "missing": "median"}),
    "millis": (instants(3), pyarrow.timestamp("ms"), {"type": "date", "missing": "median"}),
    "micros": (instants(6), pyarrow.timestamp("us"), {"type": "date", "missing": "median"}),
    "nanos": (instants(6), pyarrow.timestamp("ns"), {"type": "date", "missing": "median"}),
    "zoned": (instants(6, UTC), pyarrow.timestamp("us", "Europe/Oslo"), {"type": "date", "missing": "median"}),
    "city": (some(lambda d: d.choice(CITIES)), pyarrow.string(), {"type": "category", "missing": "most_frequent"}),
    "large": (some(lambda d: d.choice(CITIES)), pyarrow.large_string(), {"type": "category", "missing": "none"}),
    "coded": (some(lambda d: d.choice(CITIES)), pyarrow.dictionary(pyarrow.int16(), pyarrow.string()), {"type": "category", "missing": "none"}),
    "coded_number": (some(lambda d: d.randrange(5)), pyarrow.dictionary(pyarrow.int8(), pyarrow.int64()), {"type": "integer", "missing": -1}),
    "count": (some(lambda d: d.randrange(-(2**62), 2**62)), pyarrow.int64(), {"type": "integer", "missing": -1}),
    "as_category": (some(lambda d: d.randrange(7)), pyarrow.uint16(), {"type": "category", "missing": "none"}),
    "label": (some(lambda d: d.choice(["yes", "no", "maybe"]), empty=0), pyarrow.string(), "category"),
}
RECIPE_COLUMNS = {name: spec for name, (_, _, spec) in COLUMNS.items()}


def table(names=None):
    chosen = {name: COLUMNS[name] for name in names or COLUMNS}
    return pyarrow.table({name: pyarrow.array(values, kind) for name, (values, kind, _) in chosen.items()})


def csv_text(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, (datetime.date, datetime.datetime)) else str(value)


def write_csv(path, columns):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([list(columns), *([csv_text(value) for value in row] for row in zip(*columns.values(), strict=True))])
    return str(path)


# Codec, rows of a row group, and how pages are written.
FORMS = [
    ("none", 1000, {"use_dictionary": False, "data_page_version": "1.0"}),
    ("snappy", 7, {"use_dictionary": True, "data_page_version": "2.0"}),
    ("gzip", 100, {"use_dictionary": True, "data_page_version": "1.0", "data_page_size": 64}),
    ("zstd", 299, {"use_dictionary": False, "data_page_version": "2.0", "write_page_checksum": True}),
    ("lz4", 1, {"use_dictionary": True, "store_schema": False}),
    ("brotli", 50, {"use_dictionary": False, "column_encoding": {"count": "DELTA_BINARY_PACKED", "city": "DELTA_BYTE_ARRAY", "double": "BYTE_STREAM_SPLIT"}}),
]


def write_stream(rows, path, **options):
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, rows.schema, **options) as writer:
        writer.write_table(rows, max_chunksize=70)


RECIPE = """\
version: 1
seed: 3
model: {layers: [{type: Linear, out_features: 16}, ReLU, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset: {train: DATA, transforms: [Standardize, {type: GaussianNoise, field: features, sigma: 0.1}]}
dataloader: {batch_size: 16, num_workers: 0}
optimizer: {type: AdamW, lr: 0.01}
training: {num_epochs: 3}
"""
TRAINED = ["int16", "single", "decimal_64", "flag", "day", "city", "label"]


def write_recipe(folder, data):
    (folder / "r.yaml").write_text(RECIPE.replace("DATA", json.dumps(data)))
    return str(folder / "r.yaml")
