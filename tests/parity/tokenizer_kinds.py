"""Tokenizers of each kind, made by Hugging Face's library from small corpora; each as its tokenizer.json."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCAB = 2000
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def trained(tokenizer: Tokenizer, trainer, texts: list[str]) -> Tokenizer:
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_bpe(texts, pre_tokenizer=None, specials=("<|endoftext|>",)) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False), texts)


def gpt2(texts) -> Tokenizer:
    tokenizer = byte_bpe(texts)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta(texts) -> Tokenizer:
    tokenizer = byte_bpe(texts, pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    ids = tokenizer.get_vocab()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]), add_prefix_space=True)
    return tokenizer


def llama3(texts) -> Tokenizer:
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_bpe(texts, split, ["<|begin_of_text|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", 0)]),
    ])
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(content))


def qwen(texts) -> Tokenizer:
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_bpe(texts, split)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("<tool_call>", single_word=True, normalized=False), "\u00c5ngstr\u00f6m"])
    return tokenizer


def llama2(texts) -> Tokenizer:
    """Byte fallback, no pre-tokenizer, blanks as marks."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained(tokenizer, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=specials, show_progress=False), texts)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    content["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def mistral(texts) -> Tokenizer:
    """The same with Metaspace, which marks the first word only."""
    tokenizer = llama2(texts)
    content = json.loads(tokenizer.to_str())
    content["normalizer"] = None
    content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    content["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    return Tokenizer.from_str(json.dumps(content))


def unigram(texts, **options) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**options)
    tokenizer.decoder = decoders.Metaspace(**options)
    trainer = trainers.UnigramTrainer(vocab_size=VOCAB, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    return trained(tokenizer, trainer, texts)


def t5(texts) -> Tokenizer:
    tokenizer = unigram(texts)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def unigram_bytes(texts) -> Tokenizer:
    tokenizer = unigram(texts, prepend_scheme="first")
    content = json.loads(tokenizer.to_str())
    worst = min(score for _, score in content["model"]["vocab"]) - 5
    content["model"]["vocab"] += [[f"<0x{byte:02X}>", worst] for byte in range(256)]
    content["model"]["byte_fallback"] = True
    content["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    content["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, content["decoder"]]}
    return Tokenizer.from_str(json.dumps(content))


def bert_cased(texts) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False, clean_text=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained(tokenizer, trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False), texts)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def word_level(texts) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    trained(tokenizer, trainers.WordLevelTrainer(vocab_size=VOCAB, special_tokens=["<unk>"], show_progress=False), texts)
    tokenizer.add_tokens([AddedToken("Hello", normalized=True), AddedToken("the", single_word=True), AddedToken("\u4e16", rstrip=True, lstrip=True)])
    return tokenizer


def openai_gpt(texts) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False), texts)


def continuing(texts) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="##"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=VOCAB, continuing_subword_prefix="##", show_progress=False), texts)


KINDS = [gpt2, roberta, llama3, qwen, llama2, mistral, t5, unigram_bytes, bert_cased, word_level, openai_gpt, continuing]

# Pre-tokenizers, tried on a vocabulary of letters: where words are split shows in the ids, as merges stop there.
SPLITS = [
    pre_tokenizers.Sequence([part, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    for part in [
        *(pre_tokenizers.Split(pattern, behavior, invert)
          for pattern in [Regex(r"\s+"), Regex(r"[aeiou]*"), Regex(r"\p{P}(?=.)"), "th", Regex(r"(?<=e) |o\b")]
          for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"] for invert in [False, True]),
        *(pre_tokenizers.Punctuation(behavior) for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]),
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Whitespace(),
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer(), pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.FixedLength(length=3),
        pre_tokenizers.Metaspace(), pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
        pre_tokenizers.Metaspace("_", prepend_scheme="always", split=False), pre_tokenizers.ByteLevel(add_prefix_space=True),
    ]
]  # fmt: skip
NORMALIZERS = [
    normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(),
    normalizers.Strip(left=True, right=False), normalizers.Strip(left=False, right=True), normalizers.Nmt(), normalizers.Prepend("_ "),
    normalizers.Replace("e", ""), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex("a+"), "x"), normalizers.ByteLevel(),
    normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=True, lowercase=False),
    normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=None, lowercase=True),
    normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]),
]  # fmt: skip
