"""Folders of images, decoded as Pillow decodes them, through transforms, as samples and in training."""

import os
import pathlib
import struct
import subprocess
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import draws
from fuzzing import fuzz
from hostile_images import HEIGHT, HOSTILE, WIDTH
from probe import Probe, ProbeError, missing_rows
from reference import training_losses
from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
USED = []


def read(probe, spec):
    """Fields of all samples, and the reply."""
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec)
    return results.under("output"), reply


def picture(seed=0, height=HEIGHT, width=WIDTH):
    """Smooth areas and noise: [height, width, 3] bytes."""
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([x * 3 + y, y * 4, x * y // 9], -1)
    return ((smooth + np.random.default_rng(seed).integers(0, 40, smooth.shape)) % 256).astype(np.uint8)


def png_of(depth, color_type, channels):
    """A PNG written by hand, for what Pillow does not write."""
    samples = np.random.default_rng(1).integers(0, 65536, (HEIGHT, WIDTH, channels)).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in samples)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""), samples


def write_all_kinds(folder):
    """One file of each kind that Pillow writes."""
    folder.mkdir(parents=True)
    rgb = Image.fromarray(picture())
    gray = rgb.convert("L")
    rgba = rgb.copy()
    rgba.putalpha(gray)
    for quality in (30, 75, 95):
        for subsampling in (0, 1, 2):
            rgb.save(folder / f"q{quality}_s{subsampling}.jpg", quality=quality, subsampling=subsampling)
    rgb.save(folder / "progressive.JPEG", progressive=True)
    gray.save(folder / "gray.jpg")
    rgb.convert("CMYK").save(folder / "inks.jpg")
    turned = rgb.getexif()
    turned[0x112] = 6
    rgb.save(folder / "turned_camera.jpg", exif=turned)
    (folder / "behind_the_end.jpg").write_bytes((folder / "q75_s2.jpg").read_bytes() + b"more" * 99)
    for name, image in {"rgb": rgb, "gray": gray, "palette": rgb.convert("P"), "one_bit": rgb.convert("1"), "rgba": rgba,
                        "gray_alpha": gray.convert("LA"), "palette_alpha": rgba.quantize(16), "four_colours": rgb.quantize(4)}.items():
        image.save(folder / f"{name}.png")
    (folder / "rgb16.png").write_bytes(png_of(16, 2, 3)[0])
    (folder / "rgba16.png").write_bytes(png_of(16, 6, 4)[0])
    rgb.save(folder / "lossy.webp", quality=80)
    rgb.save(folder / "lossless.WebP", lossless=True)
    rgba.save(folder / "alpha.webp", quality=70)
    rgb.save(folder / "animated.webp", save_all=True, append_images=[gray.convert("RGB")], duration=100)
    for name, image in {"rgb": rgb, "gray": gray, "palette": rgb.convert("P"), "one_bit": rgb.convert("1"), "rgba": rgba}.items():
        image.save(folder / f"{name}.bmp")
    os.link(folder / "rgb.png", folder / "is_a_png.jpg")


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_kind_of_file_is_decoded_as_pillow_does(probe, tmp_path, mode):
    write_all_kinds(tmp_path / "root/only")
    fields, _ = read(probe, {"type": "ImageFolder", "root": str(tmp_path / "root"), "mode": mode})
    paths = sorted((tmp_path / "root/only").iterdir())
    assert len(paths) == len(fields["image"]) >= 30
    for path, found in zip(paths, fields["image"], strict=True):
        expected = torch.from_numpy(np.array(Image.open(path).convert(mode)))
        expected = expected.permute(2, 0, 1) if mode == "RGB" else expected[None]
        assert torch.equal(found, expected), path.name


def test_of_gray_of_16_bits_the_upper_8_count(probe, tmp_path):
    """Pillow cuts everything above 255, which leaves white."""
    (tmp_path / "only").mkdir()
    content, samples = png_of(16, 0, 1)
    (tmp_path / "only/a.png").write_bytes(content)
    fields, _ = read(probe, {"type": "ImageFolder", "root": str(tmp_path), "mode": "L"})
    assert torch.equal(fields["image"][0, 0], torch.from_numpy((samples[..., 0] >> 8).astype(np.uint8)))


def test_classes_are_numbered_by_name_and_folders_within_them_belong_to_them(probe, tmp_path):
    places = ["b/z.png", "b/deep/er/a.png", "b/deep.png", "a/x.png", "C/1.png", "C/10.png", "C/2.png"]
    for i, place in enumerate(places):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2, 3), i, np.uint8)).save(path)
    (tmp_path / "a/notes.txt").write_text("no image")
    (tmp_path / "list.txt").write_text("no class")
    fields, reply = read(probe, {"type": "ImageFolder", "root": str(tmp_path)})
    expected = []  # as torchvision's ImageFolder lists them
    for label, name in enumerate(sorted(entry.name for entry in os.scandir(tmp_path) if entry.is_dir())):
        for root, _, names in sorted(os.walk(tmp_path / name)):
            expected += [(label, places.index(os.path.relpath(os.path.join(root, n), tmp_path))) for n in sorted(names) if n.endswith("png")]
    assert list(zip(fields["label"].tolist(), fields["image"][:, 0, 0, 0].tolist(), strict=True)) == expected
    assert reply["target"] == "label"


@pytest.mark.parametrize("interpolation, pillow", [("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)])
def test_images_of_different_sizes_are_resized_as_pillow_does(probe, tmp_path, interpolation, pillow):
    (tmp_path / "only").mkdir()
    for i, size in enumerate([(61, 83), (200, 150), (32, 32), (97, 400)]):
        Image.fromarray(picture(i, *size)).save(tmp_path / f"only/{i}.png")
    spec = {"type": "ImageFolder", "root": str(tmp_path), "image_transforms": [{"type": "Resize", "size": [48, 40], "interpolation": interpolation}]}
    fields, _ = read(probe, spec)
    assert fields["image"].dtype == torch.uint8
    for i, found in enumerate(fields["image"]):
        expected = np.array(Image.open(tmp_path / f"only/{i}.png").resize((40, 48), pillow)).transpose(2, 0, 1)
        assert np.abs(found.numpy().astype(int) - expected).max() <= 1


def test_each_image_is_cut_by_its_own_draws(probe, tmp_path):
    from transforms_parity_test import window

    (tmp_path / "only").mkdir()
    for i in range(6):
        Image.fromarray(picture(i, 90 + i, 70)).save(tmp_path / f"only/{i}.png")
    spec = {"type": "ImageFolder", "root": str(tmp_path),
            "image_transforms": [{"type": "RandomResizedCrop", "size": 32}, {"type": "RandomHorizontalFlip"}]}
    fields, _ = read(probe, spec)
    mirrored = 0
    for i, found in enumerate(fields["image"]):
        image = Image.open(tmp_path / f"only/{i}.png")
        key = draws.Draws(0).key
        crop, flip = (draws.Stream(draws.splitmix64(draws.splitmix64(key ^ step) ^ i)) for step in (0, 1))
        top, left, h, w = window(crop, image.height, image.width, (0.08, 1.0), (3 / 4, 4 / 3))
        part = image.crop((left, top, left + w, top + h)).resize((32, 32), Image.Resampling.BILINEAR)
        if flip.uniform() < 0.5:
            mirrored += 1
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        assert np.abs(found.numpy().astype(int) - np.array(part).transpose(2, 0, 1)).max() <= 1
    assert 0 < mirrored < 6


DAMAGE = {
    "cut_off.jpg": (lambda b: b["jpg"][: len(b["jpg"]) // 2], "the JPEG is cut off"),
    "no_end.jpg": (lambda b: b["jpg"][:-2], "the JPEG is cut off"),
    "no_header.jpg": (lambda b: b["jpg"][:30], "the JPEG has no size: its first part is missing or damaged"),
    "cut_off.png": (lambda b: b["png"][: len(b["png"]) // 2], "the PNG is cut off"),
    "changed.png": (lambda b: b["png"][:300] + bytes([b["png"][300] ^ 255]) + b["png"][301:], "the PNG is damaged"),
    "cut_off.webp": (lambda b: b["webp"][: len(b["webp"]) // 2], "the WebP is damaged or cut off"),
    "cut_off.bmp": (lambda b: b["bmp"][: len(b["bmp"]) // 2], "the BMP is cut off"),
    "huge.bmp": (lambda b: b["bmp"][:18] + struct.pack("<ii", 60000, 60000) + b["bmp"][26:], "the image claims 60000x60000 pixels"),
    "flat.bmp": (lambda b: b["bmp"][:18] + struct.pack("<ii", 0, 7) + b["bmp"][26:], "the image has 0x7 pixels"),
    "empty.jpg": (lambda b: b"", "the file is empty"),
    "text.jpg": (lambda b: b"<html>404</html>", "this is not a JPEG, PNG, WebP or BMP file"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_pillow_refuses_is_refused_by_name_or_left_out(probe, tmp_path, name):
    (tmp_path / "only").mkdir()
    formats = {}
    for kind in ("jpg", "png", "webp", "bmp"):
        path = tmp_path / f"only/whole.{kind}"
        Image.fromarray(picture()).save(path)
        formats[kind] = path.read_bytes()
    damage, message = DAMAGE[name]
    (tmp_path / "only" / name).write_bytes(damage(formats))
    with warnings.catch_warnings(), pytest.raises((OSError, SyntaxError, Image.DecompressionBombError)):
        warnings.simplefilter("ignore")
        Image.open(tmp_path / "only" / name).load()
    spec = {"type": "ImageFolder", "root": str(tmp_path)}
    for cache in ("none", "memory"):
        with pytest.raises(ProbeError) as error:
            read(probe, spec | {"cache": cache})
        assert f"only/{name}: {message}" in str(error.value)
    fields, _ = read(probe, spec | {"broken": "skip"})
    assert fields["image"].shape == (4, 3, HEIGHT, WIDTH)


def test_hostile_files_are_decoded_as_pillow_does_or_refused_by_name(probe, tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.PngImagePlugin.MAX_TEXT_CHUNK", 1 << 27)  # texts, for whose size Pillow refuses a file, we never unpack
    formats = {}
    for kind, options in {"jpg": {}, "png": {}, "webp": {}, "apng": {"save_all": True, "append_images": [Image.fromarray(picture(1))]}}.items():
        path = tmp_path / f"whole.{kind}"
        Image.fromarray(picture()).save(path, **({"format": "PNG"} if kind == "apng" else {}), **options)
        formats[kind] = path.read_bytes()
    differing = []
    refused = 0
    for name, make in HOSTILE.items():
        root = tmp_path / name.replace(".", "_")
        (root / "only").mkdir(parents=True)
        path = root / "only" / name
        path.write_bytes(make(formats))
        expected = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, struct.error):
                pass
        try:
            fields, _ = read(probe, {"type": "ImageFolder", "root": str(root)})
        except ProbeError as error:
            refused += 1
            assert f"only/{name}: " in str(error), name
            continue
        if expected is None or not torch.equal(fields["image"][0], expected):
            differing.append(name)
    assert differing == [] and len(HOSTILE) >= 30 and refused >= 15


@pytest.mark.parametrize("seed", range(2))
def test_files_changed_at_random_are_decoded_or_refused(probe, tmp_path, seed):
    write_all_kinds(tmp_path / "root/only")
    files = [str(path) for path in sorted((tmp_path / "root/only").iterdir())]
    whole, _ = read(probe, {"type": "ImageFolder", "root": str(tmp_path / "root")})
    fuzz(probe, tmp_path, "images", files, rounds=4000, seed=seed)
    again, _ = read(probe, {"type": "ImageFolder", "root": str(tmp_path / "root")})
    assert torch.equal(again["image"], whole["image"])  # damaged files leave nothing behind in the decoders


def test_images_kept_on_the_disk_are_those_of_their_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    own = Probe(tmp_path)
    folder = tmp_path / "root/only"
    folder.mkdir(parents=True)
    for i in range(5):
        Image.fromarray(picture(i, 40 + i, 50 - i)).save(folder / f"{i}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    spec = {"type": "ImageFolder", "root": str(tmp_path / "root"), "broken": "skip", "image_transforms": [{"type": "Resize", "size": [30, 30]}]}

    def images(**options):
        return read(own, spec | options)[0]["image"]

    def kept():
        return [path for path in (tmp_path / "cache/images").iterdir() if not path.name.endswith(".lock")]

    expected = images()
    assert torch.equal(images(cache="disk"), expected) and len(expected) == 5
    # what is kept is taken, as long as the files are as long and as old as they were
    path = folder / "2.png"
    before, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_bytes(before[:-20] + bytes(20))
    os.utime(path, ns=times)
    assert torch.equal(images(cache="disk"), expected) and len(kept()) == 1
    # one that is younger is decoded anew
    Image.fromarray(picture(9, 42, 48)).save(path)
    assert torch.equal(images(cache="disk"), images()) and not torch.equal(images(), expected) and len(kept()) == 2
    # a file that was damaged is made again
    for file in kept():
        file.write_bytes(file.read_bytes()[:-1])
    assert torch.equal(images(cache="disk"), images())
    # and so is one of which a bit was flipped: of a pixel, of the list of sizes and faults, or of its checksum
    for place in (1000, -300, -30):
        for file in kept():
            content = bytearray(file.read_bytes())
            content[place] ^= 4
            file.write_bytes(content)
        assert torch.equal(images(cache="disk"), images()), place
    with pytest.raises(ProbeError, match="only/broken.png: this is not a JPEG"):
        images(cache="disk", broken="error")
    own.close()


def test_images_of_two_sizes_are_an_error_that_names_the_cure(probe, tmp_path):
    (tmp_path / "only").mkdir()
    Image.fromarray(picture()).save(tmp_path / "only/a.png")
    Image.fromarray(picture(1, 10, 20)).save(tmp_path / "only/b.png")
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "ImageFolder", "root": str(tmp_path)})
    assert str(error.value) == (f"{tmp_path}/only/b.png: the image has 10x20 pixels, others 61x83; add image_transforms that make them alike, "
                                "such as {type: Resize, size: [61, 83]}")


@pytest.mark.parametrize("make, message", [
    (lambda root: None, "ImageFolder: there is no folder {root}; `root` is the folder that holds the classes' folders"),
    (lambda root: root.mkdir(), "ImageFolder: {root} holds no folders"),
    (lambda root: (root.mkdir(), Image.new("RGB", (2, 2)).save(root / "a.png")),
     "ImageFolder: {root} holds no folders, but images; put those of each class into a folder of its own"),
    (lambda root: (root / "cats").mkdir(parents=True), "ImageFolder: {root}/cats holds no JPEG, PNG, WebP or BMP file, and every folder in `root` is a class; is `root` the folder that holds the classes' folders?"),
])
def test_what_is_no_folder_of_images_is_said(probe, tmp_path, make, message):
    root = tmp_path / "root"
    make(root)
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "ImageFolder", "root": str(root)})
    assert str(error.value) == message.format(root=root)


@pytest.mark.parametrize("transform", ["Mixup", "Standardize"])
def test_what_looks_at_more_than_one_image_is_refused(probe, tmp_path, transform):
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "ImageFolder", "root": str(tmp_path), "image_transforms": [{"type": transform}]})
    assert f"image_transforms[0]: {transform} looks at more than one image; name it under dataset.transforms" in str(error.value)


RECIPE = """\
version: 1
model:
  layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, ReLU, {type: AdaptiveAvgPool2d, output_size: 2}, Flatten, {type: Linear, out_features: 2}]
loss: CrossEntropyLoss
dataset:
  train:
    type: ImageFolder
    root: ROOT
    image_transforms: [{type: RandomResizedCrop, size: 24}, RandomHorizontalFlip, TrivialAugmentWide, {type: ColorJitter, hue: 0.2}]
  train_transforms: [CutMix, {type: RandomAffine, degrees: 9}]
  transforms: [{type: Normalize, mean: 0.5, std: 0.25}]
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 2}
checkpoint: {every: 1, keep_last: null}
logging: {every_steps: 1}
"""


@pytest.mark.parametrize("within", ["", "Concat"])
def test_what_is_left_out_is_counted(tmp_path, within):
    for label in range(2):
        (tmp_path / f"root/{label}").mkdir(parents=True)
        for i in range(4):
            Image.fromarray(picture(i, 40, 50)).save(tmp_path / f"root/{label}/{i}.jpg")
    (tmp_path / "root/1/broken.jpg").write_bytes(b"no picture")
    recipe = tmp_path / "recipe.yaml"
    lines = RECIPE.splitlines()
    first = lines.index("  train:")
    folder = "{%s, broken: skip}" % ", ".join(line.strip() for line in lines[first + 1:first + 4])
    lines[first:first + 4] = [f"  train: {{type: Concat, datasets: [{folder}]}}" if within else f"  train: {folder}"]
    recipe.write_text("\n".join(lines).replace("ROOT", str(tmp_path / "root")))
    losses = training_losses(recipe, tmp_path / "run")
    assert len(losses) == 4
    said = (tmp_path / "run/log.txt").read_text()
    assert "1 of 9 images cannot be decoded and are left out: " in said and "root/1/broken.jpg: this is not a JPEG" in said


@pytest.mark.parametrize("verb", ["run", "data"])
def test_a_broken_file_of_a_folder_that_several_data_sets_read_is_named_once(tmp_path, verb):
    for label in "ab":
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(picture(i, 8, 8)).save(tmp_path / f"photos/{label}/{i}.png")
    (tmp_path / "photos/b/broken.png").write_bytes(b"no picture")
    part = "{type: Split, part: %s, stratify: true, dataset: {type: ImageFolder, root: photos, broken: skip}}"
    (tmp_path / "r.yaml").write_text(f"""
name: photos
model: {{layers: [Flatten, {{type: Linear, out_features: 2}}]}}
loss: CrossEntropyLoss
dataset: {{train: {part % "train"}, eval: {part % "validation"}}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{num_epochs: 1}}
""")
    done = subprocess.run([CALLED, verb, "r.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert said.count("images cannot be decoded") == 1
    names = "train, eval" if verb == "data" else "dataset.train, dataset.eval"
    assert f"{names}: 1 of 13 images cannot be decoded and are left out: photos/b/broken.png" in said


def test_every_parameter_has_a_test(probe):
    known = {"ImageFolder": probe.ask("catalog")["dataset"]["ImageFolder"]}
    elsewhere = {f"ImageFolder.{name}" for name in ("subset", "split", "unknown_classes")}  # tools/image_trees_test.py
    assert missing_rows(known, USED, ignored=elsewhere) == []
