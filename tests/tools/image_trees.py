"""Trees of image files, for image_trees_test.py: how they are made, and the table of those that are evaluated. A
picture's class can be told by its colour."""

import dataclasses
import io
import tarfile

import numpy as np
from PIL import Image

COLOURS = {"ant": (250, 20, 20), "bee": (20, 250, 20), "cat": (20, 20, 250), "dog": (200, 200, 200)}


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
