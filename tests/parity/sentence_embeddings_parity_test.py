"""Vectors of texts: trainings of pairs, triplets and scored pairs, against the formulas of sentence-transformers over transformers' BERT, whose
vectors are pooled in Python; the figures; and in-batch negatives over ranks."""

import json
import pathlib
import subprocess

import pytest
import scipy.stats
import torch
from torch.nn import functional

import reference
from probe import ProbeError, missing_rows
from sentence_losses import cosent, cosine_similarity, pooled, ranking

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from language_models import BERT_DROPOUT, DISTILLED, BertModel, DistilBertConfig, DistilBertModel, LanguageModel, RobertaModel, bert, roberta  # noqa: E402
from language_model_recipes import outputs_of  # noqa: E402
from word_pieces import bert_tokenizer  # noqa: E402

ROWS = [("how old is it", "its age in years", "a red car"), ("where does he live", "his address is here", "she ate an apple"),
        ("the rain fell", "it was a wet day, all of it", "stars at night"), ("a short text", "brief words", "a very long text of many words and more words"),
        ("he won", "the victory was his", "they lost"), ("open the door", "let me in", "close it"), ("cold soup", "gazpacho", "hot tea"),
        ("a fast car", "the quick vehicle", "a slow boat")]
MAX_LENGTH = 24
SCORES = [0.9, 0.1, 0.5, 0.5, 0.7, 0.0, 1.0, 0.3]
TEXTS = ("anchor", "positive", "negative")


@pytest.fixture(name="word_piece", scope="module")
def tokenizer_of_words(tmp_path_factory):
    """The longest text is longer than what is read of it."""
    made = bert_tokenizer([text for row in ROWS for text in row], 95)
    made.enable_padding(pad_id=0, pad_token="[PAD]")
    path = tmp_path_factory.mktemp("word_piece") / "tokenizer.json"
    made.save(str(path))
    peer = tokenizers.Tokenizer.from_file(str(path))
    peer.enable_truncation(MAX_LENGTH)
    return str(path), peer


def vectors_of(peer, tokenizer, rows, mode="mean", normalize=False):
    """[N, texts, D]"""
    columns = []
    for texts in zip(*rows, strict=True):
        encoded = tokenizer.encode_batch(list(texts))
        ids, mask = torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])
        columns.append(pooled(peer(input_ids=ids, attention_mask=mask).last_hidden_state, mask, mode))
    stacked = torch.stack(columns, 1)
    return functional.normalize(stacked, dim=2) if normalize else stacked


RECIPE = """
version: 1
name: sentences
seed: 4
model: {{layers: [{{type: SentenceTransformer, pretrained: {folder}, {model}}}]}}
loss: {loss}
metrics: {metrics}
dataset:
  train: {{type: SentencePairs, path: {data}, columns: {columns}, {more}tokenizer: {tokenizer}, max_length: {length}}}
  eval: {{type: SentencePairs, path: {data}, columns: {columns}, {more}tokenizer: {tokenizer}, max_length: {length}}}
dataloader: {{batch_size: 4, eval_batch_size: 3, shuffle: false}}
optimizer: {{type: AdamW, lr: 1e-3}}
training: {{max_steps: 20}}
evaluation: {{every: 20}}
checkpoint: {{every: 20}}
"""
OF_SCORES = "[CosineSpearman]"
OF_RANKS = "[{type: RecallAtK, k: 1}, {type: RecallAtK, k: 3, name: recall_at_3}]"
DISTILBERT = LanguageModel(DistilBertModel, DistilBertConfig, DISTILLED, dropout=("dropout", "attention_dropout"))
JOBS = [
    ("MultipleNegativesRankingLoss", ranking(), 2, "mean", False, bert(BertModel)),
    ("{type: MultipleNegativesRankingLoss, scale: 10, symmetric: true}", ranking(10, symmetric=True), 3, "cls", True, roberta(RobertaModel)),
    ("{type: CoSENTLoss, scale: 15}", cosent(15), 2, "max", False, DISTILBERT),
    ("CosineSimilarityLoss", cosine_similarity, 2, "mean", True, bert(BertModel)),
]


def written(folder: pathlib.Path, num_texts: int) -> pathlib.Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(dict(zip(TEXTS, row[:num_texts]), score=score)) + "\n" for row, score in zip(ROWS, SCORES, strict=True)))
    return path


def recipe_of(folder, tokenizer, loss, num_texts, mode, normalize):
    scored = "Negatives" not in loss
    text = RECIPE.format(length=MAX_LENGTH, folder=folder / "peer", model=f"pooling: {mode}, normalize: {str(normalize).lower()}", loss=loss, metrics=OF_SCORES if scored else OF_RANKS,
                         data=written(folder, num_texts), columns=list(TEXTS[:num_texts]), more="score: score, " if scored else "", tokenizer=tokenizer)
    (folder / "recipe.yaml").write_text(text)
    return str(folder / "recipe.yaml"), scored


@pytest.mark.parametrize("loss, formula, num_texts, mode, normalize, model", JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_training_gives_the_losses_of_sentence_transformers(tmp_path, word_piece, loss, formula, num_texts, mode, normalize, model):
    tokenizer, peer_tokenizer = word_piece
    peer = model.saved(tmp_path / "peer", **dict.fromkeys(model.dropout or BERT_DROPOUT, 0.0))
    recipe, scored = recipe_of(tmp_path, tokenizer, loss, num_texts, mode, normalize)
    lines, _ = reference.run_trainrun(recipe, tmp_path / "run")

    rows, scores = [row[:num_texts] for row in ROWS], torch.tensor(SCORES)
    optimizer = torch.optim.AdamW([p for name, p in peer.named_parameters() if not name.startswith("pooler")], lr=1e-3)
    peer.train()
    losses = []
    for step in range(20):
        part = slice(4 * (step % 2), 4 * (step % 2) + 4)
        texts = vectors_of(peer, peer_tokenizer, rows[part], mode, normalize)
        value = formula(texts, scores[part]) if scored else formula(texts)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert reference.losses_of(lines) == pytest.approx(losses, rel=1e-4)

    with torch.no_grad():
        texts = vectors_of(peer.eval(), peer_tokenizer, rows, mode, normalize)
    [own] = [line for line in lines if line["split"] == "eval"]
    cosines = functional.cosine_similarity(texts[:, :1], texts[:, 1:2], dim=2)[:, 0]
    if scored:
        assert own["eval/cosine_spearman"] == pytest.approx(scipy.stats.spearmanr(cosines, scores).statistic, abs=1e-6)
        return
    unit = functional.normalize(texts, dim=2)
    similar = unit[:, 0] @ unit[:, 1:].flatten(0, 1).T
    ahead = (similar > cosines[:, None] + 1e-6).sum(1)
    assert own["eval/recall_at_k"] == pytest.approx((ahead < 1).float().mean().item())
    assert own["eval/recall_at_3"] == pytest.approx((ahead < 3).float().mean().item())


def test_two_ranks_learn_as_one_with_twice_the_batch(tmp_path, word_piece):
    bert(BertModel).saved(tmp_path / "peer", **dict.fromkeys(BERT_DROPOUT, 0.0))
    recipe, _ = recipe_of(tmp_path, word_piece[0], "{type: MultipleNegativesRankingLoss, symmetric: true}", 3, "mean", False)
    plain = ["evaluation.every=null", "optimizer={type: SGD, lr: 0.01}"]
    alone = reference.training_losses(recipe, tmp_path / "alone", *plain, "dataloader.batch_size=4")
    ranks = ["distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=2"]
    assert reference.training_losses(recipe, tmp_path / "ranks", *plain, *ranks) == pytest.approx(alone, rel=1e-4)
    apart = reference.training_losses(recipe, tmp_path / "apart", *plain, *ranks, "loss.gather_across_devices=false")
    assert apart[0] != pytest.approx(alone[0], rel=1e-2)


WRONG = [
    ('{"anchor": "a", "positive": ""}', {}, "pairs.jsonl:1:positive: the text is empty"),
    ('{"anchor": "a", "positive": "b", "score": "much"}', {"score": "score"}, "pairs.jsonl:1:score: 'much' is not a number"),
    ('{"anchor": "a"}', {}, "pairs.jsonl:1: has no key 'positive'"),
    ("", {"columns": ["a"]}, "columns: expected two columns, or three"),
    ("", {"columns": ["a", "b", "c"], "score": "s"}, "score: needs exactly two columns of texts"),
    ("", {"columns": ["a", "a"]}, "columns: names one column twice"),
    ("", {"score": "positive"}, "score: is one of columns"),
]


@pytest.mark.parametrize("line, more, said", WRONG)
def test_what_is_wrong_with_pairs_is_said_with_its_place(probe, tmp_path, word_piece, line, more, said):
    (tmp_path / "pairs.jsonl").write_text(line + "\n")
    spec = {"type": "SentencePairs", "path": str(tmp_path / "pairs.jsonl"), "tokenizer": word_piece[0], "max_length": 8} | more
    with pytest.raises(ProbeError) as error:
        probe.ask("dataset", spec=spec, learnt=None)
    assert said in str(error.value)


def test_every_parameter_of_pairs_has_a_test(probe, tmp_path, word_piece):
    spec = {"type": "SentencePairs", "path": str(written(tmp_path, 2)), "tokenizer": word_piece[0], "max_length": 12, "padding": "max_length",
            "columns": ["anchor", "positive"], "score": "score", "encoding": "utf-8", "cache": "none", "pad_to_multiple_of": 4}
    reply, results = probe.ask("dataset", spec=spec, learnt=None)
    assert reply["target"] == "score" and results["output.score"].flatten().tolist() == pytest.approx(SCORES)
    tokenizer = tokenizers.Tokenizer.from_file(word_piece[0])
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", length=12)
    tokenizer.enable_truncation(12)
    for i, name in enumerate(TEXTS[:2]):
        encoded = tokenizer.encode_batch([row[i] for row in ROWS])
        assert results[f"output.{name}_input_ids"].tolist() == [e.ids for e in encoded]
        assert results[f"output.{name}_attention_mask"].tolist() == [e.attention_mask for e in encoded]
    assert missing_rows({"SentencePairs": probe.ask("catalog")["dataset"]["SentencePairs"]}, [spec]) == []


def test_a_folder_of_sentence_transformers_says_how_vectors_are_pooled(probe, tmp_path):
    model = bert(BertModel)
    peer = model.saved(tmp_path / "peer")
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    (tmp_path / "peer/modules.json").write_text(json.dumps([{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
                                                            for i, (name, path) in enumerate(modules)]))
    (tmp_path / "peer/1_Pooling").mkdir()
    fields = model.fields()
    for config, mode in (({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"), ({"pooling_mode": "max"}, "max")):
        (tmp_path / "peer/1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 32} | config))
        _, output, _ = outputs_of(probe, tmp_path, f"{{type: SentenceTransformer, pretrained: {tmp_path / 'peer'}}}", fields)
        with torch.no_grad():
            expected = functional.normalize(pooled(peer(**fields).last_hidden_state, fields["attention_mask"], mode), dim=1)
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


def test_what_is_exported_gives_the_same_vectors_in_python(tmp_path, word_piece):
    """The files by which sentence-transformers opens the folder are read here as its modules read them; that it opens was tried with release 6.2."""
    bert(BertModel).saved(tmp_path / "peer")
    recipe, _ = recipe_of(tmp_path, word_piece[0], "MultipleNegativesRankingLoss", 3, "cls", True)
    lines, run = reference.run_trainrun(recipe, tmp_path / "run")
    out = tmp_path / "out"
    subprocess.run([CALLED, "export", str(run), "--format", "huggingface", "--output", str(out)], check=True, capture_output=True)
    modules = [(module["type"].split(".")[-1], module["path"]) for module in json.loads((out / "modules.json").read_text())]
    assert modules == [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    pooling = json.loads((out / "1_Pooling/config.json").read_text())
    assert pooling.pop("word_embedding_dimension") == 32 and [name for name, on in pooling.items() if on] == ["pooling_mode_cls_token"]
    assert json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"] == MAX_LENGTH
    opened = transformers.AutoModel.from_pretrained(out)
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_LENGTH)
    with torch.no_grad():
        texts = vectors_of(opened.eval(), tokenizer, ROWS, "cls", True)
    expected = sum(len(part) * ranking()(part) for part in texts.split(3)) / len(texts)
    [own] = [line for line in lines if line["split"] == "eval"]
    assert own["eval/loss"] == pytest.approx(expected.item(), rel=1e-4)
