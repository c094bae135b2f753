"""`trainrun init`: what it sees, what it asks, and that the recipes that it writes are valid and learn. Figures of more data sets, beside
tuned peers, are made by tests/parity/init_table.py."""

import csv
import json
import pathlib
import random
import re
import shutil
import subprocess

import jsonschema
import numpy as np
import pytest
import safetensors.numpy
import yaml

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "recipes/data"


def trainrun(folder, *words, fails=False):
    done = subprocess.run([CALLED, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def figures_after(folder, recipe, *overrides):
    """Trains the recipe, and gives the figures of the evaluation that `eval` makes."""
    trainrun(folder, "run", recipe, *overrides)
    return json.loads(trainrun(folder, "eval", f"runs/{pathlib.Path(recipe).stem}", "--json"))


def write_table(path, rows, delimiter=","):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def test_a_table_is_told_and_learnt(tmp_path):
    shutil.copy(DATA / "wine.csv", tmp_path)
    said = trainrun(tmp_path, "init", "wine.csv")
    assert "178 rows, 14 columns" in said and "3 classes: 1 71, 0 59, 2 48" in said and "the last one; --target" in said
    assert trainrun(tmp_path, "validate", "wine.yaml") == "wine.yaml: valid\n"
    assert figures_after(tmp_path, "wine.yaml", "training.num_epochs=20")["eval/accuracy"] > 0.9


def test_the_recipe_is_short_and_says_why(tmp_path):
    shutil.copy(DATA / "wine.csv", tmp_path)
    trainrun(tmp_path, "init", "wine.csv")
    text = (tmp_path / "wine.yaml").read_text()
    assert text.count("\n") < 40 and text.count("#") >= 4


def test_an_unclear_target_is_asked_for_and_the_advice_works(tmp_path):
    shutil.copy(DATA / "cars.csv", tmp_path)
    asked = trainrun(tmp_path, "init", "cars.csv", fails=True)
    assert "which column is to be predicted?" in asked and not (tmp_path / "cars.yaml").exists()
    first = re.search(r"write --target and one of these: (\w+),", asked)[1]
    said = trainrun(tmp_path, "init", "cars.csv", "--target", first)
    assert first == "mpg" and "horsepower (6 missing)" in said and "left out: name (text, 304" in said
    assert figures_after(tmp_path, "cars.yaml", "training.num_epochs=30")["eval/r2"] > 0.75


def test_an_unknown_target_is_refused_with_the_nearest_name(tmp_path):
    shutil.copy(DATA / "cars.csv", tmp_path)
    assert "there is no column 'mgp'; did you mean mpg?" in trainrun(tmp_path, "init", "cars.csv", "--target", "mgp", fails=True)


def test_rows_in_the_order_of_time_are_split_by_time(tmp_path):
    shutil.copy(DATA / "seattle_weather.csv", tmp_path / "days.csv")
    said = trainrun(tmp_path, "init", "days.csv", "--target", "temp_max")
    recipe = yaml.safe_load((tmp_path / "days.yaml").read_text())
    assert "split: by time" in said and recipe["dataset"]["train"]["split"]["shuffle"] is False
    assert recipe["dataset"]["train"]["id"] == ["date"] and recipe["dataset"]["train"]["task"] == "regression"
    rows = list(csv.DictReader((DATA / "seattle_weather.csv").open()))
    random.Random(1).shuffle(rows)
    write_table(tmp_path / "mixed.csv", rows)
    said = trainrun(tmp_path, "init", "mixed.csv", "--target", "temp_max")
    assert "not in the order of date" in " ".join(said.split()) and "shuffle" not in (tmp_path / "mixed.yaml").read_text()


def untidy_rows():
    draw = random.Random(2)
    rows = []
    for i in range(240):
        size = draw.randint(20, 200)
        rows.append({"order_id": f"A-{i * 7}", "size": f"{size},5" if i % 40 else "k.A.", "city": draw.choice(["Bern", "Oslo"]), "always": "x",
                     "empty": "", "price": "" if i % 100 == 7 else f"{size * 3 + draw.randint(0, 9)},25"})  # fmt: skip
    return [*rows, rows[5]]


def test_an_untidy_table_is_read_and_everything_left_out_is_told(tmp_path):
    write_table(tmp_path / "flats.csv", untidy_rows(), ";")
    said = " ".join(trainrun(tmp_path, "init", "flats.csv", "--target", "price").split())
    for word in ["separated by ';'", "241 rows", "names of rows, not learnt from: order_id", "always (one value alone)", "empty (empty)", "3 rows have no price"]:
        assert word in said, said
    assert trainrun(tmp_path, "validate", "flats.yaml") == "flats.yaml: valid\n"
    assert figures_after(tmp_path, "flats.yaml", "training.num_epochs=30")["eval/r2"] > 0.8


def test_a_recipe_that_lists_missing_values_takes_the_usual_ones_as_missing_too(tmp_path):
    rows = [{"size": f"{i}.5" if i % 30 else "k.A.", "rooms": str(i % 6 + 1) if i % 25 else "unknown", "plan": ["None", "Basic"][i % 2], "price": i} for i in range(240)]
    write_table(tmp_path / "flats.csv", rows)
    said = " ".join(trainrun(tmp_path, "init", "flats.csv", "--target", "price").split())
    assert "numbers: size (8 missing), rooms (10 missing):" in said and "categories: plan (2 values):" in said
    assert "rooms: 10 of 240 cells, the first 'unknown', are not numbers, and are taken as missing values" in said
    listed = yaml.safe_load((tmp_path / "flats.yaml").read_text())["dataset"]["train"]["na_values"]
    assert {"", "NA", "NaN", "nan", "null", "?", "k.A.", "unknown"} <= set(listed) and "None" not in listed  # which is a plan
    trainrun(tmp_path, "run", "flats.yaml", "training.num_epochs=1")
    write_table(tmp_path / "new.csv", [{"size": "NA", "rooms": "NaN", "plan": "None"}, {"size": "?", "rooms": "null", "plan": "Basic"}])
    assert trainrun(tmp_path, "predict", "runs/flats", "new.csv").count("\n") == 3
    assert re.search(r"plan +category, one-hot +0 +2\n", trainrun(tmp_path, "explain", "flats.yaml"))


def test_categories_that_are_called_none_are_no_missing_values(tmp_path):
    write_table(tmp_path / "plans.csv", [{"x": i, "plan": ["None", "Basic", ""][i % 3], "kind": ["NA", "b"][i % 2]} for i in range(120)])
    said = " ".join(trainrun(tmp_path, "init", "plans.csv").split())
    assert "2 classes: NA 60, b 60" in said and "plan (2 values, 40 missing)" in said and "no kind" not in said
    assert "skip" not in (tmp_path / "plans.yaml").read_text() and trainrun(tmp_path, "validate", "plans.yaml") == "plans.yaml: valid\n"


@pytest.mark.parametrize(("words", "names"), [(["no", "No", "Yes", "YES"], ["no", "yes"]), (["N", "no", "Y", "yes"], ["no", "yes"]), (["No", "No", "Yes", "Yes"], ["No", "Yes"]),
                                              (["no", "false", "yes", "true"], ["0", "1"])])  # fmt: skip
def test_two_classes_are_called_as_the_predictions_call_them(tmp_path, words, names):
    write_table(tmp_path / "yn.csv", [{"x": i % 4 + i / 1000, "ok": words[i % 4]} for i in range(80)])
    assert f"2 classes: {names[0]} 40, {names[1]} 40" in trainrun(tmp_path, "init", "yn.csv")
    trainrun(tmp_path, "run", "yn.yaml", "training.num_epochs=1")
    assert trainrun(tmp_path, "predict", "runs/yn", "yn.csv").splitlines()[0] == f"line,ok,probability,p({names[0]}),p({names[1]})"


def test_rare_classes_are_told_and_measured_by_f1(tmp_path):
    draw = random.Random(3)
    write_table(tmp_path / "rare.csv", [{"x": draw.gauss(2 * (i % 10 == 0), 1), "z": draw.gauss(0, 1), "label": "ill" if i % 10 == 0 else "well"} for i in range(400)])
    said = trainrun(tmp_path, "init", "rare.csv")
    recipe = yaml.safe_load((tmp_path / "rare.yaml").read_text())
    assert "well 360, ill 40" in said and {"type": "F1", "average": "macro"} in recipe["metrics"] and recipe["dataset"]["train"]["split"]["stratify"] is True


def test_a_folder_of_tables_evaluates_on_its_test_table_and_predicts_what_one_without_labels_lacks(tmp_path):
    rows = [{"a": i % 7, "b": (i * 5) % 11, "kind": ["p", "q"][i % 7 > 3]} for i in range(200)]
    write_table(tmp_path / "train.csv", rows[:150])
    write_table(tmp_path / "test.csv", rows[150:])
    assert "evaluated on ./test.csv" in trainrun(tmp_path, "init", ".", "--name", "both").replace("\n ", "")
    write_table(tmp_path / "test.csv", [{name: row[name] for name in ("b", "kind")} for row in rows[150:]])
    assert "predicted: a (which the test file lacks)" in trainrun(tmp_path, "init", ".", "--name", "lacking")


@pytest.mark.parametrize("more", [[], ["valid.csv"]])
def test_a_test_table_without_labels_is_there_to_predict_for(tmp_path, more):
    rows = [{"a": i % 7, "b": (i * 5) % 11, "kind": ["p", "q"][i % 7 > 3]} for i in range(200)]
    for name in ["train.csv", *more]:
        write_table(tmp_path / name, rows)
    write_table(tmp_path / "test.csv", [{"a": 1, "b": 2}, {"a": 6, "b": 2}])
    said = " ".join(trainrun(tmp_path, "init", ".", "--name", "kinds").split())
    assert "./test.csv has no kind; once the model is trained, `trainrun predict RUN ./test.csv` predicts it" in said and "trainrun eval" not in said
    trainrun(tmp_path, "run", "kinds.yaml", "training.num_epochs=1")
    assert trainrun(tmp_path, "predict", "runs/kinds", "./test.csv").count("\n") == 3
    write_table(tmp_path / "test.csv", rows[:9])
    assert not more or "./test.csv is not used; `trainrun eval` can evaluate on it" in " ".join(trainrun(tmp_path, "init", ".", "--name", "both").split())


def test_the_advice_to_read_texts_is_a_command_and_amounts_are_no_texts(tmp_path):
    draw = random.Random(4)
    rows = [{"x": i * 7 % 90, "the note": " ".join(draw.choice("abcdefgh") * 3 for _ in range(9)), "paid €": f"{i * 37 % 900},{i % 90 + 10} €", "kind": "pq"[i % 2]} for i in range(300)]
    write_table(tmp_path / "notes.csv", rows)
    said = " ".join(trainrun(tmp_path, "init", "notes.csv").split())
    assert "the texts in the note are not read; --text 'the note' writes a recipe" in said
    assert "paid € (amounts such as '0,10 €', which are read as numbers only without their signs or units)" in said
    write_table(tmp_path / "paid.csv", [{"paid €": row["paid €"], "kind": row["kind"]} for row in rows])
    refused = trainrun(tmp_path, "init", "paid.csv", fails=True)
    assert "amounts such as" in refused and "--text" not in refused


def test_nothing_is_overwritten_without_force(tmp_path):
    shutil.copy(DATA / "wine.csv", tmp_path)
    (tmp_path / "wine.yaml").write_text("mine")
    assert "is already there" in trainrun(tmp_path, "init", "wine.csv", fails=True) and (tmp_path / "wine.yaml").read_text() == "mine"
    trainrun(tmp_path, "init", "wine.csv", "--force")
    assert (tmp_path / "wine.yaml").read_text().startswith("# Predicts cultivar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wine.csv", "wine.yaml"]


def test_folders_of_pictures(tmp_path):
    for part in ("train", "test"):
        shutil.copytree(DATA / "shapes" / part / "images", tmp_path / "shapes" / part)
    (tmp_path / "shapes/train/circle/broken.png").write_bytes(b"\x89PNG no picture")
    said = trainrun(tmp_path, "init", "shapes")
    assert "circle 21, square 20, triangle 20" in said and "cannot be decoded" in said and "evaluated on shapes/test, 30 pictures" in said
    assert figures_after(tmp_path, "shapes.yaml", "training.num_epochs=1")["eval/accuracy"] >= 0


def test_pictures_of_formats_that_are_not_read_are_named_and_left_out(tmp_path):
    for part in ("train", "test"):
        shutil.copytree(DATA / "shapes" / part / "images", tmp_path / "shapes" / part)
    (tmp_path / "shapes/test/circle/moving.gif").write_bytes(b"GIF89a")
    said = trainrun(tmp_path, "init", "shapes")
    assert "1 picture cannot be decoded and is left out (broken: skip): shapes/test/circle/moving.gif: images of this format are not supported" in " ".join(said.split())
    assert figures_after(tmp_path, "shapes.yaml", "training.num_epochs=1")["eval/accuracy"] >= 0


def test_folders_of_classes_without_pictures_are_named_and_the_advice_works(tmp_path):
    shutil.copytree(DATA / "shapes/train/images", tmp_path / "shapes")
    (tmp_path / "shapes/rien du tout").mkdir()
    (tmp_path / "shapes/moving").mkdir()
    (tmp_path / "shapes/moving/a.gif").write_bytes(b"GIF89a")
    said = trainrun(tmp_path, "init", "shapes", fails=True)
    assert "each folder in it is a class, but moving, rien du tout hold no JPEG, PNG, WebP or BMP file; remove them" in said and "report" not in said
    for name in ("rien du tout", "moving"):
        shutil.rmtree(tmp_path / "shapes" / name)
    assert "3 classes" in trainrun(tmp_path, "init", "shapes")


def test_a_table_of_pictures(tmp_path):
    shutil.copytree(DATA / "shapes/train/images", tmp_path / "pictures")
    files = sorted(path for path in (tmp_path / "pictures").rglob("*") if path.is_file())
    write_table(tmp_path / "list.csv", [{"file": path.relative_to(tmp_path), "shape": path.parent.name} for path in files])
    assert "whose column file names pictures" in trainrun(tmp_path, "init", "list.csv")
    assert "eval/accuracy" in figures_after(tmp_path, "list.yaml", "training.num_epochs=1")


def test_names_of_columns_with_line_ends_and_quotation_marks_are_read_as_they_stand(tmp_path):
    draw = random.Random(3)
    rows = [{"size\n(m2)": draw.random(), "it's \"new\"": draw.choice(["yes", "no"]), "tab\there": draw.random(), "price\n(EUR)": draw.random()} for _ in range(150)]
    write_table(tmp_path / "flats.csv", rows)
    trainrun(tmp_path, "init", "flats.csv")
    assert "eval/mae" in figures_after(tmp_path, "flats.yaml", "training.num_epochs=1")
    assert yaml.safe_load((tmp_path / "flats.yaml").read_text())["dataset"]["train"]["label"] == "price\n(EUR)"


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_tables_in_quotation_marks_are_read_as_r_and_databases_write_them(tmp_path, delimiter):
    """R's write.csv quotes all names, the first of which is empty."""
    draw = random.Random(5)
    rows = [["", "size", "kind", "price"]] + [[str(number), draw.random(), draw.choice("ab"), draw.random()] for number in range(150)]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)
    assert "150 rows, 4 columns" in trainrun(tmp_path, "init", "rows.csv")
    assert "eval/mae" in figures_after(tmp_path, "rows.yaml", "training.num_epochs=1")


def test_objects_within_objects_are_left_out_and_copied_beside_predictions(tmp_path):
    draw = random.Random(4)
    rows = [{"size": draw.random(), "user": {"age": number, "tags": ["a", {"b": None}]}, "kind": draw.choice("ab"), "price": draw.random()} for number in range(150)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "left out: user (lists or objects)" in trainrun(tmp_path, "init", "rows.jsonl")
    assert "eval/mae" in figures_after(tmp_path, "rows.yaml", "training.num_epochs=1")
    trainrun(tmp_path, "predict", "runs/rows", "rows.jsonl", "--output", "out.jsonl")
    predicted = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["user"] for row in predicted] == [row["user"] for row in rows]
    (tmp_path / "new.jsonl").write_text(json.dumps(rows[0] | {"kind": {"a": 1}}) + "\n")
    assert "new.jsonl:1:kind: is an object, expected a category" in trainrun(tmp_path, "predict", "runs/rows", "new.jsonl", fails=True)


def test_a_table_beside_folders_of_pictures_says_what_they_show(tmp_path):
    """As competitions hand them out: train_images, test_images, and tables that name what lies in them."""
    files = sorted(path for path in (DATA / "shapes/train/images").rglob("*") if path.is_file())
    for folder in ("train_images", "test_images"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        for number, path in enumerate(files):
            shutil.copy(path, tmp_path / "data" / folder / f"{number}{path.suffix}")
    named = [{"image": f"{number}{path.suffix}", "shape": path.parent.name} for number, path in enumerate(files)]
    write_table(tmp_path / "data/train.csv", named)
    said = " ".join(trainrun(tmp_path, "init", "data").split())
    assert "whose column image names pictures" in said and "the paths of pictures begin at data/t" in said
    assert "eval/accuracy" in figures_after(tmp_path, "data.yaml", "training.num_epochs=1")
    shutil.rmtree(tmp_path / "data/test_images")
    (tmp_path / "data/train.csv").rename(tmp_path / "data/shapes.csv")
    assert "whose column image names pictures" in trainrun(tmp_path, "init", "data", "-o", "one_folder.yaml")
    shutil.copytree(DATA / "shapes/train/images", tmp_path / "sorted")
    write_table(tmp_path / "sorted/sizes.csv", named)
    assert "sorted/sizes.csv: not read; the folders' names are the classes" in " ".join(trainrun(tmp_path, "init", "sorted").split())


def test_arrays(tmp_path):
    draw = np.random.default_rng(0)
    label = draw.integers(0, 3, 300)
    np.savez(tmp_path / "rows.npz", x=draw.normal(size=(300, 5)) + label[:, None], y=label)
    assert "3 classes" in trainrun(tmp_path, "init", "rows.npz")
    assert figures_after(tmp_path, "rows.yaml", "training.num_epochs=15")["eval/accuracy"] > 0.7
    np.savez(tmp_path / "series.npz", x=draw.normal(size=(100, 6, 2)).astype("float32"), y=draw.normal(size=100).astype("float32"))
    assert "taken as series" in trainrun(tmp_path, "init", "series.npz")
    np.savez(tmp_path / "keras.npz", x_train=draw.integers(0, 255, (90, 8, 8, 3)).astype("uint8"), y_train=label[:90], x_test=draw.integers(0, 255, (30, 8, 8, 3)).astype("uint8"), y_test=label[:30])
    assert "evaluated on x_test" in trainrun(tmp_path, "init", "keras.npz")
    trainrun(tmp_path, "run", "keras.yaml", "training.num_epochs=1")
    assert "which array is to be predicted?" in trainrun(tmp_path, "init", DATA / "morse.npz", fails=True)


TOPICS = {"sport": "match goal team player league score", "food": "soup bread oven salt cook dish", "space": "orbit planet star moon rocket comet"}


def topic_rows(count):
    draw = random.Random(4)
    rows = []
    for i in range(count):
        topic = list(TOPICS)[i % 3]
        words = [draw.choice(TOPICS[topic].split() if draw.random() < 0.4 else "the a of in was very with for to".split()) for _ in range(draw.randint(6, 14))]
        rows.append({"text": " ".join(words) + ".", "topic": topic})
    return rows


def test_texts_with_classes(tmp_path):
    write_table(tmp_path / "topics.csv", topic_rows(300))
    env_free = trainrun(tmp_path, "init", "topics.csv")
    assert "texts in text" in env_free and "3 classes" in env_free
    assert figures_after(tmp_path, "topics.yaml", "training.num_epochs=10")["eval/accuracy"] > 0.9


def test_a_column_that_is_read_as_text_is_not_told_to_be_left(tmp_path):
    write_table(tmp_path / "few.csv", [{"size": i * 7 % 13, "note": ["quite good", "very bad"][i % 2], "grade": ["a", "b"][i % 2]} for i in range(60)])
    said = trainrun(tmp_path, "init", "few.csv", "--text", "note", "--target", "grade")
    assert "other columns are not read: size\n" in said


def test_a_text(tmp_path):
    (tmp_path / "tale.txt").write_text("Once upon a time there was a small house by the sea. " * 400)
    said = trainrun(tmp_path, "init", "tale.txt")
    assert "read character by character" in said and "little to learn a language from" in said
    trainrun(tmp_path, "run", "tale.yaml", "training.max_steps=2", "dataset.train.num_samples=64")


def write_llama(folder, width=16, tokens=79):
    """A Llama of one layer with random weights, as transformers lays it out."""
    folder.mkdir()
    shapes = {f"self_attn.{name}_proj": (width, width) for name in "qkvo"} | {"mlp.gate_proj": (32, width), "mlp.up_proj": (32, width), "mlp.down_proj": (width, 32)}
    draw = np.random.default_rng(0)
    weights = {f"model.layers.0.{name}.weight": draw.normal(size=shape).astype("float32") * 0.02 for name, shape in shapes.items()}
    weights |= {f"{name}.weight": draw.normal(size=(tokens, width)).astype("float32") * 0.02 for name in ("model.embed_tokens", "lm_head")}
    weights |= {f"model.{name}.weight": np.ones(width, "float32") for name in ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm")}
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    sizes = {"vocab_size": tokens, "hidden_size": width, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 256}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes}))


def test_a_table_that_is_called_a_text_is_told(tmp_path):
    rows = [f'{i % 2}\t"Long" was the match of team {i}\tthe team {i} played' for i in range(300)]
    (tmp_path / "pairs.txt").write_text("\n".join(["same\tfirst\tsecond", *rows]) + "\n")
    said = trainrun(tmp_path, "init", "pairs.txt")
    assert "each line of pairs.txt has 2 tabs, as those of a table do: called pairs.tsv, it is read as one" in said
    (tmp_path / "pairs.txt").rename(tmp_path / "pairs.tsv")
    assert "pairs.tsv: 300 rows; texts in first, second" in trainrun(tmp_path, "init", "pairs.tsv", "--target", "same", "--force")
    trainrun(tmp_path, "run", "pairs.yaml", "training.num_epochs=1")
    (tmp_path / "numbers.tsv").write_text("x\tnote\ty\n" + "".join(f'{i * 3 % 11}\t"{i}" of them\t{i % 7}\n' for i in range(50)))
    said = trainrun(tmp_path, "init", "numbers.tsv", fails=True)
    assert "numbers.tsv:2: column 2: text after a closing quotation mark; write --text and a column for a model of texts" in said
    (tmp_path / "prose.txt").write_text("a sentence with\ta tab, and others without one\n" + "It was a long day.\n" * 300)
    assert "tabs" not in trainrun(tmp_path, "init", "prose.txt")


def test_conversations_want_a_pretrained_model(tmp_path):
    asked = trainrun(tmp_path, "init", DATA / "chats/train.jsonl", fails=True)
    assert "512 conversations" in asked and "write --weights and a folder" in asked and list(tmp_path.iterdir()) == []
    write_llama(tmp_path / "llama")
    for file in DATA.joinpath("chats").iterdir():
        if "token" in file.name or "template" in file.name:
            shutil.copy(file, tmp_path / "llama")
    assert "trained by LoRA adapters" in trainrun(tmp_path, "init", DATA / "chats/train.jsonl", "--weights", "llama", "--name", "chats")
    trainrun(tmp_path, "run", "chats.yaml", "training.max_steps=2")


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.csv", "", "is empty"), ("a.csv", "x,y\n", "has no rows"), ("a.bin", "x", "is none of the data that `init` knows"),
    ("a.csv", "x,label\n1,2\n3,2\n", "has one value alone"), ("a.jsonl", '{"prompt": "a", "chosen": "b", "rejected": "c"}\n', "begin with recipes/dpo_tiny.yaml"),
    ("a.csv", "label,target\n1,2\n", "are both called so"),
    ("a.csv", "x,x,y\n1,2,3.5\n4,5,6.25\n7,8,9.5\n", "a.csv cannot be learnt from as it is; no recipe was written:\ndataset.train: a.csv:1:x: two columns are called 'x'"),
    ("a.csv", "x\n1\n2\n", "has no column but x to learn from"),
])  # fmt: skip
def test_what_cannot_be_told_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    assert said in trainrun(tmp_path, "init", name, fails=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


# --- editors


def test_editors_check_recipes_by_a_schema_that_agrees_with_validate(tmp_path):
    shutil.copy(DATA / "wine.csv", tmp_path)
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode/settings.json").write_text('{"editor.tabSize": 2, "yaml.schemas": {"other.json": "*.other"}}')
    trainrun(tmp_path, "init", "--editor", "wine.csv")
    settings = json.loads((tmp_path / ".vscode/settings.json").read_text())
    assert settings["editor.tabSize"] == 2 and settings["yaml.schemas"]["other.json"] == "*.other" and "./trainrun.schema.json" in settings["yaml.schemas"]
    text = (tmp_path / "wine.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=trainrun.schema.json\n")
    checker = jsonschema.Draft7Validator(json.loads((tmp_path / "trainrun.schema.json").read_text()))
    assert list(checker.iter_errors(yaml.safe_load(text))) == []
    for right, wrong in [("lr: 2.0e-3", "lr: fast"), ("p: 0.1", "q: 0.1"), ("type: AdamW", "type: AdamX"), ("num_epochs", "epochs"), ("shuffle: true", "")]:
        if right not in text:
            continue
        (tmp_path / "wrong.yaml").write_text(text.replace(right, wrong, 1))
        assert "wrong.yaml:" in trainrun(tmp_path, "validate", "wrong.yaml", fails=True)
        assert list(checker.iter_errors(yaml.safe_load(text.replace(right, wrong, 1)))) != [], wrong
    before = (tmp_path / ".vscode/settings.json").read_text()
    assert "was left as it is" in trainrun(tmp_path, "init", "--editor") and (tmp_path / ".vscode/settings.json").read_text() == before


def test_settings_with_comments_are_left_alone(tmp_path):
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode/settings.json").write_text('{\n  // mine\n  "a": 1\n}')
    assert "is left as it is; add to it by hand" in trainrun(tmp_path, "init", "--editor", fails=True)
    assert (tmp_path / ".vscode/settings.json").read_text() == '{\n  // mine\n  "a": 1\n}' and not (tmp_path / "trainrun.schema.json").exists()


# --- the recipes that come with trainrun

SHIPPED = sorted((ROOT / "recipes").glob("*.yaml"))
CORE = [  # how YAML 1.2 reads a plain scalar, as trainrun does
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|"), ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
]  # fmt: skip


def plain_scalars(node):
    if isinstance(node, yaml.ScalarNode):
        return [node] if node.style is None else []
    children = node.value if isinstance(node, yaml.SequenceNode) else [one for pair in node.value for one in pair]
    return [scalar for child in children for scalar in plain_scalars(child)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_python_reads_the_numbers_and_words_of_a_shipped_recipe_as_trainrun_does(path):
    for scalar in plain_scalars(yaml.compose(path.read_text())):
        expected = next((tag for tag, pattern in CORE if re.fullmatch(pattern, scalar.value)), "tag:yaml.org,2002:str")
        if scalar.value != "<<":
            assert scalar.tag == expected, f"{path.name}:{scalar.start_mark.line + 1}: {scalar.value}"


def test_every_recipe_is_in_the_gallery():
    rows = re.findall(r"^\| `(\w+\.yaml)` \|", (ROOT / "recipes/README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == [path.name for path in SHIPPED]
