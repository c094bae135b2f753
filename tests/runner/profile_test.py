"""`trainrun profile`: the parts of a step are all of it, and each layer that computes is among them."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAINRUN = pathlib.Path(os.environ.get("TRAINRUN_BINARY", ROOT / "build/release/bin/trainrun"))


def trainrun(*arguments, folder=ROOT):
    return subprocess.run([str(TRAINRUN), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def profile(*arguments):
    result = trainrun("profile", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def parts_of(seconds):
    layers = sum(layer["forward"] + layer["backward"] for layer in seconds["layers"])
    return layers + seconds["loss"] + seconds["optimizer"] + seconds["data"] + seconds["rest"]


@pytest.mark.parametrize("overrides", [[], ["training.gradient_accumulation_steps=2"], ["training.fuse=false"]])
@pytest.mark.parametrize("recipe", ["recipes/digits_cnn.yaml", "recipes/digits_transformer.yaml", "recipes/regression_lbfgs.yaml"])
def test_the_parts_add_up_to_the_step(recipe, overrides):
    found = profile(recipe, "--steps", 5, *overrides)
    seconds = found["seconds"]
    assert found["steps"] == 5
    assert parts_of(seconds) == pytest.approx(seconds["step"], rel=0.05)
    assert all(layer["forward"] > 0 for layer in seconds["layers"])
    assert seconds["optimizer"] > 0 and seconds["data"] > 0


def test_it_names_the_layers_as_explain_does_and_what_is_fused():
    found = profile("recipes/digits_cnn.yaml", "--steps", 2)
    explained = json.loads(trainrun("explain", "recipes/digits_cnn.yaml", "--json").stdout)
    fused = {one["layers"]: one["types"] for one in explained["fused"]}
    known = {layer["name"]: layer["type"] for layer in explained["layers"]} | fused
    layers = found["seconds"]["layers"]
    assert [known[layer["name"]] for layer in layers] == [layer["type"] for layer in layers]
    trained = [layer["name"] for layer in explained["layers"] if layer["parameters"] > 0 and not layer["container"]]
    with_backward = {part for layer in layers if layer["backward"] > 0 for part in layer["name"].split(" + ")}
    assert set(trained) <= with_backward


def test_the_parts_of_a_transformer_are_measured_one_by_one():
    layers = profile("recipes/digits_transformer.yaml", "--steps", 2)["seconds"]["layers"]
    types = {layer["name"]: layer["type"] for layer in layers}
    assert types["3.self_attn"] == "MultiheadAttention" and types["4.linear1 + 4.activation"] == "Linear + GELU"
    assert all(layer["backward"] > 0 for layer in layers if layer["type"] in {"MultiheadAttention", "Linear", "LayerNorm"})


def test_the_text_has_a_line_for_each_part_and_nothing_is_written(tmp_path):
    result = trainrun("profile", ROOT / "recipes/digits_mlp.yaml", "--steps", 2, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    first = [line.split()[0] for line in result.stdout.splitlines() if line.strip()]
    assert first[-7:] == ["layers", "loss", "optimizer", "data", "rest", "step", "page"]
    assert list(tmp_path.iterdir()) == []


def test_memory_is_kept_from_step_to_step():
    found = profile("recipes/digits_mlp.yaml", "--steps", 200)
    assert 0 <= found["page_faults"] < 5  # a page touched for the first time now and then; a step's tensors are hundreds


def test_a_number_of_steps_that_is_none_is_refused():
    result = trainrun("profile", "recipes/digits_mlp.yaml", "--steps", "0")
    assert result.returncode == 2
    assert "--steps" in result.stderr


def test_layers_of_which_only_the_first_position_is_read_compute_that_alone_and_explain_says_so(tmp_path):
    recipe = (ROOT / "recipes/digits_transformer.yaml").read_text()
    assert "- {type: Mean, dim: 1}" in recipe
    own = tmp_path / "first.yaml"
    own.write_text(recipe.replace("- {type: Mean, dim: 1}", "- {type: Select, dim: 1, index: 0}"))
    explained = json.loads(trainrun("explain", own, "--json").stdout)
    assert set(explained["positions"]) == {"the first"} and explained["positions"]["the first"] >= 3
    assert f"the first in {explained['positions']['the first']} layers" in trainrun("explain", own).stdout
    assert json.loads(trainrun("explain", own, "training.fuse=false", "--json").stdout)["positions"] == {}
    types = [layer["type"] for layer in profile(own, "--steps", 2)["seconds"]["layers"]]
    assert "first positions" in types
