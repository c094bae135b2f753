"""torchvision's transforms as peers of ours: they are made to draw from our streams, so that both change an image by the same
parameters; and what is compared."""

import contextlib
from unittest import mock

import torch

import draws


def drawn_from(stream: draws.Stream):
    """What torchvision calls for random numbers, answered by `stream`."""

    def integers(*arguments, low=None, high=None, size=None, **_):
        bounds = [a for a in arguments if isinstance(a, int)] + [b for b in (low, high) if b is not None]
        least, below = (0, bounds[0]) if len(bounds) == 1 else bounds
        shape = size if size is not None else next((a for a in arguments if not isinstance(a, int)), ())
        return torch.full(tuple(shape), least + stream.integer(below - least))

    def permutation(count):
        order = list(range(count))
        for i in range(count - 1, 0, -1):
            j = stream.integer(i + 1)
            order[i], order[j] = order[j], order[i]
        return torch.tensor(order)

    def uniform(tensor, least=0.0, most=1.0):
        return tensor.fill_(stream.uniform(least, most))

    def dirichlet(parameters):
        assert parameters.shape[0] == 1
        return torch.tensor([[stream.log_gamma(alpha) for alpha in parameters[0].tolist()]], dtype=torch.float64).softmax(1).float()

    def beta(distribution, _shape=()):
        return torch.tensor([stream.beta(distribution.concentration1.item())])

    stack = contextlib.ExitStack()
    for owner, name, replacement in [
        (torch, "randint", integers),
        (torch, "randperm", permutation),
        (torch, "rand", lambda *_, **__: torch.tensor(stream.uniform(), dtype=torch.float64)),
        (torch.Tensor, "uniform_", uniform),
        (torch, "_sample_dirichlet", dirichlet),
        (torch.distributions.Beta, "sample", beta),
    ]:
        stack.enter_context(mock.patch.object(owner, name, replacement))
    return stack

# A transform and its parameters, which torchvision's class of that name has, too (`field` is ours). The images are bytes, or numbers
# from 0 to 1, of one channel or three; those in color have three.
CHANGES = [
    ("ColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.2}),
    ("ColorJitter", {"brightness": [1.3, 1.3], "field": "x"}),
    ("ColorJitter", {"contrast": [0.2, 1.7], "hue": [-0.5, 0.5]}),
    ("ColorJitter", {"saturation": 3.0, "hue": 0.0}),
    ("ColorJitter", {"hue": [0.1, 0.1]}),
    ("RandomGrayscale", {"p": 0.6}),
    ("RandomGrayscale", {"field": "x"}),
    ("GaussianBlur", {"kernel_size": 5}),
    ("GaussianBlur", {"kernel_size": [9, 3], "sigma": [0.5, 3.0]}),
    ("GaussianBlur", {"kernel_size": 3, "sigma": 1.5, "field": "x"}),
    ("RandomRotation", {"degrees": 40}),
    ("RandomRotation", {"degrees": [-200, -100], "interpolation": "bilinear", "fill": 90}),
    ("RandomRotation", {"degrees": [90, 90]}),
    ("RandomRotation", {"degrees": 20, "center": [4, 7], "fill": [0.25]}),
    ("RandomAffine", {"degrees": 30}),
    ("RandomAffine", {"degrees": [0, 0], "translate": [0.3, 0.2], "fill": 0.5}),
    ("RandomAffine", {"degrees": [-10, 50], "translate": [0.1, 0.1], "scale": [0.5, 1.5], "shear": 20, "field": "x"}),
    ("RandomAffine", {"degrees": 5, "shear": [-10, 30], "interpolation": "bilinear", "fill": 30, "center": [3, 5]}),
    ("RandomAffine", {"degrees": 0, "shear": [-10, 30, 10, 20], "interpolation": "bilinear"}),
    ("RandomPerspective", {"field": "x"}),
    ("RandomPerspective", {"p": 1.0, "distortion_scale": 0.9, "interpolation": "nearest", "fill": 1}),
    ("TrivialAugmentWide", {"field": "x"}),
    ("TrivialAugmentWide", {"num_magnitude_bins": 12, "interpolation": "bilinear", "fill": 100}),
    ("RandAugment", {"field": "x"}),
    ("RandAugment", {"num_ops": 4, "magnitude": 5, "num_magnitude_bins": 7, "interpolation": "bilinear", "fill": 9}),
    ("AutoAugment", {"field": "x"}),
    ("AutoAugment", {"policy": "cifar10"}),
    ("AutoAugment", {"policy": "svhn", "interpolation": "bilinear", "fill": 0}),
    ("AugMix", {"field": "x"}),
    ("AugMix", {"severity": 10, "mixture_width": 2, "chain_depth": 4, "alpha": 0.4, "all_ops": False, "interpolation": "nearest", "fill": 7}),
]
IN_COLOR = [
    ("RandomAffine", {"degrees": 45, "fill": [10, 20, 30]}),
    ("RandomPerspective", {"p": 1.0, "fill": [0.1, 0.5, 0.9]}),
    ("TrivialAugmentWide", {"fill": [200, 100, 0]}),
]
# Those that have formulas of their own in transforms_parity_test.py.
MOVES = [
    ("RandomHorizontalFlip", {}),
    ("RandomVerticalFlip", {"p": 0.7}),
    ("RandomCrop", {"size": [20, 27]}),
    ("RandomCrop", {"size": 32, "padding": 4, "fill": 128}),
    ("RandomCrop", {"size": 32, "padding": 4, "padding_mode": "reflect"}),
    ("RandomCrop", {"size": [30, 34], "padding": 3, "padding_mode": "edge"}),
    ("RandomCrop", {"size": [60, 34], "padding": 3, "pad_if_needed": True, "fill": 70}),
    ("RandomCrop", {"size": [41, 60], "pad_if_needed": True, "padding_mode": "symmetric"}),
    ("RandomResizedCrop", {"size": 24}),
    ("RandomResizedCrop", {"size": [40, 20], "interpolation": "nearest", "scale": [0.3, 0.6]}),
    ("Resize", {"size": 20}),
    ("Resize", {"size": [50, 17], "antialias": False}),
    ("CenterCrop", {"size": [21, 40]}),
    ("Pad", {"padding": [1, 2, 3, 4], "padding_mode": "reflect"}),
]
CUTMIX = [{}, {"alpha": 0.3}]
