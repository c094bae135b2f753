"""`trainrun predict` for the tags of words and for vectors of texts, against transformers' models with the trained weights."""

import csv
import io
import json
import subprocess

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from language_models import BertForTokenClassification, BertModel, bert  # noqa: E402
from word_pieces import bert_tokenizer  # noqa: E402

SENTENCES = [["Anna", "lives", "in", "Oslo"], ["the", "rain", "in", "Oslo", "fell"], ["Bob", "met", "Anna", "today"], ["nobody", "came"]]
TAGS = [["PER", "O", "O", "LOC"], ["O", "O", "O", "LOC", "O"], ["PER", "O", "PER", "O"], ["O", "O"]]
NEW = [["Bob", "fell", "today"], ["rain"], ["Anna", "\u200b", "lives", "unheardof", "Oslo"], ["Oslo"] * 40]  # one is no token, one is too long
PAIRS = [("how old is it", "its age in years"), ("where does he live", "his address"), ("the rain fell", "it was a wet day"), ("he won", "the victory was his")]
MAX_LENGTH = 24
RECIPE = """
version: 1
name: texts
seed: 4
model: {layers: [{MODEL, pretrained: FOLDER/peer}]}
loss: LOSS
dataset: {train: {DATA, tokenizer: FOLDER/peer/tokenizer.json, max_length: 24}EVAL}
dataloader: {batch_size: 2, eval_batch_size: 3}
optimizer: {type: AdamW, lr: 1e-3}
training: {max_steps: 6}
evaluation: {every: null}
output_dir: FOLDER/run
"""


def trainrun(*arguments):
    done = subprocess.run([CALLED, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trained(folder, model, layer, loss, data, held_out=""):
    made = bert_tokenizer([*map(" ".join, SENTENCES), *(text for pair in PAIRS for text in pair)], 90)
    model.saved(folder / "peer")
    made.save(str(folder / "peer/tokenizer.json"))
    text = RECIPE.replace("MODEL", layer).replace("LOSS", loss).replace("DATA", data).replace("EVAL", held_out)
    (folder / "recipe.yaml").write_text(text.replace("FOLDER", str(folder)))
    trainrun("--quiet", folder / "recipe.yaml")
    trainrun("export", folder / "run", "--format", "huggingface", "--output", folder / "trained")
    return model.kind.from_pretrained(folder / "trained").eval(), made


def write_sentences(path, sentences, tags=None):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"tokens": words} | ({"ner_tags": tags[i]} if tags else {})) + "\n" for i, words in enumerate(sentences)))
    else:
        path.write_text("\n".join("".join(f"{word}\t{tags[i][k]}\n" if tags else f"{word}\n" for k, word in enumerate(words)) for i, words in enumerate(sentences)))
    return path


@pytest.fixture(name="tagger", scope="module")
def run_of_tags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    write_sentences(folder / "train.conll", SENTENCES, TAGS)
    data = "type: TokenClassification, path: FOLDER/train.conll"
    held_out = f", eval: {{{data}, label_all_tokens: true, tokenizer: FOLDER/peer/tokenizer.json, max_length: 24}}"
    model, made = trained(folder, bert(BertForTokenClassification, num_labels=3), "type: BertForTokenClassification, num_labels: 3",
                          "{type: CrossEntropyLoss, class_dim: -1}", data, held_out)
    return folder, model, made


def tags_of(model, tokenizer, words):
    """The class of each word's first token, and its probability; None where a word has no token among the first ones."""
    tokenizer.enable_truncation(MAX_LENGTH)
    encoded = tokenizer.encode(words, is_pretokenized=True)
    with torch.no_grad():
        scores = model(torch.tensor([encoded.ids])).logits.softmax(2)[0]
    tags, probabilities = [None] * len(words), [None] * len(words)
    for token in reversed(range(len(encoded.ids))):
        if encoded.word_ids[token] is not None:
            best = scores[token].max(0)
            tags[encoded.word_ids[token]], probabilities[encoded.word_ids[token]] = ["LOC", "O", "PER"][best.indices], best.values.item()
    return tags, probabilities


def check_tags(rows, sentences, model, made):
    assert len(rows) == len(sentences)
    for row, words in zip(rows, sentences, strict=True):
        tags, probabilities = tags_of(model, made, words)
        assert row["tags"] == tags
        assert [p is None for p in row["probabilities"]] == [p is None for p in probabilities]
        assert [p for p in row["probabilities"] if p is not None] == pytest.approx([p for p in probabilities if p is not None], abs=1e-5)


@pytest.mark.parametrize("name", ["new.conll", "new.jsonl"])
def test_each_word_has_its_tag_by_name(tagger, tmp_path, name):
    folder, model, made = tagger
    trainrun("predict", folder / "run", write_sentences(tmp_path / name, NEW), "--output", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["words"] for row in rows] == NEW
    assert [row["line"] for row in rows] == ([1, 2, 3, 4] if name.endswith("jsonl") else [1, 5, 7, 13])
    check_tags(rows, NEW, model, made)
    assert rows[2]["tags"][1] is None and rows[3]["tags"][-1] is None


def test_evaluation_data_have_a_tag_for_each_word_and_labels_are_not_read(tagger, tmp_path):
    folder, model, made = tagger
    trainrun("predict", folder / "run", "--output", tmp_path / "eval.jsonl")
    check_tags([json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()], SENTENCES, model, made)
    wrong = write_sentences(tmp_path / "wrong.jsonl", SENTENCES, [["nonsense"] * len(words) for words in SENTENCES])
    found = list(csv.DictReader(io.StringIO(trainrun("predict", folder / "run", wrong))))
    check_tags([{key: json.loads(row[key]) for key in ("tags", "probabilities")} for row in found], SENTENCES, model, made)


@pytest.fixture(name="sentences", scope="module")
def run_of_vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "pairs.jsonl").write_text("".join(json.dumps({"question": a, "answer": b}) + "\n" for a, b in PAIRS))
    data = "type: SentencePairs, path: FOLDER/pairs.jsonl, columns: [question, answer]"
    return folder, *trained(folder, bert(BertModel), "type: SentenceTransformer", "MultipleNegativesRankingLoss", data)


def vectors_of(model, tokenizer, texts):
    tokenizer.enable_truncation(MAX_LENGTH)
    rows = []
    for text in texts:
        with torch.no_grad():
            rows.append(model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].mean(0))
    return torch.stack(rows)


def test_single_texts_get_their_vectors(sentences, tmp_path):
    folder, model, made = sentences
    texts = ["how old", "rain fell today, and more of it", "he"]
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n")
    expected = vectors_of(model, made, texts)
    trainrun("predict", folder / "run", tmp_path / "new.txt", "--output", tmp_path / "out.npz")
    torch.testing.assert_close(torch.tensor(np.load(tmp_path / "out.npz")["embedding"]), expected, rtol=1e-4, atol=1e-5)
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"question": text, "key": i}) + "\n" for i, text in enumerate(texts)))
    trainrun("predict", folder / "run", tmp_path / "new.jsonl", "--output", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == [0, 1, 2]
    torch.testing.assert_close(torch.tensor([row["embedding"] for row in rows]), expected, rtol=1e-4, atol=1e-5)


def test_pairs_are_told_how_much_they_are_alike(sentences, tmp_path):
    folder, model, made = sentences
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("answer", "question"), *((b, a) for a, b in PAIRS)])
    rows = list(csv.DictReader(io.StringIO(trainrun("predict", folder / "run", tmp_path / "new.csv"))))
    expected = functional.cosine_similarity(vectors_of(model, made, [a for a, _ in PAIRS]), vectors_of(model, made, [b for _, b in PAIRS]))
    assert [float(row["cosine"]) for row in rows] == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_text_without_a_letter_is_named(sentences, tmp_path):
    folder, *_ = sentences
    (tmp_path / "new.csv").write_text('question\nrain\n" "\n')
    done = subprocess.run([CALLED, "predict", folder / "run", tmp_path / "new.csv"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "new.csv:3:question: the text is empty" in done.stderr
    assert trainrun("predict", folder / "run", tmp_path / "new.csv", "--broken", "skip").count("\n") == 2
