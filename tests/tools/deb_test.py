"""The Debian package of this build, unpacked into a folder of its own, and the recipe for an image that installs it."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["TRAINRUN_BUILD_DIR"])
PLAIN_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINRUN_", "LD_", "PYTHON"))}

NOT_COMPRESSED = "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball"  # only here


def run(*command, folder, code=0):
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600, check=False, env=PLAIN_ENVIRONMENT)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture(scope="module", name="package")
def made_package(tmp_path_factory):
    """The package, not compressed: xz takes minutes."""
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("there is no dpkg-shlibdeps (dpkg-dev)")
    folder = tmp_path_factory.mktemp("deb")
    run(sys.executable, ROOT / "tools/make_deb.py", BUILD, folder, "none", folder=folder)
    [package] = folder.glob("trainrun_*_amd64.deb")
    return package


@pytest.fixture(scope="module", name="tree")
def unpacked_package(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    run("dpkg", "-x", package, folder, folder=folder)
    return folder


def test_the_program_trains_from_where_it_was_unpacked(tree, tmp_path):
    said = run(tree / "usr/bin/trainrun", "recipes/digits_mlp.yaml", "training={max_steps: 3}", folder=tmp_path)
    assert f"this is {tree}/usr/lib/trainrun/share/trainrun/recipes/digits_mlp.yaml" in said
    assert (tmp_path / "runs/digits_mlp/summary.json").is_file()
    libraries = run("ldd", tree / "usr/lib/trainrun/bin/trainrun", folder=tmp_path)
    assert re.search(rf"libtorch_cpu.so => {tree}/usr/lib/trainrun/", libraries) and "not found" not in libraries
    run(tree / "usr/bin/trainrun", "bundle", "runs/digits_mlp", "--level", "1", folder=tmp_path)
    assert "libtorch_cpu" not in run(tmp_path / "digits_mlp.run", "--help", folder=tmp_path)


def test_it_depends_on_packages_for_all_that_it_does_not_bring(package, tree):
    about = run("dpkg-deb", "--field", package, folder=tree)
    depends = re.search(r"^Depends: (.*)$", about, re.MULTILINE).group(1)
    assert {"libc6", "libstdc++6", "libsqlite3-0", "libturbojpeg0", "libwebp7"} <= set(re.findall(r"(?:^|, )([\w.+-]+)", depends)), depends
    assert "torch" not in depends and "python" not in depends
    assert re.search(r"^Installed-Size: \d{6}$", about, re.MULTILINE)


def test_manual_page_completions_and_licences_are_in_their_places(tree):
    share = tree / "usr/share"
    assert gzip.decompress((share / "man/man1/trainrun.1.gz").read_bytes()).startswith(b".TH")
    for name in ("bash-completion/completions/trainrun", "zsh/vendor-completions/_trainrun", "fish/vendor_completions.d/trainrun.fish"):
        assert "trainrun" in (share / name).read_text()
    documents = share / "doc/trainrun"
    assert list(documents.glob("licences/torch-2.*/*")) and list(documents.glob("licences/nvidia_cuda_runtime-*/*"))
    assert "usr/share/doc/trainrun/licences/torch-2." in (documents / "copyright").read_text()
    assert not list(tree.rglob("*.h")) and not list(tree.rglob("*.cmake"))


@pytest.mark.skipif(not shutil.which("lintian") or not os.environ.get("TRAINRUN_LONG_TESTS"), reason="takes minutes: with lintian installed, TRAINRUN_LONG_TESTS=1")
def test_lintian_finds_no_errors(package):
    found = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", "--suppress-tags", NOT_COMPRESSED, package], capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_image_is_made_of_the_package_and_runs_as_a_user():
    """No docker here: what can be told from the text, and by hadolint where it is."""
    file = ROOT / "tools/docker/Dockerfile"
    text = file.read_text()
    assert re.search(r"^ARG DEBIAN=debian:[\d.]+-slim$", text, re.MULTILINE) and re.search(r"^USER 1000$", text, re.MULTILINE)
    guide = (ROOT / "docs/guide/deploying.md").read_text()
    for command in re.findall(r"^#   (docker .*)$", text, re.MULTILINE):
        assert command.split(" -v ")[0].removeprefix("docker run --rm") in guide
    if shutil.which("hadolint"):
        run("hadolint", file, folder=ROOT)
