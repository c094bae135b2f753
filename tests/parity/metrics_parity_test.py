"""Every metric, over batches of unequal sizes, against its definition computed over all samples at once by NumPy or
scikit-learn; and the same from two ranks' sums."""

import numpy as np
import pytest
import sklearn.metrics
import torch

from probe import missing_rows

TOLERANCE = 1e-12
SIZES = [8, 8, 8, 3, 1]


def accuracy(ignore_index=-100):
    def of(logits, target):
        predicted, target = logits.argmax(1).ravel(), target.ravel()
        counted = target != ignore_index
        return {"": sklearn.metrics.accuracy_score(target[counted], predicted[counted]) if counted.any() else 0.0}

    return of


def mse(output, target):
    return {"": float(np.mean((output.astype(np.float64) - target.astype(np.float64)) ** 2))}


def logits(*shape: int):
    """Batches of outputs [N, 4, …] and labels [N, …]."""
    generator = torch.Generator().manual_seed(4)
    return [(torch.randn((n, 4, *shape), generator=generator), torch.randint(4, (n, *shape), generator=generator))
            for n in SIZES]


def numbers(*shape: int):
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn((n, *shape), generator=generator), torch.randn((n, *shape), generator=generator)) for n in SIZES]


def of_labels(label: int):
    return [(output, torch.full_like(target, label)) for output, target in logits()]


# What a recipe says, its definition over all samples, batches of outputs and targets.
ROWS = [
    ({"type": "Accuracy"}, accuracy(), logits()),
    ({"type": "Accuracy"}, accuracy(), logits(5, 2)),
    ({"type": "Accuracy", "ignore_index": 2}, accuracy(2), logits(5)),
    ({"type": "Accuracy", "ignore_index": 2}, accuracy(2), of_labels(2)),
    ({"type": "MSE"}, mse, numbers(1)),
    ({"type": "MSE"}, mse, numbers()),
    ({"type": "MSE"}, mse, numbers(3, 2)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{tuple(row[2][0][0].shape)}")
def test_metric_equals_its_definition(probe, row):
    spec, definition, batches = row
    whole = [np.concatenate([np.asarray(batch[i]) for batch in batches]) for i in range(2)]
    expected = definition(*whole)
    tensors = {f"{b}.{i}": tensor for b, batch in enumerate(batches) for i, tensor in enumerate(batch)}

    reply, _ = probe.ask("metric", tensors, spec=spec, batches=len(batches))

    assert reply["figures"] == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    assert reply["merged"] == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)


def test_every_metric_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["metric"], [row[0] for row in ROWS]) == []
