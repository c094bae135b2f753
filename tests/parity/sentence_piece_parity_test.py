"""tokenizer.model, as SentencePiece writes it: ids and texts are those of SentencePiece itself."""

import io
import unicodedata

import pytest

sentencepiece = pytest.importorskip("sentencepiece", reason="no sentencepiece: tools/setup --tests installs it")

from probe import ProbeError  # noqa: E402
from tokenizer_texts import Encoded, decoded, mixed_lines, mrpc_pairs, shakespeare  # noqa: E402

# As those of T5, Llama and Gemma are trained; and settings that change how texts are read.
KINDS = {
    "unigram": {"model_type": "unigram"},
    "bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True},
    "blanks": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
               "allow_whitespace_only_pieces": True, "add_dummy_prefix": False},
    "lower": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True},
}


@pytest.fixture(scope="module")
def texts():
    sentences = [text for pair in mrpc_pairs() for text in pair]
    mixed = [line.decode("utf-8", errors="replace") for line in mixed_lines()]
    return {"mrpc": sentences, "shakespeare": shakespeare().split("\n\n"), "mixed": mixed}


@pytest.fixture(scope="module")
def models(tmp_path_factory, texts):
    """The path of each kind's tokenizer.model, and SentencePiece's reader of it."""
    made = {}
    for name, settings in KINDS.items():
        content = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts["mrpc"][:3000] + texts["shakespeare"][:500]), model_writer=content,
                                                 vocab_size=1500, minloglevel=2, **settings)
        path = tmp_path_factory.mktemp(name) / "tokenizer.model"
        path.write_bytes(content.getvalue())
        made[name] = (path, sentencepiece.SentencePieceProcessor(model_file=str(path)))
    return made


def is_read_alike(text, kind) -> bool:
    """Whether Hugging Face, whose reading ours is, reads a text as SentencePiece does: a token that is written out, such as </s>, is that token to
    the one and letters to the other; what NFKC changes, marks and joiners are looked at by clusters of characters, or in order; and so is SentencePiece's
    own mark of a blank left in texts, or not."""
    if any(token in text for token in ["<s>", "</s>", "<unk>", "<0x", "\x00", "\u2581"]):
        return False
    if KINDS[kind].get("normalization_rule_name") == "identity":
        return True
    return unicodedata.normalize("NFKC", text) == text and not any(unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf") for c in text)


@pytest.mark.parametrize("part", ["mrpc", "shakespeare", "mixed"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_ids_and_texts_are_those_of_sentence_piece(probe, models, texts, kind, part):
    path, peer = models[kind]
    ours = Encoded(probe, path, texts[part], add_special_tokens=False)
    plain = [i for i, text in enumerate(texts[part]) if is_read_alike(text, kind)]
    assert len(plain) > 200
    for i in plain:
        assert ours.ids[i] == peer.encode(texts[part][i]), texts[part][i]
    rows = [ours.ids[i] for i in plain if peer.unk_id() not in ours.ids[i]]  # which SentencePiece writes as ⁇
    for text, expected in zip(decoded(probe, path, rows), peer.decode(rows), strict=True):
        assert text == expected


def test_what_is_put_around_a_text_is_by_the_class_of_the_tokenizer(probe, models):
    path, peer = models["bytes"]
    config = path.with_name("tokenizer_config.json")
    hello = peer.encode("Hello")
    for content, expected in [('{"tokenizer_class": "LlamaTokenizer"}', [peer.bos_id(), *hello]), ('{"tokenizer_class": "T5Tokenizer"}', [*hello, peer.eos_id()]),
                              ('{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true}', [*hello, peer.eos_id()]), ("{}", hello)]:
        config.write_text(content)
        assert Encoded(probe, path.parent, ["Hello"]).ids == [expected]
    config.unlink()


@pytest.mark.parametrize("kind", ["word", "char"])
def test_models_of_words_and_characters_are_refused(probe, tmp_path, texts, kind):
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts["mrpc"][:300]), model_writer=content, vocab_size=100, model_type=kind, minloglevel=2,
                                             hard_vocab_limit=False)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content.getvalue())
    with pytest.raises(ProbeError, match=r"tokenizer\.model: it is a model of words or characters; expected Unigram or BPE"):
        Encoded(probe, path, ["a"])


def test_damaged_models_are_refused_or_read_but_never_crash(probe, models, tmp_path):
    path = tmp_path / "tokenizer.model"
    whole = models["unigram"][0].read_bytes()
    refused = 0
    for cut in [0, 1, 10, 1000, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        try:
            Encoded(probe, path, ["Hello"])
        except ProbeError as error:
            assert "tokenizer.model: " in str(error)
            refused += 1
    for place in range(0, len(whole), len(whole) // 200):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1:])
        try:
            Encoded(probe, path, ["Hello"])
        except ProbeError as error:
            assert "tokenizer.model: " in str(error)
            refused += 1
    assert refused > 20
