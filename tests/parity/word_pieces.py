"""A small WordPiece tokenizer of some texts, the same in each call: the trainer of the library tokenizers finds other pieces each time."""

import collections

import tokenizers

BERT_MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def bert_tokenizer(texts, vocab_size: int, marks=BERT_MARKS, lowercase=True) -> tokenizers.Tokenizer:
    """As BERT's, with [CLS] and [SEP] around each text. Its pieces: `marks`, the letters, and the most frequent words up to `vocab_size`."""
    normalizer, words = tokenizers.normalizers.BertNormalizer(lowercase=lowercase), tokenizers.pre_tokenizers.BertPreTokenizer()
    counts = collections.Counter(word for text in texts for word, _ in words.pre_tokenize_str(normalizer.normalize_str(text)))
    letters = sorted({letter for word in counts for letter in word})
    frequent = sorted((word for word in counts if len(word) > 1), key=lambda word: (-counts[word], word))
    pieces = [*marks, *letters, *(f"##{letter}" for letter in letters), *frequent][:vocab_size]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizer, words
    made.add_special_tokens(list(marks))
    made.post_processor = tokenizers.processors.BertProcessing(*(((mark, made.token_to_id(mark)) for mark in ("[SEP]", "[CLS]"))))
    return made
