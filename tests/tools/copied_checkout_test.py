"""A checkout that was copied (cp -r) has a build of the other folder: it is left, and made anew."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(name="checkout")
def checkout_with_builds(tmp_path):
    """The scripts of a checkout, with a build of its own (dev) and one that was made in another folder (release)."""
    root = tmp_path / "copy"
    (root / "tools/requirements").mkdir(parents=True)
    for file in ("tools/setup", "tools/libtorch_choice", "trainrun", "CMakeLists.txt"):
        shutil.copy(ROOT / file, root / file)
    for preset, home in {"release": tmp_path / "original", "dev": root}.items():
        (root / "build" / preset / "bin").mkdir(parents=True)
        (root / "build" / preset / "CMakeCache.txt").write_text(f"# a cache\nCMAKE_HOME_DIRECTORY:INTERNAL={home}\n")
    program = root / "build/release/bin/trainrun"
    program.write_text("#!/bin/sh\necho the binary\n")
    program.chmod(0o755)
    return root


def set_up(root, **variables):
    """What `setup --no-build` says; LibTorch, which it would fetch, is there."""
    done = subprocess.run([root / "tools/setup", "--no-build"], capture_output=True, text=True, env=os.environ | variables, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_build_of_another_folder_is_left_and_one_s_own_stays(checkout, tmp_path):
    libtorch = tmp_path / "torch"
    (libtorch / "include").mkdir(parents=True)
    (checkout / "build/release/.built").write_text(f"{tmp_path}/original/.deps/libtorch-2.11.0/torch\n")
    said = set_up(checkout, TRAINRUN_LIBTORCH=str(libtorch))
    assert f"build/release was made in {tmp_path}/original, and this checkout is a copy of it; it is built again" in said
    assert not (checkout / "build/release").exists()
    assert (checkout / "build/dev/CMakeCache.txt").exists()
    assert "build/dev" not in said


def test_a_libtorch_that_was_chosen_stays_chosen(checkout, tmp_path):
    libtorch = tmp_path / "torch"
    (libtorch / "include").mkdir(parents=True)
    (checkout / "build/release/.built").write_text(f"{libtorch}\n")
    environment = {name: value for name, value in os.environ.items() if name != "TRAINRUN_LIBTORCH"}
    done = subprocess.run([checkout / "tools/setup", "--no-build"], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (checkout / "build/release").iterdir()] == [".built"]
    assert (checkout / "build/release/.built").read_text() == f"{libtorch}\n"


@pytest.mark.parametrize("home, said", [("original", "setting up"), ("copy", "the binary")])
def test_the_binary_of_another_folder_is_not_run(checkout, tmp_path, home, said):
    """It would run on the libraries of that folder."""
    (checkout / "tools/setup").write_text("#!/bin/sh\necho setting up >&2\nexit 1\n")
    for folder in ("registry", "runner", "cmake"):
        (checkout / folder).mkdir()
    (checkout / "CMakePresets.json").touch()
    (checkout / "build/release/CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={tmp_path / home}\n")
    (checkout / "build/release/.built").write_text("\n")
    environment = {name: value for name, value in os.environ.items() if name != "TRAINRUN_LIBTORCH"}
    done = subprocess.run([checkout / "trainrun", "env"], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.stdout + done.stderr).strip() == said
