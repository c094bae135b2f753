"""Recipes of the registered language models, and what trainrun and transformers make of them."""

import pathlib

import numpy as np
import torch

from language_models import LanguageModel
from probe import named

TOLERANCE = 1e-5
STEPS = 21

RECIPE = """
version: 1
name: language
seed: 3
model: {{layers: [{layers}]}}
loss: {loss}
dataset:
  train: {{type: TensorFile, path: {data}, target: labels}}
  eval: {{type: TensorFile, path: {data}, target: labels}}
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: AdamW, lr: 1e-3}}
training: {{max_steps: {steps}}}
evaluation: {{every: null}}
checkpoint: {{every: {steps}}}
"""

# Where only the model is looked at, any loss will do.
OF_THE_OUTPUT = "{type: OutputLoss, inputs: [\"0\"]}"


def write_recipe(folder: pathlib.Path, layers: str, fields: dict[str, torch.Tensor], steps: int = STEPS,
                 loss: str = "{type: CrossEntropyLoss, class_dim: -1}") -> str:
    np.savez(folder / "data.npz", **{name: tensor.numpy() for name, tensor in fields.items()})
    path = folder / "language.yaml"
    path.write_text(RECIPE.format(layers=layers, data=folder / "data.npz", steps=steps, loss=loss))
    return str(path)


def labels_for(model: LanguageModel, fields: dict[str, torch.Tensor]) -> torch.Tensor:
    """Of each sample, or, for a language model, of each position: the next token, where there is one."""
    ids = fields["input_ids"]
    if not model.is_decoder:
        return torch.arange(len(ids)) % 2
    following = torch.full_like(ids, -100)
    following[:, :-1] = torch.where(fields["attention_mask"][:, 1:].bool(), ids[:, 1:], -100)
    return following


def outputs_of(probe, folder, layers, fields, *overrides):
    num = len(next(iter(fields.values())))
    fields = fields | {"labels": torch.zeros(num).long()}
    reply, results = probe.ask("model", named("input", fields), recipe=write_recipe(folder, layers, fields, loss=OF_THE_OUTPUT), overrides=list(overrides))
    return reply, results["output.0"], results.under("state")


def expected_of(model, fields):
    with torch.no_grad():
        given = model(**fields)
    return given.logits if hasattr(given, "logits") else given.last_hidden_state


def assert_close(actual, expected, mask=None):
    if mask is not None:
        actual, expected = actual[mask.bool()], expected[mask.bool()]
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE * max(1, expected.abs().max().item()))
