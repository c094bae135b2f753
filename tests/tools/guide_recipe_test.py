"""The recipes of docs/guide/first_recipe.md, run as the guide says."""

import pathlib
import re
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/first_recipe.md").read_text()


@pytest.fixture(name="folder")
def folder_with_the_guides_files(tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    files = re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["my_digits.yaml", "wider.yaml", "table.yaml"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    return tmp_path


def trainrun(*arguments, folder):
    return subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("recipe", ["my_digits", "wider", "table"])
def test_the_guides_recipes_train(folder, recipe):
    result = trainrun(f"{recipe}.yaml", "training.max_steps=3", folder=folder)
    assert result.returncode == 0, result.stderr
    assert (folder / f"runs/{recipe}/checkpoints/latest/model.safetensors").is_file()


def test_the_guides_errors_are_the_programs(folder):
    text = (folder / "my_digits.yaml").read_text()
    (folder / "my_digits.yaml").write_text(text.replace("out_features: 64", "out_feature: 64").replace("num_epochs", "epochs"))
    result = trainrun("my_digits.yaml", folder=folder)
    assert result.returncode == 2
    assert result.stderr.strip() in GUIDE
