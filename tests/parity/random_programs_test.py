"""Random recipes (random_recipes.py) exported as PyTorch programs: each trains as trainrun does, or is refused by name.

CI takes the first 12 seeds. Any others: python -B tests/parity/random_programs_test.py FIRST LAST
(TRAINRUN_BINARY is the program, TRAINRUN_BUILD_DIR its build folder).
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/parity")]

import pytest
import torch  # noqa: F401  the programs run in copies of this process

from random_nets_test import Case
from tests.parity.forked_python import forked_python
from tests.program import CALLED

NUM_CASES, STEPS = 12, 8
# Sums and means among several losses: the program would have to know the sizes of both. BatchNorm1d: as in training.
REFUSALS = ("sums and means among the losses are not written together", "cannot normalize one value per channel")
BY_ROUNDING = 1e-3  # what LBFGS or a gradient near zero makes of the last bits within 8 steps


def outcome_of(seed: int, folder: pathlib.Path, python: pathlib.Path) -> tuple[str, str]:
    """"equal", "rounding", "refused" or "different", and what was said."""
    case = Case(seed, folder)
    done = subprocess.run([CALLED, "export", folder / "recipe.yaml", "--format", "python", "--output", folder / "program.py", "--verify", str(STEPS),
                           "--python", python], cwd=case.folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 0:
        return "equal", ""
    if done.returncode == 2 and any(reason in done.stderr for reason in REFUSALS):
        return "refused", done.stderr
    found = re.search(r"differ by at most (\S+), relative", done.stdout)
    return "rounding" if found and float(found[1]) <= BY_ROUNDING else "different", done.stdout[-1500:] + done.stderr[-1500:]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with forked_python(tmp_path_factory.mktemp("python")) as script:
        yield script


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, python):
    folder = tmp_path_factory.mktemp("random_programs")
    return {seed: outcome_of(seed, folder / str(seed), python) for seed in range(NUM_CASES)}


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_a_random_recipe_trains_as_its_program(outcomes, seed):
    kind, said = outcomes[seed]
    assert kind != "different", said


def test_most_are_equal(outcomes):
    kinds = collections.Counter(kind for kind, _ in outcomes.values())
    assert kinds["equal"] >= NUM_CASES * 0.7, kinds


def main() -> int:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="random_programs."))
    kinds: collections.Counter = collections.Counter()
    with forked_python(folder) as script:
        for seed in range(int(sys.argv[1]), int(sys.argv[2])):
            kind, said = outcome_of(seed, folder / str(seed), script)
            kinds[kind] += 1
            if kind == "different":
                print(f"seed {seed}: {folder / str(seed)}\n{said}", flush=True)
            else:
                shutil.rmtree(folder / str(seed))
    print(dict(kinds))
    return 1 if kinds["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
