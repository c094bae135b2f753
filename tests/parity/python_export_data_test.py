"""`trainrun export --format python` of tables with categories, dates and holes, of texts with labels, of adapters in a folder and of layers with
rates of their own: the programs train as trainrun does, within 1e-5 over 50 steps."""

import csv
import json
import pathlib
import random
import shutil
import subprocess
import sys

import numpy
import pytest
from PIL import Image

from tests.parity.forked_python import forked_python
from tests.parity.python_export_test import DIGITS, ROOT, export, verified
from tests.program import CALLED

pandas = pytest.importorskip("pandas", reason="pandas is not installed: tools/setup --tests fetches it")

STEPS = 50
HEAD = "version: 1\nname: a\nseed: 3\n"
CLASSIFIER = """
model: {layers: [{type: Linear, out_features: 12}, Tanh, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
optimizer: {type: AdamW, lr: 1e-2}
dataloader: {batch_size: 8, eval_batch_size: 64}
training: {num_epochs: 6}
"""
NUMBERS = CLASSIFIER.replace("out_features: 3}", "out_features: 1}").replace("CrossEntropyLoss", "MSELoss").replace("Accuracy", "MAE")
EMBEDDED = CLASSIFIER.replace("layers: [", """layers: [{type: Embedding, name: city, inputs: [town], num_embeddings: CITIES, embedding_dim: 4},
  {type: Concat, inputs: [features, city], dim: 1}, """)
ALL = "dataset:\n  train: &rows {type: CSV, path: FOLDER/t.csv, OPTIONS, split: {SPLIT, part: train}}\n  eval: {<<: *rows, split: {SPLIT, part: validation}}\n"
SCALED = "  transforms: [Standardize]\n"
TWO = "dataset:\n  train: {type: CSV, path: FOLDER/t.csv, OPTIONS}\n  eval: {type: CSV, path: FOLDER/u.csv, OPTIONS}\n"
TABLES = {
    "auto": (CLASSIFIER + ALL + SCALED, "label: kind, id: [name], na_values: ['', none], columns: auto", "fractions: [0.7, 0.2, 0.1], seed: 5, stratify: true"),
    "in_order": (CLASSIFIER + ALL + SCALED, "label: kind, id: name, na_values: ['', none], columns: auto", "shuffle: false, stratify: true"),
    "regression": (NUMBERS + ALL + "  transforms: [Standardize, {type: Standardize, field: label}]\n",
                   "label: price, id: [name, kind], task: regression, na_values: ['', none], columns: auto", "seed: 1"),
    "listed": (EMBEDDED.replace("CITIES", "6") + TWO, "label: kind, features: [size, town, colour], columns: {kind: {type: category, categories: "
               "[plum, pear, apple]}, size: {missing: median}, town: {type: category, allow_unknown: true, missing: none}, colour: {type: category, "
               "one_hot: true, allow_unknown: true, missing: most_frequent}}", ""),
    "numbered": (EMBEDDED.replace("CITIES", "9").replace("[town]", "[code]") + TWO + SCALED, "label: kind, features: [size, code, fresh, day, rank], "
                 "na_values: ['', none], columns: {kind: category, size: {missing: 2.5}, code: {type: category, missing: most_frequent}, "
                 "fresh: {type: boolean, missing: mean}, day: {type: date, format: '%d.%m.%Y', missing: median}, rank: {missing: 0}}", ""),
}
WORDS = ["green", "pear", "old", "sour", "sweet", "red", "nice", "bad", "Apple", "the"]


def write_tables(folder):
    """t.csv, and u.csv, which has values that t.csv does not have."""
    draw = random.Random(4)
    for name, count in (("t", 160), ("u", 60)):
        with open(folder / f"{name}.csv", "w", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["name", "size", "colour", "town", "code", "fresh", "day", "rank", "price", "kind"])
            for i in range(count):
                size = round(draw.uniform(0, 5), 3)
                colour = draw.choice(["red", "green", "NA", " blue "])
                code = draw.choice([7, 8, 12])
                rows.writerow([
                    f"row {i}", "" if i % 19 == 3 else size, "" if i % 23 == 4 else "violet" if name == "u" and i == 5 else colour,
                    "" if i % 17 == 2 else "Ulm" if name == "u" and i % 13 == 1 else draw.choice(["Rom", "Bern", "Wien", "none"]),
                    "" if i % 29 == 8 else f"{code}.0" if name == "u" else code, "none" if i % 31 == 9 else draw.choice(["yes", "No"]),
                    "" if i % 27 == 6 else f"{draw.randint(1, 28):02}.{draw.randint(1, 12):02}.{draw.randint(1990, 2024)}",
                    "none" if i % 25 == 7 else draw.randint(0, 99), round(1e5 + 3.17 * i + 900 * size, 2),
                    "plum" if size < 2 else "pear" if colour == "red" else "apple",
                ])


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with forked_python(tmp_path_factory.mktemp("python")) as script:
        yield script


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def recipe_of_table(name, folder):
    text, options, split = TABLES[name]
    path = folder / f"{name}.yaml"
    path.write_text(HEAD + text.replace("OPTIONS", options).replace("SPLIT", split).replace("FOLDER", str(folder)))
    return path


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_as_trainrun_reads_it(name, tmp_path, python, programs):
    write_tables(tmp_path)
    found = verified(recipe_of_table(name, tmp_path), programs / f"{name}.py", python, steps=STEPS)
    figures = dict(line.split()[:2] for line in found.splitlines() if line.startswith("eval/"))
    others = dict(line.split()[::2] for line in found.splitlines() if line.startswith("eval/"))
    assert "eval/loss" in figures
    for figure, own in figures.items():
        assert float(others[figure]) == pytest.approx(float(own), rel=1e-4), figure


def write_texts(folder, form):
    draw = random.Random(2)
    for part, count in (("train", 90), ("test", 30)):
        rows = []
        for _ in range(count):
            first, second = (" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(2))
            label = {"names": "good" if "sweet" in first else "bad", "numbers": 10 if "sweet" in first else 9, "score": len(first) / 40}[form]
            rows.append({"one": first, "two": second, "verdict": label})
        frame = pandas.DataFrame(rows)
        frame.to_csv(folder / f"{part}.csv", index=False)
        frame.to_csv(folder / f"{part}.tsv", index=False, sep="\t", quoting=csv.QUOTE_NONE)
        frame.to_parquet(folder / f"{part}.parquet")
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("layout", [("scenes/train", "classes/train", "_left[8bit]", "_ids"), ("shots/in", "shots", "", "*")])
def test_masks_lie_beside_images_as_trainrun_looks_for_them(layout, tmp_path, python, programs):
    """Names that are patterns to a shell, hidden files and what is no image make no difference."""
    images, masks, image_suffix, mask_suffix = layout
    draw = numpy.random.default_rng(1)
    for part, name in (("a", "1"), ("a", "2"), ("b", "1"), ("b", ".hidden"), (".git", "3")):
        for folder, suffix, shape in ((images, image_suffix, (12, 12, 3)), (masks, mask_suffix, (12, 12))):
            path = tmp_path / folder / part / f"{name}{suffix}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 3, shape, dtype=numpy.uint8) * (60 if folder == images else 1)).save(path)
    (tmp_path / images / f"README{image_suffix}.txt").write_text("not an image")
    recipe = tmp_path / "masks.yaml"
    rows = (f"{{type: SegmentationFolder, root: {tmp_path}, images: {images}, masks: {masks}, image_suffix: '{image_suffix}', "
            f"mask_suffix: '{mask_suffix}', num_classes: 3}}")  # fmt: skip
    recipe.write_text(HEAD + f"""
model: {{layers: [{{type: Conv2d, out_channels: 3, kernel_size: 3, padding: 1}}]}}
loss: CrossEntropyLoss
optimizer: {{type: SGD, lr: 0.1}}
dataset: {{train: {rows}, eval: {rows}}}
dataloader: {{batch_size: 2, eval_batch_size: 3}}
training: {{num_epochs: 4}}
""")
    verified(recipe, programs / f"masks{len(image_suffix)}.py", python)
    shutil.copytree(tmp_path / masks, tmp_path / "copy")
    (tmp_path / "copy").rename(tmp_path / images / "masks")
    beside = tmp_path / "beside.yaml"
    beside.write_text(recipe.read_text().replace(f"masks: {masks}", f"masks: {images}/masks"))
    done = export(beside, "--output", tmp_path / "a.py")
    assert done.returncode == 2 and "another folder than the images' alone" in done.stderr, done.stderr


@pytest.mark.parametrize("kind, form, columns, more", [
    ("csv", "names", "one", ""), ("tsv", "numbers", "[one, two]", ", padding: max_length"), ("jsonl", "score", "one", ", task: regression"),
    ("parquet", "numbers", "[two, one]", ", max_length: 14"), ("jsonl", "names", "two", ", classes: [good, bad]"),
])
def test_texts_with_labels_are_read_as_trainrun_reads_them(kind, form, columns, more, tmp_path, python, programs):
    write_texts(tmp_path, form)
    score = form == "score"
    rows = f"type: TextClassification, text_columns: {columns}, label: verdict, tokenizer: {ROOT}/recipes/data/chats{more}"
    recipe = tmp_path / "a.yaml"
    recipe.write_text(HEAD + f"""
model:
  layers:
    - {{type: Embedding, inputs: [input_ids], num_embeddings: 79, embedding_dim: 12, name: tokens}}
    - {{type: TokenPooling, inputs: [tokens, attention_mask]}}
    - {{type: Linear, out_features: {1 if score else 2}}}
loss: {"MSELoss" if score else "CrossEntropyLoss"}
optimizer: {{type: AdamW, lr: 1e-2}}
dataset:
  train: {{{rows}, path: {tmp_path}/train.{kind}}}
  eval: {{{rows}, path: {tmp_path}/test.{kind}}}
dataloader: {{batch_size: 6, eval_batch_size: 30}}
training: {{num_epochs: 4}}
""")
    verified(recipe, programs / f"{kind}_{form}.py", python, steps=STEPS)


LAYERS = """
model:
  layers: [Flatten, {type: Linear, name: first, out_features: 24}, Tanh, {type: Linear, name: second, out_features: 24, lr_scale: 0.5}, Tanh,
           {type: Linear, name: head, out_features: 10}]
loss: CrossEntropyLoss
"""


@pytest.mark.parametrize("name, lines", [
    ("decay", "optimizer: {type: AdamW, lr: 1e-2, layer_decay: 0.6, param_groups: [{match: 'bias$', weight_decay: 0, lr: 3e-2}]}\n"
              "scheduler: {type: CosineWithWarmup, warmup_steps: 5}\n"),
    ("scale", "optimizer: {type: SGD, lr: 0.1, momentum: 0.9}\nscheduler: {type: Piecewise, points: [[3, 0.2], [10, 1], [40, 0.1]]}\n"),
    ("steps", "optimizer: {type: SGD, lr: 0.1}\nscheduler: {type: Piecewise, interpolation: constant, interval: epoch, points: [[0, 1], [1, 0.3]]}\n"),
])
def test_rates_are_those_of_trainrun(name, lines, tmp_path, python, programs):
    recipe = tmp_path / "a.yaml"
    recipe.write_text(HEAD + LAYERS + lines + DIGITS)
    verified(recipe, programs / f"{name}.py", python, steps=STEPS)


@pytest.mark.parametrize("lines, fault", [
    ("optimizer: {type: SGD, lr: 0.1}\nscheduler: {type: OneCycleLR, max_lr: 0.1}\n", "OneCycleLR is not written beside layer_decay"),
    ("optimizer: {type: SGD, lr: 0.1}\nscheduler: {type: CosineAnnealingLR, eta_min: 0.01}\n", "CosineAnnealingLR with eta_min is not written beside layer_decay"),
    ("optimizer: {type: LBFGS, lr: 0.1}\n", "layer_decay and layers with an lr_scale are written for one optimizer"),
])
def test_rates_that_pytorch_would_set_otherwise_are_refused(lines, fault, tmp_path):
    recipe = tmp_path / "a.yaml"
    recipe.write_text(HEAD + LAYERS + lines + DIGITS)
    done = export(recipe, "--output", tmp_path / "a.py")
    assert done.returncode == 2 and fault in done.stderr, done.stderr


def test_adapters_begin_with_those_of_a_folder(tmp_path, python, programs):
    """Both where --weights gives them, as --verify does, and where the program reads the folder."""
    base = LAYERS.replace(", lr_scale: 0.5", "") + "optimizer: {type: SGD, lr: 0.1}\n" + DIGITS
    adapted = base.replace("loss:", "  adapters: {type: LoRA, ADAPTERS}\nloss:", 1)
    recipe = tmp_path / "a.yaml"
    recipe.write_text(HEAD + adapted.replace("ADAPTERS", "target: [first, head], r: 3, alpha: 5, use_rslora: true"))
    run = [CALLED, "--quiet", "run", recipe, "training.max_steps=5", f"output_dir={tmp_path}/run"]
    assert subprocess.run(run, cwd=ROOT, check=False).returncode == 0
    done = subprocess.run([CALLED, "export", tmp_path / "run", "--format", "peft", "--output", tmp_path / "saved"], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    recipe.write_text(HEAD + adapted.replace("ADAPTERS", f"weights: {tmp_path}/saved"))
    verified(recipe, programs / "folder.py", python, steps=STEPS)
    script = f"""
import runpy, torch
from safetensors.torch import load_file
program = runpy.run_path({str(programs / "folder.py")!r})
torch.manual_seed(0)
net = program["nn"].ModuleDict({{"first": torch.nn.Linear(64, 24), "second": torch.nn.Linear(24, 24), "head": torch.nn.Linear(24, 10)}})
program["add_adapters"](net)
program["load_adapters"](net, program["ADAPTERS"])
saved = load_file({str(tmp_path / "saved/adapter_model.safetensors")!r})
own = net.state_dict()
assert len(saved) == 4
for name, tensor in saved.items():
    assert torch.equal(own[name.removeprefix("base_model.model.")], tensor), name
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_pass_ruff(tmp_path, programs):
    write_tables(tmp_path)
    for name in TABLES:
        if not (programs / f"{name}.py").exists():
            assert export(recipe_of_table(name, tmp_path), "--output", programs / f"{name}.py").returncode == 0
    ruff = pathlib.Path(sys.executable).with_name("ruff")
    done = subprocess.run([ruff, "check", "--isolated", "--select", "E,F,W,I,B", "--ignore", "E501", programs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("change, fault", [
    ("columns: {kind: category, day: {type: date, format: '%d.%m.%y'}}", "dates with years of two digits are not written"),
    ("columns: auto, id: name, na_values: ['', none], split: {group: town}", "parts by group are not written"),
])
def test_what_is_not_written_of_a_table_is_refused(change, fault, tmp_path):
    write_tables(tmp_path)
    recipe = tmp_path / "a.yaml"
    recipe.write_text(HEAD + CLASSIFIER + f"dataset: {{train: {{type: CSV, path: {tmp_path}/t.csv, label: kind, {change}}}}}\n")
    done = export(recipe, "--output", tmp_path / "a.py")
    assert done.returncode == 2 and fault in done.stderr, done.stderr
