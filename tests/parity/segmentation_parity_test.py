"""Images with masks: masks are decoded as Pillow does, and move with their images as in torchvision."""

import subprocess
from collections import OrderedDict

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import draws
import reference
from probe import ProbeError, missing_rows

from tests.program import CALLED

tv_tensors = pytest.importorskip("torchvision.tv_tensors", reason="torchvision is not installed")
from torchvision.transforms import v2  # noqa: E402

from torchvision_peer import drawn_from  # noqa: E402

CLASSES = 5
USED = []


def read(probe, root, **options):
    spec = {"type": "SegmentationFolder", "root": str(root), "num_classes": CLASSES} | options
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec)
    return results.under("output"), reply


def write(root, count=6, height=40, width=51):
    """Patches of classes, and photographs of them: [count, height, width] each, 50 levels of gray a class."""
    (root / "images/a").mkdir(parents=True)
    (root / "masks/a").mkdir(parents=True)
    patches = np.random.default_rng(3).integers(0, CLASSES, (count, height // 5, width // 5 + 1), dtype=np.uint8)
    masks = patches.repeat(5, 1).repeat(5, 2)[:, :height, :width]
    for i, mask in enumerate(masks):
        Image.fromarray(np.stack([mask * 50] * 3, -1)).save(root / f"images/a/{i}.bmp")
        Image.fromarray(mask).save(root / f"masks/a/{i}.png")
    return torch.from_numpy(masks.astype(np.int64))


def test_images_come_with_their_masks(probe, tmp_path):
    masks = write(tmp_path)
    fields, reply = read(probe, tmp_path)
    assert reply["target"] == "mask" and reply["fields"] == ["image", "mask"]
    assert torch.equal(fields["mask"], masks)
    assert torch.equal(fields["image"][:, 1], (masks * 50).to(torch.uint8))


LAYOUTS = {  # the folders of images and masks, and the ends of their names
    "parts within": ("images/train", "annotations/train", "", ""),
    "other names": ("leftImg8bit/train", "gtFine/train", "_leftImg8bit", "_gtFine_labelTrainIds"),
    "one folder": (".", ".", "", "_mask"),
    "one folder, images with the longer suffix": ("both", "both/", "_image", ""),
    "masks within the images": ("", "masks", "", ""),
    "images within the masks": ("a/b", "a", "_i", "_m"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_and_names_may_be_others(probe, tmp_path, layout):
    images, masks, image_suffix, mask_suffix = LAYOUTS[layout]
    write(tmp_path / "plain")
    for i in range(6):
        for kind, folder, name in (("images", images, f"{i}{image_suffix}.bmp"), ("masks", masks, f"{i}{mask_suffix}.png")):
            path = tmp_path / "other" / folder / f"part{i % 2}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(next((tmp_path / "plain" / kind / "a").glob(f"{i}.*")).read_bytes())
    fields, _ = read(probe, tmp_path / "other", images=images, masks=masks, image_suffix=image_suffix, mask_suffix=mask_suffix)
    plain, _ = read(probe, tmp_path / "plain")
    order = [0, 2, 4, 1, 3, 5]
    assert torch.equal(fields["mask"], plain["mask"][order]) and torch.equal(fields["image"], plain["image"][order])


CHAINS = {
    "RandomResizedCrop": [{"type": "RandomResizedCrop", "size": [24, 30], "interpolation": "nearest"}],
    "flips": ["RandomHorizontalFlip", "RandomVerticalFlip"],
    "RandomCrop": [{"type": "RandomCrop", "size": 40, "padding": 9, "fill": 200}],
    "RandomCrop of small images": [{"type": "RandomCrop", "size": 48, "pad_if_needed": True, "fill": 200}],
    "Pad": [{"type": "Pad", "padding": [3, 1], "fill": 200}, {"type": "Pad", "padding": 2, "padding_mode": "reflect"}],
    "CenterCrop": [{"type": "CenterCrop", "size": [31, 20]}],
    "Resize": [{"type": "Resize", "size": 33, "interpolation": "nearest"}],
    "RandomRotation": [{"type": "RandomRotation", "degrees": 80, "fill": 200}],
    "RandomAffine": [{"type": "RandomAffine", "degrees": 20, "translate": [0.2, 0.2], "scale": [0.6, 1.4], "shear": 9, "fill": 200}],
    "RandomPerspective": [{"type": "RandomPerspective", "interpolation": "nearest", "fill": 200}],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_mask_moves_with_its_image(probe, tmp_path, chain):
    masks = write(tmp_path)
    fields, _ = read(probe, tmp_path, image_transforms=CHAINS[chain], mask_fill=4)
    assert torch.equal(fields["mask"] * 50, fields["image"][:, 0].long())
    assert fields["mask"].shape != masks.shape or not torch.equal(fields["mask"], masks)


def test_a_mask_keeps_its_classes_where_the_image_is_smoothed_or_coloured(probe, tmp_path):
    """In torchvision's words and by its draws; what a mask is filled with is the mask's own."""
    masks = write(tmp_path)
    options = [("RandomResizedCrop", {"size": [24, 30]}), ("ColorJitter", {"brightness": 0.5, "hue": 0.2}), ("RandomHorizontalFlip", {}),
               ("RandomRotation", {"degrees": 30, "interpolation": "bilinear", "fill": 9}), ("GaussianBlur", {"kernel_size": 3})]
    fields, _ = read(probe, tmp_path, image_transforms=[{"type": kind} | o for kind, o in options], mask_fill=3)
    for i, mask in enumerate(masks):
        image = tv_tensors.Image((mask * 50).to(torch.uint8).expand(3, -1, -1))
        expected = tv_tensors.Mask(mask.to(torch.uint8)[None])
        for step, (kind, arguments) in enumerate(options):
            words = {"interpolation": v2.InterpolationMode, "fill": lambda fill: {tv_tensors.Image: fill, tv_tensors.Mask: 3}}
            transform = getattr(v2, kind)(**{k: words[k](v) if k in words else v for k, v in arguments.items()})
            key = draws.splitmix64(draws.Draws(0).key ^ step)
            with drawn_from(draws.Stream(draws.splitmix64(key ^ i))):
                image, expected = transform(image, expected)
        assert torch.equal(fields["mask"][i], expected[0].long())
        assert (fields["image"][i].int() - image.int()).abs().max() <= 2  # two transforms that round


@pytest.mark.parametrize("kind", ["palette1", "palette2", "palette4", "palette8", "gray1", "gray8"])
def test_masks_are_decoded_as_pillow_does(probe, tmp_path, kind):
    write(tmp_path, count=1, height=15, width=19)
    bits = int(kind[-1])
    numbers = np.random.default_rng(1).integers(0, min(2**bits, CLASSES), (15, 19), dtype=np.uint8)
    image = Image.fromarray(numbers, "P") if kind.startswith("palette") else Image.fromarray(numbers)
    if kind.startswith("palette"):
        image.putpalette([i % 256 for i in range(3 * 2**bits)])
    if kind == "gray1":
        image = Image.fromarray(numbers.astype(bool))
    path = tmp_path / "masks/a/0.png"
    image.save(path, **({"bits": bits} if kind.startswith("palette") else {}))
    fields, _ = read(probe, tmp_path)
    assert np.array_equal(fields["mask"][0].numpy(), np.array(Image.open(path)).astype(np.int64))
    assert np.array_equal(fields["mask"][0].numpy(), numbers)


def spoil_mask(root):
    Image.new("RGB", (51, 40)).save(root / "masks/a/1.png")


def shrink_mask(root):
    Image.new("L", (50, 40)).save(root / "masks/a/1.png")


@pytest.mark.parametrize("spoil, options, message", [
    (lambda root: (root / "masks/a/2.png").unlink(), {}, "there is no {root}/masks/a/2.png, the mask of {root}/images/a/2.bmp"),
    (spoil_mask, {}, "masks/a/1.png: the PNG has colours, transparency or 16 bits"),
    (shrink_mask, {}, "masks/a/1.png: the mask has 40x50 pixels, its image 40x51"),
    (lambda root: (root / "masks/a/1.png").write_bytes((root / "images/a/1.bmp").read_bytes()), {}, "masks/a/1.png: a mask must be a PNG file"),
    (lambda root: (root / "masks/a/1.png").write_bytes(b""), {"cache": "memory"}, "masks/a/1.png: the file is empty"),
    (lambda root: (root / "masks").rename(root / "labels"), {}, "there is no folder {root}/masks; `masks` is the folder within `root` that holds the masks"),
    (lambda root: None, {"images": "train"}, "there is no folder {root}/train; `images` is the folder within `root` that holds the images"),
    (lambda root: None, {"masks": "images"}, "images and masks are both in {root}/images, so their names must differ: write mask_suffix"),
    (lambda root: None, {"image_suffix": "_photo"}, "{root}/images holds no JPEG, PNG, WebP or BMP file whose name ends with _photo"),
    (lambda root: None, {"mask_suffix": "_mask"}, "there is no {root}/masks/a/0_mask.png, the mask of {root}/images/a/0.bmp"),
    (lambda root: None, {"image_transforms": ["RandAugment"]}, "RandAugment cannot change an image and its mask alike"),
    (lambda root: None, {"image_transforms": [{"type": "Copy", "to": "x"}]}, "Copy cannot change an image and its mask alike"),
], ids=range(12))
def test_what_does_not_fit_is_named(probe, tmp_path, spoil, options, message):
    write(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ProbeError) as error:
        read(probe, tmp_path, **options)
    assert message.format(root=tmp_path) in str(error.value)


@pytest.mark.parametrize("cache", ["none", "memory"])
def test_a_broken_mask_is_told_with_what_leaves_it_out(probe, tmp_path, cache):
    write(tmp_path)
    spoil_mask(tmp_path)
    with pytest.raises(ProbeError) as error:
        read(probe, tmp_path, cache=cache)
    assert "masks/a/1.png: the PNG has colours" in str(error.value)
    assert str(error.value).count("; the data set's broken: skip leaves such files out") == 1


@pytest.mark.parametrize("cache", ["none", "memory"])
def test_a_broken_mask_is_left_out_with_its_image(probe, tmp_path, cache):
    masks = write(tmp_path)
    spoil_mask(tmp_path)
    fields, _ = read(probe, tmp_path, broken="skip", cache=cache, mode="L")
    assert torch.equal(fields["mask"], masks[[0, 2, 3, 4, 5]]) and fields["image"].shape[:2] == (5, 1)


CROPS = """
version: 1
name: crops
model: {{layers: [{{type: Conv2d, name: a, out_channels: 8, kernel_size: 3, padding: 1}}, ReLU, {{type: Conv2d, name: b, out_channels: {classes}, kernel_size: 1}}]}}
loss: CrossEntropyLoss
metrics: [MeanIoU, Accuracy]
dataset:
  train: {{type: SegmentationFolder, root: {root}, num_classes: {classes}, image_transforms: [{{type: RandomCrop, size: 24}}]}}
  eval: {{type: SegmentationFolder, root: {root}, num_classes: {classes}{more}}}
dataloader: {{batch_size: 3, eval_batch_size: 4}}
optimizer: {{type: Adam, lr: 0.01}}
training: {{max_steps: 8}}
evaluation: {{every: 8}}
checkpoint: {{every: 8}}
"""


def test_a_training_on_crops_is_evaluated_on_whole_pictures(tmp_path):
    masks = write(tmp_path)
    (tmp_path / "recipe.yaml").write_text(CROPS.format(root=tmp_path, classes=CLASSES, more=""))
    lines, run = reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "run")
    [own] = [line for line in lines if line["split"] == "eval"]
    net = torch.nn.Sequential(OrderedDict(a=torch.nn.Conv2d(3, 8, 3, padding=1), relu=torch.nn.ReLU(), b=torch.nn.Conv2d(8, CLASSES, 1)))
    net.load_state_dict(load_file(run / "checkpoints/latest/model.safetensors"))
    pictures = torch.stack([torch.from_numpy(np.array(Image.open(tmp_path / f"images/a/{i}.bmp"))) for i in range(len(masks))]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        logits = net(pictures)
    found = logits.argmax(1)
    overlaps = [(((found == c) & (masks == c)).sum() / ((found == c) | (masks == c)).sum()).item() for c in range(CLASSES)]
    assert own["eval/loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, masks).item(), rel=1e-5)
    assert own["eval/accuracy"] == pytest.approx((found == masks).double().mean().item())
    assert own["eval/mean_iou"] == pytest.approx(sum(overlaps) / CLASSES)


def test_masks_of_another_size_than_the_scores_are_refused(tmp_path):
    write(tmp_path)
    shrink = CROPS.replace("kernel_size: 1}}", "kernel_size: 1, stride: 2}}")
    (tmp_path / "recipe.yaml").write_text(shrink.format(root=tmp_path, classes=CLASSES, more=""))
    done = subprocess.run([CALLED, "validate", str(tmp_path / "recipe.yaml")], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "CrossEntropyLoss does not fit [N, 5, 12, 12] and [N, 24, 24]" in done.stderr


def test_every_parameter_has_a_test(probe):
    known = {"SegmentationFolder": probe.ask("catalog")["dataset"]["SegmentationFolder"]}
    assert missing_rows(known, USED, ignored={"SegmentationFolder.subset", "SegmentationFolder.split"}) == []
