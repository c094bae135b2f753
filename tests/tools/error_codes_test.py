"""The codes of errors: `trainrun explain T0101`, and what validate says of each code's example."""

import json
import pathlib
import re
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Codes are looked up by people and read by programs. A new one is added here; none is ever renamed, renumbered or taken out.
CODES = {
    "T0101": "unknown key", "T0102": "a required key is missing", "T0103": "a value of the wrong type", "T0104": "a number outside its range",
    "T0105": "none of the words that are allowed", "T0106": "empty, where something is needed", "T0107": "no component of this name",
    "T0108": "a component without a type", "T0109": "a value that a rule forbids", "T0110": "a name that cannot be used",
    "T0111": "not a regular expression", "T0112": "a pattern that matches nothing", "T0201": "not YAML", "T0202": "a key that is there twice",
    "T0203": "characters that a recipe cannot have", "T0204": "larger than a recipe may be", "T0205": "no mapping of keys",
    "T0206": "a `${…}` without a value", "T0207": "a base that cannot be used", "T0208": "something that cannot be merged or removed",
    "T0209": "not an override", "T0210": "a plugin that cannot be loaded", "T0211": "a recipe that cannot be read",
    "T0301": "a layer that does not fit its input", "T0302": "an input that nobody has", "T0303": "a name that is taken",
    "T0304": "a block that cannot be put in", "T0305": "more outputs than a layer has", "T0306": "a layer that cannot be shared so",
    "T0307": "nothing to train", "T0308": "a loss that does not fit what it reads", "T0309": "a metric that does not fit what it reads",
    "T0310": "numbers beyond an Embedding", "T0311": "initial weights that cannot be had", "T0312": "a layer that is adapted and trained whole",
    "T0313": "an initializer that does not fit a parameter", "T0314": "a component that cannot be built", "T0315": "a batch of one for a BatchNorm",
    "T0401": "data that cannot be described", "T0402": "a transform that does not fit the data",
    "T0403": "evaluation data that do not fit the model", "T0404": "tokens that cannot be added",
    "T0405": "samples that cannot be drawn in this order", "T0501": "a figure that evaluation does not give",
    "T0502": "whether less or more is better is not known",
}
AT_END = re.compile(r" \[(T\d{4})\]$")


def call(*words, **options):
    return subprocess.run([CALLED, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, **options)


def validated(page: dict, key: str, override: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    recipe = folder / "recipe.yaml"
    if page["code"] != "T0211" or key != "example":  # that one's mistake is that there is no file
        recipe.write_text(page[key], encoding="utf-8")
    return call("validate", recipe, *([override] if override else []))


def test_every_code_is_listed_and_means_what_it_meant():
    listed = dict(line.split("  ", 1) for line in call("explain", "--codes").stdout.splitlines())
    assert listed == CODES


def test_every_kind_of_mistake_in_the_program_has_a_page():
    numbers = re.findall(r"= (\d+),", (ROOT / "runner/report/errors/error_code.h").read_text())
    assert [f"T{int(number):04}" for number in numbers[1:]] == list(CODES)


# All of them: tests/runner/error_pages_test.cpp.
@pytest.mark.parametrize("code", ["T0101", "T0112", "T0205", "T0209", "T0211", "T0304", "T0310", "T0402", "T0501"])
def test_the_example_of_a_code_gives_exactly_that_code_and_the_mended_one_none(code, tmp_path):
    page = json.loads(call("explain", code, "--json").stdout)
    wrong = validated(page, "example", page["override"], tmp_path)
    assert wrong.returncode == 2, wrong.stdout
    assert [found[1] for line in wrong.stderr.splitlines() if (found := AT_END.search(line))] == [code], wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1, wrong.stderr
    mended = validated(page, "mended", "", tmp_path)
    assert mended.returncode == 0, mended.stderr


INVALID = dict(line.split(": ") for line in (ROOT / "tests/recipes/invalid_codes.txt").read_text().splitlines())


def test_every_invalid_recipe_has_its_codes_listed():
    assert list(INVALID) == sorted(path.name for path in (ROOT / "tests/recipes/invalid").glob("*.yaml"))
    known = {code for codes in INVALID.values() for code in codes.split()}
    assert known <= set(CODES) and len(known) >= 30


@pytest.mark.parametrize("recipe", dict.fromkeys([name for name, codes in INVALID.items() if len(codes.split()) > 2] + list(INVALID)[::40]))
def test_the_mistakes_of_a_recipe_are_printed_with_their_codes(recipe):
    """Of every recipe, as they are found: tests/runner/recipes_test.cpp."""
    said = call("validate", f"tests/recipes/invalid/{recipe}").stderr.splitlines()
    found = [AT_END.search(line) for line in said if not line.startswith(("note: ", "warning: "))]
    assert [code and code[1] for code in found] == INVALID[recipe].split(), said


def test_a_page_shows_the_recipe_and_what_to_do():
    said = call("explain", "t0101").stdout
    assert said.startswith("T0101: unknown key\n")
    assert "    optimizer: {type: SGD, learning_rate: 0.1}\n" in said and "    optimizer: {type: SGD, lr: 0.1}\n" in said
    assert max(map(len, said.splitlines())) <= 110


def test_a_code_that_does_not_exist_is_refused_and_a_missing_recipe_too():
    done = call("explain", "T9999")
    assert done.returncode == 2 and "no error has the code T9999; `trainrun explain --codes`" in done.stderr
    done = call("explain")
    assert done.returncode == 2 and "recipe is required" in done.stderr


def test_a_recipe_whose_name_looks_like_a_code_is_still_a_recipe(tmp_path):
    (tmp_path / "T0101").write_text(json.loads(call("explain", "T0101", "--json").stdout)["mended"])
    done = subprocess.run([CALLED, "explain", "T0101"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Flatten" in done.stdout, done.stderr


def test_json_of_validate_has_each_error_with_its_place_and_code(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.loads(call("explain", "T0101", "--json").stdout)["example"])
    done = call("validate", recipe, "training.num_epochs=many", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 2 and done.stderr == ""
    assert not found["valid"] and [problem["code"] for problem in found["problems"]] == ["T0101", "T0103"]
    assert found["notes"] == []
    problem = found["problems"][0]
    assert (problem["file"], problem["line"], problem["path"]) == (str(recipe), 9, "optimizer.learning_rate")
    assert problem["message"] == "unknown parameter of SGD; did you mean lr?"
    good = call("validate", "recipes/digits_mlp.yaml", "--json")
    assert good.returncode == 0 and json.loads(good.stdout) == {"recipe": "recipes/digits_mlp.yaml", "valid": True, "verdict": "valid", "problems": [], "notes": []}
