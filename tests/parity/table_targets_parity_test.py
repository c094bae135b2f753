"""Tables with several labels, ids, delimiters that are found out, encodings and lists of different lengths, compared
with pyarrow's reading and numpy."""

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
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


def csv(folder, text, name="t.csv", encoding="utf-8", **more):
    (folder / name).write_bytes(text.encode(encoding))
    return {"type": "CSV", "path": str(folder / name)} | more


# --- several labels


SALES = "order,size,price,rent\nA1,50,100,1.5\nA2,70,140,2.5\nA3,90,180,4\n"


def test_several_labels_are_given_together_in_their_order(probe, tmp_path):
    table = pyarrow.csv.read_csv(pyarrow.py_buffer(SALES.encode())).to_pydict()
    spec = csv(tmp_path, SALES, label=["rent", "price"], id="order")
    fields, reply = read(probe, spec)
    assert_same(
        fields,
        {
            "features": torch.tensor(table["size"]).float().unsqueeze(1),
            "label": torch.tensor([table["rent"], table["price"]]).T,
        },
        "sales",
    )
    assert reply["fields"] == ["features", "label"]
    one, _ = read(probe, spec | {"label": ["price"], "features": ["size"]})
    assert one["label"].tolist() == [[100], [140], [180]]
    inferred, _ = read(probe, spec | {"columns": "auto"})
    assert_same(inferred, fields, "auto")


def test_labels_that_are_yes_or_no_are_numbers(probe, tmp_path):
    text = "a,sunny,warm\n1,yes,1\n2,no,0\n"
    fields, _ = read(
        probe, csv(tmp_path, text, label=["sunny", "warm"], columns={"sunny": "boolean", "warm": "boolean"})
    )
    assert fields["label"].tolist() == [[1, 1], [0, 0]] and fields["label"].dtype == torch.float32
    assert read(probe, csv(tmp_path, text, label=["sunny", "warm"], columns="auto"))[0]["label"].tolist() == [
        [1, 1],
        [0, 0],
    ]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"label": ["price", "price"]}, "label: 'price' occurs twice"),
        ({"label": []}, "label: expected at least one column"),
        ({"label": ["price", "rents"]}, "t.csv:1:rents: there is no such column; did you mean rent?"),
        ({"num_classes": 3}, "num_classes: is for one label; a list of columns holds numbers"),
        (
            {"columns": {"price": "category"}},
            "columns: the label 'price' may only be a number or a boolean without missing values",
        ),
        ({"features": ["rent"]}, "features: the label 'rent' may not be a feature"),
        ({"id": "price"}, "id: the label 'price' may not be an id"),
        ({"features": ["order"]}, "id: 'order' is among the features; an id is none"),
        ({"columns": {"order": "category"}}, "columns: 'order' is the id, which is kept as the file has it"),
        ({"id": ["order", "size"]}, "has no column but the label 'price, rent' and the id 'order, size'"),
    ],
)
def test_labels_and_ids_that_do_not_fit_are_refused(probe, tmp_path, change, message):
    assert message in error_of(probe, csv(tmp_path, SALES, label=["price", "rent"], id="order") | change)


def test_messages_name_a_row_by_its_id(probe, tmp_path):
    wrong = SALES.replace("140", "many")
    said = error_of(probe, csv(tmp_path, wrong, label=["price", "rent"], id="order"))
    assert "t.csv:3:price (order 'A2'): 'many' is not a number" in said
    said = error_of(
        probe, csv(tmp_path, wrong, label="rent", id=["order", "size"], features=["price"], task="regression")
    )
    assert "t.csv:3:price (order 'A2', size '70'): 'many' is not a number" in said


# --- how the file is written


@pytest.mark.parametrize("delimiter, decimal", [(",", "."), (";", ","), ("\t", "."), ("|", ",")])
def test_a_delimiter_is_found_out_as_pyarrow_reads_with_the_right_one(probe, tmp_path, delimiter, decimal):
    rows = [
        ("name, or so" if delimiter != "," else "name", "a", "y"),
        ("x;y" if delimiter not in ",;" else "x", "1.5", "2"),
        ("z", "0.25", "3"),
    ]
    text = "".join(delimiter.join(row).replace(".", decimal) + "\r\n" for row in rows)
    options = {
        "parse_options": pyarrow.csv.ParseOptions(delimiter=delimiter),
        "convert_options": pyarrow.csv.ConvertOptions(decimal_point=decimal),
    }
    expected = pyarrow.csv.read_csv(pyarrow.py_buffer(text.encode()), **options).to_pydict()
    fields, reply = read(
        probe, csv(tmp_path, text, label="y", task="regression", delimiter="auto", decimal=decimal, features=["a"])
    )
    assert (
        fields["features"].flatten().tolist() == expected["a"] and fields["label"].flatten().tolist() == expected["y"]
    )


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "a;b,y\n1;2,3\n",
            "t.csv:1: delimiter: auto finds several: ',' (into 2) and ';' (into 2) divide the first lines",
        ),
        ("y\n1\n", "t.csv:1: delimiter: auto finds none: of ',', ';', \"\\t\", '|' none divides"),
        ("", "t.csv: is empty"),
    ],
)
def test_a_delimiter_that_cannot_be_found_out_is_asked_for(probe, tmp_path, text, message):
    assert message in error_of(probe, csv(tmp_path, text, label="y", delimiter="auto"))


def test_a_quoted_delimiter_counts_for_nothing(probe, tmp_path):
    text = 'name;a;y\n"x;\n,y";1,5;2\n"z";2,5;3\n'
    fields, _ = read(
        probe, csv(tmp_path, text, label="y", task="regression", delimiter="auto", decimal=",", features=["a"])
    )
    assert fields["features"].tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize("number", ["1.5", "12.3.567", ".123", "1234.567,8", "1,234.567", "1,2,3", "1.2345"])
def test_a_number_whose_marks_lie_where_nobody_puts_them_is_no_other_number(probe, tmp_path, number):
    """Of pandas' thousands, "1.5" in a German table is 15."""
    text = f"a;y\n1.234,5;1\n{number};2\n"
    said = error_of(probe, csv(tmp_path, text, label="y", task="regression", delimiter=";", decimal=",", thousands="."))
    assert f"t.csv:3:a: '{number}' is not a number" in said


@pytest.mark.parametrize(
    "text, number", [("12.34.567,5", 1234567.5), ("-1.234", -1234), ("1234,5", 1234.5), ("+999", 999)]
)
def test_numbers_with_or_without_marks_are_read(probe, tmp_path, text, number):
    fields, _ = read(
        probe,
        csv(tmp_path, f"a;y\n{text};1\n", label="y", task="regression", delimiter=";", decimal=",", thousands="."),
    )
    assert fields["features"].tolist() == [[number]]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
def test_other_encodings_are_read_as_pyarrow_reads_them(probe, tmp_path, encoding):
    text = "größe,stadt,y\n1,Köln,0\n2,Orléans,1\n"
    spec = csv(tmp_path, text, encoding=encoding, label="y", num_classes=2, columns={"stadt": "category"})
    named = {} if encoding == "utf-8-sig" else {"encoding": encoding}
    table = pyarrow.csv.read_csv(spec["path"], read_options=pyarrow.csv.ReadOptions(encoding=encoding)).to_pydict()
    fields, reply = read(probe, spec | named)
    assert fields["features"].flatten().tolist() == table["größe"]
    assert [reply["learnt"]["stadt"]["categories"][i] for i in fields["stadt"]] == table["stadt"]
    assert "delimiter" not in reply["learnt"]
    if encoding in ("cp1252", "latin-1"):
        assert "t.csv:1: " in error_of(probe, spec)


# --- lists of different lengths


EVENTS = [[3, 1], [], [5, 6, 7], [9]]


def padded(lists, width):
    return [list_ + [0] * (width - len(list_)) for list_ in lists]


@pytest.mark.parametrize("kind", ["JSONL", "Parquet"])
def test_lists_of_different_lengths_are_filled_up_to_the_longest_of_a_batch(probe, tmp_path, kind):
    places = [[[i, i / 2]] * len(events) for i, events in enumerate(EVENTS)]
    rows = [{"events": e, "places": p, "y": i % 2} for i, (e, p) in enumerate(zip(EVENTS, places))]
    path = tmp_path / f"t.{kind.lower()}"
    if kind == "JSONL":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    columns = {"events": {"type": "integer", "max_length": 5}, "places": {"max_length": 3, "shape": [2], "padding": -1}}
    spec = {"type": kind, "path": str(path), "label": "y", "num_classes": 2, "columns": columns}
    fields, reply = read(probe, spec)
    assert reply["fields"] == ["events", "events_mask", "places", "places_mask", "label"]
    mask = torch.tensor(padded([[1] * len(events) for events in EVENTS], 3))
    of_places = torch.full((4, 3, 2), -1.0)
    for i, list_ in enumerate(places):
        of_places[i, : len(list_)] = torch.tensor(list_).reshape(-1, 2)
    assert_same(
        fields,
        {
            "events": torch.tensor(padded(EVENTS, 3)),
            "events_mask": mask,
            "places": of_places,
            "places_mask": mask,
            "label": torch.tensor([0, 1, 0, 1]),
        },
        kind,
    )
    few, _ = read(probe, spec | {"subset": [3, 0]})
    assert few["events"].tolist() == [[9, 0], [3, 1]] and few["events_mask"].tolist() == [[1, 0], [1, 1]]
    none, _ = read(probe, spec | {"subset": [1]})
    assert none["events"].tolist() == [[0]] and none["events_mask"].tolist() == [[0]]


@pytest.mark.parametrize(
    "row, column, message",
    [
        ({"events": [1, 2, 3]}, {"max_length": 2}, ":1:events: a list of 3 items, max_length is 2"),
        ({"events": 3}, {"max_length": 2}, ":1:events: '3' is not a list"),
        ({"events": [[1, 2]]}, {"max_length": 2}, ":1:events: holds lists; say the shape of these"),
        (
            {"events": [1, 2]},
            {"max_length": 2, "shape": [2]},
            ":1:events: '1' is not a list; with a shape, each item is one",
        ),
        (
            {"events": [[1, 2, 3]]},
            {"max_length": 2, "shape": [2]},
            ":1:events: a list of 3 numbers, expected items of 2",
        ),
        ({"events": [1]}, {"padding": 2}, "'events': padding is only for lists with a max_length"),
        ({"events": [1]}, {"max_length": 2, "missing": 0}, "in a list no value may be missing"),
        ({"events": [1]}, {}, "say its shape, or its max_length where lists have different lengths"),
    ],
)
def test_lists_that_do_not_fit_are_refused(probe, tmp_path, row, column, message):
    (tmp_path / "t.jsonl").write_text(json.dumps(row | {"y": 0}) + "\n")
    spec = {
        "type": "JSONL",
        "path": str(tmp_path / "t.jsonl"),
        "label": "y",
        "columns": {"events": {"type": "number"} | column},
    }
    assert message in error_of(probe, spec)


def test_sequences_of_arrays_are_filled_up(probe, tmp_path):
    items, lengths = np.concatenate(EVENTS).astype(np.int32), np.array([len(events) for events in EVENTS])
    offsets = np.concatenate([[0], lengths.cumsum()])
    arrays = {"events": items, "y": np.arange(4) % 2}
    spec = {"type": "TensorFile", "path": str(tmp_path / "t.npz"), "target": "y", "num_classes": 2, "padding": 7}
    for name, array in (("lengths", lengths), ("offsets", offsets)):
        np.savez(tmp_path / "t.npz", **arrays, **{name: array})
        fields, reply = read(probe, spec | {"sequences": {"events": name}})
        mask = torch.tensor(padded([[1] * len(events) for events in EVENTS], 3))
        expected = torch.where(mask == 1, torch.tensor(padded(EVENTS, 3)), 7)
        assert_same(fields, {"events": expected, "events_mask": mask, "y": torch.tensor([0, 1, 0, 1])}, name)
        assert reply["fields"] == ["events", "events_mask", "y"]
    for wrong, message in (
        (lengths[:3], "has 3 numbers, expected the lengths of 4 samples"),
        (lengths + 1, "goes from 0 to 10, but there are 6 items"),
        (offsets[::-1].copy(), "goes back at number 2"),
        (lengths - 1, "is below 0 at number 1"),
    ):
        np.savez(tmp_path / "t.npz", **arrays, lengths=wrong)
        assert message in error_of(probe, spec | {"sequences": {"events": "lengths"}})
    np.savez(tmp_path / "t.npz", **arrays, lengths=lengths)
    assert "name the tensor of their lengths in sequences" in error_of(probe, spec)
    objects = np.empty(4, object)
    objects[:] = EVENTS
    np.savez(tmp_path / "t.npz", events=objects, y=arrays["y"])
    assert "np.concatenate(arrays) and their lengths" in error_of(probe, spec)
