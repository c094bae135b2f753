"""The choice of LibTorch: which releases there are, that each is pinned, and where a build with each lies."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = ROOT / "tools/requirements"
RELEASES = re.search(r"^set\(TRAINRUN_LIBTORCH_RELEASES (.*)\)$", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1).split()
ANOTHER = RELEASES[-1]
PLAIN = {name: value for name, value in os.environ.items() if name not in {"TRAINRUN_TORCH", "TRAINRUN_LIBTORCH"}}


def series_of(release):
    return release.rpartition(".")[0]


def call(*command, code=0, **variables):
    """What the command prints."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=PLAIN | variables,
                          timeout=60, check=False)
    assert done.returncode == code, done.stdout
    return done.stdout


def pins_of(lock):
    """What a lock file requires, by name; each with hashes."""
    pins = {}
    for entry in re.split(r"\n(?=\S)", lock.read_text().strip()):
        name, version = re.match(r"(\S+)==(\S+) \\\n", entry).groups()
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
        pins[name] = version
    return pins


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_pinned_by_its_hashes(release):
    of_cpu, of_cuda = (pins_of(REQUIREMENTS / f"{name}-{release}.lock") for name in ("libtorch", "cuda"))
    assert of_cpu.pop("torch") == release
    assert set(of_cpu) == {"nvidia-cuda-cupti", "nvidia-cuda-runtime"}
    assert {"nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"} <= set(of_cuda)
    for name in ("libtorch", "cuda"):
        asked = dict(line.split("==") for line in (REQUIREMENTS / f"{name}-{release}.in").read_text().splitlines() if "==" in line)
        assert asked == pins_of(REQUIREMENTS / f"{name}-{release}.lock")


def test_lock_files_are_for_releases_that_can_be_chosen():
    found = {re.search(r"-(\d[\d.]*)\.lock$", path.name).group(1) for name in ("libtorch", "cuda") for path in REQUIREMENTS.glob(f"{name}*.lock")}
    assert found == set(RELEASES)


def test_the_default_is_the_release_that_the_tests_compare_with():
    assert f"torch=={RELEASES[0]}\n" in (REQUIREMENTS / "test.in").read_text()


@pytest.mark.parametrize("command", [["tools/setup", "--no-build", "--torch", "2.5.1"], ["tools/wheel", "--torch", "2.5.1"]])
def test_a_release_that_is_not_there_is_refused_with_those_that_are(command):
    assert call(ROOT / command[0], *command[1:], code=2) == f"There is no LibTorch 2.5.1 for trainrun: choose one of {' '.join(RELEASES)}.\n"


@pytest.mark.parametrize("script", ["trainrun", "tools/test", "tools/setup", "tools/wheel"])
def test_every_script_refuses_it_in_the_environment(script):
    assert f"choose one of {' '.join(RELEASES)}." in call(ROOT / script, code=2, TRAINRUN_TORCH="2.5.1")


def test_a_release_and_a_folder_are_not_chosen_at_once(tmp_path):
    said = call(ROOT / "tools/setup", "--no-build", code=2, TRAINRUN_TORCH=ANOTHER, TRAINRUN_LIBTORCH=str(tmp_path))
    assert f"TRAINRUN_TORCH={ANOTHER} has that LibTorch fetched, and TRAINRUN_LIBTORCH={tmp_path} names one" in said


@pytest.fixture(name="checkout")
def checkout_with_every_libtorch(tmp_path):
    """The scripts of a checkout in which everything that set-up would fetch is there, and a program was built with each release."""
    root = tmp_path / "checkout"
    shutil.copytree(REQUIREMENTS, root / "tools/requirements")
    for file in ("tools/setup", "tools/libtorch_choice", "trainrun", "CMakeLists.txt", "CMakePresets.json"):
        shutil.copy(ROOT / file, root / file)
    for folder in ("registry", "runner", "cmake"):
        (root / folder).mkdir()
    (root / ".deps/python/bin").mkdir(parents=True)
    (root / ".deps/python/bin/python").symlink_to(sys.executable)
    stamps = {".deps/python/pip.done": "pip"}
    for release in RELEASES:
        build = root / "build" / ("release" if release == RELEASES[0] else f"release-{release}")
        (build / "bin").mkdir(parents=True)
        (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\n")
        program = build / "bin/trainrun"
        program.write_text(f"#!/bin/sh\necho built with {release}\n")
        program.chmod(0o755)
        (root / f".deps/libtorch-{release}/torch/include").mkdir(parents=True)
        stamps |= {f".deps/libtorch-{release}/{name}.done": f"{name}-{release}" for name in ("libtorch", "cuda")}
        (build / ".built").write_text(f"{root}/.deps/libtorch-{release}/torch\n")  # the newest of all: the sources have not changed since
    for file, lock in stamps.items():
        (root / file).write_text(hashlib.sha256((REQUIREMENTS / f"{lock}.lock").read_bytes()).hexdigest() + "\n")
    return root


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_a_build_of_its_own(checkout, release):
    assert call(checkout / "trainrun", TRAINRUN_TORCH=release) == f"built with {release}\n"
    assert call(checkout / "trainrun", TRAINRUN_TORCH=series_of(release)) == f"built with {release}\n"


def test_without_a_choice_it_is_the_first(checkout):
    assert call(checkout / "trainrun") == f"built with {RELEASES[0]}\n"


def test_the_machine_keeps_one_of_each_release(checkout, tmp_path):
    """A clone that sets up with one release leaves the other one to the clones that use it."""
    cache = tmp_path / "cache"
    for release in RELEASES:
        call(checkout / "tools/setup", "--no-build", "--torch", release, TRAINRUN_CACHE=str(cache))
    kept = sorted(path.name.rpartition("-")[0] for path in cache.glob("libtorch-*"))
    assert kept == sorted(f"libtorch-{release}" for release in RELEASES)
    # What was kept under another hash, with an older lock file, makes way; that of another release does not.
    for path in cache.glob("libtorch-*"):
        path.rename(path.with_name(path.name.rpartition("-")[0] + "-0000"))
    call(checkout / "tools/setup", "--no-build", "--torch", ANOTHER, TRAINRUN_CACHE=str(cache))
    assert {path.name.endswith("-0000") for path in cache.glob(f"libtorch-{ANOTHER}-*")} == {False}
    assert {path.name.endswith("-0000") for path in cache.glob(f"libtorch-{RELEASES[0]}-*")} == {True}


def libtorch_of(version, folder):
    """A folder that says that it holds this LibTorch, and holds nothing else."""
    header = folder / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    header.write_text("".join(f"#define TORCH_VERSION_{part} {number}\n"
                              for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)))
    return folder


def configured(version, folder):
    """What CMake says of it."""
    return " ".join(call("cmake", f"-DTRAINRUN_LIBTORCH={libtorch_of(version, folder)}", f"-DTRAINRUN_LIBTORCH_RELEASES={';'.join(RELEASES)}",
                         "-P", ROOT / "cmake/LibTorch.cmake", code=1).split())


def test_cmake_refuses_a_libtorch_of_no_release_and_names_those_that_will_do(tmp_path):
    assert f"holds LibTorch 2.5.1, and this trainrun needs LibTorch {' or '.join(map(series_of, RELEASES))}." in configured("2.5.1", tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_cmake_takes_a_patch_of_a_release(tmp_path, release):
    assert "expected one file" in configured(f"{series_of(release)}.9", tmp_path)  # the next thing that it looks for


@pytest.mark.parametrize("installed, is_taken", [("2.15.0", True), ("2.15.1+cpu", True), ("2.1.5", False), ("2.11.0", False)])
def test_the_wheel_s_script_takes_the_torch_of_its_release(tmp_path, installed, is_taken):
    shutil.copytree(ROOT / "tools/wheel_package", tmp_path / "trainrun", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "trainrun/torch_version").write_text("2.15.0\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text(f"__version__ = '{installed}'\n")
    said = call(sys.executable, "-B", "-c", "import trainrun; print(trainrun.torch_folder())", code=0 if is_taken else 1, PYTHONPATH=str(tmp_path))
    if is_taken:
        assert said.strip() == str(tmp_path / "torch")
    else:
        assert f"torch is torch {installed}, and this trainrun runs on torch 2.15; install it with: {sys.executable} -m pip install torch==2.15.0" in said
