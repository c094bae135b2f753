"""`trainrun predict` for series in time: what comes after the last row of each, from its last window, by name, in its units and
with its time; against the saved weights in NumPy."""

import csv
import io
import json
import subprocess

import numpy as np
import pytest
import safetensors.torch

from tests.program import CALLED

LENGTH, HORIZON = 4, 3
HEADER = ["shop", "day", "price", "holiday", "sales"]

# The past of (price, holiday, sales), flat, beside the holidays to come.
RECIPE = """\
version: 1
name: shops
model:
  layers:
    - {type: Flatten, name: past, inputs: features}
    - {type: Flatten, name: coming, inputs: known}
    - {type: Concat, dim: 1, inputs: [past, coming]}
    - {type: Linear, name: head, out_features: 3}
loss: MSELoss
metrics: [MAE]
dataset:
  train: &windows
    type: Windows
    length: 4
    horizon: 3
    group: shop
    time: day
    known: [holiday]
    dataset: {type: CSV, path: train.csv, label: sales, task: regression, features: [price, holiday]}
  eval: *windows
  transforms: [{type: Standardize, field: label}]
dataloader: {batch_size: 8}
optimizer: {type: AdamW, lr: 1e-2}
training: {num_epochs: 2}
output_dir: run
"""


def trainrun(folder, *arguments, fails=False):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def rows_of(shop, count, seed, first=1):
    draw = np.random.default_rng(seed)
    return [
        {"shop": shop, "day": f"2024-05-{first + i:02}", "price": round(float(draw.normal(5, 1)), 3), "holiday": int(draw.integers(2)),
         "sales": round(float(draw.normal(1000, 200)), 2)}
        for i in range(count)
    ]


def write(path, rows, columns=HEADER):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(name="shops", scope="module")
def folder_of_shops(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shops")
    write(folder / "train.csv", [row for seed, shop in enumerate(["north", "south"]) for row in rows_of(shop, 20, seed)])
    (folder / "recipe.yaml").write_text(RECIPE)
    trainrun(folder, "--quiet", "recipe.yaml")
    (folder / "train.csv").rename(folder / "gone.csv")  # which nobody needs any more
    return folder


def forecast(folder, past, coming):
    """`past`: the last rows of a series; `coming`: the holidays after them."""
    weights = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    with (folder / "gone.csv").open() as file:
        own = list(csv.DictReader(file))
    targets = []  # of all windows, from which Standardize learns
    for shop in ("north", "south"):
        sales = [float(row["sales"]) for row in own if row["shop"] == shop]
        targets += [sales[i : i + HORIZON] for i in range(LENGTH, len(sales) - HORIZON + 1)]
    mean, std = np.mean(targets, axis=0), np.std(targets, axis=0)
    features = [[row["price"], row["holiday"], row["sales"]] for row in past[-LENGTH:]]
    x = np.array([*np.array(features, dtype=float).flatten(), *coming])
    return (weights["head.weight"].numpy().astype(float) @ x + weights["head.bias"].numpy()) * std + mean


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def empty(row):
    return row | {"price": "", "sales": ""}  # the price to come is not known either


def test_each_series_is_forecast_from_its_last_rows(shops):
    east, west = rows_of("east", 9, 7), rows_of("west", LENGTH + HORIZON, 8, first=11)
    coming = [empty(row) for row in rows_of("east", HORIZON, 9, first=10)]
    beyond = [empty(row) for row in west[LENGTH:]]
    mixed = [row for pair in zip(east[:LENGTH], west[:LENGTH]) for row in pair]
    write(shops / "new.csv", [*mixed, *east[LENGTH:], *coming, *beyond], ["sales", "day", "holiday", "shop", "price"])
    found = table(trainrun(shops, "predict", "run", "new.csv"))
    assert list(found[0]) == ["shop", "day", "step", "sales"]
    assert [(row["shop"], row["day"], row["step"]) for row in found] == [
        *[("east", f"2024-05-{10 + i}", str(i + 1)) for i in range(HORIZON)],
        *[("west", f"2024-05-{15 + i}", str(i + 1)) for i in range(HORIZON)],
    ]
    expected = [*forecast(shops, east, [row["holiday"] for row in coming]), *forecast(shops, west[:LENGTH], [row["holiday"] for row in beyond])]
    np.testing.assert_allclose([float(row["sales"]) for row in found], expected, rtol=2e-5, atol=0.01)


def test_what_a_series_lacks_is_said_at_its_place(shops):
    good, short = rows_of("good", 5, 1), rows_of("short", 2, 2)
    coming = [empty(row) for row in rows_of("good", HORIZON, 3, first=6)]
    write(shops / "short.csv", [*good, *coming, *short])
    assert "short.csv: shop short has 2 rows up to its last with a target, and the model reads 4" in trainrun(shops, "predict", "run", "short.csv", fails=True)
    done = subprocess.run([CALLED, "predict", "run", "short.csv", "--broken", "skip"], cwd=shops, capture_output=True, text=True, check=True)
    assert {row["shop"] for row in table(done.stdout)} == {"good"} and "1 of 2 samples could not be read" in done.stderr
    write(shops / "unknown.csv", [*good, *coming[:1]])
    message = trainrun(shops, "predict", "run", "unknown.csv", fails=True)
    assert "has 1 row after its last with a target, and the model reads holiday of the 3 to come" in message
    write(shops / "gap.csv", [*good[:3], *good[4:], *coming])
    assert "gap.csv:5:day: 1 step of 1 day is missing after 2024-05-03; fill in the missing rows" in trainrun(shops, "predict", "run", "gap.csv", fails=True)
    write(shops / "hole.csv", [*good[:2], good[2] | {"sales": ""}, *good[3:], *coming])
    assert "hole.csv:4:label: the target is missing, and the model reads the last 4 of them" in trainrun(shops, "predict", "run", "hole.csv", fails=True)
    write(shops / "old_gap.csv", [*rows_of("good", 2, 5), *rows_of("good", 6, 1, first=9), *[row | {"day": f"2024-05-{15 + i}"} for i, row in enumerate(coming)]])
    assert len(table(trainrun(shops, "predict", "run", "old_gap.csv"))) == HORIZON  # before the last window


SOLAR = """\
version: 1
name: solar
model: {layers: [Flatten, {type: Linear, name: head, out_features: 4}, {type: Reshape, shape: [2, 2]}]}
loss: MSELoss
metrics: [MAE]
dataset:
  train: &windows
    type: Windows
    length: 3
    horizon: 2
    time: month
    dataset: {type: CSV, path: solar.csv, label: [power, heat], task: regression, features: [sun]}
  eval: *windows
  transforms: [{type: Standardize, field: label}]     # along dim 1: each step has a mean of its own
optimizer: {type: SGD, lr: 0}
training: {num_epochs: 1}
output_dir: run
"""


def test_several_targets_and_months_come_in_their_units_with_their_times(tmp_path):
    days = ["2023-10-31", "2023-11-30", "2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31"]
    rows = np.array([[i, i * i, -i] for i in range(len(days))], dtype=float)  # sun, power, heat
    lines = [f"{day},{','.join(map(str, row))}\n" for day, row in zip(days, rows)]
    (tmp_path / "solar.csv").write_text("month,sun,power,heat\n" + "".join(lines))
    (tmp_path / "recipe.yaml").write_text(SOLAR)
    trainrun(tmp_path, "--quiet", "recipe.yaml")
    weights = safetensors.torch.load_file(tmp_path / "run/checkpoints/latest/model.safetensors")
    targets = np.array([rows[start : start + 2, 1:] for start in (3, 4)])  # of the two windows: [2, steps, 2]
    mean, std = targets.mean((0, 2)), targets.std((0, 2))

    def outputs(past):
        scaled = (weights["head.weight"].numpy().astype(float) @ past.flatten() + weights["head.bias"].numpy()).reshape(2, 2)
        return scaled * std[:, None] + mean[:, None]

    found = table(trainrun(tmp_path, "predict", "run", "solar.csv"))
    assert [row["month"] for row in found] == ["2024-04-30", "2024-05-31"]
    assert list(found[0]) == ["month", "step", "power", "heat"]
    np.testing.assert_allclose([[float(row[name]) for name in ("power", "heat")] for row in found], outputs(rows[3:]), rtol=1e-5)
    errors = [np.abs(outputs(rows[start - 3 : start]) - rows[start : start + 2, 1:]) for start in (3, 4)]
    figures = json.loads(trainrun(tmp_path, "eval", "run", "--json"))
    np.testing.assert_allclose(figures["eval/mae"], np.mean(errors), rtol=1e-5)
    (tmp_path / "other.csv").write_text("month,sun,power,heat\n" + "".join(lines[2:]))
    assert table(trainrun(tmp_path, "predict", "run", "other.csv")) == found  # of older rows nothing is read
    both = table(trainrun(tmp_path, "predict", "run", "solar.csv", "other.csv"))
    assert [row["file"] for row in both] == ["solar.csv"] * 2 + ["other.csv"] * 2


ALONE = """\
version: 1
name: alone
model: {layers: [Flatten, {type: Linear, name: head, out_features: 2}]}
loss: L1Loss
dataset: {train: {type: Windows, length: 5, horizon: 2, dataset: {type: CSV, path: sales.csv, label: sales, task: regression, id: day}}}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
output_dir: run
"""


def test_a_series_is_forecast_from_nothing_but_itself(tmp_path):
    sales = np.round(np.sin(np.arange(30)), 3)
    (tmp_path / "sales.csv").write_text("day,sales\n" + "".join(f"{day},{number}\n" for day, number in enumerate(sales)))
    (tmp_path / "recipe.yaml").write_text(ALONE)
    trainrun(tmp_path, "--quiet", "recipe.yaml")
    weights = safetensors.torch.load_file(tmp_path / "run/checkpoints/latest/model.safetensors")
    expected = weights["head.weight"].numpy() @ sales[-5:] + weights["head.bias"].numpy()
    found = table(trainrun(tmp_path, "predict", "run", "sales.csv"))
    np.testing.assert_allclose([float(row["sales"]) for row in found], expected, rtol=1e-4, atol=1e-5)
    (tmp_path / "table.yaml").write_text(ALONE.replace("{type: Windows, length: 5, horizon: 2, dataset: ", "").replace("}}}", "}}"))
    assert "sales.csv: has no column but the label 'sales' and the id 'day'" in trainrun(tmp_path, "table.yaml", fails=True)
