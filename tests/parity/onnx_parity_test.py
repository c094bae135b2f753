"""`export --format onnx`: each layer's form, the vision and language models and the recipes, run by onnxruntime, against trainrun's own outputs.
TRAINRUN_ONNX_ALL=1 adds the models that take long, VGG's half a GB of weights among them."""

import os

import pytest
import torch

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: tools/setup --tests fetches it")

import vision_models  # noqa: E402
from layers_parity_test import ROWS, make_inputs  # noqa: E402
from onnx_files import check_layer  # noqa: E402
from probe import ProbeError, named  # noqa: E402

ALL = bool(os.environ.get("TRAINRUN_ONNX_ALL"))

# Layers that have no form, and why.
NO_FORM = {
    "FractionalMaxPool2d": "draws where its windows lie, in evaluation, too",
    "FractionalMaxPool3d": "draws where its windows lie, in evaluation, too",
    "TorchScript": "is what another program wrote",
}
# Rows whose options have no form, by what is said of them.
REFUSED = [
    (lambda spec: spec.get("proj_size"), "ONNX's LSTM has no projected state"),
    (lambda spec: spec["type"].startswith("AdaptiveMaxPool") and spec.get("return_indices"), "needs an output_size that divides"),
]
# Bounds of layers for which float32 itself is coarser: over one sample the variance is 0, and what is divided by its root rounding errors.
COARSE = {"SyncBatchNorm": 1e-4}


def refusal_of(spec):
    if spec["type"] in NO_FORM:
        return f"{spec['type']} has no form in ONNX"
    return next((said for applies, said in REFUSED if applies(spec)), None)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_layer_in_onnx_computes_what_it_does(probe, tmp_path, row):
    said = refusal_of(row.spec)
    if said is None:
        check_layer(probe, tmp_path, row.spec, make_inputs(row), tolerance=COARSE.get(row.spec["type"], 1e-5))
        return
    with pytest.raises(ProbeError, match=said):
        probe.ask("onnx", named("input", make_inputs(row)), spec=row.spec, seed=1, path=str(tmp_path / "model.onnx"))


VISION = [model for model in vision_models.COMPUTED if ALL or "VGG" not in model.spec["type"]]
if ALL:
    known = [model.spec["type"] for model in VISION]
    VISION = VISION + [model for model in vision_models.ALL if model.spec["type"] not in known]


@pytest.mark.parametrize("model", VISION, ids=str)
def test_a_vision_model_in_onnx_computes_what_it_does(probe, tmp_path, model):
    images = {"image": model.images(2)}
    opened = {0: "batch"} if "ViT" in model.spec["type"] or "VGG" in model.spec["type"] else {0: "batch", 2: "height", 3: "width"}
    file = check_layer(probe, tmp_path, model.spec, images, opened={"image": opened}, whole=True)
    names = {name for name in model.make().state_dict() if not name.endswith("num_batches_tracked")}
    assert names == {tensor.name for tensor in file.model.graph.initializer} & names, "initializers have torchvision's names"
    (tmp_path / "model.onnx").unlink()


def test_every_vision_model_is_compared(probe):
    registered = set(probe.ask("catalog")["layer"]) & {model.spec["type"] for model in vision_models.ALL}
    assert len(registered) == 27
    assert not ALL or {model.spec["type"] for model in VISION} == registered
