"""A sample in a batch is a function of (seed, epoch, its number): the same bytes whatever the workers, the ranks and where an epoch is begun."""

import io
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from reference import training_losses

NUM_SAMPLES, GLOBAL_BATCH, EPOCH = 22, 4, 3

RECIPE = """\
version: 1
seed: 5
model: {layers: [Flatten, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
dataset:
  train: DATA
  transforms: [TRANSFORMS{type: Normalize, mean: [0.5, 0.4, 0.3], std: [0.25, 0.5, 0.75]}]
dataloader: {batch_size: 4, num_workers: 0, drop_last: true}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 9}
checkpoint: {every: null}
"""
OF_IMAGES = "image_transforms: [{type: RandomResizedCrop, size: 8}, RandomHorizontalFlip, {type: ColorJitter, brightness: 0.4, hue: 0.2}]"
FOLDER = "{type: ImageFolder, root: ROOT/folder, " + OF_IMAGES + "}"
SHARDS = "{type: Shards, path: 'ROOT/train-*.tar', shuffle_buffer: 6, " + OF_IMAGES + "}"
MOVED = "{type: RandomCrop, size: 8, padding: 2}, {type: Pad, padding: 1, padding_mode: reflect}, RandomHorizontalFlip, "
# {what the batches are of: (data, transforms of batches)}
KINDS = {
    "a folder": (FOLDER, ""),
    "a folder, moved": (FOLDER, MOVED),
    "a folder, mixed": (FOLDER, "{type: RandomErasing, p: 0.5}, {type: Mixup, alpha: 0.5}, "),
    "shards": (SHARDS, ""),
    "shards, moved and mixed": (SHARDS, MOVED + "{type: CutMix, alpha: 1.0}, "),
}


@pytest.fixture(scope="module", name="root")
def folder_of_images(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(2)
    tars = [tarfile.open(root / f"train-{i}.tar", "w") for i in range(3)]
    for number in range(NUM_SAMPLES):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (11 + number % 3, 13, 3), dtype=np.uint8)).save(file, "png")
        folder = root / "folder" / "abc"[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02}.png").write_bytes(file.getvalue())
        for suffix, content in [("png", file.getvalue()), ("cls", str(number % 3).encode())]:
            member = tarfile.TarInfo(f"{number:02}.{suffix}")
            member.size = len(content)
            tars[number % 3].addfile(member, io.BytesIO(content))
    for tar in tars:
        tar.close()
    return root


def recipe_of(kind, root):
    data, transforms = KINDS[kind]
    recipe = root / "recipe.yaml"
    recipe.write_text(RECIPE.replace("DATA", data.replace("ROOT", str(root))).replace("TRANSFORMS", transforms))
    return str(recipe)


@pytest.fixture(name="batches")
def reader_of_batches(probe, root):
    def read(kind, *overrides, rank=0, world_size=1, epoch=EPOCH, start=0):
        """{number: {field: tensor}}"""
        _, given = probe.ask("batches", recipe=recipe_of(kind, root), overrides=list(overrides), rank=rank, world_size=world_size, epoch=epoch, start=start)
        found = {}
        for name, tensor in given.under("output").items():
            number, field = name.split(".")
            found.setdefault(int(number), {})[field] = tensor
        return found

    return read


def assert_same(batches, others):
    assert batches.keys() == others.keys()
    for number, batch in batches.items():
        assert batch.keys() == others[number].keys()
        for field, tensor in batch.items():
            assert torch.equal(tensor, others[number][field]), (number, field)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_the_same_for_any_workers_ranks_and_starts(batches, kind):
    whole = batches(kind)
    assert sorted(whole) == list(range(NUM_SAMPLES // GLOBAL_BATCH))
    for workers in (1, 4):
        assert_same(whole, batches(kind, f"dataloader.num_workers={workers}"))
    for start in range(1, len(whole)):
        assert_same({number: whole[number] for number in whole if number >= start}, batches(kind, start=start))
    for ranks in (2, 4):
        for rank in range(ranks):
            share = batches(kind, f"dataloader={{batch_size: {GLOBAL_BATCH // ranks}, num_workers: 1}}", rank=rank, world_size=ranks)
            expected = {number: {field: tensor[rank::ranks] for field, tensor in batch.items()} for number, batch in whole.items()}
            assert_same(expected, {number: share[number] for number in expected})


@pytest.mark.parametrize("kind", KINDS)
def test_another_epoch_or_seed_gives_other_batches(batches, kind):
    whole = batches(kind)
    for others in (batches(kind, epoch=EPOCH + 1), batches(kind, "seed=6")):
        assert not any(torch.equal(whole[number]["image"], others[number]["image"]) for number in whole)


@pytest.mark.parametrize("kind", ["a folder, mixed", "shards"])
def test_caches_resumes_and_ranks_train_on_the_same_batches(root, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    recipe = recipe_of(kind, root)
    common = ["training.num_epochs=2", "checkpoint={every: 1, keep_last: null}"]
    whole = training_losses(recipe, tmp_path / "whole", *common)
    assert len(whole) == 10 == len(set(whole))
    for name, cache in {"cached": "memory", "on the disk": "disk", "from the disk": "disk"}.items():
        assert training_losses(recipe, tmp_path / name, *common, f"dataset.train.cache={cache}") == whole, name
    for step, name in [(1, "step-00000001"), (5, "epoch-0001"), (8, "step-00000008")]:
        resumed = training_losses(recipe, tmp_path / f"resumed {step}", *common, f"checkpoint.resume={tmp_path}/whole/checkpoints/{name}")
        assert resumed == whole[step:]
    ranks = training_losses(recipe, tmp_path / "ranks", *common, "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=2")
    assert ranks == pytest.approx(whole, rel=1e-5)


def test_pixels_that_are_moved_as_bytes_are_those_that_are_moved_as_floats(batches):
    """The crop's zeros are zeros before and after the pixels are scaled, and Normalize sees the same numbers."""
    moved = batches("a folder, moved")
    images = torch.cat([batch["image"] for batch in moved.values()])
    pixels = (images * torch.tensor([0.25, 0.5, 0.75]).view(3, 1, 1) + torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) * 255
    assert (pixels - pixels.round()).abs().max() < 1e-3
    assert pixels.min() > -1e-3 and pixels.max() < 255.001
    assert (pixels.round() == 0).float().mean() > 0.05  # of the padding
