"""`trainrun data` for texts: tokens as the model sees them, their lengths, padding, targets, and what is suspicious."""

import html
import json
import re
import subprocess

import numpy as np
import pytest

from tests.program import CALLED

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

CLASSES = """\
version: 1
name: texts
model:
  layers: [{type: Embedding, num_embeddings: 200, embedding_dim: 4}, {type: Mean, dim: 1}, {type: Linear, out_features: 2}]
loss: CrossEntropyLoss
dataset:
  train: {type: TextClassification, path: train.tsv, tokenizer: tokenizer.json, max_length: 8}
  eval: {type: TextClassification, path: eval.tsv, tokenizer: tokenizer.json, max_length: 8}
dataloader: {batch_size: 4, shuffle: false}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""

TOKENS = """\
version: 1
name: tokens
model: {layers: [{type: Embedding, num_embeddings: 100, embedding_dim: 4}, {type: Linear, out_features: 100}]}
loss: CausalLMLoss
dataset: {train: DATA}
dataloader: {batch_size: 2, shuffle: false}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""


def data_of(folder, *arguments):
    done = subprocess.run([CALLED, "data", "r.yaml", *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def warnings_of(said):
    if "warning: " not in said:
        return []
    text = said[said.index("warning: "):].split("\n\nthe samples")[0]
    return [" ".join(part.split()) for part in text.split("warning: ")[1:]]


def word_tokenizer(folder, words):
    """One token for each word, and special tokens around a text."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"unk_token": "[UNK]", "pad_token": "[PAD]"}))
    return made


@pytest.fixture(name="texts")
def folder_of_texts(tmp_path):
    word_tokenizer(tmp_path, ["a", "b", "c", "<d>"])
    (tmp_path / "train.tsv").write_text("text\tlabel\na b\tx\nb c <d> a\ty\na\tx\nc c c\ty\n" + "a b c a b c a b c\tx\nb zzz\tx\n")
    (tmp_path / "eval.tsv").write_text("text\tlabel\nb c <d> a\ty\nc a\ty\n")
    (tmp_path / "r.yaml").write_text(CLASSES)
    return tmp_path


def test_texts_with_classes(texts):
    said = " ".join(data_of(texts, "--terminal").split())
    # Lengths with [CLS] and [SEP]: 4 6 3 5, and 8 (cut) 4; batches of 4 and 2 are 6 and 8 long.
    assert "input_ids: 30 tokens, 7 different ones of 8; 25 % of the batches is padding" in said
    assert "unknown tokens: 1 " in said
    assert "tokens of a sample: 3 to 8, mean 5, median 5, 95 % have at most 8" in said
    assert "train.tsv:2:input_ids → x [CLS]|a|b|[SEP] + 2 padding \"a b\"" in said
    assert "x 4 ####" in said and "y 2 ####" in said
    assert warnings_of(data_of(texts)) == [
        "train: 1 of 6 samples have the 8 tokens in 'input_ids' that max_length allows; longer ones were cut off",
        "train: 3.33 % of the tokens in 'input_ids' are the unknown token; does this tokenizer belong to the model and to the language of the text?",
        "eval: 1 class never comes: x",
        "eval: 1 sample is also in train: eval.tsv:2:input_ids is train.tsv:3:input_ids",
    ]
    page = (texts / "texts.html").read_text()
    assert "<d>" not in page and html.escape("<d>") in page
    assert page.count('<figure class="text">') == 8 and page.count('<span class="pad">[PAD]</span>') == 10 + 2


def separate(documents):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    return lines, "{type: TextLM, path: t.jsonl, block_size: 4, documents: separate}"


def test_padding_and_targets_of_documents(tmp_path):
    lines, data = separate(["abcdef", "ba", "abc"])
    (tmp_path / "t.jsonl").write_text(lines)
    (tmp_path / "r.yaml").write_text(TOKENS.replace("DATA", data))
    said = " ".join(data_of(tmp_path, "--terminal").split())
    # Blocks: abcd, e (and f), b (and a), ab (and c).
    assert "input_ids: 8 tokens, 5 different ones of 6; 50 % of the batches is padding" in said
    assert "100 % of the tokens have a target that counts" in said
    assert "[a|b|c|d] \"abcd\"" in said and "[e] + 3 padding \"e\"" in said
    assert "class never comes" not in said


def masked(folder, labels):
    """Tokens of which only some have a target, as TensorFile has them."""
    ids = np.arange(24).reshape(4, 6) % 100
    np.savez(folder / "t.npz", input_ids=ids, attention_mask=np.ones_like(ids), labels=np.array(labels))
    (folder / "r.yaml").write_text(TOKENS.replace("DATA", "{type: TensorFile, path: t.npz, target: labels}"))


def test_samples_and_batches_without_a_target_are_told_and_training_stops_at_them(tmp_path):
    some, none = [-100, -100, 7, 8, 9, -100], [-100] * 6
    masked(tmp_path, [some, none, some, some])
    said = data_of(tmp_path, "--terminal")
    assert "50 % of the tokens have a target that counts" not in said and "37.5 % of the tokens have a target that counts" in said
    assert "0|1 [2|3|4] 5" in said  # numbers, as no tokenizer is named
    assert "train: 1 of 4 samples have no target that counts: 'labels' is -100 (ignore_index) everywhere" in warnings_of(said)
    masked(tmp_path, [some, some, none, none])
    assert "train: 1 of 2 batches have no target that counts: 'labels' is -100 (ignore_index) everywhere; training stops at them" in warnings_of(
        data_of(tmp_path, "--terminal"))
    done = subprocess.run([CALLED, "r.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and re.search(r"no target of the batch counts: 'labels' is -100 \(ignore_index\) everywhere", done.stderr + done.stdout)


def test_characters_and_much_text_stay_in_their_lines(tmp_path):
    (tmp_path / "t.txt").write_text("To be,\tor\nnot \u2014 <b>to</b> be \x1b[31m.\n" * 40)
    (tmp_path / "r.yaml").write_text(TOKENS.replace("DATA", "{type: TextLM, path: t.txt, block_size: 64}"))
    said = data_of(tmp_path, "--terminal", "--show", "3")
    assert "\x1b" not in said and r"\n|n|o|t" in said and r",|\t|o|r" in said
    assert max(map(len, said.splitlines())) <= 100
    data_of(tmp_path, "--show", "3")
    page = (tmp_path / "tokens.html").read_text()
    assert "<b>to" not in page and "\x1b" not in page and page.count('<figure class="text">') == 3


def test_packed_conversations_are_not_said_to_be_cut_off(tmp_path):
    done = subprocess.run([CALLED, "data", "recipes/lora_chat.yaml", "--output", str(tmp_path / "page.html")], capture_output=True, text=True)
    assert done.returncode == 0 and "tokens of a sample: 112 to 128" in done.stdout
    assert "max_length allows" not in done.stdout + done.stderr
