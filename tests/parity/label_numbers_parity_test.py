"""Labels that are numbers where the loss learns numbers, whatever the data set: the loss that PyTorch computes of the same weights."""

import csv
import json
import shutil
import subprocess

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import safetensors.torch
import tokenizers
import torch
from PIL import Image

from probe import ProbeError
from tests.program import CALLED

WORDS = ["good", "bad", "film", "very", "a"]
TEXTS = ["a good film", "a very bad film", "good", "bad bad a"]
SCORES = [4.5, 1.25, 3.0, -2.75]
RECIPE = """
version: 1
model: {{layers: {layers}}}
loss: {loss}
dataset: {{train: {train}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.0}}
training: {{max_steps: 1}}
evaluation: {{every: null}}
checkpoint: {{every: 1}}
output_dir: run
"""
OF_TEXTS = "[{type: Embedding, num_embeddings: 8, embedding_dim: 3}, {type: Mean, dim: 1}, {type: Linear, out_features: 1}]"
OF_COLUMNS = "[{type: Linear, out_features: 1}]"
OF_IMAGES = "[Flatten, {type: Linear, out_features: 1}]"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, **{word: i + 1 for i, word in enumerate(WORDS)}}, unk_token="[PAD]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path = tmp_path_factory.mktemp("words") / "tokenizer.json"
    made.save(str(path))
    return path


def write_table(path, labels, texts=TEXTS):
    """Texts, a number and labels, in the form that the ending says."""
    rows = [{"text": text, "x": i * 0.5, "label": label} for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "x", "label"], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


def run(folder, layers, loss, train):
    (folder / "r.yaml").write_text(RECIPE.format(layers=layers, loss=loss, train=train))
    return subprocess.run([CALLED, "r.yaml"], cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def first_loss(folder, layers, loss, train):
    """Of the recipe's one step, and the weights, which it left as they were."""
    done = run(folder, layers, loss, train)
    assert done.returncode == 0, done.stderr + done.stdout
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    weights = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    return next(line["train/loss"] for line in lines if "train/loss" in line), weights


def of_texts(weights, texts=TEXTS):
    """The outputs of texts; padding, which is id 0, is among what the mean is of."""
    longest = max(len(text.split()) for text in texts)
    ids = torch.tensor([[WORDS.index(word) + 1 for word in text.split()] + [0] * (longest - len(text.split())) for text in texts])
    return weights["0.weight"][ids].mean(1) @ weights["2.weight"].T + weights["2.bias"]


@pytest.mark.parametrize("name, labels", [("a.csv", SCORES), ("a.tsv", SCORES), ("a.jsonl", SCORES), ("a.jsonl", [str(score) for score in SCORES]),
                                          ("a.jsonl", [4.5, 1, 3, -2]), ("a.parquet", SCORES), ("a.parquet", [5, 1, 3, -2])],
                         ids=["csv", "tsv", "jsonl", "texts", "mixed", "parquet", "integers"])
def test_scores_of_texts_are_learnt_as_they_are_written(tmp_path, tokenizer, name, labels):
    write_table(tmp_path / name, labels)
    loss, weights = first_loss(tmp_path, OF_TEXTS, "MSELoss", f"{{type: TextClassification, path: {name}, tokenizer: {tokenizer}}}")
    expected = torch.nn.functional.mse_loss(of_texts(weights), torch.tensor([[float(label)] for label in labels]))
    assert loss == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("loss, torch_loss", [("L1Loss", torch.nn.L1Loss()), ("HuberLoss", torch.nn.HuberLoss()), ("SmoothL1Loss", torch.nn.SmoothL1Loss())])
def test_each_loss_of_numbers_has_them(tmp_path, tokenizer, loss, torch_loss):
    write_table(tmp_path / "a.csv", SCORES)
    got, weights = first_loss(tmp_path, OF_TEXTS, loss, f"{{type: TextClassification, path: a.csv, tokenizer: {tokenizer}}}")
    assert got == pytest.approx(torch_loss(of_texts(weights), torch.tensor(SCORES).unsqueeze(1)).item(), rel=1e-5)


def test_a_table_whose_few_numbers_look_like_classes(tmp_path):
    """`columns: auto` would take 0.5, 1.5 and 2.5 in 60 rows as three categories."""
    labels = [[2.5, 0.5, 1.5][i % 3] for i in range(60)]
    for name in ("a.csv", "a.jsonl"):
        kind = "CSV" if name == "a.csv" else "JSONL"
        write_table(tmp_path / name, labels, ["t"] * 60)
        train = f"{{type: Concat, datasets: [{{type: {kind}, path: {name}, label: label, features: [x], columns: auto}}]}}"
        loss, weights = first_loss(tmp_path, OF_COLUMNS, "MSELoss", train)
        x = torch.arange(60).unsqueeze(1) * 0.5
        outputs = x @ weights["0.weight"].T + weights["0.bias"]
        squares = (outputs - torch.tensor(labels).unsqueeze(1)).square()
        batch = torch.randperm(60, generator=torch.Generator().manual_seed(42))[:4]
        assert loss == pytest.approx(squares[batch].mean().item(), rel=1e-4)
        shutil.rmtree(tmp_path / "run")


def test_scores_of_images(tmp_path):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{i}.png,{score}\n" for i, score in enumerate(SCORES)))
    loss, weights = first_loss(tmp_path, OF_IMAGES, "MSELoss", "{type: ImageCSV, path: list.csv}")
    inputs = torch.tensor(pixels).permute(0, 3, 1, 2).flatten(1) / 255
    outputs = inputs @ weights["1.weight"].T + weights["1.bias"]
    assert loss == pytest.approx(torch.nn.functional.mse_loss(outputs, torch.tensor(SCORES).unsqueeze(1)).item(), rel=1e-5)


def test_classes_stay_classes_where_the_recipe_says_so(tmp_path, tokenizer):
    """Least squares on two named classes, as numbers 0 and 1, are learnt; the log says which is which."""
    write_table(tmp_path / "a.csv", ["pos", "neg", "pos", "neg"])
    train = f"{{type: TextClassification, path: a.csv, tokenizer: {tokenizer}"
    for more in (", task: classification}", ", classes: [neg, pos]}"):
        loss, weights = first_loss(tmp_path, OF_TEXTS, "MSELoss", train + more)
        assert loss == pytest.approx((of_texts(weights) - torch.tensor([[1.0], [0], [1], [0]])).square().mean().item(), rel=1e-5)
        assert "MSELoss learns numbers, but 'labels' is the number of a class: neg is 0, pos is 1" in " ".join((tmp_path / "run/log.txt").read_text().split())
        shutil.rmtree(tmp_path / "run")
    done = run(tmp_path, OF_TEXTS, "MSELoss", train + "}")
    assert done.returncode != 0 and "a.csv:2:label: 'pos' is not a number; for labels that are classes write task: classification" in " ".join(done.stderr.split())


def test_fractions_are_no_classes_unless_the_recipe_says_so(probe, tmp_path, tokenizer):
    spec = {"type": "TextClassification", "tokenizer": str(tokenizer), "padding": "max_length", "max_length": 8}
    halves = str(write_table(tmp_path / "halves.csv", ["1", "2", "10", "2.5"]))
    with pytest.raises(ProbeError, match=r"halves.csv:5:label: '2.5' is a fraction, as no class is where all labels are numbers; write task: regression"):
        probe.ask("dataset", spec=spec | {"path": halves})
    assert probe.ask("dataset", spec=spec | {"path": halves, "task": "classification"})[0]["learnt"] == {"classes": ["1", "2", "2.5", "10"]}
    fields = probe.ask("dataset", spec=spec | {"path": halves, "task": "regression"})[1].under("output")
    assert fields["labels"].dtype == torch.float32 and fields["labels"].tolist() == [[1], [2], [10], [2.5]]
    twice = str(write_table(tmp_path / "twice.jsonl", [1, 2, 1.0, 2]))
    with pytest.raises(ProbeError, match=r"twice.jsonl:3:label: '1.0' is the same number as '1' in line 1, but would be another class"):
        probe.ask("dataset", spec=spec | {"path": twice})
    whole = str(write_table(tmp_path / "whole.jsonl", [10.0, 9.0, 10.0, 9.0]))
    assert probe.ask("dataset", spec=spec | {"path": whole})[0]["learnt"] == {"classes": ["9.0", "10.0"]}
    mixed = str(write_table(tmp_path / "mixed.csv", ["1.5", "high", "low", "1.5"]))
    assert probe.ask("dataset", spec=spec | {"path": mixed})[0]["learnt"] == {"classes": ["1.5", "high", "low"]}
    with pytest.raises(ProbeError, match="classes: are for the task classification"):
        probe.ask("dataset", spec=spec | {"path": halves, "task": "regression", "classes": ["1"]})


@pytest.mark.parametrize("label, fault", [("four", "'four' is not a number"), ("", "the label is missing"), ("nan", "'nan' is not a number"),
                                          ("4,5", "'4,5' is not a number"), ("1e39", "'1e39' is too large for float32")])
def test_a_label_that_is_no_number_is_named_with_its_line(probe, tmp_path, tokenizer, label, fault):
    path = str(write_table(tmp_path / "a.tsv", ["1", " +2.5", "-3e-1", label]))
    spec = {"type": "TextClassification", "tokenizer": str(tokenizer), "path": path, "task": "regression"}
    with pytest.raises(ProbeError, match=f"a.tsv:5:label: {fault}"):
        probe.ask("dataset", spec=spec)


def test_images_with_fractions_for_classes_are_refused(probe, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,label\na.png,1\na.png,2.5\n")
    spec = {"type": "ImageCSV", "path": str(tmp_path / "list.csv")}
    with pytest.raises(ProbeError, match="list.csv:3:label: 2.5 is a fraction, as no class is where all labels are numbers; write task: regression"):
        probe.ask("dataset", spec=spec)
    assert probe.ask("dataset", spec=spec | {"task": "regression"})[1]["output.label"].tolist() == [[1], [2.5]]
    assert probe.ask("dataset", spec=spec | {"task": "classification"})[1]["output.label"].tolist() == [0, 1]


def test_the_score_of_a_whole_set_is_of_the_numbers(tmp_path, tokenizer):
    """Evaluation reads labels as training does: a Pearson correlation and an error in the scores' own unit."""
    write_table(tmp_path / "a.csv", SCORES)
    train = f"{{type: TextClassification, path: a.csv, tokenizer: {tokenizer}}}"
    (tmp_path / "r.yaml").write_text(RECIPE.format(layers=OF_TEXTS, loss="MSELoss", train=f"{train}, eval: {train}")
                                     .replace("every: null", "every: epoch") + "metrics: [MAE, PearsonCorr]\n")
    done = subprocess.run([CALLED, "r.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    figures = next(json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if "eval/loss" in line)
    outputs = of_texts(safetensors.torch.load_file(tmp_path / "run/checkpoints/latest/model.safetensors")).flatten()
    scores = torch.tensor(SCORES)
    assert figures["eval/mae"] == pytest.approx((outputs - scores).abs().mean().item(), rel=1e-5)
    assert figures["eval/pearson_corr"] == pytest.approx(np.corrcoef(outputs.numpy(), scores.numpy())[0, 1], rel=1e-4)
    assert figures["eval/loss"] == pytest.approx((outputs - scores).square().mean().item(), rel=1e-5)
