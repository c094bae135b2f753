"""docs/guide/coming_from.md: what it says in terms of a recipe exists, with that name and that value; and every key of
transformers' TrainingArguments has its row."""

import dataclasses
import json
import pathlib
import re

import jsonschema
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/guide/coming_from.md").read_text()
SCHEMA = json.loads((ROOT / "schemas/recipe.schema.json").read_text())
VERBS = {path.stem.removeprefix("verb_").replace("_", "-") for path in (ROOT / "tools").glob("verb_*.cpp")}
SYNTAX = {"--quiet", "--verbose", "--report", "_proj$", "optimizer.lr=1e-4", "dataset.train.subset=64", "subset", "input_ids", "missing"}
FILES = {"checkpoints/best", "recipe.yaml"}


def rows() -> list[list[str]]:
    """The cells of every row of a table, without the tables' heads."""
    lines = [line for line in GUIDE.splitlines() if line.startswith("|")]
    heads = {i for i, line in enumerate(lines) if i + 1 < len(lines) and lines[i + 1].startswith("|---")}
    found = [re.split(r"(?<!\\)\|", line)[1:-1] for i, line in enumerate(lines) if i not in heads]
    return [cells for cells in found if not cells[0].startswith("---")]


def resolved(schema: dict) -> dict:
    while "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].removeprefix("#/definitions/")]
    return schema


def properties_of(schema: dict) -> dict:
    """The keys that a mapping of this schema may have, by whichever of its alternatives; rules (allOf) come last."""
    schema = resolved(schema)
    found = dict(schema.get("properties", {}))
    parts = [schema[word] for word in ("else", "then") if isinstance(schema.get(word), dict)]
    for part in (*parts, *schema.get("anyOf", []), *schema.get("allOf", [])):
        found = {**properties_of(part), **found}
    return found


def of_key(path: str) -> dict | None:
    """The schema of a recipe's key such as training.num_epochs; None: there is no such key."""
    schema = SCHEMA["definitions"]["recipe"]
    for name in path.split("."):
        schema = properties_of(schema).get(name)
        if schema is None:
            return None
    return schema


def of_component(path: str) -> dict | None:
    """The schema of a component such as AdamW, or of one of its parameters, such as AdamW.lr."""
    name, *parameter = path.split(".")
    kinds = [key for key in SCHEMA["definitions"] if key.endswith(f".{name}")]
    if not kinds:
        return None
    if not parameter:
        return SCHEMA["definitions"][kinds[0]]
    for kind in (*kinds, "every_" + kinds[0].split(".")[0]):
        schema = properties_of(SCHEMA["definitions"].get(kind, {})).get(parameter[0])
        if schema is not None:
            return schema
    return None


def fault_of(span: str) -> str | None:
    """What is wrong with a piece of code in the right column."""
    if span in SYNTAX | FILES or span.startswith("["):
        return None
    if span.startswith("trainrun "):
        return None if span.split()[1] in VERBS else f"no verb {span}"
    path, _, value = span.partition(": ")
    schema = of_component(path) if path[0].isupper() else of_key(path)
    if schema is None:
        return f"no key or component {path}"
    if value:
        validator = jsonschema.Draft7Validator({**schema, "definitions": SCHEMA["definitions"]})
        if error := next(validator.iter_errors(yaml.safe_load(value)), None):
            return f"{path} does not take {value}: {error.message}"
    return None


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0].strip()[:40])
def test_what_the_guide_names_exists(cells):
    assert len(cells) == 2
    faults = [fault for span in re.findall(r"`([^`]+)`", cells[1]) if (fault := fault_of(span))]
    assert not faults


def test_a_key_that_does_not_exist_is_noticed():
    assert fault_of("training.epochs") == "no key or component training.epochs"
    assert fault_of("AdamW.learning_rate") == "no key or component AdamW.learning_rate"
    assert fault_of("trainrun fit") == "no verb trainrun fit"
    assert fault_of("mixed_precision: half").startswith("mixed_precision does not take half")


def test_every_training_argument_has_its_row():
    transformers = pytest.importorskip("transformers")
    section = GUIDE.split("## transformers' Trainer")[1].split("\n## ")[0]
    named = {word for cells in re.findall(r"^\| (.*?) \|", section, re.MULTILINE) for word in re.findall(r"`(\w+)", cells)}
    missing = {field.name for field in dataclasses.fields(transformers.TrainingArguments)} - named
    assert not missing


def test_the_recipe_beside_trainers_arguments_is_valid():
    recipe = yaml.safe_load(re.search(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)[1])
    recipe["optimizer"]["lr"] = 5e-5  # YAML 1.1 takes 5e-5 for a text
    recipe |= {
        "model": {"layers": ["Flatten", {"type": "Linear", "out_features": 10}]},
        "loss": "CrossEntropyLoss",
        "dataset": {"train": {"type": "Digits", "split": "train"}, "eval": {"type": "Digits", "split": "test"}},
    }
    assert not list(jsonschema.Draft7Validator(SCHEMA).iter_errors(recipe))
