"""Texts with classes, and MRPC, against Hugging Face's tokenizers and a reader of tables written in Python."""

import csv
import gzip
import io
import json
import os
import pathlib

import pytest
import torch

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from probe import ProbeError, assert_same, missing_rows  # noqa: E402
from word_pieces import bert_tokenizer  # noqa: E402

USED = []  # what the tests below say of data sets: every parameter must be among it
ROWS = [("good", 'He said "fine", and left.', "It\twas fine."), ("bad", "Nothing, really", "nothing at all\nof it"), ("good", "ü " * 40, "x"),
        ("so-so", "", "words and words and more of the words")]


def read(probe, spec, learnt=None):
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, learnt=learnt)
    assert reply["fields"] == ["input_ids", "attention_mask", "token_type_ids", "labels"] and reply["target"] == "labels"
    return results.under("output"), reply["learnt"]


def error_of(probe, spec, learnt=None):
    with pytest.raises(ProbeError) as error:
        read(probe, spec, learnt)
    return str(error.value)


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory):
    """A small WordPiece tokenizer as BERT's, whose padding is not 0."""
    made = bert_tokenizer([text for row in ROWS for text in row[1:]], 300, ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    made.enable_padding(pad_id=3, pad_token="[PAD]")
    path = tmp_path_factory.mktemp("word_piece") / "tokenizer.json"
    made.save(str(path))
    return made, str(path)


def expected(tokenizer, texts, labels, max_length, length=None, multiple_of=None):
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"), pad_token="[PAD]", length=length, pad_to_multiple_of=multiple_of)
    encoded = tokenizer.encode_batch(texts)
    return {"input_ids": torch.tensor([e.ids for e in encoded]), "attention_mask": torch.tensor([e.attention_mask for e in encoded]),
            "token_type_ids": torch.tensor([e.type_ids for e in encoded]), "labels": torch.tensor(labels)}


def written(folder, name, content):
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return str(path)


def files(folder, rows):
    """The same rows in each form of a file."""
    table = io.StringIO(newline="")
    csv.writer(table).writerows([("label", "text", "other"), *rows])
    lines = "".join(json.dumps({"label": label, "text": first, "other": second}) + "\n" for label, first, second in rows)
    return [written(folder, "a.csv", table.getvalue()), written(folder, "a.jsonl", lines), written(folder, "a.csv.gz", table.getvalue())]


def test_pairs_of_csv_and_jsonl(probe, tmp_path, word_piece):
    tokenizer, path = word_piece
    labels = [1, 0, 1, 2]  # bad, good, so-so
    for file in files(tmp_path, ROWS):
        spec = {"type": "TextClassification", "path": file, "text_columns": ["text", "other"], "tokenizer": path, "max_length": 30,
                "padding": "max_length"}
        fields, learnt = read(probe, spec)
        assert learnt == {"classes": ["bad", "good", "so-so"]}
        assert_same(fields, expected(tokenizer, [row[1:] for row in ROWS], labels, 30, length=30), file)


def test_single_texts_of_tsv_in_which_quotation_marks_are_text(probe, tmp_path, word_piece):
    tokenizer, path = word_piece
    texts = ['"a quote', "no quote", 'in the " middle', " spaces "]
    file = written(tmp_path, "a.tsv", "\ufeffsentence\tgrade\r\n" + "".join(f"{text}\t{10 - i}\r\n" for i, text in enumerate(texts)))
    spec = {"type": "TextClassification", "path": file, "text_columns": "sentence", "label": "grade", "tokenizer": path, "max_length": 64,
            "padding": "max_length"}
    fields, learnt = read(probe, spec)
    assert learnt == {"classes": ["7", "8", "9", "10"]}  # by value
    assert_same(fields, expected(tokenizer, texts, [3, 2, 1, 0], 64, length=64), "single texts")
    fields, _ = read(probe, spec | {"classes": ["10", "9", "8", "7", "6"]})
    assert fields["labels"].tolist() == [0, 1, 2, 3]
    fields, _ = read(probe, spec | {"task": "classification"}, {"classes": ["8", "7", "10", "9"]})
    assert fields["labels"].tolist() == [2, 3, 0, 1]


def test_labels_of_jsonl_may_be_integers_and_booleans(probe, tmp_path, word_piece):
    for values, classes in (([True, False, True], ["0", "1"]), ([10, 9, 2**64 - 1], ["9", "10", str(2**64 - 1)])):
        file = written(tmp_path, "a.jsonl", "".join(json.dumps({"text": "a", "label": value}) + "\n" for value in values))
        _, learnt = read(probe, {"type": "TextClassification", "path": file, "tokenizer": word_piece[1], "max_length": 8, "padding": "max_length"})
        assert sorted(learnt["classes"]) == sorted(classes)


@pytest.mark.parametrize("multiple_of", [None, 8])
def test_batches_are_as_long_as_their_longest_text(probe, tmp_path, word_piece, multiple_of):
    """The probe asks for one batch of all samples, which is as long as max_length allows; a training run sees the others."""
    tokenizer, path = word_piece
    file = files(tmp_path, ROWS)[1]
    spec = {"type": "TextClassification", "path": file, "tokenizer": path, "max_length": 24}
    if multiple_of:
        spec["pad_to_multiple_of"] = multiple_of
    fields, _ = read(probe, spec)  # one text has 42 tokens
    assert_same(fields, expected(tokenizer, [row[1] for row in ROWS], [1, 0, 1, 2], 24), "texts")


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_files_of_other_encodings_are_the_same_texts(probe, tmp_path, word_piece, ending):
    rows = [("süße Ärzte", "süß"), ("a café", "gut"), ("none", "süß")]
    between = {"tsv": "\t", "csv": ","}.get(ending)
    lines = [between.join(row) for row in [("text", "label"), *rows]] if between else [
        json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
    spec = {"type": "TextClassification", "tokenizer": word_piece[1], "padding": "max_length", "max_length": 8}
    found = []
    for encoding in ("utf-8", "latin-1", "cp1252", "utf-16"):
        path = tmp_path / f"{encoding}.{ending}"
        path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
        found.append(read(probe, spec | {"path": str(path), "encoding": encoding}))
        assert found[-1][1] == {"classes": ["gut", "süß"]}
        assert_same(found[-1][0], found[0][0], encoding)
    said = error_of(probe, spec | {"path": str(tmp_path / f"latin-1.{ending}")})
    assert f"latin-1.{ending}:{1 if ending == 'jsonl' else 2}: byte " in said and "write encoding: latin-1" in said
    assert "encoding: is for files of text" in error_of(probe, spec | {"path": "a.parquet", "encoding": "latin-1"})


def test_what_is_wrong_with_a_table_is_said_with_its_place(probe, tmp_path, word_piece):
    spec = {"type": "TextClassification", "tokenizer": word_piece[1], "padding": "max_length", "max_length": 8}
    good = written(tmp_path, "good.tsv", "text\tlabel\na\tx\nb\ty\n")
    assert "good.tsv: has no column 'txt'; did you mean text?" in error_of(probe, spec | {"path": good, "text_columns": "txt"})
    assert "good.tsv:3:label: 'y' is not a class" in error_of(probe, spec | {"path": good}, {"classes": ["x"]})
    for damaged in [{"mean": 1}, {"classes": 1}, {"classes": ["x", 1]}, ["x", "y"]]:
        assert "it holds no classes" in error_of(probe, spec | {"path": good}, damaged)
    ragged = written(tmp_path, "ragged.tsv", "text\tlabel\na\tx\nb\ty\tz\n")
    assert "ragged.tsv:3: has 3 columns, the first line 2" in error_of(probe, spec | {"path": ragged})
    assert "empty.tsv: is empty" in error_of(probe, spec | {"path": written(tmp_path, "empty.tsv", "")})
    assert "head.tsv: has no rows" in error_of(probe, spec | {"path": written(tmp_path, "head.tsv", "text\tlabel\n")})
    assert "a.jsonl:1: has no key 'label'" in error_of(probe, spec | {"path": written(tmp_path, "a.jsonl", '{"text": "a"}\n')})
    assert "b.jsonl:1:text: expected a string, found number" in error_of(probe, spec | {"path": written(tmp_path, "b.jsonl", '{"text": 1, "label": 1}\n')})
    assert "c.jsonl:1: is nested too deeply" in error_of(probe, spec | {"path": written(tmp_path, "c.jsonl", "[" * 100_000 + "\n")})
    assert "names one column twice" in error_of(probe, spec | {"path": good, "text_columns": ["text", "text"]})
    assert "is one of text_columns" in error_of(probe, spec | {"path": good, "label": "text"})
    assert "expected one column or two" in error_of(probe, spec | {"path": good, "text_columns": []})
    assert "nowhere" in error_of(probe, spec | {"path": good, "tokenizer": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_rows_without_a_label_are_left_out(probe, tmp_path, word_piece, ending):
    """As a table from which pandas' dropna took them: None in JSON lines, an empty cell or blanks in the others."""
    tokenizer, path = word_piece
    rows = [("one", "x"), ("two", None), ("three", "y"), ("four", " " if ending != "jsonl" else None), ("five", "x")]
    between = {"csv": ",", "tsv": "\t"}.get(ending)
    lines = [between.join(("text", "label")), *(between.join((text, label or "")) for text, label in rows)] if between else [
        json.dumps({"text": text, "label": label}) for text, label in rows]
    file = written(tmp_path, f"a.{ending}", "\n".join(lines) + "\n")
    spec = {"type": "TextClassification", "path": file, "tokenizer": path, "max_length": 8, "padding": "max_length", "broken": "skip"}
    fields, learnt = read(probe, spec)
    assert learnt == {"classes": ["x", "y"]}
    assert_same(fields, expected(tokenizer, ["one", "three", "five"], [0, 1, 0], 8, length=8), ending)
    said = error_of(probe, spec | {"broken": "error"})
    assert f"a.{ending}:{3 if between else 2}:label: the label is missing; write broken: skip to leave such rows out" in said


@pytest.fixture(name="root")
def mrpc():
    path = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "mrpc"
    if not path.is_dir():
        pytest.skip("no data: there is no mrpc in TRAINRUN_DATA")
    return path


def test_mrpc_is_read_as_published(probe, tmp_path, word_piece, root):
    tokenizer, path = word_piece
    for split, count, positive in (("train", 4076, 2753), ("test", 1725, 1147)):
        lines = (root / f"msr_paraphrase_{split}.txt").read_text("utf-8-sig").splitlines()[1:]
        rows = [line.split("\t") for line in lines]
        spec = {"type": "MRPC", "root": str(root), "split": split, "tokenizer": path, "max_length": 96, "padding": "max_length"}
        fields, learnt = read(probe, spec)
        assert learnt == {"classes": ["0", "1"]} and len(fields["labels"]) == count and int(fields["labels"].sum()) == positive
        assert_same(fields, expected(tokenizer, [(row[3], row[4]) for row in rows], [int(row[0]) for row in rows], 96, length=96), split)
    head = "\n".join((root / "msr_paraphrase_test.txt").read_text("utf-8-sig").splitlines()[:9])
    written(tmp_path, "msr_paraphrase_test.txt", head)
    spec = {"type": "MRPC", "root": str(tmp_path), "split": "test", "tokenizer": path}
    assert "msr_paraphrase_test.txt: has 8 rows, the published file 1725" in error_of(probe, spec)


@pytest.mark.usefixtures("root")  # without which MRPC is not tested
def test_every_parameter_has_a_test(probe):
    known = probe.ask("catalog")["dataset"]
    common = {"MRPC.pad_to_multiple_of", "MRPC.cache", "TextClassification.cache"}  # one description serves both; token_cache_parity_test.py
    assert missing_rows({name: known[name] for name in ("TextClassification", "MRPC")}, USED, ignored=common) == []
