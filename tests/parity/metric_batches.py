"""Batches of outputs and targets, of unequal sizes, for metrics_parity_test.py. They have ties, classes that do not
occur, and single samples."""

import numpy as np
import torch

SIZES = [8, 8, 8, 3, 1]


def in_batches(make, sizes=tuple(SIZES)):
    generator = torch.Generator().manual_seed(4)
    return [make(n, generator) for n in sizes]


def logits(*shape: int, sizes=tuple(SIZES), classes=4, occurring=4):
    """Outputs [N, C, …] and labels [N, …], of the first `occurring` classes."""
    return in_batches(lambda n, g: (torch.randn((n, classes, *shape), generator=g),
                                    torch.randint(occurring, (n, *shape), generator=g)), sizes)


def tied_logits():
    return [(output.round(), target) for output, target in logits()]


def tied_probabilities():
    """Of four classes, in eighths."""
    return in_batches(lambda n, g: (torch.tensor([[4, 2, 1, 1], [1, 1, 2, 4], [2, 2, 2, 2], [1, 4, 2, 1]])[
        torch.randint(4, (n,), generator=g)] / 8, torch.randint(4, (n,), generator=g)))


def one_logit(*shape: int, dtype=torch.float32, sizes=tuple(SIZES)):
    """Outputs [N, …], one logit for each label 0 or 1."""
    return in_batches(lambda n, g: (torch.randn((n, *shape), generator=g),
                                    torch.randint(2, (n, *shape), generator=g).to(dtype)), sizes)


def squeezed(batches):
    return [(output, target.squeeze(1)) for output, target in batches]


def tied(batches):
    return [(output.round(), target.round()) for output, target in batches]


def as_probabilities(batches):
    return [(output.sigmoid() if output.shape == target.shape else output.softmax(1), target) for output, target in batches]


def numbers(*shape: int, offset: float = 0.0, dtype=torch.float32):
    return in_batches(lambda n, g: (torch.randn((n, *shape), generator=g, dtype=dtype) + offset,
                                    torch.randn((n, *shape), generator=g, dtype=dtype) + offset))


def of_labels(label: int):
    return [(output, torch.full_like(target, label)) for output, target in logits()]


def constant_target(*, met: bool):
    return [(torch.full((n, 1), 2.0 if met else 3.0), torch.full((n, 1), 2.0)) for n in SIZES]


def targets_near_zero():
    return [(torch.full((n, 1), 1e-6, dtype=torch.float64), torch.tensor([0.0, -1e-7, 3e-6, -2.0], dtype=torch.float64).repeat(n)[:n, None]) for n in SIZES]


def labels(*points: int, count=4, sizes=tuple(SIZES), occurring=4, share=0.4, dtype=torch.float32):
    """Outputs and truth, both [N, L, …]; only the first `occurring` labels are ever there."""
    def make(n, g):
        truth = (torch.rand((n, count, *points), generator=g) < share).to(dtype)
        truth[:, occurring:] = 0
        return torch.randn((n, count, *points), generator=g), truth
    return in_batches(make, sizes)


def with_extreme_samples(batches):
    """The first sample of each batch has no label, its second, if there is one, all."""
    for _, truth in batches:
        truth[0] = 0
        truth[1:2] = 1
    return batches


def tied_labels():
    return [(output.round(), target) for output, target in labels(dtype=torch.int64)]


def with_ignored(batches, at=-100.0):
    """Some labels of the first batch, all of its first sample's, do not count."""
    batches[0][1][0] = at
    batches[0][1][1:5, 1] = at
    return batches


def triplets(*shape):
    generator = torch.Generator().manual_seed(4)
    return [tuple(torch.randn((size, *shape), generator=generator) for _ in range(3)) for size in SIZES]


def sequences(batch_first, classes=4):
    generator = torch.Generator().manual_seed(6)
    output = torch.randn((9, 7, classes), generator=generator)
    output = output.gather(1, (torch.arange(7) // 2).expand(classes, 9, 7).movedim(0, 2))  # runs of one label
    targets = torch.randint(0, classes, (9, 5), generator=generator)
    lengths = torch.tensor([5, 0, 1, 2, 3, 4, 5, 5, 2])
    return [(output if batch_first else output.transpose(0, 1), targets, lengths)]


def preferences(num_pairs=7, length=5, classes=6):
    generator = torch.Generator().manual_seed(8)
    logits, reference = (torch.randn((2 * num_pairs, length, classes), generator=generator) for _ in range(2))
    labels = torch.randint(0, classes, (2, num_pairs, length), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.4] = -100
    return [(logits, *labels, reference)]


# --- tags of words

TAGS = ["I-PER", "O", "B-LOC", "B-PER", "I-LOC", "E-LOC", "S-PER", "B-X-Y"]


def tags(ignored=-100):
    """Scores [n, T, C] and tags [n, T], of which some do not count; mostly those with the highest score."""
    rng = np.random.default_rng(7)
    batches = []
    for size in SIZES:
        target = rng.integers(0, len(TAGS), (size, 6))
        scores = rng.normal(size=(size, 6, len(TAGS))) + 2 * np.eye(len(TAGS))[target]
        target[rng.random(target.shape) < 0.2] = ignored
        batches.append((torch.tensor(scores).float(), torch.tensor(target)))
    return batches


def no_tags():
    outside = TAGS.index("O")
    return [(torch.eye(len(TAGS))[outside].expand(size, 6, -1), torch.full((size, 6), outside)) for size in SIZES]


def vectors(texts, scored=False):
    """Vectors [n, texts, D], of which the first two of a sample are somewhat alike; and scores [n, 1]."""
    generator = torch.Generator().manual_seed(9)
    batches = []
    for size in SIZES:
        own = torch.randn((size, texts, 4), generator=generator)
        own[:, 1] += 0.7 * own[:, 0]
        batches.append((own, torch.randn((size, 1), generator=generator).round(decimals=1)) if scored else (own,))
    return batches
