"""The pooling and the losses of sentence-transformers 6.2 (sentence_transformer/modules/pooling.py, sentence_transformer/losses), written again for
vectors [N, texts, D]: the package is not among what tests install."""

import torch
from torch.nn import functional


def pooled(hidden, mask, mode):
    if mode == "cls":
        return hidden.gather(1, mask.int().argmax(1)[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]
    if mode == "max":
        return hidden.masked_fill(mask[..., None] == 0, float("-inf")).max(1).values
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1e-9)


def ranking(scale=20.0, symmetric=False):
    """MultipleNegativesRankingLoss; symmetric: directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"."""
    def cosines(a, b):
        return functional.normalize(a, dim=1) @ functional.normalize(b, dim=1).T

    def of(texts):
        anchors, positives = texts[:, 0], texts[:, 1]
        candidates = torch.cat([texts[:, i] for i in range(1, texts.shape[1])])
        own = torch.arange(len(anchors))
        loss = functional.cross_entropy(cosines(anchors, candidates) * scale, own)
        return (loss + functional.cross_entropy(cosines(positives, anchors) * scale, own)) / 2 if symmetric else loss

    return of


def cosent(scale=20.0):
    """CoSENTLoss, as releases before 5.3 wrote it, over all pairs of pairs."""
    def of(texts, scores):
        scores = scores.flatten()
        cosines = functional.cosine_similarity(texts[:, 0], texts[:, 1]) * scale
        differences = cosines[:, None] - cosines[None, :]
        differences = differences - (1 - (scores[:, None] < scores[None, :]).to(cosines.dtype)) * 1e12
        return torch.logsumexp(torch.cat([torch.zeros(1, dtype=cosines.dtype), differences.view(-1)]), 0)

    return of


def cosine_similarity(texts, scores):
    cosines = functional.cosine_similarity(texts[:, 0], texts[:, 1])
    return functional.mse_loss(cosines, scores.flatten().to(cosines.dtype))
