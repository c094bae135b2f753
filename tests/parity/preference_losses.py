"""The losses of preferences, as trl computes them, in a few lines each."""

import torch
from torch import nn


def dpo(beta=0.1, loss_type="sigmoid", label_smoothing=0.0):
    """Rafailov et al. 2023, eq. 7, with the variants of trl's DPOTrainer: hinge, ipo (means over tokens) and smoothed labels."""

    def log_probabilities(logits, target):
        counts = target != -100
        each = logits.log_softmax(-1).gather(2, target.where(counts, 0)[..., None])[..., 0] * counts
        return each.sum(1) / (counts.sum(1) if loss_type == "ipo" else 1)

    def of(logits, chosen, rejected, reference):
        target = torch.cat([chosen, rejected])
        (policy_chosen, policy_rejected), (reference_chosen, reference_rejected) = (
            log_probabilities(each, target).chunk(2) for each in (logits, reference))
        margin = (policy_chosen - policy_rejected) - (reference_chosen - reference_rejected)
        if loss_type == "hinge":
            return torch.relu(1 - beta * margin).mean()
        if loss_type == "ipo":
            return ((margin - 1 / (2 * beta)) ** 2).mean()
        sigmoid = nn.functional.logsigmoid
        return (-sigmoid(beta * margin) * (1 - label_smoothing) - sigmoid(-beta * margin) * label_smoothing).mean()

    return of


def means(logits, target):
    counts = target != -100
    return (logits.log_softmax(-1).gather(2, target.where(counts, 0)[..., None])[..., 0] * counts).sum(1) / counts.sum(1)


def sums(logits, target):
    return means(logits, target) * (target != -100).sum(1)


def orpo(beta=0.1):
    """Hong et al. 2024, eq. 6 and 7, with the loss of the whole chosen text, as trl's ORPOTrainer."""
    def of(logits, chosen, rejected, ids, mask):
        good, bad = means(logits, torch.cat([chosen, rejected])).chunk(2)
        following = ids.masked_fill(mask == 0, -100)[:, 1:]
        text = nn.functional.cross_entropy(logits[:len(ids), :-1].flatten(0, 1), following.flatten())
        return text - beta * nn.functional.logsigmoid(torch.log(good.exp() / (1 - good.exp())) - torch.log(bad.exp() / (1 - bad.exp()))).mean()

    return of


def simpo(beta=0.1, gamma=0.5, alpha=0.0, smoothing=0.0):
    """Meng et al. 2024, eq. 6, with the terms of trl's CPOTrainer."""
    def of(logits, chosen, rejected):
        good, bad = means(logits, torch.cat([chosen, rejected])).chunk(2)
        margin = beta * (good - bad) - gamma
        loss = -(1 - smoothing) * nn.functional.logsigmoid(margin) - smoothing * nn.functional.logsigmoid(-margin)
        return loss.mean() + alpha * nn.functional.cross_entropy(logits[:len(chosen)].flatten(0, 1), chosen.flatten())

    return of


def kto(beta=0.1, desirable=1.0, undesirable=1.0, anchored=True):
    """Ethayarajh et al. 2024, eq. 8, as trl's KTOTrainer."""
    def of(logits, own, mismatched, label, reference):
        gain, others = (sums(logits, torch.cat([own, mismatched])) - sums(reference, torch.cat([own, mismatched]))).chunk(2)
        zero = others.detach().mean().clamp(min=0) if anchored else 0
        above = torch.where(label == 1, gain - zero, zero - gain)
        loss = 1 - torch.sigmoid(beta * above)
        return torch.where(label == 1, desirable * loss, undesirable * loss).mean()

    return of


def bradley_terry(center=0.0):
    def of(scores, *margin):
        good, bad = scores.flatten().chunk(2)
        return -nn.functional.logsigmoid(good - bad - (margin[0] if margin else 0)).mean() + center * ((good + bad) ** 2).mean()

    return of
