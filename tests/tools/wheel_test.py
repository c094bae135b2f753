"""A wheel of this build, installed beside torch in virtual environments of their own."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pyarrow.parquet
import pytest

from plugin_guide import ROOT, build_plugin, check_explained_and_trained, run

BUILD = pathlib.Path(os.environ["TRAINRUN_BUILD_DIR"])
WITH_TORCH = pathlib.Path(sysconfig.get_path("purelib"))  # of the Python that runs the tests
TORCH = re.search(r"TRAINRUN_LIBTORCH_RELEASES ([0-9.]+)", (BUILD / "trainrunConfig.cmake").read_text()).group(1)
SERIES = TORCH.rpartition(".")[0]
# What LibTorch brings along, and what every Linux with Python has: glibc, the libraries of g++, and zlib.
OF_TORCH = {"libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so", "libgomp.so.1"}
OF_PYARROW = {"libarrow.so.2600", "libparquet.so.2600"}  # for Parquet alone
PLAIN = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2",
         "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"}
# A compiler's or a launcher's settings are not of a plain machine.
PLAIN_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINRUN_", "LD_", "PYTHON"))}


@pytest.fixture(scope="module", name="wheel")
def made_wheel(tmp_path_factory):
    """The wheel of the build that is tested, not compressed."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, ROOT / "tools/make_wheel.py", BUILD, folder, folder=folder, env=os.environ | {"AUDITWHEEL_ZIP_COMPRESSION_LEVEL": "0"})
    [wheel] = folder.glob("*.whl")
    return wheel


def environment_with(wheel, folder):
    """A fresh virtual environment in `folder` with the wheel alone; its site-packages."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-index", "--no-deps", wheel, folder=folder.parent)
    return packages_of(folder)


@contextlib.contextmanager
def with_links(packages, *names):
    """While it lasts, these packages of the tests' Python are beside the wheel."""
    links = [packages / name for name in names if (WITH_TORCH / name).exists()]
    for link in links:
        link.symlink_to(WITH_TORCH / link.name)
    try:
        yield
    finally:
        for link in links:
            link.unlink()


def packages_of(environment):
    [packages] = environment.glob("lib/python3.*/site-packages")
    return packages


@pytest.fixture(scope="module", name="beside")
def environment_with_torch_beside(wheel, tmp_path_factory):
    """An environment whose site-packages has torch and its libraries, as pip would lay them."""
    folder = tmp_path_factory.mktemp("beside") / "environment"
    with with_links(environment_with(wheel, folder), "torch", "nvidia"):
        yield folder


@pytest.fixture(scope="module", name="elsewhere")
def environment_with_torch_elsewhere(wheel, tmp_path_factory):
    """An environment that finds torch in another folder of sys.path."""
    folder = tmp_path_factory.mktemp("elsewhere") / "environment"
    packages = environment_with(wheel, folder)
    (packages / "torch.pth").write_text(f"{WITH_TORCH}\n")
    return folder


def test_the_digits_train_with_nothing_compiled(beside, tmp_path):
    text = run(beside / "bin/trainrun", "recipes/digits_cnn.yaml", "training.num_epochs=3", folder=tmp_path, env=PLAIN_ENVIRONMENT)
    assert "there is no recipes/digits_cnn.yaml here; this is " in text
    accuracy = re.findall(r'"eval/accuracy": ?([0-9.]+)', (tmp_path / "runs/digits_cnn/metrics.jsonl").read_text())
    assert float(accuracy[-1]) > 0.9
    assert (tmp_path / "runs/digits_cnn/checkpoints/latest/model.safetensors").is_file()


def test_two_processes_train_where_torch_is_elsewhere(elsewhere, tmp_path):
    options = ["distributed_type=MULTI_CPU", "num_processes=2", "training={max_steps: 2}"]
    run(elsewhere / "bin/trainrun", "recipes/digits_mlp.yaml", *options, folder=tmp_path, env=PLAIN_ENVIRONMENT)
    assert (tmp_path / "runs/digits_mlp/summary.json").is_file()


def write_parquet_recipe(folder):
    rows = {"x": [float(i % 7) for i in range(64)], "label": [i % 2 for i in range(64)]}
    pyarrow.parquet.write_table(pyarrow.table(rows), folder / "t.parquet")
    (folder / "r.yaml").write_text("""
version: 1
name: parquet
model: {layers: [{type: Linear, out_features: 2}]}
loss: CrossEntropyLoss
dataset: {train: {type: Parquet, path: t.parquet, label: label}}
dataloader: {batch_size: 8}
optimizer: {type: SGD, lr: 0.1}
training: {max_steps: 3}
""")


def test_parquet_is_read_by_the_pyarrow_beside_or_the_message_says_what_to_install(beside, tmp_path):
    packages = packages_of(beside)
    write_parquet_recipe(tmp_path)
    program = beside / "bin/trainrun"
    error = run(program, "r.yaml", folder=tmp_path, code=2, env=PLAIN_ENVIRONMENT)
    version = re.search(r"pyarrow==([0-9.]+)", (ROOT / "tools/requirements/arrow.lock").read_text()).group(1)
    assert "t.parquet: the libraries for Parquet and Arrow files cannot be opened (lib" in error
    assert f"where pip installed this trainrun, pip install pyarrow=={version}" in error
    [metadata] = packages.glob("trainrun-*.dist-info/METADATA")
    assert f'Requires-Dist: pyarrow=={version}; extra == "parquet"' in metadata.read_text()
    with with_links(packages, "pyarrow"):
        run(program, "r.yaml", folder=tmp_path, env=PLAIN_ENVIRONMENT)
    assert (tmp_path / "runs/parquet/summary.json").is_file()


def test_parquet_is_read_where_pyarrow_is_elsewhere(elsewhere, tmp_path):
    write_parquet_recipe(tmp_path)
    run(elsewhere / "bin/trainrun", "r.yaml", "distributed_type=MULTI_CPU", "num_processes=2", folder=tmp_path, env=PLAIN_ENVIRONMENT)
    assert (tmp_path / "runs/parquet/summary.json").is_file()


def test_python_is_gone_once_the_program_runs(beside, tmp_path):
    """What runs is the program itself, so signals reach it and Python costs no memory."""
    script = f"exec {beside}/bin/trainrun env > /dev/null; echo never"
    traced = run("strace", "-qq", "-f", "-e", "trace=execve", "sh", "-c", script, folder=tmp_path, env=PLAIN_ENVIRONMENT)
    programs = re.findall(r'^(\[pid .*)?execve\("([^"]+)", .* = 0$', traced, re.MULTILINE)
    assert programs[-1][1].endswith("site-packages/trainrun/bin/trainrun")
    assert all(not process for process, _ in programs)  # no process was started besides


def test_without_torch_the_message_says_what_to_install(elsewhere, tmp_path):
    packages = packages_of(elsewhere)
    program = elsewhere / "bin/trainrun"
    (packages / "torch.pth").rename(tmp_path / "torch.pth")
    try:
        error = run(program, "env", folder=tmp_path, code=1, env=PLAIN_ENVIRONMENT)
        assert "there is no torch for " in error and f"-m pip install torch=={TORCH}" in error
        (packages / "torch").mkdir()
        (packages / "torch/__init__.py").touch()
        (packages / "torch/version.py").write_text("__version__ = '2.9.1+cpu'\n")
        error = run(program, "env", folder=tmp_path, code=1, env=PLAIN_ENVIRONMENT)
        assert f"torch is torch 2.9.1+cpu, and this trainrun runs on torch {SERIES}; install it with" in error
    finally:
        shutil.rmtree(packages / "torch", ignore_errors=True)
        shutil.move(tmp_path / "torch.pth", packages)


def test_pip_knows_which_torch_the_wheel_is_for(beside, wheel):
    [metadata] = beside.glob("lib/python3.*/site-packages/trainrun-*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    assert f"Requires-Dist: torch=={SERIES}.*" in lines
    [version] = [line.removeprefix("Version: ") for line in lines if line.startswith("Version: ")]
    assert version.endswith(f"+torch{SERIES}") and wheel.name.startswith(f"trainrun-{version}-")


def test_the_plugin_guide_can_be_followed_against_the_wheel(beside, tmp_path):
    prefix = run(beside / "bin/python", "-c", "import trainrun; print(trainrun.prefix)", folder=tmp_path).strip()
    build_plugin(tmp_path, prefix)
    check_explained_and_trained(beside / "bin/trainrun", tmp_path)
    cache = (tmp_path / "build/CMakeCache.txt").read_text()
    assert str(ROOT / "registry") not in cache and "nlohmann_json_DIR" not in cache


def test_a_plugin_is_compiled_against_the_torch_that_the_program_finds(elsewhere, tmp_path):
    """Without being told where it is."""
    prefix = run(elsewhere / "bin/python", "-c", "import trainrun; print(trainrun.prefix)", folder=tmp_path).strip()
    (tmp_path / "mine.cpp").write_text("#include <registry/plugin.h>\nTRAINRUN_PLUGIN(catalog) {}\n")
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(mine LANGUAGES CXX)\n"
                                             "find_package(trainrun REQUIRED)\ntrainrun_add_plugin(mine mine.cpp)\n")
    run("cmake", "-G", "Unix Makefiles", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", folder=tmp_path, env=PLAIN_ENVIRONMENT)
    assert f"{WITH_TORCH}/torch/include" in (tmp_path / "build/CMakeFiles/mine.dir/flags.make").read_text()


def elf_files(beside):
    """Every program and library of the wheel."""
    packages = packages_of(beside)
    files = [path for path in packages.glob("trainrun*/**/*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if path.open("rb").read(4) == b"\x7fELF"]


def test_the_wheel_needs_no_library_that_a_plain_machine_lacks(beside):
    files = elf_files(beside)
    own = {path.name for path in files}
    assert {"trainrun", "libtrainrun_registry.so", "libtrainrun_arrow.so"} <= own and not own & OF_PYARROW
    needed = {}
    for path in files:
        for name in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", path, folder=beside)):
            needed.setdefault(name, []).append(path.name)
    assert all(needed[name] == ["libtrainrun_arrow.so"] for name in OF_PYARROW)
    strangers = {name: users for name, users in needed.items() if name not in own | OF_TORCH | OF_PYARROW | PLAIN}
    assert not strangers
    assert any(name.startswith("libyaml-cpp-") for name in needed)  # a name of its own: it meets no other yaml-cpp
    for path in files:
        [*found] = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", run("readelf", "-d", path, folder=beside))
        assert all(place.startswith("$ORIGIN") for text in found for place in text.split(":")), path


def test_the_readme_says_which_system_the_wheel_needs(beside, wheel):
    versions = {"GLIBC": (0,), "GLIBCXX": (0,)}
    for path in elf_files(beside):
        if path.name == "trainrun-starter":  # linked statically
            continue
        needed = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
        for name, version in re.findall(r"\((GLIBC|GLIBCXX)_([0-9.]+)\)", needed):
            versions[name] = max(versions[name], tuple(map(int, version.split("."))))
    text = {name: ".".join(map(str, version)) for name, version in versions.items()}
    readme = (ROOT / "README.md").read_text()
    stated = re.search(r"glibc ([0-9.]+) and GLIBCXX_([0-9.]+)", readme)
    assert stated, "README.md says nothing of glibc"
    as_numbers = [tuple(map(int, version.split("."))) for version in stated.groups()]
    assert versions["GLIBC"] <= as_numbers[0] and versions["GLIBCXX"] <= as_numbers[1], text
    tag = re.search(r"manylinux_(\d+)_(\d+)_x86_64", wheel.name)
    assert tag and versions["GLIBC"] <= tuple(map(int, tag.groups())), wheel.name
