"""Tables as people have them: a cell that is no number among numbers, broken rows, rows without a label, other separators and encodings."""

import json
import subprocess

import pytest

from tests.program import CALLED

LINEAR = "[{type: Linear, out_features: 2}]"


def trainrun(folder, *arguments, status=0):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == status, text
    assert "frame #" not in text, text
    return text


def recipe(folder, options, layers=LINEAR, loss="CrossEntropyLoss", evaluation="", kind="CSV", path="t.csv"):
    data = f"{{type: {kind}, path: {path}, label: y{options}}}"
    (folder / "r.yaml").write_text(
        f"version: 1\nmodel:\n  layers: {layers}\nloss: {loss}\ndataset:\n  train: {data}\n{evaluation}"
        "dataloader: {batch_size: 4, shuffle: false}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    return "r.yaml"


def losses(folder, run="run"):
    return [json.loads(line).get("train/loss") for line in (folder / run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("comment", ["# made by a scale", "# made by a scale, in 2026"])
def test_a_comment_that_is_read_as_the_names_of_columns_is_told(tmp_path, comment):
    (tmp_path / "t.csv").write_text(comment + "\nx,y\n" + "".join(f"{i / 20},{i % 2}\n" for i in range(20)))
    advice = "the first line begins with '#' and is read as the names of the columns: if it is a comment, leave it out of the file"
    assert advice in trainrun(tmp_path, "validate", recipe(tmp_path, ""), status=2)


# --- A loss of classes and a column of numbers ------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["CrossEntropyLoss", "{type: CrossEntropyLoss, label_smoothing: 0.1}"])
def test_one_class_is_refused_since_its_loss_is_always_0(tmp_path, loss):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i / 20},{i * 0.75}\n" for i in range(20)))
    one = "[{type: Linear, out_features: 1}]"
    said = trainrun(tmp_path, "validate", recipe(tmp_path, ", task: regression", one, loss), status=2)
    assert "r.yaml:4:7: loss: CrossEntropyLoss does not fit" in said or "r.yaml:4:8: loss: CrossEntropyLoss does not fit" in said, said
    assert "the output [N, 1] has one class, which is certain, so that the loss is always 0" in said
    assert "write loss: MSELoss (or L1Loss, SmoothL1Loss)" in said and "task: classification" in said
    trainrun(tmp_path, "r.yaml", "loss=MSELoss")  # what was advised works
    assert all(value > 0 for value in losses(tmp_path) if value is not None)


def test_one_output_for_classes_is_refused_with_their_number(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,0\n2,1\n3,0\n")
    said = trainrun(tmp_path, "validate", recipe(tmp_path, "", "[{type: Linear, out_features: 1}]"), status=2)
    assert "give it an output for each class, or, for two classes, write loss: BCEWithLogitsLoss" in said
    trainrun(tmp_path, "r.yaml", "loss=BCEWithLogitsLoss")
    trainrun(tmp_path, "r.yaml", "model.layers=[{type: Linear, out_features: 2}]", "output_dir=two")


@pytest.mark.parametrize("outputs, loss, values, note", [
    (1, "BCEWithLogitsLoss", ["{}.5"], "BCEWithLogitsLoss learns classes, but the numbers of 'label' go from 0.5 to 19.5, and not from 0, for no, to 1, for yes"),
    (1, "BCEWithLogitsLoss", ["0.25"], None),
    (2, "CrossEntropyLoss", ["{}", "2"], "learns classes, but the numbers of 'label' go from 0 to 19, which are no probabilities"),
    (2, "CrossEntropyLoss", ["0.75", "0.75"], "do not add up to 1 in each sample"),
    (2, "CrossEntropyLoss", ["0.75", "0.25"], None),
])
def test_numbers_that_a_loss_of_classes_reads_are_told(tmp_path, outputs, loss, values, note):
    labels = ["y", "z"][: len(values)]
    rows = [",".join([str(i / 20), *(value.format(i) for value in values)]) for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join([",".join(["x", *labels]), *rows]) + "\n")
    name = recipe(tmp_path, ", task: regression", f"[{{type: Linear, out_features: {outputs}}}]", loss)
    said = trainrun(tmp_path, name, "dataset.train.label=" + ("y" if len(labels) == 1 else "[y, z]"))
    assert (note in said) if note else ("learns classes" not in said), said


def test_labels_of_one_class_alone_are_told(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,1\n2,1\n3,1\n")
    said = trainrun(tmp_path, recipe(tmp_path, ""))
    assert "all 3 samples of dataset.train have the class 1 in 'label', so that CrossEntropyLoss has nothing to tell apart" in said
    (tmp_path / "t.csv").write_text("x,y\n1,1\n2,1\n3,0\n")
    assert "nothing to tell apart" not in trainrun(tmp_path, recipe(tmp_path, ""), "output_dir=two")


# --- A cell that is no number among numbers ---------------------------------------------------------------------


def ages(*odd, rows=60, empty=""):
    """A column of 60 different numbers in which a few cells are others; and NA in one of another column."""
    cells = [str(20 + i) for i in range(rows)]
    for i, text in enumerate(odd):
        cells[7 + 3 * i] = text
    return "age,z,y\n" + "".join(f"{cell},{'NA' if i == 3 else i},{i % 2}\n" for i, cell in enumerate(cells))


def settings(said, *names):
    """What the message says to write for these parameters of the data set."""
    found = []
    for name in names:
        begin = said.index(f"{name}: ", said.index("write ")) + len(name) + 2
        depth, end = 0, begin
        while depth > 0 or said[end] not in ",; ":
            depth += (said[end] in "[{") - (said[end] in "]}")
            end += 1
            if end == len(said):
                break
        found.append(f"dataset.train.{name}={said[begin:end]}")
    return found


def test_an_odd_cell_of_a_column_of_numbers_is_named_with_what_to_write(tmp_path):
    (tmp_path / "t.csv").write_text(ages("k.A.", "-", "k.A."))
    name = recipe(tmp_path, ", columns: auto")
    said = trainrun(tmp_path, name, status=2)
    assert "t.csv:9:age: holds numbers but for 3 of 60 cells, the first 'k.A.'" in said
    assert "write na_values: ['', '-', NA, 'k.A.']" in said and "features:" not in said
    trainrun(tmp_path, name, *settings(said, "na_values"))
    explained = trainrun(tmp_path, "explain", name, *settings(said, "na_values"))
    assert "age number, 3 missing" in explained or "age: {missing: median}" in explained, explained


def test_the_same_where_columns_are_listed_by_hand(tmp_path):
    (tmp_path / "t.csv").write_text(ages("k.A.", "-", "k.A."))
    name = recipe(tmp_path, ", columns: {z: {missing: median}}")
    said = trainrun(tmp_path, name, status=1)
    assert "t.csv:9:age: 'k.A.' is not a number; 3 of 60 cells are not numbers; write columns: {age: {missing: median}}" in said
    assert "t.csv: write na_values: ['', '-', NA, 'k.A.']" in said
    trainrun(tmp_path, name, "dataset.train.na_values=['', '-', NA, 'k.A.']", "dataset.train.columns={age: {missing: median}, z: {missing: median}}")


def test_few_categories_of_which_nearly_all_are_numbers_are_noted(tmp_path):
    (tmp_path / "t.csv").write_text("rooms,y\n" + "".join(f"{'?!' if i == 4 else i % 5},{i % 2}\n" for i in range(40)))
    said = trainrun(tmp_path, recipe(tmp_path, ", columns: auto"))
    assert "t.csv:6:rooms: is read as a category, since 1 of 40 cells, '?!', are not numbers; if they stand for a missing value, write na_values: ['', '?!']" in said
    said = trainrun(tmp_path, "r.yaml", *settings(said, "na_values"), "output_dir=two")
    assert "rooms number (1 missing)" in said and "is read as a category" not in said


def test_decimal_commas_with_an_odd_cell_among_them(tmp_path):
    (tmp_path / "t.csv").write_text("a;y\n" + "".join(f"{'k.A.' if i == 5 else f'{i},5'};{i % 2}\n" for i in range(30)))
    name = recipe(tmp_path, ", delimiter: ';', columns: auto")
    assert "write decimal: ','" in trainrun(tmp_path, name, status=2)
    said = trainrun(tmp_path, name, "dataset.train.decimal=','", status=2)
    assert "t.csv:7:a: holds numbers but for 1 of 30 cells, 'k.A.'" in said
    trainrun(tmp_path, name, "dataset.train.decimal=','", *settings(said, "na_values"))


def test_dates_with_an_odd_cell_among_them(tmp_path):
    (tmp_path / "t.csv").write_text("day,y\n" + "".join(f"{'soon' if i == 5 else f'{i + 1:02}.03.2024'},{i % 2}\n" for i in range(30)))
    said = trainrun(tmp_path, recipe(tmp_path, ", columns: auto"), status=2)
    assert "t.csv:7:day: holds dates but for 1 of 30 cells, 'soon'" in said
    trainrun(tmp_path, "r.yaml", *settings(said, "na_values"))


def test_names_among_which_few_are_numbers_stay_what_they_were(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{['x', 'y', 'z', '7'][i % 4]},{i % 2}\n" for i in range(40)))
    said = trainrun(tmp_path, recipe(tmp_path, ", columns: auto"))
    assert "a category of 4" in said and "is read as a category" not in said


# --- Rows that cannot be read -------------------------------------------------------------------------------------

WHOLE = ["1,2,0", "2,3,1", "3,4,1", "4,5,0", "5,6,1", "6,7,0", "7,8,1", "8,9,0"]
BROKEN = ["9", "1,2,3,4", "1,2,", "x,2,1"]


@pytest.mark.parametrize("columns", ["", ", columns: {a: number}"])
def test_broken_rows_are_left_out_and_counted(tmp_path, columns):
    rows = WHOLE.copy()
    for i, broken in enumerate(BROKEN):
        rows.insert(2 * i + 1, broken)
    (tmp_path / "whole.csv").write_text("a,b,y\n" + "\n".join(WHOLE) + "\n")
    (tmp_path / "t.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    said = trainrun(tmp_path, recipe(tmp_path, columns), status=1)
    assert "t.csv:3: 1 columns, the first line has 3; write broken: skip to leave such rows out" in said
    said = trainrun(tmp_path, recipe(tmp_path, columns), "dataset.train.broken=skip")
    assert ("dataset.train: t.csv: 4 rows cannot be read and are left out (broken: skip), the first: t.csv:3: 1 columns, the first line has 3" in said), said
    trainrun(tmp_path, "r.yaml", "dataset.train.path=whole.csv", "output_dir=whole")
    assert losses(tmp_path) == losses(tmp_path, "whole")


def test_rows_without_a_label_are_left_out_and_what_goes_by_rows_stays_right(tmp_path):
    """The column by which rows are kept together is read from the file a second time."""
    rows = [f"{i},{'ab'[i // 4]},{i % 2 if i % 3 else ''}" for i in range(8)]
    (tmp_path / "t.csv").write_text("a,who,y\n" + "\n".join(rows) + "\n")
    (tmp_path / "whole.csv").write_text("a,who,y\n" + "\n".join(row for row in rows if not row.endswith(",")) + "\n")
    options = ", features: [a], split: {fractions: [0.5, 0.5], group: who, part: train}"
    said = trainrun(tmp_path, recipe(tmp_path, options), status=1)
    assert "t.csv:2:y: the value is missing; write broken: skip to leave such rows out" in said
    said = trainrun(tmp_path, "r.yaml", "dataset.train.broken=skip")
    assert "3 rows cannot be read and are left out (broken: skip), the first: t.csv:2:y: the value is missing" in said
    trainrun(tmp_path, "r.yaml", "dataset.train.path=whole.csv", "output_dir=whole")
    assert losses(tmp_path) == losses(tmp_path, "whole")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_an_empty_label_and_columns_auto(tmp_path, task):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i},{'' if i == 4 else i % 2}\n" for i in range(12)))
    parts = [LINEAR, "CrossEntropyLoss"] if task == "classification" else ["[{type: Linear, out_features: 1}]", "MSELoss"]
    name = recipe(tmp_path, f", task: {task}, columns: auto", *parts)
    said = trainrun(tmp_path, name, status=2)
    assert "t.csv:6:y: the label is missing here, and nothing can be learnt from that; write broken: skip to leave such rows out" in said
    assert "1 row cannot be read and is left out" in trainrun(tmp_path, name, "dataset.train.broken=skip")


def test_an_odd_label_of_a_regression(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i},{'k.A.' if i == 4 else i / 2}\n" for i in range(24)))
    for columns in ("", ", columns: auto"):
        name = recipe(tmp_path, ", task: regression" + columns, "[{type: Linear, out_features: 1}]", "MSELoss")
        said = trainrun(tmp_path, name, status=2 if columns else 1)
        assert "t.csv:6:y: " in said and "write broken: skip to leave such rows out" in said and "'k.A.'" in said, said
        assert "1 row cannot be read and is left out" in trainrun(tmp_path, name, "dataset.train.broken=skip", f"output_dir=run{len(columns)}")


def test_lines_that_are_not_json_are_left_out(tmp_path):
    lines = [json.dumps({"a": i, "y": i % 2}) for i in range(6)]
    lines.insert(3, '{"a": 1, "y"')
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    name = recipe(tmp_path, "", kind="JSONL", path="t.jsonl")
    assert "t.jsonl:4: is not JSON" in (said := trainrun(tmp_path, name, status=1)) and "write broken: skip" in said
    assert "t.jsonl: 1 row cannot be read and is left out (broken: skip): t.jsonl:4: is not JSON" in trainrun(tmp_path, name, "dataset.train.broken=skip")


def test_a_table_of_which_no_row_is_left_is_an_error(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,\n")
    said = trainrun(tmp_path, recipe(tmp_path, ", broken: skip"), status=1)
    assert "no row is left: t.csv: 2 rows cannot be read" in said


def test_no_window_reaches_over_a_row_that_is_left_out(tmp_path):
    rows = [f"2024-01-{i + 1:02},{'' if i in (6, 13) else i}" for i in range(14)]  # the last one is to come
    (tmp_path / "t.csv").write_text("day,y\n" + "\n".join(rows) + "\n")
    series = "{type: CSV, path: t.csv, label: y, features: [], task: regression, id: day}".replace(" features: [],", "")
    name = recipe(tmp_path, "", "[Flatten, {type: Linear, out_features: 1}]", "MSELoss")
    (tmp_path / name).write_text((tmp_path / name).read_text().replace("{type: CSV, path: t.csv, label: y}", f"{{type: Windows, length: 3, dataset: {series}}}"))
    said = trainrun(tmp_path, name, status=1)
    assert "t.csv:8:y" in said and "write broken: skip to leave such rows out" in said
    explained = trainrun(tmp_path, name, "dataset.train.dataset.broken=skip", "dataloader.batch_size=1")
    assert "2 rows cannot be read and are left out" in explained
    steps = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert max(line.get("step", 0) for line in steps) == 3 + 3, steps  # of rows 0 to 5, and 7 to 12
    trainrun(tmp_path, name, "dataset.train.dataset.broken=skip", "dataset.train.time=day", "dataloader.batch_size=1", "output_dir=timed")
    assert losses(tmp_path, "timed") == losses(tmp_path)


# --- One-hot categories that the recipe does not list -------------------------------------------------------------


def test_one_hot_categories_are_those_of_the_training_file(tmp_path):
    cities = ["Rome", "Oslo", "Bern"]
    (tmp_path / "t.csv").write_text("a,city,y\n" + "".join(f"{i / 12},{cities[i % 3]},{i % 2}\n" for i in range(12)))
    (tmp_path / "e.csv").write_text("a,city,y\n1,Oslo,0\n2,Rome,1\n")
    evaluation = "  eval: {type: CSV, path: e.csv, label: y, columns: {city: {type: category, one_hot: true}}}\n"
    name = recipe(tmp_path, ", columns: {city: {type: category, one_hot: true}}", evaluation=evaluation)
    trainrun(tmp_path, "validate", name)
    trainrun(tmp_path, name)
    trainrun(tmp_path, name, "dataset.train.columns={city: {type: category, one_hot: true, categories: [Bern, Oslo, Rome]}}",
             "dataset.eval.columns={city: {type: category, one_hot: true, categories: [Bern, Oslo, Rome]}}", "output_dir=listed")
    assert losses(tmp_path) == losses(tmp_path, "listed")
    (tmp_path / "new.csv").write_text("city,a\nRome,0.5\nOslo,0.25\n")
    (tmp_path / "t.csv").unlink()  # the run knows the categories
    for run in ("run", "listed"):
        trainrun(tmp_path, "predict", run, "new.csv", "--output", f"{run}.csv")
    assert (tmp_path / "run.csv").read_text() == (tmp_path / "listed.csv").read_text()
    (tmp_path / "new.csv").write_text("city,a\nParis,0.5\n")
    said = trainrun(tmp_path, "predict", "run", "new.csv", status=1)
    assert "new.csv:2:city: category 'Paris' is not listed" in said and "allow_unknown: true reads it as all 0" in said


def test_one_hot_categories_with_a_replacement_for_missing_ones(tmp_path):
    (tmp_path / "t.csv").write_text("city,y\n" + "".join(f"{['Rome', '', 'Bern'][i % 3]},{i % 2}\n" for i in range(12)))
    for missing, listed in (("nowhere", "[Bern, Rome, nowhere]"), ("most_frequent", "[Bern, Rome]")):
        column = f"type: category, one_hot: true, missing: {missing}"
        trainrun(tmp_path, recipe(tmp_path, f", columns: {{city: {{{column}}}}}"), f"output_dir={missing}")
        trainrun(tmp_path, recipe(tmp_path, f", columns: {{city: {{{column}, categories: {listed}}}}}"), f"output_dir={missing}_listed")
        assert losses(tmp_path, missing) == losses(tmp_path, f"{missing}_listed")


# --- Separators and encodings of other files ----------------------------------------------------------------------


def test_one_broken_row_does_not_hide_the_separator(tmp_path):
    rows = [f"{i};{i + 1};{i % 2}" for i in range(12)]
    rows.insert(5, "1;2")
    (tmp_path / "t.csv").write_text("a;b;y\n" + "\n".join(rows) + "\n")
    said = trainrun(tmp_path, recipe(tmp_path, ", delimiter: auto"), status=1)
    assert "t.csv:7: 2 columns, the first line has 3; write broken: skip" in said
    said = trainrun(tmp_path, recipe(tmp_path, ", delimiter: auto, broken: skip"))
    assert "its columns are separated by ';'" in said and "1 row cannot be read" in said


def test_new_data_are_separated_as_the_training_data_were(tmp_path):
    """These two lines are divided into two columns by both: only the training data tell which one is meant."""
    (tmp_path / "t.csv").write_text("a;note;y\n" + "".join(f"{i};x,{i};{i % 2}\n" for i in range(9)))
    name = recipe(tmp_path, ", delimiter: auto, features: [a]")
    trainrun(tmp_path, name)
    (tmp_path / "new.csv").write_text("a;note, or none\n1;x,y\n2;x,z\n")
    said = trainrun(tmp_path, "predict", "run", "new.csv", "--output", "new.out.csv")
    assert "new.csv: its columns are separated by ';'" in said
    assert (tmp_path / "new.out.csv").read_text().startswith("line,")
    (tmp_path / "other.csv").write_text("a,note\n1,x\n2,x\n")
    said = trainrun(tmp_path, "predict", "run", "other.csv", "--output", "other.out.csv")
    assert "other.csv: its columns are separated by ',', and not by ';' as those of the training data are" in said


def test_evaluation_data_are_separated_as_the_training_data_were(tmp_path):
    (tmp_path / "t.csv").write_text("a;y\n" + "".join(f"{i};{i % 2}\n" for i in range(9)))
    (tmp_path / "e.csv").write_text("a;y;b,c\n1;0;x,y\n2;1;x,z\n")
    evaluation = "  eval: {type: CSV, path: e.csv, label: y, delimiter: auto}\n"
    said = trainrun(tmp_path, recipe(tmp_path, ", delimiter: auto", evaluation=evaluation))
    assert "dataset.eval: e.csv: its columns are separated by ';'" in said


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_utf_8_that_is_read_as_another_encoding_is_told(tmp_path, encoding):
    text = "stadt,x,y\n" + "".join(f"{city},{i},{i % 2}\n" for i, city in enumerate(["Bern", "Zürich", "Genf"] * 4))
    (tmp_path / "utf.csv").write_text(text, encoding="utf-8")
    (tmp_path / "own.csv").write_bytes(text.encode(encoding))
    category = "columns: {stadt: {type: category, one_hot: true}}"
    name = recipe(tmp_path, f", encoding: {encoding}, {category}", path="own.csv")
    assert "is UTF-8" not in trainrun(tmp_path, name)
    note = f"utf.csv:3: is read as {encoding}, but the whole file is UTF-8, whose characters of several bytes come out wrong; write encoding: utf-8"
    assert note in trainrun(tmp_path, "validate", name, "dataset.train.path=utf.csv")
    assert note in trainrun(tmp_path, name, "dataset.train.path=utf.csv", "output_dir=wrong")
    assert "come out wrong" not in trainrun(tmp_path, "validate", name, "dataset.train.path=utf.csv", "dataset.train.encoding=utf-8")
    said = trainrun(tmp_path, "predict", "run", "utf.csv", status=1)
    assert "utf.csv:3:stadt: category 'Z" in said and "is 'Zürich' in another encoding: add dataset.train.encoding=utf-8 to the command" in said, said
    trainrun(tmp_path, "predict", "run", "utf.csv", "dataset.train.encoding=utf-8", "--output", "p.csv")
    name = recipe(tmp_path, f", encoding: {encoding}, {category.replace('true', 'true, allow_unknown: true')}", path="own.csv")
    trainrun(tmp_path, name, "output_dir=unknown")
    said = trainrun(tmp_path, "predict", "unknown", "utf.csv", "--output", "q.csv")
    assert note in said and "stadt: 4 values are none of the training data's categories" in said
