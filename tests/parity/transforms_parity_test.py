"""Transforms against torchvision's documented formulas, written with torch.nn.functional (torchvision itself is not needed), with the
same draws from each sample's stream. Those against torchvision itself are in torchvision_parity_test.py."""

import math

import numpy as np
import pytest
import sklearn.preprocessing
import torch
import torch.nn.functional as F

import draws
from probe import ProbeError, assert_same, missing_rows, named
from torchvision_peer import CHANGES

SEED = 3


def images(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


# --- torchvision's formulas


def normalize(batch, mean, std, field="image"):
    x = batch[field]
    return {field: (x - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)}


def random_crop(batch, g, size, padding=0, fill=0, padding_mode="constant", field="image", pad_if_needed=False):
    lacking = [max(wanted - side - 2 * padding, 0) if pad_if_needed else 0 for wanted, side in zip(size, batch[field].shape[2:], strict=True)]
    sides = [padding + lacking[1]] * 2 + [padding + lacking[0]] * 2
    x = F.pad(batch[field], sides, value=fill if padding_mode == "constant" else None, mode=padding_mode)
    n, _, height, width = x.shape
    streams = [g.of(i) for i in range(n)]
    corners = [(s.integer(height - size[0] + 1), s.integer(width - size[1] + 1)) for s in streams]
    return {field: torch.stack([x[i, :, t:t + size[0], l:l + size[1]] for i, (t, l) in enumerate(corners)])}


def flip(batch, g, p=0.5, field="image"):
    return {field: torch.stack([x.flip(-1) if g.of(i).uniform() < p else x for i, x in enumerate(batch[field])])}


def vertical_flip(batch, g, p=0.5, field="image"):
    return {field: torch.stack([x.flip(-2) if g.of(i).uniform() < p else x for i, x in enumerate(batch[field])])}


def window(stream, height, width, scale, ratio):
    """torchvision's RandomResizedCrop.make_params: top, left, height, width."""
    area, log_ratio = height * width, [math.log(r) for r in ratio]
    for _ in range(10):
        target_area = area * stream.uniform(*scale)
        aspect_ratio = math.exp(stream.uniform(*log_ratio))
        w = int(round(math.sqrt(target_area * aspect_ratio)))
        h = int(round(math.sqrt(target_area / aspect_ratio)))
        if 0 < w <= width and 0 < h <= height:
            top = stream.integer(height - h + 1)
            return top, stream.integer(width - w + 1), h, w
    h, w = height, width
    if width / height < min(ratio):
        h = int(round(w / min(ratio)))
    elif width / height > max(ratio):
        w = int(round(h * max(ratio)))
    return (height - h) // 2, (width - w) // 2, h, w


def resized_crop(batch, g, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation="bilinear", antialias=True, field="image"):
    size = [size, size] if isinstance(size, int) else size
    parts = []
    for i, x in enumerate(batch[field]):
        top, left, h, w = window(g.of(i), *x.shape[-2:], scale, ratio)
        part = x[None, :, top:top + h, left:left + w]
        parts.append(resize({"x": part}, size, interpolation, antialias=antialias, field="x")["x"])
    return {field: torch.cat(parts)}


def pad(batch, padding, fill=0, padding_mode="constant", field="image"):
    left, top, right, bottom = [padding] * 4 if isinstance(padding, int) else (padding * 2 if len(padding) == 2 else padding)
    x = batch[field]
    if padding_mode == "symmetric":  # torchvision: pads with indices, the border pixel twice
        mode = {"mode": "symmetric"}
        return {field: torch.from_numpy(np.pad(x.numpy(), [(0, 0), (0, 0), (top, bottom), (left, right)], **mode))}
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}[padding_mode]
    return {field: F.pad(x, [left, right, top, bottom], mode=mode, **({"value": fill} if mode == "constant" else {}))}


def center_crop(batch, height, width, field="image"):
    x = batch[field]
    h, w = x.shape[-2:]
    if width > w or height > h:
        x = F.pad(x, [(width - w) // 2 if width > w else 0, (width - w + 1) // 2 if width > w else 0,
                      (height - h) // 2 if height > h else 0, (height - h + 1) // 2 if height > h else 0])
        h, w = x.shape[-2:]
    top, left = int(round((h - height) / 2.0)), int(round((w - width) / 2.0))
    return {field: x[..., top:top + height, left:left + width]}


def resize(batch, size, interpolation="bilinear", max_size=None, antialias=True, field="image"):
    x = batch[field]
    h, w = x.shape[-2:]
    if isinstance(size, int):
        short, long = (w, h) if w <= h else (h, w)
        new_short, new_long = size, int(size * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
        size = [new_long, new_short] if w <= h else [new_short, new_long]
    smooth = interpolation in ("bilinear", "bicubic")
    return {field: F.interpolate(x, size=size, mode=interpolation, align_corners=False if smooth else None,
                                 antialias=smooth and antialias)}


def inverse_affine_matrix(center, angle):
    rot = math.radians(angle)
    cx, cy = center
    a, b, c, d = math.cos(rot), -math.sin(rot), math.sin(rot), math.cos(rot)
    matrix = [d, -b, 0.0, -c, a, 0.0]
    matrix[2] += matrix[0] * -cx + matrix[1] * -cy + cx
    matrix[5] += matrix[3] * -cx + matrix[4] * -cy + cy
    return matrix


def rotation(batch, g, degrees, interpolation="nearest", center=None, fill=0, field="image"):
    least, most = (-degrees, degrees) if isinstance(degrees, (int, float)) else degrees
    x = batch[field]
    _, channels, h, w = x.shape
    angles = torch.tensor([g.of(i).uniform(least, most) for i in range(len(x))])
    center = [0.0, 0.0] if center is None else [c - s * 0.5 for c, s in zip(center, [w, h])]
    turned = []
    for image, angle in zip(x, angles):
        theta = torch.tensor(inverse_affine_matrix(center, -angle.item())).view(1, 2, 3)
        base = torch.empty(1, h, w, 3)
        base[..., 0].copy_(torch.linspace(-w * 0.5 + 0.5, w * 0.5 + 0.5 - 1, steps=w))
        base[..., 1].copy_(torch.linspace(-h * 0.5 + 0.5, h * 0.5 + 0.5 - 1, steps=h).unsqueeze_(-1))
        base[..., 2].fill_(1)
        rescaled = theta.transpose(1, 2) / torch.tensor([0.5 * w, 0.5 * h])
        grid = base.view(1, h * w, 3).bmm(rescaled).view(1, h, w, 2)
        marked = torch.cat([image[None], torch.ones(1, 1, h, w)], dim=1)
        sampled = F.grid_sample(marked, grid, mode=interpolation, padding_mode="zeros", align_corners=False)
        image, mask = sampled[:, :-1], sampled[:, -1:].expand(-1, channels, -1, -1)
        fills = torch.full_like(image, fill)
        turned.append(torch.where(mask < 0.5, fills, image) if interpolation == "nearest" else image * mask + (1 - mask) * fills)
    return {field: torch.cat(turned)}


def erasing(batch, g, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, field="image"):
    x = batch[field].clone()
    for n, image in enumerate(x):
        stream = g.of(n)
        if not stream.uniform() < p:
            continue
        channels, height, width = image.shape
        for _ in range(10):
            area = height * width * stream.uniform(*scale)
            aspect = math.exp(stream.uniform(math.log(ratio[0]), math.log(ratio[1])))
            h, w = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
            if not (h < height and w < width):
                continue
            if value == "random":
                v = torch.tensor([stream.normal() for _ in range(channels * h * w)]).view(channels, h, w)
            else:
                v = torch.tensor([value] if isinstance(value, (int, float)) else value, dtype=torch.float32)[:, None, None]
            i, j = stream.integer(height - h + 1), stream.integer(width - w + 1)
            image[:, i:i + h, j:j + w] = v
            break
    return {field: x}


def noise(batch, g, mean=0.0, sigma=0.1, clip=True, field="image"):
    x = batch[field]
    streams = [g.of(i) for i in range(len(x))]
    x = x + (mean + torch.stack([torch.tensor([s.normal() for _ in range(x[0].numel())]).view_as(x[0]) for s in streams]) * sigma)
    return {field: x.clamp(0, 1) if clip else x}


def one_hot(batch, num_classes, field="label"):
    return {field: F.one_hot(batch[field], num_classes).float()}


def mixup(batch, g, alpha=1.0, num_classes=None, field="image", label="label"):
    shares = torch.tensor([g.of(i).beta(alpha) for i in range(len(batch[field]))])
    x, y = batch[field], batch[label]
    y = y if y.is_floating_point() else F.one_hot(y, num_classes).float()
    lams = {k: shares.view(-1, *[1] * (v.dim() - 1)) for k, v in ((field, x), (label, y))}
    return {k: v.roll(1, 0).mul(1.0 - lams[k]).add_(v.mul(lams[k])) for k, v in ((field, x), (label, y))}


def copy(batch, to, field="image"):
    return {to: batch[field]}


def triplets(batch, g, field="image", label="label", positive="positive", negative="negative"):
    labels = batch[label].tolist()
    chosen = [[], []]
    for i, own in enumerate(labels):
        same = [j for j, other in enumerate(labels) if other == own and j != i] or [i]
        others = [j for j, other in enumerate(labels) if other != own]
        stream = g.of(i)
        for which, candidates in enumerate((same, others)):
            chosen[which].append(candidates[stream.integer(len(candidates))])
    return {positive: batch[field][chosen[0]], negative: batch[field][chosen[1]]}


LABELS = {"label": torch.tensor([2, 0, 4, 1])}
PICTURES = {"image": images(4, 3, 9, 7)}
SQUARE = {"image": images(6, 1, 8, 8)}
BOTH = PICTURES | LABELS
SOFT = PICTURES | {"label": images(4, 2)}
DRAWN = [random_crop, resized_crop, flip, vertical_flip, rotation, erasing, noise, mixup, triplets]

# What a recipe says (the type first), the batch, the formula and its arguments where they differ; random ones get a generator.
ROWS = [
    ("Normalize", {"mean": [0.1, 0.2, 0.3], "std": [1, 2, 4]}, PICTURES, normalize, {}),
    ("Normalize", {"mean": [0.5], "std": [0.25], "field": "x"}, {"x": images(2, 1, 4, 4)}, normalize, {}),
    ("RandomCrop", {"size": [5, 6]}, PICTURES, random_crop, {}),
    ("RandomCrop", {"size": [8, 9], "padding": 2, "fill": 0.5, "field": "image"}, PICTURES, random_crop, {}),
    ("RandomCrop", {"size": [8, 9], "padding": 2, "padding_mode": "reflect"}, PICTURES, random_crop, {}),
    ("RandomCrop", {"size": [12, 9], "pad_if_needed": True, "fill": 0.5}, PICTURES, random_crop, {}),
    ("RandomHorizontalFlip", {}, SQUARE, flip, {}),
    ("RandomHorizontalFlip", {"p": 0.8, "field": "x"}, {"x": images(9, 2, 4, 3)}, flip, {}),
    ("RandomVerticalFlip", {}, SQUARE, vertical_flip, {}),
    ("RandomVerticalFlip", {"p": 0.8, "field": "x"}, {"x": images(9, 2, 4, 3)}, vertical_flip, {}),
    ("RandomResizedCrop", {"size": [5, 6]}, PICTURES, resized_crop, {}),
    ("RandomResizedCrop", {"size": 4, "scale": [0.5, 0.9], "ratio": [0.2, 5.0], "interpolation": "bicubic"}, PICTURES, resized_crop, {}),
    ("RandomResizedCrop", {"size": 4, "antialias": False, "field": "x"}, {"x": images(9, 2, 14, 13)}, resized_crop, {}),
    # no such window fits: the largest one in the middle that does
    ("RandomResizedCrop", {"size": 4, "scale": [1, 1], "ratio": [3, 4]}, PICTURES, resized_crop, {}),
    ("RandomResizedCrop", {"size": 4, "scale": [1, 1], "ratio": [0.1, 0.2]}, PICTURES, resized_crop, {}),
    ("Pad", {"padding": 2}, PICTURES, pad, {}),
    ("Pad", {"padding": [1, 3], "fill": 0.5}, PICTURES, pad, {}),
    ("Pad", {"padding": [0, 1, 2, 3], "padding_mode": "edge"}, PICTURES, pad, {}),
    ("Pad", {"padding": [4, 1, 2, 3], "padding_mode": "reflect"}, PICTURES, pad, {}),
    ("Pad", {"padding": [7, 9, 2, 3], "padding_mode": "symmetric", "field": "x"}, {"x": images(2, 3, 9, 7)}, pad, {}),
    *(("CenterCrop", {"size": [h, w]}, PICTURES, center_crop, {"height": h, "width": w})
      for h, w in [(4, 4), (6, 4), (9, 7), (11, 3), (12, 10), (1, 1), (8, 12)]),
    ("CenterCrop", {"size": 5, "field": "x"}, {"x": images(2, 1, 8, 10)}, center_crop, {"height": 5, "width": 5}),
    *(("Resize", {"size": size, "interpolation": mode}, PICTURES, resize, {})
      for size in ([4, 5], [13, 16], 5) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")),
    ("Resize", {"size": [4, 5], "antialias": False}, PICTURES, resize, {}),
    ("Resize", {"size": [4, 12], "antialias": False, "interpolation": "bicubic"}, PICTURES, resize, {}),
    ("Resize", {"size": 8, "max_size": 9}, PICTURES, resize, {}),
    ("Resize", {"size": 6, "field": "x"}, {"x": images(2, 1, 7, 19)}, resize, {}),
    ("RandomRotation", {"degrees": 30}, SQUARE, rotation, {}),
    ("RandomRotation", {"degrees": [90, 90]}, SQUARE, rotation, {}),
    ("RandomRotation", {"degrees": 45, "interpolation": "bilinear", "fill": 0.25}, PICTURES, rotation, {}),
    ("RandomRotation", {"degrees": [10, 170], "center": [2, 3], "fill": -1, "field": "x"}, {"x": images(3, 2, 6, 11)}, rotation, {}),
    ("RandomErasing", {}, SQUARE, erasing, {}),
    ("RandomErasing", {"p": 1, "scale": [0.2, 0.9], "ratio": [0.2, 5], "value": "random"}, PICTURES, erasing, {}),
    ("RandomErasing", {"p": 0.7, "value": [1, 2, 3], "field": "x"}, {"x": images(5, 3, 16, 16)}, erasing, {}),
    ("RandomErasing", {"p": 1, "value": 0.5}, PICTURES, erasing, {}),
    ("GaussianNoise", {}, PICTURES, noise, {}),
    ("GaussianNoise", {"mean": 0.2, "sigma": 2, "clip": False, "field": "features"}, {"features": images(5, 4)}, noise, {}),
    ("OneHot", {"num_classes": 6}, LABELS, one_hot, {}),
    ("OneHot", {"field": "x", "num_classes": 5}, {"x": torch.tensor([[0, 4], [3, 3]])}, one_hot, {}),
    ("Mixup", {"num_classes": 5}, BOTH, mixup, {}),
    ("Mixup", {"alpha": 0.3, "field": "x", "label": "y"}, {"x": images(3, 4), "y": images(3, 1)}, mixup, {}),
    ("Mixup", {"alpha": 2}, SOFT, mixup, {}),
    ("Copy", {"to": "clean"}, PICTURES, copy, {}),
    ("Copy", {"to": "y", "field": "x"}, {"x": torch.arange(6).reshape(3, 2)}, copy, {}),
    ("Triplets", {}, {"image": images(9, 1, 3, 3), "label": torch.tensor([0, 1, 0, 2, 1, 0, 0, 1, 1])}, triplets, {}),
    ("Triplets", {"field": "x", "label": "y", "positive": "p", "negative": "n"},
     {"x": images(4, 5), "y": torch.tensor([3, 3, 3, 0])}, triplets, {}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_transform_equals_torchvisions_formula(probe, row):
    kind, options, batch, formula, arguments = row
    drawn = {"g": draws.Draws(SEED)} if formula in DRAWN else {}
    expected = batch | formula(batch, **drawn, **(arguments | ({"field": options["field"]} if "field" in options else {})
                                                  if arguments else options))

    _, results = probe.ask("transform", named("input", batch), spec={"type": kind} | options, seed=SEED)

    assert_same(results.under("output"), expected, kind, 1e-6)


@pytest.mark.parametrize("kind", ["OneHot", "Mixup"])
def test_the_number_of_classes_comes_from_the_data_set(probe, kind):
    _, results = probe.ask("transform", named("input", BOTH), spec={"type": kind}, seed=SEED, num_classes=7)
    assert results["output.label"].shape == (4, 7)
    assert results["output.label"].sum(1).tolist() == pytest.approx([1] * 4)


STANDARDIZE = [{}, {"with_mean": False}, {"with_std": False}, {"field": "features"}, {"dim": -1}]


@pytest.mark.parametrize("options", STANDARDIZE, ids=str)
@pytest.mark.parametrize("shape", [(5,), (3, 4, 6), (2, 7), ()], ids=str)
def test_standardize_equals_scikit_learn(probe, options, shape):
    generator = torch.Generator().manual_seed(2)
    seen = 1000 + 3 * torch.randn((30, *shape), generator=generator)
    if shape == (5,):
        seen[:, 2] = 4  # a constant: divided by 1
    batch = 1000 + torch.randn((6, *shape), generator=generator)

    dim = options.get("dim", 1)
    if dim == -1 and not shape:
        pytest.skip("the batch is the only dimension")

    def rows(x):
        return (x.reshape(-1, 1) if x.dim() == 1 else x.movedim(dim, 0).flatten(1).T).double().numpy()

    scaler = sklearn.preprocessing.StandardScaler(**{k: v for k, v in options.items() if k.startswith("with_")}).fit(rows(seen))
    channels = [1] * (len(shape) - 1) + [-1] if dim == -1 else [-1] + [1] * (len(shape) - 1)
    mean, scale = (torch.tensor(x).float().view(channels if shape else []) if x is not None else default
                   for x, default in ((scaler.mean_ if scaler.with_mean else None, 0), (scaler.scale_, 1)))

    _, results = probe.ask("transform", named("input", {"features": batch}) | named("learn", {"features": seen}),
                           spec={"type": "Standardize"} | options, seed=0)

    assert_same(results.under("output"), {"features": (batch - mean) / scale}, "Standardize", 1e-5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_padding_of_sequences_is_no_value_to_standardize(probe, shape):
    """Mean and deviation are those of the items; padding stays what it is."""
    lengths, padding = torch.tensor([2, 5, 1, 0, 3, 4]), 7.0
    items = torch.arange(5)[None] < lengths[:, None]
    beside = items.view(6, 5, *[1] * len(shape))
    values = torch.where(beside, torch.randn(6, 5, *shape, generator=torch.Generator().manual_seed(3)) * 3 + 5, torch.tensor(padding))
    fields = {"features": values, "features_mask": items.long()}
    seen = {name: tensor.clone() for name, tensor in fields.items()}
    scaler = sklearn.preprocessing.StandardScaler().fit(values[items].reshape(-1, shape[-1] if shape else 1).double())
    expected = torch.where(beside, (values - torch.tensor(scaler.mean_).float()) / torch.tensor(scaler.scale_).float(), torch.tensor(padding))
    _, results = probe.ask("transform", named("input", fields) | named("learn", seen), spec={"type": "Standardize", "dim": -1}, seed=0)
    assert_same(results.under("output"), {"features": expected, "features_mask": items.long()}, "Standardize", 1e-5)
    if shape:
        with pytest.raises(ProbeError, match="holds lists of unequal length, whose items dim 1 counts; write dim: -1"):
            probe.ask("transform", named("input", fields) | named("learn", seen), spec={"type": "Standardize"}, seed=0)
    _, results = probe.ask("transform", named("input", fields), spec={"type": "GaussianNoise", "field": "features", "clip": False}, seed=0)
    noisy = results.under("output")["features"]
    assert (noisy[~items] == padding).all() and (noisy[items] != values[items]).all()


def test_every_transform_and_every_parameter_has_a_row(probe):
    specs = [{"type": row[0]} | row[1] for row in ROWS + CHANGES] + [{"type": "Standardize"} | options for options in STANDARDIZE]
    specs.append({"type": "CutMix", "alpha": 0.3, "num_classes": 3, "field": "x", "label": "y"})  # in torchvision_parity_test.py, as CHANGES are
    known = {name: parameters for name, parameters in probe.ask("catalog")["transform"].items() if name != "MaskTokens"}  # masked_lm_parity_test.py
    assert missing_rows(known, specs) == []


@pytest.mark.parametrize("spec, batch, expected", [
    ({"type": "Pad", "padding": [1, 2, 3]}, PICTURES, "padding: expected integer or list of 2 integers or list of 4 integers, found a list"),
    ({"type": "Pad", "padding": 7, "padding_mode": "reflect"}, PICTURES, "can add 6 pixels to 'image' [N, 3, 9, 7], not 7"),
    ({"type": "RandomCrop", "size": 4, "padding": 7, "padding_mode": "reflect"}, PICTURES, "RandomCrop: padding_mode reflect can add 6 pixels"),
    ({"type": "Pad", "padding": 1, "field": "imag"}, PICTURES, "no field 'imag'; did you mean image?"),
    ({"type": "Resize", "size": [4, 4], "max_size": 8}, PICTURES, "max_size: is for a size that is one number"),
    ({"type": "Resize", "size": 8, "max_size": 8}, PICTURES, "max_size: must be greater than size"),
    ({"type": "Resize", "size": 4}, {"image": images(2, 5)}, "expected images [N, C, H, W], 'image' is [N, 5]"),
    ({"type": "Resize", "size": 4}, {"image": torch.ones(2, 1, 5, 5).long()}, "holds integers"),
    ({"type": "RandomRotation", "degrees": -3}, PICTURES, "degrees: must be >= 0"),
    ({"type": "RandomErasing", "scale": [0.5, 0.1]}, PICTURES, "scale: the smaller number comes first"),
    ({"type": "RandomErasing", "value": [1, 2]}, PICTURES, "value has 2 numbers, but 'image' [N, 3, 9, 7] has 3 channels"),
    ({"type": "RandomErasing", "value": "rand"}, PICTURES, "random"),
    ({"type": "OneHot"}, LABELS, "does not say how many classes 'label' has; write num_classes"),
    ({"type": "OneHot", "num_classes": 3}, LABELS, "class 4 of 'label' is not from 0 to 2"),
    ({"type": "OneHot", "num_classes": 3}, {"label": images(3)}, "expected classes (int64)"),
    ({"type": "Mixup", "alpha": 0}, BOTH, "must be > 0"),
    ({"type": "Standardize"}, {"features": torch.ones(3, 2).long()}, "holds integers"),
    ({"type": "Standardize", "dim": 2}, {"features": images(3, 2)}, "dim 2 of 'features' [N, 2] is not one of its dimensions"),
    ({"type": "Standardize", "dim": 0}, {"features": images(3, 2)}, "is the batch"),
    ({"type": "Copy", "to": "label"}, BOTH, "there is a field 'label' already"),
    ({"type": "Triplets", "positive": "x", "negative": "x"}, BOTH, "the two new fields need two names"),
    ({"type": "Triplets"}, {"image": images(3, 1, 2, 2), "label": torch.tensor([1, 1, 1])}, "all samples of a batch are of class 1"),
    ({"type": "Triplets"}, {"image": images(3, 1, 2, 2), "label": images(3)}, "does not hold a class"),
], ids=str)
def test_what_does_not_fit_is_an_error(probe, spec, batch, expected):
    with pytest.raises(ProbeError) as error:
        probe.ask("transform", named("input", batch), spec=spec, seed=0)
    assert expected in str(error.value)
