"""Tokens that are kept in the cache folder (`cache: disk`): the same data, from a file that damage, other files and other processes cannot spoil."""

import gzip
import json
import pathlib
import subprocess
import threading

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from probe import Probe, ProbeError, assert_same  # noqa: E402
from reference import training_losses  # noqa: E402
from tests.program import CALLED  # noqa: E402

DOCUMENTS = ["the first of all", "a", "", "the second one is longer than the first: \u00e9mile \u4e2d\u6587", "last"] * 7


def bpe(folder, size):
    """A byte-level BPE tokenizer."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(DOCUMENTS, tokenizers.trainers.BpeTrainer(vocab_size=size, special_tokens=["<end>"], show_progress=False,
                                                                       initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.fixture(name="data")
def files_and_cache(tmp_path, monkeypatch):
    """(probe, spec of a corpus, spec of texts with classes)"""
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    tokenizer = bpe(tmp_path / "tokenizer", 300)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{i % 3}\n" for i, text in enumerate(DOCUMENTS) if text))
    corpus = {"type": "TextLM", "path": str(tmp_path / "c.jsonl.gz"), "tokenizer": tokenizer, "block_size": 6, "end_of_document": "<end>", "cache": "disk"}
    texts = {"type": "TextClassification", "path": str(tmp_path / "c.tsv"), "tokenizer": tokenizer, "max_length": 12, "padding": "max_length", "cache": "disk"}
    probe = Probe(tmp_path)
    yield probe, corpus, texts
    probe.close()


def read(probe, spec):
    return probe.ask("dataset", spec=spec)[1].under("output")


def error_of(probe, spec):
    with pytest.raises(ProbeError) as error:
        read(probe, spec)
    return str(error.value)


def kept(folder):
    """The files of tokens."""
    return sorted(path for path in (folder / "cache/tokens").glob("*") if not path.name.endswith(".lock"))


@pytest.mark.parametrize("more", [{}, {"documents": "separate"}, {"split": "train", "val_fraction": 0.3}, {"split": "val", "val_fraction": 0.3}], ids=str)
def test_a_kept_corpus_is_the_corpus(data, tmp_path, more):
    probe, corpus, _ = data
    expected = read(probe, corpus | more | {"cache": "none"})
    assert not (tmp_path / "cache").exists()
    assert_same(read(probe, corpus | more), expected, "made")
    [file] = kept(tmp_path)
    before = file.stat()
    assert_same(read(probe, corpus | more), expected, "from the file")
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert_same(read(probe, corpus | more | {"block_size": 9}), read(probe, corpus | more | {"block_size": 9, "cache": "none"}), "other blocks")
    assert kept(tmp_path) == [file]


def test_kept_texts_with_classes_are_the_texts(data, tmp_path):
    probe, _, texts = data
    expected = read(probe, texts | {"cache": "none"})
    for _ in range(2):
        assert_same(read(probe, texts), expected, "texts")
    assert len(kept(tmp_path)) == 1
    read(probe, texts | {"max_length": 13})
    assert len(kept(tmp_path)) == 2


def test_wide_tokens(data, tmp_path):
    """Ids above 65,535 take four bytes."""
    probe, corpus, _ = data
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 70000, "first": 1, "[UNK]": 70001}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "wide.json"))
    spec = corpus | {"tokenizer": str(tmp_path / "wide.json"), "end_of_document": None}
    expected = read(probe, spec | {"cache": "none"})
    assert expected["input_ids"].max() == 70001
    for _ in range(2):
        assert_same(read(probe, spec), expected, "wide")


def test_what_the_tokens_depend_on_has_a_file_of_its_own(data, tmp_path):
    probe, corpus, _ = data
    read(probe, corpus)
    other = bpe(tmp_path / "other", 290)
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "another text of some length"}\n'))
    changes = [{"tokenizer": other}, {"path": str(tmp_path / "d.jsonl.gz")}, {"end_of_document": None}, {"split": "train"}, {"split": "train", "val_fraction": 0.5},
               {"path": [corpus["path"], str(tmp_path / "d.jsonl.gz")]}]
    for count, change in enumerate(changes, 2):
        assert_same(read(probe, corpus | change), read(probe, corpus | change | {"cache": "none"}), str(change))
        assert len(kept(tmp_path)) == count, change
    (tmp_path / "e.jsonl.gz").write_bytes(pathlib.Path(corpus["path"]).read_bytes())  # the same content elsewhere
    read(probe, corpus | {"path": str(tmp_path / "e.jsonl.gz")})
    assert len(kept(tmp_path)) == count
    pathlib.Path(corpus["path"]).write_bytes(gzip.compress(b'{"text": "the same name, but changed since then"}\n'))
    assert_same(read(probe, corpus), read(probe, corpus | {"cache": "none"}), "changed")
    bpe(tmp_path / "tokenizer", 280)
    assert_same(read(probe, corpus), read(probe, corpus | {"cache": "none"}), "another tokenizer under the same name")
    assert len(kept(tmp_path)) == count + 2


def chats(folder, corpus) -> dict:
    """The spec of a file of conversations."""
    rows = [{"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": f"{text}, answered"}]} for text in DOCUMENTS]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = [f"{text}<end>{text}, answered<end>" for text in DOCUMENTS]
    lengths = sorted({len(tokenizers.Tokenizer.from_file(f"{corpus['tokenizer']}/tokenizer.json").encode(text).ids) for text in written})
    return {"type": "Chat", "path": str(folder / "chats.jsonl"), "tokenizer": corpus["tokenizer"], "template": "{% for m in messages %}{{ m.content }}<end>{% endfor %}",
            "train_on": "all", "max_length": lengths[-2], "packing": True, "cache": "disk"}  # a sample of just that length, and longer ones


def test_kept_chats_are_the_chats(data, tmp_path):
    probe, corpus, _ = data
    spec = chats(tmp_path, corpus)
    expected = read(probe, spec | {"cache": "none"})
    for _ in range(2):
        assert_same(read(probe, spec), expected, "chats")
    [file] = kept(tmp_path)
    read(probe, spec | {"packing": False})
    assert kept(tmp_path) == [file], "packing is made of the same tokens"
    (tmp_path / "template.jinja").write_text(spec["template"])
    more = "{% for m in messages %}{{ answer }}{{ m.content * 3 }}<end>{% endfor %}"
    changes = [{"max_length": spec["max_length"] - 1}, {"too_long": "drop"}, {"train_on": "last_answer"}, {"system": "you answer"}, {"template": more},
               {"template": more, "template_variables": {"answer": 1}}, {"template": more, "template_variables": {"answer": True}},
               {"template": str(tmp_path / "template.jinja")}]
    for count, change in enumerate(changes, 2):
        assert_same(read(probe, spec | change), read(probe, spec | change | {"cache": "none"}), str(change))
        assert len(kept(tmp_path)) == count, change
    (tmp_path / "template.jinja").write_text(more)
    again = spec | {"template": str(tmp_path / "template.jinja")}
    assert_same(read(probe, again), read(probe, again | {"cache": "none"}), "another template under the same name")


def test_kept_pairs_are_the_pairs(data, tmp_path):
    probe, corpus, _ = data
    rows = [{"prompt": f"{i}", "chosen": f"{text}, yes", "rejected": text} for i, text in enumerate(DOCUMENTS)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row["rejected"]))
    spec = {"type": "PreferencePairs", "path": str(tmp_path / "pairs.jsonl"), "tokenizer": corpus["tokenizer"], "max_length": 10, "cache": "disk"}
    for change in ({}, {"max_length": 9}, {"tokenize": "apart"}):
        expected = read(probe, spec | change | {"cache": "none"})
        for _ in range(2):
            assert_same(read(probe, spec | change), expected, "pairs")
    assert len(kept(tmp_path)) == 3


def test_kept_chats_are_named_by_the_file_that_is_read(data, tmp_path):
    probe, corpus, _ = data
    spec = chats(tmp_path, corpus)
    read(probe, spec)
    (tmp_path / "other.jsonl").write_bytes(pathlib.Path(spec["path"]).read_bytes())
    other = spec | {"path": str(tmp_path / "other.jsonl")}
    (tmp_path / "r.yaml").write_text(f"""
version: 1
model: {{layers: [{{type: Embedding, inputs: input_ids, num_embeddings: 3, embedding_dim: 4}}, {{type: Linear, out_features: 3}}]}}
loss: CausalLMLoss
dataset: {{train: {json.dumps(other)}}}
dataloader: {{batch_size: 2, shuffle: false}}
optimizer: SGD
training: {{max_steps: 1}}
""")
    done = subprocess.run([CALLED, "r.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "other.jsonl:" in done.stderr and "chats.jsonl" not in done.stderr, done.stderr
    assert len(kept(tmp_path)) == 1


def test_damaged_and_foreign_files_are_made_again(data, tmp_path):
    probe, corpus, texts = data
    for spec in (corpus, texts, chats(tmp_path, corpus)):
        expected = read(probe, spec | {"cache": "none"})
        read(probe, spec)
        file = max(kept(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        good = file.read_bytes()
        flipped = [good[:i] + bytes([good[i] ^ 64]) + good[i + 1:] for i in [0, 16, 20, 24, 90, 96, 104, 160, 168, 176, len(good) // 2, len(good) - 9]]
        for content in [b"", b"\0" * len(good), good[:100], good[:-8], good + b"\0" * 8, b"x" * 50, good[:96] + b"\xff" * 72 + good[168:], *flipped]:
            file.unlink()
            file.write_bytes(content)
            assert_same(read(probe, spec), expected, f"after damage {content[:30]}")
            assert file.read_bytes() == good
        file.unlink()


def test_what_a_killed_process_left_is_removed_and_what_is_not_ours_stays(data, tmp_path):
    probe, corpus, _ = data
    read(probe, corpus)
    [file] = kept(tmp_path)
    expected = file.read_bytes()
    file.unlink()
    left = file.with_name(f".{file.name}.tmp-12345")
    left.write_bytes(b"half")
    other = file.with_name(f".{'0' * 64}.tmp-12345")
    other.write_bytes(b"half")
    read(probe, corpus)
    assert file.read_bytes() == expected and not left.exists() and other.exists()


def test_processes_at_once_do_not_fight(data, tmp_path):
    _, corpus, _ = data
    probes = []
    for i in range(5):
        (tmp_path / str(i)).mkdir()
        probes.append(Probe(tmp_path / str(i)))
    found = {}
    for _ in range(4):
        for file in kept(tmp_path) if (tmp_path / "cache").exists() else []:
            file.unlink()
        threads = [threading.Thread(target=lambda i=i: found.update({i: read(probes[i], corpus)})) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 5 and len(kept(tmp_path)) == 1
        for fields in found.values():
            assert_same(fields, found[0], "processes")
        found.clear()
    for probe in probes:
        probe.close()


RECIPE = """\
version: 1
model: {layers: [{type: Embedding, num_embeddings: 300, embedding_dim: 8}, {type: Linear, out_features: 300}]}
loss: CausalLMLoss
dataset: {train: DATA}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""


def test_ranks_share_the_file(data, tmp_path):
    _, corpus, _ = data
    (tmp_path / "r.yaml").write_text(RECIPE.replace("DATA", json.dumps(corpus)))
    two = ["distributed_type=MULTI_CPU", "num_processes=2"]
    plain = training_losses(str(tmp_path / "r.yaml"), tmp_path / "plain", *two, "dataset.train.cache=none")
    assert training_losses(str(tmp_path / "r.yaml"), tmp_path / "kept", *two) == plain
    assert len(kept(tmp_path)) == 1
    assert training_losses(str(tmp_path / "r.yaml"), tmp_path / "again", *two) == plain


def test_what_cannot_be_kept_is_said(data, tmp_path, monkeypatch):
    probe, corpus, _ = data
    assert "characters are not kept" in error_of(probe, corpus | {"tokenizer": "characters"})
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "file"))
    own = Probe(tmp_path)
    assert str(tmp_path / "file") in error_of(own, corpus)
    own.close()
    for name in ("TRAINRUN_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    own = Probe(tmp_path)
    assert "set TRAINRUN_CACHE" in error_of(own, corpus)
    own.close()
