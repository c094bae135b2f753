"""Texts, conversations and pairs of answers in Parquet and Arrow files: the same tokens as from .jsonl, .csv and .tsv."""

import csv
import json
import os
import pathlib
import subprocess

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

import pyarrow.feather  # noqa: E402
import pyarrow.ipc  # noqa: E402
import pyarrow.parquet  # noqa: E402

from chat_templates import CHATML, LLAMA_3_1, said  # noqa: E402
from probe import ProbeError, assert_same  # noqa: E402
from reference import training_losses  # noqa: E402
from tests.program import CALLED  # noqa: E402
from word_pieces import BERT_MARKS, bert_tokenizer  # noqa: E402

TEXTS = ["a fine day", "", "it rained,\nagain", 'he said "no"', "Zürich 日本 😀", "words and words\tand more words", " spaces ", "day after day"]
OTHERS = ["what weather", "rain", "", "he refused", "a city", "x", "y z", "weeks"]
LABELS = ["good", "bad", "bad", "so-so", "good", "good", "bad", "so-so"]


@pytest.fixture(scope="module", name="tokenizer")
def word_piece(tmp_path_factory):
    """The folder of a small WordPiece tokenizer."""
    made = bert_tokenizer(TEXTS + OTHERS, 200, [*BERT_MARKS, "<|im_start|>", "<|im_end|>"])
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]", "eos_token": "[SEP]", "bos_token": "[CLS]"}))
    return str(folder)


def read(probe, **spec):
    reply, results = probe.ask("dataset", spec=spec)
    return results.under("output"), reply["learnt"]


def error_of(probe, **spec):
    with pytest.raises(ProbeError) as error:
        read(probe, **spec)
    return str(error.value)


def write_stream(rows, path):
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=3)


def files_of(folder, rows, name="rows"):
    """The rows in each form of a file, as the recipe names them."""
    pyarrow.parquet.write_table(rows, folder / f"{name}.parquet", row_group_size=3, compression="zstd")
    pyarrow.feather.write_feather(rows, folder / f"{name}.feather")
    write_stream(rows, folder / f"{name}.arrow")  # as Hugging Face's datasets keep them
    return [str(folder / f"{name}.{ending}") for ending in ("parquet", "feather", "arrow")]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


# --- texts with classes


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())], ids=str)
def test_texts_with_classes_are_those_of_csv(probe, tmp_path, tokenizer, kind):
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows([("label", "text", "other"), *zip(LABELS, TEXTS, OTHERS, strict=True)])
    rows = pyarrow.table({"more": [[1]] * 8, "text": pyarrow.array(TEXTS, kind), "label": pyarrow.array(LABELS, kind), "other": OTHERS})
    common = {"type": "TextClassification", "tokenizer": tokenizer, "text_columns": ["text", "other"], "max_length": 20, "padding": "max_length"}
    expected, learnt = read(probe, path=str(tmp_path / "t.csv"), **common)
    assert learnt == {"classes": ["bad", "good", "so-so"]}
    for path in files_of(tmp_path, rows):
        fields, own = read(probe, path=path, **common)
        assert_same(fields, expected, path)
        assert own == learnt
    for numbers in (pyarrow.array([LABELS.index(label) for label in LABELS], pyarrow.uint8()), pyarrow.array([label == "good" for label in LABELS])):
        pyarrow.parquet.write_table(rows.drop_columns("label").append_column("label", numbers), tmp_path / "n.parquet")
        fields, own = read(probe, path=str(tmp_path / "n.parquet"), **common)
        assert own == {"classes": sorted({str(int(n)) for n in numbers.to_pylist()})}
        assert fields["labels"].tolist() == [own["classes"].index(str(int(n))) for n in numbers.to_pylist()]


def test_mrpc_as_parquet_gives_the_same_tokens(probe, tmp_path, tokenizer):
    root = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "mrpc"
    if not root.is_dir():
        pytest.skip("no data: there is no mrpc in TRAINRUN_DATA")
    lines = [line.split("\t") for line in (root / "msr_paraphrase_train.txt").read_text("utf-8-sig").splitlines()]
    rows = pyarrow.table({name: [line[i] for line in lines[1:]] for i, name in enumerate(lines[0])})
    pyarrow.parquet.write_table(rows, tmp_path / "mrpc.parquet", row_group_size=1000)
    common = {"tokenizer": tokenizer, "max_length": 96}
    expected, _ = read(probe, type="MRPC", root=str(root), split="train", **common)
    fields, _ = read(probe, type="TextClassification", path=str(tmp_path / "mrpc.parquet"), text_columns=["#1 String", "#2 String"], label="Quality", **common)
    assert len(expected["labels"]) == 4076
    assert_same(fields, expected, "mrpc")


def test_what_is_wrong_with_texts_is_said_with_its_place(probe, tmp_path, tokenizer):
    path = tmp_path / "t.parquet"
    spec = {"type": "TextClassification", "tokenizer": tokenizer, "path": str(path)}
    good = {"text": ["a", "b", "c"], "label": ["x", "y", "x"]}
    pyarrow.parquet.write_table(pyarrow.table(good), path)
    assert f"{path}: has no column 'txt'; did you mean text?" in error_of(probe, **spec | {"text_columns": "txt"})
    assert f"{path}:2:label: 'y' is not a class" in error_of(probe, **spec | {"classes": ["x", "z"]})
    for column, values, message in [("text", ["a", None, "c"], "2:text: the value is missing, expected a string"), ("text", [1, 2, 3], "1:text: expected a string, found a number"),
                                    ("text", [["a"], [], []], "1:text: expected a string, found a list"), ("text", [True] * 3, "1:text: expected a string, found a boolean"),
                                    ("label", ["x", "y", None], "3:label: the label is missing"), ("label", [0.5] * 3, "1:label: '0.5' is a fraction"),
                                    ("text", [{"a": 1}] * 3, "text: holds values of the type struct<a: int64>"), ("text", [b"a"] * 3, "text: holds values of the type binary")]:
        pyarrow.parquet.write_table(pyarrow.table(good | {column: values}), path)
        assert f"{path}:{message}" in error_of(probe, **spec)
    pyarrow.parquet.write_table(pyarrow.table(good)[:0], path)
    assert f"{path}: has no rows" in error_of(probe, **spec)
    path.write_bytes(b"text\tlabel\na\tx\n")
    assert f"{path}: is neither a Parquet nor an Arrow file" in error_of(probe, **spec)


# --- corpora


def test_documents_are_those_of_jsonl(probe, tmp_path, tokenizer):
    texts = [text for text in TEXTS if text]
    lines = [write_lines(tmp_path / f"{i}.jsonl", [{"body": text} for text in part]) for i, part in enumerate((texts[:4], texts[4:]))]
    rows = [pyarrow.table({"id": range(len(part)), "body": part}) for part in (texts[:4], texts[4:])]
    files = [files_of(tmp_path, part, f"part{i}") for i, part in enumerate(rows)]
    for own in ({}, {"documents": "separate"}, {"split": "train", "val_fraction": 0.3}, {"split": "val", "val_fraction": 0.3},
                {"tokenizer": tokenizer, "end_of_document": "[SEP]"}, {"tokenizer": tokenizer, "cache": "disk"}):
        spec = {"type": "TextLM", "text_column": "body", "block_size": 4} | own
        expected = read(probe, path=lines, **spec)
        for paths in ([files[0][i], files[1][i]] for i in range(3)):
            fields, learnt = read(probe, path=paths, **spec)
            assert_same(fields, expected[0], str(own))
            assert learnt == expected[1]
        assert_same(read(probe, path=[files[0][0], lines[1]], **spec)[0], expected[0], "kinds of documents together")
    spec = {"type": "TextLM", "block_size": 4}
    assert "has no column 'text'; known: id, body" in error_of(probe, path=files[0][0], **spec)
    assert "part0.parquet:1:id: expected a string, found a number" in error_of(probe, path=files[0][0], text_column="id", **spec)
    (tmp_path / "t.txt").write_text("text")
    assert "some files are .jsonl or .parquet and others are not" in error_of(probe, path=[files[0][0], str(tmp_path / "t.txt")], **spec)


def test_a_language_model_trains_on_parquet_as_on_jsonl(tmp_path):
    texts = [f"{text} {other}" for text in TEXTS for other in OTHERS]
    (tmp_path / "r.yaml").write_text("""
version: 1
seed: 1
model: {layers: [{type: Embedding, num_embeddings: 64, embedding_dim: 8}, {type: Linear, out_features: 64}, {type: Permute, dims: [0, 2, 1]}]}
loss: CrossEntropyLoss
dataset: {train: {type: TextLM, path: PATH, block_size: 16}}
dataloader: {batch_size: 8}
optimizer: {type: AdamW, lr: 0.01}
training: {max_steps: 12}
""")
    recipe = (tmp_path / "r.yaml").read_text()
    losses = []
    for path in [write_lines(tmp_path / "t.jsonl", [{"text": text} for text in texts]), *files_of(tmp_path, pyarrow.table({"text": texts}))]:
        (tmp_path / "r.yaml").write_text(recipe.replace("PATH", path))
        losses.append(training_losses(str(tmp_path / "r.yaml"), tmp_path / pathlib.Path(path).suffix[1:]))
    assert len(set(losses[0])) == 12 and all(each == losses[0] for each in losses)


def run(folder, *arguments):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_tokenizer_is_trained_on_rows_as_on_lines(tmp_path):
    texts = TEXTS * 3
    lines = write_lines(tmp_path / "t.jsonl", [{"text": text} for text in texts])
    [path, *_] = files_of(tmp_path, pyarrow.table({"text": texts}))
    made = []
    for file in (lines, path):
        run(tmp_path, "tokenizer", "train", file, "--vocab-size", "280", "--output", f"{pathlib.Path(file).suffix[1:]}.json")
        made.append((tmp_path / f"{pathlib.Path(file).suffix[1:]}.json").read_text())
    assert made[0] == made[1] and len(json.loads(made[0])["model"]["merges"]) > 10


def test_texts_are_predicted_and_looked_at(tmp_path, tokenizer):
    rows = pyarrow.table({"text": TEXTS, "label": LABELS})
    [path, *_] = files_of(tmp_path, rows)
    (tmp_path / "r.yaml").write_text(f"""
version: 1
model: {{layers: [{{type: Embedding, num_embeddings: 200, embedding_dim: 8, inputs: input_ids}}, {{type: Flatten}}, {{type: Linear, out_features: 3}}]}}
loss: CrossEntropyLoss
dataset: {{train: {{type: TextClassification, path: {path}, tokenizer: {tokenizer}, max_length: 12, padding: max_length}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: AdamW, lr: 0.01}}
training: {{max_steps: 5}}
output_dir: run
""")
    run(tmp_path, "--quiet", "r.yaml")
    with open(tmp_path / "more.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text in TEXTS)])
    own, expected = ([json.loads(line) for line in run(tmp_path, "predict", "run", file, "--format", "jsonl").splitlines()] for file in (path, "more.csv"))
    assert [row["row"] for row in own] == list(range(1, 9))
    assert [row["probabilities"] for row in own] == [row["probabilities"] for row in expected]
    assert "so-so" in run(tmp_path, "data", "r.yaml", "--terminal")


# --- conversations

LONG = "words and more " * 60  # a sample that is cut off at max_length, so that all batches are as long
CHATS = [said("a fine day", "what weather", "rain", "it rained"), said("day", "Zürich 日本", system="words"), said("x", LONG)]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "", "parameters": {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "enum": ["Oslo", "Zürich"]}, "days": {"type": "integer", "default": 1}, "exact": {"type": "boolean", "default": False}}}}}
CALLED_TOOL = [{"role": "user", "content": "weather"}, {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": True, "scale": 0.5}}}]},
    {"role": "tool", "content": "12"}, {"role": "assistant", "content": "rain"}]
ALPACA = [{"instruction": "a fine", "input": "day", "output": "it rained"}, {"instruction": "day", "input": None, "output": "weeks", "system": "words"},
          {"instruction": "x", "output": LONG}]


def as_share_gpt(chat):
    return [{"from": {"user": "human", "assistant": "gpt"}.get(message["role"], message["role"]), "value": message["content"]} for message in chat]


@pytest.mark.parametrize("rows, template", [
    ([{"messages": chat} for chat in CHATS], CHATML),
    ([{"messages": CHATS[0], "tools": [TOOL]}, {"messages": CALLED_TOOL, "tools": [TOOL]}, {"messages": CHATS[2]}], LLAMA_3_1),
    ([{"messages": [message | ({"weight": int(i < 3)} if message["role"] == "assistant" else {}) for i, message in enumerate(chat)]} for chat in CHATS], CHATML),
    ([{"conversations": as_share_gpt(chat)} for chat in CHATS], CHATML),
    ([{"prompt": CHATS[0][:3], "completion": CHATS[0][3:]}, {"prompt": CHATS[2][:1], "completion": CHATS[2][1:]}], CHATML),
    ([{"prompt": "a fine", "completion": " day"}, {"prompt": "it", "completion": LONG}], None),
    (ALPACA, CHATML),
], ids=["messages", "tools", "weights", "share_gpt", "prompts", "plain", "alpaca"])
def test_conversations_are_those_of_jsonl(probe, tmp_path, tokenizer, rows, template):
    spec = {"type": "Chat", "tokenizer": tokenizer, "max_length": 120} | ({"template": template} if template else {})
    if template == LLAMA_3_1:
        spec["train_on"] = "all"
    expected, _ = read(probe, path=write_lines(tmp_path / "t.jsonl", rows), **spec)
    assert (expected["labels"] >= 0).sum() > 3
    odd = [{"id": i, "picture": b"\xff", "scores": {"a": 1.0}} for i in range(len(rows))]  # other columns, of whatever type, are not read
    for path in files_of(tmp_path, pyarrow.Table.from_pylist([row | more for row, more in zip(rows, odd, strict=True)],
                                                             schema=None if rows is not ALPACA else pyarrow.schema(
                                                                 [(name, pyarrow.string()) for name in ("instruction", "input", "output", "system")]))):
        fields, _ = read(probe, path=path, **spec)
        assert_same(fields, expected, path)


@pytest.mark.parametrize("row, message", [
    ({"text": "a"}, "has none of the columns of conversations: messages, or conversations, or prompt and completion, or instruction and output; it has text"),
    ({"messages": "a"}, "1:messages: expected a list, found string"),
    ({"messages": [3]}, "1:messages[0]: expected an object, found number"),
    ({"messages": [{"content": "a"}]}, "1:messages[0]: has no key 'role'"),
    ({"messages": [{"role": "user", "content": 3}]}, "1:messages[0]: content: expected a string or a list of parts"),
    ({"messages": [{"role": "user", "content": None}]}, "1:messages[0]: has no key 'content'"),
    ({"messages": None, "prompt": "a"}, "1: expected the keys messages, or conversations"),
    ({"messages": [{"role": "user", "content": b"a"}]}, "messages: holds values of the type list<element: struct<"),
    ({"messages": [{"role": "user", "content": "a"}]}, "1: there is no answer of the assistant to be learnt"),
])
def test_a_row_that_is_no_conversation_is_named(probe, tmp_path, tokenizer, row, message):
    path = tmp_path / "chats.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    found = error_of(probe, type="Chat", path=str(path), tokenizer=tokenizer, template=CHATML)
    assert f"{path}: {message}" in found or f"{path}:{message}" in found


def test_pairs_of_answers_are_those_of_jsonl(probe, tmp_path, tokenizer):
    rows = [{"prompt": f"a fine {text}", "chosen": text or "day", "rejected": other or "x"} for text, other in zip(TEXTS, OTHERS, strict=True)]
    rows[-1] |= {"chosen": LONG, "rejected": LONG}
    spec = {"type": "PreferencePairs", "tokenizer": tokenizer, "max_length": 20}
    expected, _ = read(probe, path=write_lines(tmp_path / "t.jsonl", rows), **spec)
    for path in files_of(tmp_path, pyarrow.Table.from_pylist([{"id": 1} | row for row in rows])):
        assert_same(read(probe, path=path, **spec)[0], expected, path)
    path = tmp_path / "bad.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([rows[0], rows[1] | {"rejected": None}]), path)
    assert f"{path}:2: has no key 'rejected'" in error_of(probe, path=str(path), **spec)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"prompt": "a", "chosen": "b"}]), path)
    assert f"{path}:1: has no key 'rejected'" in error_of(probe, path=str(path), **spec)
