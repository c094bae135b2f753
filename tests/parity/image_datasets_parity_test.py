"""Data sets of images against torchvision's classes, which read the same images, and against what was written."""

import gzip
import hashlib
import io
import os
import pathlib
import pickle
import subprocess
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from probe import Probe, ProbeError, missing_rows
from tests.program import CALLED

datasets = pytest.importorskip("torchvision.datasets", reason="torchvision is not installed")
USED = []


def read(probe, spec, **request):
    """Fields of all samples, and the reply."""
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, **request)
    return results.under("output"), reply


def pixels_of(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


# --- CIFAR

CIFAR = {
    "CIFAR10": ("cifar-10-batches-bin", [f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"], 1, 10),
    "CIFAR100": ("cifar-100-binary", ["train.bin"], ["test.bin"], 2, 100),
}


def cifar_files(kind, least=3):
    """The binary version's files, of `least` images and more, and their images [N, 3, 32, 32] and labels."""
    _, train, test, label_bytes, classes = CIFAR[kind]
    generator = np.random.default_rng(4)
    files = {}
    for i, name in enumerate(train + test):
        count = least + i
        labels = generator.integers(0, classes, (count, label_bytes), dtype=np.uint8)
        images = generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        content = b"".join(label.tobytes() + image.tobytes() for label, image in zip(labels, images, strict=True))
        files[name] = (content, images, labels[:, -1])
    return files


def write_for_torchvision(kind, root, files):
    """The python version of the same images, whose digests torchvision then takes for the right ones."""
    _, train, test, _, classes = CIFAR[kind]
    base = getattr(datasets, kind)
    key = "labels" if kind == "CIFAR10" else "fine_labels"
    folder = root / base.base_folder
    folder.mkdir()

    def write(name, value):
        (folder / name).write_bytes(pickle.dumps(value))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def entry(name):
        _, images, labels = files[name]
        return {"data": images.reshape(len(images), -1), key: labels.tolist()}

    names = {"train_list": train, "test_list": test}
    lists = {which: [write(old[0], entry(name)) for name, old in zip(of, getattr(base, which), strict=True)] for which, of in names.items()}
    meta = dict(base.meta)
    meta["md5"] = write(meta["filename"], {meta["key"]: [str(i) for i in range(classes)]})[1]
    return type(kind, (base,), lists | {"meta": meta})


def write_archive(path, members):
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("kind", CIFAR)
def test_cifar_is_what_torchvision_reads(probe, tmp_path, kind, split):
    folder = CIFAR[kind][0]
    files = cifar_files(kind)
    samples = write_for_torchvision(kind, tmp_path, files)(tmp_path, train=split == "train")
    published = {"CIFAR10": "cifar-10-binary.tar.gz", "CIFAR100": "cifar-100-binary.tar.gz"}[kind]
    write_archive(tmp_path / published, [(f"{folder}/{name}", content) for name, (content, _, _) in files.items()])
    packed, reply = read(probe, {"type": kind, "root": str(tmp_path), "split": split})
    assert reply["target"] == "label"
    (tmp_path / published).unlink()
    (tmp_path / folder).mkdir()
    for name, (content, _, _) in files.items():
        (tmp_path / folder / name).write_bytes(content)
    unpacked, _ = read(probe, {"type": kind, "root": str(tmp_path), "split": split})
    named, _ = read(probe, {"type": kind, "root": str(tmp_path / folder), "split": split})
    for fields in (packed, unpacked, named):
        assert len(fields["image"]) == len(samples)
        for i, (image, label) in enumerate(samples):
            assert torch.equal(fields["image"][i], pixels_of(image))
            assert fields["label"][i].item() == label


def test_a_large_archive_is_decompressed_once_and_trains_as_its_files_do(tmp_path):
    """From its second run on a job maps the archive's content from the cache; a damaged one is made again."""
    files = cifar_files("CIFAR10", least=500)
    write_archive(tmp_path / "packed/cifar-10-binary.tar.gz", [(f"cifar-10-batches-bin/{name}", content) for name, (content, _, _) in files.items()])
    (tmp_path / "files").mkdir()
    for name, (content, _, _) in files.items():
        (tmp_path / "files" / name).write_bytes(content)
    (tmp_path / "recipe.yaml").write_text("""
model: {layers: [Flatten, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
dataset:
  train: {type: CIFAR10, root: packed, split: train}
  eval: {type: CIFAR10, root: packed, split: test}
optimizer: SGD
training: {max_steps: 5}
""")

    def weights(run, root):
        done = subprocess.run([CALLED, "recipe.yaml", "--quiet", f"output_dir={run}", f"dataset.train.root={root}", f"dataset.eval.root={root}"], cwd=tmp_path, capture_output=True,
                              text=True, env=os.environ | {"TRAINRUN_CACHE": str(tmp_path / "cache")}, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return (tmp_path / run / "checkpoints/latest/model.safetensors").read_bytes()

    expected = weights("unpacked", "files")
    assert weights("first", "packed") == expected
    [kept] = [path for path in (tmp_path / "cache/unpacked").iterdir() if path.suffix != ".lock"]
    written = kept.stat().st_mtime_ns
    assert weights("second", "packed") == expected and kept.stat().st_mtime_ns == written
    kept.write_bytes(kept.read_bytes()[:-512] + b"?" * 512)
    assert weights("third", "packed") == expected and kept.stat().st_mtime_ns > written


def test_an_archive_that_names_other_places_writes_nowhere(probe, tmp_path):
    root = tmp_path / "a/root"
    root.mkdir(parents=True)
    files = cifar_files("CIFAR100")
    with tarfile.open(root / "cifar-100-binary.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("cifar-100-binary/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        for name in ("../escaped", str(tmp_path / "absolute"), "cifar-100-binary/link/followed", "cifar-100-binary/../../up",
                     "../cifar-100-binary/test.bin"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"evil"))
        member = tarfile.TarInfo("cifar-100-binary/test.bin")
        member.size = len(files["test.bin"][0])
        archive.addfile(member, io.BytesIO(files["test.bin"][0]))
    fields, _ = read(probe, {"type": "CIFAR100", "root": str(root), "split": "test"})
    assert fields["label"].tolist() == files["test.bin"][2].tolist()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "cifar-100-binary.tar.gz", "root"]
    with pytest.raises(ProbeError, match="holds no cifar-100-binary/train.bin"):
        read(probe, {"type": "CIFAR100", "root": str(root), "split": "train"})


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["ustar", "gnu", "pax"])
def test_tar_archives_of_all_formats_are_read(probe, tmp_path, form):
    files = cifar_files("CIFAR100")
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz", format=form) as archive:
        for name, content in {"cifar-100-binary/" + "n" * 90 + "/" + "m" * 80: b"long", "cifar-100-binary/test.bin": files["test.bin"][0]}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1.5
            archive.addfile(member, io.BytesIO(content))
    fields, _ = read(probe, {"type": "CIFAR100", "root": str(tmp_path), "split": "test"})
    assert fields["label"].tolist() == files["test.bin"][2].tolist()


def damaged(change):
    """An archive of CIFAR-100's test images, changed while it is unpacked."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        content = cifar_files("CIFAR100")["test.bin"][0]
        member = tarfile.TarInfo("cifar-100-binary/test.bin")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return change(bytearray(plain.getvalue()))


def with_size(plain, digits):
    plain[124:136] = digits
    plain[148:156] = b"%06o\0 " % sum(plain[:148] + b" " * 8 + plain[156:512])
    return gzip.compress(plain)


@pytest.mark.parametrize("change, message", [
    (lambda plain: gzip.compress(plain)[:-900], "the file is cut off in the middle of its gzip data"),
    (lambda plain: gzip.compress(plain[:5000]), "the file ends within cifar-100-binary/test.bin"),
    (lambda plain: gzip.compress(b"X" + plain[1:]), "this is not a tar archive"),
    (lambda plain: gzip.compress(plain[:100]), "the tar archive is cut off after its start"),
    (lambda plain: with_size(plain, b"00000000011\0"), "the tar archive is damaged after cifar-100-binary/test.bin"),
    (lambda plain: with_size(plain, b"\x80" + b"\xff" * 11), "this is not a tar archive"),
    (lambda plain: with_size(plain, b"77777777777\0"), "more than the 1073741824 that are read"),
    (lambda plain: with_size(plain, b"00000x00011\0"), "this is not a tar archive"),
], ids=range(8))
def test_a_damaged_archive_is_named(probe, tmp_path, change, message):
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(damaged(change))
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "CIFAR100", "root": str(tmp_path), "split": "test"})
    assert f"{tmp_path}/cifar-100-binary.tar.gz: " in str(error.value) and message in str(error.value)


@pytest.mark.parametrize("content, message", [
    (b"\1\2" + bytes(3000), "test.bin: has 3002 bytes, expected a multiple of 3074"),
    (b"", "test.bin: has 0 bytes"),
    (b"\1\2" + bytes(3072) + b"\1\x64" + bytes(3072), "test.bin: label 1 (counted from 0) is 100, expected 0 to 99"),
], ids=range(3))
def test_damaged_records_are_named(probe, tmp_path, content, message):
    (tmp_path / "test.bin").write_bytes(content)
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "CIFAR100", "root": str(tmp_path), "split": "test"})
    assert f"{tmp_path}/{message}" in str(error.value)


def test_cifar_that_is_not_there_says_where_it_was_looked_for(probe, tmp_path):
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "CIFAR10", "root": str(tmp_path / "x"), "split": "test", "mirrors": []})
    assert str(error.value) == (f"CIFAR10: neither {tmp_path}/x/cifar-10-binary.tar.gz nor {tmp_path}/x/cifar-10-batches-bin/test_batch.bin is there "
                                f"(there is no folder {tmp_path}/x). Set `root` to the folder that holds the binary version, or `download: true` to fetch it.")


def test_an_archive_that_is_not_the_published_one_is_not_kept(probe, tmp_path):
    with pytest.raises(ProbeError, match="cifar-10-binary.tar.gz"):
        read(probe, {"type": "CIFAR10", "root": str(tmp_path), "split": "test", "download": True, "mirrors": ["http://127.0.0.1:9/"]})
    assert list(tmp_path.glob("*.gz")) == []


# --- OxfordIIITPet


def write_pets(root):
    base = root / "oxford-iiit-pet"
    (base / "images").mkdir(parents=True)
    (base / "annotations/trimaps").mkdir(parents=True)
    generator = np.random.default_rng(1)
    lines = {"trainval": [], "test": []}
    for i, (name, breed, species) in enumerate([("Abyssinian_1", 1, 1), ("beagle_20", 5, 2), ("yorkshire_terrier_3", 37, 2), ("Bengal_7", 6, 1)]):
        Image.fromarray(generator.integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(base / f"images/{name}.jpg")
        lines["test" if i == 3 else "trainval"].append(f"{name} {breed} {species} {i + 1}\n")
    for split, text in lines.items():
        (base / f"annotations/{split}.txt").write_text("".join(text))
    return base


@pytest.mark.parametrize("target", ["category", "binary-category"])
def test_pets_are_what_torchvision_reads(probe, tmp_path, target):
    base = write_pets(tmp_path)
    for split in ("trainval", "test"):
        samples = datasets.OxfordIIITPet(tmp_path, split=split, target_types=target)
        for root in (tmp_path, base):
            fields, _ = read(probe, {"type": "OxfordIIITPet", "root": str(root), "split": split, "target_types": target})
            assert len(fields["image"]) == len(samples)
            for i, (image, label) in enumerate(samples):
                assert torch.equal(fields["image"][i], pixels_of(image)) and fields["label"][i].item() == label


@pytest.mark.parametrize("line, message", [
    ("Bengal_7 38 1 1", "test.txt:1: 'Bengal_7 38 1 1', expected a name, a breed from 1 to 37 and a species, 1 or 2"),
    ("Bengal_7 6", "test.txt:1: 'Bengal_7 6', expected a name"),
    ("# nothing", "test.txt: names no images"),
    ("Persian_9 6 1 1", "test.txt:1: FOLDER/images/Persian_9.jpg: cannot open: No such file or directory"),
    ("Bengal_7\0 6 1 1", r"test.txt:1: FOLDER/images/Bengal_7\0…: a path cannot have a character of code 0"),
])
def test_damaged_lists_of_pets_are_named(probe, tmp_path, line, message):
    base = write_pets(tmp_path)
    (base / "annotations/test.txt").write_text(line + "\n")
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "OxfordIIITPet", "root": str(tmp_path), "split": "test"})
    assert message.replace("FOLDER", str(base)) in str(error.value)


def test_pets_that_are_not_there_say_what_to_unpack(probe, tmp_path):
    with pytest.raises(ProbeError, match="unpack images.tar.gz and annotations.tar.gz"):
        read(probe, {"type": "OxfordIIITPet", "root": str(tmp_path), "split": "test"})


# --- ImageCSV


@pytest.fixture
def table(tmp_path):
    """A CSV file's maker: given its lines, it returns the path. The images are a0.png … a3.png, filled with 0 … 3."""
    (tmp_path / "pictures").mkdir()
    for i in range(4):
        Image.fromarray(np.full((2, 3, 3), i, np.uint8)).save(tmp_path / f"pictures/a{i}.png")

    def write(*lines, name="table.csv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return str(tmp_path / name)

    return write


def values(fields):
    return fields["image"][:, 0, 0, 0].tolist()


def test_a_csv_file_names_images_and_their_classes(probe, table):
    path = table("path,label", "pictures/a2.png,1", "pictures/a0.png,0", '"pictures/a3.png",3')
    fields, reply = read(probe, {"type": "ImageCSV", "path": path})
    assert values(fields) == [2, 0, 3] and fields["label"].tolist() == [1, 0, 3] and reply["learnt"] is None
    assert fields["image"].dtype == torch.uint8


def test_classes_with_names_are_numbered_by_the_training_data(probe, table):
    train = table("file;kind", "a2.png;dog", "a0.png;cat", "a1.png;ant", name="train.csv")
    test = table("file;kind", "a2.png;dog", "a3.png;dog", name="test.csv")
    options = {"type": "ImageCSV", "root": str(pathlib.Path(train).parent / "pictures"), "image": "file", "label": "kind", "delimiter": ";"}
    fields, reply = read(probe, options | {"path": train})
    assert fields["label"].tolist() == [2, 1, 0] and reply["learnt"] == {"classes": ["ant", "cat", "dog"]}
    assert read(probe, options | {"path": test})[0]["label"].tolist() == [0, 0]
    assert read(probe, options | {"path": test}, learnt=reply["learnt"])[0]["label"].tolist() == [2, 2]
    other = table("file;kind", "a2.png;dgo", name="other.csv")
    with pytest.raises(ProbeError, match="no image of the training data is of class 'dgo'; did you mean dog"):
        read(probe, options | {"path": other}, learnt=reply["learnt"])


def test_a_table_of_another_encoding_has_the_same_classes(probe, table):
    path = pathlib.Path(table())
    path.write_bytes("path,label\npictures/a2.png,Käse\npictures/a0.png,€\n".encode("cp1252"))
    fields, reply = read(probe, {"type": "ImageCSV", "path": str(path), "encoding": "cp1252"})
    assert values(fields) == [2, 0] and reply["learnt"] == {"classes": ["Käse", "€"]}
    with pytest.raises(ProbeError, match="table.csv:2: byte 18 of the line, 0xE4 .* write encoding: latin-1"):
        read(probe, {"type": "ImageCSV", "path": str(path)})


def test_several_columns_are_several_labels(probe, table):
    path = table("path,sun,other,rain", "pictures/a1.png,1,x,0", "pictures/a3.png,0.5,y,1")
    fields, _ = read(probe, {"type": "ImageCSV", "path": path, "label": ["rain", "sun"]})
    assert values(fields) == [1, 3]
    assert torch.equal(fields["label"], torch.tensor([[0, 1], [1, 0.5]]))
    fields, _ = read(probe, {"type": "ImageCSV", "path": path, "label": "sun", "task": "regression"})
    assert torch.equal(fields["label"], torch.tensor([[1], [0.5]]))


@pytest.mark.parametrize("lines, options, message", [
    (["path,label"], {}, "names no images"),
    ([""], {}, "the file is empty"),
    (["path,lable", "x,1"], {}, "there is no column 'label'; did you mean lable?"),
    (["path,label", "pictures/a1.png"], {}, "table.csv:2: 1 fields, expected the 2 of the first record"),
    (["path,label", "pictures/a1.png,"], {}, "table.csv:2:label: there is no class"),
    (["path,label", ",1"], {}, "table.csv:2:path: there is no path"),
    (["path,label", "pictures/a1.png,0", "pictures/a1.png,yes"], {"label": ["label"]}, "table.csv:3:label: 'yes' is not a number"),
    (["path,label", "pictures/a9.png,0"], {}, "table.csv:2: FOLDER/pictures/a9.png: cannot open: No such file or directory"),
    (["path,label", "/a9.png,0"], {}, "table.csv:2: /a9.png: cannot open: No such file or directory"),
    (["path,label", "table.csv,0"], {}, "table.csv:2: FOLDER/table.csv: "),
    (["path,label", "pictures/a1.png\0,0"], {}, "table.csv:2: byte 16 of the line, 0x00 at offset 26 of the text, is in no text"),
    (["path,label" + "," * 512, "pictures/a1.png\0,0" + "," * 512], {}, r"table.csv:2: FOLDER/pictures/a1.png\0…: a path cannot have a character of code 0"),
    (["path,label", "pictures/a1.png,0"], {"delimiter": "::"}, "delimiter: expected one character"),
], ids=range(13))
def test_damaged_csv_files_are_named(probe, tmp_path, table, lines, options, message):
    with pytest.raises(ProbeError) as error:
        read(probe, {"type": "ImageCSV", "path": table(*lines)} | options)
    assert message.replace("FOLDER", str(tmp_path)) in str(error.value)


@pytest.mark.parametrize("cache", ["none", "memory", "disk"])
def test_what_is_left_out_of_a_csv_file_moves_no_other_record(tmp_path, monkeypatch, table, cache):
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    own = Probe(tmp_path)
    (tmp_path / "pictures/broken.png").write_bytes(b"no picture")
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "pictures/large.png")
    lines = ["path,label", "pictures/a2.png,2", "pictures/broken.png,0", "pictures/a1.png,1"]
    options = {"type": "ImageCSV", "broken": "skip", "cache": cache}
    fields, _ = read(own, options | {"path": table(*lines)})
    assert values(fields) == [2, 1] and fields["label"].tolist() == [2, 1]
    for moved in (0, 2):  # a blank line that is put before the broken one: what is kept of the images has no line's number
        path = table(*lines[:2], *[""] * moved, *lines[2:], "pictures/large.png,0")
        with pytest.raises(ProbeError) as error:
            read(own, options | {"path": path})
        assert f"{path}:{5 + moved}: {tmp_path}/pictures/large.png: the image has 4x4 pixels" in str(error.value)
    path = table(*[""] * 3, lines[0], lines[2])
    with pytest.raises(ProbeError) as error:
        read(own, options | {"path": path})
    assert f"{path}:5: {tmp_path}/pictures/broken.png: " in str(error.value)
    own.close()


def test_every_parameter_has_a_test(probe):
    # those of ImageFolder, in image_folder_parity_test.py and tools/image_trees_test.py
    shared = {"image_transforms", "mode", "broken", "cache", "unknown_classes"}
    known = {kind: [p for p in probe.ask("catalog")["dataset"][kind] if p not in shared] for kind in (*CIFAR, "ImageCSV", "OxfordIIITPet")}
    used = USED + [{"type": kind, "mirrors": [], "download": True} for kind in CIFAR]  # of both by the same code
    assert missing_rows(known, used, ignored={f"{kind}.{p}" for kind in known for p in ("subset", "split")}) == []
