"""The recipes of docs/guide/training_techniques.md, run as the guide says."""

import json
import pathlib
import re
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/training_techniques.md").read_text()
NAMES = ["lean", "averaged", "watched", "growing", "decayed"]


@pytest.fixture(name="folder", scope="module")
def folder_with_the_guides_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    files = re.findall(r"`(\w+)\.yaml`:\n\n```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == NAMES
    for name, text in files:
        (folder / f"{name}.yaml").write_text(text)
    return folder


def trainrun(*arguments, folder):
    result = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("recipe", NAMES)
def test_the_guides_recipes_train_and_are_evaluated(folder, recipe):
    assert "accuracy" in trainrun(f"{recipe}.yaml", folder=folder)


def test_the_guides_recipes_do_what_it_says(folder):
    assert "computed again" in trainrun("explain", "lean.yaml", folder=folder)
    trainrun("watched.yaml", "output_dir=watched", folder=folder)
    line = json.loads((folder / "watched/metrics.jsonl").read_text().splitlines()[0])
    for name in ("grad_norm/all", "weight_norm/blocks", "update_ratio/last"):
        assert line[f"train/{name}"] > 0
    groups = json.loads(trainrun("explain", "decayed.yaml", "--json", folder=folder))["param_groups"]
    rates = sorted({round(group["lr"] / 1e-3, 6) for group in groups})
    assert rates == [0.421875, 0.5625, 0.75, 1.0]
