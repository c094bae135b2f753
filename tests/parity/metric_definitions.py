"""Definitions of the metrics, each computed over all samples at once by scikit-learn, SciPy or NumPy: functions of the
outputs and the targets, as arrays, that give the figures by name. metrics_parity_test.py compares trainrun's metrics
with them."""

import functools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics

from entities import entity_score
from metric_batches import TAGS


# What the definitions read: scores [n, C], or [n] of one logit a label, and labels [n], those that do not count left out.

def rows_of(output, target, ignore_index=-100):
    output, target = output.astype(np.float64), target.astype(np.int64)
    classes = output.ndim > 1 and output.shape[1] > 1 and output.shape != target.shape
    scores = np.moveaxis(output, 1, -1).reshape(-1, output.shape[1]) if classes else output.ravel()
    counted = target.ravel() != ignore_index
    return scores[counted], target.ravel()[counted]


def decided(scores, threshold=0.0):
    return scores.argmax(1) if scores.ndim == 2 else (scores > threshold).astype(np.int64)


def num_classes(scores) -> int:
    return scores.shape[1] if scores.ndim == 2 else 2


def of_predictions(function, ignore_index=-100, threshold=0.0):
    """A metric of labels, predictions and the list of all classes."""

    def of(output, target):
        scores, labels = rows_of(output, target, ignore_index)
        result = function(labels, decided(scores, threshold), list(range(num_classes(scores))))
        return result if isinstance(result, dict) else {"": result}

    return of


def of_probabilities(function, ignore_index=-100, from_logits=True):
    """A metric of labels and probabilities, [n, C] or [n]."""

    def of(output, target):
        scores, labels = rows_of(output, target, ignore_index)
        if from_logits:
            scores = scipy.special.softmax(scores, axis=1) if scores.ndim == 2 else scipy.special.expit(scores)
        result = function(labels, scores)
        return result if isinstance(result, dict) else {"": result}

    return of


def accuracy(**options):
    return of_predictions(lambda t, p, _: sklearn.metrics.accuracy_score(t, p) if len(t) else 0.0, **options)


def class_score(function, average, zero_division=0.0, **options):
    def of(labels, predicted, classes):
        given = {"average": None if average == "none" else average, "zero_division": zero_division}
        if average in ("none", "micro"):
            given["labels"] = classes  # else scikit-learn leaves out classes that do not occur, as we do
        result = function(labels, predicted, **given)
        return {str(i): float(x) for i, x in enumerate(result)} if average == "none" else result

    return of_predictions(of, **options)


def confusion_matrix(**options):
    def of(labels, predicted, classes):
        matrix = sklearn.metrics.confusion_matrix(labels, predicted, labels=classes)
        return {f"{i}/{j}": float(matrix[i, j]) for i in classes for j in classes}

    return of_predictions(of, **options)


def matthews(**options):
    return of_predictions(lambda t, p, _: sklearn.metrics.matthews_corrcoef(t, p), **options)


def kappa(weights=None, **options):
    return of_predictions(lambda t, p, c: sklearn.metrics.cohen_kappa_score(t, p, labels=c, weights=weights), **options)


def top_k(k, ignore_index=-100):
    def of(output, target):
        scores, labels = rows_of(output, target, ignore_index)
        return {"": sklearn.metrics.top_k_accuracy_score(labels, scores, k=k, labels=range(scores.shape[1]))}

    return of


def each_against_the_rest(function, needs_negatives, average="macro", **options):
    def of(labels, scores):
        if scores.ndim == 1:
            return function(labels, scores) if labels.any() and not (needs_negatives and labels.all()) else math.nan
        figures = [math.nan] * scores.shape[1]
        for i in np.unique(labels):
            if not needs_negatives or (labels != i).any():
                figures[i] = function(labels == i, scores[:, i])
        if average == "none":
            return {str(i): figure for i, figure in enumerate(figures)}
        occurring = [i for i, figure in enumerate(figures) if not math.isnan(figure)]
        if not occurring:
            return math.nan
        weights = [(labels == i).sum() if average == "weighted" else 1 for i in occurring]
        mean = np.average([figures[i] for i in occurring], weights=weights)
        if needs_negatives and len(occurring) == scores.shape[1] > 2 and options.get("from_logits", True):
            assert mean == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores, multi_class="ovr", average=average))
        return mean

    return of_probabilities(of, **options)


def auroc(average="macro", **options):
    return each_against_the_rest(sklearn.metrics.roc_auc_score, True, average, **options)


def average_precision(average="macro", **options):
    return each_against_the_rest(sklearn.metrics.average_precision_score, False, average, **options)


# Of several labels a sample, [n, L]: scikit-learn's own, to which nothing is flattened.

def of_labels_of(function, threshold=0.0):
    """A metric of truth and predictions, both [n, L] of 0 and 1."""
    def of(output, target):
        result = function(label_columns(target).astype(np.int64), (label_columns(output) > threshold).astype(np.int64))
        return result if isinstance(result, dict) else {"": float(result)}
    return of


def label_columns(array):
    """[N, L] as it is; [N, L, H, W] with each point as a sample."""
    return np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])


def label_score(function, average, zero_division=0.0, **options):
    def of(truth, predicted):
        result = function(truth, predicted, average=None if average == "none" else average, zero_division=zero_division)
        return {str(i): float(x) for i, x in enumerate(result)} if average == "none" else result
    return of_labels_of(of, **options)


def label_confusion(truth, predicted):
    matrices = sklearn.metrics.multilabel_confusion_matrix(truth, predicted)
    return {f"{i}/{j}/{k}": float(matrix[j, k]) for i, matrix in enumerate(matrices) for j in (0, 1) for k in (0, 1)}


def label_ranking(function, needs_negatives, average):
    """scikit-learn's, where all is defined; else the mean of what is, which it does not give."""
    def of(output, target):
        scores, truth = label_columns(output.astype(np.float64)), label_columns(target).astype(np.int64)
        if average == "micro":
            return {"": function(truth, scores, average="micro")}
        lines = zip(truth, scores) if average == "samples" else zip(truth.T, scores.T)
        each = [function(t, s) if t.any() and not (needs_negatives and t.all()) else math.nan for t, s in lines]
        if average == "none":
            return {str(i): figure for i, figure in enumerate(each)}
        defined = [i for i, figure in enumerate(each) if not math.isnan(figure)]
        if not defined:
            return {"": math.nan}
        mean = np.average([each[i] for i in defined], weights=truth.sum(0)[defined] if average == "weighted" else None)
        if len(defined) == len(each):
            assert mean == pytest.approx(function(truth, scores, average=average))
        return {"": mean}
    return of


def perplexity(**options):
    return of_probabilities(lambda t, p: math.exp(-np.mean(np.log(p[np.arange(len(t)), t]))), **options)


def calibration_error(bins=15, **options):
    """Guo et al. 2017, eq. 3, with bins ((m - 1) / M, m / M]; of one output Naeini et al. 2015."""

    def of(labels, p):
        confidence, right = (p.max(1), p.argmax(1) == labels) if p.ndim == 2 else (p, labels)
        error = 0.0
        for m in range(1, bins + 1):
            inside = (confidence <= m / bins) & ((confidence > (m - 1) / bins) | (m == 1))
            if inside.any():
                error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
        return error

    return of_probabilities(of, **options)


def of_columns(function):
    """A metric of target and output, the mean over the elements of a sample."""

    def of(output, target):
        output, target = (a.astype(np.float64).reshape(len(a), -1) for a in (output, target))
        return {"": float(np.mean([function(target[:, i], output[:, i]) for i in range(output.shape[1])]))}

    return of


def of_elements(function):
    return lambda output, target: {"": function(target.astype(np.float64).ravel(), output.astype(np.float64).ravel())}


mse = of_elements(sklearn.metrics.mean_squared_error)
mae = of_elements(sklearn.metrics.mean_absolute_error)
mape = of_elements(sklearn.metrics.mean_absolute_percentage_error)
# torchmetrics 1.8's, whose least target is another than scikit-learn's: its _mean_absolute_percentage_error_update.
mape_near_zero = of_elements(lambda t, o: np.mean(np.abs(o - t) / np.maximum(np.abs(t), 1.17e-06)))
rmse = of_elements(sklearn.metrics.root_mean_squared_error)
r2 = of_columns(sklearn.metrics.r2_score)
pearson = of_columns(lambda t, o: scipy.stats.pearsonr(t, o).statistic)
spearman = of_columns(lambda t, o: scipy.stats.spearmanr(t, o).statistic)


def each_column(figure):
    """As scikit-learn's figures are with multioutput="raw_values"."""
    return lambda target, output, multioutput: [figure(t, o).statistic for t, o in zip(target.T, output.T)]


def with_each(overall, raw):
    """Besides the figure of all, one for each element of a sample."""
    def figures(output, target):
        flat = [array.astype(float).reshape(len(array), -1) for array in (target, output)]
        each = enumerate(raw(*flat, multioutput="raw_values"))
        return overall(output, target) | {str(i): figure for i, figure in each}
    return figures


def without_ignored(function):
    """Of label-wise figures: each label by what counts of it."""
    def of(output, target):
        figures = {}
        for i in range(target.shape[1]):
            counted = target[:, i] != -100
            figures[str(i)] = float(function(target[counted, i], output[counted, i]))
        return figures
    return of


def triplet_accuracy(p=2):
    def of(anchor, positive, negative):
        distances = [np.linalg.norm(anchor - other + 1e-6, ord=p, axis=-1) for other in (positive, negative)]
        return {"": float((distances[0] < distances[1]).mean())}

    return of


def ctc_error_rate(blank=0, batch_first=False):
    def of(output, targets, lengths):
        wrong = 0
        for path, target, length in zip((output if batch_first else output.swapaxes(0, 1)).argmax(2), targets, lengths):
            labels = [c for c, before in zip(path, [None, *path]) if c != before and c != blank]
            wrong += edits(tuple(labels), tuple(target[:length]))
        return {"": wrong / lengths.sum()}

    return of


def edits(a, b):
    """Levenshtein's distance, from its recursive definition."""
    @functools.cache
    def of(i, j):
        if not i or not j:
            return i + j
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return of(len(a), len(b))


def preference_rewards(beta):
    """trl's: beta times the difference of the answers' log-probabilities, text by text."""
    def gain(output, reference, labels):
        def log_probability(logits):
            return sum(row[label] - math.log(np.exp(row).sum()) for row, label in zip(logits.astype(float), labels) if label >= 0)
        return beta * (log_probability(output) - log_probability(reference))

    def of(output, chosen_labels, rejected_labels, reference):
        half = len(output) // 2
        chosen = np.array([gain(output[i], reference[i], chosen_labels[i]) for i in range(half)])
        rejected = np.array([gain(output[half + i], reference[half + i], rejected_labels[i]) for i in range(half)])
        return {"chosen": chosen.mean(), "rejected": rejected.mean(), "margins": (chosen - rejected).mean(), "accuracies": (chosen > rejected).mean()}

    return of


def mean_rewards(beta):
    """trl's for ORPO and SimPO: beta times the mean log-probability of an answer's tokens."""
    def of(output, chosen_labels, rejected_labels):
        labels = np.concatenate([chosen_labels, rejected_labels])
        each = [[row[label] - math.log(np.exp(row).sum()) for row, label in zip(logits.astype(float), own) if label >= 0] for logits, own in zip(output, labels)]
        chosen, rejected = beta * np.array([np.mean(one) if one else 0 for one in each]).reshape(2, -1)
        return {"chosen": chosen.mean(), "rejected": rejected.mean(), "margins": (chosen - rejected).mean(), "accuracies": (chosen > rejected).mean()}

    return of


def desirable_rewards(beta):
    """trl's for KTO."""
    def of(output, labels, kl_labels, label, reference):
        gains = preference_rewards(1)
        each = [gains(output[[i, i]], np.stack([own]), np.stack([own]), reference[[i, i]])["chosen"] for i, own in enumerate(np.concatenate([labels, kl_labels]))]
        own, mismatched = beta * np.array(each[:len(label)]), np.array(each[len(label):])
        chosen, rejected = own[label == 1].mean(), own[label == 0].mean()
        return {"chosen": chosen, "rejected": rejected, "margins": chosen - rejected, "kl": max(mismatched.mean(), 0)}

    return of


def reward_scores(output):
    chosen, rejected = output.reshape(2, -1).astype(float)
    return {"accuracy": (chosen > rejected).mean(), "margin": (chosen - rejected).mean(), "mean_reward": output.astype(float).mean()}


def entity_metric(which, average="micro", ignore_index=-100):
    def of(output, target):
        counted = [row != ignore_index for row in target]
        actual, predicted = ([[TAGS[tag] for tag in row[counts]] for row, counts in zip(rows, counted, strict=True)]
                             for rows in (target, output.argmax(-1)))
        found = entity_score(which, actual, predicted, average)
        return {type_: found.get(type_, 0.0) for type_ in ("PER", "LOC", "X-Y")} if average == "none" else {"": found}

    return of


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def cosine_spearman(vectors, scores):
    own = unit(vectors.astype(np.float64))
    return {"": scipy.stats.spearmanr((own[:, 0] * own[:, 1]).sum(-1), scores[:, 0]).statistic}


def recall_at(k):
    """How often the positive is among the k most similar of all positives and negatives."""
    def of(vectors):
        own = unit(vectors.astype(np.float64))
        similar = own[:, 0] @ own[:, 1:].reshape(-1, own.shape[-1]).T
        place = (similar > (own[:, 0] * own[:, 1]).sum(-1)[:, None] + 1e-9).sum(1)
        return {"": (place < k).mean()}

    return of
