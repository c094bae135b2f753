"""Language models: nanoGPT's character model against recipes/shakespeare_char.yaml, and losses that are means over all
tokens of a step, however it is cut into batches and ranks."""

import json
import math
import os
import pathlib
import subprocess

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

import reference
from draws import MASK, Draws
from tests.program import CALLED

TOLERANCE = 1e-4  # relative, of the loss at each step

# --- nanoGPT


class LayerNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return functional.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.heads = heads

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(n, t, c))


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = LayerNorm(size), Attention(size, heads), LayerNorm(size)
        self.c_fc, self.c_proj = nn.Linear(size, 4 * size, bias=False), nn.Linear(4 * size, size, bias=False)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(functional.gelu(self.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    def __init__(self, layers=4, heads=4, size=128, context=64, vocabulary=65):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, size), nn.Embedding(context, size)
        self.h = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.ln_f, self.lm_head = LayerNorm(size), nn.Linear(size, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    def state_for_recipe(self):
        names = {".attn.c_attn.weight": ".attn.in_proj_weight", ".attn.c_proj.weight": ".attn.out_proj.weight"}
        state = {}
        for name, tensor in self.state_dict().items():
            for old, new in names.items():
                name = name.replace(old, new)
            state[name] = tensor.clone()
        return state


def rate(step, lr=3e-3, least=1e-4, warmup=100, decay=2000):
    """nanoGPT's get_lr, with the recipe's rate."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    return least + 0.5 * (1 + math.cos(math.pi * (step - warmup) / (decay - warmup))) * (lr - least)


def test_shakespeare_char_is_nano_gpt(tmp_path):
    path = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "tinyshakespeare" / "input.txt"
    if not path.is_file():
        pytest.skip("no data: there is no tinyshakespeare in TRAINRUN_DATA")
    seed, batch_size, length, num_steps = 1337, 12, 64, 20
    text = path.read_text()
    characters = sorted(set(text))
    train = torch.tensor([characters.index(c) for c in text[: int(0.9 * len(text))]])
    torch.manual_seed(seed)
    model = NanoGPT()
    safetensors.torch.save_file(model.state_for_recipe(), tmp_path / "start.safetensors")
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0}], betas=(0.9, 0.99))
    draws = Draws(seed, 0, MASK)
    expected = []
    for step in range(num_steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        begins = [draws.of(step * batch_size + row).integer(len(train) - length) for row in range(batch_size)]
        ids, labels = (torch.stack([train[i + shift: i + shift + length] for i in begins]) for shift in (0, 1))
        loss = functional.cross_entropy(model(ids).view(-1, 65), labels.view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        expected.append(loss.item())

    lines, _ = reference.run_trainrun("recipes/shakespeare_char.yaml", tmp_path / "run", f"model.weights={tmp_path}/start.safetensors",
                                      f"training.max_steps={num_steps}", "evaluation.every=null", "checkpoint.every=null",
                                      "checkpoint.keep_best=null")

    found = [line for line in lines if line["split"] == "train"]
    assert [line["train/loss"] for line in found] == pytest.approx(expected, rel=TOLERANCE)
    assert [line["train/lr"] for line in found] == pytest.approx([rate(step) for step in range(num_steps)], rel=1e-6)
    assert [line["train/tokens_per_second"] for line in found] == pytest.approx(
        [64 * line["train/samples_per_second"] for line in found])
    assert expected[-1] < 0.95 * expected[0], "nothing was learned: the comparison says little"


# --- The mean over tokens

WORDS = "to be or not to be that is the question whether tis nobler in the mind to suffer slings and arrows".split()
TEXTS = [" ".join(WORDS[i: i + 1 + (7 * i) % 9]) for i in range(len(WORDS))]  # of very different lengths
LENGTH = 60
RECIPE = """
version: 1
name: tokens
seed: 5
model:
  layers:
    - {{type: Embedding, name: embedding, num_embeddings: 30, embedding_dim: 12}}
    - {{type: Linear, name: logits, out_features: 30}}
loss: {loss}
metrics: [{{type: Perplexity, class_dim: -1}}, {{type: Accuracy, class_dim: -1}}]
dataset:
  train: {{type: TextLM, path: {path}, documents: separate, block_size: 60}}
  eval: {{type: TextLM, path: {path}, documents: separate, block_size: 60}}
dataloader: {{batch_size: 2, eval_batch_size: 3}}
optimizer: {{type: SGD, lr: 0.5}}
training: {{num_epochs: 2}}
checkpoint: {{every: null}}
"""


def recipe_of(folder, loss, texts=TEXTS):
    data = folder / "texts.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(path=data, loss=loss))
    return str(path)


def rows_of(texts):
    characters = sorted(set("".join(texts)))
    ids, labels = torch.zeros(2, len(texts), LENGTH, dtype=torch.long)
    labels.fill_(-100)
    for row, text in enumerate(texts):
        tokens = torch.tensor([characters.index(c) for c in text])
        ids[row, : len(tokens) - 1], labels[row, : len(tokens) - 1] = tokens[:-1], tokens[1:]
    return ids, labels


def cross_entropy(model, ids, labels, rows):
    return functional.cross_entropy(model(ids[rows]).movedim(-1, 1), labels[rows])


@pytest.mark.parametrize("mixed", [False, True], ids=["one loss", "beside a mean over samples"])
@pytest.mark.parametrize("num_processes", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_token_counts_as_much_as_any_other_of_its_step(tmp_path, accumulation, num_processes, mixed):
    """Batches of 2 in windows of 4, on one or two ranks; the reference takes all documents of a step at once."""
    seed, batch_size = 5, 2
    ids, labels = rows_of(TEXTS)
    counted = labels.ne(-100).sum(1)
    assert counted.max() > 5 * counted.min()  # a mean of means would be another number
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(30, 12), nn.Linear(12, 30))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    expected = []
    for epoch in range(2):
        order = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(seed + epoch))
        order = torch.cat([order, order[: -len(order) % num_processes]])
        batches = [[own[i: i + batch_size] for i in range(0, len(own), batch_size)] for own in (order[r::num_processes] for r in range(num_processes))]
        for first in range(0, len(batches[0]), accumulation):
            window = [batch for own in batches for batch in own[first: first + accumulation]]
            whole = torch.cat(window)
            loss = cross_entropy(model, ids, labels, whole)
            if mixed:
                loss = loss + 0.5 * sum(len(batch) * cross_entropy(model, ids, labels, batch) for batch in window) / len(whole)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
    with torch.no_grad():
        logits = model(ids)
        mean = functional.cross_entropy(logits.movedim(-1, 1), labels).item()
        whole = 1.5 * mean if mixed else mean  # an evaluation is as one batch, whatever a step is
        right = (logits.argmax(-1) == labels)[labels != -100].double().mean().item()

    loss = "CausalLMLoss" if not mixed else ("[{type: CrossEntropyLoss, class_dim: -1, mean_over: targets, name: lm}, "
                                             "{type: CrossEntropyLoss, class_dim: -1, loss_weight: 0.5, name: plain}]")
    lines, _ = reference.run_trainrun(recipe_of(tmp_path, loss), tmp_path / "run", f"training.gradient_accumulation_steps={accumulation}",
                                      f"distributed_type={'MULTI_CPU' if num_processes > 1 else 'NO'}", f"num_processes={num_processes}")

    assert reference.losses_of(lines) == pytest.approx(expected, rel=TOLERANCE)
    last = lines[-1]
    assert last["eval/loss"] == pytest.approx(whole, rel=TOLERANCE)
    if mixed:
        assert last["eval/loss/lm"] == pytest.approx(mean, rel=TOLERANCE)
    assert last["eval/perplexity"] == pytest.approx(math.exp(mean), rel=TOLERANCE)
    assert last["eval/accuracy"] == pytest.approx(right)


def test_a_batch_of_which_no_token_counts_is_an_error(tmp_path):
    recipe = recipe_of(tmp_path, "{type: CausalLMLoss, ignore_index: 0}", ["abcde", "aaaaa"])
    for accumulation, of_step in ((1, (1, 2)), (2, (1,))):
        done = subprocess.run([CALLED, "--quiet", recipe, f"output_dir={tmp_path}/run", "dataloader.batch_size=1", "dataset.train.block_size=4", "dataset.eval.block_size=4",
                               f"training.gradient_accumulation_steps={accumulation}"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "no target of the batch counts: 'labels' is 0 (ignore_index) everywhere" in done.stderr
        assert any(f"training step {step} " in done.stderr for step in of_step) and "recipe.yaml:9:7: loss" in done.stderr


def test_mean_over_targets_needs_a_mean(tmp_path):
    recipe = recipe_of(tmp_path, "{type: CrossEntropyLoss, class_dim: -1, mean_over: targets, reduction: sum}")
    done = subprocess.run([CALLED, "validate", recipe], capture_output=True, text=True)
    assert done.returncode == 2 and "mean_over: is for reduction: mean" in done.stderr


# --- Durations and rates in tokens


def ended_by_tokens(tmp_path, name, max_tokens, *overrides):
    lines, folder = reference.run_trainrun(recipe_of(tmp_path, "CausalLMLoss"), tmp_path / name, f"training.max_tokens={max_tokens}",
                                           "training.num_epochs=100", "evaluation.every=null", "checkpoint.every=2", *overrides)
    return [line for line in lines if line["split"] == "train"], json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("num_processes, accumulation", [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_training_ends_after_the_step_in_which_so_many_tokens_have_been_seen(tmp_path, num_processes, accumulation):
    of_rank = math.ceil(len(TEXTS) / num_processes)
    batches = [min(2, of_rank - first) for first in range(0, of_rank, 2)] * 2  # samples, in two epochs
    half = len(batches) // 2
    windows = [sum(epoch[first: first + accumulation]) for epoch in (batches[:half], batches[half:]) for first in range(0, half, accumulation)]
    seen = [LENGTH * num_processes * sum(windows[: i + 1]) for i in range(3)]
    ranks = [f"distributed_type={'MULTI_CPU' if num_processes > 1 else 'NO'}", f"num_processes={num_processes}",
             f"training.gradient_accumulation_steps={accumulation}"]
    for asked, steps in ((1, 1), (seen[0], 1), (seen[0] + 1, 2), (seen[1], 2), (seen[2], 3)):
        lines, summary = ended_by_tokens(tmp_path, f"run-{asked}", asked, *ranks)
        assert summary["step"] == steps and summary["tokens"] == seen[steps - 1]
        assert summary["stopped"] == f"training.max_tokens, {asked}, have been seen"
        assert [line["train/tokens"] for line in lines] == seen[:steps]


def test_a_resumed_run_goes_on_counting_tokens(tmp_path):
    of_step = 2 * LENGTH
    recipe = recipe_of(tmp_path, "CausalLMLoss")
    common = ["training.num_epochs=100", "evaluation.every=null", "checkpoint.every=2"]
    whole, _ = reference.run_trainrun(recipe, tmp_path / "whole", *common, f"training.max_tokens={9 * of_step}")
    part, folder = reference.run_trainrun(recipe, tmp_path / "part", *common, f"training.max_tokens={4 * of_step}")
    rest, _ = reference.run_trainrun(recipe, tmp_path / "rest", *common, f"training.max_tokens={9 * of_step}", f"checkpoint.resume={folder}")
    losses = [reference.losses_of(lines) for lines in (part, rest, whole)]
    assert len(losses[0]) == 4 and losses[0] + losses[1] == losses[2]


def test_tokens_are_wanted_where_there_are_none(tmp_path):
    done = subprocess.run([CALLED, "validate", "recipes/digits_cnn.yaml", "training.max_tokens=100"], capture_output=True, text=True)
    assert done.returncode == 2 and "training.max_tokens: the batches have no field input_ids" in done.stderr


def test_the_log_tells_which_part_of_the_peak_is_used(tmp_path):
    peak = 1e9
    lines, _ = reference.run_trainrun(recipe_of(tmp_path, "CausalLMLoss"), tmp_path / "run", f"logging.peak_flops={peak}")
    found = [line for line in lines if line["split"] == "train"]
    of_token = 3 * 2 * 12 * 30  # a step is three forward passes of the one matrix product
    assert [line["train/mfu"] for line in found] == pytest.approx([of_token * line["train/tokens_per_second"] / peak for line in found], rel=1e-4)
    plain, _ = reference.run_trainrun(recipe_of(tmp_path, "CausalLMLoss"), tmp_path / "plain")
    assert not any("train/mfu" in line for line in plain)
