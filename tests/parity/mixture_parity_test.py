"""Mixtures of data sets: their shares, their order as a function of seed and epoch, ranks and resumes."""

import collections
import json
import math
import re
import subprocess

import numpy as np
import pytest
import torch

import reference
from chat_templates import said
from probe import ProbeError, assert_same, missing_rows
from reference import training_losses
from tests.program import CALLED

pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

from generate_chat_parity_test import save_tokenizer  # noqa: E402

USED = []  # what the tests below say of mixtures: every parameter must be among it


def part(folder, name, size, first):
    """A data set whose samples are the numbers from `first` on."""
    np.savez(folder / f"{name}.npz", x=np.arange(first, first + size, dtype=np.float32)[:, None], label=np.arange(size) % 3)
    return {"type": "TensorFile", "path": str(folder / f"{name}.npz"), "num_classes": 3}


def mixture(sets, weights, **more):
    return {"type": "Mixture", "of": [{"dataset": data} | ({} if weight is None else {"weight": weight}) for data, weight in zip(sets, weights)]} | more


def epochs(probe, spec, count, seed=5):
    """Of each epoch the numbers of the samples, in the order in which they are drawn."""
    USED.append(spec)
    orders = []
    for epoch in range(count):
        _, results = probe.ask("dataset", spec=spec, seed=seed, epoch=epoch)
        x = results.under("output")["x"].flatten()
        orders.append(x[results.under("order")["0"]].long().tolist())
    return orders


def error_of(probe, spec):
    with pytest.raises(ProbeError) as error:
        probe.ask("dataset", spec=spec)
    return str(error.value)


SIZES = (40, 500, 90)
FIRSTS = (0, 1000, 2000)


@pytest.fixture(name="sets")
def three_sets(tmp_path):
    return [part(tmp_path, f"p{i}", size, first) for i, (size, first) in enumerate(zip(SIZES, FIRSTS))]


def set_of(number):
    return number // 1000


@pytest.mark.parametrize("weights", [(0.2, 0.7, 0.1), (1, 1, 1), (3, None, 0.5), (0.3, 0, 0.1)], ids=str)
@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted", 777])
def test_shares_lengths_and_rounds(probe, sets, weights, stop):
    how = {"num_samples": stop} if isinstance(stop, int) else {"stop": stop}
    orders = epochs(probe, mixture(sets, weights, **how), 4)
    values = [1 if w is None else w for w in weights]
    shares = [w / sum(values) for w in values]
    needed = [size / share for size, share in zip(SIZES, shares) if share > 0]
    expected = {"first_exhausted": math.floor(min(needed) + 1e-9), "all_exhausted": math.ceil(max(needed) - 1e-9)}.get(stop, stop)
    for order in orders:
        assert abs(len(order) - expected) <= (0 if isinstance(stop, int) else 2)
        counts = collections.Counter(map(set_of, order))
        for i, share in enumerate(shares):
            assert abs(counts[i] - share * len(order)) <= 2
            times = collections.Counter(number for number in order if set_of(number) == i)
            if times:
                least = counts[i] // SIZES[i]
                assert set(times.values()) <= {least, least + 1} and (least == 0 or len(times) == SIZES[i])
            if stop == "first_exhausted":
                assert counts[i] <= SIZES[i]
            if stop == "all_exhausted" and share > 0:
                assert len({number for number in order if set_of(number) == i}) == SIZES[i]
        for begin in range(0, len(order) - 50, 50):  # every stretch has its share
            stretch = collections.Counter(map(set_of, order[begin:begin + 50]))
            assert all(abs(stretch[i] - 50 * share) <= 2 for i, share in enumerate(shares))
    for i, size in enumerate(SIZES):  # of which an epoch needs a part, the next epochs draw other parts
        drawn = [[number for number in order if set_of(number) == i] for order in orders]
        together = max(size // max(len(drawn[0]), 1), 1)
        for first in range(0, len(orders), together):
            group = sum(drawn[first:first + together], [])
            assert len(set(group)) == min(len(group), size) or not group
        assert not drawn[0] or len({tuple(one) for one in drawn}) == len(drawn)


def test_the_order_follows_from_seed_and_epoch_alone(probe, sets):
    spec = mixture(sets, (0.2, 0.7, 0.1))
    orders = epochs(probe, spec, 3)
    assert orders == epochs(probe, spec, 3) and len({tuple(order) for order in orders}) == 3
    assert orders != epochs(probe, spec, 3, seed=6)


def test_what_cannot_be_mixed_is_refused(probe, sets, tmp_path):
    for weights, expected in [((-1, 1, 1), "must be >= 0"), ((0, 0, 0), "all weights are 0"), ((float("inf"), 1, 1), ""), ((1e308, 1e308, 1e308), "not a finite"),
                              ((float("nan"), 1, 1), ""), (("a", 1, 1), "expected a number")]:
        assert expected in error_of(probe, mixture(sets, weights)), weights
    assert "expected at least one data set" in error_of(probe, {"type": "Mixture", "of": []})
    assert "more than 2^53 samples" in error_of(probe, mixture(sets, (1e-300, 1, 1), stop="all_exhausted"))
    assert "their numbers alone" in error_of(probe, mixture(sets, (1e-12, 1, 1), stop="all_exhausted"))
    assert "write one of them" in error_of(probe, mixture(sets, (1, 1, 1), stop="all_exhausted", num_samples=3))
    np.savez(tmp_path / "other.npz", z=np.ones((4, 1), np.float32), label=np.arange(4) % 3)
    other = {"type": "TensorFile", "path": str(tmp_path / "other.npz"), "num_classes": 3}
    assert "the fields of data set 1 are not those of data set 0: z [1] Float, label [] Long; expected x [1] Float" in error_of(
        probe, mixture([sets[0], other], (1, 1)))
    two = part(tmp_path, "two", 6, 0) | {"num_classes": 4}
    assert "the classes of 'label' in data set 1 are not those of data set 0: 4 classes; expected 3 classes" in error_of(probe, mixture([sets[0], two], (1, 1)))
    for outer in ({"type": "Concat", "datasets": [mixture(sets, (1, 1, 1))]}, {"type": "Split", "dataset": mixture(sets, (1, 1, 1))},
                  mixture(sets, (1, 1, 1)) | {"subset": 3}, mixture([mixture(sets, (1, 1, 1)), sets[0]], (1, 1))):
        assert "cannot take its samples from a Mixture" in error_of(probe, outer)
    weighted = {"type": "Concat", "datasets": sets[:2], "weights": [1, 2]}
    assert "data set 1 of the Mixture has weights of its own" in error_of(probe, mixture([sets[0], weighted], (1, 1)))


RECIPE = """\
version: 1
seed: 5
model: {layers: [{type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
dataset: {train: DATA, transforms: [{type: Standardize, field: x}, {type: GaussianNoise, field: x, sigma: 0.1}]}
dataloader: {batch_size: 8, drop_last: true}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 2}
"""


def recipe_of(folder, data):
    (folder / "r.yaml").write_text(RECIPE.replace("DATA", json.dumps(data)))
    return str(folder / "r.yaml")


def test_resumes_and_workers_and_ranks_train_on_the_same_batches(sets, tmp_path):
    recipe = recipe_of(tmp_path, mixture(sets, (0.2, 0.7, 0.1), num_samples=130))
    common = ["checkpoint={every: 1, keep_last: null}"]
    whole = training_losses(recipe, tmp_path / "whole", *common)
    assert len(whole) == 32 == len(set(whole))
    assert training_losses(recipe, tmp_path / "workers", *common, "dataloader.num_workers=3") == whole
    for step, name in [(5, "step-00000005"), (16, "epoch-0001"), (20, "step-00000020")]:
        resumed = training_losses(recipe, tmp_path / name, *common, f"checkpoint.resume={tmp_path / 'whole/checkpoints' / name}")
        assert resumed[-(32 - step):] == whole[step:]
    for ranks in (2, 4):
        lines, _ = reference.run_trainrun(recipe, tmp_path / f"ranks{ranks}", *common, "distributed_type=MULTI_CPU", f"num_processes={ranks}",
                                          f"dataloader.batch_size={8 // ranks}")
        assert reference.losses_of(lines) == pytest.approx(whole, rel=1e-5)


def test_a_recipe_that_would_draw_otherwise_is_refused_and_explain_knows_the_length(sets, tmp_path):
    recipe = recipe_of(tmp_path, mixture(sets, (1, 1, 1), num_samples=64))
    for change, expected in [("dataloader.sampler=WeightedRandom", "there can be no dataloader.sampler"), ("dataloader.shuffle=false", "dataloader.shuffle must be true")]:
        done = subprocess.run([CALLED, "validate", recipe, change], capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and expected in done.stderr + done.stdout
    said = subprocess.run([CALLED, "explain", recipe], capture_output=True, text=True, timeout=120).stdout
    assert re.search(r"samples +training 64,", said) and re.search(r"steps +total 16 in 2 epochs", said), said


TEXTS = """\
version: 1
seed: 3
model: {layers: [{type: Embedding, num_embeddings: 100, embedding_dim: 4}, {type: Mean, dim: 1}, {type: Linear, out_features: 2}]}
loss: CrossEntropyLoss
dataset: {train: DATA}
dataloader: {batch_size: 6}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""


def test_texts_of_several_files_are_padded_to_the_longest_of_the_batch(probe, tmp_path):
    """The longest text of a batch may be of another data set."""
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1} | {f"w{i}": i + 2 for i in range(90)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.enable_padding(pad_id=1, pad_token="[PAD]")
    made.save(str(tmp_path / "tokenizer.json"))
    words, sets = {}, []
    for part, length in enumerate([3, 9]):
        rows = [" ".join(f"w{(part * 40 + i + j) % 90}" for j in range(i % length + 1)) for i in range(12)]
        words |= {row: part for row in rows}
        (tmp_path / f"{part}.tsv").write_text("text\tlabel\n" + "".join(f"{row}\t{'ab'[part]}\n" for row in rows))
        sets.append({"type": "TextClassification", "path": str(tmp_path / f"{part}.tsv"), "tokenizer": str(tmp_path / "tokenizer.json"), "max_length": 20,
                     "classes": ["a", "b"]})
    (tmp_path / "r.yaml").write_text(TEXTS.replace("DATA", json.dumps(mixture(sets, (1, 1)))))
    _, given = probe.ask("batches", recipe=str(tmp_path / "r.yaml"), overrides=[], rank=0, world_size=1, epoch=0, start=0)
    batches = given.under("output")
    seen = collections.Counter()
    for number in range(4):
        ids, mask, labels = (batches[f"{number}.{field}"] for field in ("input_ids", "attention_mask", "labels"))
        assert ids.shape == mask.shape and ids.shape[1] == mask.sum(1).max()
        for row in range(len(ids)):
            text = " ".join(f"w{token - 2}" for token in ids[row][mask[row] == 1].tolist())
            assert words[text] == labels[row] and (ids[row][mask[row] == 0] == 1).all()
            seen[text] += 1
    assert seen == collections.Counter(words.keys())
    other = sets[1] | {"tokenizer": str(tmp_path / "other.json")}
    for joined in (mixture([sets[0], other], (1, 1)), {"type": "Concat", "datasets": [sets[0], other]}):
        assert "data set 1 reads its texts by the tokenizer '" in error_of(probe, joined)
    swapped = sets[1] | {"classes": ["b", "a"]}
    assert "the classes of 'labels' in data set 1 are not those of data set 0: b, a; expected a, b" in error_of(probe, mixture([sets[0], swapped], (1, 1)))


def test_chats_of_several_files_are_padded_to_the_longest_of_the_batch(probe, tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1} | {f"w{i}": i + 2 for i in range(90)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    (tmp_path / "tokenizer").mkdir()
    made.save(str(tmp_path / "tokenizer/tokenizer.json"))
    (tmp_path / "tokenizer/tokenizer_config.json").write_text('{"pad_token": "[PAD]"}')
    sets = []
    for part, length in enumerate([3, 9]):
        rows = [{"prompt": f"w{part} ", "completion": " ".join(f"w{10 + j}" for j in range(i % length + 1))} for i in range(12)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        sets.append({"type": "Chat", "path": str(tmp_path / f"{part}.jsonl"), "tokenizer": str(tmp_path / "tokenizer"), "max_length": 20})
    layers = "[{type: Embedding, num_embeddings: 100, embedding_dim: 4}, {type: Linear, out_features: 100}]"
    (tmp_path / "r.yaml").write_text(re.sub(r"layers: .*]}]?", f"layers: {layers}}}", TEXTS).replace("CrossEntropyLoss", "CausalLMLoss").replace(
        "DATA", json.dumps(mixture(sets, (1, 1)))))
    _, given = probe.ask("batches", recipe=str(tmp_path / "r.yaml"), overrides=[], rank=0, world_size=1, epoch=0, start=0)
    batches = given.under("output")
    rows = 0
    for number in range(4):
        ids, mask, labels = (batches[f"{number}.{field}"] for field in ("input_ids", "attention_mask", "labels"))
        lengths = mask.ne(0).sum(1)
        assert ids.shape[1] == lengths.max()
        for row, length in enumerate(lengths.tolist()):
            assert (ids[row, length:] == 1).all() and (labels[row, length - 1:] == -100).all()
            assert labels[row, :length - 1].tolist() == ids[row, 1:length].tolist() and ids[row, 0] in (2, 3)
            rows += 1
    assert rows == 24


def test_every_parameter_has_a_test(probe):
    assert missing_rows({"Mixture": probe.ask("catalog")["dataset"]["Mixture"]}, USED) == []


# --- Texts beside conversations


@pytest.fixture(name="texts")
def texts_and_chats(tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "text.txt").write_text(" ".join(f"w{i * 7 % 90}" for i in range(60)))
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps({"text": " ".join(["w1", "w2", "w3"] * n)}) + "\n" for n in (1, 5, 2)))
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": said(f"w{i}", *["w3 w4"] * (1 + 2 * (i % 2)))}) + "\n" for i in range(5)))
    return tmp_path


@pytest.mark.parametrize("packing", [False, True], ids=["alone", "packed"])
@pytest.mark.parametrize("more", [{"path": "text.txt"}, {"path": "documents.jsonl", "documents": "separate"}], ids=["joined", "separate"])
@pytest.mark.parametrize("chats_first", [False, True], ids=["texts_first", "chats_first"])
def test_texts_beside_chats_have_their_fields_and_padding(probe, texts, more, packing, chats_first):
    """A batch has the fields of both; what is shorter is filled up, and the mask says so."""
    text = {"type": "TextLM", "tokenizer": str(texts), "block_size": 8} | more | {"path": str(texts / more["path"])}
    chat = {"type": "Chat", "path": str(texts / "chats.jsonl"), "tokenizer": str(texts), "max_length": 12, "packing": packing}

    def read(spec):
        return probe.ask("dataset", spec=spec)[1].under("output")

    of_text, of_chat = read(text), read(chat)
    seen = of_text["labels"] != -100
    of_text["attention_mask"] = seen.long()
    of_text["position_ids"] = torch.arange(8).expand_as(of_text["input_ids"])
    expected = {}
    for name, tensor in of_chat.items():
        longer = torch.nn.functional.pad(of_text[name], (0, tensor.shape[1] - 8), value=-100 if name == "labels" else 0)
        expected[name] = torch.cat([tensor, longer] if chats_first else [longer, tensor])
    assert not seen.all() or "documents" not in more
    for spec in (mixture([chat, text] if chats_first else [text, chat], (1, 1)), {"type": "Concat", "datasets": [chat, text] if chats_first else [text, chat]}):
        assert_same(read(spec), expected, "texts beside chats")


def test_a_model_learns_from_texts_beside_chats(texts):
    (texts / "recipe.yaml").write_text(f"""
version: 1
name: both
model: {{layers: [{{type: LlamaForCausalLM, vocab_size: 99, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, num_attention_heads: 2}}]}}
loss: CausalLMLoss
dataset:
  train:
    type: Mixture
    of:
      - {{dataset: {{type: TextLM, path: {texts}/text.txt, tokenizer: {texts}, block_size: 8}}, weight: 0.5}}
      - {{dataset: {{type: Chat, path: {texts}/chats.jsonl, tokenizer: {texts}, max_length: 24}}, weight: 0.5}}
    num_samples: 12
dataloader: {{batch_size: 4}}
optimizer: {{type: AdamW, lr: 1e-2}}
training: {{num_epochs: 8}}
evaluation: {{every: null}}
""")
    lines, _ = reference.run_trainrun(str(texts / "recipe.yaml"), texts / "run")
    losses = reference.losses_of(lines)
    assert len(losses) == 24 and losses[-1] < losses[0] - 0.3
