"""The name and the default of every parameter are those of the Python class or function of the same name: read from Python by
introspection. Each difference is listed here with its reason, and a reason that no longer holds fails as well."""

import inspect
import json
import re
import subprocess

import pytest
import torch

from tests.program import CALLED

# What Python's signatures have and a recipe does not: where tensors live and how kernels run is the runner's business, arguments
# of the call itself come from the graph, and the rest is deprecated in PyTorch.
NOT_IN_RECIPES = {
    "layer": {"device", "dtype", "self"},
    "loss": {"size_average", "reduce", "self"},
    "optimizer": {"params", "foreach", "fused", "capturable", "differentiable", "self"},
    "scheduler": {"optimizer", "last_epoch", "verbose", "self"},
    "initializer": {"tensor", "generator"},
}
# What every component of the kind has besides, as a part of a recipe.
COMMON = {
    "layer": {"type", "name", "inputs", "outputs", "repeat", "if", "init", "share", "lr_scale"},
    "loss": {"type", "name", "inputs", "loss_weight"},
    "optimizer": {"type", "param_groups", "state_dtype", "layer_decay"},
    "scheduler": {"type", "interval"},
    "initializer": {"type"},
}
# What a recipe need not say, although Python demands it: the size follows from what flows in.
INFERRED = {"in_features", "in1_features", "in2_features", "in_channels", "num_features", "num_channels", "normalized_shape", "input_size",
            "embed_dim", "d_model"}
REQUIRED = "(required)"

EXPLAINED: dict[str, str] = {
    "layer.Embedding.sparse": "sparse gradients are for optimizers that take them, which there are not",
    "layer.EmbeddingBag.sparse": "sparse gradients are for optimizers that take them, which there are not",
    "layer.EmbeddingBag.include_last_offset": "bags are rows of [N, T]; there are no offsets",
    **{f"layer.{name}.mode": "names the class itself" for name in ("GRU", "LSTM", "RNN")},
    "layer.GRU.proj_size": "of LSTM alone; Python refuses it",
    "layer.RNN.proj_size": "of LSTM alone; Python refuses it",
    "layer.RNN.nonlinearity": "Python takes it from **kwargs",
    "layer.Hardtanh.max_value": "deprecated in PyTorch for max_val",
    "layer.Hardtanh.min_value": "deprecated in PyTorch for min_val",
    "layer.MultiheadAttention.is_causal": "an argument of the call in Python",
    "layer.AdaptiveLogSoftmaxWithLoss.log_prob": "a method of its own in Python, an output here",
    **{f"layer.MaxUnpool{dims}d.output_size": "an argument of the call in Python" for dims in (1, 2, 3)},
    "layer.Parameter.shape": "Python takes the tensor",
    "layer.Parameter.expand": "Python code expands where it uses the tensor",
    **{f"loss.{name}.class_dim": "Python code transposes" for name in ("CrossEntropyLoss", "NLLLoss")},
    **{f"loss.{name}.mean_over": "in Python the loop weighs the batches of a step" for name in ("CrossEntropyLoss", "NLLLoss")},
    "layer.PReLU.init": "as for any layer: init: {type: Constant, val: 0.1}",
    **{f"layer.Transformer{part}Layer.activation": "a function in Python, its name in recipes" for part in ("Encoder", "Decoder")},
    **{f"layer.Transformer{part}.{name}": "an argument of the call in Python" for part, name in (
        ("EncoderLayer", "is_causal"), ("Encoder", "is_causal"), ("DecoderLayer", "tgt_is_causal"), ("DecoderLayer", "memory_is_causal"),
        ("Decoder", "tgt_is_causal"), ("Decoder", "memory_is_causal"))},
    **{f"layer.Transformer{part}.{name}": "a stack takes what its layers take, where Python takes a layer to copy"
       for part in ("Encoder", "Decoder") for name in ("activation", "batch_first", "bias", "d_model", "dim_feedforward", "dropout",
                                                       "layer_norm_eps", "nhead", "norm_first")},
    "layer.TransformerEncoder.encoder_layer": "a stack takes what its layers take",
    "layer.TransformerDecoder.decoder_layer": "a stack takes what its layers take",
    **{f"layer.Transformer{part}.norm": "whether there is one, where Python takes the module" for part in ("Encoder", "Decoder")},
    "layer.TransformerEncoder.enable_nested_tensor": "a way of computing, which is the runner's business",
    "layer.TransformerEncoder.mask_check": "a way of computing, which is the runner's business",
    "loss.CTCLoss.batch_first": "batches of data have the samples first; false, as in Python, by default",
    "scheduler.CyclicLR.scale_fn": "code cannot stand in a recipe",
    "scheduler.CyclicLR.scale_mode": "for scale_fn, which is code",
    "layer.SyncBatchNorm.process_group": "all ranks of the job",
    "layer.Sequential.layers": "Python takes the layers as arguments",
    "scheduler.CosineAnnealingLR.T_max": "the whole job by default",
    "scheduler.OneCycleLR.epochs": "the runner knows the number of steps",
    "scheduler.OneCycleLR.steps_per_epoch": "the runner knows the number of steps",
    "scheduler.ReduceLROnPlateau.monitor": "in Python the loop hands the figure over",
}
if tuple(map(int, torch.__version__.split(".")[:2])) > (2, 11):  # seen in 2.15
    EXPLAINED |= dict.fromkeys(
        [*(f"layer.{name}.bias" for name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
                                             "InstanceNorm3d", "SyncBatchNorm")), "optimizer.LBFGS.maximize"],
        "newer than torch 2.11, the default; recipes are the same for every release")


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def python_counterpart(kind: str, name: str):
    if kind in ("layer", "loss"):
        return getattr(torch.nn, name, None)
    if kind == "optimizer":
        return getattr(torch.optim, name, None)
    if kind == "scheduler":
        return getattr(torch.optim.lr_scheduler, name, None)
    if kind == "initializer":
        return getattr(torch.nn.init, snake(name) + "_", None)
    return None


def signature_of(target) -> dict[str, object]:
    """Defaults by parameter; (*args, **kwargs) of a class is what its base takes."""
    result: dict[str, object] = {}
    classes = [c for c in target.__mro__ if "__init__" in vars(c)] if inspect.isclass(target) else [None]
    for cls in classes:
        parameters = inspect.signature(cls.__init__ if cls else target).parameters.values()
        for p in parameters:
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                result.setdefault(p.name, REQUIRED if p.default is p.empty else p.default)
        if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            break
    return result


def in_recipe_form(value):
    """As YAML would have it: a tuple is a list, a tensor its value."""
    if isinstance(value, torch.Tensor):
        return value.item()
    if isinstance(value, tuple):
        return [in_recipe_form(item) for item in value]
    return value


def same_default(ours, pythons) -> bool:
    pythons = in_recipe_form(pythons)
    if isinstance(ours, list) and not isinstance(pythons, list):
        return all(item == pythons for item in ours)  # one size for all dimensions
    return type(ours) in (int, float) and type(pythons) in (int, float) and ours == pythons or ours == pythons


@pytest.fixture(scope="module", name="definitions")
def schema_definitions():
    text = subprocess.run([CALLED, "schema"], check=True, capture_output=True, text=True).stdout
    return json.loads(text)["definitions"]


def required_of(definitions, kind: str, name: str) -> set[str]:
    """The schema says it where a component is named, not in its own definition (an overlay may leave it to its base)."""
    found: set[str] = set()
    text = json.dumps(definitions[kind])
    if f'"const": "{name}"' not in text:
        return found
    for case in definitions[kind]["then"]["allOf"]:  # of a mapping; the rest is of names alone
        if case.get("if", {}).get("properties", {}).get("type", {}).get("const") == name:
            for part in case["then"].get("allOf", [case["then"]]):
                found |= set(part.get("required", []))
    return found


def differences(definitions) -> dict[str, str]:
    found = {}
    for definition, schema in definitions.items():
        kind, _, name = definition.partition(".")
        target = python_counterpart(kind, name)
        if not name or target is None:
            continue
        ours = {p: s for p, s in schema["properties"].items() if p not in COMMON[kind]}
        required = required_of(definitions, kind, name)
        pythons = {p: d for p, d in signature_of(target).items() if p not in NOT_IN_RECIPES[kind] and not p.startswith("_")}
        for parameter in sorted(ours.keys() | pythons.keys()):
            key = f"{kind}.{name}.{parameter}"
            if parameter not in ours:
                found[key] = "not in recipes"
            elif parameter not in pythons:
                found[key] = "not in Python"
            elif pythons[parameter] is REQUIRED:
                if parameter not in required and parameter not in INFERRED:
                    found[key] = f"required in Python, {ours[parameter].get('default')!r} in recipes"
            elif parameter in required:
                found[key] = f"required in recipes, {pythons[parameter]!r} in Python"
            elif not same_default(ours[parameter].get("default"), pythons[parameter]):
                found[key] = f"{ours[parameter].get('default')!r} in recipes, {pythons[parameter]!r} in Python"
    return found


def test_names_and_defaults_are_pythons(definitions):
    found = differences(definitions)
    unexplained = {key: what for key, what in found.items() if key not in EXPLAINED}
    assert unexplained == {}, "\n".join(f"{key}: {what}" for key, what in unexplained.items())
    assert sorted(key for key in EXPLAINED if key not in found) == [], "these differ no longer"


def test_the_comparison_sees_a_difference(definitions):
    changed = json.loads(json.dumps(definitions))
    changed["layer.BatchNorm2d"]["properties"]["momentum"]["default"] = 0.2
    del changed["layer.GELU"]["properties"]["approximate"]
    assert {"layer.BatchNorm2d.momentum", "layer.GELU.approximate"} <= differences(changed).keys() - differences(definitions).keys()
