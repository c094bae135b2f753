"""Text for language models: TextLM and TokenFile against nanoGPT's preparation of data, written again in Python."""

import functools
import gzip
import http.server
import json
import os
import pathlib
import threading

import numpy as np
import pytest
import torch

from draws import Draws
from probe import Probe, ProbeError, assert_same, missing_rows

USED = []  # what the tests below say of data sets: every parameter must be among it
TEXT = "To be, or not to be: that is the question.\nWhether 'tis nobler — in the mind — to suffer\n" * 4


def read(probe, learnt=None, **spec):
    """All samples of a data set, and what it has learnt."""
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, learnt=learnt)
    assert reply["fields"] == ["input_ids", "labels"] and reply["target"] == "labels"
    return results.under("output"), reply["learnt"]


def error_of(probe, learnt=None, **spec):
    with pytest.raises(ProbeError) as error:
        read(probe, learnt, **spec)
    return str(error.value)


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def blocks(tokens, length):
    """Consecutive blocks, each with the tokens that come next."""
    count = (len(tokens) - 1) // length
    tokens = torch.tensor(tokens)
    return {"input_ids": tokens[: count * length].view(count, length), "labels": tokens[1: count * length + 1].view(count, length)}


def padded(documents, length):
    """The same of documents of which each begins a block, with labels of -100 behind their ends."""
    rows = {"input_ids": [], "labels": []}
    for tokens in documents:
        for begin in range(0, len(tokens) - 1, length):
            piece = tokens[begin: begin + length + 1]
            room = length - len(piece) + 1
            rows["input_ids"].append(piece[:-1] + [0] * room)
            rows["labels"].append(piece[1:] + [-100] * room)
    return {name: torch.tensor(value) for name, value in rows.items()}


@pytest.fixture
def shakespeare():
    path = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "tinyshakespeare" / "input.txt"
    if not path.is_file():
        pytest.skip("no data: there is no tinyshakespeare in TRAINRUN_DATA")
    return str(path)


def test_characters_of_shakespeare_are_nano_gpts(probe, shakespeare):
    text = pathlib.Path(shakespeare).read_text()
    numbers = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = [numbers[c] for c in text]
    boundary = int(len(text) * 0.9)

    train, learnt = read(probe, type="TextLM", path=shakespeare, split="train", block_size=64, tokenizer="characters")
    val, _ = read(probe, learnt, type="TextLM", path=shakespeare, split="val", block_size=64)

    assert learnt == {"characters": "".join(numbers)} and len(numbers) == 65
    assert_same(train, blocks(ids[:boundary], 64), "train")
    assert_same(val, blocks(ids[boundary:], 64), "val")


def test_tiny_shakespeare_is_the_same_text_by_its_name(probe, shakespeare, tmp_path):
    root = str(pathlib.Path(shakespeare).parent)
    for options in [{"tokenizer": "characters"}, {"sampling": "random", "num_samples": 7}]:
        named, learnt = read(probe, type="TinyShakespeare", root=root, split="train", block_size=64, **options)
        plain, expected = read(probe, type="TextLM", path=shakespeare, split="train", block_size=64, **options)
        assert learnt == expected
        assert_same(named, plain, "train")
    val, _ = read(probe, learnt, type="TinyShakespeare", root=root, split="val", block_size=64)
    assert_same(val, read(probe, learnt, type="TextLM", path=shakespeare, split="val", block_size=64)[0], "val")


def test_tiny_shakespeare_is_fetched_and_checked(shakespeare, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    own = Probe(tmp_path)
    spec = {"type": "TinyShakespeare", "split": "val", "block_size": 64}
    learnt = {"characters": "".join(sorted(set(pathlib.Path(shakespeare).read_text())))}
    missing = error_of(own, learnt, **spec, root=str(tmp_path / "a"))
    assert "a/input.txt is not there. Set `root` to the folder that holds it, or `download: true` to fetch it." in missing
    served = tmp_path / "served"
    served.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=served)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = {"download": True, "mirrors": [f"http://127.0.0.1:{server.server_address[1]}/"]}
        (served / "input.txt").write_text("another text")
        assert "the server did not send the published input.txt" in error_of(own, learnt, **spec, **mirror, root=str(tmp_path / "a"))
        (served / "input.txt").write_bytes(pathlib.Path(shakespeare).read_bytes())
        fetched, _ = read(own, learnt, **spec, **mirror, root=str(tmp_path / "a"))
        server.shutdown()
    assert_same(fetched, read(own, learnt, **spec, root=str(pathlib.Path(shakespeare).parent))[0], "fetched")
    own.close()


def test_a_split_is_by_characters_not_bytes(probe, tmp_path):
    path = written(tmp_path, "a.txt", TEXT)
    for fraction in (0.1, 0.37):
        boundary = int(len(TEXT) * (1 - fraction))
        numbers = {c: i for i, c in enumerate(sorted(set(TEXT[:boundary])))}
        train, learnt = read(probe, type="TextLM", path=path, split="train", val_fraction=fraction, block_size=5)
        val, _ = read(probe, learnt, type="TextLM", path=path, split="val", val_fraction=fraction, block_size=5)
        assert_same(train, blocks([numbers[c] for c in TEXT[:boundary]], 5), "train")
        assert_same(val, blocks([numbers[c] for c in TEXT[boundary:]], 5), "val")


def test_random_windows_are_a_function_of_seed_epoch_and_number(probe, tmp_path):
    path = written(tmp_path, "a.txt", TEXT)
    characters = sorted(set(TEXT))
    ids = torch.tensor([characters.index(c) for c in TEXT])
    fields, _ = read(probe, type="TextLM", path=path, block_size=7, sampling="random", num_samples=200)
    draws = Draws(0)  # as where none are given; those of a run are compared in language_model_parity_test.py
    begins = [draws.of(number).integer(len(ids) - 7) for number in range(200)]
    assert len(set(begins)) > 100
    assert_same(fields, {"input_ids": torch.stack([ids[i:i + 7] for i in begins]),
                         "labels": torch.stack([ids[i + 1:i + 8] for i in begins])}, "windows")
    whole, _ = read(probe, type="TextLM", path=path, block_size=7, sampling="random")
    assert len(whole["labels"]) == (len(ids) - 1) // 7


DOCUMENTS = ["first", "a", "the second one is longer", "émile"]


@pytest.mark.parametrize("packed", [False, True])
def test_documents_of_jsonl_joined_and_separate(probe, tmp_path, packed):
    lines = "".join(json.dumps({"id": i, "body": text}, ensure_ascii=i % 2 == 0) + "\r\n\n" for i, text in enumerate(DOCUMENTS))
    path = written(tmp_path, "a.jsonl.gz" if packed else "a.jsonl", gzip.compress(lines.encode()) if packed else lines)
    spec = {"type": "TextLM", "path": path, "text_column": "body", "block_size": 6}
    for end in ("", "|"):
        ended = [text + end for text in DOCUMENTS]
        characters = sorted(set("".join(ended)))
        ids = [[characters.index(c) for c in text] for text in ended]
        own = spec | ({"end_of_document": end} if end else {})
        assert_same(read(probe, **own)[0], blocks(sum(ids, []), 6), "joined")
        assert_same(read(probe, **own, documents="separate")[0], padded(ids, 6), "separate")
    train = read(probe, **spec, split="train", val_fraction=0.25, documents="separate")[1]
    assert train == {"characters": "".join(sorted(set("".join(DOCUMENTS[:3]))))}


def test_files_follow_each_other(probe, tmp_path):
    paths = [written(tmp_path, f"{i}.txt", text) for i, text in enumerate(("abc", "", "cab\r\n"))]
    fields, learnt = read(probe, type="TextLM", path=paths, block_size=2)
    assert learnt == {"characters": "\n\rabc"}
    assert_same(fields, blocks([2, 3, 4, 4, 2, 3, 1, 0], 2), "files")
    for pattern in ("*.txt", "{0..2}.txt", "[0-2].txt"):
        assert_same(read(probe, type="TextLM", path=str(tmp_path / pattern), block_size=2)[0], fields, pattern)
    assert f"TextLM: there is no file {tmp_path}/*.text" in error_of(probe, type="TextLM", path=str(tmp_path / "*.text"), block_size=2)
    for name in ("[0-2].txt", "{0..2}.txt"):  # is a file as it stands
        assert len(read(probe, type="TextLM", path=written(tmp_path, name, "ab"), block_size=1)[0]["labels"]) == 1


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_token_files_of_nano_gpt(probe, tmp_path, dtype):
    tokens = np.random.default_rng(0).integers(0, 2**16 if dtype == "uint16" else 2**31, 1001)
    path = str(tmp_path / "train.bin")
    tokens.astype(dtype).tofile(path)
    own = {} if dtype == "uint16" else {"dtype": dtype}
    fields, learnt = read(probe, type="TokenFile", path=path, block_size=10, **own)
    assert learnt is None
    assert_same(fields, blocks(tokens.tolist(), 10), "tokens")
    random, _ = read(probe, type="TokenFile", path=path, block_size=10, sampling="random", num_samples=5, **own)
    draws = Draws(0)
    for number, row in enumerate(random["labels"].tolist()):
        begin = draws.of(number).integer(len(tokens) - 10)
        assert row == tokens[begin + 1: begin + 11].tolist()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-be"])
def test_text_of_another_encoding_is_what_python_decodes(probe, tmp_path, encoding):
    text = "Il était une fois, à l'œuvre\n" * 3 if encoding == "cp1252" else "Ein Ärgernis: süß\n" * 3
    lines = "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in text.splitlines())
    for name, content, whole in (("a.txt", text, text), ("a.jsonl", lines, text.replace("\n", ""))):
        path = written(tmp_path, name, content.encode(encoding))
        fields, learnt = read(probe, type="TextLM", path=path, encoding=encoding, block_size=5)
        characters = sorted(set(whole))
        assert learnt == {"characters": "".join(characters)}
        assert_same(fields, blocks([characters.index(c) for c in whole], 5), name)
    marked = written(tmp_path, "b.txt", b"\xef\xbb\xbfabcdef")
    assert read(probe, type="TextLM", path=marked, block_size=5)[1] == {"characters": "abcdef"}  # without the mark
    assert "is for files of text" in error_of(probe, type="TextLM", path="a.parquet", encoding=encoding, block_size=5)


def test_damaged_and_missing_text_is_refused_with_its_place(probe, tmp_path):
    text = {"type": "TextLM", "block_size": 4}
    latin = written(tmp_path, "latin.txt", "caf\xe9 au lait".encode("latin-1"))
    assert "latin.txt:1: byte 4 of the line, 0xE9 at offset 3 of the text, is not UTF-8; write encoding: latin-1" in error_of(probe, **text, path=latin)
    for name, content in (("surrogate", b"ab\xed\xa0\x80"), ("long", b"ab\xc0\x80"), ("beyond", b"ab\xf4\x90\x80\x80"), ("cut", b"ab\xe2\x80")):
        assert f"{name}.txt:1: byte 3 of the line" in error_of(probe, **text, path=written(tmp_path, f"{name}.txt", content))
    short = written(tmp_path, "short.txt", "abcd")
    assert "there are 4 tokens, and a block of 4 and its last label need 5" in error_of(probe, **text, path=short)
    assert "there is no text" in error_of(probe, **text, path=written(tmp_path, "none.jsonl", "\n\n"))
    assert "nothing.txt: cannot" in error_of(probe, **text, path=str(tmp_path / "nothing.txt"))
    other = written(tmp_path, "other.txt", "abcdefz")
    assert "the character 'z' (U+007A) does not occur in the training text" in error_of(probe, {"characters": "abcdef"}, **text, path=other)
    assert "it holds no characters" in error_of(probe, {"mean": 1}, **text, path=other)
    lines = {"a": '{"text": 1}', "b": "[]", "c": '{"txt": "x"}', "d": '{"text": "x"', "e": '{"text": "\xff"}'}
    for name, line in lines.items():
        path = written(tmp_path, f"{name}.jsonl", b'{"text": "fine"}\n' + line.encode("latin-1"))
        assert f"{name}.jsonl:2" in error_of(probe, **text, path=path)
    assert "some files are .jsonl or .parquet and others are not" in error_of(probe, **text, path=[short, str(tmp_path / "a.jsonl")])
    single = written(tmp_path, "single.jsonl", '{"text": "x"}\n{"text": ""}\n')
    assert "no document has two tokens" in error_of(probe, **text, path=single, documents="separate")


def test_damaged_token_files_are_refused(probe, tmp_path):
    odd = written(tmp_path, "odd.bin", b"\0" * 33)
    assert "its 33 bytes are not a multiple of the 2 bytes of a token" in error_of(probe, type="TokenFile", path=odd, block_size=4)
    few = written(tmp_path, "few.bin", b"\0" * 8)
    assert "there are 4 tokens" in error_of(probe, type="TokenFile", path=few, block_size=4)
    assert "there are 0 tokens" in error_of(probe, type="TokenFile", path=written(tmp_path, "no.bin", b""), block_size=4)
    assert "expected a file, found a folder" in error_of(probe, type="TokenFile", path=str(tmp_path), block_size=4)


def test_rules_between_parameters_are_said(probe, tmp_path):
    text = {"type": "TextLM", "path": written(tmp_path, "a.txt", TEXT), "block_size": 4}
    assert "num_samples" in error_of(probe, **text, num_samples=3)
    assert "must be blocks with documents: separate" in error_of(probe, **text, documents="separate", sampling="random")
    assert "at least one file" in error_of(probe, **text | {"path": []})


@pytest.mark.usefixtures("shakespeare")  # without which TinyShakespeare is not tested
def test_every_parameter_has_a_test(probe):
    known = probe.ask("catalog")["dataset"]
    assert missing_rows({name: known[name] for name in ("TextLM", "TokenFile", "TinyShakespeare")}, USED,
                        ignored={"TextLM.cache", "TinyShakespeare.cache"}) == []  # in token_cache_parity_test.py
