"""`trainrun data`: what the model will see, and what is suspicious about it."""

import base64
import html
import io
import pathlib
import re
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests.program import CALLED

PICTURES = """\
version: 1
name: pets
model: {layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, {type: AdaptiveAvgPool2d, output_size: 1}, Flatten, {type: Linear, out_features: CLASSES}]}
loss: CrossEntropyLoss
dataset:
  train: {type: ImageFolder, root: train}
  eval: {clean: {type: ImageFolder, root: clean}, other: {type: ImageFolder, root: other}}
  transforms: [TRANSFORMS]
dataloader: {batch_size: 3, shuffle: false}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""


def picture(seed):
    return np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)


def write_pictures(folder, samples):
    """By class: {name: [pixels, …]}."""
    for name, pictures in samples.items():
        (folder / name).mkdir(parents=True)
        for i, pixels in enumerate(pictures):
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def data_of(folder, *arguments):
    done = subprocess.run([CALLED, "data", "r.yaml", *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(name="pets")
def folder_of_pets(tmp_path):
    write_pictures(tmp_path / "train", {"a<b>&c": [picture(1), picture(2)], "dog": [picture(3)]})
    write_pictures(tmp_path / "clean", {"a<b>&c": [picture(4)], "dog": [picture(5)]})
    write_pictures(tmp_path / "other", {"a<b>&c": [picture(6)], "dog": [picture(7)]})
    return tmp_path


def write_recipe(folder, classes=2, transforms=""):
    (folder / "r.yaml").write_text(PICTURES.replace("CLASSES", str(classes)).replace("TRANSFORMS", transforms))


def test_the_page_shows_pictures_labels_counts_and_means(pets):
    write_recipe(pets)
    said = data_of(pets)
    assert "nothing suspicious was found" in said and "the samples: pets.html" in said
    page = (pets / "pets.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["train", "eval/clean", "eval/other"]
    shown = [np.array(Image.open(io.BytesIO(base64.b64decode(code)))) for code in re.findall(r'src="data:image/png;base64,([^"]*)"', page)]
    assert len(shown) == 7 and all(np.array_equal(found, picture(seed)) for seed, found in enumerate(shown, 1))
    assert "a<b>" not in page and page.count(html.escape("a<b>&c")) >= 7  # of classes, labels and paths
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "<tr><td>a&lt;b&gt;&amp;c</td><td>2</td>" in page and "<tr><td>dog</td><td>1</td>" in page
    pixels = np.stack([picture(seed) for seed in (1, 2, 3)]) / 255
    for channel, name in enumerate(("red", "green", "blue")):
        own = pixels[..., channel]
        row = "".join(f"<td>{cell}</td>" for cell in (f"image: {name}", *(f"{v:.4g}" for v in (own.mean(), own.std(), own.min(), own.max())), 0))
        assert f"<tr>{row}</tr>" in page


def test_what_is_shown_has_been_augmented(pets):
    write_recipe(pets, transforms="{type: RandomHorizontalFlip, p: 1}, {type: Normalize, mean: 0.5, std: 0.25}")
    data_of(pets, "-o", "other.html", "--show", "1")
    page = (pets / "other.html").read_text()
    [first, *_] = re.findall(r'src="data:image/png;base64,([^"]*)"', page)
    found = np.array(Image.open(io.BytesIO(base64.b64decode(first)))).astype(float)
    own = picture(1)[:, ::-1].astype(float)
    least, most = own.min((0, 1)), own.max((0, 1))
    assert np.abs(found - (own - least) / (most - least) * 255).max() <= 0.51
    assert page.count("<figure") == 3


def test_the_terminal_shows_half_blocks_of_the_colours(pets):
    write_recipe(pets)
    said = data_of(pets, "--terminal")
    assert not (pets / "pets.html").exists() and "\u2580" in said
    upper, lower = picture(1)[0, 0], picture(1)[1, 0]
    assert "\x1b[38;2;%d;%d;%dm\x1b[48;2;%d;%d;%dm\u2580" % (*upper, *lower) in said


def warnings_of(said):
    text = said[said.index("warning: "):].split("\n\nthe samples")[0]
    return [" ".join(part.split()) for part in text.split("warning: ")[1:]]


def test_pictures_that_come_twice_classes_that_never_come_and_blank_ones_are_told(tmp_path):
    write_pictures(tmp_path / "train", {"cat": [picture(1), picture(2), picture(1)], "dog": [np.full((6, 8, 3), 9, np.uint8)]})
    write_pictures(tmp_path / "clean", {"cat": [picture(2)], "dog": [picture(5)]})
    write_pictures(tmp_path / "other", {"cat": [picture(6)], "dog": [picture(6)]})
    write_recipe(tmp_path, classes=3)
    assert warnings_of(data_of(tmp_path)) == [
        "train: 1 of 4 pictures are of one colour",
        "train: 1 class never comes: 2",
        "train: 1 sample comes once more: train/cat/2.png is train/cat/0.png",
        "eval/clean: 1 class never comes: 2",
        "eval/clean: 1 sample is also in train: clean/cat/0.png is train/cat/1.png",
        "eval/other: 1 class never comes: 2",
        "eval/other: all samples are the same",
    ]


TABLE = """\
version: 1
name: table
model: {layers: [{type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
dataset:
  train: {type: TensorFile, path: train.npz}
  eval: {type: TensorFile, path: eval.npz}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""


def test_tables_and_their_faults(tmp_path):
    (tmp_path / "r.yaml").write_text(TABLE)
    features = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    features[:, 2] = 5
    features[3, 1] = np.nan
    np.savez(tmp_path / "train.npz", features=features, label=np.arange(20) % 2)
    np.savez(tmp_path / "eval.npz", features=np.concatenate([features[7:8], features[:5] + 1]), label=np.array([2, 0, 1, 0, 1, 1]))
    said = data_of(tmp_path)
    assert warnings_of(said) == [
        "train: 1 class never comes: 2",
        "train: NaN or infinite: features[1] (1 times)",
        "train: always the same number: features[2]",
        "eval: has classes that train does not have: 2",
        "eval: NaN or infinite: features[1] (1 times)",
        "eval: 1 sample is also in train: eval.npz:0:features is train.npz:7:features",
    ]
    row = next(line for line in said.splitlines() if "features[0]" in line).split()
    assert [float(cell) for cell in row[1:5]] == pytest.approx([f(features[:, 0]) for f in (np.mean, np.std, np.min, np.max)], rel=2e-3, abs=1e-3)
    page = (tmp_path / "table.html").read_text()
    assert page.count("<figure") == 26 and "<code>" in page
    np.savez(tmp_path / "eval.npz", features=features[:2], label=np.array([1, 3]))
    assert any(said.startswith("eval: eval.npz:1:label: 3 is not from 0 to 2: the output that CrossEntropyLoss") for said in warnings_of(data_of(tmp_path)))


def test_series_are_drawn_as_lines(tmp_path):
    (tmp_path / "r.yaml").write_text(TABLE.replace("[{type: Linear, out_features: 3}]", "[Flatten, {type: Linear, out_features: 3}]"))
    for name in ("train", "eval"):
        np.savez(tmp_path / f"{name}.npz", features=np.random.default_rng(len(name)).normal(size=(9, 30, 2)).astype(np.float32), label=np.arange(9) % 3)
    said = data_of(tmp_path)
    assert "nothing suspicious" in said and "features[1]" in said
    page = (tmp_path / "table.html").read_text()
    assert page.count("<polyline") == 2 * 18 and pathlib.Path(tmp_path / "table.html").stat().st_size < 100_000
