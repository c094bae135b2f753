"""Numbers that float32 would round (Unix time, identifiers of eight digits) keep their digits until they are
standardised: the model gets what scikit-learn's StandardScaler makes of the file's own numbers, in every kind of table,
as features and as labels."""

import datetime
import json
import sqlite3

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from probe import ProbeError

ROWS = 40
RECIPE = """\
version: 1
seed: 5
model: {layers: [Flatten, {type: Linear, out_features: 1}]}
loss: MSELoss
dataset:
  train: DATA
  transforms: [TRANSFORMS]
dataloader: {batch_size: 7, shuffle: false, num_workers: WORKERS}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
checkpoint: {every: null}
"""
# {the file's ending: how it is written}
TABLE = "label: y, task: regression"
KINDS = {
    "csv": "{type: CSV, path: FILE, " + TABLE + "}",
    "jsonl": "{type: JSONL, path: FILE, " + TABLE + "}",
    "db": "{type: SQLite, path: FILE, table: t, " + TABLE + "}",
    "parquet": "{type: Parquet, path: FILE, " + TABLE + "}",
    "npz": "{type: TensorFile, path: FILE, target: label}",
}


def rows():
    """Unix seconds, a minute apart; numbers above 2^24; numbers that float32 holds; and a label of large numbers."""
    random = np.random.default_rng(3)
    seconds = 1_700_000_000 + 60.0 * np.arange(ROWS)
    numbers = 2**24 + 1 + 2.0 * random.permutation(ROWS)
    small = random.integers(-8, 8, ROWS) / 4
    return np.stack([seconds, numbers, small], 1), 1e9 + random.permutation(ROWS) * 3.0 + 0.25


def write(folder, kind):
    features, label = rows()
    path = folder / f"t.{kind}"
    table = [dict(zip("abcy", [int(a), int(b), c, y])) for (a, b, c), y in zip(features, label)]
    if kind == "csv":
        path.write_text("a,b,c,y\n" + "".join(",".join(str(value) for value in row.values()) + "\n" for row in table))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    elif kind == "db":
        base = sqlite3.connect(path)
        base.execute("CREATE TABLE t (a INTEGER, b INTEGER, c REAL, y REAL)")
        base.executemany("INSERT INTO t VALUES (:a, :b, :c, :y)", table)
        base.commit()
        base.close()
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    else:
        np.savez(path, features=features, label=label[:, None])
    return KINDS[kind].replace("FILE", str(path))


def batches(probe, folder, data, transforms, workers=0):
    """All batches as the model gets them, one after the other."""
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.replace("DATA", data).replace("TRANSFORMS", transforms).replace("WORKERS", str(workers)))
    _, given = probe.ask("batches", recipe=str(path), overrides=[], rank=0, world_size=1, epoch=0, start=0)
    found = given.under("output")
    numbers = range(1 + max(int(name.split(".")[0]) for name in found))
    return {field: torch.cat([found[f"{number}.{field}"] for number in numbers]) for field in {name.split(".")[1]
                                                                                               for name in found}}


def scaled(numbers):
    return torch.from_numpy(StandardScaler().fit_transform(numbers)).float()


def assert_close(given, expected):
    assert given.dtype == torch.float32 and given.shape == expected.shape
    torch.testing.assert_close(given, expected, rtol=1e-6, atol=1e-6)


STANDARDIZE = "Standardize, {type: Standardize, field: label}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_gives_what_scikit_learn_makes_of_its_numbers(probe, tmp_path, kind):
    features, label = rows()
    data = write(tmp_path, kind)
    given = batches(probe, tmp_path, data, STANDARDIZE)
    assert_close(given["features"], scaled(features))
    assert_close(given["label"], scaled(label[:, None]))
    assert len(given["features"][:, 0].unique()) == ROWS == len(given["label"].unique())
    plain = batches(probe, tmp_path, data, "")  # rounded once, last of all
    assert torch.equal(plain["features"], torch.from_numpy(features).float())
    assert torch.equal(plain["label"], torch.from_numpy(label[:, None]).float())
    again = batches(probe, tmp_path, data, STANDARDIZE, workers=2)
    assert all(torch.equal(again[field], given[field]) for field in given)


def test_windows_parts_and_joined_tables_keep_them_too(probe, tmp_path):
    features, label = rows()
    table = write(tmp_path, "csv")
    windows = batches(probe, tmp_path, f"{{type: Windows, length: 3, dataset: {table}}}",
                      "{type: Standardize, dim: -1}")
    both = np.concatenate([features, label[:, None]], 1)
    views = np.lib.stride_tricks.sliding_window_view(both[:-1], 3, axis=0).swapaxes(1, 2)  # [N, 3, 4]
    expected = StandardScaler().fit_transform(views.reshape(-1, 4)).reshape(views.shape)
    assert_close(windows["features"], torch.from_numpy(expected).float())
    (tmp_path / "small.csv").write_text("a,b,c,y\n1,2,3,4\n5,6,7,8\n")  # which float32 holds
    joined = f"{{type: Concat, datasets: [{table}, {table.replace('t.csv', 'small.csv')}]}}"
    given = batches(probe, tmp_path, joined, STANDARDIZE)
    assert_close(given["features"], scaled(np.concatenate([features, [[1, 2, 3], [5, 6, 7]]])))


def test_dates_keep_their_seconds_and_what_stands_for_missing_values_its_digits(probe, tmp_path):
    first = datetime.datetime(2024, 5, 31, 23, 50)
    times = [first + datetime.timedelta(seconds=20 * i) for i in range(ROWS)]
    seconds = [1.7e9 + i for i in range(ROWS)]
    lines = [f"{time.isoformat()},{'' if i == 7 else number},{i}\n" for i, (time, number) in enumerate(zip(times,
                                                                                                           seconds))]
    (tmp_path / "t.csv").write_text("at,s,y\n" + "".join(lines))
    data = f"{{type: CSV, path: {tmp_path}/t.csv, {TABLE}, columns: {{at: date, s: {{missing: mean}}}}}}"
    seconds[7] = np.mean(seconds[:7] + seconds[8:])
    days = [time.replace(tzinfo=datetime.timezone.utc).timestamp() / 86400 for time in times]
    assert_close(batches(probe, tmp_path, data, "Standardize")["features"], scaled(np.stack([days, seconds], 1)))


def test_integers_that_no_type_of_ours_holds_are_refused(probe, tmp_path):
    np.savez(tmp_path / "t.npz", x=np.zeros((2, 2)), n=np.array([[1, 2], [2**63 + 5, 3]], np.uint64), label=np.zeros((2, 1)))
    with pytest.raises(ProbeError, match="t.npz:1:n: holds integers above"):
        batches(probe, tmp_path, f"{{type: TensorFile, path: {tmp_path}/t.npz}}", "")


def test_lists_of_numbers_and_labels_of_images_as_well(probe, tmp_path):
    lists = 1.7e9 + np.arange(ROWS * 2.0).reshape(ROWS, 2)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"x": row.tolist(), "y": i}) + "\n" for i, row
                                              in enumerate(lists)))
    data = f"{{type: JSONL, path: {tmp_path}/t.jsonl, {TABLE}, columns: {{x: {{shape: [2]}}}}}}"
    assert_close(batches(probe, tmp_path, data, "{type: Standardize, field: x}")["x"], scaled(lists))
    Image = pytest.importorskip("PIL.Image")
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    times = 1.7e9 + np.arange(5.0)
    (tmp_path / "i.csv").write_text("path,t\n" + "".join(f"a.png,{int(time)}\n" for time in times))
    images = f"{{type: ImageCSV, path: {tmp_path}/i.csv, label: [t]}}"
    assert_close(batches(probe, tmp_path, images, "{type: Standardize, field: label}")["label"], scaled(times[:, None]))
