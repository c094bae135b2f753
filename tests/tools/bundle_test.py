"""Files that `trainrun bundle` writes, started where there is nothing but glibc: in the root of a chroot."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest

from newcomer import WORDS, write_tokenizer
from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPES = ROOT / "recipes/data/shapes"
GLIBC = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
         "libutil.so.1"]
CHROOT = shutil.which("chroot", path=os.environ["PATH"] + ":/usr/sbin") or "chroot"
ENTER = [CHROOT] if os.geteuid() == 0 else ["/usr/bin/unshare", "--map-root-user", CHROOT]
NUMBERS = {name: value for name, value in os.environ.items() if name in ("TRAINRUN_PLAIN_MKL", "OMP_NUM_THREADS")}  # on which last digits depend
NOWHERE = {"PATH": "/bin", "HOME": "/home/somebody", **NUMBERS}

DIGITS = """
version: 1
name: digits
seed: 1
model: {layers: [Flatten, {type: Linear, out_features: 16}, ReLU, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset: {train: {type: Digits, split: train}, eval: {type: Digits, split: test}}
dataloader: {batch_size: 32}
optimizer: {type: AdamW, lr: 0.002}
training: {max_steps: 40}
logging: {every_steps: 10}
checkpoint: {every: 20}
"""
HOUSES = """
version: 1
name: houses
model: {layers: [{type: Linear, out_features: 8}, ReLU, {type: Linear, out_features: 1}]}
loss: SmoothL1Loss
metrics: [MAE]
dataset:
  train: &houses {type: CSV, path: data/houses.csv, label: price, task: regression, id: address, columns: auto, split: {fractions: [0.8, 0.2], part: train}}
  eval: {<<: *houses, split: {fractions: [0.8, 0.2], part: test}}
  transforms: [Standardize, {type: Standardize, field: label}]
dataloader: {batch_size: 8}
optimizer: {type: AdamW, lr: 0.01}
training: {num_epochs: 2}
"""
PICTURES = """
version: 1
name: pictures
model: {layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, ReLU, {type: AdaptiveAvgPool2d, output_size: 2}, Flatten, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
dataset: {train: {type: ImageFolder, root: SHAPES/train/images, image_transforms: [{type: Resize, size: [24, 24]}]}}
dataloader: {batch_size: 16}
optimizer: {type: SGD, lr: 0.1}
training: {max_steps: 4}
"""
TEXTS = """
version: 1
name: texts
model: {layers: [{type: DistilBertForSequenceClassification, config: config.json, num_labels: 3}]}
loss: CrossEntropyLoss
dataset: {train: {type: TextClassification, path: t.csv, text_columns: [text], label: stars, tokenizer: tokenizer.json, max_length: 8}}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
"""


def run(*command, folder, code=0, **options):
    """Runs a command, checks its exit code and returns what it prints and what it says of errors."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


def trained(folder, recipe, *options):
    """A run of a recipe in `folder`."""
    (folder / "r.yaml").write_text(recipe)
    run(CALLED, "run", "r.yaml", "--quiet", *options, folder=folder)
    [found] = (folder / "runs").iterdir()
    return found


def bundle(run_folder, output, *options):
    return run(CALLED, "bundle", run_folder, "-o", output, "--level", "1", *options, folder=run_folder.parent.parent)


@pytest.fixture(scope="module", name="digits")
def run_of_digits(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("digits"), DIGITS)


@pytest.fixture(scope="module", name="digits_bundle")
def bundle_of_digits(digits, tmp_path_factory):
    """In place of a file that was there, which without --force stays."""
    output = tmp_path_factory.mktemp("bundle") / "digits.run"
    output.write_text("mine")
    error = run(CALLED, "bundle", digits, "-o", output, folder=output.parent, code=1).stderr
    assert f"{output} is already there; name another file by --output, or add --force to replace it" in error
    assert output.read_text() == "mine"
    bundle(digits, output, "--force")
    return output


@pytest.fixture(scope="module", name="houses")
def run_of_houses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    (folder / "data").mkdir()
    rows = [f"{i} Road,{20 + i % 7 * 10},{'brick' if i % 3 else 'wood'},{100 + i % 7 * 31}" for i in range(60)]
    (folder / "data/houses.csv").write_text("\n".join(["address,area,walls,price", *rows]) + "\n")
    return trained(folder, HOUSES)


@pytest.fixture(scope="module", name="empty_root")
def root_with_glibc_alone(tmp_path_factory):
    """A root folder without Python, shell or any library but glibc's. LibTorch draws a seed from /dev/urandom, and looks in /proc and /sys for
    what the CPU can: files will do. (Without these it takes its slowest kernels, which round differently.)"""
    root = tmp_path_factory.mktemp("root")
    for folder in ("lib64", "lib/x86_64-linux-gnu", "dev", "tmp", "home/somebody", "job"):
        (root / folder).mkdir(parents=True)
    (root / "dev/urandom").write_bytes(os.urandom(4096))
    for name in ("proc/cpuinfo", "sys/devices/system/cpu/possible", "sys/devices/system/cpu/present", "sys/devices/system/cpu/kernel_max"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(pathlib.Path("/", name).read_bytes())
    for name in GLIBC:
        source = next((path for path in (pathlib.Path("/lib64") / name, pathlib.Path("/lib/x86_64-linux-gnu") / name) if path.exists()), None)
        if source:
            shutil.copy(source, root / ("lib64" if name.startswith("ld-") else "lib/x86_64-linux-gnu") / name)
    probe = subprocess.run([*ENTER, root, "/lib64/ld-linux-x86-64.so.2", "--version"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no chroot may be made here: {probe.stderr.strip()}")
    return root


def in_root(root, *command, code=0, **environment):
    return run(*ENTER, root, *command, folder=root, code=code, env={**NOWHERE, **environment})


def placed(file, root):
    """The file in the root folder, by a name of its own."""
    target = root / file.name
    if not target.exists():
        target.hardlink_to(file)
    return f"/{file.name}"


def losses(folder):
    [found] = folder.glob("runs/*/metrics.jsonl")
    lines = [json.loads(line) for line in found.read_text().splitlines()]
    return [(line["step"], line[key]) for line in lines for key in sorted(line) if key.endswith("loss")]


def test_digits_are_predicted_and_trained_as_by_the_program(digits, digits_bundle, empty_root):
    called = placed(digits_bundle, empty_root)
    predicted = in_root(empty_root, called, "predict").stdout
    assert predicted == run(CALLED, "predict", digits, folder=digits.parent).stdout and predicted.count("\n") > 300
    in_root(empty_root, called, "--quiet", "train", "output_dir=/job/again/runs/digits")
    expected = losses(digits.parent.parent)
    assert len(expected) > 3 and losses(empty_root / "job/again") == expected


def test_training_goes_on_from_the_bundles_checkpoint(digits, digits_bundle, empty_root, tmp_path):
    more = ["training.max_steps=60", "--quiet"]
    run(CALLED, digits / "recipe.yaml", f"checkpoint.resume={digits}", f"output_dir={tmp_path}/runs/on", *more, folder=tmp_path)
    in_root(empty_root, placed(digits_bundle, empty_root), "resume", "output_dir=/job/on/runs/on", *more)
    found = losses(empty_root / "job/on")
    assert found == losses(tmp_path) and {step for step, _ in found} <= set(range(41, 61)) and found


def test_tables_are_predicted_and_trained_without_their_files(houses, empty_root, tmp_path):
    output = tmp_path / "houses.run"
    said = bundle(houses, output, "--with-data")
    assert not said.stderr.count("is not in the bundle")
    called = placed(output, empty_root)
    (empty_root / "job/new.csv").write_text("walls,area,address\nbrick,44,a\nwood,71,b\n")
    expected = run(CALLED, "predict", houses, empty_root / "job/new.csv", folder=houses.parent).stdout
    assert in_root(empty_root, called, "predict", "/job/new.csv").stdout == expected and expected.count("\n") == 3
    in_root(empty_root, called, "run", "--quiet", "output_dir=/job/houses/runs/houses")
    assert losses(empty_root / "job/houses") == losses(houses.parent.parent)
    assert "included, " in in_root(empty_root, called, "--help").stdout


def test_pictures_are_predicted_and_labels_told(empty_root, tmp_path):
    pictures = trained(tmp_path, PICTURES.replace("SHAPES", str(SHAPES)))
    output = tmp_path / "pictures.run"
    said = bundle(pictures, output)
    assert f"note: training reads dataset.train.root: {SHAPES}/train/images, which is not in the bundle; --with-data takes it along" in said.stderr
    shutil.copytree(SHAPES / "test/images", empty_root / "job/pictures")
    called = placed(output, empty_root)
    found = in_root(empty_root, called, "predict", "/job/pictures").stdout
    expected = run(CALLED, "predict", pictures, empty_root / "job/pictures", folder=tmp_path).stdout
    assert found == expected.replace(f"{empty_root}/job", "/job") and found.count("\n") > 10
    shown = in_root(empty_root, called, "--help").stdout
    assert re.search(r"labels +circle|labels +[a-z]+, [a-z]+, [a-z]+\n", shown), shown
    assert "images)" in shown and "finished" in shown


def test_the_tokenizer_and_the_sizes_of_models_of_an_unfinished_run_go_along(empty_root, tmp_path):
    """A config.json is what the model is built by; the weights are the run's, and so is the copy of the tokenizer."""
    write_tokenizer(tmp_path / "tokenizer.json")
    sizes = {"model_type": "distilbert", "vocab_size": 16, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 16}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    (tmp_path / "t.csv").write_text("text,stars\n" + "".join(f"the soup was {WORDS[i % 7]},{1 + i % 3}\n" for i in range(24)))
    texts = trained(tmp_path, TEXTS, "--stop-after", "4")
    (empty_root / "job/two.txt").write_text("the soup was good\nthe soup was bad\n")
    expected = run(CALLED, "predict", texts, empty_root / "job/two.txt", folder=tmp_path).stdout
    (tmp_path / "tokenizer.json").unlink()
    output = tmp_path / "texts.run"
    said = bundle(texts, output)
    assert "note: the run is not finished (texts, stopped at step 4); what it has saved is bundled" in said.stderr
    (tmp_path / "config.json").unlink()
    called = placed(output, empty_root)
    found = in_root(empty_root, called, "predict", "/job/two.txt")
    assert found.stdout == expected and expected.count("\n") == 3 and "tokenizer" not in found.stderr
    assert "stopped at step 4" in in_root(empty_root, called, "--help").stdout


def test_it_unpacks_once_for_all_that_start_together(digits_bundle, tmp_path):
    environment = {"PATH": "/bin", "XDG_CACHE_HOME": str(tmp_path / "cache"), **NUMBERS}
    command = [digits_bundle, "predict", "--format", "jsonl"]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(3)]
    outputs = {process.communicate(timeout=300)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0] and len(outputs) == 1
    cache = tmp_path / "cache/trainrun/bundles"
    assert sorted(re.sub("-[0-9a-f]{16}$", "", path.name) for path in cache.iterdir() if path.is_dir()) == ["program", "run"]
    [library] = cache.glob("program-*/lib/libtorch_cpu.so")
    before = library.stat()
    run(digits_bundle, "predict", folder=tmp_path, env=environment)
    assert library.stat().st_mtime_ns == before.st_mtime_ns and library.stat().st_ino == before.st_ino
    library.write_bytes(b"cut")
    assert run(digits_bundle, "--unpack", cache, "predict", "--format", "jsonl", folder=tmp_path, env=NUMBERS).stdout in outputs
    assert library.stat().st_size == before.st_size


def test_zip_programs_read_it_and_the_licences_are_there(digits_bundle, tmp_path):
    with zipfile.ZipFile(digits_bundle) as archive:
        names = archive.namelist()
        about = json.loads(archive.read("bundle.json"))
        assert archive.testzip() is None
    licences = {name.split("/")[1] for name in names if name.startswith("licences/")}
    assert {"libcurl4", "libc6", "libstdc++6"} <= licences and any(name.startswith("torch-2.") for name in licences)
    assert "program/lib/libtorch_cpu.so.zst" in names and not [name for name in names if re.search("libc.so|ld-linux|libm.so", name)]
    assert about["needs"].startswith("Linux on x86-64 with glibc 2.3")
    assert "Redistribution and use in source and binary forms" in run(digits_bundle, "--licences", folder=tmp_path).stdout


def test_a_damaged_bundle_says_so(digits_bundle, tmp_path):
    data = bytearray(digits_bundle.read_bytes())
    environment = {"HOME": str(tmp_path)}
    broken = tmp_path / "broken.run"

    def error_of(content):
        broken.write_bytes(content)
        broken.chmod(0o755)
        return run(broken, "predict", folder=tmp_path, code=1, env=environment).stderr

    assert "the end of this bundle is missing" in error_of(data[: len(data) // 2])
    with zipfile.ZipFile(digits_bundle) as archive:
        info = archive.getinfo("program/lib/libtorch_cpu.so.zst")
    data[info.header_offset + info.file_size // 2] ^= 1
    assert re.search(r"the bundle is damaged.*libtorch_cpu.so.*copy it again", error_of(data))
    cache = tmp_path / ".cache/trainrun/bundles"
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []
    starter = ROOT / "nowhere" if not (pathlib.Path(BINARY).parent.parent / "lib/trainrun-starter").exists() else pathlib.Path(BINARY).parent.parent / "lib/trainrun-starter"
    assert "nothing is bundled with this program" in error_of(starter.read_bytes() + b"\0" * 64)


def test_where_it_cannot_unpack_it_says_what_to_do(digits_bundle, tmp_path):
    advice = "to unpack somewhere else, add --unpack FOLDER before the verb, or set XDG_CACHE_HOME"
    (tmp_path / "file").write_text("")
    error = run(digits_bundle, "predict", folder=tmp_path, code=1, env={"XDG_CACHE_HOME": str(tmp_path / "file")}).stderr
    assert "cannot unpack into" in error and "Not a directory" in error and advice in error
    error = run(digits_bundle, "predict", folder=tmp_path, code=1, env={}).stderr
    assert "neither XDG_CACHE_HOME nor HOME says where to unpack; add --unpack FOLDER before the verb" in error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
def test_full_and_read_only_disks_are_told(digits_bundle, tmp_path):
    (tmp_path / "disk").mkdir()
    script = f"""mount -t tmpfs -o size=60m none disk || exit 99
{digits_bundle} --unpack disk predict; ls -A disk/*/ | head -3; mount -o remount,ro disk; {digits_bundle} --unpack disk/more predict"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr or done.returncode == 99:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    assert re.search(r"cannot unpack into \S+disk: No space left on device; program takes \d+ MB there; to unpack somewhere else", done.stderr), done
    assert "Read-only file system; to unpack somewhere else" in done.stderr and done.stdout == "", done


def test_what_is_no_run_is_refused(tmp_path):
    error = run(CALLED, "bundle", tmp_path, folder=tmp_path, code=1).stderr
    assert "is neither a run's folder (recipe.yaml) nor a checkpoint's (model.safetensors)" in error


def test_what_is_interrupted_or_does_not_fit_leaves_no_file(digits, tmp_path):
    def little_space():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, 20_000_000))

    command = [BINARY, "bundle", digits, "-o", "d.run", "--level", "1"]
    error = run(*command, folder=tmp_path, code=1, preexec_fn=little_space).stderr
    assert "d.run" in error and "cannot write: File too large" in error and list(tmp_path.iterdir()) == []
    writing = subprocess.Popen([str(word) for word in command], cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".d.run.tmp-*")):
        assert writing.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    writing.terminate()
    assert writing.wait(60) == -signal.SIGTERM and list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
