"""Every metric, over batches of unequal sizes, against its definition computed over all samples at once by scikit-learn,
SciPy or NumPy; and the same from what two ranks kept. Rows have ties, classes that do not occur, and single samples."""

import os
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch

from metric_batches import (
    SIZES, TAGS, as_probabilities, constant_target, labels, logits, no_tags, numbers, of_labels, one_logit, preferences, sequences,
    squeezed, tags, targets_near_zero, tied, tied_labels, tied_logits, tied_probabilities, triplets, vectors, with_extreme_samples, with_ignored,
)
from metric_definitions import (
    accuracy, auroc, average_precision, calibration_error, class_score, confusion_matrix, cosine_spearman, ctc_error_rate,
    desirable_rewards, each_column, entity_metric, kappa, label_confusion, label_ranking, label_score, mae, mape, mape_near_zero, matthews,
    mean_rewards, mse, of_labels_of, of_probabilities, pearson, perplexity, preference_rewards, r2, reward_scores,
    rmse, spearman, top_k, triplet_accuracy, with_each, without_ignored, recall_at,
)
from probe import ProbeError, missing_rows

TOLERANCE = 1e-9


def class_rows(type_: str, function):
    """Of precision, recall, F1 (by both its names) and intersection over union."""
    rows = [
        ({}, class_score(function, "macro"), logits()),
        ({}, class_score(function, "macro"), logits(5, 2)),
        ({}, class_score(function, "macro"), logits(occurring=2)),
        ({}, class_score(function, "macro"), logits(sizes=(1,), classes=6)),
        ({}, class_score(function, "binary"), one_logit()),
        ({}, class_score(function, "binary"), one_logit(1)),
        ({}, class_score(function, "binary"), squeezed(one_logit(1, dtype=torch.int64))),
        ({"threshold": 0.7}, class_score(function, "binary", threshold=0.7), one_logit(3, 2)),
        ({"average": "macro"}, class_score(function, "macro"), one_logit(1)),
        ({"average": "none"}, class_score(function, "none"), one_logit(1)),
        ({"average": "binary"}, class_score(function, "binary"), logits(classes=2, occurring=2)),
        ({"average": "none", "zero_division": 1}, class_score(function, "none", 1.0), logits(classes=7, occurring=2)),
        ({"zero_division": 1}, class_score(function, "macro", 1.0), logits(sizes=(3, 1), classes=9)),
        ({"zero_division": 1}, class_score(function, "binary", 1.0), [(torch.tensor([-1.0, -2.0]), torch.zeros(2))]),
    ]
    for average in ("micro", "macro", "weighted", "none"):
        rows.append(({"average": average}, class_score(function, average), logits(occurring=3)))
        rows.append(({"average": average, "ignore_index": 1}, class_score(function, average, ignore_index=1), logits(5)))
    return [({"type": type_} | own, *rest) for own, *rest in rows]


def label_rows(type_: str, function):
    """Of precision, recall, F1 (by both its names) and intersection over union, with several labels a sample."""
    rows = [({}, label_score(function, "macro"), labels()), ({}, label_score(function, "macro"), labels(3, 2)),
            ({"threshold": 0.7}, label_score(function, "macro", threshold=0.7), labels(dtype=torch.int64)),
            ({"threshold": 0.5}, label_score(function, "macro", threshold=0.5), as_probabilities(labels(count=7)))]
    for average in ("micro", "macro", "weighted", "samples", "none"):
        for zero_division in (0, 1):
            own = {"average": average} | ({"zero_division": 1} if zero_division else {})
            rows.append((own, label_score(function, average, float(zero_division)), with_extreme_samples(labels(count=6, occurring=3))))
            rows.append((own, label_score(function, average, float(zero_division)), labels(sizes=(2, 1), count=9, occurring=1, share=0.2)))
    return [({"type": type_} | own, *rest) for own, *rest in rows]


def ranking_rows(type_: str, function, needs_negatives):
    rows = [({}, label_ranking(function, needs_negatives, "macro"), labels()),
            ({}, label_ranking(function, needs_negatives, "macro"), labels(2, 2)),
            ({"from_logits": False}, label_ranking(function, needs_negatives, "macro"), as_probabilities(labels()))]
    for average in ("micro", "macro", "weighted", "samples", "none"):
        for batches in (labels(), tied_labels(), labels(occurring=2), with_extreme_samples(labels(count=5))):
            rows.append(({"average": average}, label_ranking(function, needs_negatives, average), batches))
    return [({"type": type_} | own, *rest) for own, *rest in rows]


def classes_last(type_, definition, batches, **own):
    """A row whose outputs, and whose definition's, have their classes in another dimension."""
    are_labels = batches[0][0].shape == batches[0][1].shape  # then the target has them there, too
    moved = [(output.movedim(1, -1), target.movedim(1, -1) if are_labels else target) for output, target in batches]
    return ({"type": type_, "class_dim": -1, **own},
            lambda output, target: definition(np.moveaxis(output, -1, 1), np.moveaxis(target, -1, 1) if are_labels else target), moved)


# What a recipe says, its definition over all samples, batches of outputs and targets.
ROWS = [
    ({"type": "Accuracy"}, accuracy(), logits()),
    ({"type": "Accuracy"}, accuracy(), logits(5, 2)),
    ({"type": "Accuracy"}, accuracy(), tied_logits()),
    ({"type": "Accuracy", "ignore_index": 2}, accuracy(ignore_index=2), logits(5)),
    ({"type": "Accuracy", "ignore_index": 2}, accuracy(ignore_index=2), of_labels(2)),
    ({"type": "Accuracy"}, accuracy(), one_logit(1)),
    ({"type": "Accuracy", "threshold": 0.5}, accuracy(threshold=0.5), as_probabilities(one_logit())),
    ({"type": "TopKAccuracy"}, top_k(2), logits()),
    ({"type": "TopKAccuracy", "k": 1}, top_k(1), logits(5, 2)),
    ({"type": "TopKAccuracy", "k": 3}, top_k(3), tied_logits()),
    ({"type": "TopKAccuracy", "k": 2, "ignore_index": 2}, top_k(2, 2), logits(5)),
    ({"type": "TopKAccuracy", "k": 2}, top_k(2), logits(sizes=(1,))),
    *class_rows("Precision", sklearn.metrics.precision_score),
    *class_rows("Recall", sklearn.metrics.recall_score),
    *class_rows("F1", sklearn.metrics.f1_score),
    *class_rows("Dice", sklearn.metrics.f1_score),
    *class_rows("MeanIoU", sklearn.metrics.jaccard_score),
    ({"type": "ConfusionMatrix"}, confusion_matrix(), logits()),
    ({"type": "ConfusionMatrix", "ignore_index": 0}, confusion_matrix(ignore_index=0), logits(5, occurring=3)),
    ({"type": "ConfusionMatrix", "threshold": 0.3}, confusion_matrix(threshold=0.3), one_logit(1)),
    ({"type": "MatthewsCorrCoef"}, matthews(), logits()),
    ({"type": "MatthewsCorrCoef"}, matthews(), logits(occurring=2)),
    ({"type": "MatthewsCorrCoef"}, matthews(), logits(sizes=(1,))),
    ({"type": "MatthewsCorrCoef"}, matthews(), of_labels(1)),
    ({"type": "MatthewsCorrCoef", "threshold": 0.3}, matthews(threshold=0.3), one_logit(1)),
    ({"type": "MatthewsCorrCoef", "ignore_index": 1}, matthews(ignore_index=1), logits(3)),
    ({"type": "CohenKappa"}, kappa(), logits()),
    ({"type": "CohenKappa", "weights": "linear"}, kappa("linear"), logits(occurring=2)),
    ({"type": "CohenKappa", "weights": "quadratic", "ignore_index": 1}, kappa("quadratic", ignore_index=1), logits(3)),
    ({"type": "CohenKappa", "threshold": 0.3}, kappa(threshold=0.3), one_logit()),
    ({"type": "AUROC"}, auroc(), one_logit()),
    ({"type": "AUROC"}, auroc(), one_logit(1)),
    ({"type": "AUROC"}, auroc(), tied(one_logit(1))),
    ({"type": "AUROC"}, auroc(), one_logit(sizes=(1,))),
    ({"type": "AUROC"}, auroc(), logits()),
    ({"type": "AUROC"}, auroc(), logits(classes=2, occurring=2)),
    ({"type": "AUROC", "average": "weighted"}, auroc("weighted"), logits(5, 2)),
    ({"type": "AUROC", "average": "none"}, auroc("none"), logits(occurring=3)),
    ({"type": "AUROC"}, auroc(), logits(occurring=3)),
    ({"type": "AUROC"}, auroc(), of_labels(2)),
    ({"type": "AUROC", "from_logits": False}, auroc(from_logits=False), tied_probabilities()),
    ({"type": "AUROC", "ignore_index": 1}, auroc(ignore_index=1), logits(5)),
    ({"type": "AveragePrecision"}, average_precision(), one_logit()),
    ({"type": "AveragePrecision"}, average_precision(), tied(one_logit(1))),
    ({"type": "AveragePrecision"}, average_precision(), logits()),
    ({"type": "AveragePrecision", "average": "weighted"}, average_precision("weighted"), logits(5, 2)),
    ({"type": "AveragePrecision", "average": "none"}, average_precision("none"), logits(occurring=3)),
    ({"type": "AveragePrecision", "from_logits": False}, average_precision(from_logits=False), tied_probabilities()),
    ({"type": "AveragePrecision", "ignore_index": 1}, average_precision(ignore_index=1), logits(5)),
    ({"type": "Perplexity"}, perplexity(), logits()),
    ({"type": "Perplexity", "ignore_index": 1}, perplexity(ignore_index=1), logits(5)),
    ({"type": "Perplexity", "from_logits": False}, perplexity(from_logits=False), as_probabilities(logits())),
    ({"type": "CalibrationError"}, calibration_error(), logits()),
    ({"type": "CalibrationError", "num_bins": 4}, calibration_error(4), logits(5, 2)),
    ({"type": "CalibrationError", "num_bins": 4, "from_logits": False}, calibration_error(4, from_logits=False),
     tied_probabilities()),
    ({"type": "CalibrationError", "num_bins": 1}, calibration_error(1), logits(sizes=(1,))),
    ({"type": "CalibrationError"}, calibration_error(), one_logit(1)),
    ({"type": "CalibrationError", "ignore_index": 1}, calibration_error(ignore_index=1), logits(5)),
    *(({"type": name, "multioutput": "raw_values"}, with_each(overall, raw), numbers(3, 2))
      for name, overall, raw in (("MSE", mse, sklearn.metrics.mean_squared_error), ("R2", r2, sklearn.metrics.r2_score),
                                 ("MAE", mae, sklearn.metrics.mean_absolute_error),
                                 ("MAPE", mape, sklearn.metrics.mean_absolute_percentage_error),
                                 ("RMSE", rmse, sklearn.metrics.root_mean_squared_error))),
    *(({"type": name, "multioutput": "raw_values"}, with_each(overall, each_column(figure)), numbers(3, 2))
      for name, overall, figure in (("PearsonCorr", pearson, scipy.stats.pearsonr),
                                    ("SpearmanCorr", spearman, scipy.stats.spearmanr))),
    ({"type": "MSE"}, mse, numbers(1)),
    ({"type": "MSE"}, mse, numbers()),
    ({"type": "MSE"}, mse, numbers(3, 2)),
    ({"type": "MAE"}, mae, numbers(1)),
    ({"type": "MAE"}, mae, numbers(3, 2)),
    ({"type": "MAPE"}, mape, numbers(1)),
    ({"type": "MAPE"}, mape, numbers(3, 2)),
    ({"type": "MAPE"}, mape_near_zero, targets_near_zero()),
    ({"type": "RMSE"}, rmse, numbers()),
    ({"type": "RMSE"}, rmse, numbers(3, 2)),
    ({"type": "R2"}, r2, numbers(1)),
    ({"type": "R2"}, r2, numbers(3, 2)),
    ({"type": "R2"}, r2, numbers(1, offset=1e6, dtype=torch.float64)),
    ({"type": "R2"}, r2, constant_target(met=True)),
    ({"type": "R2"}, r2, constant_target(met=False)),
    ({"type": "R2"}, r2, numbers(1)[-1:]),
    ({"type": "PearsonCorr"}, pearson, numbers()),
    ({"type": "PearsonCorr"}, pearson, numbers(3, 2)),
    ({"type": "PearsonCorr"}, pearson, numbers(1, offset=1e6, dtype=torch.float64)),
    ({"type": "PearsonCorr"}, pearson, constant_target(met=True)),
    ({"type": "SpearmanCorr"}, spearman, numbers(1)),
    ({"type": "SpearmanCorr"}, spearman, numbers(3, 2)),
    ({"type": "SpearmanCorr"}, spearman, tied(numbers(2))),
    ({"type": "SpearmanCorr"}, spearman, constant_target(met=True)),
    ({"type": "TripletAccuracy"}, triplet_accuracy(), triplets(5)),
    ({"type": "TripletAccuracy", "p": 1}, triplet_accuracy(1), triplets(3, 4)),
    classes_last("Accuracy", accuracy(), logits(5)),
    classes_last("Accuracy", accuracy(), logits(4)),  # as many positions as classes
    classes_last("Accuracy", accuracy(ignore_index=2), logits(5, 2), ignore_index=2),
    classes_last("Accuracy", accuracy(), logits()),
    classes_last("TopKAccuracy", top_k(2), logits(5)),
    classes_last("Perplexity", perplexity(), logits(5)),
    classes_last("Perplexity", perplexity(ignore_index=1), logits(5), ignore_index=1),
    classes_last("CalibrationError", calibration_error(), logits(5)),
    classes_last("ConfusionMatrix", confusion_matrix(), logits(5)),
    classes_last("MatthewsCorrCoef", matthews(), logits(5)),
    classes_last("CohenKappa", kappa(), logits(5)),
    classes_last("AUROC", auroc(), logits(5)),
    classes_last("AveragePrecision", average_precision(), logits(5)),
    *(classes_last(name, class_score(function, "macro"), logits(5)) for name, function in (
        ("Precision", sklearn.metrics.precision_score), ("Recall", sklearn.metrics.recall_score), ("F1", sklearn.metrics.f1_score),
        ("Dice", sklearn.metrics.f1_score), ("MeanIoU", sklearn.metrics.jaccard_score))),
    ({"type": "Accuracy"}, of_labels_of(lambda t, p: 1 - sklearn.metrics.hamming_loss(t, p)), labels()),
    ({"type": "Accuracy", "subset": True}, of_labels_of(sklearn.metrics.accuracy_score), labels(count=2)),
    ({"type": "Accuracy", "subset": True, "threshold": 0.3}, of_labels_of(sklearn.metrics.accuracy_score, 0.3), labels(2, 2, count=2)),
    *label_rows("Precision", sklearn.metrics.precision_score),
    *label_rows("Recall", sklearn.metrics.recall_score),
    *label_rows("F1", sklearn.metrics.f1_score),
    *label_rows("Dice", sklearn.metrics.f1_score),
    *label_rows("MeanIoU", sklearn.metrics.jaccard_score),
    ({"type": "ConfusionMatrix"}, of_labels_of(label_confusion), labels()),
    ({"type": "ConfusionMatrix", "threshold": 0.3}, of_labels_of(label_confusion, 0.3), labels(3, 2)),
    *ranking_rows("AUROC", sklearn.metrics.roc_auc_score, True),
    *ranking_rows("AveragePrecision", sklearn.metrics.average_precision_score, False),
    ({"type": "AUROC", "average": "micro"}, of_probabilities(lambda t, p: sklearn.metrics.roc_auc_score(t, p, multi_class="ovr", average="micro")), logits()),
    ({"type": "AveragePrecision", "average": "micro"},
     of_probabilities(lambda t, p: sklearn.metrics.average_precision_score(np.eye(p.shape[1])[t], p, average="micro")), logits()),
    ({"type": "F1", "average": "none"}, without_ignored(lambda t, o: sklearn.metrics.f1_score(t, o > 0)), with_ignored(labels())),
    ({"type": "AUROC", "average": "none"}, without_ignored(sklearn.metrics.roc_auc_score), with_ignored(labels())),
    classes_last("F1", label_score(sklearn.metrics.f1_score, "macro"), labels(2, 2)),
    classes_last("AUROC", label_ranking(sklearn.metrics.roc_auc_score, True, "macro"), labels(5)),
    ({"type": "CalibrationError", "num_bins": 4}, calibration_error(4), labels()),
    ({"type": "PreferenceRewards"}, preference_rewards(0.1), preferences()),
    ({"type": "PreferenceRewards", "beta": 0.7}, preference_rewards(0.7), preferences()),
    ({"type": "PreferenceRewards", "beta": 2.0}, mean_rewards(2.0), [preferences()[0][:3]]),
    ({"type": "DesirableRewards"}, desirable_rewards(0.1), [(*preferences()[0][:3], torch.tensor([1, 0, 0, 1, 1, 0, 1]), preferences()[0][3])]),
    ({"type": "DesirableRewards", "beta": 0.7}, desirable_rewards(0.7), [(*preferences()[0][:3], torch.tensor([0, 0, 0, 1, 1, 0, 0]), preferences()[0][3])]),
    ({"type": "RewardScores"}, reward_scores, [(torch.tensor([[0.5], [-1.0], [2.0], [0.1], [0.3], [2.5]]),)]),
    *(({"type": f"Entity{name}", "average": average}, entity_metric(name.lower(), average), tags())
      for name in ("Precision", "Recall", "F1") for average in ("micro", "macro", "weighted", "none")),
    *(({"type": f"Entity{name}", "ignore_index": 0}, entity_metric(name.lower(), ignore_index=0), tags(ignored=0)) for name in ("Precision", "Recall", "F1")),
    *(({"type": "EntityF1", "average": average}, entity_metric("f1", average), no_tags()) for average in ("micro", "macro", "weighted")),
    ({"type": "CosineSpearman"}, cosine_spearman, vectors(2, scored=True)),
    ({"type": "RecallAtK"}, recall_at(10), vectors(2)),
    ({"type": "RecallAtK", "k": 2}, recall_at(2), vectors(3)),
    ({"type": "CTCErrorRate"}, ctc_error_rate(), sequences(batch_first=False)),
    ({"type": "CTCErrorRate", "blank": 3, "batch_first": True}, ctc_error_rate(3, True), sequences(batch_first=True)),
]


def once_each(rows):
    """On an imagined GPU (tests/gpu), where a tensor lies is what matters: of rows of one recipe and batches of the same dtypes and dimensions, one."""
    return list({repr((spec, [(tensor.dtype, tensor.ndim) for tensor in batches[0]])): row for row in rows for spec, _, batches in [row]}.values())


@pytest.mark.parametrize("row", once_each(ROWS) if os.environ.get("TRAINRUN_IMAGINED_GPU") else ROWS, ids=lambda row: f"{','.join(map(str, row[0].values()))}-{tuple(row[2][0][0].shape)}")
def test_metric_equals_its_definition(probe, row):
    spec, definition, batches = row
    whole = [np.concatenate([np.asarray(batch[i]) for batch in batches]) for i in range(len(batches[0]))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is not defined
        expected = {name: pytest.approx(figure, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)
                    for name, figure in definition(*whole).items()}
    tensors = {f"{b}.{i}": tensor for b, batch in enumerate(batches) for i, tensor in enumerate(batch)}

    reply, _ = probe.ask("metric", tensors, spec=spec, batches=len(batches), classes=TAGS)

    for what in ("figures", "merged"):
        assert {name: float(figure) for name, figure in reply[what].items()} == expected, what
    assert reply["empty"].keys() == expected.keys()  # so that a recipe can name them before there is data


# Which way each is better.
BETTER = {"Accuracy": "max", "TopKAccuracy": "max", "Precision": "max", "Recall": "max", "F1": "max", "Dice": "max", "MeanIoU": "max",
          "ConfusionMatrix": None, "MatthewsCorrCoef": "max", "CohenKappa": "max", "AUROC": "max", "AveragePrecision": "max", "Perplexity": "min",
          "CalibrationError": "min", "MSE": "min", "MAE": "min", "MAPE": "min", "RMSE": "min", "R2": "max", "PearsonCorr": "max", "SpearmanCorr": "max",
          "TripletAccuracy": "max", "CTCErrorRate": "min", "EntityPrecision": "max", "EntityRecall": "max", "EntityF1": "max", "CosineSpearman": "max", "RecallAtK": "max",
          "PreferenceRewards": {"chosen": None, "rejected": None, "margins": "max", "accuracies": "max"},
          "DesirableRewards": {"chosen": None, "rejected": None, "margins": "max", "kl": None},
          "RewardScores": {"accuracy": "max", "margin": "max", "mean_reward": None}}


def test_each_metric_says_which_way_it_is_better(probe):
    found = {}
    for spec, _, batches in ROWS:
        if spec["type"] not in found:
            tensors = {f"{b}.{i}": tensor for b, batch in enumerate(batches) for i, tensor in enumerate(batch)}
            better = probe.ask("metric", tensors, spec=spec, batches=len(batches), classes=TAGS)[0]["better"]
            found[spec["type"]] = better if len(set(better.values())) > 1 else next(iter(better.values()))
    assert found == BETTER


@pytest.mark.parametrize("spec, parts", [({"type": "F1", "average": "none"}, ["", ""]), ({"type": "AUROC", "average": "none"}, ["", ""]),
                                         ({"type": "ConfusionMatrix"}, ["/0/0", "/0/1", "/1/0", "/1/1"])], ids=str)
def test_figures_of_labels_have_their_names(probe, spec, parts):
    names = ["indoors", "of people", "3", "0"]
    tensors = {f"{b}.{i}": tensor for b, batch in enumerate(labels()) for i, tensor in enumerate(batch)}
    plain = probe.ask("metric", tensors, spec=spec, batches=len(SIZES))[0]["figures"]
    named = probe.ask("metric", tensors, spec=spec, batches=len(SIZES), labels=names)[0]["figures"]
    assert named == {f"{names[i]}{part}": plain[f"{i}{part}"] for i in range(4) for part in set(parts)}


@pytest.mark.parametrize("type_, reason", [("AUROC", "never positive, or always"), ("AveragePrecision", "never positive")])
def test_labels_that_a_mean_leaves_out_are_counted(probe, type_, reason):
    tensors = {f"{b}.{i}": tensor for b, batch in enumerate(labels(occurring=2)) for i, tensor in enumerate(batch)}
    said = probe.ask("metric", tensors, spec={"type": type_}, batches=len(SIZES))[0]["left_out"]
    assert said == f"2 of 4 labels are {reason}; it is not defined for them, and they are left out of the mean: 2, 3"


# What a recipe says, one batch that does not fit, and what the error says of it.
MISFITS = [
    ({"type": "Accuracy"}, (torch.zeros(2, 3), torch.zeros(2, 4)), "not [N, 3] and [N, 4]"),
    ({"type": "F1"}, (torch.zeros(2, 3), torch.tensor([1, 3])), "a label is 3, the classes are 0 to 2"),
    ({"type": "F1"}, (torch.zeros(2, 1), torch.tensor([1, -1])), "a label is -1, the classes are 0 to 1"),
    ({"type": "F1", "average": "binary"}, (torch.zeros(2, 3), torch.tensor([1, 1])), "the output has 3 classes"),
    ({"type": "Accuracy"}, (torch.zeros(2, 5, 3), torch.zeros(2, 5).long()), "write class_dim: -1"),
    ({"type": "Accuracy", "class_dim": 3}, (torch.zeros(2, 5, 3), torch.zeros(2, 5).long()), "class_dim is 3, but the output is [N, 5, 3]"),
    ({"type": "TopKAccuracy", "k": 4}, (torch.zeros(2, 3), torch.tensor([1, 1])), "k is 4, the output has 3 classes"),
    ({"type": "Perplexity"}, (torch.zeros(2, 1), torch.tensor([1, 1])), "several classes"),
    ({"type": "TripletAccuracy"}, (torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 4)), "must have the same shape"),
    ({"type": "CTCErrorRate"}, (torch.zeros(5, 2, 3), torch.zeros(2, 2).long(), torch.zeros(2)), "the target lengths are int64, [N]"),
    ({"type": "CTCErrorRate", "blank": 3}, (torch.zeros(5, 2, 3), torch.zeros(2, 2).long(), torch.zeros(2).long()), "blank is 3"),
    ({"type": "CTCErrorRate"}, (torch.zeros(5, 2, 3), torch.zeros(2, 2).long(), torch.tensor([1, 3])), "there is room for 2"),
    ({"type": "PreferenceRewards"}, (torch.zeros(4, 5, 3), torch.zeros(2, 5).long(), torch.zeros(2, 4).long(), torch.zeros(4, 5, 3)), "labels are integers [N, 5]"),
    ({"type": "F1", "average": "binary"}, (torch.zeros(2, 3), torch.zeros(2, 3)), "average is binary, but each sample has 3 labels"),
    ({"type": "F1", "average": "samples"}, (torch.zeros(2, 3), torch.tensor([1, 1])), "average: samples is for samples with several labels"),
    ({"type": "AUROC", "average": "samples"}, (torch.zeros(2, 1), torch.zeros(2, 1)), "average: samples is for samples with several labels"),
    ({"type": "Accuracy", "subset": True}, (torch.zeros(2, 1), torch.zeros(2, 1)), "subset: true is for samples with several labels"),
    ({"type": "MatthewsCorrCoef"}, (torch.zeros(2, 3), torch.zeros(2, 3)), "it is for one label per sample, but each has 3"),
    ({"type": "CohenKappa"}, (torch.zeros(2, 3), torch.zeros(2, 3)), "it is for one label per sample, but each has 3"),
    ({"type": "F1"}, (torch.zeros(2, 3), torch.full((2, 3), 2.0)), "a label is 2, but with several labels a sample each is 0 or 1"),
    ({"type": "AUROC"}, (torch.zeros(2, 3), torch.full((2, 3), 0.3)), "a label is 0.3"),
    ({"type": "Accuracy"}, (torch.zeros(2, 1), torch.full((2, 1), 4.5)), "a label is 4.5, which is not a class"),
    ({"type": "R2"}, (torch.zeros(2, 1), torch.zeros(2)), "it compares tensors of the same shape, not [N, 1] and [N]"),
]


@pytest.mark.parametrize("row", MISFITS, ids=lambda row: f"{row[0]['type']}-{row[2][:24]}")
def test_what_does_not_fit_is_said(probe, row):
    spec, batch, message = row
    with pytest.raises(ProbeError) as error:
        probe.ask("metric", {f"0.{i}": tensor for i, tensor in enumerate(batch)}, spec=spec, batches=1)
    assert message in str(error.value)


def test_every_metric_and_every_parameter_has_a_row(probe):
    assert missing_rows(probe.ask("catalog")["metric"], [row[0] for row in ROWS]) == []
