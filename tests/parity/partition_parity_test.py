"""Stratified and grouped parts and folds, compared with scikit-learn's."""

import re
import subprocess

import numpy as np
import pytest
from PIL import Image
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold, StratifiedShuffleSplit

from probe import ProbeError

from tests.program import CALLED


def parts_of(probe, weights, classes=(), groups=(), seed=None):
    lists = {"weights": list(map(int, weights)), "classes": list(map(int, classes)), "groups": list(map(int, groups))}
    return np.array(probe.ask("partition", seed=seed, **lists)[0]["parts"])


def numbered(values):
    """From 0 in the order in which they come first."""
    known = {}
    return np.array([known.setdefault(value, len(known)) for value in values.tolist()])


def counts(parts, values, num_parts):
    return np.array([np.bincount(values[parts == part], minlength=values.max() + 1) for part in range(num_parts)])


@pytest.mark.parametrize("seed", [None, 0, 7])
@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_have_of_each_class_what_scikit_learns_have(probe, folds, seed):
    random = np.random.default_rng(folds)
    for size in (50, 203):
        classes = numbered(np.concatenate([np.repeat(np.arange(4), folds), random.choice(4, size, p=[0.6, 0.25, 0.1, 0.05])]))
        parts = parts_of(probe, [1] * folds, classes, seed=seed)
        expected = np.empty(len(classes), int)
        for fold, (_, test) in enumerate(StratifiedKFold(folds).split(classes, classes)):
            expected[test] = fold
        assert np.array_equal(counts(parts, classes, folds), counts(expected, classes, folds))
        assert seed is not None or np.array_equal(parts, expected)
    assert seed is None or not np.array_equal(parts, expected)
    assert np.array_equal(parts, parts_of(probe, [1] * folds, classes, seed=seed))


@pytest.mark.parametrize("weights", [[80, 20], [1, 1, 8], [70, 15, 15], [5, 3, 1, 1]])
def test_of_each_class_a_part_has_its_share_rounded_down_or_up(probe, weights):
    random = np.random.default_rng(len(weights))
    classes = numbered(np.concatenate([np.repeat(np.arange(30), 2), random.choice(30, 940, p=random.dirichlet(np.ones(30)))]))
    found = counts(parts_of(probe, weights, classes, seed=1), classes, len(weights))
    shares = np.outer(weights, np.bincount(classes)) / sum(weights)
    assert (np.abs(found - shares) < 1).all()
    assert (np.abs(found.sum(1) - shares.sum(1)) < 2).all()
    if len(weights) == 2:  # scikit-learn's are rounded, too
        train, _ = next(StratifiedShuffleSplit(1, train_size=800, test_size=200).split(classes, classes))
        assert (np.abs(np.bincount(classes[train], minlength=30) - found[0]) <= 1).all()


@pytest.mark.parametrize("folds", [2, 4])
def test_folds_of_groups_are_scikit_learns(probe, folds):
    sizes = [31, 17, 12, 9, 8, 5, 3, 2, 1]  # no two alike: else the choice among them is free
    groups = np.repeat(np.arange(9), sizes)
    np.random.default_rng(0).shuffle(groups)
    expected = np.empty(len(groups), int)
    for fold, (_, test) in enumerate(GroupKFold(folds).split(groups, groups=groups)):
        expected[test] = fold
    for seed in (None, 3):
        assert np.array_equal(parts_of(probe, [1] * folds, groups=numbered(groups), seed=seed), expected)


def test_folds_of_groups_with_classes_are_scikit_learns(probe):
    random = np.random.default_rng(5)
    sizes = 2 + 3 * np.arange(20)
    groups = np.repeat(np.arange(20), sizes)
    classes = numbered((random.random(len(groups)) < np.repeat(random.random(20), sizes)).astype(int))
    expected = np.empty(len(groups), int)
    for fold, (_, test) in enumerate(StratifiedGroupKFold(4).split(classes, classes, groups)):
        expected[test] = fold
    # which of several empty folds a group comes to is free: scikit-learn takes one by the last bit of equal sums
    assert np.array_equal(numbered(parts_of(probe, [1] * 4, classes, groups)), numbered(expected))


@pytest.mark.parametrize("with_classes", [False, True])
@pytest.mark.parametrize("weights", [[80, 20], [60, 20, 20]])
def test_no_group_is_in_two_parts_and_no_part_is_empty(probe, weights, with_classes):
    for seed in range(5):
        random = np.random.default_rng(seed)
        groups = numbered(random.integers(0, 30, 500))
        classes = numbered(random.integers(0, 3, 500)) if with_classes else []
        parts = parts_of(probe, weights, classes, groups, seed)
        assert all(len(set(parts[groups == group])) == 1 for group in range(groups.max() + 1))
        assert np.abs(np.bincount(parts, minlength=len(weights)) / 500 - np.array(weights) / 100).max() < 0.1
    # two groups of which one would fit into the larger part alone
    assert set(parts_of(probe, [80, 20], groups=[0] * 50 + [1] * 50)) == {0, 1}
    with pytest.raises(ProbeError, match="2 groups cannot make 3 parts"):
        parts_of(probe, [1, 1, 1], groups=[0, 1, 1])


def places(probe, spec, key="features"):
    return probe.ask("dataset", spec=spec)[1].under("output")[key]


def test_tables_files_and_images_are_divided_by_their_columns(probe, tmp_path):
    random = np.random.default_rng(2)
    rows = [(i, f"p{random.integers(0, 12)}", ["cat", "dog", "eel"][random.choice(3, p=[0.7, 0.2, 0.1])]) for i in range(120)]
    (tmp_path / "a.csv").write_text("number,patient,pet,path\n" + "".join(f"{i},{p},{k},{k}/{p}/{i}.png\n" for i, p, k in rows))
    for i, patient, pet in rows:
        folder = tmp_path / pet / patient
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), i, np.uint8)).save(folder / f"{i}.png")
    np.savez(tmp_path / "a.npz", number=np.array([[r[0]] for r in rows]), patient=np.array([int(r[1][1:]) for r in rows]),
             label=np.array([["cat", "dog", "eel"].index(r[2]) for r in rows]))
    (tmp_path / "images").mkdir()
    for pet in ("cat", "dog", "eel"):
        (tmp_path / pet).rename(tmp_path / "images" / pet)
    table = {"type": "CSV", "path": str(tmp_path / "a.csv"), "label": "pet", "features": ["number"], "columns": {"pet": {"type": "category", "categories": ["cat", "dog", "eel"]}}}
    array = {"type": "TensorFile", "path": str(tmp_path / "a.npz")}
    folder = {"type": "ImageFolder", "root": str(tmp_path / "images")}
    listed = {"type": "ImageCSV", "path": str(tmp_path / "a.csv"), "label": "pet", "root": str(tmp_path / "images")}
    for data, key, group in ((table, "features", "patient"), (array, "number", "patient"), (folder, "image", "folder"), (listed, "image", "patient")):
        for by in ({"stratify": True}, {"group": group}, {"stratify": True, "group": group}):
            parts = []
            for part in range(3):
                split = {"fractions": [0.6, 0.2, 0.2], "seed": 4, "part": part} | by
                spec = data | {"split": split} if data in (table, array) else split | {"type": "Split", "dataset": data}
                parts.append(places(probe, spec, key).reshape(len(places(probe, spec, key)), -1)[:, 0].long().tolist())
            assert sorted(sum(parts, [])) == list(range(120))
            if by == {"stratify": True}:
                for pet in ("cat", "dog", "eel"):
                    of_pet = {r[0] for r in rows if r[2] == pet}
                    for fraction, part in zip((0.6, 0.2, 0.2), parts, strict=True):
                        assert abs(len(of_pet & set(part)) - fraction * len(of_pet)) < 1
            else:
                patients = [{rows[i][1] for i in part} for part in parts]
                assert all(patients) and sum(map(len, patients)) == len(set().union(*patients)) == len({r[1] for r in rows})


@pytest.mark.parametrize("spec, message", [
    ({"stratify": True}, "stratify: the target 'label' does not hold one class for each sample"),
    ({"group": "patent"}, "there is no such column; did you mean patient?"),
])
def test_what_cannot_be_divided_so_is_said(probe, tmp_path, spec, message):
    (tmp_path / "a.csv").write_text("x,patient,y\n1,2,3\n4,5,6\n")
    with pytest.raises(ProbeError, match=message.replace("?", r"\?")):
        places(probe, {"type": "CSV", "path": str(tmp_path / "a.csv"), "label": "y", "task": "regression", "split": spec})


RECIPE = """\
version: 1
model: {layers: [{type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset: {train: {type: CSV, path: PATH, label: pet, features: [number], columns: {pet: category}}, fold: {part: 1/4, stratify: true, group: patient}}
dataloader: {batch_size: 8}
optimizer: {type: SGD, lr: 0.001}
training: {num_epochs: 1}
"""


def test_a_recipe_trains_on_folds_of_groups(tmp_path):
    random = np.random.default_rng(3)
    (tmp_path / "a.csv").write_text("number,patient,pet\n" + "".join(f"{i % 7},p{i // 5},{random.choice(['cat', 'dog', 'eel'])}\n" for i in range(120)))
    (tmp_path / "r.yaml").write_text(RECIPE.replace("PATH", str(tmp_path / "a.csv")))
    held_out = []
    for fold in range(1, 5):
        done = subprocess.run([CALLED, tmp_path / "r.yaml", f"output_dir={tmp_path}/{fold}", f"dataset.fold.part={fold}/4"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        train, evaluated = map(int, re.search(r"(\d+) training samples, (\d+) evaluation samples", (tmp_path / f"{fold}/log.txt").read_text()).groups())
        assert train + evaluated == 120 and evaluated % 5 == 0  # groups are of five
        held_out.append(evaluated)
    assert sum(held_out) == 120 and min(held_out) >= 25
