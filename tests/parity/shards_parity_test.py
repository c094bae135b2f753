"""Shards: .tar files of images, read as Python's tarfile reads them, in the order of a shuffle buffer."""

import io
import itertools
import json
import os
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

import draws
from fuzzing import fuzz
from probe import ProbeError, missing_rows
from reference import training_losses

USED = []


def read(probe, spec, **request):
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, **request)
    return results.under("output"), reply, results


def image_bytes(number, form="png", size=(12, 9)):
    """A picture that says its number."""
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    pixels[0, 0] = (number % 256, number // 256, 7)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def write_shard(path, members, form=tarfile.USTAR_FORMAT, mode="w"):
    with tarfile.open(path, mode, format=form) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1.5 if form == tarfile.PAX_FORMAT else 1
            archive.addfile(member, io.BytesIO(content))


def write_shards(folder, sizes, classes=3, **how):
    """Samples 0, 1, … through the shards; their labels."""
    folder.mkdir(exist_ok=True)
    numbers = itertools.count()
    labels = []
    for shard, size in enumerate(sizes):
        members = []
        for _ in range(size):
            number = next(numbers)
            labels.append(number * 7 % classes)
            members += [(f"{number:06}.png", image_bytes(number)), (f"{number:06}.cls", f"{labels[-1]}\n".encode())]
        write_shard(folder / f"train-{shard:04}.tar", members, **how)
    return labels


def by_tarfile(path):
    """What is in a shard, sample by sample: {ending: content}."""
    samples = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and "." in member.name:
                stem, ending = os.path.basename(member.name).split(".", 1)
                samples.setdefault(os.path.join(os.path.dirname(member.name), stem), {})[ending] = archive.extractfile(member).read()
    return list(samples.values())


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["ustar", "gnu", "pax"])
def test_samples_are_those_that_python_reads(probe, tmp_path, form):
    members = []
    for number in range(7):
        stem = f"{'long/' * 30}a.b/{number:04}" if number % 2 else f"./{number}"
        picture = "PNG" if number % 3 else "jpg"
        members += [(f"{stem}.{picture}", image_bytes(number, "png" if picture == "PNG" else "jpeg")), (f"{stem}.CLS", f" {number % 4}".encode()),
                    (f"{stem}.json", json.dumps({"label": number + 1, "who": "me"}).encode()), (f"{stem}.seg.txt", b"more")]
    write_shard(tmp_path / "a.tar", [("README", b"no sample"), ("._0.png", b"of a Mac"), *members[:12]], form)
    with tarfile.open(tmp_path / "a.tar", "a", format=form) as archive:
        archive.add(tmp_path, "folder", recursive=False)
    write_shard(tmp_path / "b.tar", members[12:], form)
    (tmp_path / "empty.tar").write_bytes(bytes(10240))
    expected = [sample for name in "ab" for sample in by_tarfile(tmp_path / f"{name}.tar") if len(sample) > 1]
    spec = {"type": "Shards", "path": str(tmp_path / "{a,empty,b}.tar")}
    for how, label_of, classes in [({}, lambda s: int(s["CLS"]), 4), ({"label": "json.label"}, lambda s: json.loads(s["json"])["label"], 8)]:
        fields, reply, _ = read(probe, spec | how)
        assert reply["target"] == "label" and len(expected) == 7 == len(fields["image"]) and max(fields["label"].tolist()) < classes
        for sample, image, label in zip(expected, fields["image"], fields["label"].tolist(), strict=True):
            picture = Image.open(io.BytesIO(sample.get("PNG") or sample["jpg"])).convert("RGB")
            assert torch.equal(image, torch.from_numpy(np.array(picture)).permute(2, 0, 1))
            assert label == label_of(sample)


def test_braces_and_stars_name_shards_in_their_order(probe, tmp_path):
    labels = write_shards(tmp_path, [2] * 12, classes=5)
    first = read(probe, {"type": "Shards", "path": f"{tmp_path}/train-{{0000..0011}}.tar"})[0]
    assert first["label"].tolist() == labels
    for path in [f"{tmp_path}/*.tar", [f"{tmp_path}/train-00{{00..09}}.tar", f"{tmp_path}/train-001[01].tar"], f"{tmp_path}/train-00{{0,1}}{{0..9}}.tar"]:
        if isinstance(path, str) and "{0,1}" in path:
            with pytest.raises(ProbeError, match="train-0012.tar"):
                read(probe, {"type": "Shards", "path": path})
        else:
            assert torch.equal(read(probe, {"type": "Shards", "path": path})[0]["image"], first["image"])
    with pytest.raises(ProbeError, match="there is no file .*/none"):
        read(probe, {"type": "Shards", "path": f"{tmp_path}/none*.tar"})


def buffered(sizes, buffer, seed, epoch):
    """The order of an epoch by a shuffle buffer that really holds samples, as tf.data's and WebDataset's."""
    drawn = draws.Draws(seed, epoch, (1 << 64) - 2)
    of_shards, of_buffer = drawn.of(0), drawn.of(1)
    shards = list(range(len(sizes)))
    for i in range(len(shards) - 1, 0, -1):
        j = of_shards.integer(i + 1)
        shards[i], shards[j] = shards[j], shards[i]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    stream = [sample for shard in shards for sample in range(starts[shard], starts[shard + 1])]
    held, order = [], []
    for sample in stream:
        if len(held) < buffer:
            held.append(sample)
        else:
            place = of_buffer.integer(buffer)
            order.append(held[place])
            held[place] = sample
    while held:
        place = of_buffer.integer(len(held))
        order.append(held[place])
        held[place] = held[-1]
        held.pop()
    return stream, order


@pytest.mark.parametrize("buffer", [1, 4, 1000])
def test_the_order_is_that_of_a_shuffle_buffer(probe, tmp_path, buffer):
    sizes = [5, 1, 9, 6]
    write_shards(tmp_path, sizes)
    orders = []
    for epoch in range(4):
        spec = {"type": "Shards", "path": f"{tmp_path}/*.tar", "shuffle_buffer": buffer}
        order = read(probe, spec, seed=3, epoch=epoch)[2]["order.0"].tolist()
        stream, expected = buffered(sizes, buffer, 3, epoch)
        assert order == expected and sorted(order) == list(range(21))
        assert buffer > 1 or order == stream
        # no sample comes so early that more than the buffer would have to be held
        assert all(stream.index(sample) - place < buffer for place, sample in enumerate(order))
        orders.append(order)
    assert len({tuple(order) for order in orders}) == 4


def test_a_part_of_shards_keeps_their_order(probe, tmp_path):
    write_shards(tmp_path, [5, 6])
    shards = {"type": "Shards", "path": f"{tmp_path}/*.tar", "shuffle_buffer": 3}
    kept = [8, 2, 3, 10]
    order = read(probe, {"type": "Shards", "path": shards["path"], "shuffle_buffer": 3, "subset": kept}, seed=1, epoch=2)[2]["order.0"].tolist()
    assert [kept[i] for i in order] == [sample for sample in buffered([5, 6], 3, 1, 2)[1] if sample in kept]


RECIPE = """\
version: 1
model:
  layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, ReLU, {type: AdaptiveAvgPool2d, output_size: 2}, Flatten, {type: Linear, out_features: 3}]
loss: CrossEntropyLoss
dataset:
  train:
    type: Shards
    path: FOLDER/train-*.tar
    shuffle_buffer: 6
    image_transforms: [{type: RandomResizedCrop, size: 8}, RandomHorizontalFlip]
  transforms: [{type: Normalize, mean: 0.5, std: 0.25}]
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 2}
checkpoint: {every: 1, keep_last: null}
logging: {every_steps: 1}
"""


def test_broken_images_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    members = [member for i in range(5) for member in ((f"{i}.png", image_bytes(i) if i != 3 else b"no picture"), (f"{i}.cls", b"%d" % (i % 3)))]
    (tmp_path / "shards").mkdir()
    write_shard(tmp_path / "shards/train-0.tar", members)
    write_shard(tmp_path / "shards/train-1.tar", [("x.jpg", image_bytes(9, "jpeg")), ("x.cls", b"1")])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("FOLDER", str(tmp_path / "shards")).replace("shuffle_buffer: 6", "broken: skip"))
    losses = [training_losses(recipe, tmp_path / cache, f"dataset.train.cache={cache}") for cache in ("none", "memory", "disk")]
    assert losses[0] == losses[1] == losses[2] and len(losses[0]) == 4
    said = (tmp_path / "none/log.txt").read_text()
    assert "1 of 6 images cannot be decoded and are left out: " in said and "train-0.tar:3.png: this is not a JPEG" in said


def png(number=0):
    return image_bytes(number)


@pytest.mark.parametrize("members, spec, message", [
    ([("1.png", png()), ("2.png", png()), ("2.cls", b"1")], {}, "1.png: the sample has no label, no 1.cls beside it"),
    ([("1.png", png()), ("1.txt", b"1")], {"label": "json.y"}, "1.png: the sample has no label, no 1.json beside it"),
    ([("1.cls", b"1"), ("2.png", png())], {}, "1: the sample has no image"),
    ([("1.png", png()), ("1.cls", b"1")], {"image": "jpg"}, "1: the sample has no image, no .jpg"),
    ([("1.png", png()), ("1.seg.png", png()), ("1.cls", b"1")], {}, "1.seg.png: is a second image of its sample, after 1.png; say which by image"),
    ([("1.png", png()), ("1.cls", b"1"), ("1.cls", b"1")], {}, "1.cls: is a second label of its sample"),
    ([("1.png", png()), ("1.cls", b"cat")], {}, "1.cls: the label is 'cat', not a number from 0"),
    ([("1.png", png()), ("1.cls", b"-1")], {}, "1.cls: the label is '-1', not a number from 0"),
    ([("1.png", png()), ("1.cls", b"")], {}, "1.cls: the label is '', not a number from 0"),
    ([("1.png", png()), ("1.cls", b"3.5")], {}, "1.cls: the label is '3.5', not a number from 0"),
    ([("1.png", png()), ("1.cls", b"9" * 30)], {}, "1.cls: the label is '" + "9" * 30 + "', not a number from 0"),
    ([("1.png", png()), ("1.cls", b"\x1b[31m\xff")], {}, "1.cls: the label is '?[31m?', not a number from 0"),
    ([("1.png", png()), ("1.cls", b"4")], {"num_classes": 4}, "1.cls: the label is 4, num_classes is 4"),
    ([("1.png", png()), ("1.json", b"{]")], {"label": "json.y"}, "1.json: is not a JSON object that has 'y'"),
    ([("1.png", png()), ("1.json", b"[" * 1000)], {"label": "json.y"}, "1.json: is nested too deeply: its lists and objects are nested more than 64 deep"),
    ([("1.png", png()), ("1.json", b'{"y": [1]}')], {"label": "json.y"}, "1.json: 'y' is a list or an object, not a number from 0"),
    ([("1.png", png()), ("1.json", b'{"y": ' + 400_000 * b"[" + 400_000 * b"]" + b"}")], {"label": "json.y"}, "1.json: is nested too deeply: its lists and objects are nested more than 64 deep"),
    ([("note.txt", b"")], {"label": "cls", "image": "png"}, "note: the sample has no image, no .png"),
])
def test_a_sample_that_is_not_whole_is_named(probe, tmp_path, members, spec, message):
    write_shard(tmp_path / "a.tar", members)
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "Shards", "path": str(tmp_path / "a.tar")} | spec)
    assert str(error.value) == f"{tmp_path}/a.tar:{message}"


def changed_size(content, size):
    """With another size in the first header, whose sum is right."""
    header = bytearray(content[:512])
    header[124:136] = size
    header[148:156] = b"        "
    header[148:155] = b"%06o\0" % sum(header)
    return bytes(header) + content[512:]


@pytest.mark.parametrize("change, message", [
    (lambda c: c[:700], "a.tar: the file ends within 1.png"),
    (lambda c: c[:300], "a.tar: the tar archive is cut off after its start"),
    (lambda c: c[:2], "a.tar: the tar archive is cut off after its start"),
    (lambda c: b"", "a.tar: holds no samples"),
    (lambda c: bytes(1024), "a.tar: holds no samples"),
    (lambda c: c[:512 * 2 + 9] + b"?" + c[512 * 2 + 10:], "a.tar: the tar archive is damaged after 1.png"),
    (lambda c: b"no tar" * 200, "a.tar: this is not a tar archive"),
    (lambda c: changed_size(c, b"77777777777\0"), "a.tar:1.png: has more than 1 GiB"),
    (lambda c: changed_size(c, b"00010000000\0"), "a.tar: the file ends within 1.png"),
    (lambda c: changed_size(c, b"\x80" + b"\xff" * 11), "a.tar: this is not a tar archive"),
    (lambda c: changed_size(c, b"zzzzzzzzzzz\0"), "a.tar: this is not a tar archive"),
], ids=range(11))
def test_a_damaged_shard_is_named(probe, tmp_path, change, message):
    path = tmp_path / "a.tar"
    write_shard(path, [("1.png", png()), ("1.cls", b"1"), ("2.png", png()), ("2.cls", b"1")])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "Shards", "path": str(path)})
    assert message in str(error.value) and str(tmp_path) in str(error.value)


def test_a_compressed_or_missing_shard_is_refused_by_name(probe, tmp_path):
    write_shard(tmp_path / "a.tar", [("1.png", png()), ("1.cls", b"1")], mode="w:gz")
    with pytest.raises(ProbeError, match=r"a.tar: is compressed, but samples are read from any place of it; unpack it with gunzip"):
        read(probe, {"type": "Shards", "path": str(tmp_path / "a.tar")})
    with pytest.raises(ProbeError, match=r"b-2.tar: cannot open: No such file"):
        read(probe, {"type": "Shards", "path": str(tmp_path / "b-{2..3}.tar")})
    (tmp_path / "c.tar").mkdir()
    with pytest.raises(ProbeError, match=r"c.tar: "):
        read(probe, {"type": "Shards", "path": str(tmp_path / "c.tar")})


def test_shards_changed_at_random_are_read_or_refused(probe, tmp_path):
    files = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        files.append(tmp_path / f"{form}.tar")
        members = [(f"{'p' * 120}/{i}.{ending}", content) for i in range(3) for ending, content in (("png", png()[:40]), ("cls", b"2"), ("json", b'{"label": 3}'))]
        write_shard(files[-1], members, form)
    fuzz(probe, tmp_path, "shards", [str(file) for file in files], rounds=4000)


def test_every_parameter_has_a_test(probe):
    known = {"Shards": probe.ask("catalog")["dataset"]["Shards"]}
    # of all image files: image_folder_parity_test, image_trees_test, and the recipe above
    shared = {"mode", "cache", "broken", "image_transforms", "split", "unknown_classes"}
    assert missing_rows(known, USED, ignored={f"Shards.{name}" for name in shared}) == []
