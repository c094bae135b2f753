"""The program from outside: exit codes and what the verbs print."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("TRAINRUN_BINARY", str(ROOT / "build/release/bin/trainrun"))
KINDS = ["layer", "initializer", "loss", "metric", "dataset", "transform", "optimizer", "scheduler", "comm_hook", "logger"]


def trainrun(*arguments, **environment):
    return subprocess.run(
        [BINARY, *map(str, arguments)], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300, check=False)


def output_of(*arguments):
    result = trainrun(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def plural(kind):
    return kind + ("es" if kind.endswith("s") else "s")


def test_version_and_help_exit_0():
    assert output_of("--version").startswith("trainrun ")
    for arguments in [["--help"], ["explain", "--help"], ["list", "--help"]]:
        assert "--help" in output_of(*arguments)


@pytest.mark.parametrize("arguments", [
    [], ["--unknown"], ["explain"], ["explain", "recipes/no_such.yaml"], ["recipes/no_such.yaml"], ["no_such_verb"],
    ["explain", "recipes/digits_mlp.yaml", "optimizer.lr=fast"], ["list", "layers", "Linear", "too", "many"],
])
def test_a_wrong_command_line_exits_2_and_says_why(arguments):
    result = trainrun(*arguments)
    assert result.returncode == 2
    assert result.stderr.strip()
    assert "terminate" not in result.stderr


# --- list ---

def test_list_counts_every_kind():
    lines = output_of("list").splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [plural(kind) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_list_takes_singular_and_plural(kind):
    assert output_of("list", kind) == output_of("list", plural(kind)) != ""


def test_list_describes_one_component():
    text = output_of("list", "layers", "Conv2d")
    for word in ["out_channels", "required", ">= 1", "reflect", "number of feature maps made", "{type: Conv2d", "inputs"]:
        assert word in text, word


@pytest.mark.parametrize("arguments, hint", [
    (["layer", "Conv2D"], "did you mean Conv2d?"),
    (["layers", "Lineer"], "did you mean Linear?"),
    (["optimisers"], "did you mean optimizers?"),
    (["nonsense"], "layers, initializers, losses"),
])
def test_list_of_the_unknown_exits_2_with_a_near_match(arguments, hint):
    result = trainrun("list", *arguments)
    assert result.returncode == 2
    assert hint in result.stderr
    assert result.stdout == ""


def test_a_plugin_that_is_none_exits_2():
    for verb in ["list", "schema"]:
        result = trainrun(verb, "--plugin", "no/such/lib.so")
        assert result.returncode == 2
        assert "no/such/lib.so" in result.stderr


# --- schema and reference: generated, checked in ---

def test_the_checked_in_schema_is_the_programs():
    assert (ROOT / "schemas/recipe.schema.json").read_text() == output_of("schema"), "run tools/generate"


def test_the_schema_knows_every_component():
    definitions = json.loads(output_of("schema"))["definitions"]
    for kind in KINDS:
        for line in output_of("list", kind).splitlines():
            if not line.startswith(" "):
                assert f"{kind}.{line.split()[0]}" in definitions


def test_the_checked_in_reference_is_the_programs(tmp_path):
    output_of("list", "--markdown", tmp_path / "reference")
    made = {path.name: path.read_text() for path in (tmp_path / "reference").iterdir()}
    assert set(made) == {"README.md", "recipe.md", *(plural(kind) + ".md" for kind in KINDS)}
    assert made == {path.name: path.read_text() for path in (ROOT / "docs/reference").iterdir()}, "run tools/generate"


def test_the_recipes_reference_has_every_section():
    schema = json.loads(output_of("schema"))
    page = (ROOT / "docs/reference/recipe.md").read_text()

    def check(properties, path):
        for name, part in properties.items():
            if path or name != "base":
                assert f"| `{name}` |" in page
            for choice in [part, *part.get("anyOf", [])]:
                for one in [choice, *choice.get("anyOf", [])]:
                    if "properties" in one and one.get("additionalProperties") is False:
                        assert f"## {path}{name}\n" in page
                        check(one["properties"], f"{path}{name}.")

    check(schema["definitions"]["recipe"]["properties"], "")


# --- explain and validate ---

@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "recipes").glob("*.yaml")))
def test_every_recipe_validates_and_explains_without_data(recipe):
    nowhere = {"TRAINRUN_DATA": "/nowhere"}
    validated = trainrun("validate", f"recipes/{recipe}", **nowhere)
    assert validated.returncode == 0, validated.stderr
    explained = trainrun("explain", f"recipes/{recipe}", "--json", **nowhere)
    assert explained.returncode == 0, explained.stderr
    explanation = json.loads(explained.stdout)
    assert explanation["parameters"] == sum(layer["parameters"] for layer in explanation["layers"]) > 0
    assert explanation["flops"] > 0


def test_explain_shows_the_wide_net():
    text = output_of("explain", "recipes/mnist_wide_cnn.yaml")
    for words in ["[N, 512, 26, 26]", "5,120", "[N, 256, 9, 9]", "3,277,056", "3,316,362", "OneCycleLR",
                  "1,024 = batch_size 1,024 x num_processes 1 x gradient_accumulation_steps 1", "total 290 in 5 epochs"]:
        assert words in text, words


def test_explain_of_a_bad_recipe_names_every_fault():
    result = trainrun("explain", "recipes/digits_mlp.yaml", "optimizer.weight_decey=0", "dataloader.drop_lst=true")
    assert result.returncode == 2
    assert "did you mean weight_decay?" in result.stderr
    assert "did you mean drop_last?" in result.stderr


# --- env ---

def test_env_names_what_a_bug_report_needs():
    text = output_of("env")
    for word in ["trainrun", "LibTorch", "2.11.0", "compiler", "glibc", "CPU", "vector extensions", "threads", "memory",
                 "GPU", "container", "limits"]:
        assert word in text, word
