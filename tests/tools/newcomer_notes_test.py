"""Stumbles of a newcomer in tables, pictures and language models that nothing told: each is a note now, or left out and counted."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

from newcomer import FLATS, as_csv, fixture_flats, recipe, trainrun, write_tokenizer  # noqa: F401: a fixture
from newcomer_texts_test import train_texts

YES_NO = "stays,age\n" + "".join(f"{'yes' if i % 3 else 'no'},{i}\n" for i in range(24))
LINEAR = "{type: Linear, out_features: 1}"
STEPS = ["dataloader.batch_size=1", "logging.every_steps=1"]  # a line for each sample


def losses(folder, run="run"):
    lines = [json.loads(line) for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line]


# --- Texts without a label --------------------------------------------------------------------------------------


def rows_without_labels(path, kind):
    """The rows of train_texts, and two without a label among them."""
    lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines[1:3] + ["the soup was cold,"] + lines[3:] + ["the end, "]]
    if kind == "csv":
        path.write_text("\n".join([lines[0], *(",".join(row) for row in rows)]) + "\n")
        return path
    if kind == "parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"text": [row[0] for row in rows], "stars": [int(row[1]) if row[1].strip() else None for row in rows]}), path.with_suffix(".parquet"))
        return path.with_suffix(".parquet")
    objects = [{"text": text, "stars": int(stars) if stars.strip() else None} for text, stars in rows]
    del objects[-1]["stars"]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path.with_suffix(".jsonl")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("cache", ["none", "disk"])
def test_texts_without_a_label_can_be_left_out(tmp_path, kind, cache):
    train_texts(tmp_path)
    whole = losses(tmp_path)
    file = rows_without_labels(tmp_path / "t.csv", kind)
    changes = [f"dataset.train.path={file.name}", f"dataset.train.cache={cache}", "output_dir=other"]
    said = trainrun(tmp_path, "r.yaml", *changes, status=1)
    missing = {"csv": "t.csv:4:stars: the label is missing", "parquet": "t.parquet:3:stars: the label is missing", "jsonl": "t.jsonl:26: has no key 'stars'"}
    assert missing[kind] in said and ("write broken: skip to leave such rows out" in said or kind == "jsonl")
    said = trainrun(tmp_path, "r.yaml", *changes, "dataset.train.broken=skip")
    assert f"{file.name}: 2 rows without a label are left out" in said
    assert losses(tmp_path, "other") == whole
    assert len(list(csv.reader(io.StringIO(trainrun(tmp_path, "predict", "other", file.name))))) == 1 + 26


def test_a_file_without_any_label_is_no_training_data(tmp_path):
    train_texts(tmp_path)
    (tmp_path / "t.csv").write_text("text,stars\nthe soup,\nthe end,\n")
    assert "t.csv: no row has a label in 'stars'" in trainrun(tmp_path, "r.yaml", "output_dir=other", "dataset.train.broken=skip", status=1)
    (tmp_path / "t.csv").write_text("text,stars\nthe soup,\nthe end,1\n")  # an empty cell that the recipe lists is a class
    said = trainrun(tmp_path, "r.yaml", "output_dir=listed", "dataset.train.broken=skip", "dataset.train.classes=['', '1']", "model.layers[2].out_features=2")
    assert "left out" not in said


# --- A loss of probabilities of what is none --------------------------------------------------------------------


@pytest.mark.parametrize("loss, cure, layers, behind", [
    ("BCELoss", "BCEWithLogitsLoss", LINEAR, "Sigmoid"),
    ("BCELoss", "BCEWithLogitsLoss", "{type: Sequential, layers: [{type: Linear, out_features: 3}, ReLU, {type: Linear, out_features: 1}]}", "Sigmoid"),
    ("BCELoss", "BCEWithLogitsLoss", "{type: Linear, out_features: 1}, {type: Unsqueeze, dim: 1}, {type: Squeeze, dim: 1}", "Sigmoid"),
    ("[{type: MSELoss, loss_weight: 0.5, inputs: [score, label]}, {type: BCELoss, inputs: [score, label]}]", "BCEWithLogitsLoss", "{type: Linear, out_features: 1, name: score}, {type: Sigmoid, name: p}", None),
    ("NLLLoss", "CrossEntropyLoss", "{type: Linear, out_features: 2}", "{type: LogSoftmax, dim: 1}"),
])
def test_a_loss_of_probabilities_of_what_is_none_is_told_before_training(tmp_path, loss, cure, layers, behind):
    (tmp_path / "t.csv").write_text(YES_NO)
    data = "train: {type: CSV, path: t.csv, label: stays, columns: auto}, transforms: [Standardize]"
    recipe(tmp_path, layers, loss, data)
    said = trainrun(tmp_path, "validate", "r.yaml")
    assert "Linear) gives any numbers; write " + cure in said, said
    fits = [(layers, loss.replace("BCELoss, inputs: [score", "BCELoss, inputs: [p"))] if behind is None else [(f"{layers}, {behind}", loss), (layers, cure)]
    for own_layers, own_loss in fits:
        recipe(tmp_path, own_layers, own_loss, data)
        assert "gives any numbers" not in trainrun(tmp_path, "validate", "r.yaml")


# --- Features ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 1e9])
def test_a_feature_that_is_the_label_in_other_units_is_told(tmp_path, scale):
    random = np.random.default_rng(1).random((3000, 2)).round(4)
    lines = [f"{a},{b},{scale + 3 * a + b},{30 * a + 10 * b - 4}" for a, b in random]
    (tmp_path / "t.csv").write_text("a,b,deposit,rent\n" + "".join(line + "\n" for line in lines))
    for features, is_told in [("[a, b, deposit]", True), ("[a, b]", False)]:
        recipe(tmp_path, LINEAR, "MSELoss", f"train: {{type: CSV, path: t.csv, label: rent, features: {features}}}, transforms: [{{type: Standardize, field: label}}, Standardize]")
        said = trainrun(tmp_path, "data", "r.yaml")
        assert ("train: 1 feature is the label but for a factor and an offset: deposit;" in said) == is_told, said


SALES = "shop,day,hour,price,sales\n" + "".join(
    f"{shop},2024-05-{day + 1:02},{day * 24},{day % 5}.5,{day * 3 % 7}\n" for shop in ("Harbour", "Station") for day in range(14))


@pytest.mark.parametrize("columns", ["", ", columns: auto"])
@pytest.mark.parametrize("time", ["day", "hour"])
def test_columns_that_group_and_time_name_are_no_features(tmp_path, columns, time):
    kept = {"day": "hour", "hour": "day"}[time]
    (tmp_path / "t.csv").write_text("\n".join(",".join(cell for i, cell in enumerate(row.split(",")) if row == SALES or i != ("shop", "day", "hour").index(kept))
                                              for row in SALES.splitlines()) + "\n")
    table = f"{{type: CSV, path: t.csv, label: sales, task: regression{columns}}}"
    windows = f"&w {{type: Windows, length: 3, group: shop, time: {time}, dataset: {table}}}"
    recipe(tmp_path, "{type: Flatten, inputs: features}, {type: Linear, out_features: 1}", "MSELoss", f"train: {windows}, eval: *w", "evaluation: {every: epoch}\n")
    said = trainrun(tmp_path, "r.yaml")
    assert f"t.csv: shop, {time} tell rows apart (group, time), and are not among the features" in said and "do not have are not read" not in said, said
    listed = f"train: {windows.replace(', columns: auto', '').replace('task: regression', 'task: regression, features: [price]')}, eval: *w"
    recipe(tmp_path, "{type: Flatten, inputs: features}, {type: Linear, out_features: 1}", "MSELoss", listed, "evaluation: {every: epoch}\n")
    assert "apart" not in trainrun(tmp_path, "r.yaml", "output_dir=listed")
    assert losses(tmp_path, "listed") == losses(tmp_path)
    forecasts = trainrun(tmp_path, "predict", "run", "t.csv")
    assert len(forecasts.strip().splitlines()) == 1 + 2 and forecasts == trainrun(tmp_path, "predict", "listed", "t.csv")


def test_a_time_that_the_recipe_says_how_to_read_stays_a_feature(tmp_path):
    (tmp_path / "t.csv").write_text("day,sales\n" + "".join(f"2024-05-{i + 1:02},{i % 4}\n" for i in range(20)))
    for columns, width in [("{day: date}", 2), ("{}", 1)]:
        recipe(tmp_path, f"Flatten, {LINEAR}", "MSELoss", f"train: {{type: Windows, length: 3, time: day, dataset: {{type: CSV, path: t.csv, label: sales, task: regression, columns: {columns}}}}}")
        assert f"[N, 3, {width}]" in trainrun(tmp_path, "explain", "r.yaml")


# --- Rows that are left out of a series -------------------------------------------------------------------------


def test_windows_that_are_lost_without_a_group_are_counted(tmp_path):
    """Of 19 rows there would be 16 windows of 3 with 1 to come; the row that is left out between them makes 7 rows and 12 of them, with 4 and 9."""
    (tmp_path / "t.csv").write_text("x,sales\n" + "".join(f"{i},{'none' if i == 7 else i % 4}\n" for i in range(20)))
    recipe(tmp_path, f"Flatten, {LINEAR}", "MSELoss", "train: {type: Windows, length: 3, dataset: {type: CSV, path: t.csv, label: sales, task: regression, broken: skip}}")
    said = trainrun(tmp_path, "r.yaml", *STEPS)
    assert "Windows: series are split at 1 place where rows are left out, so that no window reaches over one: there are 3 windows fewer" in said
    assert len(losses(tmp_path)) == 4 + 9


def test_a_row_that_is_left_out_at_the_edge_of_a_file_joins_no_series(tmp_path):
    """Each file's last 4 rows are held out: of 10 rows, of which one is left out at the end, 9 - 4 = 5 give 2 windows."""
    for name in "ab":
        rows = [f"{i},{i % 4}\n" for i in range(9)]
        (tmp_path / f"{name}.csv").write_text("x,sales\n" + "".join(rows) + "9,none\n")
    table = "{type: CSV, path: %s.csv, label: sales, task: regression, broken: skip}"
    both = f"{{type: Concat, datasets: [{table % 'a'}, {table % 'b'}]}}"
    recipe(tmp_path, f"Flatten, {LINEAR}", "MSELoss", f"train: {{type: Windows, length: 3, holdout: 4, dataset: {both}}}")
    said = trainrun(tmp_path, "r.yaml", *STEPS)
    assert len(losses(tmp_path)) == 2 + 2 and "fewer" not in said


# --- Pictures, figures, language models, predictions ------------------------------------------------------------


def test_pictures_with_an_orientation_are_counted(tmp_path):
    for i in range(6):
        (tmp_path / "p" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(np.full((8, 12, 3), 40 * i, dtype="u1"))
        exif = picture.getexif()
        exif[0x010F] = "a camera"
        exif[0x0112] = [1, 6, 3, 1, 8, 1][i]
        picture.save(tmp_path / "p" / "ab"[i % 2] / f"{i}.{'png' if i == 4 else 'jpg'}", exif=exif)
    recipe(tmp_path, "Flatten, {type: Linear, out_features: 2}", "CrossEntropyLoss", "train: {type: ImageFolder, root: p}")
    note = "3 of 6 pictures have an EXIF orientation, the first is p/a/2.jpg; they are read as their pixels lie"
    assert note in " ".join(trainrun(tmp_path, "data", "r.yaml").split())
    assert note in trainrun(tmp_path, "r.yaml")
    assert "1 of 1 picture has an EXIF orientation" in trainrun(tmp_path, "predict", "run", "p/b/1.jpg")
    assert "EXIF" not in trainrun(tmp_path, "predict", "run", "p/a/0.jpg", "p/b/3.jpg")


def test_a_figure_has_its_name_in_english_and_the_older_one_is_understood(tmp_path):
    (tmp_path / "t.csv").write_text(YES_NO)
    table = "{type: CSV, path: t.csv, label: stays, columns: auto}"
    recipe(tmp_path, "{type: Linear, out_features: 2}", "CrossEntropyLoss", f"train: {table}, eval: {table}",
           "metrics: [MeanIoU]\ncheckpoint: {keep_best: {monitor: eval/mean_io_u}}\ncallbacks: [{type: EarlyStopping, monitor: eval/mean_io_u, patience: 9}]\n")
    said = trainrun(tmp_path, "r.yaml")
    assert "checkpoint.keep_best.monitor: 'eval/mean_io_u' is called eval/mean_iou now" in said and "callbacks[0].monitor: 'eval/mean_io_u' is called" in said
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("eval/mean_iou" in line for line in lines) and (tmp_path / "run" / "checkpoints" / "best").exists()
    assert "is called" not in trainrun(tmp_path, "validate", "r.yaml", "checkpoint.keep_best.monitor=eval/mean_iou", "callbacks=[]")
    recipe(tmp_path, "{type: Linear, out_features: 2}", "CrossEntropyLoss", f"train: {table}, eval: {table}",
           "metrics: [{type: MeanIoU, name: mean_io_u}]\ncheckpoint: {keep_best: {monitor: eval/mean_io_u}}\n")
    assert "is called" not in trainrun(tmp_path, "validate", "r.yaml")


def test_a_vocabulary_that_is_not_the_tokenizers_is_told(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "t.txt").write_text("the soup was good the soup was bad\n" * 20)
    for size, said in [(1000, "the vocabulary has 1,000 tokens, but the data's tokenizer 11, so that the others never come"), (16, None),
                       (10, "the vocabulary has 10 tokens, but the data's tokenizer 11, and a text with one of the others ends the training")]:
        recipe(tmp_path, f"{{type: GPT2LMHeadModel, vocab_size: {size}, n_layer: 1, n_head: 2, n_embd: 8}}", "CausalLMLoss", "train: {type: TextLM, path: t.txt, tokenizer: tokenizer.json, block_size: 8}")
        told = trainrun(tmp_path, "r.yaml", f"output_dir=run{size}")
        assert (f"{said}" in told and "write model.layers[0].vocab_size: 11" in told) if said else "vocabulary has" not in told, told


def test_a_table_that_a_tokenizer_learns_from_is_told_or_read_by_its_column(tmp_path):
    texts = ["the soup was good", "the soup, with \"salt\"", "soup"] * 5
    (tmp_path / "t.csv").write_text(as_csv([{"id": i, "review": text} for i, text in enumerate(texts)]))
    (tmp_path / "t.tsv").write_text("id\treview\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    (tmp_path / "t.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    made = {}
    for name in ("t.csv", "t.tsv", "t.jsonl"):
        said = trainrun(tmp_path, "tokenizer", "train", name, "--text-column", "review", "-o", f"{name}.json", "--vocab-size", "290")
        assert "bare text" not in said
        made[name] = (tmp_path / f"{name}.json").read_text()
    assert made["t.csv"] == made["t.tsv"] == made["t.jsonl"]
    said = trainrun(tmp_path, "tokenizer", "train", "t.csv", "-o", "bare.json", "--vocab-size", "290")
    assert "note: t.csv is a table, and is read as bare text" in said and "--text-column NAME" in said
    assert (tmp_path / "bare.json").read_text() != made["t.csv"]
    assert "bare text" not in trainrun(tmp_path, "tokenizer", "train", "t.txt", "-o", "plain.json", "--vocab-size", "290")
    assert "t.csv: has no column 'reviews'; did you mean review?" in trainrun(tmp_path, "tokenizer", "train", "t.csv", "--text-column", "reviews", "-o", "no.json", status=1)


def test_a_prediction_that_is_refused_leaves_nothing_behind(flats):
    (flats / "refused.csv").write_text("flat,area\nx,1\n")
    trainrun(flats, "predict", "run", "refused.csv", "-o", "refused_out.csv", status=1)
    assert not list(flats.glob("refused_out*"))
    (flats / "late.csv").write_text(as_csv([*FLATS, {**FLATS[0], "area": "forty"}]))
    trainrun(flats, "predict", "run", "late.csv", "-o", "late_out.csv", status=1)
    assert not list(flats.glob("late_out*"))
