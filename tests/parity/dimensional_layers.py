"""Rows of layers_parity_test.py: layers over one, two and three dimensions, and those that rearrange them.

Parameters have PyTorch's names, so that a row is a type, its parameters and the shape of its input; what trainrun infers
from what flows in (in_channels, …) PyTorch is told."""

import itertools

import torch
from torch import nn

from rows import Function, Row

SHAPES = {1: (3, 4, 11), 2: (3, 4, 9, 11), 3: (2, 4, 7, 6, 9)}  # [N, C, …]
INFERRED = {"Conv": "in_channels", "Batch": "num_features", "Sync": "num_features", "Instance": "num_features", "Group": "num_channels",
            "RMS": "normalized_shape"}


def same(type_: str, options: dict, shape: tuple) -> Row:
    """The layer, and torch.nn's of the same name with the same parameters."""
    told = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    for beginning, parameter in INFERRED.items():
        if type_.startswith(beginning) and parameter not in told:
            told[parameter] = shape[-1] if parameter == "normalized_shape" else shape[1]
    return Row({"type": type_} | options, lambda: getattr(nn, type_)(**told), [shape])


def over_dims(name: str, *options, dims=(1, 2, 3), shapes=None) -> list[Row]:
    """A row for each number of dimensions and each of the options; an option that is a tuple is cut to the dimensions."""
    rows = []
    for d, given in itertools.product(dims, options):
        cut = {k: list(v[-d:]) if isinstance(v, tuple) else v for k, v in given.items()}
        rows.append(same(f"{name}{d}d", cut, (shapes or SHAPES)[d]))
    return rows


CONV = {"out_channels": 6, "kernel_size": 3}
MODES = ("zeros", "reflect", "replicate", "circular")

CONVOLUTIONS = [
    *over_dims("Conv", CONV, CONV | {"bias": False, "in_channels": 4}, CONV | {"groups": 2, "padding": "valid"},
               {"out_channels": 8, "kernel_size": (2, 3, 4), "stride": (1, 2, 3), "padding": (1, 0, 2),
                "dilation": (1, 2, 1)},
               {"out_channels": 4, "kernel_size": 3, "groups": 4, "padding": 2, "stride": 2},
               {"out_channels": 6, "kernel_size": (2, 4, 3), "padding": "same", "dilation": (1, 2, 2)},
               *[{"out_channels": 6, "kernel_size": (3, 5, 3), "padding": (1, 2, 1), "padding_mode": mode} for mode in MODES],
               *[{"out_channels": 6, "kernel_size": (2, 4, 3), "padding": "same", "padding_mode": mode} for mode in MODES],
               {"out_channels": 6, "kernel_size": 3, "padding": "valid", "padding_mode": "reflect"}),
    *over_dims("Conv", CONV, shapes={1: (1, 1, 3), 2: (1, 1, 3, 3), 3: (1, 1, 3, 3, 3)}),
    *over_dims("ConvTranspose", CONV, CONV | {"bias": False, "in_channels": 4, "padding_mode": "zeros"},
               {"out_channels": 8, "kernel_size": (2, 3, 4), "stride": (2, 3, 2), "padding": (1, 0, 2),
                "output_padding": (1, 2, 1)},
               {"out_channels": 8, "kernel_size": 2, "groups": 4, "stride": 2},
               {"out_channels": 6, "kernel_size": (2, 4, 3), "dilation": (1, 2, 3), "output_padding": (0, 1, 2)}),
    *over_dims("ConvTranspose", CONV, shapes={1: (1, 1, 1), 2: (1, 1, 1, 2), 3: (1, 1, 1, 2, 1)}),
]

NORMALIZATIONS = [
    *over_dims("BatchNorm", {}, {"eps": 0.1, "momentum": 0.4, "num_features": 4}, {"momentum": None}, {"momentum": 0.0},
               {"affine": False}, {"track_running_stats": False}, {"affine": False, "track_running_stats": False}),
    same("BatchNorm1d", {"momentum": None}, (5, 4)),
    # Alone it is BatchNorm; over several ranks: distributed_parity_test.py.
    *(same("SyncBatchNorm", parameters, shape) for shape in [(5, 4), (3, 4, 6), (2, 4, 3, 5), (2, 4, 2, 3, 3)]
      for parameters in [{}, {"eps": 0.1, "momentum": 0.4, "num_features": 4}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}]),
    *over_dims("InstanceNorm", {}, {"eps": 0.1, "affine": True, "num_features": 4},
               {"affine": True, "track_running_stats": True}, {"momentum": 0.4, "track_running_stats": True},
               {"momentum": None, "track_running_stats": True}),
    same("GroupNorm", {"num_groups": 2}, (3, 4)),
    same("GroupNorm", {"num_groups": 1, "eps": 0.1, "num_channels": 4}, SHAPES[1]),
    same("GroupNorm", {"num_groups": 4, "affine": False}, SHAPES[2]),
    same("GroupNorm", {"num_groups": 2}, SHAPES[3]),
    same("RMSNorm", {}, (5, 3, 7)),
    same("RMSNorm", {"normalized_shape": 7, "eps": 0.1}, (5, 7)),
    same("RMSNorm", {"normalized_shape": [9, 11], "elementwise_affine": False}, SHAPES[2]),
    *[same("LocalResponseNorm", {"size": size} | options, shape)
      for shape in SHAPES.values()
      for size, options in ((2, {}), (3, {"alpha": 0.5, "beta": 0.6, "k": 2.0}), (9, {"alpha": 1.0}))],
]

POOLINGS = [
    *over_dims("MaxPool", {"kernel_size": 2}, {"kernel_size": 3, "stride": 2},
               {"kernel_size": (2, 3, 2), "stride": (1, 1, 2), "padding": 1, "dilation": (1, 2, 1), "ceil_mode": True},
               {"kernel_size": 3, "padding": 1, "return_indices": True}),
    *over_dims("AvgPool", {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
               {"kernel_size": (2, 3, 2), "stride": (1, 1, 2), "padding": (0, 1, 1), "count_include_pad": False},
               {"kernel_size": (4, 3, 4), "stride": 2, "ceil_mode": True}),
    *over_dims("AvgPool", {"kernel_size": 2, "divisor_override": 3}, dims=(2, 3)),
    *over_dims("LPPool", {"norm_type": 2, "kernel_size": 2},
               {"norm_type": 4.0, "kernel_size": 3, "stride": 2, "ceil_mode": True}),
    *over_dims("LPPool", {"norm_type": 2.0, "kernel_size": (3, 1, 2), "stride": (1, 2, 3)}, dims=(2, 3)),
    *over_dims("AdaptiveAvgPool", {"output_size": 1}, {"output_size": 4}, {"output_size": (2, 3, 5)}),
    *over_dims("AdaptiveAvgPool", {"output_size": (None, 2, None)}, dims=(2, 3)),
    *over_dims("AdaptiveMaxPool", {"output_size": 1}, {"output_size": (2, 3, 5)},
               {"output_size": 4, "return_indices": True}),
    *over_dims("AdaptiveMaxPool", {"output_size": (None, 2, None)}, dims=(2, 3)),
]



def pooled(d: int, *sizes: int, **options) -> list[torch.Tensor]:
    """The values and indices of a pooling of [2, 3, …]."""
    x = torch.randn(2, 3, *sizes, generator=torch.Generator().manual_seed(4))
    return list(getattr(nn.functional, f"max_pool{d}d")(x, return_indices=True, **options))


def unpooling(d: int, options: dict, inputs: list[torch.Tensor], size: tuple | None = None) -> Row:
    """torch.nn.MaxUnpool of `d` dimensions to `size`, which trainrun is told by a parameter or a third input."""
    module = getattr(nn, f"MaxUnpool{d}d")
    told = {k: v for k, v in options.items() if k not in ("inputs", "output_size")}
    return Row({"type": f"MaxUnpool{d}d", "inputs": ["a", "b", "c"][:len(inputs)]} | options,
               lambda: Function(lambda values, indices, *_: module(**told)(values, indices, output_size=size)), inputs)


UNPOOLINGS = [
    *[unpooling(d, {"kernel_size": 2}, pooled(d, *[8, 6, 4][:d], kernel_size=2)) for d in (1, 2, 3)],
    *[unpooling(d, {"kernel_size": 3, "stride": 2, "padding": 1},
                pooled(d, *[7, 9, 5][:d], kernel_size=3, stride=2, padding=1)) for d in (1, 2, 3)],
    *[unpooling(d, {"kernel_size": 2, "output_size": [9, 7, 5][:d]}, pooled(d, *[9, 7, 5][:d], kernel_size=2), [9, 7, 5][:d])
      for d in (1, 2, 3)],
    *[unpooling(d, {"kernel_size": 2}, [*pooled(d, *[9, 7, 5][:d], kernel_size=2), torch.zeros(2, 1, *[9, 7, 5][:d])],
                [9, 7, 5][:d]) for d in (1, 2, 3)],
]

FRACTIONAL_POOLINGS = [
    *over_dims("FractionalMaxPool", {"kernel_size": 2, "output_size": 3}, {"kernel_size": (2, 3, 1), "output_size": (4, 2, 5)},
               {"kernel_size": 2, "output_ratio": 0.5, "return_indices": True},
               {"kernel_size": 2, "output_ratio": (0.6, 0.4, 0.7)}, dims=(2, 3)),
]

DROPOUTS = [
    *over_dims("Dropout", {}, {"p": 0.2, "inplace": True}, shapes={d: (30, 4) + (2,) * d for d in SHAPES}),
    same("Dropout2d", {}, (30, 4, 5)),
    same("AlphaDropout", {}, (50, 7)),
    same("AlphaDropout", {"p": 0.2, "inplace": True}, SHAPES[2]),
    same("FeatureAlphaDropout", {}, (30, 4, 2, 2)),
    same("FeatureAlphaDropout", {"p": 0.2, "inplace": True}, (30, 4, 2, 2, 2)),
    same("FeatureAlphaDropout", {"p": 1.0}, (30, 4, 2)),
]


def paddings(name: str, **options) -> list[Row]:
    rows = []
    for d, shape in SHAPES.items():
        for padding in (2, [1, 2, 3, 0, 0, 1][: 2 * d], [-1, 2, -2, -1, 1, 0][: 2 * d]):
            rows.append(same(f"{name}{d}d", {"padding": padding} | options, shape))
    return rows


PADDINGS = [
    *paddings("ZeroPad"),
    *paddings("ConstantPad", value=-1.5),
    *paddings("ReflectionPad"),
    *paddings("ReplicationPad"),
    *paddings("CircularPad"),
]

UPSAMPLES = [
    *[same("Upsample", {"mode": mode} | options, SHAPES[d])
      for d, modes in {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}.items()
      for mode in modes
      for options in ({"scale_factor": 2}, {"scale_factor": 1.7, "align_corners": True},
                      {"size": 5, "align_corners": False}, {"size": [4, 13, 8][-d:], "align_corners": True},
                      {"scale_factor": [0.6, 2.3, 1.7][-d:], "recompute_scale_factor": True},
                      {"scale_factor": [0.6, 2.3, 1.7][-d:], "recompute_scale_factor": False})],
    *[same("Upsample", {"mode": mode} | options, shape)
      for shape in SHAPES.values()
      for mode in ("nearest", "nearest-exact", "area")
      for options in ({"scale_factor": 2}, {"size": 5}, {"scale_factor": 1.7}, {"size": [4, 13, 8][-len(shape) + 2:]},
                      {"scale_factor": [0.6, 2.3, 1.7][-len(shape) + 2:], "recompute_scale_factor": True})],
    same("Upsample", {"scale_factor": 3}, SHAPES[2]),
]

REARRANGEMENTS = [
    same("PixelShuffle", {"upscale_factor": 2}, (3, 8, 5, 7)),
    same("PixelShuffle", {"upscale_factor": 3}, (2, 3, 9, 2, 4)),
    same("PixelUnshuffle", {"downscale_factor": 2}, (3, 2, 4, 6)),
    same("ChannelShuffle", {"groups": 2}, SHAPES[1]),
    same("ChannelShuffle", {"groups": 3}, (2, 6, 4, 5)),
    same("Unfold", {"kernel_size": 3}, SHAPES[2]),
    same("Unfold", {"kernel_size": [2, 3], "dilation": [1, 2], "padding": [1, 0], "stride": 2}, SHAPES[2]),
    same("Fold", {"output_size": [4, 5], "kernel_size": [2, 3]}, (3, 12, 9)),
    same("Fold", {"output_size": 6, "kernel_size": [2, 3], "dilation": [1, 2], "padding": [1, 0], "stride": [2, 1]},
         (3, 12, 8)),
    same("Unflatten", {"dim": 1, "unflattened_size": [2, -1]}, SHAPES[1]),
    same("Unflatten", {"dim": -1, "unflattened_size": [3, 2, 2]}, (5, 12)),
]

ROWS = [*CONVOLUTIONS, *NORMALIZATIONS, *POOLINGS, *UNPOOLINGS, *FRACTIONAL_POOLINGS, *DROPOUTS, *PADDINGS, *UPSAMPLES, *REARRANGEMENTS]
