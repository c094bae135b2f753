"""The recipes of docs/guide/data.md, run as the guide says."""

import io
import itertools
import pathlib
import re
import subprocess
import tarfile

import numpy
import PIL.Image
import pytest
import torch

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/data.md").read_text()


@pytest.fixture(name="folder", scope="module")
def folder_with_the_guides_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    for name, text in re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    random = numpy.random.default_rng(0)
    arrays = {"images": random.integers(0, 256, (48, 3, 32, 32), dtype=numpy.uint8), "labels": random.integers(0, 4, 48), "numpy": numpy}
    for part, label, name in itertools.product(["train", "test"], ["cat", "dog"], ["1.jpg", "2.png", "3.webp"]):
        (folder / f"photos/{part}/{label}").mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(random.integers(0, 256, (80 + 10 * int(name[0]), 90, 3), dtype=numpy.uint8)).save(folder / f"photos/{part}/{label}/{name}")
    (folder / "tags.csv").write_text(re.search(r"```text\n(path,.*?)```", GUIDE, re.DOTALL).group(1))
    (folder / "shards").mkdir()
    for shard in range(2):
        with tarfile.open(folder / f"shards/train-{shard:04}.tar", "w") as archive:
            for i, label in enumerate(["cat", "dog"]):
                archive.add(folder / f"photos/train/{label}/1.jpg", f"{shard}{i}.jpg")
                number = tarfile.TarInfo(f"{shard}{i}.cls")
                number.size = 1
                archive.addfile(number, io.BytesIO(str(i).encode()))
    for name in ["streets/images", "streets/masks"]:
        (folder / name).mkdir(parents=True)
    for i in range(4):
        PIL.Image.fromarray(random.integers(0, 256, (60, 70, 3), dtype=numpy.uint8)).save(folder / f"streets/images/{i}.jpg")
        PIL.Image.fromarray(random.integers(0, 3, (60, 70), dtype=numpy.uint8)).save(folder / f"streets/masks/{i}.png")
    line = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL).group(1).replace('"train.npz"', f'"{folder}/train.npz"')
    exec(line, arrays)  # pylint: disable=exec-used
    torch.save({"state_dict": {"module.0.weight": torch.ones(8, 3, 3, 3), "module.extra": torch.ones(1)}}, folder / "best.pt")
    return folder


def trainrun(*arguments, folder):
    return subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


RECIPES = ["auto", "cars", "folds", "forecast", "photos", "tags", "shards", "masks", "arrays", "weights"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_guides_recipes_train_and_are_evaluated(folder, recipe):
    result = trainrun(f"{recipe}.yaml", folder=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    if recipe == "folds":
        assert re.search(r"eval/accuracy 0\.9\d* ± 0\.\d+ \(", result.stdout)
        assert (folder / "runs/folds/predictions.csv").exists()
    if recipe in ("auto", "cars", "folds", "forecast", "photos"):
        evaluated = trainrun("eval", f"runs/{recipe}" + ("/fold-1" if recipe == "folds" else ""), folder=folder)
        assert evaluated.returncode == 0, evaluated.stderr
        assert re.search(r"mae|accuracy", evaluated.stdout)
    if recipe == "weights":
        assert "missing 0.bias [8]" in result.stdout + result.stderr and "unexpected extra [1]" in result.stdout + result.stderr


def test_every_data_set_and_file_the_guide_names_exists(folder):
    listed = trainrun("list", "datasets", folder=folder).stdout
    names = re.findall(r"`([A-Z]\w+)`", GUIDE.split("## Tables")[0])
    assert len(names) >= 9
    for name in names:
        assert re.search(rf"^{name}\b", listed, re.MULTILINE), name


def test_the_page_of_the_guides_photographs_is_written(folder):
    result = trainrun("data", "photos.yaml", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "warning: train:" not in result.stdout and (folder / "photos.html").read_text().count("<img") == 12
