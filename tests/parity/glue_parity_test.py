"""GLUE's tasks from files that are laid out as those of its archives, read as Hugging Face's `glue` script reads them."""

import csv
import subprocess

import pytest
import torch

from tests.program import CALLED

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from probe import ProbeError, assert_same, missing_rows  # noqa: E402
from word_pieces import bert_tokenizer  # noqa: E402

USED = []
ENTAILMENT = ["entailment", "not_entailment"]
# {task: (columns, text columns, label column, labels as written)}; columns and their order as in the archives
TASKS = {
    "CoLA": (["source", "label", "original_label", "sentence"], ["sentence"], "label", ["0", "1"]),
    "SST-2": (["sentence", "label"], ["sentence"], "label", ["0", "1"]),
    "MRPC": (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["#1 String", "#2 String"], "Quality", ["0", "1"]),
    "QQP": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], ["question1", "question2"], "is_duplicate", ["0", "1"]),
    "STS-B": (["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"],
              ["sentence1", "sentence2"], "score", None),
    "MNLI": (["index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse", "sentence1",
              "sentence2", "label1", "gold_label"], ["sentence1", "sentence2"], "gold_label", ["entailment", "neutral", "contradiction"]),
    "QNLI": (["index", "question", "sentence", "label"], ["question", "sentence"], "label", ENTAILMENT),
    "RTE": (["index", "sentence1", "sentence2", "label"], ["sentence1", "sentence2"], "label", ENTAILMENT),
    "WNLI": (["index", "sentence1", "sentence2", "label"], ["sentence1", "sentence2"], "label", ["0", "1"]),
}
TEXTS = ['He said "fine', "It's done.", '" alone', "cut, by commas", "un café", "many words in one sentence, more than are read of it by far", "x"]


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory):
    made = bert_tokenizer(TEXTS, 120)
    path = tmp_path_factory.mktemp("word_piece") / "tokenizer.json"
    made.save(str(path))
    return made, str(path)


def write_task(root, task, split, damaged=()):
    """A file of the task, with what it holds as texts and labels; `damaged`: lines put in its middle as they are."""
    columns, texts, label, labels = TASKS[task]
    rows = []
    for i in range(11):
        row = {column: f"{column}{i}" for column in columns}
        row |= {column: TEXTS[(i + j) % len(TEXTS)] for j, column in enumerate(texts)}
        row[label] = labels[i % len(labels)] if labels else f"{i * 0.45:.3f}"
        rows.append([row[column] for column in columns])
    lines = ["\t".join(row) for row in rows]
    lines[5:5] = damaged
    head = [] if task == "CoLA" else ["\t".join(columns)]
    folder = root / task
    folder.mkdir(exist_ok=True)
    (folder / f"{split}.tsv").write_text("\n".join(head + lines) + "\n")


def by_python(root, task, split):
    """What the script of Hugging Face's data set yields: csv without quotes, rows that lack a value left out."""
    columns, texts, label, labels = TASKS[task]
    with open(root / task / f"{split}.tsv", encoding="utf8") as file:
        reader = csv.DictReader(file, fieldnames=columns if task == "CoLA" else None, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = [row for row in reader if all(row[column] is not None for column in [*texts, label])]
    numbers = torch.tensor([labels.index(row[label]) for row in rows]) if labels else torch.tensor([[float(row[label])] for row in rows])
    return [tuple(row[column] for column in texts) if len(texts) > 1 else row[texts[0]] for row in rows], numbers


def read(probe, learnt=None, **spec):
    USED.append(spec)
    reply, results = probe.ask("dataset", spec={"type": "GLUE"} | spec, learnt=learnt)
    assert reply["fields"] == ["input_ids", "attention_mask", "token_type_ids", "labels"] and reply["target"] == "labels"
    return results.under("output"), reply["learnt"]


def error_of(probe, **spec):
    with pytest.raises(ProbeError) as error:
        read(probe, **spec)
    return str(error.value)


@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_read_as_by_hugging_face(probe, tmp_path, word_piece, task):
    tokenizer, path = word_piece
    splits = ["train", "dev_matched", "dev_mismatched"] if task == "MNLI" else ["train", "dev"]
    for split in splits:
        short = "\t".join(["5"] * (len(TASKS[task][0]) - 1))
        write_task(tmp_path, task, split, damaged=["cut", short] if task in ("QQP", "SST-2", "STS-B") else ())
        texts, labels = by_python(tmp_path, task, split)
        assert len(texts) == 11
        fields, learnt = read(probe, root=str(tmp_path), task=task, split=split, tokenizer=path, max_length=20, padding="max_length")
        tokenizer.enable_truncation(20)
        tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", length=20)
        encoded = tokenizer.encode_batch(texts)
        assert_same(fields, {"input_ids": torch.tensor([e.ids for e in encoded]), "attention_mask": torch.tensor([e.attention_mask for e in encoded]),
                             "token_type_ids": torch.tensor([e.type_ids for e in encoded]), "labels": labels}, f"{task} {split}")
        assert learnt == (None if task == "STS-B" else {"classes": TASKS[task][3]})


RECIPE = """\
version: 1
model: {layers: [{type: Embedding, num_embeddings: 120, embedding_dim: 4}, {type: Mean, dim: 1}, {type: Linear, out_features: OUTPUTS}]}
loss: LOSS
metrics: [METRIC]
dataset: {train: {type: GLUE, root: ROOT, task: TASK, split: train, tokenizer: TOKENIZER}, eval: {type: GLUE, root: ROOT, task: TASK, split: dev, tokenizer: TOKENIZER}}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
output_dir: run
"""


@pytest.mark.parametrize("task, outputs, loss, metric", [("STS-B", 1, "MSELoss", "PearsonCorr"), ("CoLA", 2, "CrossEntropyLoss", "MatthewsCorrCoef")])
def test_scores_and_classes_are_learnt_and_test_files_predicted(tmp_path, word_piece, task, outputs, loss, metric):
    for split in ("train", "dev"):
        write_task(tmp_path, task, split, damaged=["cut"])
    recipe = RECIPE
    for name, value in {"ROOT": tmp_path, "TOKENIZER": word_piece[1], "TASK": task, "OUTPUTS": outputs, "LOSS": loss, "METRIC": metric}.items():
        recipe = recipe.replace(name, str(value))
    (tmp_path / "r.yaml").write_text(recipe)
    done = subprocess.run([CALLED, "r.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "train.tsv: 1 row is left out, because it lacks" in " ".join((done.stdout + done.stderr).split())
    if task != "CoLA":
        return
    (tmp_path / "test.tsv").write_text('index\tsentence\n0\tHe said "fine\n1\tx\n')
    done = subprocess.run([CALLED, "predict", "run", "test.tsv"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == ["2", "3"], done.stdout + done.stderr


def test_what_is_wrong_is_said_with_its_place(probe, tmp_path, word_piece):
    common = {"root": str(tmp_path), "tokenizer": word_piece[1]}
    assert "MNLI has no dev.tsv; write dev_matched or dev_mismatched" in error_of(probe, **common, task="MNLI", split="dev")
    assert "only MNLI has dev_matched.tsv; write dev" in error_of(probe, **common, task="RTE", split="dev_matched")
    assert "RTE/dev.tsv: cannot open" in error_of(probe, **common, task="RTE", split="dev")
    write_task(tmp_path, "RTE", "dev", damaged=["5\ta\tb\tmaybe"])
    assert "RTE/dev.tsv:7:label: 'maybe' is not a class" in error_of(probe, **common, task="RTE", split="dev")
    for score in ("five", "nan", "1e999"):
        write_task(tmp_path, "STS-B", "dev", damaged=["\t".join(["x"] * 9 + [score])])
        assert f"STS-B/dev.tsv:7:score: '{score}' is not a number" in error_of(probe, **common, task="STS-B", split="dev")
    write_task(tmp_path, "STS-B", "dev", damaged=["\t".join(["x"] * 9 + [""])])
    assert "STS-B/dev.tsv:7:score: the label is missing" in error_of(probe, **common, task="STS-B", split="dev")
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2/dev.tsv").write_text("index\tsentence\n0\ta\n")  # a test.tsv
    assert "SST-2/dev.tsv: has no column 'label'" in error_of(probe, **common, task="SST-2", split="dev")
    (tmp_path / "SST-2/dev.tsv").write_text("sentence\tlabel\nonly\n")
    assert "SST-2/dev.tsv: has no rows" in error_of(probe, **common, task="SST-2", split="dev")


def test_every_parameter_has_a_test(probe):
    known = probe.ask("catalog")["dataset"]
    assert missing_rows({"GLUE": known["GLUE"]}, [{"type": "GLUE"} | spec for spec in USED], ignored={"GLUE.pad_to_multiple_of", "GLUE.cache"}) == []
