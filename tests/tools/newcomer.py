"""What the tests of a newcomer's stumbles share: a table of flats and a run on it."""

import csv
import io
import re
import shlex
import subprocess

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from tests.program import CALLED

WORDS = ["good", "bad", "soup", "was", "the", "lovely", "awful"]
TABLE = """\
version: 1
model: {layers: [{type: Linear, out_features: 1}]}
loss: MSELoss
dataset:
  train: {type: CSV, path: train.csv, label: rent, columns: auto, id: flat}
  transforms: [Standardize, {type: Standardize, field: label}]
dataloader: {batch_size: 8}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 2}
output_dir: run
"""
FLATS = [{"flat": f"f{i}", "area": 30.5 + i, "built": f"{1 + i % 28:02}.{1 + i % 12:02}.{1990 + i}", "rent": 400 + 11 * i} for i in range(24)]
ISO = [{**row, "built": "-".join(row["built"].split(".")[::-1])} for row in FLATS]


def trainrun(folder, *arguments, status=0, stdin=None):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, input=stdin, timeout=120, check=False)
    text = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == status, text
    return text


def recipe(folder, model, loss, dataset, more=""):
    (folder / "r.yaml").write_text(f"""\
version: 1
model: {{layers: [{model}]}}
loss: {loss}
dataset: {{{dataset}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.01}}
training: {{num_epochs: 1}}
output_dir: run
{more}""")


def as_csv(rows, delimiter=",", number=str):
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{key: number(value) if isinstance(value, float) else value for key, value in row.items()} for row in rows])
    return text.getvalue()


@pytest.fixture(scope="module", name="flats")
def fixture_flats(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flats")
    (folder / "train.csv").write_text(as_csv(FLATS))
    (folder / "r.yaml").write_text(TABLE)
    trainrun(folder, "r.yaml")
    return folder


def followed(text):
    """The arguments that a message says to add to the command."""
    advice = re.search(r"add (.*) to the command", text)
    assert advice, text
    return [word for word in shlex.split(advice[1]) if word != "and"]


def write_tokenizer(path):
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(path))
