"""Whoever does what a message advises is a step further: the message is gone, and what was written is taken."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import advice_data  # noqa: E402
import mistakes  # noqa: E402
from following import SAYS_WHAT_TO_DO, UnknownAdvice, followed, settings_in, told_by  # noqa: E402

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = "tests/recipes/invalid"

# Advice that leaves to the user what to write: what stands in the recipe, and what somebody would write.
LEFT_OPEN = {"remove_item.yaml": ("[Accuracy, !remove ]", "[Accuracy]")}


def advice_in_recipes():
    for recipe in sorted((ROOT / FOLDER).glob("*.yaml")):
        for line in recipe.read_text().splitlines():
            if line.startswith("# expect: ") and SAYS_WHAT_TO_DO.search(line):
                yield pytest.param(recipe, line.removeprefix("# expect: "), id=f"{recipe.stem}-{line.split(': ')[1]}")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the recipes, from which they find their bases as in the checkout."""
    root = tmp_path_factory.mktemp("advice")
    shutil.copytree(ROOT / "tests/recipes", root / "tests/recipes")
    (root / "recipes").symlink_to(ROOT / "recipes")
    return root


def call(folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if key != "TRAINRUN_TEST_NO_SUCH_VARIABLE"}
    done = subprocess.run(
        [CALLED, *arguments], cwd=folder, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=120, check=False)
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith(("note: ", "warning: "))]


REFUSES = re.compile(r"^expected |^unknown |is not one of |^no (earlier )?layer ")


def is_refused(told, before, key):
    """Whether a fault is new, about what the advice wrote at `key` or within it, and leads no further."""
    at_key = told.path and (told.path == key or told.path.startswith((f"{key}.", f"{key}[")))
    is_end = REFUSES.search(told.message) and not SAYS_WHAT_TO_DO.search(told.message)
    return at_key and is_end and (told.path, told.message) not in before


def check_helps(told, before, changed, overrides, recipe, folder):
    """The recipe, `changed` as advised and with `overrides`, no longer has the fault `told`; what was written is ok."""
    (folder / recipe).write_text(changed)
    exit_code, lines = call(folder, "validate", recipe, *overrides)
    after = [told_by(said, recipe) for said in lines]
    assert exit_code in (0, 2), lines
    assert (told.path, told.message) not in [(one.path, one.message) for one in after], (changed, overrides, lines)
    keys = [override.split("=")[0] for override in overrides] or [told.path]
    known = [(one.path, one.message) for one in before]
    assert not [one for one in after if any(is_refused(one, known, key) for key in keys)], (changed, overrides, lines)


@pytest.mark.parametrize("recipe, line", list(advice_in_recipes()))
def test_advice_on_a_recipe_helps(tree, recipe, line):
    """Each message of the invalid recipes, which recipes_test.cpp compares with what the program says."""
    text = recipe.read_text()
    before = [told_by(expected, recipe.name) for expected in re.findall(r"^# expect: (.*)$", text, re.MULTILINE)]
    told = told_by(line, recipe.name)
    is_open = recipe.name in LEFT_OPEN
    changed, overrides = (text.replace(*LEFT_OPEN[recipe.name]), []) if is_open else followed(text, told)
    assert overrides or changed != text
    check_helps(told, before, changed, overrides, f"{FOLDER}/followed_{recipe.name}", tree)
    (tree / FOLDER / f"followed_{recipe.name}").unlink()


def advised_mistakes():
    """Those of which a recipe alone is told what to do."""
    for row in mistakes.ROWS:
        messages = [row.message] if isinstance(row.message, str) else row.message
        is_note = row in mistakes.NOTES
        is_text = isinstance(row.recipe, str) and not row.arguments and row.data is None and row.verb == "validate"
        if is_text and not is_note and any(SAYS_WHAT_TO_DO.search(message) for message in messages):
            yield pytest.param(row, id=row.what.replace(" ", "_"))


@pytest.mark.parametrize("row", list(advised_mistakes()))
def test_advice_on_a_mistake_helps(tmp_path, row):
    (tmp_path / "r.yaml").write_text(row.recipe)
    before = [told_by(line, "r.yaml") for line in call(tmp_path, "validate", "r.yaml")[1]]
    advice = [told for told in before if SAYS_WHAT_TO_DO.search(told.message)]
    assert advice
    for told in advice:
        check_helps(told, before, *followed(row.recipe, told), "r.yaml", tmp_path)


WORDS = ["compare", "fit", "evaluate", "infer", "sample", "convert", "bench", "lint", "xyzzy", "explian"]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_is_no_verb_leads_to_one(tmp_path, word):
    exit_code, lines = call(tmp_path, word)
    assert exit_code == 2 and len(lines) == 1, lines
    found = re.search(rf"no file or verb '{word}'; (?:did you mean ([\w-]+)\?|verbs: ([\w-]+), )", lines[0])
    assert call(tmp_path, found[1] or found[2], "--help")[0] == 0


# --- Data ----------------------------------------------------------------------------------------------------


def renamed(row, old, new):
    """The parameter of the data set that says `old`, as its recipe writes it, with `new`."""
    found = re.findall(rf"(\w+): (\[[^\]]*\b{re.escape(old)}\b[^\]]*\]|{re.escape(old)}\b)", row.train)
    assert found, f"no parameter of '{row.train}' says {old}: the message must name it"
    parameter, value = found[-1]
    return f"dataset.train.{parameter}=" + re.sub(rf"\b{re.escape(old)}\b", new, value)


def follow_data(row, lines, folder):
    """Does what each line says: to the files, or by the overrides that it returns."""
    overrides = []
    for line in lines:
        if "else class_dim: -1 in the loss" in line:
            overrides.append(f"loss={{type: {row.loss}, class_dim: -1}}")
        elif found := re.search(r"\bwrite (?=[a-z_][\w.\[\]]*: )", line):
            pairs = settings_in(line[found.end() :])
            overrides += [f"{key if '.' in key else 'dataset.train.' + key}={value}" for key, value in pairs]
        elif found := re.search(r"(?:'([^']*)'[^']*|:(\w+): there is no such column); did you mean (\S+)\?", line):
            overrides.append(renamed(row, found[1] or found[2], found[3]))
        elif found := re.search(r"add (\w+) that .* such as (\{.*\})$", line):
            overrides.append(f"dataset.train.{found[1]}=[{found[2]}]")
        elif found := re.search(r"put (\{type: .*\}) before it$", line):
            overrides.append(f"model.layers={row.layers[:-1]}, {found[1]}]")
        elif found := re.search(r"([\w.]+): (?:has no column|its name) .*call the file (\.\w+)(?: \[T\d{4}\])?$", line):
            old = pathlib.Path(found[1])
            (folder / old).rename(folder / old.with_suffix(found[2]))
            overrides.append(f"dataset.train.path={old.with_suffix(found[2])}")
        elif found := re.search(r"([\w.]+):(\d+):[a-z]\w*: .*leave such rows out of the file$", line):
            kept = (folder / found[1]).read_text().splitlines(keepends=True)
            del kept[int(found[2]) - 1]
            (folder / found[1]).write_text("".join(kept))
        elif SAYS_WHAT_TO_DO.search(line):
            raise UnknownAdvice(line)
    return overrides


@pytest.mark.parametrize("row", advice_data.ROWS, ids=lambda row: row.what.replace(" ", "_"))
def test_advice_on_data_helps(row, tmp_path):
    (tmp_path / "r.yaml").write_text(advice_data.recipe_of(row))
    advice_data.write_files(tmp_path, row.files)
    exit_code, lines = call(tmp_path, "run", "r.yaml")
    if row.told is None:
        assert exit_code == 0, lines
        return
    assert exit_code in (1, 2), lines
    for told in [row.told] if isinstance(row.told, str) else row.told:
        assert told in "\n".join(lines), lines
    overrides = []
    if row.by_hand:
        advice_data.write_files(tmp_path, row.by_hand(row.files))
    else:
        overrides = follow_data(row, lines, tmp_path)
        assert overrides or any("leave such rows out" in line for line in lines), f"nothing to do is said: {lines}"
    exit_code, after = call(tmp_path, "run", "r.yaml", *overrides)
    assert not set(lines) & set(after), (overrides, after)
    if row.then:
        assert exit_code != 0 and row.then in "\n".join(after), (overrides, after)
    else:
        assert exit_code == 0, (overrides, after)


def test_there_are_enough_faults_of_data_and_no_two_alike():
    assert len(advice_data.ROWS) >= 60
    assert len({row.what for row in advice_data.ROWS}) == len(advice_data.ROWS)
