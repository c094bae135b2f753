"""The job of recipes/shakespeare_char.yaml on the CPU as users of nanoGPT write it: its model and its train.py, without torch.compile.
Prints figures as JSON."""

import argparse
import contextlib
import json
import math
import pathlib
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, SIZE, CONTEXT, BATCH = 4, 4, 128, 64, 12
WARMUP, DECAY, RATE, LEAST_RATE = 100, 2000, 3e-3, 1e-4  # nanoGPT's own rate is 1e-3


class LayerNorm(nn.Module):
    """nanoGPT's: torch.nn.LayerNorm with an optional bias."""

    def __init__(self, size):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), None

    def forward(self, x):
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(SIZE, 3 * SIZE, bias=False), nn.Linear(SIZE, SIZE, bias=False)
        self.resid_dropout = nn.Dropout(0.0)

    def forward(self, x):
        n, t, c = x.size()
        q, k, v = self.c_attn(x).split(SIZE, dim=2)
        k, q, v = (part.view(n, t, HEADS, c // HEADS).transpose(1, 2) for part in (k, q, v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(n, t, c)))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.gelu = nn.Linear(SIZE, 4 * SIZE, bias=False), nn.GELU()
        self.c_proj, self.dropout = nn.Linear(4 * SIZE, SIZE, bias=False), nn.Dropout(0.0)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = LayerNorm(SIZE), CausalSelfAttention(), LayerNorm(SIZE), MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, layers=LAYERS):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocabulary, SIZE), nn.Embedding(CONTEXT, SIZE), nn.Dropout(0.0)
        self.h = nn.ModuleList(Block() for _ in range(layers))
        self.ln_f, self.lm_head = LayerNorm(SIZE), nn.Linear(SIZE, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02)

    def forward(self, ids, targets):
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(0, ids.size(1))))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def rate(step):
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    ratio = min((step - WARMUP) / (DECAY - WARMUP), 1)
    return LEAST_RATE + 0.5 * (1 + math.cos(math.pi * ratio)) * (RATE - LEAST_RATE)


@torch.no_grad()
def estimate(model, data, context):
    """The loss over all of `data`, in consecutive blocks, as recipes/shakespeare_char.yaml evaluates."""
    rows = torch.from_numpy(data.astype(np.int64))
    count = (len(rows) - 1) // CONTEXT
    ids, targets = rows[: count * CONTEXT].view(count, -1), rows[1: count * CONTEXT + 1].view(count, -1)
    total = 0.0
    with context:
        for begin in range(0, count, 128):
            total += model(ids[begin: begin + 128], targets[begin: begin + 128]).item() * len(ids[begin: begin + 128])
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=pathlib.Path, help="the file input.txt of Tiny Shakespeare")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--bf16", action="store_true", help="under torch.autocast")
    parser.add_argument("--evaluate", action="store_true", help="print the loss of the validation part at the end")
    arguments = parser.parse_args()

    torch.manual_seed(1337)
    text = arguments.text.read_text()
    numbers = {c: i for i, c in enumerate(sorted(set(text)))}
    data = np.array([numbers[c] for c in text], dtype=np.uint16)
    train, val = np.split(data, [int(len(data) * 0.9)])
    context = torch.autocast("cpu", torch.bfloat16) if arguments.bf16 else contextlib.nullcontext()

    def get_batch():
        begins = torch.randint(len(train) - CONTEXT, (BATCH,))
        ids = torch.stack([torch.from_numpy(train[i: i + CONTEXT].astype(np.int64)) for i in begins])
        targets = torch.stack([torch.from_numpy(train[i + 1: i + 1 + CONTEXT].astype(np.int64)) for i in begins])
        return ids, targets

    model = GPT(len(numbers))
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))
    model.train()
    ids, targets = get_batch()
    for step in range(arguments.steps):
        if step == arguments.steps // 2:
            start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        with context:
            loss = model(ids, targets)
        ids, targets = get_batch()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            last = loss.item()
    seconds = time.perf_counter() - start
    figures = {"ms_per_step": 1e3 * seconds / (arguments.steps - arguments.steps // 2), "loss": last}
    if arguments.evaluate:
        figures["val_loss"] = estimate(model.eval(), val, context)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
