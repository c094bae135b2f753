"""Every layer against its PyTorch module: initial weights from the same seed bit for bit; outputs, gradients of inputs and
parameters, running statistics and outputs in evaluation within 1e-5, and within 1e-10 in double precision."""

import pytest
import torch
from torch import nn
from torchvision.models.convnext import LayerNorm2d
from torchvision.ops import StochasticDepth

import sequence_layers
import dimensional_layers
import vision_models
from probe import Tensors, assert_same, missing_rows, named
from rows import IMAGE, Function, Row, indices, row

TOLERANCE = 1e-5
TOLERANCES = {"float": TOLERANCE, "double": 1e-10}
SEED = 7


class GaussianSample(nn.Module):
    """Kingma & Welling 2014, section 2.4."""

    def forward(self, mean, log_variance):
        return mean + (0.5 * log_variance).exp() * torch.randn_like(mean) if self.training else mean


class LayerScale(nn.Module):
    """Touvron et al. 2021."""

    def __init__(self, shape, value):
        super().__init__()
        self.scale = nn.Parameter(torch.full(shape, value))

    def forward(self, x):
        return self.scale * x


class Residual(nn.Module):
    def __init__(self, main, shortcut):
        super().__init__()
        self.main = nn.Sequential(*main)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x):
        return self.main(x) + self.shortcut(x)


class Parallel(nn.ModuleList):
    def __init__(self, branches, merge):
        super().__init__(branches)
        self.merge = merge

    def forward(self, x):
        return self.merge([branch(x) for branch in self])


class LSTM(nn.LSTM):
    """Its outputs in the order of trainrun: the sequence, h, c."""

    def forward(self, x):
        sequence, (h, c) = super().forward(x)
        return sequence, h, c


CONV = {"out_channels": 6, "kernel_size": 3}

ROWS = [
    row("ReLU", {}, nn.ReLU, IMAGE),
    row("ReLU", {"inplace": True}, lambda: nn.ReLU(inplace=True), (5, 7)),
    row("GELU", {}, nn.GELU, IMAGE),
    row("GELU", {"approximate": "tanh"}, lambda: nn.GELU("tanh"), (5, 7)),
    row("Identity", {}, nn.Identity, (5, 7)),
    row("Flatten", {}, nn.Flatten, IMAGE),
    row("Flatten", {"start_dim": 2, "end_dim": 3}, lambda: nn.Flatten(2, 3), IMAGE),
    row("Reshape", {"shape": [11, 36]}, lambda: Function(lambda x: x.reshape(-1, 11, 36)), IMAGE),
    row("Reshape", {"shape": [4, -1]}, lambda: Function(lambda x: x.flatten(2)), IMAGE),
    row("Select", {"dim": 1, "index": -1}, lambda: Function(lambda x: x[:, -1]), IMAGE),
    row("Select", {"dim": 2, "index": 4}, lambda: Function(lambda x: x[:, :, 4]), IMAGE),
    row("Add", {"inputs": ["a", "b"]}, lambda: Function(lambda a, b: a + b), (5, 7), (5, 1)),
    row("Add", {"inputs": ["a", "b", "a"]}, lambda: Function(lambda a, b: a + b + a), (5, 7), (5, 7)),
    row("Concat", {"inputs": ["b", "a"]}, lambda: Function(lambda a, b: torch.cat([b, a], 1)), (5, 7), (5, 2)),
    row("Concat", {"inputs": ["a", "b"], "dim": -1}, lambda: Function(lambda a, b: torch.cat([a, b], -1)), IMAGE, IMAGE),
    row("Linear", {"out_features": 5}, lambda: nn.Linear(7, 5), (6, 7)),
    row("Linear", {"out_features": 1, "bias": False}, lambda: nn.Linear(7, 1, bias=False), (6, 3, 7)),
    row("Linear", {"out_features": 5, "in_features": 7}, lambda: nn.Linear(7, 5), (1, 7)),
    row("Embedding", {"num_embeddings": 9, "embedding_dim": 4}, lambda: nn.Embedding(9, 4), indices(9, 5, 3)),
    row("Embedding", {"num_embeddings": 9, "embedding_dim": 4, "padding_idx": 2}, lambda: nn.Embedding(9, 4, 2),
        indices(9, 6, 4)),
    row("Embedding", {"num_embeddings": 9, "embedding_dim": 4, "padding_idx": -1}, lambda: nn.Embedding(9, 4, -1),
        indices(9, 6, 4).int()),
    row("Embedding", {"num_embeddings": 9, "embedding_dim": 4, "max_norm": 1.5, "norm_type": 3.0},
        lambda: nn.Embedding(9, 4, max_norm=1.5, norm_type=3.0), indices(9, 5)),
    row("Embedding", {"num_embeddings": 9, "embedding_dim": 4, "scale_grad_by_freq": True},
        lambda: nn.Embedding(9, 4, scale_grad_by_freq=True), indices(9, 20)),
    row("Conv2d", CONV, lambda: nn.Conv2d(4, 6, 3), IMAGE),
    row("Conv2d", CONV | {"bias": False, "in_channels": 4}, lambda: nn.Conv2d(4, 6, 3, bias=False), IMAGE),
    row("Conv2d", {"out_channels": 8, "kernel_size": [3, 2], "stride": [2, 1], "padding": [1, 0], "dilation": [1, 2]},
        lambda: nn.Conv2d(4, 8, (3, 2), (2, 1), (1, 0), (1, 2)), IMAGE),
    row("Conv2d", {"out_channels": 8, "kernel_size": 3, "groups": 2}, lambda: nn.Conv2d(4, 8, 3, groups=2), IMAGE),
    row("Conv2d", {"out_channels": 4, "kernel_size": 5, "groups": 4, "padding": 2, "stride": 2},
        lambda: nn.Conv2d(4, 4, 5, 2, 2, groups=4), IMAGE),
    row("Conv2d", CONV | {"padding": "valid"}, lambda: nn.Conv2d(4, 6, 3, padding="valid"), IMAGE),
    row("Conv2d", {"out_channels": 6, "kernel_size": [4, 3], "padding": "same", "dilation": 2},
        lambda: nn.Conv2d(4, 6, (4, 3), padding="same", dilation=2), IMAGE),
    *[row("Conv2d", {"out_channels": 6, "kernel_size": [5, 3], "padding": [2, 1], "padding_mode": mode},
          lambda mode=mode: nn.Conv2d(4, 6, (5, 3), padding=(2, 1), padding_mode=mode), IMAGE)
      for mode in ("zeros", "reflect", "replicate", "circular")],
    row("Conv2d", {"out_channels": 6, "kernel_size": [4, 3], "padding": "same", "padding_mode": "reflect"},
        lambda: nn.Conv2d(4, 6, (4, 3), padding="same", padding_mode="reflect"), IMAGE),
    row("Conv2d", CONV, lambda: nn.Conv2d(1, 6, 3), (1, 1, 3, 3)),
    row("MaxPool2d", {"kernel_size": 2}, lambda: nn.MaxPool2d(2), IMAGE),
    row("MaxPool2d", {"kernel_size": [3, 2], "stride": [1, 2], "padding": [1, 1], "dilation": [2, 1], "ceil_mode": True},
        lambda: nn.MaxPool2d((3, 2), (1, 2), (1, 1), (2, 1), ceil_mode=True), IMAGE),
    row("MaxPool2d", {"kernel_size": 3, "stride": 2}, lambda: nn.MaxPool2d(3, 2), IMAGE),
    row("AdaptiveAvgPool2d", {"output_size": 1}, lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    row("AdaptiveAvgPool2d", {"output_size": [2, 5]}, lambda: nn.AdaptiveAvgPool2d((2, 5)), IMAGE),
    row("AdaptiveAvgPool2d", {"output_size": [None, 5]}, lambda: nn.AdaptiveAvgPool2d((None, 5)), IMAGE),
    row("AdaptiveMaxPool2d", {"output_size": 4}, lambda: nn.AdaptiveMaxPool2d(4), IMAGE),
    row("AdaptiveMaxPool2d", {"output_size": [3, None]}, lambda: nn.AdaptiveMaxPool2d((3, None)), IMAGE),
    row("BatchNorm2d", {}, lambda: nn.BatchNorm2d(4), IMAGE),
    row("BatchNorm2d", {"eps": 0.1, "momentum": 0.4, "num_features": 4}, lambda: nn.BatchNorm2d(4, 0.1, 0.4), IMAGE),
    row("BatchNorm2d", {"momentum": None}, lambda: nn.BatchNorm2d(4, momentum=None), IMAGE),
    row("BatchNorm2d", {"affine": False}, lambda: nn.BatchNorm2d(4, affine=False), IMAGE),
    row("BatchNorm2d", {"track_running_stats": False}, lambda: nn.BatchNorm2d(4, track_running_stats=False), IMAGE),
    row("LayerNorm", {}, lambda: nn.LayerNorm(7), (5, 3, 7)),
    row("LayerNorm", {"normalized_shape": 7, "eps": 0.1}, lambda: nn.LayerNorm(7, 0.1), (5, 7)),
    row("LayerNorm", {"normalized_shape": [9, 11], "bias": False}, lambda: nn.LayerNorm([9, 11], bias=False), IMAGE),
    row("LayerNorm", {"elementwise_affine": False}, lambda: nn.LayerNorm(7, elementwise_affine=False), (5, 7)),
    row("LSTM", {"hidden_size": 5}, lambda: LSTM(7, 5), (6, 3, 7)),
    row("LSTM", {"hidden_size": 5, "batch_first": True, "bidirectional": True, "input_size": 7},
        lambda: LSTM(7, 5, batch_first=True, bidirectional=True), (3, 6, 7)),
    row("LSTM", {"hidden_size": 5, "num_layers": 3, "dropout": 0.3, "bias": False},
        lambda: LSTM(7, 5, 3, dropout=0.3, bias=False), (6, 3, 7)),
    row("LSTM", {"hidden_size": 5, "num_layers": 2, "proj_size": 3, "bidirectional": True},
        lambda: LSTM(7, 5, 2, proj_size=3, bidirectional=True), (6, 3, 7)),
    row("Dropout", {}, nn.Dropout, (50, 7)),
    row("Dropout", {"p": 0.2, "inplace": True}, lambda: nn.Dropout(0.2, inplace=True), IMAGE),
    row("Dropout2d", {}, nn.Dropout2d, IMAGE),
    row("Dropout2d", {"p": 0.2, "inplace": True}, lambda: nn.Dropout2d(0.2, inplace=True), (30, 4, 2, 2)),
    *[row("StochasticDepth", {"p": p, "mode": mode}, lambda p=p, mode=mode: StochasticDepth(p, mode), (9, 4, 3, 2))
      for p, mode in ((0.4, "row"), (0.6, "batch"), (0, "row"), (1, "row"))],
    row("Sequential", {"layers": [{"type": "LayerScale", "name": "scale"}]}, lambda: LayerScale((4, 1, 1), 1e-6), IMAGE),
    row("Sequential", {"layers": [{"type": "LayerScale", "name": "scale", "dim": -1, "init_value": 0.5}]},
        lambda: LayerScale((7,), 0.5), (5, 3, 7)),
    row("LayerNorm2d", {"eps": 1e-3, "num_channels": 4}, lambda: LayerNorm2d(4, 1e-3), IMAGE),
    row("GaussianSample", {"inputs": ["a", "b"]}, GaussianSample, (6, 7), (6, 7)),
    row("Sequential", {"layers": [{"type": "Linear", "out_features": 5}, "ReLU", {"type": "Linear", "out_features": 2}]},
        lambda: nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2)), (6, 7)),
    row("Residual", {"main": [{"type": "Linear", "out_features": 7}, "GELU"]},
        lambda: Residual([nn.Linear(7, 7), nn.GELU()], []), (6, 7)),
    row("Residual", {"main": [CONV | {"type": "Conv2d", "padding": 1, "bias": False}, "BatchNorm2d"],
                     "shortcut": [{"type": "Conv2d", "out_channels": 6, "kernel_size": 1}]},
        lambda: Residual([nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)], [nn.Conv2d(4, 6, 1)]), IMAGE),
    *[row("Parallel", {"merge": merge, "layers": [{"type": "Linear", "out_features": 5},
                                                  ["ReLU", {"type": "Linear", "out_features": 5, "bias": False}]]},
          lambda join=join: Parallel([nn.Sequential(nn.Linear(7, 5)),
                                      nn.Sequential(nn.ReLU(), nn.Linear(7, 5, bias=False))], join), (6, 3, 7))
      for merge, join in (("concat", lambda x: torch.cat(x, 1)), ("add", sum), ("stack", lambda x: torch.stack(x, 1)),
                          ("none", tuple))],
    row("Parallel", {"layers": ["Identity", "ReLU"], "dim": -1},
        lambda: Parallel([nn.Identity(), nn.ReLU()], lambda x: torch.cat(x, -1)), (6, 3, 7)),
    *[row(*fields) for fields in sequence_layers.ROWS],
    *dimensional_layers.ROWS,
]


def make_inputs(row: Row) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    inputs = [i if isinstance(i, torch.Tensor) else torch.randn(i, generator=generator) for i in row.inputs]
    return dict(zip("abcdefgh", inputs))


def as_tuple(outputs) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def by_index(outputs) -> dict[str, torch.Tensor]:
    return {str(i): output for i, output in enumerate(as_tuple(outputs))}


def convert(tensors: dict[str, torch.Tensor], dtype: str) -> dict[str, torch.Tensor]:
    """The tensors, those of floating point with this dtype."""
    return {name: t.to(getattr(torch, dtype)) if t.is_floating_point() else t for name, t in tensors.items()}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_layer_equals_its_module(probe, row, dtype):
    inputs = make_inputs(row)
    torch.manual_seed(SEED)
    module = nn.Sequential(row.make())  # a list of one layer: its state is called 0.weight
    if dtype == "double":
        module.double()
    initial = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    torch.manual_seed(SEED)
    arguments = [t.clone().requires_grad_(t.is_floating_point()) for t in convert(inputs, dtype).values()]
    outputs = by_index(module[0](*[a * 1 if a.requires_grad else a for a in arguments]))
    generator = torch.Generator().manual_seed(SEED + 1)
    cotangents = convert({i: torch.randn(output.shape, generator=generator) for i, output in outputs.items()}, dtype)
    total = sum((output * cotangents[i]).sum() for i, output in outputs.items())
    total.backward()
    final = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.eval()
    with torch.no_grad():
        evaluated = by_index(module[0](*[t.clone() for t in convert(inputs, dtype).values()]))

    _, results = probe.ask("layer", named("input", inputs) | named("cotangent", cotangents), spec=row.spec, seed=SEED,
                           dtype=dtype)

    tolerance = TOLERANCES[dtype]
    assert_same(results.under("initial"), initial, "initial")
    assert_same(results.under("output"), outputs, "output", tolerance)
    gradients = {name: a.grad for name, a in zip(inputs, arguments) if a.grad is not None}
    assert_same(results.under("input_gradient"), gradients, "input gradient", tolerance)
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert_same(results.under("gradient"), gradients, "gradient", tolerance)
    assert_same(results.under("final"), final, "state afterwards", tolerance)
    assert_same(results.under("evaluated"), evaluated, "output in evaluation", tolerance)


def test_the_comparison_sees_a_small_difference(probe):
    inputs = {"a": torch.ones(2, 7)}
    torch.manual_seed(SEED)
    expected = nn.Linear(7, 5)(inputs["a"])
    _, results = probe.ask("layer", named("input", inputs), spec={"type": "Linear", "out_features": 5}, seed=SEED)
    assert_same(results.under("output"), {"0": expected}, "output", TOLERANCE)
    with pytest.raises(AssertionError, match="output 0"):
        assert_same(results.under("output"), {"0": expected + 3e-5}, "output", TOLERANCE)
    with pytest.raises(AssertionError, match="output"):
        assert_same(Tensors(), {"0": expected}, "output", TOLERANCE)


def with_nested(spec: dict) -> list[dict]:
    """A layer and those of its list."""
    nested = [layer for layer in spec.get("layers", []) if isinstance(layer, dict)]
    return [spec, *(inner for layer in nested for inner in with_nested(layer))]


def test_every_layer_and_every_parameter_has_a_row(probe):
    specs = [spec for row in ROWS for spec in with_nested(row.spec)] + vision_models.SPECS
    specs.append({"type": "TorchScript", "path": "torch_script_parity_test.py"})
    known = probe.ask("catalog")["layer"]  # those with `pretrained` are in language_models_parity_test.py
    assert missing_rows({name: own for name, own in known.items() if "pretrained" not in own}, specs) == []
