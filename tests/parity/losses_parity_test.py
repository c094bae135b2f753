"""Every loss against its PyTorch module: value and gradients, in float32 within 1e-5 and in float64 within 1e-10."""

import copy

import pytest
import torch
from torch import nn

from preference_losses import bradley_terry, dpo, kto, orpo, simpo
from probe import ProbeError, assert_same, missing_rows, named
from sentence_losses import cosent, cosine_similarity, ranking

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def draw(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape: int, seed: int = 1) -> torch.Tensor:
    return 0.02 + 0.96 * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(2))


def bits(*shape: int) -> torch.Tensor:
    return labels(2, *shape).double()


def signs(*shape: int) -> torch.Tensor:
    return 2 * bits(*shape) - 1


def weights(numbers: list[float]):
    return torch.tensor(numbers, dtype=torch.float64)


def pinball(*quantiles, reduction="mean"):
    """scikit-learn 1.7, mean_pinball_loss, for each quantile: alpha max(y - q, 0) + (1 - alpha) max(q - y, 0)."""

    def of(output, target):
        target = target if target.dim() == output.dim() else target.unsqueeze(-1)
        parts = [alpha * (target[..., 0] - output[..., i]).clamp_min(0) + (1 - alpha) * (output[..., i] - target[..., 0]).clamp_min(0)
                 for i, alpha in enumerate(quantiles)]
        losses = torch.stack(parts)
        return losses.mean() if reduction == "mean" else losses.sum()

    return of


def focal(alpha=None, gamma=2.0, reduction="mean", ignore_index=-100):
    """Lin et al. 2017, eq. 5: -alpha_t (1 - p_t)^gamma log(p_t); of 0/1 targets torchvision.ops.sigmoid_focal_loss."""

    def of(output, target):
        if output.shape == target.shape or output.shape[1:] == (1,):
            target = target.reshape(output.shape).to(output.dtype)
            p = torch.sigmoid(output)
            p_t = p * target + (1 - p) * (1 - target)
            positive = 0.25 if alpha is None else alpha
            alpha_t = positive * target + (1 - positive) * (1 - target) if positive >= 0 else 1.0
            entropy = -(target * torch.log(p) + (1 - target) * torch.log(1 - p))  # -log(p_t), also between 0 and 1
            losses = alpha_t * (1 - p_t) ** gamma * entropy
        else:
            counted = target != ignore_index
            p = output.softmax(1).movedim(1, -1)[counted]
            target = target[counted]
            p_t = p.gather(1, target[:, None]).squeeze(1)
            alpha_t = (torch.tensor(alpha, dtype=output.dtype)[target] if isinstance(alpha, list) else alpha or 1.0)
            losses = -alpha_t * (1 - p_t) ** gamma * torch.log(p_t)
        return losses.mean() if reduction == "mean" else losses.sum()

    return of


def dice(smooth=1e-5, include_background=True, ignore_index=-100, reduction="mean"):
    """Milletari et al. 2016, sample by sample and class by class."""

    def of(output, target):
        losses = []
        for scores, truth in zip(output, target, strict=True):
            is_classes = scores.shape != truth.shape
            p = scores.softmax(0) if is_classes else torch.sigmoid(scores)
            for c in range(0 if include_background else 1, len(scores)):
                is_c = (truth == c).to(p.dtype) if is_classes else truth[c].to(p.dtype)
                counts = truth != ignore_index if is_classes else torch.ones_like(is_c, dtype=torch.bool)
                both, own = (p[c] * is_c)[counts].sum(), p[c][counts].sum() + is_c[counts].sum()
                losses.append(1 - (2 * both + smooth) / (own + smooth))
        losses = torch.stack(losses)
        return losses.mean() if reduction == "mean" else losses.sum()

    return of


def gaussian_kl(reduction="mean"):
    """Kingma & Welling 2014, appendix B; PyTorch's own divergence of two distributions says the same."""

    def of(mean, log_variance):
        normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
        standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        losses = torch.distributions.kl_divergence(normal, standard)
        return {"mean": losses.mean(), "sum": losses.sum(), "batchmean": losses.sum() / len(mean)}[reduction]

    return of


def moved(class_dim, module):
    """`module` of what has its classes in another dimension."""
    return lambda output, target: copy.deepcopy(module).to(output.dtype)(output.movedim(class_dim, 1), target)


def ctc(batch_first=False, **options):
    module = nn.CTCLoss(**options)
    return lambda log_probs, *rest: module(log_probs.transpose(0, 1) if batch_first else log_probs, *rest)


WEIGHT = [0.5, 2.0, 1.1, 0.0]
def distillation(temperature=1.0, dim=1, ignore_index=-100):
    """Hinton et al. 2015: the mean over positions of KL(teacher || student) of softened classes, times the temperature squared."""

    def of(output, teacher, target=None):
        soft = (teacher / temperature).softmax(dim)
        losses = (soft * (soft.log() - (output / temperature).log_softmax(dim))).sum(dim)
        return (losses if target is None else losses[target != ignore_index]).mean() * temperature**2

    return of


ANSWERS = (draw(6, 5, 7), torch.tensor([[-100, 1, 2, 6, -100], [-100, -100, 3, 0, 5], [-100, 4, -100, -100, -100]]),
           torch.tensor([[-100, 2, 2, -100, -100], [-100, -100, 3, 1, 6], [-100, 0, 5, 5, 5]]), draw(6, 5, 7, seed=3))
CTC_INPUTS = (draw(7, 3, 5).log_softmax(2), 1 + labels(4, 3, 4), torch.tensor([7, 6, 5]), torch.tensor([4, 2, 1]))
# Seven equal labels with blanks between them do not fit seven frames.
CTC_TOO_LONG = (draw(7, 2, 5).log_softmax(2), torch.ones(2, 7).long(), torch.tensor([7, 7]), torch.tensor([7, 2]))

# What a recipe says beyond its type, PyTorch's module, its inputs; `type` is the key.
ROWS = {
    "CrossEntropyLoss": [
        ({}, nn.CrossEntropyLoss(), draw(9, 4), labels(4, 9)),
        ({}, nn.CrossEntropyLoss(), draw(1, 4), labels(4, 1)),
        ({}, nn.CrossEntropyLoss(), draw(3, 4, 5, 2), labels(4, 3, 5, 2)),
        ({}, nn.CrossEntropyLoss(), draw(9, 4), draw(9, 4, seed=3).softmax(1)),
        ({"weight": WEIGHT}, nn.CrossEntropyLoss(weights(WEIGHT)), draw(9, 4), draw(9, 4, seed=3).softmax(1)),
        ({"reduction": "sum"}, nn.CrossEntropyLoss(reduction="sum"), draw(9, 4), labels(4, 9)),
        ({"weight": WEIGHT}, nn.CrossEntropyLoss(weights(WEIGHT)), draw(9, 4), labels(4, 9)),
        ({"ignore_index": 2}, nn.CrossEntropyLoss(ignore_index=2), draw(9, 4), labels(4, 9)),
        ({"label_smoothing": 0.2, "weight": WEIGHT, "ignore_index": 1},
         nn.CrossEntropyLoss(weights(WEIGHT), label_smoothing=0.2, ignore_index=1), draw(3, 4, 6), labels(4, 3, 6)),
        ({"class_dim": -1}, moved(-1, nn.CrossEntropyLoss()), draw(3, 6, 4), labels(4, 3, 6)),
        ({"class_dim": -1}, moved(-1, nn.CrossEntropyLoss()), draw(9, 4), labels(4, 9)),
        ({"class_dim": 2}, moved(2, nn.CrossEntropyLoss()), draw(3, 5, 4, 2), labels(4, 3, 5, 2)),
        ({"class_dim": -1, "label_smoothing": 0.2, "weight": WEIGHT, "ignore_index": 1},
         moved(-1, nn.CrossEntropyLoss(weights(WEIGHT), label_smoothing=0.2, ignore_index=1)), draw(3, 6, 4), labels(4, 3, 6)),
        ({"class_dim": -1, "mean_over": "targets", "ignore_index": 2}, moved(-1, nn.CrossEntropyLoss(ignore_index=2)), draw(3, 6, 4),
         labels(4, 3, 6)),
        ({"class_dim": -1, "reduction": "sum"}, moved(-1, nn.CrossEntropyLoss(reduction="sum")), draw(3, 2, 6, 4),
         labels(4, 3, 2, 6)),
        ({"class_dim": -1, "weight": WEIGHT},
         lambda o, t: nn.CrossEntropyLoss(weights(WEIGHT).to(o))(o.transpose(1, 2), t.transpose(1, 2)),
         draw(3, 6, 4), draw(3, 6, 4, seed=3).softmax(2)),
    ],
    "OutputLoss": [
        ({}, lambda x: x.mean(), draw(9, 4)),
        ({"reduction": "sum"}, lambda x: x.sum(), draw(9, 4)),
    ],
    "CausalLMLoss": [
        ({}, moved(-1, nn.CrossEntropyLoss()), draw(3, 6, 4), labels(4, 3, 6)),
        ({}, moved(-1, nn.CrossEntropyLoss()), draw(3, 4, 4), labels(4, 3, 4)),  # as many positions as tokens
        ({"ignore_index": 2, "label_smoothing": 0.2}, moved(-1, nn.CrossEntropyLoss(ignore_index=2, label_smoothing=0.2)), draw(3, 6, 4),
         labels(4, 3, 6)),
    ],
    "NLLLoss": [
        ({}, nn.NLLLoss(), draw(9, 4).log_softmax(1), labels(4, 9)),
        ({}, nn.NLLLoss(), draw(3, 4, 5, 2).log_softmax(1), labels(4, 3, 5, 2)),
        ({"reduction": "sum"}, nn.NLLLoss(reduction="sum"), draw(3, 4, 6).log_softmax(1), labels(4, 3, 6)),
        ({"weight": WEIGHT, "ignore_index": 2}, nn.NLLLoss(weights(WEIGHT), ignore_index=2), draw(9, 4).log_softmax(1),
         labels(4, 9)),
        ({"class_dim": -1, "weight": WEIGHT}, moved(-1, nn.NLLLoss(weights(WEIGHT))), draw(3, 6, 4).log_softmax(2),
         labels(4, 3, 6)),
        ({"mean_over": "targets", "weight": WEIGHT, "ignore_index": 2}, nn.NLLLoss(weights(WEIGHT), ignore_index=2), draw(9, 4).log_softmax(1),
         labels(4, 9)),
    ],
    "BCELoss": [
        ({}, nn.BCELoss(), uniform(9, 4), bits(9, 4)),
        ({}, nn.BCELoss(), uniform(9), uniform(9, seed=3)),
        ({"weight": WEIGHT, "reduction": "sum"}, nn.BCELoss(weights(WEIGHT), reduction="sum"), uniform(9, 4), bits(9, 4)),
        ({}, lambda o, t: nn.BCELoss()(o, t[:, None].to(o)), uniform(9, 1), labels(2, 9)),
    ],
    "BCEWithLogitsLoss": [
        ({}, nn.BCEWithLogitsLoss(), draw(9, 4), bits(9, 4)),
        ({}, nn.BCEWithLogitsLoss(), 40 * draw(9), uniform(9, seed=3)),
        ({"reduction": "sum"}, nn.BCEWithLogitsLoss(reduction="sum"), draw(2, 1, 5, 5), bits(2, 1, 5, 5)),
        ({"weight": WEIGHT}, nn.BCEWithLogitsLoss(weights(WEIGHT)), draw(2, 3, 4), bits(2, 3, 4)),
        ({"pos_weight": WEIGHT}, nn.BCEWithLogitsLoss(pos_weight=weights(WEIGHT)), draw(9, 4), bits(9, 4)),
        ({"pos_weight": [3.5]}, nn.BCEWithLogitsLoss(pos_weight=weights([3.5])), draw(9), bits(9)),
        ({}, lambda o, t: nn.BCEWithLogitsLoss()(o, t[:, None].to(o)), draw(9, 1), labels(2, 9)),
    ],
    "SoftMarginLoss": [
        # Integer targets: PyTorch has no gradient for these, and the probe asks for one of every number.
        ({}, lambda o, t: nn.SoftMarginLoss()(o, t.to(o)), draw(9, 4), signs(9, 4).long()),
        ({"reduction": "sum"}, lambda o, t: nn.SoftMarginLoss(reduction="sum")(o, t.to(o)), draw(9), signs(9).long()),
    ],
    "MultiMarginLoss": [
        ({}, nn.MultiMarginLoss(), draw(9, 4), labels(4, 9)),
        ({"p": 2, "margin": 0.7, "weight": WEIGHT}, nn.MultiMarginLoss(2, 0.7, weights(WEIGHT)), draw(9, 4), labels(4, 9)),
        ({"reduction": "sum"}, nn.MultiMarginLoss(reduction="sum"), draw(1, 4), labels(4, 1)),
    ],
    "MultiLabelMarginLoss": [
        ({}, nn.MultiLabelMarginLoss(), draw(2, 4), torch.tensor([[3, 0, -1, 1], [2, -1, -1, -1]])),
        ({"reduction": "sum"}, nn.MultiLabelMarginLoss(reduction="sum"), draw(2, 4), torch.tensor([[3, 0, -1, 1], [-1] * 4])),
    ],
    "MultiLabelSoftMarginLoss": [
        ({}, nn.MultiLabelSoftMarginLoss(), draw(9, 4), bits(9, 4)),
        ({}, nn.MultiLabelSoftMarginLoss(), draw(3, 5, 4), bits(3, 5, 4)),
        ({"weight": WEIGHT, "reduction": "sum"}, nn.MultiLabelSoftMarginLoss(weights(WEIGHT), reduction="sum"), draw(9, 4),
         bits(9, 4)),
    ],
    "FocalLoss": [
        ({}, focal(), draw(9, 4), bits(9, 4)),
        ({}, focal(), draw(9, 1), labels(2, 9)),
        ({"alpha": 0.6, "gamma": 1.5, "reduction": "sum"}, focal(0.6, 1.5, "sum"), draw(9), bits(9)),
        ({"alpha": -1}, focal(-1), draw(3, 1, 5), uniform(3, 1, 5, seed=3)),
        ({}, focal(), draw(9, 4), labels(4, 9)),
        ({"gamma": 0}, nn.CrossEntropyLoss(), draw(9, 4), labels(4, 9)),
        ({"alpha": 0.3, "gamma": 3}, focal(0.3, 3), draw(3, 4, 5, 2), labels(4, 3, 5, 2)),
        ({"alpha": WEIGHT, "ignore_index": 1}, focal(WEIGHT, ignore_index=1), draw(3, 4, 6), labels(4, 3, 6)),
        ({"reduction": "sum"}, focal(reduction="sum"), draw(9, 4), labels(4, 9)),
        ({"mean_over": "targets", "ignore_index": 1}, focal(ignore_index=1), draw(3, 4, 6), labels(4, 3, 6)),
    ],
    "DiceLoss": [
        ({}, dice(), draw(2, 4, 5, 3), labels(4, 2, 5, 3)),
        ({"smooth": 1.0, "reduction": "sum"}, dice(1.0, reduction="sum"), draw(3, 1, 4, 4), bits(3, 1, 4, 4)),
        ({"include_background": False, "ignore_index": 1}, dice(include_background=False, ignore_index=1), draw(3, 4, 6), labels(4, 3, 6)),
        ({}, dice(), draw(2, 3, 4, 2), uniform(2, 3, 4, 2, seed=3)),
    ],
    "MSELoss": [
        ({}, nn.MSELoss(), draw(9, 4), draw(9, 4, seed=3)),
        ({"reduction": "sum"}, nn.MSELoss(reduction="sum"), draw(9), draw(9, seed=3)),
    ],
    "L1Loss": [
        ({}, nn.L1Loss(), draw(9, 4), draw(9, 4, seed=3)),
        ({}, nn.L1Loss(), draw(9, 4).round(), draw(9, 4, seed=3).round()),
        ({"reduction": "sum"}, nn.L1Loss(reduction="sum"), draw(9), draw(9, seed=3)),
    ],
    "QuantileLoss": [
        ({}, pinball(0.1, 0.5, 0.9), draw(9, 3), draw(9, 1, seed=3)),
        ({"quantiles": [0.3]}, pinball(0.3), draw(9, 4, 1), draw(9, 4, seed=3)),
        ({"quantiles": [0.05, 0.95], "reduction": "sum"}, pinball(0.05, 0.95, reduction="sum"), draw(9, 4, 2), draw(9, 4, seed=3)),
    ],
    "SmoothL1Loss": [
        ({}, nn.SmoothL1Loss(), draw(9, 4), draw(9, 4, seed=3)),
        ({"beta": 0.3, "reduction": "sum"}, nn.SmoothL1Loss(reduction="sum", beta=0.3), draw(9), draw(9, seed=3)),
        ({"beta": 0}, nn.SmoothL1Loss(beta=0.0), draw(9), draw(9, seed=3)),
    ],
    "HuberLoss": [
        ({}, nn.HuberLoss(), draw(9, 4), draw(9, 4, seed=3)),
        ({"delta": 0.3, "reduction": "sum"}, nn.HuberLoss(reduction="sum", delta=0.3), draw(9), draw(9, seed=3)),
    ],
    "KLDivLoss": [
        ({}, nn.KLDivLoss(), draw(9, 4).log_softmax(1), draw(9, 4, seed=3).softmax(1)),
        ({"reduction": "sum"}, nn.KLDivLoss(reduction="sum"), draw(9, 4).log_softmax(1), bits(9, 4)),
        ({"reduction": "batchmean", "log_target": True}, nn.KLDivLoss(reduction="batchmean", log_target=True),
         draw(3, 4, 5).log_softmax(1), draw(3, 4, 5, seed=3).log_softmax(1)),
        ({"reduction": "batchmean"}, nn.KLDivLoss(reduction="batchmean"), draw(9, 4).log_softmax(1),
         draw(9, 4, seed=3).softmax(1)),
    ],
    "PoissonNLLLoss": [
        ({}, nn.PoissonNLLLoss(), draw(9, 4), labels(7, 9, 4).double()),
        ({"log_input": False, "eps": 1e-3}, nn.PoissonNLLLoss(log_input=False, eps=1e-3), uniform(9), labels(7, 9).double()),
        ({"full": True, "reduction": "sum"}, nn.PoissonNLLLoss(full=True, reduction="sum"), draw(9), labels(7, 9).double()),
        ({"full": True}, lambda o, t: nn.PoissonNLLLoss(full=True)(o, t[:, None].to(o)), draw(9, 1), labels(7, 9)),
    ],
    "GaussianNLLLoss": [
        ({}, nn.GaussianNLLLoss(), draw(9, 4), draw(9, 4, seed=3), uniform(9, 4)),
        ({"full": True, "reduction": "sum"}, nn.GaussianNLLLoss(full=True, reduction="sum"), draw(9, 4),
         draw(9, 4, seed=3), uniform(9, 1)),
        ({"eps": 0.5}, nn.GaussianNLLLoss(eps=0.5), draw(9, 4), draw(9, 4, seed=3), uniform(9)),
    ],
    "GaussianKLLoss": [
        ({}, gaussian_kl(), draw(9, 4), draw(9, 4, seed=3)),
        ({"reduction": "sum"}, gaussian_kl("sum"), draw(9, 4), draw(9, 4, seed=3)),
        ({"reduction": "batchmean"}, gaussian_kl("batchmean"), draw(9, 4), draw(9, 4, seed=3)),
    ],
    "HingeEmbeddingLoss": [
        ({}, nn.HingeEmbeddingLoss(), draw(9), signs(9)),
        ({"margin": 0.4, "reduction": "sum"}, nn.HingeEmbeddingLoss(0.4, reduction="sum"), draw(9, 4), signs(9, 4)),
    ],
    "MarginRankingLoss": [
        ({}, nn.MarginRankingLoss(), draw(9), draw(9, seed=3), signs(9)),
        ({"margin": 0.4, "reduction": "sum"}, nn.MarginRankingLoss(0.4, reduction="sum"), draw(9, 4), draw(9, 4, seed=3),
         signs(9, 4)),
    ],
    "TripletMarginLoss": [
        ({}, nn.TripletMarginLoss(), draw(9, 4), draw(9, 4, seed=3), draw(9, 4, seed=5)),
        ({"margin": 0.4, "p": 1, "swap": True}, nn.TripletMarginLoss(0.4, 1, swap=True), draw(9, 4), draw(9, 4, seed=3),
         draw(9, 4, seed=5)),
        ({"p": 3, "eps": 0.1, "reduction": "sum"}, nn.TripletMarginLoss(p=3, eps=0.1, reduction="sum"), draw(9, 4),
         draw(9, 4, seed=3), draw(9, 4, seed=5)),
    ],
    "CosineEmbeddingLoss": [
        ({}, nn.CosineEmbeddingLoss(), draw(9, 4), draw(9, 4, seed=3), signs(9)),
        ({"margin": -0.3, "reduction": "sum"}, nn.CosineEmbeddingLoss(-0.3, reduction="sum"), draw(9, 4),
         draw(9, 4, seed=3), signs(9).long()),
    ],
    "DPOLoss": [
        ({}, dpo(), *ANSWERS),
        ({"beta": 0.7, "label_smoothing": 0.2, "disable_dropout": False}, dpo(0.7, label_smoothing=0.2), *ANSWERS),
        ({"beta": 0.3, "loss_type": "hinge"}, dpo(0.3, "hinge"), *ANSWERS),
        ({"beta": 0.2, "loss_type": "ipo"}, dpo(0.2, "ipo"), *ANSWERS),
    ],
    "ORPOLoss": [
        ({}, orpo(), *ANSWERS[:3], labels(7, 3, 5), torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])),
        ({"beta": 0.8, "disable_dropout": False}, orpo(0.8), *ANSWERS[:3], labels(7, 3, 5), torch.ones(3, 5).long()),
    ],
    "SimPOLoss": [
        ({}, simpo(), *ANSWERS[:3]),
        ({"beta": 2.0, "gamma": 1.2, "alpha": 0.3, "label_smoothing": 0.1, "disable_dropout": False}, simpo(2, 1.2, 0.3, 0.1), *ANSWERS[:3]),
    ],
    "KTOLoss": [
        ({}, kto(), *ANSWERS[:3], torch.tensor([1, 0, 1]), ANSWERS[3]),
        ({"beta": 0.4, "desirable_weight": 1.5, "undesirable_weight": 0.3, "disable_dropout": False}, kto(0.4, 1.5, 0.3), *ANSWERS[:3], torch.tensor([0, 0, 1]), ANSWERS[3]),
        ({"loss_type": "apo_zero_unpaired"}, kto(anchored=False), *ANSWERS[:3], torch.tensor([1, 0, 0]), ANSWERS[3]),
    ],
    "BradleyTerryLoss": [
        ({}, bradley_terry(), draw(6, 1)),
        ({"center_rewards_coefficient": 0.2, "disable_dropout": False}, bradley_terry(0.2), draw(6), draw(3, seed=3)),
    ],
    "MultipleNegativesRankingLoss": [
        ({}, ranking(), draw(6, 2, 5)),
        ({"scale": 7.0, "symmetric": True, "gather_across_devices": False}, ranking(7, symmetric=True), draw(6, 3, 5)),
    ],
    "CoSENTLoss": [
        ({}, cosent(), draw(6, 2, 5), torch.tensor([0.1, 0.9, 0.5, 0.5, 0.2, 0.0])),
        ({"scale": 3.0}, cosent(3), draw(6, 2, 5), draw(6, 1, seed=3)),
    ],
    "CosineSimilarityLoss": [({}, cosine_similarity, draw(6, 2, 5), draw(6, 1, seed=3))],
    "DistillationLoss": [
        ({}, distillation(), draw(9, 4), draw(9, 4, seed=3)),
        ({"temperature": 2.5}, distillation(2.5), draw(9, 4, 3), draw(9, 4, 3, seed=3)),
        ({"temperature": 0.5, "class_dim": -1}, distillation(0.5, -1), draw(3, 4, 6), draw(3, 4, 6, seed=3), torch.tensor([[1, 2, -100, -100], [0, -100, 3, 5], [-100] * 4])),
        ({"class_dim": 2, "ignore_index": 1}, distillation(1.0, 2, 1), draw(3, 4, 6), draw(3, 4, 6, seed=3), labels(3, 3, 4)),
    ],
    "CTCLoss": [
        ({}, ctc(), *CTC_INPUTS),
        ({"blank": 4, "reduction": "sum"}, ctc(blank=4, reduction="sum"), CTC_INPUTS[0], labels(4, 3, 4), *CTC_INPUTS[2:]),
        ({"zero_infinity": True}, ctc(zero_infinity=True), *CTC_TOO_LONG),
        ({"batch_first": True}, ctc(batch_first=True), CTC_INPUTS[0].transpose(0, 1), *CTC_INPUTS[1:]),
        ({}, lambda log_probs, targets, lengths: nn.CTCLoss()(log_probs, targets, torch.full((3,), 7), lengths), *CTC_INPUTS[:2],
         CTC_INPUTS[3]),
    ],
}
TABLE = [({"type": name} | own, *rest) for name, rows in ROWS.items() for own, *rest in rows]


def name_of(row) -> str:
    return ",".join(str(v) for v in row[0].values()) + "-" + "x".join(str(size) for size in row[2].shape)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=["fp32", "fp64"])
@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_loss_equals_its_module(probe, row, dtype):
    spec, module, *inputs = row
    module = copy.deepcopy(module).to(dtype) if isinstance(module, nn.Module) else module
    inputs = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in inputs]
    leaves = {str(i): t.clone().requires_grad_(t.is_floating_point()) for i, t in enumerate(inputs)}
    loss = module(*leaves.values())
    loss.backward()

    _, results = probe.ask("loss", named("input", leaves), spec=spec)

    assert_same(results.under("loss"), {"value": loss}, "loss", TOLERANCES[dtype])
    gradients = {name: tensor.grad for name, tensor in leaves.items() if tensor.grad is not None}
    assert_same(results.under("input_gradient"), gradients, "gradient", TOLERANCES[dtype])


# What a recipe says, inputs that do not fit, and what the error says of them.
MISFITS = [
    ({"type": "L1Loss"}, [draw(9, 4), draw(9, 3)], "the output is [N, 4] and the target [N, 3]; they must have the same shape"),
    ({"type": "BCEWithLogitsLoss"}, [draw(9, 4), labels(2, 9)], "the output is [N, 4] and the target [N]"),
    ({"type": "BCEWithLogitsLoss", "pos_weight": [1, 2]}, [draw(9, 4), bits(9, 4)], "pos_weight has 2 numbers"),
    ({"type": "BCELoss", "weight": [1, 2]}, [uniform(9, 4), bits(9, 4)], "weight has 2 numbers"),
    ({"type": "NLLLoss", "weight": [1, 2]}, [draw(9, 4), labels(4, 9)], "weight has 2 classes, but the output is [N, 4]"),
    ({"type": "NLLLoss"}, [draw(9, 4), draw(9)], "labels are class indices (int64), not Float"),
    ({"type": "CrossEntropyLoss"}, [draw(9, 4), labels(4, 9, 1)], "an output [N, 4] needs labels [N]"),
    ({"type": "CrossEntropyLoss", "class_dim": 0}, [draw(9, 4), labels(4, 9)],
     "class_dim is 0, but the output is [N, 4], whose first dimension is the batch"),
    ({"type": "CrossEntropyLoss", "mean_over": "targets"}, [draw(9, 4), draw(9, 4).softmax(1)],
     "mean_over: targets counts class indices, but the target is probabilities"),
    ({"type": "FocalLoss", "mean_over": "targets"}, [draw(9, 4), bits(9, 4)], "mean_over: targets counts class indices, but the target is 0 and 1"),
    ({"type": "CausalLMLoss"}, [draw(9, 4), labels(4, 9)], "it needs [N, T, C], not [N, 4]"),
    ({"type": "NLLLoss", "class_dim": 2}, [draw(9, 4), labels(4, 9)], "class_dim is 2, but the output is [N, 4]"),
    ({"type": "OutputLoss"}, [draw(9, 4), labels(4, 9)], "it reads one output of a layer; write inputs: [NAME]"),
    ({"type": "MultiMarginLoss"}, [draw(9, 4, 2), labels(4, 9, 2)], "it needs [N, C], not [N, 4, 2]"),
    ({"type": "FocalLoss", "alpha": [1, 2]}, [draw(9, 4), labels(4, 9)], "weight has 2 classes"),
    ({"type": "FocalLoss", "alpha": [1, 2]}, [draw(9, 4), bits(9, 4)], "alpha is a list of class weights"),
    ({"type": "GaussianNLLLoss"}, [draw(9, 4), draw(9, 4)],
     "it reads 3 inputs, but gets 2; write inputs: [output, 1, variance], where output, variance stand for names of layers"),
    ({"type": "GaussianNLLLoss"}, [draw(9, 4), draw(9, 4), uniform(9, 3)], "and the variance [N, 3]"),
    ({"type": "GaussianNLLLoss"}, [draw(9, 4), draw(9, 4), -uniform(9, 4)], "a variance is negative"),
    ({"type": "TripletMarginLoss"}, [draw(9, 4), draw(9, 4), draw(9, 5)],
     "the anchor is [N, 4] and the negative [N, 5]; they must have the same shape"),
    ({"type": "CosineEmbeddingLoss"}, [draw(9, 4), draw(9, 4), signs(9, 1)], "the target, 1 or -1 for each pair, is [N]"),
    ({"type": "DPOLoss"}, [draw(6, 5, 7), labels(7, 3, 5)], "it reads 4 inputs, but gets 2; write inputs: [output, chosen_labels, rejected_labels, reference]"),
    ({"type": "DPOLoss"}, [ANSWERS[0], *ANSWERS[1:3], draw(6, 5, 6)], "the reference's [4, 5, 6]; they must have the same shape"),
    ({"type": "DPOLoss"}, [ANSWERS[0], ANSWERS[1], labels(7, 3, 4), ANSWERS[3]], "labels are integers [N, 5], not [N, 4]"),
    ({"type": "DPOLoss"}, [draw(3, 5, 7), *ANSWERS[1:3], draw(3, 5, 7)], "the output is of 2 texts, but there are 2 chosen and 2 rejected ones"),
    ({"type": "ORPOLoss"}, [*ANSWERS[:3], labels(7, 3, 4), labels(2, 3, 4)], "chosen_input_ids and chosen_attention_mask are integers [N, 5]"),
    ({"type": "KTOLoss"}, [*ANSWERS[:3], draw(3), ANSWERS[3]], "label is an integer [N], 1 where an answer is desirable"),
    ({"type": "BradleyTerryLoss"}, [draw(6, 2)], "its output is a score of each text, [2 N, 1], not [N, 2]"),
    ({"type": "BradleyTerryLoss"}, [draw(5, 1)], "the output is of 5 texts, but each pair has two"),
    ({"type": "BradleyTerryLoss"}, [draw(6, 1), labels(7, 3, 5)], "write inputs: [output], or [output, margin]"),
    ({"type": "MultipleNegativesRankingLoss"}, [draw(6, 1, 5)], "it needs vectors of pairs or more [N, texts, D], not [N, 1, 5]"),
    ({"type": "CoSENTLoss"}, [draw(6, 3, 5), draw(6)], "it needs vectors of pairs [N, 2, D], not [N, 3, 5]"),
    ({"type": "CosineSimilarityLoss"}, [draw(6, 2, 5), draw(6, 2)], "the scores are [N] or [N, 1], a number for each pair, not [N, 2]"),
    ({"type": "DPOLoss", "label_smoothing": 0.1, "loss_type": "ipo"}, ANSWERS, "is for loss_type: sigmoid"),
    ({"type": "DistillationLoss"}, [draw(9, 4)], "it reads 2 inputs, but gets 1; write inputs: [output, teacher's output]"),
    ({"type": "DistillationLoss"}, [draw(9, 4), draw(9, 3)], "they must have the same shape"),
    ({"type": "DistillationLoss", "class_dim": 2}, [draw(9, 4), draw(9, 4)], "class_dim is 2, but the output is [N, 4]"),
    ({"type": "DistillationLoss", "class_dim": 0}, [draw(9, 4), draw(9, 4), labels(4, 9)], "class_dim is 0, but the output is [N, 4]"),
    ({"type": "DistillationLoss", "class_dim": -1}, [draw(9, 4, 3), draw(9, 4, 3), labels(4, 9)], "its labels must be integers [N, 4], not [N]"),
    ({"type": "CTCLoss", "blank": 5}, CTC_INPUTS, "blank is 5, the output has 5 classes"),
    ({"type": "CTCLoss"}, [CTC_INPUTS[0], draw(3, 4), *CTC_INPUTS[2:]], "the targets are integers, not Float"),
    ({"type": "CTCLoss"}, [draw(7, 5), *CTC_INPUTS[1:]], "it needs [T, N, C]"),
]


@pytest.mark.parametrize("row", MISFITS, ids=lambda row: f"{row[0]['type']}-{row[2][:24]}")
def test_what_does_not_fit_is_said(probe, row):
    spec, inputs, message = row
    inputs = {str(i): tensor.float() if tensor.is_floating_point() else tensor for i, tensor in enumerate(inputs)}
    with pytest.raises(ProbeError) as error:
        probe.ask("loss", named("input", inputs), spec=spec)
    assert message in str(error.value)


def test_every_loss_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["loss"], [row[0] for row in TABLE]) == []
