"""The transforms of images against torchvision's own classes, which draw from the same streams: on real images, as bytes
and as numbers from 0 to 1, the same pixels come out."""

import io
import os
import pathlib
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

import draws
from probe import ProbeError, named
from torchvision_peer import CHANGES, CUTMIX, IN_COLOR, MOVES, drawn_from

v2 = pytest.importorskip("torchvision.transforms.v2", reason="torchvision is not installed")
SEED = 3
NUM_REAL = 200


def generated(channels=3, height=23, width=34):
    """Smooth areas, noise and a flat image."""
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([(x * (c + 3) + y * 2) % 256 for c in range(channels)])
    noise = np.random.default_rng(1).integers(0, 256, (9, channels, height, width))
    dull = 90 + np.random.default_rng(2).integers(0, 40, (3, channels, height, width))
    return torch.from_numpy(np.concatenate([smooth[None], noise, dull, np.full_like(smooth, 77)[None]]).astype(np.uint8))


@pytest.fixture(scope="session")
def photographs():
    """[200, 3, 32, 32] bytes, of CIFAR-10's images."""
    archive = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "cifar10_images.tar.gz"
    if not archive.is_file():
        pytest.skip("no data: there is no cifar10_images.tar.gz in TRAINRUN_DATA")
    images = []
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(".jpg"):
                images.append(np.array(Image.open(io.BytesIO(files.extractfile(member).read()))).transpose(2, 0, 1))
            if len(images) == NUM_REAL:
                return torch.from_numpy(np.stack(images))
    raise AssertionError(f"{archive} holds {len(images)} images")


def converted(options):
    """A recipe's parameters as torchvision's arguments."""
    words = {"interpolation": v2.InterpolationMode, "policy": getattr(v2, "AutoAugmentPolicy", str)}
    return {k: words[k](v) if k in words else v for k, v in options.items() if k != "field"}


def by_torchvision(kind, options, images):
    transform = getattr(v2, kind)(**converted(options))
    results = []
    for i, image in enumerate(images):
        with drawn_from(draws.Draws(SEED).of(i)):
            results.append(transform(image))
    return torch.stack(results)


def by_us(probe, kind, options, images):
    field = options.get("field", "image")
    _, results = probe.ask("transform", named("input", {field: images}), spec={"type": kind} | options, seed=SEED)
    return results[f"output.{field}"]


def compare(probe, kind, options, images):
    expected, found = by_torchvision(kind, options, images), by_us(probe, kind, options, images)
    assert found.dtype == expected.dtype == images.dtype and found.shape == expected.shape
    if images.dtype == torch.uint8:
        most = (found.int() - expected.int()).abs().max().item()
        assert most <= (0 if kind in EXACT else 1), f"{kind} {options}: {most} levels"
    else:
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    return found


# Of these, bytes are the same to the bit; the others compute in floating point, where a sum's order may tip a rounding.
EXACT = {"RandomGrayscale", "RandomHorizontalFlip", "RandomVerticalFlip", "RandomCrop", "CenterCrop", "Pad"}

@pytest.mark.parametrize("kind, options", CHANGES + IN_COLOR, ids=str)
def test_real_images_are_changed_as_by_torchvision(probe, photographs, kind, options):
    found = compare(probe, kind, options, photographs)
    changed = (found != photographs).flatten(1).any(1).float().mean()
    assert changed > (0.05 if kind == "RandomGrayscale" else 0.3)


@pytest.mark.parametrize("kind, options", MOVES, ids=str)
def test_real_images_are_moved_as_by_torchvision(probe, photographs, kind, options):
    compare(probe, kind, options, photographs)


@pytest.mark.parametrize("kind, options", CHANGES + IN_COLOR, ids=str)
@pytest.mark.parametrize("numbers", [False, True], ids=["bytes", "numbers"])
def test_generated_images_are_changed_as_by_torchvision(probe, kind, options, numbers):
    images = generated()
    compare(probe, kind, options, images / 255 if numbers else images)


@pytest.mark.parametrize("kind, options", CHANGES, ids=str)
def test_gray_images_are_changed_as_by_torchvision(probe, kind, options):
    compare(probe, kind, options, generated(1))


@pytest.mark.parametrize("options", CUTMIX, ids=str)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "soft labels"])
def test_cutmix_puts_a_rectangle_of_the_sample_before_into_each(probe, options, soft):
    images, count = generated() / 255, 5
    labels = torch.arange(len(images)) % count
    if soft:
        labels = torch.nn.functional.one_hot(labels, count).float()
    _, results = probe.ask("transform", named("input", {"image": images, "label": labels}), spec={"type": "CutMix", "num_classes": count} | options,
                           seed=SEED)
    transform = v2.CutMix(num_classes=count, **options)
    for i in range(len(images)):
        with drawn_from(draws.Draws(SEED).of(i)):
            image, label = transform(images[[i, i - 1]], labels[[i, i - 1]])
        assert torch.equal(results["output.image"][i], image[0])
        torch.testing.assert_close(results["output.label"][i], label[0])


def test_cutmix_takes_other_fields_and_the_data_sets_number_of_classes(probe):
    batch = {"x": generated()[:4], "y": torch.tensor([2, 0, 1, 1])}
    _, results = probe.ask("transform", named("input", batch), spec={"type": "CutMix", "field": "x", "label": "y", "num_classes": 3}, seed=SEED)
    assert results["output.y"].sum(1).tolist() == pytest.approx([1] * 4)
    assert not torch.equal(results["output.x"], batch["x"])


@pytest.mark.parametrize("spec, expected", [
    ({"type": "ColorJitter", "brightness": -0.1}, "brightness: must be >= 0"),
    ({"type": "ColorJitter", "contrast": [1.2, 0.8]}, "contrast: the smaller number comes first"),
    ({"type": "ColorJitter", "hue": 0.6}, "hue: a hue is shifted by -0.5 to 0.5"),
    ({"type": "ColorJitter", "field": "two"}, "expected images of 1 channel or 3, 'two' is [N, 2, 4, 4]"),
    ({"type": "GaussianBlur", "kernel_size": 4}, "kernel_size: must be odd"),
    ({"type": "GaussianBlur", "kernel_size": [3, 47]}, "a kernel of 3x47 pixels (width x height) reaches beyond 'image', 34x23"),
    ({"type": "GaussianBlur", "kernel_size": 3, "sigma": [2, 1]}, "sigma: the smaller number comes first"),
    ({"type": "RandomAffine", "degrees": -1}, "degrees: must be >= 0"),
    ({"type": "RandomAffine", "degrees": 1, "translate": [0, 2]}, "translate: must be >= 0 and <= 1, is 2"),
    ({"type": "RandomAffine", "degrees": 1, "shear": [0, 1, 3, 2]}, "shear: the smaller number comes first"),
    ({"type": "RandomAffine", "degrees": 1, "fill": [1, 2]}, "fill has 2 numbers, but 'image' [N, 3, 23, 34] has 3 channels"),
    ({"type": "RandAugment", "magnitude": 31}, "magnitude: must be below num_magnitude_bins, 31"),
    ({"type": "AugMix", "severity": 11}, "severity: must be >= 1 and <= 10, is 11"),
    ({"type": "AutoAugment", "policy": "cifar100"}, "policy"),
    ({"type": "CutMix"}, "does not say how many classes 'label' has; write num_classes"),
], ids=str)
def test_what_does_not_fit_is_an_error(probe, spec, expected):
    batch = {"image": generated(), "two": torch.zeros(14, 2, 4, 4), "label": torch.zeros(14, dtype=torch.int64)}
    with pytest.raises(ProbeError) as error:
        probe.ask("transform", named("input", batch), spec=spec, seed=0)
    assert expected in str(error.value)
