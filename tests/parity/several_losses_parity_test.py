"""A recipe with two heads, two weighted losses and a dozen metrics against a plain PyTorch program."""

import pytest
import sklearn.metrics
import torch
from torch import nn
from torch.nn import functional

import reference

TOLERANCE = 1e-4


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.code, self.decoder, self.digit = nn.Linear(64, 12), nn.Linear(12, 64), nn.Linear(12, 10)

    def forward(self, images):
        act = self.code(images.flatten(1)).relu()
        return self.digit(act), self.decoder(act)


def losses_of(model, images, labels):
    digit, decoder = model(images)
    return functional.cross_entropy(digit, labels), functional.mse_loss(decoder, images.flatten(1))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_two_weighted_losses(tmp_path, accumulation):
    seed, epochs = 3, 2
    images, labels = reference.digits("train")
    torch.manual_seed(seed)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    expected = []
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + epoch))
        for window in order.split(32 * accumulation):
            optimizer.zero_grad()
            digit, pixels = losses_of(model, images[window], labels[window])
            loss = digit + 2.5 * pixels
            loss.backward()
            optimizer.step()
            expected.append((loss.item(), digit.item(), pixels.item()))
    test_images, test_labels = reference.digits("test")
    with torch.no_grad():
        digit, pixels = losses_of(model, test_images, test_labels)
        predicted = model(test_images)[0].argmax(1)
    matrix = sklearn.metrics.confusion_matrix(test_labels, predicted)

    lines, folder = reference.run_trainrun("tests/recipes/valid/several_losses.yaml", tmp_path / "run",
                                           f"training.gradient_accumulation_steps={accumulation}")

    steps = [line for line in lines if line["split"] == "train"]
    actual = [(line["train/loss"], line["train/loss/digit"], line["train/loss/pixels"]) for line in steps]
    assert len(actual) == len(expected)
    for found, wanted in zip(actual, expected):
        assert found == pytest.approx(wanted, rel=TOLERANCE)
    last = lines[-1]
    assert last["eval/loss/digit"] == pytest.approx(digit.item(), rel=TOLERANCE)
    assert last["eval/loss/pixels"] == pytest.approx(pixels.item(), rel=TOLERANCE)
    assert last["eval/loss"] == pytest.approx((digit + 2.5 * pixels).item(), rel=TOLERANCE)
    assert last["eval/pixels_mse"] == pytest.approx(pixels.item(), rel=TOLERANCE)
    assert last["eval/accuracy"] == pytest.approx((predicted == test_labels).double().mean().item())
    assert last["eval/f1"] == pytest.approx(sklearn.metrics.f1_score(test_labels, predicted, average="macro"))
    assert last["eval/f1_of/3"] == pytest.approx(sklearn.metrics.f1_score(test_labels, predicted, average=None)[3])
    assert [[last[f"eval/confusion_matrix/{i}/{j}"] for j in range(10)] for i in range(10)] == matrix.tolist()
    log = (folder / "log.txt").read_text()
    assert "loss/digit" in log and "loss/pixels" in log and "confusion_matrix" not in log
