"""`export --format onnx` of language models and of whole recipes: onnxruntime's outputs against trainrun's own; what the file says besides."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: tools/setup --tests fetches it")

from onnx_files import OnnxFile, assert_close, check_layer  # noqa: E402
from probe import ProbeError  # noqa: E402
from tests.program import CALLED  # noqa: E402

try:
    import language_models
except ImportError:
    language_models = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import recipe_data  # noqa: E402

ALL = bool(os.environ.get("TRAINRUN_ONNX_ALL"))
LANGUAGE = language_models.ALL if language_models else []
RECIPES = sorted(path.relative_to(ROOT) for folder in ("tests/recipes/valid", "recipes") for path in (ROOT / folder).glob("*.yaml"))
# Recipes that CI leaves to TRAINRUN_ONNX_ALL=1, since their models are large.
LARGE = {"mnist_wide_cnn", "image_folder_finetune"}
# Recipes with a layer that has no form.
REFUSED = {"adaptive_softmax": r"model\.layers\[2\]: FractionalMaxPool2d has no form in ONNX"}


@pytest.mark.parametrize("model", LANGUAGE, ids=str)
def test_a_language_model_in_onnx_computes_what_it_does(probe, tmp_path, model):
    model.config(**(model.settings | {"architectures": [model.type]})).save_pretrained(tmp_path)
    spec = {"type": model.type, "pretrained": str(tmp_path)}
    for fields in (model.fields(), {"input_ids": model.fields()["input_ids"]}):
        check_layer(probe, tmp_path, spec, fields, opened={name: {0: "batch", 1: "length"} for name in fields}, whole=True)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipes_model_in_onnx_computes_what_it_does(probe, tmp_path, path):
    if path.stem in LARGE and not ALL:
        pytest.skip("TRAINRUN_ONNX_ALL=1 does it")
    if not recipe_data.is_fetched(ROOT / path):
        recipe_data.skip_without_data(ROOT / path)
    request = {"recipe": str(path), "overrides": [], "path": str(tmp_path / "model.onnx"), "sizes": [1, 2, 5]}
    if path.stem in REFUSED:
        with pytest.raises(ProbeError, match=REFUSED[path.stem]):
            probe.ask("onnx_recipe", **request)
        return
    _, results = probe.ask("onnx_recipe", **request)
    file = OnnxFile(tmp_path / "model.onnx")
    for size in request["sizes"]:
        assert_close(file.run(results.under(f"batch{size}")), results.under(str(size)), f"output of {size} samples")


# --- the command ---

RECIPE = """
version: 1
name: petals
seed: 5
model:
  layers: [{type: Linear, name: first, out_features: 16}, BatchNorm1d, ReLU, {type: Dropout, p: 0.5}, {type: Linear, name: head, out_features: 3}]
  adapters: {type: LoRA, target: [first], modules_to_save: [head]}
loss: CrossEntropyLoss
dataset: {train: {type: CSV, path: petals.csv, label: kind, columns: {kind: category}, features: [a, b, c]}}
transforms: []
dataloader: {batch_size: 8}
optimizer: {type: AdamW, lr: 0.05}
training: {max_steps: 20}
callbacks: [{type: EMA, decay: 0.9}]
output_dir: run
"""


def trainrun(folder, *arguments, refused=None):
    done = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if refused is None:
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr
    assert done.returncode != 0 and refused in done.stderr, done.stderr
    return done.stderr


@pytest.fixture(name="petals", scope="module")
def folder_of_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("petals")
    numbers = np.random.default_rng(3).normal(size=(40, 3))
    kinds = ["iris", "rose", "tulip"]
    rows = [",".join(f"{x:.5f}" for x in row) + "," + kinds[i % 3] for i, row in enumerate(numbers)]
    (folder / "petals.csv").write_text("a,b,c,kind\n" + "\n".join(rows) + "\n")
    (folder / "petals.yaml").write_text(RECIPE.replace("transforms: []\n", "").replace("features: [a, b, c]}}", "features: [a, b, c]}, transforms: [Standardize]}"))
    trainrun(folder, "--quiet", "petals.yaml")
    return folder


def metadata_of(file: OnnxFile) -> dict[str, str]:
    return {entry.key: entry.value for entry in file.model.metadata_props}


def test_a_runs_file_says_what_is_known_of_the_data(petals):
    trainrun(petals, "export", "run", "--format", "onnx", "--output", "petals.onnx")
    metadata = metadata_of(OnnxFile(petals / "petals.onnx"))
    contract = json.loads(metadata["trainrun.contract"])
    assert contract["classes"]["label"] == ["iris", "rose", "tulip"] == json.loads(metadata["trainrun.outputs"])
    assert any("scaling" in field for field in contract["fields"])
    assert "format" not in metadata and metadata["trainrun.version"]


def test_a_runs_file_predicts_what_the_run_does(petals):
    """Averaged weights, adapters merged."""
    trainrun(petals, "export", "run", "--format", "onnx", "--output", "merged.onnx")
    trainrun(petals, "export", "run", "--merge", "--output", "merged.safetensors")
    file = OnnxFile(petals / "merged.onnx")
    state = safetensors.torch.load_file(petals / "merged.safetensors")
    initializers = {tensor.name for tensor in file.model.graph.initializer}
    assert {"first.weight", "first.bias", "head.weight", "head.bias", "1.running_var"} <= initializers <= set(state) | {
        name for name in initializers if ":" in name}
    for samples in (1, 2, 7):
        x = torch.randn(samples, 3, generator=torch.Generator().manual_seed(samples))
        hidden = torch.nn.functional.batch_norm(torch.nn.functional.linear(x, state["first.weight"], state["first.bias"]), state["1.running_mean"],
                                                state["1.running_var"], state["1.weight"], state["1.bias"])
        expected = torch.nn.functional.linear(hidden.relu(), state["head.weight"], state["head.bias"])
        (name,) = file.open_dimensions
        assert_close(file.run({name: x}), {"0": expected}, "logits")


def test_weights_may_lie_beside_the_file(petals):
    trainrun(petals, "export", "run", "--format", "onnx", "--output", "inside.onnx")
    said = trainrun(petals, "export", "run", "--format", "onnx", "--external-data", "--output", "beside.onnx")
    assert "the weights are in beside.onnx.data" in said
    x = {name: torch.randn(4, 3) for name in OnnxFile(petals / "inside.onnx").open_dimensions}
    inside, beside = (OnnxFile(petals / f"{name}.onnx").run(x)[0] for name in ("inside", "beside"))
    assert torch.equal(inside, beside)
    (petals / "again.onnx.data").write_text("mine")
    trainrun(petals, "export", "run", "--format", "onnx", "--output", "again.onnx", refused="again.onnx.data is already there")
    assert (petals / "again.onnx.data").read_text() == "mine" and not (petals / "again.onnx").exists()


def test_large_weights_lie_in_the_file_beside(probe, tmp_path):
    spec = {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 500}, "ReLU", {"type": "Linear", "out_features": 3}]}
    file = check_layer(probe, tmp_path, spec, {"a": torch.randn(2, 30)}, external=True)
    apart = {tensor.name for tensor in file.model.graph.initializer if tensor.external_data}
    assert apart == {"0.0.weight", "0.0.bias", "0.2.weight"}
    assert (tmp_path / "model.onnx").stat().st_size < 3000 < (tmp_path / "model.onnx.data").stat().st_size


def test_external_data_is_for_onnx(petals):
    trainrun(petals, "export", "run", "--external-data", refused="--external-data is for --format onnx, not for safetensors")


def test_a_layer_without_a_form_is_named_with_its_place(petals):
    (petals / "drawn.yaml").write_text((petals / "petals.yaml").read_text().replace("BatchNorm1d, ReLU", "{type: Reshape, shape: [1, 4, 4]}, {type: FractionalMaxPool2d, kernel_size: 2, output_size: 2}, Flatten")
                                       .replace("output_dir: run", "output_dir: drawn"))
    trainrun(petals, "--quiet", "drawn.yaml")
    said = trainrun(petals, "export", "drawn", "--format", "onnx", "--output", "drawn.onnx", refused="FractionalMaxPool2d has no form in ONNX")
    assert "model.layers[2]" in said and "--format torchscript or safetensors" in said
    assert not (petals / "drawn.onnx").exists()
