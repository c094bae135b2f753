"""torchvision's models beside the layers that trainrun has for them: what a recipe says, and what makes the same in Python."""

import dataclasses
import functools
import os
from collections.abc import Callable

import torch
from torch import nn
from torchvision import models
from torchvision.models.vision_transformer import VisionTransformer

CLASSES = 7


@dataclasses.dataclass
class VisionModel:
    spec: dict
    make: Callable[[], nn.Module]
    size: int = 64  # of its images
    draws_alike: bool = True  # the same seed gives the same weights

    def __str__(self):
        return self.spec["type"] + ("_" + self.spec["stem"] if self.spec.get("stem") == "cifar" else "")

    def images(self, num_images: int = 4) -> torch.Tensor:
        return torch.randn((num_images, 3, self.size, self.size), generator=torch.Generator().manual_seed(3))


def cifar_resnet18() -> nn.Module:
    """What CIFAR's users make of torchvision's: a stem that leaves images of 32x32 as large as they are."""
    model = models.resnet18(num_classes=CLASSES)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padding and batch normalization."""

    def __init__(self, num_classes: int, channels: int, depth: int):
        super().__init__()
        self.depth = depth
        width = 3
        for level in range(depth + 1):
            self.add_module("bottom" if level == depth else f"down{level}", self.double(width, channels << level))
            width = channels << level
        for level in reversed(range(depth)):
            self.add_module(f"up{level}", nn.ConvTranspose2d(width, channels << level, 2, 2))
            self.add_module(f"decode{level}", self.double(2 * (channels << level), channels << level))
            width = channels << level
        self.head = nn.Conv2d(width, num_classes, 1)

    @staticmethod
    def double(before: int, channels: int) -> nn.Module:
        layers = nn.Sequential()
        for number, width in (("1", before), ("2", channels)):
            layers.add_module("conv" + number, nn.Conv2d(width, channels, 3, padding=1, bias=False))
            layers.add_module("bn" + number, nn.BatchNorm2d(channels))
            layers.add_module("relu" + number, nn.ReLU())
        return layers

    def forward(self, x):
        kept = []
        for level in range(self.depth):
            kept.append(getattr(self, f"down{level}")(x))
            x = nn.functional.max_pool2d(kept[-1], 2)
        x = self.bottom(x)
        for level in reversed(range(self.depth)):
            x = getattr(self, f"decode{level}")(torch.cat([kept[level], getattr(self, f"up{level}")(x)], 1))
        return self.head(x)


def vision_model(type_: str, make: Callable[..., nn.Module], size: int = 64, **options) -> VisionModel:
    """`options`: those that both sides call the same."""
    options["num_classes"] = CLASSES
    return VisionModel({"type": type_} | options, functools.partial(make, **options), size)


def resnet(type_: str, make: Callable[..., nn.Module]) -> VisionModel:
    model = vision_model(type_, make, zero_init_residual=True)
    return VisionModel(model.spec | {"stem": "imagenet"}, model.make)


def vit(type_: str, heads: int, features: int, size: int = 48, **options) -> VisionModel:
    make = functools.partial(VisionTransformer, image_size=size, patch_size=16, num_layers=12, num_heads=heads,
                             hidden_dim=features, mlp_dim=4 * features)
    return vision_model(type_, make, size, **options)


def with_a_head(model: VisionModel) -> VisionModel:
    """torchvision's Vision Transformers begin with zeros in the last layer, which would hide all that comes before."""
    def make() -> nn.Module:
        made = model.make()
        nn.init.normal_(made.heads.head.weight, std=0.05)
        return made
    return VisionModel(model.spec, make, model.size, draws_alike=False)


def unet(channels: int = 64, depth: int = 4) -> VisionModel:
    return vision_model("UNet", UNet, channels=channels, depth=depth)


VGGS = ["VGG11", "VGG13", "VGG16", "VGG19", "VGG11_bn", "VGG13_bn", "VGG16_bn", "VGG19_bn"]
EFFICIENT = [f"EfficientNetB{i}" for i in range(5)]

# Every model, with every parameter: names and shapes.
ALL = [
    *[resnet(f"ResNet{depth}", getattr(models, f"resnet{depth}")) for depth in (18, 34, 50, 101, 152)],
    resnet("WideResNet50_2", models.wide_resnet50_2),
    resnet("WideResNet101_2", models.wide_resnet101_2),
    *[vision_model(name, getattr(models, name.lower()), dropout=0.4) for name in VGGS],
    vision_model("MobileNetV2", models.mobilenet_v2, dropout=0.3, width_mult=0.75),
    vision_model("MobileNetV3Small", models.mobilenet_v3_small, dropout=0.3, width_mult=1.25),
    vision_model("MobileNetV3Large", models.mobilenet_v3_large, dropout=0.3, width_mult=0.6),
    *[vision_model(name, getattr(models, "efficientnet_b" + name[-1]), dropout=0.1, stochastic_depth_prob=0.3)
      for name in EFFICIENT],
    vision_model("ConvNeXtTiny", models.convnext_tiny, stochastic_depth_prob=0.2, layer_scale=1e-3),
    vit("ViT_S_16", 6, 384, dropout=0.1, attention_dropout=0.1),
    vit("ViT_B_16", 12, 768, dropout=0.1, attention_dropout=0.1),
    unet(),
]

VIT = vit("ViT_S_16", 6, 384, dropout=0.1, attention_dropout=0.1)

# Those that are compared by what they compute: at least one of each family, where the largest would take CI's time.
COMPUTED = [
    vision_model("ResNet18", models.resnet18),
    VisionModel({"type": "ResNet18", "num_classes": CLASSES, "stem": "cifar"}, cifar_resnet18, 32, draws_alike=False),
    vision_model("ResNet50", models.resnet50),
    vision_model("VGG11_bn", models.vgg11_bn, 32),
    vision_model("MobileNetV2", models.mobilenet_v2),
    vision_model("MobileNetV3Small", models.mobilenet_v3_small),
    vision_model("MobileNetV3Large", models.mobilenet_v3_large),
    vision_model("EfficientNetB0", models.efficientnet_b0),
    vision_model("ConvNeXtTiny", models.convnext_tiny, 32, layer_scale=1.0, stochastic_depth_prob=0.5),
    with_a_head(VIT),
    unet(8, 3),
]

if os.environ.get("TRAINRUN_ALL_MODELS"):  # by hand: minutes
    others = [model for model in ALL if model.spec not in [known.spec for known in COMPUTED]]
    COMPUTED += [with_a_head(model) if "ViT" in model.spec["type"] else model for model in others]

SPECS = [model.spec for model in [*ALL, *COMPUTED]]
