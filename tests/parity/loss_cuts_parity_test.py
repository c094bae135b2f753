"""Every loss on the same samples, cut into batches in five uneven ways: the loss of an evaluation, and the weights after one step on all
of them (gradient_accumulation_steps), are those of one batch. Targets are ignored unevenly, classes weigh differently, sequences are padded."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.nn import functional

import reference
from probe import assert_same

NUM, T, D, C = 12, 5, 6, 4
CUTS = [(12, 1), (1, 12), (5, 3), (7, 2), (11, 2)]  # the size of a batch, and how many make a step; the first is the whole
WEIGHT = [0.5, 2.0, 1.1, 0.7]
TOLERANCE = 2e-6
GENERATOR = np.random.default_rng(5)


def normal(*shape):
    return GENERATOR.normal(size=shape).astype(np.float32)


def soft(*shape):
    return torch.tensor(normal(*shape)).softmax(-1).numpy()


def padded_labels():
    """[N, T], -100 after each sample's own length, which is at least 1, and now and then before."""
    labels = GENERATOR.integers(C, size=(NUM, T))
    labels[np.arange(T) >= GENERATOR.integers(1, T + 1, size=NUM)[:, None]] = -100
    labels[:3, 1:] = -100
    return labels


def margin_labels():
    labels = np.full((NUM, C), -1)
    for row, count in zip(labels, GENERATOR.integers(0, C + 1, size=NUM)):
        row[:count] = GENERATOR.permutation(C)[:count]
    return labels


def dense(name="out", features=C, **more):
    return {"type": "Linear", "name": name, "out_features": features, **more}


CLASSES, SEQUENCES, POINTS = [dense()], [dense()], [{"type": "Conv2d", "out_channels": C, "kernel_size": 1}]
VECTORS, TEXTS, IMAGES = normal(NUM, D), normal(NUM, T, D), normal(NUM, D, 3, 3)
SIGNS, NUMBERS, ZERO_ONE = np.sign(normal(NUM, C)), normal(NUM, C), (normal(NUM, C) > 0).astype(np.float32)
LOG_SOFTMAX = {"type": "LogSoftmax", "dim": -1}
SECOND = {"type": "Permute", "dims": [0, 2, 1]}  # the classes
COUNTING = {"mean_over": "targets"}
PAIRS = [dense("chosen"), dense("rejected", inputs=["x"]), {"type": "Concat", "name": "both", "inputs": ["chosen", "rejected"], "dim": 0},
         dense("reference_chosen", inputs=["x"]), dense("reference_rejected", inputs=["x"]),
         {"type": "Concat", "name": "reference", "inputs": ["reference_chosen", "reference_rejected"], "dim": 0}]
PAIR_LABELS = {"label": padded_labels(), "rejected_labels": padded_labels()}
# What is of texts of one length, since ORPO's loss of the text is the mean over a batch's tokens, as trl's.
PAIR_TEXTS = PAIR_LABELS | {"ids": GENERATOR.integers(C, size=(NUM, T)), "mask": np.ones((NUM, T), dtype=np.int64)}
# Those of one batch measure how far the model has moved (kto): with apo_zero_unpaired they do not count.
JUDGED = PAIR_LABELS | {"desirable": GENERATOR.integers(2, size=NUM)}
SCORES = [dense("chosen", 1), dense("rejected", 1, inputs=["x"]), {"type": "Concat", "name": "both", "inputs": ["chosen", "rejected"], "dim": 0}]
HEADS = [dense("mean"), dense("other", inputs=["x"])]
LABELS = {"label": padded_labels()}

# By type: what a recipe says of the loss, the layers, the model's input, the other fields of the batch (the target is `label`).
ROWS = {
    "CrossEntropyLoss": [
        ({"class_dim": -1, **COUNTING}, SEQUENCES, TEXTS, LABELS),
        ({"class_dim": -1, "weight": WEIGHT, "label_smoothing": 0.2, **COUNTING}, SEQUENCES, TEXTS, LABELS),
        ({"class_dim": -1, "reduction": "sum"}, SEQUENCES, TEXTS, LABELS),
        ({}, CLASSES, VECTORS, {"label": GENERATOR.integers(C, size=NUM)}),
        ({"weight": WEIGHT}, CLASSES, VECTORS, {"label": soft(NUM, C)}),
    ],
    "CausalLMLoss": [({}, SEQUENCES, TEXTS, LABELS), ({"label_smoothing": 0.1}, SEQUENCES, TEXTS, LABELS)],
    "NLLLoss": [({"class_dim": -1, "weight": WEIGHT, **COUNTING}, [*SEQUENCES, LOG_SOFTMAX], TEXTS, LABELS)],
    "FocalLoss": [({"alpha": WEIGHT, **COUNTING}, [*SEQUENCES, SECOND], TEXTS, LABELS), ({}, CLASSES, VECTORS, {"label": ZERO_ONE})],
    "DistillationLoss": [
        ({"class_dim": -1, "temperature": 2, "inputs": ["out", "teacher", "label"]}, SEQUENCES, TEXTS, {"teacher": normal(NUM, T, C), **LABELS}),
        ({"class_dim": -1, "inputs": ["out", "label"]}, SEQUENCES, TEXTS, {"label": normal(NUM, T, C)}),
    ],
    "BCELoss": [({"weight": WEIGHT}, [*CLASSES, "Sigmoid"], VECTORS, {"label": ZERO_ONE})],
    "BCEWithLogitsLoss": [({"weight": WEIGHT, "pos_weight": [3, 1, 0.5, 2]}, CLASSES, VECTORS, {"label": ZERO_ONE})],
    "SoftMarginLoss": [({}, CLASSES, VECTORS, {"label": SIGNS})],
    "MultiMarginLoss": [({"weight": WEIGHT}, CLASSES, VECTORS, {"label": GENERATOR.integers(C, size=NUM)})],
    "MultiLabelMarginLoss": [({}, CLASSES, VECTORS, {"label": margin_labels()})],
    "MultiLabelSoftMarginLoss": [({"weight": WEIGHT}, CLASSES, VECTORS, {"label": ZERO_ONE})],
    "DiceLoss": [({"ignore_index": 1}, POINTS, IMAGES, {"label": GENERATOR.integers(C, size=(NUM, 3, 3))})],
    "MSELoss": [({}, CLASSES, VECTORS, {"label": NUMBERS})],
    "L1Loss": [({}, CLASSES, VECTORS, {"label": NUMBERS})],
    "SmoothL1Loss": [({}, CLASSES, VECTORS, {"label": NUMBERS})],
    "HuberLoss": [({}, CLASSES, VECTORS, {"label": NUMBERS})],
    "KLDivLoss": [({"reduction": reduction}, [*CLASSES, LOG_SOFTMAX], VECTORS, {"label": soft(NUM, C)}) for reduction in ("mean", "batchmean")],
    "PoissonNLLLoss": [({}, CLASSES, VECTORS, {"label": GENERATOR.integers(5, size=(NUM, C)).astype(np.float32)})],
    "GaussianNLLLoss": [({"inputs": ["out", "label", "variance"]}, CLASSES, VECTORS, {"label": NUMBERS, "variance": np.abs(normal(NUM, C)) + 0.1})],
    "GaussianKLLoss": [({"inputs": ["mean", "other"], "reduction": reduction}, HEADS, VECTORS, {"label": NUMBERS}) for reduction in ("mean", "batchmean")],
    "HingeEmbeddingLoss": [({}, CLASSES, VECTORS, {"label": SIGNS})],
    "MarginRankingLoss": [({"inputs": ["mean", "other", "label"]}, HEADS, VECTORS, {"label": SIGNS})],
    "TripletMarginLoss": [({"inputs": ["out", "label", "negative"]}, CLASSES, VECTORS, {"label": NUMBERS, "negative": normal(NUM, C)})],
    "CosineEmbeddingLoss": [({"inputs": ["out", "partner", "label"]}, CLASSES, VECTORS, {"partner": NUMBERS, "label": SIGNS[:, 0]})],
    "CTCLoss": [({"batch_first": True, "inputs": ["log_p", "label", "lengths"]}, [dense(), LOG_SOFTMAX | {"name": "log_p"}], TEXTS,
                 {"label": GENERATOR.integers(1, C, size=(NUM, 2)), "lengths": GENERATOR.integers(1, 3, size=NUM)})],
    "DPOLoss": [({"loss_type": loss_type, "inputs": ["both", "label", "rejected_labels", "reference"]}, PAIRS, TEXTS, PAIR_LABELS)
                for loss_type in ("sigmoid", "ipo")],
    "ORPOLoss": [({"inputs": ["both", "label", "rejected_labels", "ids", "mask"]}, PAIRS[:3], TEXTS, PAIR_TEXTS)],
    "SimPOLoss": [({"inputs": ["both", "label", "rejected_labels"]}, PAIRS[:3], TEXTS, PAIR_LABELS)],
    "KTOLoss": [({"loss_type": "apo_zero_unpaired", "inputs": ["both", "label", "rejected_labels", "desirable", "reference"]}, PAIRS, TEXTS, JUDGED)],
    "BradleyTerryLoss": [({"inputs": ["both", "margin"]}, SCORES, VECTORS, {"label": NUMBERS, "margin": normal(NUM)})],
    "CosineSimilarityLoss": [({}, [dense(), {"type": "Reshape", "shape": [2, -1]}], VECTORS, {"label": normal(NUM, 1)})],
    "OutputLoss": [({"inputs": ["out"]}, CLASSES, VECTORS, {"label": NUMBERS})],
    "QuantileLoss": [({"quantiles": [0.1, 0.3, 0.6, 0.9]}, CLASSES, VECTORS, {"label": normal(NUM, 1)})],
}
TABLE = [({"type": name} | own, *rest) for name, rows in ROWS.items() for own, *rest in rows]
# By default a step of several batches is the mean of their means here, by their samples, as PyTorch's loops have it; what
# `mean_over` says of itself.
DOCUMENTED = {"CrossEntropyLoss", "NLLLoss", "FocalLoss"}


OF_A_BATCH = {"MultipleNegativesRankingLoss", "CoSENTLoss"}  # compare its samples with each other, as sentence-transformers'
OF_PAIRS = {"DPOLoss", "ORPOLoss", "SimPOLoss", "KTOLoss"}  # means over pairs or answers


def write_recipe(folder, row, ignored: bool):
    """`ignored`: the evaluation has one sample more, of which no target counts."""
    spec, layers, x, fields = row
    arrays = {"x": x, **fields}
    np.savez(folder / "train.npz", **arrays)
    more = {name: array[:1] if name != "label" else np.full_like(array[:1], -100) for name, array in arrays.items()}
    np.savez(folder / "eval.npz", **({name: np.concatenate([array, more[name]]) for name, array in arrays.items()} if ignored else arrays))
    data = {name: {"type": "TensorFile", "path": str(folder / f"{name}.npz"), "fields": {field: field for field in arrays}} for name in ("train", "eval")}
    recipe = {"version": 1, "seed": 3, "model": {"layers": layers}, "loss": spec, "dataset": data, "optimizer": {"type": "SGD", "lr": 0.5},
              "training": {"num_epochs": 1}, "checkpoint": {"every": None}, "logging": {"report_to": ["jsonl"]}}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return folder / "recipe.yaml"


def trained(probe, recipe, name, cut, *overrides):
    """The weights after one step on all samples, and the loss of the evaluation then."""
    size, steps = cut
    run = recipe.parent / name
    reply, state = probe.ask("train", recipe=str(recipe), overrides=[
        f"output_dir={run}", f"dataloader={{batch_size: {size}, eval_batch_size: {size}, shuffle: false}}",
        f"training.gradient_accumulation_steps={steps}", *overrides])
    assert reply["steps"] == 1
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return state.under("state"), next(line["eval/loss"] for line in lines if line["split"] == "eval")


def name_of(row) -> str:
    return ",".join(str(value) for value in row[0].values())


@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_a_loss_does_not_depend_on_how_its_samples_are_cut_into_batches(probe, tmp_path, row):
    recipe = write_recipe(tmp_path, row, ignored=(row[3]["label"] == -100).any() and row[0]["type"] not in OF_PAIRS)
    weights, loss = trained(probe, recipe, "whole", CUTS[0])
    for number, cut in enumerate(CUTS[1:]):
        own_weights, own_loss = trained(probe, recipe, f"cut-{number}", cut)
        assert_same(own_weights, weights, f"weights of {cut}", TOLERANCE)
        assert own_loss == pytest.approx(loss, rel=TOLERANCE), cut


@pytest.mark.parametrize("row", [row for row in TABLE if "mean_over" in row[0]], ids=name_of)
def test_by_default_only_steps_depend_on_the_cut_and_not_evaluations(probe, tmp_path, row):
    spec = {name: value for name, value in row[0].items() if name != "mean_over"}
    recipe = write_recipe(tmp_path, (spec, *row[1:]), ignored=True)
    losses = [trained(probe, recipe, f"evaluated-{number}", cut, "optimizer.lr=0")[1] for number, cut in enumerate(CUTS)]
    assert losses == pytest.approx([losses[0]] * len(CUTS), rel=TOLERANCE)
    whole, cut = (trained(probe, recipe, f"trained-{number}", CUTS[number])[0] for number in (0, 2))
    assert any((whole[name] - cut[name]).abs().max() > 1e-4 for name in whole)
    assert spec["type"] in DOCUMENTED


def test_every_loss_has_a_row_and_those_that_depend_on_the_cut_say_so(probe):
    losses = probe.ask("catalog")["loss"]
    assert set(ROWS) | OF_A_BATCH == set(losses)
    assert {name for name, parameters in losses.items() if "mean_over" in parameters} == DOCUMENTED


@pytest.mark.parametrize("row", [TABLE[1], next(row for row in TABLE if row[0]["type"] == "DistillationLoss")], ids=name_of)
def test_two_ranks_make_the_step_of_one_process(probe, tmp_path, row):
    recipe = write_recipe(tmp_path, row, ignored=True)
    weights, loss = trained(probe, recipe, "whole", CUTS[0])
    lines, run = reference.run_trainrun(str(recipe), tmp_path / "ranks", "distributed_type=MULTI_CPU", "num_processes=2", "checkpoint.every=1",
                                        "dataloader={batch_size: 4, eval_batch_size: 3, shuffle: false}", "training.gradient_accumulation_steps=2")
    assert_same(safetensors.torch.load_file(run / "checkpoints/latest/model.safetensors"), weights, "weights", TOLERANCE)
    assert lines[-1]["eval/loss"] == pytest.approx(loss, rel=TOLERANCE)


def test_the_loss_of_an_evaluation_is_pytorchs_of_all_samples_at_once(probe, tmp_path):
    row = ({"type": "CrossEntropyLoss", "class_dim": -1, "weight": WEIGHT}, SEQUENCES, TEXTS, LABELS)
    state, loss = trained(probe, write_recipe(tmp_path, row, ignored=False), "run", CUTS[2])
    logits = functional.linear(torch.tensor(TEXTS), state["out.weight"], state["out.bias"])
    expected = functional.cross_entropy(logits.movedim(-1, 1), torch.tensor(LABELS["label"]), torch.tensor(WEIGHT))
    assert loss == pytest.approx(expected.item(), rel=1e-6)
