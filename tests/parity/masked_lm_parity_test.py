"""Masked language models: which tokens MaskTokens hides, against its formula and the distribution of transformers' DataCollatorForLanguageModeling;
texts without labels, against run_mlm; trainings, against transformers' models given the same masks."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
import torch

import reference
from draws import Draws
from probe import ProbeError, assert_same, missing_rows, named

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from language_models import (BERT_DROPOUT, DISTILLED, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM, LanguageModel,  # noqa: E402
                             RobertaForMaskedLM, bert, roberta)

LINES = ["To be, or not to be: that is the question.", "Whether 'tis nobler in the mind to suffer", "the slings and arrows of outrageous fortune,",
         "or to take arms against a sea of troubles", "and by opposing end them.", "To die: to sleep;", "No more; and by a sleep to say we end", "the heart-ache"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
USED = []


@pytest.fixture(name="word_piece", scope="module")
def folder_of_word_piece(tmp_path_factory):
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(LINES, tokenizers.trainers.WordPieceTrainer(vocab_size=80, special_tokens=SPECIAL, show_progress=False))
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return saved(made, tmp_path_factory.mktemp("word_piece"), "[PAD]", "[MASK]")


@pytest.fixture(name="byte_pairs", scope="module")
def folder_of_byte_pairs(tmp_path_factory):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(LINES, tokenizers.trainers.BpeTrainer(vocab_size=99, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False))
    made.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return saved(made, tmp_path_factory.mktemp("byte_pairs"), "<pad>", "<mask>")


def saved(made, folder, pad, mask):
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": pad, "mask_token": mask}))
    return folder, made


def hidden(tokens, mask, made, draws, number=0, whole_word=False, p=0.15, replaced=0.8, drawn=0.1):
    """One text, as MaskTokens documents it."""
    stream = draws.of(number)
    specials = {i: token.content for i, token in made.get_added_tokens_decoder().items() if token.special}
    [mask_id] = [i for i, content in specials.items() if "mask" in content.lower()]
    is_byte_level = "<s>" in made.get_vocab()
    ids, labels, chosen, in_word = list(tokens), [-100] * len(tokens), False, False
    for i, token in enumerate(tokens):
        if not mask[i] or token in specials:
            in_word = False
            continue
        text = made.id_to_token(token)
        begins = text.startswith("Ġ") if is_byte_level else not text.startswith("##")
        if not (whole_word and in_word and not begins):
            chosen = stream.uniform() < p
        in_word = True
        if not chosen:
            continue
        labels[i], kind = token, stream.uniform()
        if kind < replaced:
            ids[i] = mask_id
        elif kind < replaced + drawn:
            ids[i] = stream.integer(made.get_vocab_size())
    return ids, labels


def masked(probe, fields, seed=0, **spec):
    spec = {"type": "MaskTokens"} | {name: str(value) if name == "tokenizer" else value for name, value in spec.items()}
    USED.append(spec)
    _, results = probe.ask("transform", named("input", fields), spec=spec, seed=seed)
    return results.under("output")


def drawn_texts(made, num, length):
    """Tokens at random in [CLS] … [SEP], of which some are special; and padding behind."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, made.get_vocab_size(), (num, length), generator=generator)
    mask = (torch.arange(length) < torch.randint(length // 2, length + 1, (num, 1), generator=generator)).long()
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize("kind", ["word_piece", "byte_pairs"])
def test_tokens_are_hidden_as_documented(probe, request, kind, whole_word):
    folder, made = request.getfixturevalue(kind)
    fields = drawn_texts(made, 6, 40)
    found = masked(probe, fields, seed=9, tokenizer=folder, whole_word=whole_word)
    expected = [hidden(ids, mask, made, Draws(9), number, whole_word) for number, (ids, mask) in enumerate(zip(*(f.tolist() for f in fields.values()), strict=True))]
    assert found["input_ids"].tolist() == [ids for ids, _ in expected] and found["labels"].tolist() == [labels for _, labels in expected]
    wider = {name: torch.nn.functional.pad(tensor, (0, 5)) for name, tensor in fields.items()}
    assert_same({k: v[:, :40] for k, v in masked(probe, wider, seed=9, tokenizer=folder, whole_word=whole_word).items()}, found, "padding draws nothing")
    other = masked(probe, {"chosen_input_ids": fields["input_ids"]}, tokenizer=folder / "tokenizer.json", field="chosen_input_ids", labels="hidden")
    assert (other["hidden"] != -100).any()


@pytest.mark.parametrize("options", [{}, {"mlm_probability": 0.4, "mask_replace_prob": 0.5, "random_replace_prob": 0.5}], ids=str)
@pytest.mark.parametrize("whole_word", [False, True])
def test_the_distribution_is_that_of_transformers_collator(probe, word_piece, whole_word, options):
    folder, made = word_piece
    fields = drawn_texts(made, 800, 60)
    found = masked(probe, fields, tokenizer=folder, whole_word=whole_word, **options)
    ids, special = fields["input_ids"], torch.tensor([token in SPECIAL for token in (made.id_to_token(i) for i in range(made.get_vocab_size()))])
    may = fields["attention_mask"].bool() & ~special[ids]
    chosen = found["labels"] != -100
    assert not (chosen & ~may).any() and (found["labels"][chosen] == ids[chosen]).all() and (found["input_ids"][~chosen] == ids[~chosen]).all()

    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                                sep_token="[SEP]", mask_token="[MASK]")
    collator = transformers.DataCollatorForLanguageModeling(peer, **options)
    torch.manual_seed(1)
    their_ids, their_labels = collator.torch_mask_tokens(ids.clone(), special_tokens_mask=(~may).long())
    theirs = their_labels != -100

    def shares(ids_now, chosen):
        masks = (ids_now == made.token_to_id("[MASK]")) & chosen
        return torch.stack([chosen.sum() / may.sum(), masks.sum() / chosen.sum(), ((ids_now == ids) & chosen).sum() / chosen.sum()])

    tolerance = 0.02 if whole_word else 0.012  # words are fewer than tokens
    torch.testing.assert_close(shares(found["input_ids"], chosen), shares(their_ids, theirs), rtol=0, atol=tolerance)
    drawn = found["input_ids"][chosen & (found["input_ids"] != ids) & (found["input_ids"] != made.token_to_id("[MASK]"))]
    counts = drawn.bincount(minlength=made.get_vocab_size())  # any token, special ones as well
    assert (counts > 0).sum() > 0.9 * len(counts) and counts.max() < 5 * counts.float().mean()
    if whole_word:
        continues = torch.tensor([(made.id_to_token(i) or "").startswith("##") for i in range(made.get_vocab_size())])[ids]
        within = continues[:, 1:] & may[:, 1:] & may[:, :-1]
        assert (chosen[:, 1:] == chosen[:, :-1])[within].all()


@pytest.mark.parametrize("spec, fields, said", [
    ({"random_replace_prob": 0.3}, {}, "random_replace_prob: is more than 1 together with mask_replace_prob"),
    ({"labels": "input_ids"}, {}, "labels: is the field of the tokens"),
    ({"field": "image"}, {"image": torch.zeros(2, 1, 4, 4)}, "MaskTokens: 'image' does not hold tokens (int64) [N, T], but [N, 1, 4, 4]"),
    ({}, {"input_ids": torch.full((2, 3), 99)}, "MaskTokens: 'input_ids' holds 99, but"),
], ids=str)
def test_what_does_not_fit_is_said(probe, word_piece, spec, fields, said):
    with pytest.raises(ProbeError) as error:
        masked(probe, fields or {"input_ids": torch.zeros(2, 3).long()}, tokenizer=word_piece[0], **spec)
    assert said in str(error.value)


def test_a_tokenizer_without_a_mask_is_refused(probe, tmp_path):
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ProbeError, match="the tokenizer has no token for a mask"):
        masked(probe, {"input_ids": torch.zeros(2, 3).long()}, tokenizer=tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "b"}))
    with pytest.raises(ProbeError, match="the tokens do not say which of them begin words.*; leave whole_word out"):
        masked(probe, {"input_ids": torch.zeros(2, 3).long()}, tokenizer=tmp_path, whole_word=True)


def test_every_parameter_of_mask_tokens_has_a_test(probe):
    assert missing_rows({"MaskTokens": probe.ask("catalog")["transform"]["MaskTokens"]}, USED) == []


# --- texts without labels


def read(probe, **spec):
    spec = {"type": "Texts"} | spec
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, learnt=None)
    assert reply["fields"] == ["input_ids", "attention_mask", "token_type_ids"]
    return results.under("output")


def as_fields(rows, length, pad=0):
    return {"input_ids": torch.tensor([row + [pad] * (length - len(row)) for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
            "token_type_ids": torch.zeros(len(rows), length).long()}


def test_texts_are_joined_or_separate_as_in_run_mlm(probe, tmp_path, word_piece):
    folder, made = word_piece
    made.no_truncation()
    whole = [made.encode(line).ids for line in LINES]
    (tmp_path / "a.txt").write_text("\n".join([*LINES[:3], "", "  ", *LINES[3:]]) + "\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps({"said": line}) + "\n" for line in LINES).encode()))
    (tmp_path / "a.csv").write_text("said,n\n" + "".join(f'"{line}",1\n' for line in LINES))
    pyarrow.parquet.write_table(pyarrow.table({"said": LINES}), tmp_path / "a.parquet")
    joined = [token for ids in whole for token in ids]
    for path, more in (("a.txt", {}), ("a.jsonl.gz", {"text_column": "said"}), ("a.csv", {"text_column": "said"}), ("a.parquet", {"text_column": "said"})):
        common = {"path": str(tmp_path / path), "tokenizer": str(folder), **more}
        assert_same(read(probe, max_length=16, **common), as_fields([joined[i: i + 16] for i in range(0, len(joined) - 15, 16)], 16), path)
        assert_same(read(probe, max_length=40, documents="separate", padding="max_length", **common), as_fields(whole, 40), path)
    made.enable_truncation(9)
    assert_same(read(probe, path=[str(tmp_path / "a.txt"), str(tmp_path / "a.txt")], tokenizer=str(folder), max_length=9, documents="separate", encoding="utf-8",
                     cache="none", pad_to_multiple_of=3), as_fields([made.encode(line).ids for line in LINES] * 2, 9), "cut")
    made.no_truncation()
    with pytest.raises(ProbeError, match="fewer than one sample of max_length; write documents: separate, or a smaller max_length"):
        read(probe, path=str(tmp_path / "a.txt"), tokenizer=str(folder), max_length=4096)
    assert missing_rows({"Texts": probe.ask("catalog")["dataset"]["Texts"]}, USED) == []


# --- trainings

RECIPE = """
version: 1
name: masked
seed: 4
model: {{layers: [{{type: {type}, pretrained: {folder}}}]}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
metrics: [{{type: Perplexity, class_dim: -1}}]
dataset:
  train: {{type: Texts, path: {data}, tokenizer: {tokenizer}, max_length: 40, documents: separate}}
  eval: {{type: Texts, path: {data}, tokenizer: {tokenizer}, max_length: 40, documents: separate}}
  transforms: [{{type: MaskTokens, tokenizer: {tokenizer}, mlm_probability: 0.3, whole_word: {whole_word}}}]
dataloader: {{batch_size: 4, eval_batch_size: 8, shuffle: false}}
optimizer: {{type: AdamW, lr: 1e-3}}
training: {{max_steps: 20}}
evaluation: {{every: 10}}
checkpoint: {{every: 10}}
"""
DISTILBERT = LanguageModel(DistilBertForMaskedLM, DistilBertConfig, DISTILLED, dropout=("dropout", "attention_dropout"))


@pytest.mark.parametrize("model, kind, whole_word", [(bert(BertForMaskedLM), "word_piece", False), (roberta(RobertaForMaskedLM, max_position_embeddings=48), "byte_pairs", True),
                                                     (DISTILBERT, "word_piece", True)], ids=str)
def test_a_training_gives_the_losses_of_transformers(tmp_path, request, model, kind, whole_word):
    folder, made = request.getfixturevalue(kind)
    peer = model.saved(tmp_path / "peer", **dict.fromkeys(model.dropout or BERT_DROPOUT, 0.0))
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(type=model.type, folder=tmp_path / "peer", data=tmp_path / "lines.txt", tokenizer=folder,
                                                        whole_word=str(whole_word).lower()))
    lines, _ = reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "run")

    made.no_truncation()
    whole = as_fields([made.encode(line).ids for line in LINES], 40, pad=made.token_to_id("[PAD]") or made.token_to_id("<pad>") or 0)

    def batch_of(epoch, first, size):
        length = whole["attention_mask"][first: first + size].sum(1).max()
        part = {name: tensor[first: first + size, :length] for name, tensor in whole.items() if name != "token_type_ids" or model.type.startswith("Bert")}
        rows = [hidden(ids, mask, made, Draws(4, epoch), first + i, whole_word, p=0.3)
                for i, (ids, mask) in enumerate(zip(part["input_ids"].tolist(), part["attention_mask"].tolist(), strict=True))]
        return part | {"input_ids": torch.tensor([ids for ids, _ in rows]), "labels": torch.tensor([labels for _, labels in rows])}

    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-3)
    peer.train()
    losses = []
    for step in range(20):
        loss = peer(**batch_of(step // 2, 4 * (step % 2), 4)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert reference.losses_of(lines) == pytest.approx(losses, rel=1e-4)
    evaluations = [line for line in lines if line["split"] == "eval"]
    with torch.no_grad():
        expected = peer.eval()(**batch_of(0, 0, 8)).loss  # the same masks each time
    assert evaluations[-1]["eval/loss"] == pytest.approx(expected.item(), rel=1e-4)
    assert evaluations[-1]["eval/perplexity"] == pytest.approx(expected.exp().item(), rel=1e-3)
    if model.type == "BertForMaskedLM":  # the masks go on where they were
        reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "half", "training.max_steps=10")
        more, _ = reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "more", f"checkpoint.resume={tmp_path / 'half/checkpoints/latest'}")
        assert reference.losses_of(more)[-10:] == pytest.approx(losses[10:], rel=1e-4)
