"""Parts of data sets, windows over them, and the order of their samples, as torch.utils.data and NumPy give them."""

import numpy as np
import pytest
import torch

from dataset_reading import USED, error_of, read, save
from probe import ProbeError, assert_same, missing_rows


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


# In partition_parity_test.py and forecasts_parity_test.py.
BY_VALUE = {"Split.stratify", "Split.group"} | {f"Windows.{name}" for name in ("known", "time", "gaps", "holdout", "origins")}


def test_every_parameter_of_parts_and_windows_has_a_test(probe):
    known = {name: probe.ask("catalog")["dataset"][name] for name in ("Concat", "Split", "Windows")}
    assert missing_rows(known, USED, ignored=BY_VALUE) == []
