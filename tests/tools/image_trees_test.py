"""Trees of image files as evaluation data, through `eval --report`, `predict` and `data`: each class is read by the
name that it had in training, or the tree is refused by a message that names what is wrong. A picture's class can be told
by its colour, and the model tells it."""

import collections
import csv
import hashlib
import io
import json
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from image_trees import TREES, grow, sown
from tests.program import CALLED

CLASSES = ["ant", "bee", "cat"]
RECIPE = """\
version: 1
name: animals
model: {layers: [Flatten, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: ImageFolder, root: train}
  eval: {type: ImageFolder, root: train}
dataloader: {batch_size: 4, eval_batch_size: 64, num_workers: 1}
optimizer: {type: SGD, lr: 0.5}
training: {num_epochs: 12}
checkpoint: {every: epoch, keep_last: 1}
evaluation: {every: null}
output_dir: run
"""


def trainrun(folder, *arguments):
    command = [CALLED, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def ok(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(name="folder", scope="module")
def folder_with_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    grow(folder / "train", "ant*8 bee*8 cat*8")
    grow(folder / "store", "ant*3 cat*3")
    (folder / "recipe.yaml").write_text(RECIPE)
    ok(trainrun(folder, "--quiet", "recipe.yaml"))
    return folder


def counts_in(report):
    """What is right of each class in a report; nothing else may be in it."""
    found = collections.Counter()
    for own in report.values():
        assert own["accuracy"] == 1, own
        assert [row["name"] for row in own["classes"]] == CLASSES
        found.update({row["name"]: row["samples"] for row in own["classes"] if row["samples"]})
    return found


def one_line(text):
    return " ".join(text.replace("warning:", " ").split())


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_read_by_the_names_of_training_or_refused(folder, name):
    tree, root = sown(folder, name)
    option = "dataset.eval=!replace " + tree.data.replace("ROOT", str(root))
    evaluated = trainrun(folder, "eval", "run", option, "--json", "--report")
    predicted = trainrun(folder, "predict", "run", option) if tree.predicted else None
    looked_at = trainrun(folder, "data", "recipe.yaml", option, "-o", folder / "page.html")
    if tree.refused:
        message = tree.refused.replace("ROOT", str(root))
        for done in (evaluated, predicted, looked_at):
            expected = message.replace("the data set's broken: skip", "--broken skip") if done is predicted else message
            assert done is None or (done.returncode != 0 and expected in done.stderr), done
        return
    has = collections.Counter({word.split(":")[0]: int(word.split(":")[1]) for word in tree.has.split()})
    assert counts_in(json.loads(ok(evaluated))["report"]) == has
    said = tree.said.replace("ROOT", str(root))
    assert said in evaluated.stderr and one_line(said) in one_line(ok(looked_at))
    if predicted:
        assert collections.Counter(row["label"] for row in csv.DictReader(io.StringIO(ok(predicted)))) == has
        assert said in predicted.stderr
    absent = [name for name in CLASSES if not has[name]]
    if tree.predicted and absent:
        assert f"never come{'s' if len(absent) == 1 else ''}: {', '.join(absent)}" in one_line(looked_at.stdout)


def test_the_table_has_forty_trees():
    assert len(TREES) >= 40


@pytest.fixture(name="moved")
def copy_of_the_folder(folder, tmp_path):
    for name in ("train", "run", "store"):
        shutil.copytree(folder / name, tmp_path / name, symlinks=True)
    shutil.copy(folder / "recipe.yaml", tmp_path)
    return tmp_path


def labels_of(done):
    return [row["label"] for row in csv.DictReader(io.StringIO(ok(done)))]


@pytest.mark.parametrize("change", ["renamed", "added", "removed"])
def test_what_became_of_the_training_folders_since_changes_no_name(moved, change):
    grow(moved / "photos", "0.png=ant 1.png=cat 2.png=bee")
    if change == "renamed":
        (moved / "train/ant").rename(moved / "train/zebra")
    elif change == "added":
        grow(moved / "train", "aardvark/0.png=dog")
    else:
        shutil.rmtree(moved / "train/ant")
    assert labels_of(trainrun(moved, "predict", "run", "photos", "dataset.eval.root=store")) == ["ant", "cat", "bee"]
    report = json.loads(ok(trainrun(moved, "eval", "run", "dataset.eval.root=store", "--json", "--report")))["report"]
    assert counts_in(report) == {"ant": 3, "cat": 3}


def test_pictures_that_are_predicted_are_counted_where_they_are_passed_over(moved):
    grow(moved / "photos", "0.png=ant 1.gif=cat 2.png->nowhere .ipynb_checkpoints/0.png=ant notes.txt!")
    done = trainrun(moved, "predict", "run", "photos")
    assert done.returncode == 1 and "photos/1.gif: images of this format are not supported" in done.stderr
    done = trainrun(moved, "predict", "run", "photos", "dataset.eval.broken=skip")
    assert labels_of(done) == ["ant"] and "2 of 3 images cannot be decoded and are left out" in done.stderr
    said = "photos: skipped: 1 hidden file or folder (.ipynb_checkpoints), 1 file that is not an image (notes.txt)"
    assert said in done.stderr


GO_ON = ["--quiet", "recipe.yaml", "checkpoint.resume=run/checkpoints/latest", "training.num_epochs=13",
         "output_dir=on"]


@pytest.mark.parametrize("keeps_order", [True, False])
def test_a_resume_with_a_renamed_class_is_refused(moved, keeps_order):
    name = "ape" if keeps_order else "zebra"
    (moved / "train/ant").rename(moved / "train" / name)
    done = trainrun(moved, *GO_ON)
    assert done.returncode == 1 and "has changed since the checkpoint was made: its " in done.stderr
    if keeps_order:
        assert "its classes were ant, bee, cat and are ape, bee, cat" in done.stderr
    done = trainrun(moved, *GO_ON, "checkpoint.allow_changed=[data]")
    assert done.returncode == 1 and f"no image of the training data is of class '{name}'; " in done.stderr


def make_old(moved):
    """The checkpoint as a program wrote it that saved no names."""
    [path] = [path for path in (moved / "run/checkpoints").glob("*/state.json") if not path.parent.is_symlink()]
    state = json.loads(path.read_text())
    assert state["learnt"].pop("classes") == {"label": CLASSES}
    assert state["learnt"].pop("inferred") == {"classes": CLASSES}
    state["learnt"]["dataset"] = None
    del state["learnt"]["fields"], state["learnt"]["target"]
    del state["digest"]
    body = json.dumps(state, indent=2) + "\n"
    digest = hashlib.sha256(body.encode()).hexdigest()
    path.write_text('{\n  "digest": "' + digest + '",\n' + body.removeprefix("{\n"))


def test_names_that_a_checkpoint_lacks_are_those_of_the_training_data(moved):
    make_old(moved)
    grow(moved / "test", "bee*2 cat*1")
    done = trainrun(moved, "eval", "run", "dataset.eval.root=test", "--json", "--report")
    assert counts_in(json.loads(ok(done))["report"]) == {"bee": 2, "cat": 1}
    note = ("the checkpoint is older than the saving of classes' names; they are taken from dataset.train as it is "
            "now: ant, bee, cat")
    assert note in done.stderr
    done = trainrun(moved, "predict", "run", "dataset.eval.root=test")
    assert labels_of(done) == ["bee", "bee", "cat"] and note in done.stderr
    ok(trainrun(moved, *GO_ON))


TRAINED = {
    "hidden folders": ("{type: ImageFolder, root: ROOT}",
                       "ant*4 bee*4 cat*4 .git/0.png=dog __MACOSX/ant/._0.png! @eaDir/0.png=dog "
                       "ant/.ipynb_checkpoints/0.png=dog"),
    "a Concat": ("{type: Concat, datasets: [{type: ImageFolder, root: ROOT/a}, {type: ImageFolder, root: ROOT/b}]}",
                 " ".join(f"{place}/{i}.png={place[2:]}" for i in range(4)
                          for place in ("a/ant", "a/bee", "a/cat", "b/cat"))),
    "a list": ("{type: ImageCSV, path: ROOT/list.csv}", ""),
    "a part": ("{type: Split, dataset: {type: ImageFolder, root: ROOT}, fractions: [0.75, 0.25]}", "ant*6 bee*6 cat*6"),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_on_such_data_gives_classes_their_names(tmp_path, name):
    data, tree = TRAINED[name]
    grow(tmp_path / "t", tree)
    if name == "a list":
        grow(tmp_path / "t", " ".join(f"x/{c}{i}.png={c}" for c in CLASSES for i in range(4)))
        lines = [f"x/{c}{i}.png,{c}\n" for c in CLASSES for i in range(4)]
        (tmp_path / "t/list.csv").write_text("path,label\n" + "".join(lines))
    grow(tmp_path / "test", "bee*2 cat*1")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    data = "dataset.train=!replace " + data.replace("ROOT", "t")
    ok(trainrun(tmp_path, "--quiet", "recipe.yaml", data, "dataset.eval.root=test"))
    done = trainrun(tmp_path, "eval", "run", "--json", "--report")
    assert counts_in(json.loads(ok(done))["report"]) == {"bee": 2, "cat": 1}


def test_keep_best_follows_figures_by_name(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("evaluation: {every: null}", "evaluation: {every: epoch}"))
    grow(tmp_path / "train", "ant*8 bee*8 cat*8")
    grow(tmp_path / "test", "cat*3")
    best = "checkpoint={every: epoch, keep_best: {monitor: eval/accuracy, mode: max}}"
    ok(trainrun(tmp_path, "--quiet", "recipe.yaml", "dataset.eval.root=test", best))
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["eval/accuracy"] for line in lines if line["split"] == "eval"][-1] == 1


def write_masks(root, names, masks=None):
    for name in names:
        for part in ("images", "masks"):
            (root / part).mkdir(parents=True, exist_ok=True)
        mask = np.indices((4, 4)).sum(0) % 2
        Image.fromarray(np.stack([mask * 200] * 3, -1).astype(np.uint8)).save(root / f"images/{name}.png")
        if masks is None or name in masks:
            Image.fromarray(mask.astype(np.uint8)).save(root / f"masks/{name}.png")


SEGMENTATION = """\
version: 1
name: masks
model: {layers: [{type: Conv2d, out_channels: 2, kernel_size: 1}]}
loss: CrossEntropyLoss
dataset:
  train: {type: SegmentationFolder, root: train, num_classes: 2}
  eval: {type: SegmentationFolder, root: test, num_classes: 2}
dataloader: {batch_size: 2, num_workers: 1}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
output_dir: run
"""


def test_masks_hold_the_numbers_of_the_training_classes(tmp_path):
    write_masks(tmp_path / "train", "ab")
    write_masks(tmp_path / "test", "abc", masks="ab")
    write_masks(tmp_path / "test/images/.ipynb_checkpoints", "a")
    Image.new("L", (4, 4)).save(tmp_path / "test/masks/z.png")
    (tmp_path / "recipe.yaml").write_text(SEGMENTATION)
    done = trainrun(tmp_path, "--quiet", "recipe.yaml")
    assert done.returncode != 0 and "there is no test/masks/c.png, the mask of test/images/c.png" in done.stderr
    done = trainrun(tmp_path, "recipe.yaml", "dataset.eval.broken=skip")
    said = one_line(ok(done) + done.stderr)
    assert "1 of 3 images cannot be decoded and are left out" in said
    assert "skipped: 1 hidden file or folder (.ipynb_checkpoints), 1 mask that belongs to no image (z.png)" in said
    Image.new("RGB", (4, 4)).save(tmp_path / "test/images/b_left.png")
    done = trainrun(tmp_path, "eval", "run", "dataset.eval.image_suffix=_left", "dataset.eval.masks=masks/.")
    assert done.returncode == 0 and "3 images whose names do not end with image_suffix (a.png, b.png, c.png)" in one_line(done.stdout + done.stderr)
    done = trainrun(tmp_path, "eval", "run", "dataset.eval.num_classes=1", "dataset.eval.broken=skip")
    assert done.returncode != 0 and "num_classes is 1, but the training data have 2 classes" in done.stderr
