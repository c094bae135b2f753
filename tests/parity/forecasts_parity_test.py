"""Forecasts: rolling origins, exogenous columns known beforehand and steps that are missing, compared with a plain numpy
computation."""

import datetime

import numpy as np
import pytest
import torch

from probe import ProbeError, assert_same


def read(probe, spec, **request):
    reply, tensors = probe.ask("dataset", spec=spec, **request)
    return tensors.under("output"), reply


def error_of(probe, spec, **request):
    with pytest.raises(ProbeError) as error:
        read(probe, spec, **request)
    return str(error.value)


def shops(folder, sizes=(12, 9, 4)):
    """Series of several shops, whose rows lie mixed; [shop] -> [days, (price, promotion, sales)]."""
    random = np.random.default_rng(3)
    series = [random.standard_normal((size, 3)).round(3) for size in sizes]
    lines = [(day, shop) for shop, size in enumerate(sizes) for day in range(size)]
    text = "shop,day,price,promotion,sales\n" + "".join(
        f"s{shop},2024-05-{day + 1:02},{','.join(map(str, series[shop][day]))}\n" for day, shop in sorted(lines)
    )
    (folder / "shops.csv").write_text(text)
    table = {
        "type": "CSV",
        "path": str(folder / "shops.csv"),
        "label": "sales",
        "task": "regression",
        "id": "day",
        "features": ["price", "promotion"],
    }
    return {"type": "Windows", "dataset": table, "group": "shop", "time": "day"}, series


def windows(rows, length, horizon, stride=1, holdout=0, origins=None):
    """(past, future) by plain slices: from the beginning, or from the last origins."""
    last = len(rows) - holdout - horizon  # the latest origin
    found = [origin for origin in range(length, last + 1, stride)]
    if origins:
        found = sorted([origin for origin in range(last, length - 1, -stride)][:origins])
    return [(rows[origin - length : origin], rows[origin : origin + horizon]) for origin in found]


@pytest.mark.parametrize(
    "length, horizon, stride, holdout, origins",
    [(3, 1, 1, 0, None), (3, 2, 1, 4, None), (4, 2, 2, 0, 3), (2, 3, 3, 1, 2), (3, 2, 2, 0, 100)],
)
def test_rolling_origins_are_those_of_numpy(probe, tmp_path, length, horizon, stride, holdout, origins):
    spec, series = shops(tmp_path)
    spec |= {"length": length, "horizon": horizon, "stride": stride, "holdout": holdout, "known": ["promotion"]}
    spec |= {"origins": origins} if origins else {}
    fields, reply = read(probe, spec)
    expected = [window for rows in series for window in windows(rows, length, horizon, stride, holdout, origins)]
    assert_same(
        fields,
        {
            "features": torch.tensor(np.array([past for past, _ in expected])).float(),
            "known": torch.tensor(np.array([future[:, 1:2] for _, future in expected])).float(),
            "label": torch.tensor(np.array([future[:, 2] for _, future in expected])).float(),
        },
        "windows",
        1e-6,
    )
    assert reply["fields"] == ["features", "known", "label"]


def test_what_is_held_out_and_what_is_evaluated_make_up_each_series(probe, tmp_path):
    spec, series = shops(tmp_path, (12,))
    spec |= {"length": 3, "horizon": 2}
    trained, _ = read(probe, spec | {"holdout": 6})
    tested, _ = read(probe, spec | {"origins": 3, "stride": 2})
    assert trained["label"].unique().numel() == 12 - 6 - 3  # of the rows before the holdout those after the first past
    assert torch.equal(tested["label"].flatten(), torch.tensor(series[0][6:, 2]).float())


@pytest.mark.parametrize("known", [[], ["promotion"]])
def test_no_value_of_the_future_reaches_a_window(probe, tmp_path, known):
    """From each origin on all that is not known beforehand is NaN: what the windows' inputs hold stays as it was."""
    rows = np.random.default_rng(1).standard_normal((20, 3)).astype(np.float32)
    length, horizon = 4, 3

    def inputs(rows, origin):
        files = {}
        for name, array in (("features", rows[:, :2]), ("promotion", rows[:, 1]), ("label", rows[:, 2])):
            np.save(tmp_path / f"{name}.npy", array)
            files[name] = str(tmp_path / f"{name}.npy")
        spec = {
            "type": "Windows",
            "length": length,
            "horizon": horizon,
            "known": known,
            "dataset": {"type": "TensorFile", "fields": files},
        }
        fields, _ = read(probe, spec | {"subset": [origin - length]})
        assert fields.pop("label").isnan().all() == bool(np.isnan(rows).any())
        return fields

    for origin in range(length, 20 - horizon + 1):
        poisoned = rows.copy()
        poisoned[origin:, [0, 2]] = np.nan
        if not known:
            poisoned[origin:] = np.nan
        whole, seen = inputs(rows, origin), inputs(poisoned, origin)
        assert_same(seen, whole, str(origin))
        assert all(tensor.isfinite().all() for tensor in seen.values()) and ("known_promotion" in seen) == bool(known)
        assert torch.equal(seen["features"][0], torch.from_numpy(rows[origin - length : origin]))
        if known:
            assert torch.equal(seen["known_promotion"][0], torch.from_numpy(rows[origin : origin + horizon, 1]))


def test_what_is_learnt_comes_from_the_rows_before_the_holdout(probe, tmp_path):
    values = ["1", "", "3", "5", "", "1000", "2000", "3000"]
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{value},{i}\n" for i, value in enumerate(values)))
    table = {
        "type": "CSV",
        "path": str(tmp_path / "t.csv"),
        "label": "y",
        "task": "regression",
        "columns": {"a": {"missing": "mean"}},
    }
    _, reply = read(probe, {"type": "Windows", "length": 2, "holdout": 3, "dataset": table})
    assert reply["learnt"] == {"a": {"missing": 3.0}}


@pytest.mark.parametrize("lists_time", [False, True])
def test_several_series_of_one_row_are_forecast_together(probe, tmp_path, lists_time):
    """The column of times is no feature, unless the recipe lists it."""
    rows = np.random.default_rng(2).standard_normal((8, 2)).round(3)
    (tmp_path / "t.csv").write_text("day,a,b\n" + "".join(f"{i},{a},{b}\n" for i, (a, b) in enumerate(rows)))
    table = {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": ["a", "b"], "task": "regression"} | ({"features": ["day"]} if lists_time else {})
    fields, reply = read(probe, {"type": "Windows", "length": 3, "horizon": 2, "time": "day", "dataset": table})
    days = [np.arange(8.0)[:, None]] if lists_time else []
    expected = windows(np.concatenate([*days, rows], 1), 3, 2)
    assert_same(
        fields,
        {
            "features": torch.tensor(np.array([past for past, _ in expected])).float(),
            "label": torch.tensor(np.array([future[:, -2:] for _, future in expected])).float(),
        },
        "windows",
        1e-6,
    )


def table_of(folder, times, name="time"):
    (folder / "t.csv").write_text(f"{name},a,y\n" + "".join(f"{time},{i},{i}\n" for i, time in enumerate(times)))
    table = {"type": "CSV", "path": str(folder / "t.csv"), "label": "y", "task": "regression", "features": ["a"]}
    return {"type": "Windows", "length": 2, "time": name, "dataset": table}


def days(*numbers, step=1.0, format_="%Y-%m-%d"):
    start = datetime.datetime(2024, 2, 27)
    return [(start + datetime.timedelta(days=number * step)).strftime(format_) for number in numbers]


@pytest.mark.parametrize(
    "times",
    [
        days(*range(8)),
        days(*range(8), step=1 / 96, format_="%Y-%m-%dT%H:%M"),
        days(*range(8), step=7, format_="%d.%m.%Y"),
        [f"2024-{month:02}-15" for month in range(1, 9)],
        ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30", "2024-05-31", "2024-06-30"],
        [f"20{year}-12-31" for year in range(10, 18)],
        [*range(8)],
        [0.5, 1, 1.5, 2, 2.5, 3],
    ],
)
def test_steps_of_time_are_found_out(probe, tmp_path, times):
    fields, _ = read(probe, table_of(tmp_path, times))
    assert len(fields["label"]) == len(times) - 2


@pytest.mark.parametrize(
    "times, message",
    [
        (
            days(0, 1, 2, 4, 5, 8),
            "t.csv:5:time: 1 step of 1 day is missing after 2024-02-29\n"
            "{}t.csv:7:time: 2 steps of 1 day are missing after 2024-03-03\n"
            "fill in the missing rows, or write gaps: split",
        ),
        (
            days(0, 1, 2, 4, step=1 / 24, format_="%Y-%m-%d %H:%M"),
            "t.csv:5:time: 1 step of 1 hour is missing after 2024-02-27 02:00",
        ),
        (
            ["2024-01-31", "2024-02-29", "2024-04-30", "2024-05-31"],
            "t.csv:4:time: 1 step of 1 month is missing after 2024-02-29",
        ),
        ([1, 2, 3, 3.5], "t.csv:5:time: 3.5 is not 1 after 3, as most rows are"),
        (
            days(0, 2, 1),
            "t.csv:4:time: 2024-02-28 is before the time of the row before it in the series, 2024-02-29: "
            "sort the rows by time",
        ),
        (days(0, 1, 1), "t.csv:4:time: 2024-02-28 is the time of the row before it"),
        (["2024-02-27", "soon", "2024-02-29"], "t.csv:3:time: 'soon' is not a time"),
        (["01/02/2024", "02/02/2024", "03/02/2024"], "t.csv:2:time: the dates may be of the form"),
    ],
)
def test_steps_that_are_missing_are_named(probe, tmp_path, times, message):
    assert message.format(f"{tmp_path}/") in error_of(probe, table_of(tmp_path, times))


def test_a_series_is_split_where_steps_are_missing(probe, tmp_path):
    numbers = [0, 1, 2, 3, 6, 7, 8, 9, 12]
    spec = table_of(tmp_path, days(*numbers)) | {"gaps": "split"}
    fields, _ = read(probe, spec)
    assert fields["label"].flatten().tolist() == [2, 3, 6, 7]
    assert "gaps: needs time" in error_of(probe, {key: value for key, value in spec.items() if key != "time"})


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("length, horizon, stride, holdout, origins", [(2, 1, 1, 0, 3), (3, 2, 2, 1, 2), (2, 2, 2, 4, None), (2, 1, 3, 2, None), (2, 1, 1, 0, 99)])
def test_series_with_gaps_are_held_out_and_evaluated_at_their_own_end(probe, tmp_path, grouped, length, horizon, stride, holdout, origins):
    """And not at the end of each piece, where a model would be evaluated on what it was trained on."""
    sold = {"a": [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15], "b": [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 20, 21], "c": [1, 2, 3, 4, 5, 6, 7, 8]}
    sold = sold if grouped else {"a": sold["a"]}
    rows = sorted((day, shop) for shop, of_shop in sold.items() for day in of_shop)
    numbers = {shop: 100 * (1 + i) for i, shop in enumerate(sold)}
    lines = [f"{shop},2024-05-{day:02},1,{numbers[shop] + day}" for day, shop in rows]
    (tmp_path / "t.csv").write_text("\n".join(["shop,day,price,sales", *lines]) + "\n")
    table = {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "sales", "task": "regression", "id": "day", "features": ["price"]}
    spec = {"type": "Windows", "dataset": table, "time": "day", "gaps": "split", "length": length, "horizon": horizon, "stride": stride}
    spec |= {"holdout": holdout} | ({"group": "shop"} if grouped else {}) | ({"origins": origins} if origins else {})
    expected = []
    cut = 0
    for shop, days_of in sold.items():
        days_of = days_of[: len(days_of) - holdout]
        pieces = [[day for day, i in zip(days_of, range(len(days_of))) if day - i == start] for start in sorted({day - i for i, day in enumerate(days_of)})]
        found = [window for piece in ([days_of] if origins else pieces) for window in windows(np.array(piece), length, horizon, stride, 0, origins)]
        whole = [(past, future) for past, future in found if future[-1] - past[0] == length + horizon - 1]
        cut += len(found) - len(whole)
        expected += [(past + numbers[shop], future + numbers[shop]) for past, future in whole]
    if not expected:  # every origin is cut
        assert "hold no window" in error_of(probe, spec)
        return
    fields, reply = read(probe, spec)
    assert fields["features"][..., -1].tolist() == [past.tolist() for past, _ in expected]
    assert fields["label"].tolist() == [future.tolist() for _, future in expected]
    assert (f"Windows: {cut} of " in "\n".join(reply["notes"])) == (origins is not None and cut > 0)


def test_origins_of_one_series_do_not_count_anew_behind_a_row_that_is_left_out(probe, tmp_path):
    lines = [f"{day},{day}" for day in range(12)]
    lines[6] = "6,dear"
    (tmp_path / "t.csv").write_text("\n".join(["day,sales", *lines]) + "\n")
    table = {"type": "CSV", "path": str(tmp_path / "t.csv"), "label": "sales", "task": "regression", "features": ["day"], "broken": "skip"}
    fields, _ = read(probe, {"type": "Windows", "dataset": table, "length": 2, "origins": 2})
    assert fields["label"].flatten().tolist() == [10, 11]
    fields, _ = read(probe, {"type": "Windows", "dataset": table, "length": 2, "holdout": 2})
    assert fields["label"].flatten().tolist() == [2, 3, 4, 5, 9]


def test_columns_that_are_not_there_cannot_be_known(probe, tmp_path):
    spec, _ = shops(tmp_path)
    assert "known: there is no column 'promotions' among the features; did you mean promotion?" in error_of(
        probe, spec | {"length": 2, "known": ["promotions"]}
    )
    assert "hold no window of 30 and the 1 after it, without the last 2" in error_of(
        probe, spec | {"length": 30, "holdout": 2}
    )


@pytest.mark.parametrize("kind", ["value", "columns", "group"])
def test_no_window_reaches_over_a_row_that_is_left_out(probe, tmp_path, kind):
    """Without `time`, too; where the row's group cannot be read, it may be of every shop."""
    spec, series = shops(tmp_path)
    lines = (tmp_path / "shops.csv").read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if line.startswith("s1,2024-05-05,"))
    lines[number] = {"value": "s1,2024-05-05,dear,1,2", "columns": "s1,2024-05-05", "group": "2024-05-05,1,2,3"}[kind]
    (tmp_path / "shops.csv").write_text("\n".join(lines) + "\n")
    spec["dataset"]["broken"] = "skip"
    spec |= {"length": 2, "horizon": 2, "known": ["promotion"]}
    del spec["time"]
    fields, reply = read(probe, spec)
    # The row of shop 1 comes behind those of shop 0 of the same day, and before the next days of all.
    split = [series[0], series[1], series[2]] if kind == "value" else [series[0][:5], series[0][5:], series[1], series[2]]
    pieces = [piece for rows in split for piece in ([rows[:4], rows[5:]] if rows is series[1] else [rows])]
    expected = [window for rows in pieces for window in windows(rows, 2, 2)]
    pasts = torch.tensor(np.array([past for past, _ in expected])).float()
    torch.testing.assert_close(fields["features"], pasts)
    torch.testing.assert_close(fields["label"], torch.tensor(np.array([future[:, 2] for _, future in expected])).float())
    bridging = sum(len(windows(rows, 2, 2)) for rows in (series[0], np.delete(series[1], 4, 0), series[2])) - len(expected)
    places = "1 place" if kind == "value" else "2 places"
    assert f"Windows: series are split at {places} where rows are left out" in "\n".join(reply["notes"])
    assert f"there are {bridging} windows fewer" in "\n".join(reply["notes"])
    if kind == "value":
        with_time, _ = read(probe, spec | {"time": "day"})
        torch.testing.assert_close(with_time["features"], pasts)
