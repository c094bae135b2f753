"""Trees of image files as evaluation data, through `eval --report`, `predict` and `data`: each class is read by the
name that it had in training, or the tree is refused by a message that names what is wrong. A picture's class can be told
by its colour, and the model tells it."""

import collections
import csv
import dataclasses
import hashlib
import io
import json
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.program import CALLED

CLASSES = ["ant", "bee", "cat"]
COLOURS = {"ant": (250, 20, 20), "bee": (20, 250, 20), "cat": (20, 20, 250), "dog": (200, 200, 200)}
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


def picture(name, number=0, size=(3, 2)):
    """A picture of an animal; each of them is another one."""
    pixels = np.full((*size, 3), COLOURS[name], np.uint8)
    pixels[0, 0, 0] ^= number & 7
    pixels[0, 1, 1] ^= number >> 3 & 7
    return Image.fromarray(pixels)


def grow(root, tree):
    """By words: `ant*3`, a folder of three pictures of ants; `a/b.png=ant`, a picture; `a/b.png->to`, a link; `a/b!`, a
    file that is not a picture; `a/`, a folder."""
    root.mkdir(parents=True, exist_ok=True)
    for number, word in enumerate(tree.split()):
        name = word.rstrip("!").split("=")[0].split("*")[0].split("->")[0]
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "->" in word:
            path.symlink_to(word.split("->")[1])
        elif word.endswith("/"):
            path.mkdir()
        elif word.endswith("!"):
            path.write_bytes(b"no picture")
        elif "=" in word:
            picture(word.split("=")[1], number).save(path)
        else:
            path.mkdir()
            for i in range(int(word.split("*")[1])):
                picture(name, i).save(path / f"{i}.png")


def write_shard(path, members):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            if isinstance(content, str) and content in COLOURS:
                file = io.BytesIO()
                picture(content, len(members)).save(file, "png")
                content = file.getvalue()
            content = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture(name="folder", scope="module")
def folder_with_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    grow(folder / "train", "ant*8 bee*8 cat*8")
    grow(folder / "store", "ant*3 cat*3")
    (folder / "recipe.yaml").write_text(RECIPE)
    ok(trainrun(folder, "--quiet", "recipe.yaml"))
    return folder


@dataclasses.dataclass
class Tree:
    tree: str = ""                # for `grow`, at ROOT
    has: str = ""                 # "ant:2 cat:1": what evaluation finds; "": it is refused
    refused: str = ""             # a part of the message
    said: str = ""                # a part of the notes
    data: str = "{type: ImageFolder, root: ROOT}"
    files: dict = dataclasses.field(default_factory=dict)  # texts, at ROOT; of a name that ends in .tar its members
    predicted: bool = True        # `predict` reads the first set only


SKIP = "{type: ImageFolder, root: ROOT, unknown_classes: skip}"
WHOLE = "{type: ImageFolder, root: ROOT, broken: skip}"
CSV = "{type: ImageCSV, path: ROOT/list.csv}"
SHARDS = "{type: Shards, path: ROOT/a.tar}"
UNKNOWN = "no image of the training data is of class 'dog'; their classes are ant, bee, cat"
TREES = {
    # missing classes
    "all classes": Tree("ant*3 bee*2 cat*1", "ant:3 bee:2 cat:1"),
    "without the first class": Tree("bee*3 cat*2", "bee:3 cat:2"),
    "without the middle one": Tree("ant*2 cat*3", "ant:2 cat:3"),
    "without the last one": Tree("ant*3 bee*2", "ant:3 bee:2"),
    "the last one alone": Tree("cat*3", "cat:3"),
    "the middle one alone": Tree("bee*3", "bee:3"),
    "folders within classes": Tree("ant/x/0.png=ant ant/y/0.png=ant cat/y/z/1.png=cat", "ant:2 cat:1"),
    # extra and renamed classes
    "an extra class": Tree("ant*2 dog*2", refused=UNKNOWN),
    "an extra class before the others": Tree(
        "aardvark/0.png=dog bee*2",
        refused="aardvark/0.png: no image of the training data is of class 'aardvark'",
    ),
    "an extra class alone": Tree("dog*2", refused=UNKNOWN),
    "a renamed class": Tree(
        "ants/0.png=ant bee*1",
        refused="is of class 'ants'; did you mean ant? Their classes are ant, bee, cat",
    ),
    "a class with a capital": Tree("Ant/0.png=ant bee*1 cat*1", refused="is of class 'Ant'; did you mean ant?"),
    "an extra class, skipped": Tree(
        "ant*2 cat*1 dog*3",
        "ant:2 cat:1",
        said="3 of 6 images are of classes that the training data do not have, and are left out: dog (3)",
        data=SKIP,
    ),
    "extra classes before the others, skipped": Tree(
        "aa/0.png=dog ab/0.png=dog cat*2",
        "cat:2",
        said="left out: aa (1), ab (1)",
        data=SKIP,
    ),
    "nothing but extra classes, skipped": Tree(
        "dog*2",
        refused="is of class 'dog'; their classes are ant, bee, cat; no image is of one of them",
        data=SKIP,
    ),
    "an extra class, skipped and kept decoded": Tree(
        "ant*2 cat*1 dog*3",
        "ant:2 cat:1",
        data="{type: ImageFolder, root: ROOT, unknown_classes: skip, cache: memory}",
    ),
    # hidden folders and files
    "checkpoints of notebooks": Tree(
        ".ipynb_checkpoints/0.png=ant cat*2 cat/.ipynb_checkpoints/0.png=cat",
        "cat:2",
        said="skipped: 2 hidden files or folders (.ipynb_checkpoints)",
    ),
    "a repository of git": Tree(".git/a/0.png=ant bee*2", "bee:2", said="skipped: 1 hidden file or folder (.git)"),
    "thumbnails of a Synology": Tree(
        "@eaDir/0.png=ant bee*2 bee/@eaDir/0.png=bee",
        "bee:2",
        said="skipped: 2 hidden files or folders (@eaDir)",
    ),
    "an archive made on a Mac": Tree(
        "__MACOSX/cat/._0.png! cat*2 cat/._0.png! cat/.DS_Store!",
        "cat:2",
        said="skipped: 3 hidden files or folders (.DS_Store, ._0.png, __MACOSX)",
    ),
    "only hidden folders": Tree(".git/0.png=ant", refused="holds no folders"),
    # links
    "a class that is a link": Tree("ant->../../store/ant bee*1", "ant:3 bee:1"),
    "pictures that are links": Tree("cat/0.png->../../../store/cat/0.png cat/1.png->../../../store/cat/1.png", "cat:2"),
    "a picture's link that leads nowhere": Tree(
        "ant*2 ant/x.png->../nowhere.png",
        refused="ant/x.png: broken link to ../nowhere.png; the data set's broken: skip",
    ),
    "a class's link that leads nowhere": Tree(
        "ant*2 bee->nowhere",
        refused="/bee: broken link to nowhere",
    ),
    "links that lead nowhere, skipped": Tree(
        "ant*2 ant/x.png->no.png bee->nowhere",
        "ant:2",
        said="2 of 4 images cannot be decoded and are left out",
        data=WHOLE,
    ),
    # formats
    "a TIFF": Tree(
        "ant*2 ant/x.tif=ant",
        refused="ant/x.tif: images of this format are not supported, only .jpg, .jpeg, .png, .webp, .bmp; the data "
                "set's broken: skip",
    ),
    "a GIF": Tree("cat*2 cat/y.GIF=cat", refused="cat/y.GIF: images of this format are not supported"),
    "a class of TIFFs alone, skipped": Tree(
        "ant/x.tif=ant cat*2",
        "cat:2",
        said="1 of 3 images cannot be decoded and are left out",
        data=WHOLE,
    ),
    "nothing but GIFs, skipped": Tree(
        "ant/x.gif=ant",
        refused="ant/x.gif: images of this format are not supported",
        data=WHOLE,
    ),
    "a TIFF, a dead link and a broken file, skipped": Tree(
        "ant*2 ant/x.tif=ant ant/y.png->no ant/z.png!",
        "ant:2",
        said="3 of 5 images cannot be decoded and are left out",
        data=WHOLE,
    ),
    "a broken file": Tree("ant*2 ant/z.png!", refused="ant/z.png: this is not a JPEG, PNG, WebP or BMP file"),
    "a broken file and an extra class, skipped": Tree(
        "ant*2 ant/z.png! dog*2",
        "ant:2",
        said="1 of 3 images cannot be decoded",
        data="{type: ImageFolder, root: ROOT, broken: skip, unknown_classes: skip}",
    ),
    "other formats and capitals": Tree("ant/0.BMP=ant cat/0.webp=cat cat/1.PNG=cat", "ant:1 cat:2"),
    "files that are not pictures": Tree(
        "cat*2 cat/Thumbs.db! cat/a.txt! list.csv!",
        "cat:2",
        said="skipped: 3 files that are not images (Thumbs.db, a.txt, list.csv)",
    ),
    "pictures beside the classes": Tree(
        "cat*2 0.png=ant",
        "cat:2",
        said="skipped: 1 image outside the classes' folders (0.png)",
    ),
    "a class without a picture": Tree(
        "ant*2 bee/",
        refused="bee holds no JPEG, PNG, WebP or BMP file, and every folder in `root` is a class",
    ),
    # several sets, and what is around them
    "two sets": Tree(
        "a/ant/0.png=ant b/cat/0.png=cat",
        "ant:1 cat:1",
        data="{a: {type: ImageFolder, root: ROOT/a}, b: {type: ImageFolder, root: ROOT/b}}",
        predicted=False,
    ),
    "two sets, one with an extra class": Tree(
        "a/ant/0.png=ant b/dog/0.png=dog",
        refused=UNKNOWN,
        data="{a: {type: ImageFolder, root: ROOT/a}, b: {type: ImageFolder, root: ROOT/b}}",
        predicted=False,
    ),
    "a Split": Tree(
        "ant*4 cat*4",
        "cat:4",
        data="{type: Split, dataset: {type: ImageFolder, root: ROOT}, fractions: [0.5, 0.5], part: test, "
             "shuffle: false}",
    ),
    "a stratified Split of known classes": Tree(
        "ant*4 cat*4 dog*4",
        "ant:2 cat:2",
        said="4 of 12 images are of classes",
        data="{type: Split, dataset: %s, fractions: [0.5, 0.5], part: test, stratify: true}" % SKIP,
    ),
    "a Concat": Tree(
        "a/cat/0.png=cat b/ant/0.png=ant b/bee/0.png=bee",
        "ant:1 bee:1 cat:1",
        data="{type: Concat, datasets: [{type: ImageFolder, root: ROOT/a}, {type: ImageFolder, root: ROOT/b}]}",
    ),
    "a Concat with an extra class": Tree(
        "a/cat/0.png=cat b/dog/0.png=dog",
        refused=UNKNOWN,
        data="{type: Concat, datasets: [{type: ImageFolder, root: ROOT/a}, {type: ImageFolder, root: ROOT/b}]}",
    ),
    "a Concat of a Split and others": Tree(
        "a/cat/0.png=cat a/bee/0.png=bee b/ant/0.png=ant b/dog/0.png=dog",
        "ant:1 cat:1",
        data="{type: Concat, datasets: [{type: Split, dataset: {type: ImageFolder, root: ROOT/a}, fractions: "
             "[0.5, 0.5], part: 1, shuffle: false}, {type: ImageFolder, root: ROOT/b, unknown_classes: skip}]}",
    ),
    "a Mixture": Tree(
        "a/cat/0.png=cat b/ant/0.png=ant",
        "ant:1 cat:1",
        data="{type: Mixture, of: [{dataset: {type: ImageFolder, root: ROOT/a}}, {dataset: {type: ImageFolder, "
             "root: ROOT/b}}]}",
    ),
    "a subset": Tree("bee*2 cat*2", "bee:1 cat:1", data="{type: ImageFolder, root: ROOT, subset: [1, 2]}"),
    # other data sets
    "a list": Tree(
        "x/0.png=cat x/1.png=ant",
        "ant:1 cat:1",
        data=CSV,
        files={"list.csv": "path,label\nx/0.png,cat\nx/1.png,ant\n"},
    ),
    "a list with an extra class": Tree(
        "x/0.png=cat x/1.png=dog",
        refused="list.csv:3: " + UNKNOWN,
        data=CSV,
        files={"list.csv": "path,label\nx/0.png,cat\nx/1.png,dog\n"},
    ),
    "a list with an extra class, skipped": Tree(
        "x/0.png=dog x/1.png=cat",
        "cat:1",
        said="left out: dog (1)",
        data="{type: ImageCSV, path: ROOT/list.csv, unknown_classes: skip}",
        files={"list.csv": "path,label\nx/0.png,dog\nx/1.png,cat\n"},
    ),
    "a list of numbers": Tree(
        "x/0.png=cat",
        refused="list.csv:2: no image of the training data is of class '2'",
        data=CSV,
        files={"list.csv": "path,label\nx/0.png,2\n"},
    ),
    "a list of pictures that are not there": Tree(
        "x/0.png=cat",
        refused="list.csv:3: ROOT/x/1.png: cannot open: No such file or directory; the data set's broken: skip",
        data=CSV,
        files={"list.csv": "path,label\nx/0.png,cat\nx/1.png,ant\n"},
    ),
    "pictures that are not there, skipped": Tree(
        "x/0.png=cat",
        "cat:1",
        said="1 of 2 images cannot be decoded and are left out: ROOT/list.csv:3: ROOT/x/1.png: cannot open",
        data="{type: ImageCSV, path: ROOT/list.csv, broken: skip}",
        files={"list.csv": "path,label\nx/0.png,cat\nx/1.png,ant\n"},
    ),
    "a shard": Tree(
        "",
        "bee:1 cat:1",
        data=SHARDS,
        files={"a.tar": [("0.png", "cat"), ("0.cls", "2"), ("1.png", "bee"), ("1.cls", "1")]},
    ),
    "a shard with an extra class": Tree(
        "",
        refused="a.tar:1.png: no image of the training data is of class '3'",
        data=SHARDS,
        files={"a.tar": [("0.png", "cat"), ("0.cls", "2"), ("1.png", "dog"), ("1.cls", "3")]},
    ),
    "a shard with an extra class, skipped": Tree(
        "",
        "cat:1",
        said="left out: 3 (1)",
        data="{type: Shards, path: ROOT/a.tar, unknown_classes: skip, cache: memory}",
        files={"a.tar": [("0.png", "dog"), ("0.cls", "3"), ("1.png", "cat"), ("1.cls", "2")]},
    ),
    "a shard with other files": Tree(
        "",
        "cat:1",
        said="skipped: 1 hidden file or folder (._0.png), 1 member of an archive that belongs to no sample "
             "(README)",
        data=SHARDS,
        files={"a.tar": [("README", "x"), ("__MACOSX/._0.png", "x"), ("0.png", "cat"), ("0.cls", "2")]},
    ),
}


def sown(folder, name):
    tree = TREES[name]
    root = folder / "trees" / name.replace(" ", "_").replace(",", "").replace("'", "")
    grow(root, tree.tree)
    for file, content in tree.files.items():
        if file.endswith(".tar"):
            write_shard(root / file, content)
        else:
            (root / file).write_text(content)
    return tree, root.relative_to(folder)


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
            assert done is None or (done.returncode != 0 and message in done.stderr), done
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
    done = trainrun(tmp_path, "eval", "run", "dataset.eval.num_classes=1", "dataset.eval.broken=skip")
    assert done.returncode != 0 and "num_classes is 1, but the training data have 2 classes" in done.stderr
