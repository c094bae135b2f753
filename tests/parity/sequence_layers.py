"""Rows of layers_parity_test.py: layers that know no height and width. Each is (type, options, module, inputs …)."""

import math

import torch
from torch import nn

from rows import Function, indices


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


IMAGE = (3, 4, 5, 6)
TABLE = (5, 8)
SEQUENCE = (3, 5, 8)
PADDED = padding(3, 5)
BAGS = indices(9, 6, 4)
BAG = {"num_embeddings": 9, "embedding_dim": 4}
HEADS = {"nhead": 2, "dim_feedforward": 12, "batch_first": True}

POINTWISE = [(name, {}, getattr(nn, name), shape) for name in (
    "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh", "LogSigmoid", "Softsign", "Tanhshrink",
    "LeakyReLU", "PReLU", "RReLU", "ELU", "CELU", "Hardtanh", "Softplus", "Softshrink", "Hardshrink", "GLU", "Softmax",
    "LogSoftmax", "Softmin") for shape in (IMAGE, TABLE) if not (shape == IMAGE and "oftm" in name)]
INPLACE = [(name, {"inplace": True}, lambda name=name: getattr(nn, name)(inplace=True), IMAGE)
           for name in ("ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid")]

ACTIVATIONS = [
    *POINTWISE, *INPLACE,
    ("LeakyReLU", {"negative_slope": 0.3, "inplace": True}, lambda: nn.LeakyReLU(0.3, True), IMAGE),
    ("LeakyReLU", {"negative_slope": -0.3}, lambda: nn.LeakyReLU(-0.3), TABLE),
    ("PReLU", {"num_parameters": 4, "init": {"type": "Constant", "val": 0.1}}, lambda: nn.PReLU(4, 0.1), IMAGE),
    ("PReLU", {"num_parameters": 8}, lambda: nn.PReLU(8), TABLE),
    ("RReLU", {"lower": 0.1, "upper": 0.7, "inplace": True}, lambda: nn.RReLU(0.1, 0.7, True), IMAGE),
    ("ELU", {"alpha": 0.4, "inplace": True}, lambda: nn.ELU(0.4, True), IMAGE),
    ("ELU", {"alpha": -0.4}, lambda: nn.ELU(-0.4), TABLE),
    ("CELU", {"alpha": 0.4, "inplace": True}, lambda: nn.CELU(0.4, True), IMAGE),
    ("CELU", {"alpha": 2.5}, lambda: nn.CELU(2.5), TABLE),
    ("Hardtanh", {"min_val": -0.2, "max_val": 0.7, "inplace": True}, lambda: nn.Hardtanh(-0.2, 0.7, True), IMAGE),
    ("Threshold", {"threshold": 0.3, "value": -2.0}, lambda: nn.Threshold(0.3, -2.0), IMAGE),
    ("Threshold", {"threshold": 0.3, "value": 1, "inplace": True}, lambda: nn.Threshold(0.3, 1, True), TABLE),
    ("Softplus", {"beta": 2.0, "threshold": 1.5}, lambda: nn.Softplus(2.0, 1.5), IMAGE),
    ("Softshrink", {"lambd": 0.2}, lambda: nn.Softshrink(0.2), IMAGE),
    ("Hardshrink", {"lambd": 0.2}, lambda: nn.Hardshrink(0.2), IMAGE),
    ("GLU", {"dim": 1}, lambda: nn.GLU(1), IMAGE),
    *[(name, {"dim": dim}, lambda name=name, dim=dim: getattr(nn, name)(dim), SEQUENCE)
      for name in ("Softmax", "LogSoftmax", "Softmin") for dim in (-1, 1)],
    ("Softmax", {}, lambda: nn.Softmax(1), IMAGE),
]

RESHAPES = [
    ("Permute", {"dims": [0, 2, 3, 1]}, lambda: Function(lambda x: x.permute(0, 2, 3, 1)), IMAGE),
    ("Permute", {"dims": [1, 0, -1]}, lambda: Function(lambda x: x.permute(1, 0, 2)), SEQUENCE),
    ("Transpose", {"dim0": 1, "dim1": -1}, lambda: Function(lambda x: x.transpose(1, -1)), IMAGE),
    ("Transpose", {"dim0": 0, "dim1": 1}, lambda: Function(lambda x: x.transpose(0, 1)), SEQUENCE),
    ("Squeeze", {"dim": 1}, lambda: Function(lambda x: x.squeeze(1)), (3, 1, 4, 1)),
    ("Squeeze", {"dim": [1, -1, 2]}, lambda: Function(lambda x: x.squeeze((1, -1, 2))), (3, 1, 4, 1)),
    ("Squeeze", {}, lambda: Function(lambda x: x.reshape(1, 4)), (1, 1, 4, 1)),
    ("Unsqueeze", {"dim": 1}, lambda: Function(lambda x: x.unsqueeze(1)), TABLE),
    ("Unsqueeze", {"dim": -1}, lambda: Function(lambda x: x.unsqueeze(-1)), TABLE),
    ("Split", {"split_size_or_sections": 3}, lambda: Function(lambda x: x.split(3, 1)), TABLE),
    ("Split", {"split_size_or_sections": [5, 0, 1], "dim": -1}, lambda: Function(lambda x: x.split([5, 0, 1], -1)), IMAGE),
    ("Chunk", {"chunks": 3}, lambda: Function(lambda x: x.chunk(3, 1)), TABLE),
    ("Chunk", {"chunks": 2, "dim": -1}, lambda: Function(lambda x: x.chunk(2, -1)), IMAGE),
    ("Mean", {"dim": 1}, lambda: Function(lambda x: x.mean(1)), SEQUENCE),
    ("Mean", {"dim": [-2, -1], "keepdim": True}, lambda: Function(lambda x: x.mean((-2, -1), keepdim=True)), IMAGE),
    ("Max", {"dim": 1}, lambda: Function(lambda x: tuple(x.max(1))), SEQUENCE),
    ("Max", {"dim": -1, "keepdim": True}, lambda: Function(lambda x: tuple(x.max(-1, keepdim=True))), IMAGE),
]

COMBINATIONS = [
    ("Mul", {"inputs": ["a", "b"]}, lambda: Function(lambda a, b: a * b), (5, 7), (5, 1)),
    ("Mul", {"inputs": ["a", "b", "a"]}, lambda: Function(lambda a, b: a * b * a), IMAGE, IMAGE),
    ("Sub", {"inputs": ["b", "a"]}, lambda: Function(lambda a, b: b - a), (5, 7), (5, 1)),
    ("MatMul", {"inputs": ["a", "b"]}, lambda: Function(torch.matmul), (3, 5, 8), (3, 8, 2)),
    ("MatMul", {"inputs": ["a", "b"]}, lambda: Function(torch.matmul), (3, 2, 5, 8), (3, 1, 8, 4)),
    ("Stack", {"inputs": ["a", "b", "a"]}, lambda: Function(lambda a, b: torch.stack([a, b, a], 1)), TABLE, TABLE),
    ("Stack", {"inputs": ["b", "a"], "dim": -1}, lambda: Function(lambda a, b: torch.stack([b, a], -1)), IMAGE, IMAGE),
    ("CosineSimilarity", {"inputs": ["a", "b"]}, nn.CosineSimilarity, TABLE, TABLE),
    ("CosineSimilarity", {"inputs": ["a", "b"], "dim": -1, "eps": 5.0}, lambda: nn.CosineSimilarity(-1, 5.0), SEQUENCE,
     SEQUENCE),
    ("Bilinear", {"inputs": ["a", "b"], "out_features": 3}, lambda: nn.Bilinear(8, 2, 3), TABLE, (5, 2)),
    ("Bilinear", {"inputs": ["a", "b"], "out_features": 3, "bias": False, "in1_features": 8, "in2_features": 2},
     lambda: nn.Bilinear(8, 2, 3, bias=False), SEQUENCE, (3, 5, 2)),
]

POSITIVE = torch.rand(5, 8, generator=torch.Generator().manual_seed(3)) + 0.1

ELEMENTWISE = [
    ("Add", {"other": 2.5}, lambda: Function(lambda x: x + 2.5), IMAGE),
    ("Add", {"other": 2, "inputs": ["a", "b"]}, lambda: Function(lambda a, b: a + b + 2), TABLE, (5, 1)),
    ("Mul", {"other": -0.5}, lambda: Function(lambda x: x * -0.5), IMAGE),
    ("Sub", {"other": 1.5}, lambda: Function(lambda x: x - 1.5), TABLE),
    ("Div", {"inputs": ["a", "b"]}, lambda: Function(lambda a, b: a / b), TABLE, POSITIVE),
    ("Div", {"other": 3}, lambda: Function(lambda x: x / 3), TABLE),
    ("Pow", {"exponent": 3}, lambda: Function(lambda x: x ** 3), TABLE),
    ("Pow", {"exponent": -0.5}, lambda: Function(lambda x: x ** -0.5), POSITIVE),
    ("Pow", {"inputs": ["a", "b"]}, lambda: Function(torch.pow), POSITIVE, TABLE),
    ("Clamp", {"min": -0.5}, lambda: Function(lambda x: x.clamp(min=-0.5)), TABLE),
    ("Clamp", {"max": 0.3}, lambda: Function(lambda x: x.clamp(max=0.3)), TABLE),
    ("Clamp", {"min": -1, "max": 1}, lambda: Function(lambda x: x.clamp(-1, 1)), IMAGE),
    ("Abs", {}, lambda: Function(torch.abs), TABLE),
    ("Exp", {}, lambda: Function(torch.exp), TABLE),
    ("Log", {}, lambda: Function(torch.log), POSITIVE),
    ("Sqrt", {}, lambda: Function(torch.sqrt), POSITIVE),
    ("Sum", {"dim": 1}, lambda: Function(lambda x: x.sum(1)), SEQUENCE),
    ("Sum", {"dim": [-2, -1], "keepdim": True}, lambda: Function(lambda x: x.sum((-2, -1), keepdim=True)), IMAGE),
    ("Min", {"dim": 1}, lambda: Function(lambda x: tuple(x.min(1))), SEQUENCE),
    ("Min", {"dim": -1, "keepdim": True}, lambda: Function(lambda x: tuple(x.min(-1, keepdim=True))), IMAGE),
    ("Min", {"inputs": ["a", "b"]}, lambda: Function(torch.minimum), TABLE, (5, 1)),
    ("Max", {"inputs": ["a", "b", "c"]}, lambda: Function(lambda a, b, c: a.maximum(b).maximum(c)), TABLE, TABLE, TABLE),
    ("PairwiseDistance", {"inputs": ["a", "b"]}, nn.PairwiseDistance, TABLE, TABLE),
    ("PairwiseDistance", {"inputs": ["a", "b"], "p": 1.0, "eps": 0.1, "keepdim": True},
     lambda: nn.PairwiseDistance(1.0, 0.1, True), SEQUENCE, SEQUENCE),
]

NORMAL = {"type": "Normal", "std": 0.02}
LINEAR = {"type": "Linear", "name": "x", "out_features": 6}

PARAMETERS = [
    ("Sequential", {"layers": [LINEAR, {"type": "Parameter", "name": "own", "shape": [1, 1, 6], "init": NORMAL},
                               {"type": "Concat", "inputs": ["own", "x"], "dim": 1}]},
     lambda: WithParameter((1, 1, 6), lambda t: nn.init.normal_(t, std=0.02),
                           lambda x, own: torch.cat([own.expand(len(x), -1, -1), x], 1)), SEQUENCE),
    ("Sequential", {"layers": [LINEAR, {"type": "Parameter", "name": "own", "shape": [6], "init": {"type": "Constant", "val": 0.1}},
                               {"type": "Mul", "inputs": ["x", "own"]}]},
     lambda: WithParameter((6,), lambda t: t + 0.1, lambda x, own: x * own), SEQUENCE),
    ("Sequential", {"layers": [LINEAR, {"type": "Parameter", "name": "own", "shape": [], "init": {"type": "Constant", "val": 2}},
                               {"type": "Exp", "name": "scale"}, {"type": "Mul", "inputs": ["x", "scale"]}]},
     lambda: WithParameter((), lambda t: t + 2, lambda x, own: x * own.exp()), TABLE),
    ("Sequential", {"layers": [LINEAR, {"type": "Parameter", "name": "own", "shape": [1, 6], "expand": True, "init": NORMAL},
                               {"type": "Unsqueeze", "dim": 1, "name": "token"},
                               {"type": "Concat", "inputs": ["x", "token"], "dim": 1}]},
     lambda: WithParameter((1, 6), lambda t: nn.init.normal_(t, std=0.02),
                           lambda x, own: torch.cat([x, own.expand(len(x), -1)[:, None]], 1)), SEQUENCE),
]

CELLS = [
    ("RNNCell", {"hidden_size": 5}, lambda: nn.RNNCell(8, 5), TABLE),
    ("RNNCell", {"hidden_size": 5, "nonlinearity": "relu", "bias": False, "inputs": ["a", "b"]},
     lambda: nn.RNNCell(8, 5, False, "relu"), TABLE, (5, 5)),
    ("GRUCell", {"hidden_size": 4, "input_size": 8}, lambda: nn.GRUCell(8, 4), TABLE),
    ("GRUCell", {"hidden_size": 4, "bias": False, "inputs": ["a", "b"]}, lambda: nn.GRUCell(8, 4, False), TABLE, (5, 4)),
    ("RNNCell", {"hidden_size": 5, "input_size": 8}, lambda: nn.RNNCell(8, 5), TABLE),
    ("LSTMCell", {"hidden_size": 4, "input_size": 8}, lambda: nn.LSTMCell(8, 4), TABLE),
    ("LSTMCell", {"hidden_size": 4, "bias": False, "inputs": ["a", "b", "c"]}, lambda: LSTMCell(8, 4, False), TABLE, (5, 4),
     (5, 4)),
]

ADAPTIVE = {"n_classes": 9, "cutoffs": [3, 6], "inputs": ["a", "b"]}

ADAPTIVE_SOFTMAX = [
    ("AdaptiveLogSoftmaxWithLoss", ADAPTIVE | {"div_value": 2.0}, lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 9, [3, 6], 2.0),
     (30, 8), indices(9, 30)),
    ("AdaptiveLogSoftmaxWithLoss", ADAPTIVE | {"div_value": 1.5, "head_bias": True, "log_prob": True, "in_features": 8},
     lambda: AdaptiveSoftmax(8, 9, [3, 6], 1.5, True), SEQUENCE, indices(9, 3, 5)),
    ("AdaptiveLogSoftmaxWithLoss", ADAPTIVE | {"n_classes": 40, "cutoffs": [20]},  # no target in the tail
     lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 40, [20]), (1, 8), indices(9, 1)),
]

BAG_ROWS = [
    ("EmbeddingBag", BAG, lambda: nn.EmbeddingBag(9, 4), BAGS),
    *[("EmbeddingBag", BAG | {"mode": mode, "padding_idx": 2},
       lambda mode=mode: nn.EmbeddingBag(9, 4, mode=mode, padding_idx=2), BAGS.int()) for mode in ("sum", "mean", "max")],
    ("EmbeddingBag", BAG | {"mode": "sum", "inputs": ["a", "b"]},
     lambda: Weighted(9, 4, mode="sum"), BAGS, (6, 4)),
    ("EmbeddingBag", BAG | {"mode": "sum", "padding_idx": -1, "inputs": ["a", "b"]},
     lambda: Weighted(9, 4, mode="sum", padding_idx=-1), BAGS, (6, 4)),
    ("EmbeddingBag", BAG | {"max_norm": 1.5, "norm_type": 3.0}, lambda: nn.EmbeddingBag(9, 4, 1.5, 3.0), BAGS),
    ("EmbeddingBag", BAG | {"scale_grad_by_freq": True}, lambda: nn.EmbeddingBag(9, 4, scale_grad_by_freq=True), BAGS),
]


RECURRENTS = [
    ("RNN", {"hidden_size": 5}, lambda: RNN(7, 5), (6, 3, 7)),
    ("RNN", {"hidden_size": 5, "nonlinearity": "relu", "num_layers": 2, "bidirectional": True, "batch_first": True},
     lambda: RNN(7, 5, 2, nonlinearity="relu", bidirectional=True, batch_first=True), (3, 6, 7)),
    ("RNN", {"hidden_size": 5, "num_layers": 3, "dropout": 0.3, "bias": False, "input_size": 7},
     lambda: RNN(7, 5, 3, dropout=0.3, bias=False), (6, 3, 7)),
    ("RNN", {"hidden_size": 5, "num_layers": 2, "inputs": ["a", "b"]}, lambda: RNN(7, 5, 2), (6, 3, 7), (2, 3, 5)),
    ("GRU", {"hidden_size": 5}, lambda: GRU(7, 5), (6, 3, 7)),
    ("GRU", {"hidden_size": 5, "batch_first": True, "bidirectional": True, "input_size": 7},
     lambda: GRU(7, 5, batch_first=True, bidirectional=True), (3, 6, 7)),
    ("GRU", {"hidden_size": 5, "num_layers": 3, "dropout": 0.3, "bias": False},
     lambda: GRU(7, 5, 3, dropout=0.3, bias=False), (6, 3, 7)),
    ("GRU", {"hidden_size": 5, "bidirectional": True, "inputs": ["a", "b"]}, lambda: GRU(7, 5, bidirectional=True),
     (6, 3, 7), (2, 3, 5)),
    ("LSTM", {"hidden_size": 5, "num_layers": 2, "proj_size": 3, "inputs": ["a", "b", "c"]},
     lambda: LSTM(7, 5, 2, proj_size=3), (6, 3, 7), (2, 3, 3), (2, 3, 5)),
]

ATTENTIONS = [
    ("TransposedLinear", {"out_features": 5}, lambda: Conv1D(7, 5), (6, 3, 7)),
    ("TransposedLinear", {"out_features": 5, "bias": False, "in_features": 7}, lambda: Conv1D(7, 5, bias=False), (6, 7)),
    ("ScaledDotProductAttention", {"num_heads": 2, "inputs": ["a", "b", "c"]}, attention(2), SEQUENCE, (3, 6, 8), (3, 6, 8)),
    ("ScaledDotProductAttention", {"num_heads": 4, "num_key_value_heads": 2, "is_causal": True, "scale": 0.3, "inputs": ["a", "b", "c"]},
     attention(4, 2, causal=True, scale=0.3), (2, 7, 32), (2, 7, 16), (2, 7, 16)),
    ("ScaledDotProductAttention", {"num_heads": 2, "dropout": 0.0, "inputs": ["a", "b", "c", "d"]}, attention(2), SEQUENCE, SEQUENCE, SEQUENCE,
     (~PADDED).long()),
    ("ScaledDotProductAttention", {"num_heads": 2, "is_causal": True, "inputs": ["a", "b", "c", "d"]}, attention(2, causal=True), SEQUENCE,
     SEQUENCE, SEQUENCE, PADDED),
    ("ScaledDotProductAttention", {"num_heads": 2, "is_causal": True, "inputs": ["a", "b", "c", "d"]}, attention(2, causal=True), (2, 7, 8), (2, 7, 8), (2, 7, 8),
     torch.tensor([[1, 1, 2, 2, 2, 3, 0], [1, 2, 3, 3, 0, 0, 0]])),
    ("ScaledDotProductAttention", {"num_heads": 2, "is_causal": True, "sliding_window": 3, "inputs": ["a", "b", "c", "d"]},
     attention(2, causal=True, window=3), (2, 7, 8), (2, 7, 8), (2, 7, 8), torch.tensor([[1, 1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 2, 2, 0]])),
    ("ScaledDotProductAttention", {"num_heads": 2, "inputs": ["a", "b", "c", "d"]}, attention(2), (2, 7, 8), (2, 7, 8), (2, 7, 8),
     torch.tensor([[1, 1, 2, 2, 2, 3, 0], [1, 2, 3, 3, 0, 0, 0]])),
    ("ScaledDotProductAttention", {"num_heads": 2, "is_causal": True, "sliding_window": 2, "inputs": ["a", "b", "c"]},
     attention(2, causal=True, window=2), SEQUENCE, SEQUENCE, SEQUENCE),
    ("RotaryEmbedding", {"head_dim": 4}, rotary(4), SEQUENCE),
    ("RotaryEmbedding", {"head_dim": 8, "base": 500.0, "scaling": "linear", "factor": 3.0, "inputs": ["a", "b"]},
     rotary(8, 500.0, lambda rates: rates / 3), (2, 30, 16), (2, 30, 8)),
    ("RotaryEmbedding", {"head_dim": 8, "scaling": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0,
                         "original_max_position_embeddings": 20, "base": 50.0}, rotary(8, 50.0, llama3), (2, 30, 16)),
    ("RotaryEmbedding", {"head_dim": 8, "scaling": "yarn", "factor": 4.0, "original_max_position_embeddings": 20, "base": 50.0},
     rotary(8, 50.0, yarn(8, 50.0), 0.1 * math.log(4) + 1), (2, 30, 16)),
    ("RotaryEmbedding", {"head_dim": 8, "scaling": "yarn", "factor": 4.0, "original_max_position_embeddings": 20, "base": 50.0, "beta_fast": 1.5,
                         "beta_slow": 0.4, "truncate": False, "attention_factor": 0.7}, rotary(8, 50.0, yarn(8, 50.0, 1.5, 0.4, False), 0.7), (2, 30, 16)),
    ("RotaryEmbedding", {"head_dim": 4, "inputs": ["a", "b"]}, rotary(4), SEQUENCE, indices(9, 3, 5)),
    ("Sequential", {"layers": [{"type": "PositionIds"}, {"type": "Embedding", "num_embeddings": 9, "embedding_dim": 4}]},
     lambda: nn.Sequential(Function(lambda ids: torch.arange(ids.size(1))[None]), nn.Embedding(9, 4)), indices(9, 3, 5)),
    ("Sequential", {"layers": [{"type": "PositionIds", "padding_idx": 1, "max_positions": 9},
                               {"type": "Embedding", "num_embeddings": 9, "embedding_dim": 4}]},
     lambda: nn.Sequential(Function(lambda ids: (ids != 1).cumsum(1) * (ids != 1) + 1), nn.Embedding(9, 4)), indices(4, 3, 5)),
    ("MultiheadAttention", {"num_heads": 2}, lambda: SelfAttention(8, 2), (5, 3, 8)),
    ("MultiheadAttention", {"num_heads": 4, "batch_first": True, "embed_dim": 8},
     lambda: SelfAttention(8, 4, batch_first=True), SEQUENCE),
    ("MultiheadAttention", {"num_heads": 8, "batch_first": True, "inputs": ["a", "a", "a", "b"]},
     lambda: SelfAttention(64, 8, batch_first=True), (4, 70, 64), padding(4, 70)),
    ("MultiheadAttention", {"num_heads": 1, "bias": False, "batch_first": True, "is_causal": True},
     lambda: SelfAttention(8, 1, bias=False, batch_first=True, is_causal=True), SEQUENCE),
    ("MultiheadAttention", {"num_heads": 2, "dropout": 0.3}, lambda: SelfAttention(8, 2, 0.3), (5, 3, 8)),
    ("MultiheadAttention", {"num_heads": 2, "dropout": 0.3, "batch_first": True},
     lambda: SelfAttention(8, 2, 0.3, batch_first=True), SEQUENCE),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "inputs": ["a", "b", "b"]},
     lambda: MultiheadAttention(8, 2, batch_first=True), SEQUENCE, (3, 6, 8)),
    ("MultiheadAttention", {"num_heads": 2, "inputs": ["a", "b", "c"]}, lambda: MultiheadAttention(8, 2), (5, 3, 8),
     (6, 3, 8), (6, 3, 8)),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "kdim": 5, "vdim": 7, "inputs": ["a", "b", "c"]},
     lambda: MultiheadAttention(8, 2, kdim=5, vdim=7, batch_first=True), SEQUENCE, (3, 6, 5), (3, 6, 7)),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "bias": False, "inputs": ["a", "b", "c"]},
     lambda: MultiheadAttention(8, 2, kdim=8, vdim=7, bias=False, batch_first=True), SEQUENCE, (3, 6, 8), (3, 6, 7)),
    ("MultiheadAttention", {"num_heads": 2, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
     lambda: SelfAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True), SEQUENCE),
    ("MultiheadAttention", {"num_heads": 2, "add_bias_kv": True, "is_causal": True},
     lambda: SelfAttention(8, 2, add_bias_kv=True, is_causal=True), (5, 3, 8)),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "inputs": ["a", "a", "a", "b"]},
     lambda: SelfAttention(8, 2, batch_first=True), SEQUENCE, PADDED),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "inputs": ["a", "a", "a", "b"]},
     lambda: SelfAttention(8, 2, batch_first=True), SEQUENCE, (~PADDED).long()),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "is_causal": True, "inputs": ["a", "a", "a", "b"]},
     lambda: SelfAttention(8, 2, batch_first=True, is_causal=True), SEQUENCE, PADDED),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "is_causal": True, "inputs": ["a", "b", "b"]},
     lambda: MultiheadAttention(8, 2, batch_first=True, is_causal=True), SEQUENCE, (3, 7, 8)),
    ("MultiheadAttention", {"num_heads": 2, "batch_first": True, "add_zero_attn": True, "add_bias_kv": True,
                            "dropout": 0.2, "inputs": ["a", "b", "c", "d"]},
     lambda: MultiheadAttention(8, 2, 0.2, add_zero_attn=True, add_bias_kv=True, kdim=6, batch_first=True), SEQUENCE,
     (3, 4, 6), (3, 4, 8), (3, 4)),
]

TRANSFORMERS = [
    ("TransformerEncoderLayer", {"nhead": 2}, encoder(8, 2, batch_first=False), (5, 3, 8)),
    ("TransformerEncoderLayer", {"nhead": 3, "batch_first": True, "norm_first": True, "is_causal": True},
     encoder(96, 3, norm_first=True, is_causal=True), (2, 65, 96)),
    ("TransformerEncoderLayer", HEADS | {"d_model": 8}, encoder(8, 2, 12), SEQUENCE),
    ("TransformerEncoderLayer", HEADS | {"dropout": 0.4, "activation": "gelu", "norm_first": True, "layer_norm_eps": 0.1},
     encoder(8, 2, 12, 0.4, "gelu", 0.1, norm_first=True), SEQUENCE),
    ("TransformerEncoderLayer", HEADS | {"bias": False, "dropout": 0, "is_causal": True},
     encoder(8, 2, 12, 0, bias=False, is_causal=True), SEQUENCE),
    ("TransformerEncoderLayer", HEADS | {"nhead": 1, "inputs": ["a", "b"]}, encoder(8, 1, 12), SEQUENCE, PADDED),
    ("TransformerEncoderLayer", HEADS | {"inputs": ["a", "b"], "is_causal": True, "norm_first": True},
     encoder(8, 2, 12, norm_first=True, is_causal=True), SEQUENCE, PADDED),
    ("Sequential", {"layers": [{"type": "Transpose", "dim0": 0, "dim1": 1, "name": "x"},
                               {"type": "TransformerEncoderLayer", "nhead": 2, "dim_feedforward": 12, "inputs": ["x", "b"]},
                               {"type": "Transpose", "dim0": 0, "dim1": 1}]},
     lambda: TimeFirst(encoder(8, 2, 12, batch_first=False)()), SEQUENCE, PADDED),
    ("TransformerEncoder", HEADS | {"num_layers": 3}, encoder(8, 2, 12, stack=3), SEQUENCE),
    ("TransformerEncoder", {"nhead": 2, "num_layers": 2, "norm": True, "norm_first": True, "dim_feedforward": 12},
     lambda: encoder(8, 2, 12, norm_first=True, batch_first=False, stack=2, norm=nn.LayerNorm(8))(), (5, 3, 8)),
    ("TransformerEncoder", HEADS | {"num_layers": 2, "norm": True, "bias": False, "layer_norm_eps": 0.1, "dropout": 0.3,
                                    "activation": "gelu", "d_model": 8},
     lambda: encoder(8, 2, 12, 0.3, "gelu", 0.1, bias=False, stack=2, norm=nn.LayerNorm(8, 0.1, bias=False))(), SEQUENCE),
    ("TransformerEncoder", HEADS | {"num_layers": 2, "is_causal": True, "inputs": ["a", "b"]},
     encoder(8, 2, 12, stack=2, is_causal=True), SEQUENCE, PADDED),
    ("TransformerEncoder", HEADS | {"num_layers": 2, "inputs": ["a", "b"]}, encoder(8, 2, 12, stack=2), SEQUENCE, PADDED),
    ("Sequential", {"layers": [HEADS | {"type": "TransformerEncoder", "num_layers": 3}, {"type": "Linear", "out_features": 2}]},
     after(encoder(8, 2, 12, stack=3), 2), SEQUENCE),
    ("TransformerDecoderLayer", {"nhead": 2, "inputs": ["a", "b"]}, decoder(8, 2, batch_first=False), (5, 3, 8), (6, 3, 8)),
    ("TransformerDecoderLayer", HEADS | {"d_model": 8, "tgt_is_causal": True, "inputs": ["a", "b"]},
     decoder(8, 2, 12, tgt_is_causal=True), SEQUENCE, (3, 6, 8)),
    ("TransformerDecoderLayer", HEADS | {"dropout": 0.4, "activation": "gelu", "norm_first": True, "layer_norm_eps": 0.1,
                                         "inputs": ["a", "b"]},
     decoder(8, 2, 12, 0.4, "gelu", 0.1, norm_first=True), SEQUENCE, (3, 6, 8)),
    ("TransformerDecoderLayer", HEADS | {"bias": False, "memory_is_causal": True, "inputs": ["a", "b", "c"]},
     decoder(8, 2, 12, bias=False, memory_is_causal=True), SEQUENCE, (3, 6, 8), PADDED),
    ("TransformerDecoderLayer", HEADS | {"tgt_is_causal": True, "inputs": ["a", "b", "c", "d"]},
     decoder(8, 2, 12, tgt_is_causal=True), SEQUENCE, (3, 6, 8), PADDED, padding(3, 6)),
    ("TransformerDecoder", HEADS | {"num_layers": 2, "tgt_is_causal": True, "inputs": ["a", "b", "c", "d"]},
     decoder(8, 2, 12, stack=2, tgt_is_causal=True), SEQUENCE, (3, 6, 8), PADDED, padding(3, 6)),
    ("TransformerDecoder", {"nhead": 2, "num_layers": 2, "norm": True, "norm_first": True, "dim_feedforward": 12,
                            "memory_is_causal": True, "inputs": ["a", "b"]},
     lambda: decoder(8, 2, 12, norm_first=True, batch_first=False, stack=2, norm=nn.LayerNorm(8), memory_is_causal=True)(),
     (5, 3, 8), (6, 3, 8)),
    ("TransformerDecoder", HEADS | {"num_layers": 3, "bias": False, "layer_norm_eps": 0.1, "dropout": 0.3,
                                    "activation": "gelu", "d_model": 8, "inputs": ["a", "b"]},
     decoder(8, 2, 12, 0.3, "gelu", 0.1, bias=False, stack=3), SEQUENCE, (3, 6, 8)),
    ("PositionalEncoding", {}, PositionalEncoding, (40, 3, 8)),
    ("PositionalEncoding", {"batch_first": True, "dropout": 0, "max_len": 300}, lambda: PositionalEncoding(None, 300, 0, True),
     (2, 300, 7)),
    ("PositionalEncoding", {"encoding": "learned", "max_len": 9, "batch_first": True, "dropout": 0.3, "d_model": 8},
     lambda: PositionalEncoding(8, 9, 0.3, True), SEQUENCE),
    ("PositionalEncoding", {"encoding": "learned", "max_len": 5}, lambda: PositionalEncoding(8, 5), (5, 3, 8)),
]

ROWS = [*ACTIVATIONS, *RESHAPES, *COMBINATIONS, *ELEMENTWISE, *PARAMETERS, *CELLS, *ADAPTIVE_SOFTMAX, *BAG_ROWS, *RECURRENTS,
        *ATTENTIONS, *TRANSFORMERS]
