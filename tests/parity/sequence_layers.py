"""Rows of layers_parity_test.py: layers that know no height and width. Each is (type, options, module, inputs …)."""

import math

import torch
from torch import nn

from rows import Function, indices
from sentence_losses import pooled
from sequence_modules import (
    GRU, LSTM, RNN, AdaptiveSoftmax, Conv1D, LSTMCell, MultiheadAttention, PositionalEncoding, SelfAttention,
    TimeFirst, Weighted, WithParameter, after, attention, decoder, encoder, llama3, padding, rotary, yarn,
)

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
    ("L2Normalize", {}, lambda: Function(lambda x: nn.functional.normalize(x, dim=-1)), SEQUENCE),
    ("L2Normalize", {"dim": 1, "eps": 9.0}, lambda: Function(lambda x: nn.functional.normalize(x, dim=1, eps=9.0)), IMAGE),
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
    *(("TokenPooling", {"inputs": ["a", "b"], "mode": mode}, lambda mode=mode: Function(lambda a, b: pooled(a, b, mode)), SEQUENCE, 1 - PADDED.long())
      for mode in ("mean", "cls", "max")),
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
    ("LastToken", {}, lambda: Function(lambda x: x[:, -1]), SEQUENCE),
    ("LastToken", {"inputs": ["a", "b"]}, lambda: Function(lambda x, mask: x[torch.arange(3), torch.tensor([2, 4, 0])]), (3, 5, 8),
     torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])),
    ("LastToken", {"padding": 7, "inputs": ["a", "b"]}, lambda: Function(lambda x, ids: x[torch.arange(3), torch.tensor([3, 4, 1])]), (3, 5, 8),
     torch.tensor([[1, 7, 0, 3, 7], [7, 7, 1, 2, 3], [7, 0, 7, 7, 7]])),
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
