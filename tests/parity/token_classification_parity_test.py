"""Words with classes: how their labels are aligned with tokens, against transformers' run_ner; trainings, against transformers' models; entities'
scores, against seqeval's."""

import gzip
import json
import pathlib
import subprocess

import pyarrow
import pyarrow.parquet
import pytest
import torch
from torch.nn import functional

import reference
from entities import entity_score
from probe import ProbeError, assert_same, missing_rows

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from language_models import (BERT_DROPOUT, DISTILLED, BertForTokenClassification, DistilBertConfig, DistilBertForTokenClassification,  # noqa: E402
                             LanguageModel, RobertaForTokenClassification, bert, roberta)
from word_pieces import BERT_MARKS, bert_tokenizer  # noqa: E402

USED = []
SENTENCES = [
    (["Angela", "Merkel", "visited", "Paris", "-", "again", "!"], ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"]),
    (["EU", "rejects", "Germany's", "call"], ["B-ORG", "O", "B-LOC", "O"]),
    (["Unaccountabilities", "in", "Ouagadougou-Nord"], ["O", "O", "B-LOC"]),
    (["#", "Müller", "\u00ad", "won"], ["O", "B-PER", "I-PER", "O"]),  # the third word is a soft hyphen, which BERT's normalizer removes
    (["word"] * 30, ["O"] * 29 + ["B-PER"]),
    (["Yes"], ["O"]),
]
CLASSES = sorted({label for _, labels in SENTENCES for label in labels})


def word_piece():
    made = bert_tokenizer([" ".join(words) for words, _ in SENTENCES], 90, [*BERT_MARKS, "[MASK]"], lowercase=False)
    made.enable_padding(pad_id=0, pad_token="[PAD]")
    return made


def byte_pairs(add_prefix_space: bool):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([" ".join(words) for words, _ in SENTENCES], trainer)
    made.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=add_prefix_space)
    made.enable_padding(pad_id=1, pad_token="<pad>")
    return made


@pytest.fixture(name="kinds", scope="module")
def tokenizers_of_kinds(tmp_path_factory):
    """By name: the path of tokenizer.json, and the tokenizer with which Python reads words."""
    folder = tmp_path_factory.mktemp("kinds")
    found = {}
    for name, made in {"word_piece": word_piece(), "byte_pairs": byte_pairs(True), "byte_pairs_without_blank": byte_pairs(False)}.items():
        (folder / name).mkdir()
        path = str(folder / name / "tokenizer.json")
        made.save(path)
        found[name] = (path, tokenizers.Tokenizer.from_file(path))
    # run_ner opens RoBERTa's and GPT-2's with add_prefix_space=True
    found["byte_pairs_without_blank"][1].pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    return found


def aligned(peer, sentences, classes, max_length, label_all_tokens=False):
    """run_ner's tokenize_and_align_labels (transformers 5.23, examples/pytorch/token-classification)."""
    peer.no_padding()
    peer.enable_truncation(max_length)
    numbers = {name: i for i, name in enumerate(classes)}
    inside = [numbers.get(name.replace("B-", "I-"), i) if name.startswith("B-") else i for i, name in enumerate(classes)]
    encoded = peer.encode_batch([words for words, _ in sentences], is_pretokenized=True)
    rows = []
    for encoding, (_, labels) in zip(encoded, sentences, strict=True):
        row, before = [], None
        for word in encoding.word_ids:
            if word is None:
                row.append(-100)
            elif word != before:
                row.append(numbers[labels[word]])
            else:
                row.append(inside[numbers[labels[word]]] if label_all_tokens else -100)
            before = word
        rows.append((encoding, row))
    length, pad = max_length, peer.token_to_id("[PAD]") if peer.token_to_id("[PAD]") is not None else 1

    def filled(values, filling):
        return values + [filling] * (length - len(values))

    return {"input_ids": torch.tensor([filled(e.ids, pad) for e, _ in rows]), "attention_mask": torch.tensor([filled(e.attention_mask, 0) for e, _ in rows]),
            "token_type_ids": torch.tensor([filled(e.type_ids, 0) for e, _ in rows]), "labels": torch.tensor([filled(row, -100) for _, row in rows])}


def read(probe, learnt=None, **spec):
    spec = {"type": "TokenClassification"} | spec
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, learnt=learnt)
    assert reply["fields"] == ["input_ids", "attention_mask", "token_type_ids", "labels"] and reply["target"] == "labels"
    return results.under("output"), reply["learnt"]


def error_of(probe, learnt=None, **spec):
    with pytest.raises(ProbeError) as error:
        read(probe, learnt, **spec)
    return str(error.value)


def written(folder: pathlib.Path, name: str, content: str) -> str:
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return str(path)


def columns(sentences, between=" ", middle="NN", document=True) -> str:
    lines = ["-DOCSTART- -X- O", ""] if document else []
    for words, labels in sentences:
        lines += [between.join([word, *([middle] if middle else []), label]) for word, label in zip(words, labels, strict=True)] + [""]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("label_all_tokens", [False, True])
@pytest.mark.parametrize("kind", ["word_piece", "byte_pairs", "byte_pairs_without_blank"])
def test_labels_are_aligned_as_run_ner_aligns_them(probe, tmp_path, kinds, kind, label_all_tokens):
    tokenizer, peer = kinds[kind]
    path = written(tmp_path, "a.conll", columns(SENTENCES))
    for max_length in (64, 12):
        fields, learnt = read(probe, path=path, tokenizer=tokenizer, max_length=max_length, padding="max_length", label_all_tokens=label_all_tokens)
        assert learnt == {"classes": CLASSES}
        assert_same(fields, aligned(peer, SENTENCES, CLASSES, max_length, label_all_tokens), kind)
    assert (fields["labels"][4] >= 0).any()


def test_a_file_may_have_many_forms(probe, tmp_path, kinds):
    tokenizer, peer = kinds["word_piece"]
    common = {"tokenizer": tokenizer, "max_length": 40, "padding": "max_length"}
    expected = aligned(peer, SENTENCES, CLASSES, 40)
    rows = [{"tokens": words, "ner_tags": labels, "kinds": labels} for words, labels in SENTENCES]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    numbered = [{"words": words, "tags": [CLASSES.index(label) for label in labels]} for words, labels in SENTENCES]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(numbered), tmp_path / "numbers.parquet")
    own = {"words": "words", "labels": "tags", "classes": CLASSES}
    conllu = "# text = x\n" + "".join("1-2\tab\t_\t_\n" + "".join(f"{i}\t{word}\t_\t{label}\n" for i, (word, label) in enumerate(zip(*s, strict=True), 1)) + "\n"
                                      for s in SENTENCES)
    for path, more in [(written(tmp_path, "a.txt.gz", columns(SENTENCES)), {}), (written(tmp_path, "a.tsv", columns(SENTENCES, "\t")), {"labels": 2}),
                       (written(tmp_path, "b.txt", columns(SENTENCES, "   ", middle="", document=False).replace("\n", "\r\n")), {}),
                       (written(tmp_path, "labels_first.bio", "\n".join(" ".join(reversed(line.split())) for line in columns(SENTENCES, document=False).split("\n"))),
                        {"words": -1, "labels": 0}),
                       (written(tmp_path, "a.conllu", conllu), {}),
                       (written(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), {"labels": "kinds"}),
                       (str(tmp_path / "a.parquet"), {}), (str(tmp_path / "numbers.parquet"), own),
                       (written(tmp_path, "numbers.jsonl", "".join(json.dumps(row) + "\n" for row in numbered)), own)]:
        fields, learnt = read(probe, path=path, **common, **more)
        assert learnt == {"classes": CLASSES}, path
        assert_same(fields, expected, path)


def test_classes_go_by_their_names(probe, tmp_path, kinds):
    tokenizer, peer = kinds["word_piece"]
    common = {"tokenizer": tokenizer, "max_length": 40, "padding": "max_length"}
    path = written(tmp_path, "some.conll", columns(SENTENCES[1:3]))
    fields, _ = read(probe, {"classes": CLASSES}, path=path, **common)  # B-PER is not in this file
    assert_same(fields, aligned(peer, SENTENCES[1:3], CLASSES, 40), "by name")
    assert "some.conll:3: 'B-ORG' is not a class; known: B-LOC, O" in error_of(probe, {"classes": ["B-LOC", "O"]}, path=path, **common)
    rows = written(tmp_path, "some.jsonl", json.dumps({"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}) + "\n")
    assert "some.jsonl:1:ner_tags[1]: 'B-X' is not a class" in error_of(probe, {"classes": ["O"]}, path=rows, **common)
    numbers = written(tmp_path, "numbers.jsonl", json.dumps({"tokens": ["a", "b"], "ner_tags": [0, 2]}) + "\n")
    assert "numbers.jsonl:1:ner_tags[1]: '2' is not a class" in error_of(probe, path=numbers, classes=["O", "B-X"], **common)
    assert read(probe, path=numbers, **common)[1] == {"classes": ["0", "2"]}


WRONG = [
    ("a.conll", "a O\nb\n", {}, "a.conll:2: has 1 column, line 1 has 2"),
    ("a.conll", "word\n", {}, "a.conll:1: has one column; expected a word and its label"),
    ("a.conll", "a O\n", {"labels": 3}, "a.conll:1: has 2 columns, but labels is 3"),
    ("a.conll", "a O\n", {"words": "tokens"}, "a.conll:1: its columns have numbers, not names; write words: 0"),
    ("a.conll", "\n\n", {}, "a.conll: has no sentences"),
    ("a.tsv", "a\t\n", {}, "a.tsv:1: the label is missing"),
    ("a.jsonl", '{"tokens": ["a"], "ner_tags": []}\n', {}, "a.jsonl:1: has 1 words, but 0 labels"),
    ("a.jsonl", '{"tokens": ["a"], "ner_tag": ["O"]}\n', {}, "a.jsonl:1: has no key 'ner_tags'; did you mean ner_tag?"),
    ("a.jsonl", '{"tokens": "a", "ner_tags": ["O"]}\n', {}, "a.jsonl:1:tokens: expected a list, found string"),
    ("a.jsonl", '{"tokens": ["a"], "ner_tags": [1.5]}\n', {}, "a.jsonl:1:ner_tags: expected texts or integers, found number"),
    ("a.jsonl", '{"tokens": ["a", "b"], "ner_tags": ["O", 1]}\n', {}, "labels are texts in one place and integers in another"),
    ("a.jsonl", '{"tokens": ["a"], "ner_tags": ["O"]}\n', {"words": 0}, "its columns have names; write words: tokens"),
    ("a.parquet", "a O\n", {"encoding": "latin-1"}, "encoding: is for files of text"),
    ("a.conll", "a O\n", {"words": 1, "labels": 1}, "labels: is the column of the words"),
]


@pytest.mark.parametrize("name, content, more, said", WRONG)
def test_what_is_wrong_with_a_file_is_said_with_its_place(probe, tmp_path, kinds, name, content, more, said):
    assert said in error_of(probe, path=written(tmp_path, name, content), tokenizer=kinds["word_piece"][0], max_length=8, **more)


def test_every_parameter_has_a_test(probe):
    elsewhere = {"cache", "pad_to_multiple_of"}  # as EncodedTexts has them
    assert missing_rows({"TokenClassification": [p for p in probe.ask("catalog")["dataset"]["TokenClassification"] if p not in elsewhere]}, USED) == []


RECIPE = """
version: 1
name: tags
seed: 4
model: {{layers: [{{type: {type}, pretrained: {folder}, num_labels: {num_labels}}}]}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
metrics: [EntityF1, {{type: EntityPrecision, average: macro}}, {{type: EntityRecall, average: weighted}}, {{type: EntityF1, average: none, name: of}},
          {{type: Accuracy, class_dim: -1}}]
dataset:
  train: {{type: TokenClassification, path: {data}/train.conll, tokenizer: {tokenizer}, max_length: 20}}
  eval: {{type: TokenClassification, path: {data}/eval.jsonl, tokenizer: {tokenizer}, max_length: 20}}
dataloader: {{batch_size: 3, eval_batch_size: 2, shuffle: false}}
optimizer: {{type: AdamW, lr: 4e-3}}
training: {{max_steps: 20}}
evaluation: {{every: 20}}
checkpoint: {{every: 20}}
"""
DISTILBERT = LanguageModel(DistilBertForTokenClassification, DistilBertConfig, DISTILLED, dropout=("dropout", "attention_dropout"))


@pytest.mark.parametrize("model, kind", [(bert(BertForTokenClassification), "word_piece"), (roberta(RobertaForTokenClassification, vocab_size=330), "byte_pairs"),
                                         (DISTILBERT, "word_piece")], ids=str)
def test_a_training_gives_the_losses_of_transformers_and_the_scores_of_seqeval(tmp_path, kinds, model, kind):
    tokenizer, peer_tokenizer = kinds[kind]
    peer = model.saved(tmp_path / "peer", num_labels=len(CLASSES), **dict.fromkeys(model.dropout or BERT_DROPOUT, 0.0))
    train, evaluated = SENTENCES, SENTENCES[3::-1]  # fewer classes, in another order
    written(tmp_path, "train.conll", columns(train))
    written(tmp_path, "eval.jsonl", "".join(json.dumps({"tokens": w, "ner_tags": t}) + "\n" for w, t in evaluated))
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(type=model.type, folder=tmp_path / "peer", num_labels=len(CLASSES), data=tmp_path, tokenizer=tokenizer))
    processes = ["distributed_type=MULTI_CPU", "num_processes=2", "dataloader.eval_batch_size=1"] if kind == "byte_pairs" else []
    lines, run = reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "run")

    data = aligned(peer_tokenizer, train, CLASSES, 20)
    if not model.type.startswith("Bert"):
        del data["token_type_ids"]
    optimizer = torch.optim.AdamW(peer.parameters(), lr=4e-3)
    peer.train()
    losses = []
    for step in range(20):
        batch = {name: tensor[3 * (step % 2): 3 * (step % 2) + 3] for name, tensor in data.items()}
        loss = peer(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert reference.losses_of(lines) == pytest.approx(losses, rel=1e-4)

    data = aligned(peer_tokenizer, evaluated, CLASSES, 20)
    labels = data.pop("labels")
    if not model.type.startswith("Bert"):
        del data["token_type_ids"]
    with torch.no_grad():
        logits = peer.eval()(**data).logits
    actual, predicted = ([[CLASSES[tag] for tag in row[counts]] for row, counts in zip(rows, labels != -100, strict=True)] for rows in (labels, logits.argmax(-1)))
    expected = {"eval/entity_f1": entity_score("f1", actual, predicted, "micro"),
                "eval/entity_precision": entity_score("precision", actual, predicted, "macro"),
                "eval/entity_recall": entity_score("recall", actual, predicted, "weighted"),
                "eval/loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()}
    of_types = entity_score("f1", actual, predicted, "none")
    expected |= {f"eval/of/{type_}": of_types.get(type_, 0.0) for type_ in ("LOC", "ORG", "PER")}
    [own] = [line for line in lines if line["split"] == "eval"]
    assert {name: own[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    again = subprocess.run([CALLED, "eval", str(run), "--json"], capture_output=True, text=True, check=True)
    assert {name: json.loads(again.stdout)[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    if processes:
        lines, _ = reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "ranks", *processes, "dataloader.batch_size=1",
                                          "training.gradient_accumulation_steps=1", "optimizer.lr=0")
        [of_ranks] = [line for line in lines if line["split"] == "eval"]
        lines, _ = reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "alone", "optimizer.lr=0")
        [alone] = [line for line in lines if line["split"] == "eval"]
        assert {name: of_ranks[name] for name in expected} == pytest.approx({name: alone[name] for name in expected}, rel=1e-5)


def test_what_is_cut_is_said(tmp_path, kinds):
    written(tmp_path, "train.conll", columns(SENTENCES))
    (tmp_path / "recipe.yaml").write_text(f"""
version: 1
name: cut
model: {{layers: [{{type: BertForTokenClassification, num_labels: 6, hidden_size: 8, num_attention_heads: 1, num_hidden_layers: 1}}]}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
dataset: {{train: {{type: TokenClassification, path: train.conll, tokenizer: {kinds["word_piece"][0]}, max_length: 29}}}}
optimizer: SGD
training: {{max_steps: 1}}
output_dir: run
""")
    done = subprocess.run([CALLED, "recipe.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "1 line of -DOCSTART- is left out" in said
    assert "1 of 6 sentences is longer than max_length (29 tokens); " in said and "words with their labels are cut off" in said
    assert "the tokenizer makes no token of 1 word, whose label is not learnt" in said


def test_predictions_as_conll_are_those_in_json_and_our_own_data_set_reads_them(tmp_path, kinds):
    written(tmp_path, "train.conll", columns(SENTENCES))
    recipe = f"""
version: 1
name: tags
seed: 2
model: {{layers: [{{type: BertForTokenClassification, num_labels: {len(CLASSES)}, hidden_size: 8, num_attention_heads: 1, num_hidden_layers: 1}}]}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
metrics: [{{type: Accuracy, class_dim: -1}}]
dataset:
  train: {{type: TokenClassification, path: train.conll, tokenizer: {kinds["word_piece"][0]}, max_length: 29}}
  eval: {{type: TokenClassification, path: train.conll, tokenizer: {kinds["word_piece"][0]}, max_length: 29}}
dataloader: {{batch_size: 2}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{max_steps: 2}}
output_dir: run
"""
    (tmp_path / "recipe.yaml").write_text(recipe)

    def trainrun(*words, code=0):
        done = subprocess.run([CALLED, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    trainrun("recipe.yaml")
    said = trainrun("predict", "run", "train.conll", "--output", "tags.conll")
    trainrun("predict", "run", "train.conll", "--output", "tags.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "tags.jsonl").read_text().splitlines()]
    unseen = sum(tag is None for line in lines for tag in line["tags"])
    words = sum(len(line["words"]) for line in lines)
    assert unseen > 1
    assert f"{unseen} words of {words} got the tag O without having been seen by the model" in said
    found = [[tuple(line.split("\t")) for line in sentence.splitlines()] for sentence in (tmp_path / "tags.conll").read_text().split("\n\n") if sentence]
    assert found == [list(zip(line["words"], [tag or "O" for tag in line["tags"]], strict=True)) for line in lines]
    said = trainrun("eval", "run", "dataset.eval.path=tags.conll", "--json")  # which our own data set reads
    figures = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert figures["eval/accuracy"] == 1.0
    assert (tmp_path / "tags.conll").read_text() == trainrun("predict", "run", "train.conll", "--format", "conll").split("note:")[0]
    assert "these predictions have no words; name the file of sentences" in trainrun("predict", "run", "--format", "conll", code=1)
    (tmp_path / "odd.jsonl").write_text(json.dumps({"tokens": ["New York", "a\tb"], "ner_tags": ["O", "O"]}) + "\n")
    assert r"the word \"a\tb\" contains a tab" .replace("\\\"", '"') in trainrun("predict", "run", "odd.jsonl", "--format", "conll", code=1)


def test_conll_is_for_words_alone(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind\n1,0\n2,1\n")
    (tmp_path / "recipe.yaml").write_text("model: {layers: [{type: Linear, out_features: 2}]}\nloss: CrossEntropyLoss\n"
                                          "dataset: {train: {type: CSV, path: t.csv, label: kind}}\noptimizer: SGD\ntraining: {max_steps: 1}\noutput_dir: run\n")
    subprocess.run([CALLED, "recipe.yaml"], cwd=tmp_path, capture_output=True, check=True)
    done = subprocess.run([CALLED, "predict", "run", "t.csv", "--output", "tags.conll"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "a model of words (TokenClassification), and this one is of CSV data; write --output FILE.csv" in done.stderr
    assert not [path for path in tmp_path.iterdir() if "conll" in path.name]
