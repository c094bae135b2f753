"""Modules of Python that sequence_layers.py compares layers with: torch.nn's, with the inputs and outputs of
trainrun's, and what torch.nn lacks."""

import math

import torch
from torch import nn

from rows import Function


def recurrent(kind):
    """A recurrent module with its outputs in the order of trainrun: the sequence, h, (of an LSTM) c."""

    class Recurrent(kind):
        def forward(self, x, *states):
            first = states if kind is nn.LSTM else states[0] if states else None
            sequence, last = super().forward(x, first or None if kind is nn.LSTM else first)
            return (sequence, *last) if kind is nn.LSTM else (sequence, last)

    return Recurrent


RNN, GRU, LSTM = map(recurrent, (nn.RNN, nn.GRU, nn.LSTM))


class LSTMCell(nn.LSTMCell):
    def forward(self, x, h, c):
        return super().forward(x, (h, c))


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """Of sequences too, and with all log-probabilities."""

    def forward(self, x, target):
        rows = x.flatten(0, -2)
        output, loss = super().forward(rows, target.flatten())
        return output.view_as(target), loss, self.log_prob(rows).view(*x.shape[:-1], -1)


class WithParameter(nn.Module):
    """A Linear and a free parameter, which `join` combines."""

    def __init__(self, shape, init, join):
        super().__init__()
        self.x = nn.Linear(8, 6)
        self.own = nn.Parameter(init(torch.zeros(shape)))
        self.join = join

    def forward(self, x):
        return self.join(self.x(x), self.own)


class Weighted(nn.EmbeddingBag):
    def forward(self, bags, weights):
        return super().forward(bags, per_sample_weights=weights)


def padding(n: int, t: int) -> torch.Tensor:
    """[N, T], true where a sequence is over: the first of them is whole, the second one shorter, …"""
    return torch.arange(t) >= t - torch.arange(n)[:, None]


def causal(num_queries: int, num_keys: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full((num_queries, num_keys), -torch.inf, dtype=like.dtype).triu(1)


class MultiheadAttention(nn.MultiheadAttention):
    """Without the weights, which trainrun does not give. `is_causal` is an explicit mask here: the hint hides what
    add_bias_kv adds."""

    def __init__(self, *arguments, is_causal=False, **options):
        super().__init__(*arguments, **options)
        self.is_causal = is_causal

    def forward(self, query, key=None, value=None, key_padding_mask=None):
        key = query if key is None else key
        value = key if value is None else value
        time = 1 if self.batch_first else 0
        mask = causal(query.size(time), key.size(time), query) if self.is_causal else None
        if key_padding_mask is not None and not key_padding_mask.is_floating_point():
            key_padding_mask = key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask == 0
            key_padding_mask = torch.zeros(key_padding_mask.shape, dtype=query.dtype).masked_fill(key_padding_mask, -torch.inf)
        return super().forward(query, key, value, key_padding_mask, need_weights=False, attn_mask=mask)[0]


class Conv1D(nn.Module):
    """As transformers has it, with GPT-2's initial weights."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return x @ self.weight if self.bias is None else x @ self.weight + self.bias


def attention(heads: int, key_heads: int | None = None, causal: bool = False, window: int | None = None, scale: float | None = None):
    """softmax(q k' / sqrt(d)) v of several heads, of which keys and values may have fewer; a last input says which keys count, and
    if it is causal also, by numbers, which belong to the same text."""

    def attend(query, key, value, mask=None):
        q, k, v = (x.unflatten(-1, (h, -1)).transpose(1, 2) for x, h in
                   ((query, heads), (key, key_heads or heads), (value, key_heads or heads)))
        k, v = (x.repeat_interleave(heads // x.size(1), 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) * (q.size(-1) ** -0.5 if scale is None else scale)
        i, j = torch.arange(q.size(2))[:, None], torch.arange(k.size(2))
        seen = torch.ones(len(i), len(j), dtype=torch.bool)
        if causal:
            seen &= (j <= i) & (j > i - (window or len(j)))
        if mask is not None:
            counts = ~mask if mask.dtype == torch.bool else mask != 0
            seen = seen & counts[:, None, None]
            if causal:
                seen &= (mask[:, None, :, None] == mask[:, None, None, :]) | ~counts[:, None, :, None]
        return (scores.masked_fill(~seen, -1e30).softmax(-1) @ v).transpose(1, 2).flatten(2)

    return lambda: Function(attend)


def rotary(head_dim: int, base: float = 10000.0, scale=lambda rates: rates, times: float = 1.0):
    """Su et al. 2021, with the pairs of features half a head apart, as transformers has them."""

    def turn(*inputs):
        given = inputs[-1] if not inputs[-1].is_floating_point() else None
        tensors = inputs if given is None else inputs[:-1]
        rates = scale(1 / base ** (torch.arange(0, head_dim, 2).double() / head_dim))
        positions = torch.arange(tensors[0].size(1))[None] if given is None else given
        turns = times * torch.polar(torch.ones(()).double(), positions[..., None].double() * rates)[:, :, None]  # [N, T, 1, D / 2]

        def turned(x):
            first, second = x.unflatten(-1, (-1, head_dim)).chunk(2, -1)
            result = torch.complex(first.double(), second.double()) * turns
            return torch.cat([result.real, result.imag], -1).flatten(2).to(x.dtype)

        results = tuple(turned(x) for x in tensors)
        return results if len(results) > 1 else results[0]

    return lambda: Function(turn)


def llama3(rates: torch.Tensor) -> torch.Tensor:
    """Llama 3.1's: waves longer than 20 positions eight times as long, those shorter than 10 as they are."""
    waves = 2 * math.pi / rates
    smooth = ((20 / waves - 1) / (2 - 1)).clamp(0, 1)
    return rates * (smooth + (1 - smooth) / 8)


def yarn(head_dim: int, base: float, fast: float = 32.0, slow: float = 1.0, truncate: bool = True):
    """Peng et al. 2023, as transformers has it, for four times 20 positions."""

    def scale(rates):
        low, high = (head_dim * math.log(20 / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
        if truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        slowed = ((torch.arange(head_dim // 2).double() - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        return rates / 4 * slowed + rates * (1 - slowed)

    return scale


class SelfAttention(MultiheadAttention):
    """Reads one tensor, under several names where a mask follows."""

    def forward(self, x, key_padding_mask=None):
        return super().forward(x, x, x, key_padding_mask)


class Encoder(nn.Module):
    """A mixin: the mask of `is_causal` is made of what flows in."""

    is_causal = False

    def forward(self, x, padding=None):
        time = 1 if self.batch_first else 0
        mask = causal(x.size(time), x.size(time), x) if self.is_causal else None
        if padding is not None:  # as the mask beside it
            padding = torch.zeros(padding.shape, dtype=x.dtype).masked_fill(padding, -torch.inf)
        return super().forward(x, mask, src_key_padding_mask=padding, is_causal=self.is_causal)


class Decoder(nn.Module):
    tgt_is_causal = memory_is_causal = False

    def forward(self, x, memory, padding=None, memory_padding=None):
        time = 1 if self.batch_first else 0
        masks = [causal(x.size(time), keys, x) if is_causal else None for is_causal, keys in
                 ((self.tgt_is_causal, x.size(time)), (self.memory_is_causal, memory.size(time)))]
        floats = [None if p is None else torch.zeros(p.shape, dtype=x.dtype).masked_fill(p, -torch.inf)
                  for p in (padding, memory_padding)]
        return super().forward(x, memory, *masks, *floats, self.tgt_is_causal, self.memory_is_causal)


def made(mixin, module_type, *arguments, batch_first=True, stack=None, norm=None, is_causal=False, tgt_is_causal=False,
         memory_is_causal=False, **options):
    """A layer of the Transformer, or a stack of `stack` of them, whose forward is `mixin`'s."""
    layer_type = {"Encoder": nn.TransformerEncoderLayer, "Decoder": nn.TransformerDecoderLayer}[mixin.__name__]
    if stack is None:
        module = layer_type(*arguments, batch_first=batch_first, **options)
    else:
        layer = layer_type(*arguments, batch_first=batch_first, **options)
        nested = {"enable_nested_tensor": False} if mixin is Encoder else {}  # the padded positions would come out as 0
        module = module_type(layer, stack, norm, **nested)
    module.__class__ = type("Parity", (mixin, module.__class__), {})
    module.batch_first = batch_first
    module.is_causal, module.tgt_is_causal, module.memory_is_causal = is_causal, tgt_is_causal, memory_is_causal
    return module


def encoder(*arguments, **options):
    return lambda: made(Encoder, nn.TransformerEncoder, *arguments, **options)


def decoder(*arguments, **options):
    return lambda: made(Decoder, nn.TransformerDecoder, *arguments, **options)


class TimeFirst(nn.Sequential):
    """A layer that reads [T, N, C], between two that change the first two dimensions."""

    def __init__(self, layer):
        super().__init__(nn.Identity(), layer, nn.Identity())

    def forward(self, x, padding):
        return self[1](x.transpose(0, 1), padding).transpose(0, 1)


class PositionalEncoding(nn.Module):
    def __init__(self, features=None, max_len=5000, dropout=0.1, batch_first=False):
        """Learned if `features` is given, else sinusoidal: Vaswani et al. 2017, section 3.5, in double precision."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.batch_first = batch_first
        self.weight = None
        if features is not None:
            self.weight = nn.Parameter(torch.empty(max_len, features))
            nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        length, features = x.size(1 if self.batch_first else 0), x.size(2)
        table = self.weight
        if table is None:
            table = torch.tensor([[(math.cos if i % 2 else math.sin)(t / 10000 ** ((i - i % 2) / features))
                                   for i in range(features)] for t in range(length)], dtype=torch.float64).to(x.dtype)
        table = table[:length]
        return self.dropout(x + (table if self.batch_first else table[:, None]))


def after(layer, features):
    """`layer` and a Linear: their weights are Python's only if the first leaves the generator where Python's does."""
    return lambda: nn.Sequential(layer(), nn.Linear(8, features))
