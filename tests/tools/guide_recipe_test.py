"""The recipes of docs/guide/first_recipe.md, run as the guide says."""

import pathlib
import re
import shlex
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/first_recipe.md").read_text()


@pytest.fixture(name="folder")
def folder_with_the_guides_files(tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    files = re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["my_digits.yaml", "wider.yaml", "plain.yaml", "table.yaml"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    return tmp_path


def trainrun(*arguments, folder):
    return subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("recipe", ["my_digits", "wider", "plain", "table"])
def test_the_guides_recipes_train(folder, recipe):
    result = trainrun(f"{recipe}.yaml", "training.max_steps=3", folder=folder)
    assert result.returncode == 0, result.stderr
    assert (folder / f"runs/{recipe}/checkpoints/latest/model.safetensors").is_file()


def test_a_key_is_replaced_and_another_removed_as_the_guide_says(folder):
    command = next(line for line in GUIDE.splitlines() if "metrics='!remove'" in line).split("`")[1]
    words = shlex.split(command)[1:]
    result = trainrun(*words, "training.max_steps=3", "output_dir=run", folder=folder)
    assert result.returncode == 0, result.stderr
    resolved = (folder / "run/recipe.yaml").read_text()
    assert "SGD" in resolved and "metrics" not in resolved and "!" not in resolved


def test_the_guides_errors_are_the_programs(folder):
    text = (folder / "my_digits.yaml").read_text()
    (folder / "my_digits.yaml").write_text(text.replace("out_features: 64", "out_feature: 64").replace("num_epochs", "epochs"))
    result = trainrun("my_digits.yaml", folder=folder)
    assert result.returncode == 2
    assert result.stderr.strip() in GUIDE
