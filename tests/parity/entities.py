"""seqeval 1.2.2's scores of entities in its default mode (seqeval.metrics.sequence_labeling: get_entities, precision_recall_fscore_support),
written again: the package is not among what tests install."""

from collections import defaultdict


def ends(before: str, tag: str, type_before: str, type_: str) -> bool:
    return (before in "ES" or (before in "BI" and tag in "BSO") or (before != "O" and type_before != type_))


def begins(before: str, tag: str, type_before: str, type_: str) -> bool:
    return (tag in "BS" or (before in "ESO" and tag in "EI") or (tag != "O" and type_before != type_))


def entities_of(sentences: list[list[str]]) -> dict[str, set[tuple[int, int]]]:
    """Of each type, where its entities begin and end."""
    found = defaultdict(set)
    before, type_before, begin = "O", "", 0
    flat = [tag for sentence in sentences for tag in [*sentence, "O"]]
    for i, name in enumerate([*flat, "O"]):
        tag, type_ = name[0], name[1:].split("-", maxsplit=1)[-1] or "_"
        if ends(before, tag, type_before, type_):
            found[type_before].add((begin, i - 1))
        if begins(before, tag, type_before, type_):
            begin = i
        before, type_before = tag, type_
    return found


def score(which: str, right: float, predicted: float, actual: float) -> float:
    precision, recall = right / predicted if predicted else 0.0, right / actual if actual else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}[which]


def entity_score(which: str, actual: list[list[str]], predicted: list[list[str]], average: str):
    """One figure; of average "none" one of each type, by its name."""
    there, found = entities_of(actual), entities_of(predicted)
    counts = {type_: (len(there[type_] & found[type_]), len(found[type_]), len(there[type_])) for type_ in sorted({*there, *found})}
    if average == "micro":
        return score(which, *(sum(column) for column in zip(*counts.values(), strict=True))) if counts else 0.0
    of_types = {type_: score(which, *numbers) for type_, numbers in counts.items()}
    if average == "none":
        return of_types
    if average == "macro" and not of_types:
        return float("nan")
    weights = [1 if average == "macro" else actual_count for _, _, actual_count in counts.values()]
    return sum(w * s for w, s in zip(weights, of_types.values(), strict=True)) / sum(weights) if sum(weights) else 0.0
