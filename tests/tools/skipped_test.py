"""tools/test in a clone with nothing beside it: recipes whose data is missing are skipped, and one line says what was and how to have it."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]
import recipe_data  # noqa: E402
import skipped  # noqa: E402

LOG = """
SKIPPED [4] tests/runner/recipe_runs_test.py:38: no data: there is no mnist in TRAINRUN_DATA
SKIPPED [2] tests/parity/conftest.py:22: no data: there is no mnist in TRAINRUN_DATA
SKIPPED [17] tests/gpu/training_test.py:35: no GPU here (no /dev/nvidia0)
SKIPPED [1] tests/parity/transforms_parity_test.py:252: the batch is the only dimension
SKIPPED [1] tests/launch/launching.py:64: no srun here: tools/setup --tests installs it
tests/registry/datasets_test.cpp:248: MESSAGE: skipped: no data: there is no mnist in TRAINRUN_DATA
12 passed, 25 skipped in 1.00s
"""


@pytest.mark.parametrize("recipe, folders", [
    ("recipes/mnist_cnn.yaml", {"mnist"}), ("recipes/mnist_cnn_ddp.yaml", {"mnist"}), ("recipes/mnist_cnn_bf16.yaml", {"mnist"}),
    ("recipes/mnist_wide_cnn_ddp.yaml", {"mnist"}), ("recipes/fashion_cnn.yaml", {"fashion_mnist"}), ("recipes/digits_cnn.yaml", set()),
])
def test_a_recipe_has_the_data_of_its_bases(recipe, folders):
    assert recipe_data.folders_of(ROOT / recipe) == folders


def test_bases_may_be_lists_and_have_bases(tmp_path):
    (tmp_path / "a.yaml").write_text('dataset: {train: {root: "${env:TRAINRUN_DATA:-data}/far"}}\n')
    (tmp_path / "b.yaml").write_text("base: [a.yaml]\n")
    (tmp_path / "c.yaml").write_text('base:\n  - "b.yaml"\n  - a.yaml\nname: c\n')
    assert recipe_data.folders_of(tmp_path / "c.yaml") == {"far"}


def test_recipes_without_their_data_are_skipped_not_failed(tmp_path):
    done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/runner/recipe_runs_test.py", "-k", "mnist_cnn_ddp"],
                          cwd=ROOT, env=os.environ | {"TRAINRUN_DATA": str(tmp_path)}, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout and skipped.summary(done.stdout).startswith("skipped 1 test: 1 for want of data")


def test_one_line_tells_what_was_skipped_and_how_to_have_it(tmp_path):
    line = skipped.summary(LOG)
    assert line == ("skipped 25 tests: 17 for want of a GPU (run tools/test on a machine with one); "
                    "7 for want of data (run ./trainrun recipes/mnist_cnn.yaml once, which fetches it, or set TRAINRUN_DATA to a folder with mnist/); "
                    "1 for want of a launcher (tools/setup --tests installs it)")
    assert skipped.summary("100% tests passed") == ""
    log = tmp_path / "LastTest.log"
    log.write_text(LOG)
    assert subprocess.run([ROOT / "tools/skipped.py", log], capture_output=True, text=True, check=True).stdout == line + "\n"


def test_every_reason_to_skip_a_test_has_a_cure():
    reasons = ["no data: there is no x in TRAINRUN_DATA", "no GPU here (no /dev/nvidia0)", "there is a GPU here", "this GPU has no TensorFloat-32", "no network namespaces here: no",
               "no mount namespaces here", "no virtual network cable here: x", "no mpirun here: tools/setup --tests installs it", "this process may use one core only",
               "no trainrun_probe: build all", "no NVIDIA packages in x"]
    for reason in reasons:
        assert " for want of " in skipped.summary(f"SKIPPED [1] tests/a.py:1: {reason}"), reason
