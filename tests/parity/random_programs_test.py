"""Random recipes (random_recipes.py) exported as PyTorch programs: each trains as trainrun does, or is refused by name.

Where they part, the hand-written program of torch_recipes.py says how far rounding leads: it trains the same recipe with noise of a last bit in the
initial weights.

CI takes the first 12 seeds. Any others: python -B tests/parity/random_programs_test.py FIRST LAST
(TRAINRUN_BINARY is the program, TRAINRUN_BUILD_DIR its build folder).
"""

import collections
import json
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

from random_nets_test import AMPLIFIED, NOISE, NUM_NOISY, TOLERANCE, Case
from tests.parity.forked_python import forked_python
from tests.program import CALLED

NUM_CASES, STEPS = 12, 8
# Sums and means among several losses: the program would have to know the sizes of both. BatchNorm1d: as in training.
REFUSALS = ("sums and means among the losses are not written together", "cannot normalize one value per channel")


def by_rounding(case: Case) -> float:
    """The largest difference of two losses within STEPS, relative to their size, that noise in the initial weights makes; as much as that may be
    amplified: one draw of noise is not the largest."""
    plain = case.expected().losses[:STEPS]
    noisy = [case.expected(NOISE[case.precision], seed).losses[:STEPS] for seed in range(NUM_NOISY[0])]
    return AMPLIFIED * max(abs(a - b) / (max(abs(a), abs(b)) or 1) for run in noisy for a, b in zip(run, plain, strict=True))


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
    said = done.stdout[-1500:] + done.stderr[-1500:]
    if not found:
        return "different", said
    noise = by_rounding(case)
    return "rounding" if float(found[1]) <= noise else "different", f"{said}\nrounding makes at most {noise:.2g} of it"


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


def without_dropout(value):
    """The recipe, or a piece of it: a DataLoader takes a number from torch's generator for each epoch, which other draws would follow."""
    if isinstance(value, dict):
        drops = str(value.get("type", "")).startswith("Dropout")
        return {key: 0.0 if drops and key == "p" else without_dropout(item) for key, item in value.items()}
    return [without_dropout(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_a_program_trains_as_one_written_by_hand(seed, tmp_path, python):
    """The whole recipe, as it is written: trainrun trains nothing here."""
    case = Case(seed, tmp_path / "case")
    case.drawn.recipe = without_dropout(case.drawn.recipe)
    (case.folder / "recipe.yaml").write_text(json.dumps(without_dropout(case.recipe)))
    done = subprocess.run([CALLED, "export", case.folder / "recipe.yaml", "--format", "python", "--output", case.folder / "program.py"],
                          capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 2 and any(reason in done.stderr for reason in REFUSALS):
        pytest.skip("this recipe is not written: " + done.stderr.strip())
    assert done.returncode == 0, done.stderr
    program = [python, case.folder / "program.py", "--losses", case.folder / "losses.json", "--output", case.folder / "trained.pt"]
    done = subprocess.run(program, cwd=case.folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = json.loads((case.folder / "losses.json").read_text())["losses"]
    expected = case.expected().losses
    far = [abs(a - b) / (max(abs(a), abs(b)) or 1) for a, b in zip(losses, expected, strict=True)]
    within = far[:STEPS]
    assert max(within) <= max(TOLERANCE[case.precision], by_rounding(case)), (losses[:STEPS], expected[:STEPS])


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
