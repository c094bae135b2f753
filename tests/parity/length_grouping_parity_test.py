"""`dataloader.group_by_length` against transformers' own function: the order, ranks, resumes, and the padding that it saves."""

import json
import re
import subprocess

import pytest
import safetensors.torch
import tokenizers
import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

from probe import ProbeError, assert_same
from reference import losses_of, run_trainrun
from tests.program import CALLED

COUNT, SEED = 150, 5
LENGTHS = [1 + int(x) for x in torch.randint(40, (COUNT,), generator=torch.Generator().manual_seed(1))]
# Text i begins with a word of its own, so that a batch tells which samples it has.
TEXTS = [" ".join([f"w{i}"] + ["x"] * (length - 1)) for i, length in enumerate(LENGTHS)]
RECIPE = """
version: 1
name: grouped
seed: 5
model: {{layers: [{{type: Embedding, num_embeddings: 160, embedding_dim: 4}}, {{type: Mean, dim: 1}}, {{type: Linear, out_features: 2}}]}}
loss: CrossEntropyLoss
dataset: {{train: {train}}}
dataloader: {{batch_size: 8, group_by_length: true, num_workers: 0}}
optimizer: {{type: AdamW, lr: 0.01}}
training: {{num_epochs: 2}}
checkpoint: {{every: 7, keep_last: null}}
"""
CLASSES = "{type: TextClassification, path: FOLDER/a.jsonl, tokenizer: FOLDER/tokenizer.json, max_length: 64}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lengths")
    vocabulary = {"<pad>": 0, "x": 1, "</s>": 2, **{f"w{i}": i + 3 for i in range(COUNT)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text, "label": i % 2}) + "\n" for i, text in enumerate(TEXTS)))
    (folder / "pairs.jsonl").write_text("".join(json.dumps({"prompt": f"w{i}", "chosen": " x" * (i % 3 + 1), "rejected": " x" * (LENGTHS[i] + 1)}) + "\n"
                                                for i in range(COUNT)))
    (folder / "chats.jsonl").write_text("".join(json.dumps({"prompt": text, "completion": " x"}) + "\n" for text in TEXTS))
    (folder / "table.csv").write_text("x,label\n" + "0.5,1\n" * 12)
    return folder


def recipe_of(folder, train=CLASSES):
    path = folder / "r.yaml"
    path.write_text(RECIPE.format(train=train.replace("FOLDER", str(folder))))
    return str(path)


def batches(probe, recipe, *overrides, rank=0, world_size=1, epoch=0, start=0, field="input_ids"):
    """Of each batch the samples, and its width."""
    _, given = probe.ask("batches", recipe=recipe, overrides=list(overrides), rank=rank, world_size=world_size, epoch=epoch, start=start)
    tensors = {int(name.split(".")[0]): tensor for name, tensor in given.under("output").items() if name.endswith("." + field)}
    return [([int(first) - 3 for first in tensors[number][:, 0]], tensors[number].shape[1]) for number in sorted(tensors)]


def by_transformers(unit, epoch, lengths=LENGTHS):
    return get_length_grouped_indices(lengths, unit, generator=torch.Generator().manual_seed(SEED + epoch))


@pytest.mark.parametrize("batch_size, accumulation", [(8, 1), (4, 3), (1, 1), (50, 1), (200, 1)])
def test_the_order_is_that_of_transformers(probe, folder, batch_size, accumulation):
    for epoch in (0, 3):
        found = batches(probe, recipe_of(folder), f"dataloader.batch_size={batch_size}", f"training.gradient_accumulation_steps={accumulation}", epoch=epoch)
        order = [sample for samples, _ in found for sample in samples]
        assert order == by_transformers(batch_size * accumulation, epoch)
        assert sorted(order) == list(range(COUNT)) and LENGTHS[order[0]] == max(LENGTHS)
        assert [width for _, width in found] == [max(LENGTHS[sample] for sample in samples) for samples, _ in found]


@pytest.mark.parametrize("world_size, batch_size", [(2, 12), (3, 8)])
def test_any_number_of_ranks_sees_the_same_global_batches(probe, folder, world_size, batch_size):
    one = batches(probe, recipe_of(folder), "dataloader.batch_size=24", epoch=1)
    ranks = [batches(probe, recipe_of(folder), f"dataloader.batch_size={batch_size}", rank=rank, world_size=world_size, epoch=1) for rank in range(world_size)]
    for number, (samples, _) in enumerate(one):
        together = [sample for each in zip(*(ranks[rank][number][0] for rank in range(world_size)), strict=True) for sample in each]
        assert together[:len(samples)] == samples, number


def test_an_epoch_is_gone_on_with_at_any_batch(probe, folder):
    whole = batches(probe, recipe_of(folder), epoch=1)
    for start in (1, 7, len(whole) - 1):
        assert batches(probe, recipe_of(folder), epoch=1, start=start) == whole[start:]


def test_a_resume_ends_in_the_same_bits_and_two_ranks_in_the_same_losses(folder, tmp_path):
    lines, whole = run_trainrun(recipe_of(folder), tmp_path / "whole")
    rest, run = run_trainrun(recipe_of(folder), tmp_path / "rest", f"checkpoint.resume={whole}/checkpoints/step-00000014")
    assert losses_of(rest) == losses_of(lines)[14:] and len(losses_of(rest)) == 24
    last = [safetensors.torch.load_file(each / "checkpoints/latest/model.safetensors") for each in (run, whole)]
    assert_same(last[0], last[1], "weights of the resumed run")
    two, _ = run_trainrun(recipe_of(folder), tmp_path / "two", "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=4")
    # each rank fills its rows up to its own longest, over which Mean goes as well: the first batch's rows are alike in both
    assert len(losses_of(two)) == len(losses_of(lines))


def padding_of(found):
    places = sum(len(samples) * width for samples, width in found)
    return 1 - sum(LENGTHS[sample] for samples, _ in found for sample in samples) / places


def test_the_padding_falls_by_what_is_said(probe, folder):
    grouped, shuffled = (100 * padding_of(batches(probe, recipe_of(folder), f"dataloader.group_by_length={on}")) for on in ("true", "false"))
    assert grouped < shuffled / 2

    def said(*overrides):
        done = subprocess.run([CALLED, "data", recipe_of(folder), *overrides], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    on = re.search(r"group_by_length: ([\d.]+) % of the first epoch's batches is padding; without it, ([\d.]+) %", said())
    assert [float(x) for x in on.groups()] == pytest.approx([grouped, shuffled], abs=0.06)
    off = re.search(r"([\d.]+) % of the first epoch's batches is padding; with dataloader.group_by_length: true, ([\d.]+) %", said("dataloader.group_by_length=false"))
    assert [float(x) for x in off.groups()] == pytest.approx([shuffled, grouped], abs=0.06)
    explained = subprocess.run([CALLED, "explain", recipe_of(folder)], capture_output=True, text=True, timeout=100, check=False)
    assert "texts of similar length together; `trainrun data` shows how much padding it saves" in " ".join(explained.stdout.split())


CHATS = "{type: Chat, path: FOLDER/chats.jsonl, tokenizer: FOLDER/tokenizer.json, max_length: 64}"
PAIRS = "{type: PreferencePairs, path: FOLDER/pairs.jsonl, tokenizer: FOLDER/tokenizer.json, max_length: 64}"
LANGUAGE = ["model={layers: [{type: Embedding, num_embeddings: 160, embedding_dim: 4}, {type: Linear, out_features: 160}, {type: Permute, dims: [0, 2, 1]}]}"]


@pytest.mark.parametrize("train, field, lengths, overrides", [
    (CHATS, "input_ids", [length + 1 for length in LENGTHS], LANGUAGE),
    (PAIRS, "rejected_input_ids", [max(length + 2, i % 3 + 2) for i, length in enumerate(LENGTHS)], ["model={layers: [{type: Embedding, inputs: [chosen_input_ids], num_embeddings: 160, "
     "embedding_dim: 4}, {type: Linear, out_features: 160}, {type: Permute, name: scores, dims: [0, 2, 1]}]}",
      "loss={type: CrossEntropyLoss, inputs: [scores, chosen_labels]}"]),
    ("{type: Split, fractions: [0.6, 0.4], part: 0, shuffle: false, dataset: " + CLASSES + "}", "input_ids", LENGTHS[:90], []),
    ("{type: Concat, datasets: [" + CLASSES + "]}", "input_ids", LENGTHS, []),
], ids=["chats", "pairs", "split", "concat"])
def test_all_data_that_are_filled_up_know_their_lengths(probe, folder, train, field, lengths, overrides):
    found = batches(probe, recipe_of(folder, train), *overrides, field=field)
    assert [sample for samples, _ in found for sample in samples] == by_transformers(8, 0, lengths)
    assert [width for _, width in found] == [max(lengths[sample] for sample in samples) for samples, _ in found]


@pytest.mark.parametrize("train, overrides, message", [
    ("{type: CSV, path: FOLDER/table.csv, label: label}", ["model={layers: [{type: Linear, out_features: 2}]}"],
     "dataloader.group_by_length: cannot order CSV: its samples have no lengths of their own"),
    (CLASSES.replace("max_length: 64", "max_length: 64, padding: max_length"), [],
     "cannot order TextClassification: its texts are all filled up to max_length; write padding: longest"),
    ("{type: Mixture, of: [{dataset: " + CLASSES + ", weight: 1}]}", [], "cannot order Mixture: it draws its samples itself"),
    (CLASSES, ["dataloader.shuffle=false"], "sorts what was shuffled, but shuffle: false asks for the data's own order"),
    (CLASSES, ["dataloader.sampler=Stratified"], "is an order of its own, but sampler asks for another; leave out one of them"),
])
def test_what_cannot_be_grouped_is_refused(probe, folder, train, overrides, message):
    with pytest.raises(ProbeError, match=re.escape(message)):
        batches(probe, recipe_of(folder, train), *overrides)
