"""The recipes of docs/guide/vision.md, run as the guide says."""

import pathlib
import re
import subprocess

import numpy
import PIL.Image
import pytest
import torch
import torchvision

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/vision.md").read_text()


@pytest.fixture(name="folder", scope="module")
def folder_with_the_guides_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    for name, text in re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    larger = re.search(r"^```yaml\n(model:\n  layers:\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL).group(1)
    (folder / "larger.yaml").write_text("version: 1\nname: larger\nbase: resnet.yaml\n" + larger)
    random = numpy.random.default_rng(0)
    for part in ("train", "test"):
        for label in ("cat", "dog"):
            (folder / f"photos/{part}/{label}").mkdir(parents=True)
            for name in ("1.jpg", "2.png", "3.jpg"):
                pixels = random.integers(0, 256, (80, 90, 3), dtype=numpy.uint8)
                PIL.Image.fromarray(pixels).save(folder / f"photos/{part}/{label}/{name}")
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(num_classes=1000).state_dict(), folder / "resnet18.pth")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                              torch.nn.Linear(4, 2))
    torch.jit.script(net).save(str(folder / "model.pt"))
    return folder


def trainrun(*arguments, folder):
    return subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=300,
                          check=False)


@pytest.mark.parametrize("recipe", ["resnet", "tuned", "larger", "script"])
def test_the_guides_recipes_train_and_are_evaluated(folder, recipe):
    result = trainrun(f"{recipe}.yaml", folder=folder)
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert "accuracy" in said
    if recipe == "tuned":
        assert "fc.weight is [1000, 512], the model's is [2, 512]" in said
    if recipe == "larger":
        assert "missing head.weight [2, 512]; missing head.bias [2]" in said and "unexpected" not in said


def test_every_model_that_the_guide_names_is_a_layer(folder):
    listed = trainrun("list", "layers", folder=folder).stdout
    names = re.findall(r"`([A-Z]\w+)`", GUIDE)
    assert len(names) >= 15
    for name in names:
        assert re.search(rf"^{name}\b", listed, re.MULTILINE), name
