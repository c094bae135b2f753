"""Every good recipe, of tests/recipes/valid and of recipes, is explained and trains; that it is valid, and bad ones: recipes_test.cpp."""

import os
import re
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import recipe_data  # noqa: E402

from tests.program import CALLED

VALID = sorted(path.relative_to(ROOT) for path in (ROOT / "tests/recipes/valid").glob("*.yaml"))
SHIPPED = sorted(path.relative_to(ROOT) for path in (ROOT / "recipes").glob("*.yaml"))
OVERRIDE_FAULTS = [
    ("optimizer.lr=fast", "command line:1:14: optimizer.lr: expected a number, found 'fast'"),
    ("optimizer.learning_rate=0.1", "command line:1:11: optimizer.learning_rate: unknown parameter of AdamW (its type is from "
                                    "recipes/digits_mlp.yaml:21:19); did you mean lr, which is given as well?"),
    ("dataloader.batch_size=0", "command line:1:23: dataloader.batch_size: must be >= 1 and <= 1000000000, is 0"),
]


def trainrun(*arguments):
    environment = {key: value for key, value in os.environ.items() if key != "TRAINRUN_TEST_NO_SUCH_VARIABLE"}
    return subprocess.run([CALLED, *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=300, check=False)


def test_there_are_good_recipes_enough():
    assert len(VALID) >= 25 and len(SHIPPED) >= 7


@pytest.mark.parametrize("override, line", OVERRIDE_FAULTS)
def test_a_bad_override_is_placed_on_the_command_line(override, line):
    result = trainrun("validate", "recipes/digits_mlp.yaml", override)
    said = [re.sub(r" \[T\d{4}\]$", "", one) for one in result.stderr.splitlines()]
    assert (result.returncode, said) == (2, [line])


# Smaller batches and pictures: a sample of the one takes 0.5 GFLOP, of the other 4, in bfloat16, which a processor without instructions for it emulates.
SMALL = {"mnist_wide": ["dataloader.batch_size=8"],
         "mnist_residual": ["dataloader.batch_size=16"],
         "resnet18_blocks": ["dataloader.batch_size=8", "dataset.eval.subset=16"],
         "shakespeare_gpt": ["dataloader={batch_size: 4, eval_batch_size: 4}"],
         "image_folder": ["dataloader.batch_size=8", "dataset.eval.subset=8", "dataset.train.image_transforms[0].size=48", "dataset.eval.image_transforms[1].size=48"]}


@pytest.mark.parametrize("path", VALID + SHIPPED, ids=lambda path: path.stem)
def test_a_good_recipe_is_explained_and_trains(path, tmp_path):
    if not recipe_data.is_fetched(ROOT / path):
        recipe_data.skip_without_data(ROOT / path)
    result = trainrun("explain", path)
    assert result.returncode == 0, result.stderr
    recipe_data.skip_without_data(ROOT / path)
    small = ["dataset.eval.subset=16"] if recipe_data.folders_of(ROOT / path) else []  # of 10,000 pictures, 110,000 letters
    small += [override for name, overrides in SMALL.items() if path.stem.startswith(name) for override in overrides]
    result = trainrun(path, "training.max_steps=3", *small, f"output_dir={tmp_path}/run", "--quiet")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run/recipe.yaml").exists()
