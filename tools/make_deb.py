#!/usr/bin/env python3
"""Makes a Debian package of a build: what `cmake --install` installs, LibTorch and Arrow included, below /usr/lib/trainrun.

Usage: make_deb.py BUILD_FOLDER DEB_FOLDER [COMPRESSION]

COMPRESSION: xz (default), gzip or none, as dpkg-deb has it. The packages that the program needs are what dpkg-shlibdeps finds. What plugins are
compiled against (headers, CMake's package) is left out: a checkout has it. DEBFULLNAME and DEBEMAIL say who maintains the package, as for Debian's own
tools. Prints the package's path.
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tools/deb_package"
ELSEWHERE = ["include", "lib/cmake", "share/trainrun/schemas"]  # for plugins and editors
COMPLETIONS = {"bash": "bash-completion/completions/trainrun", "zsh": "zsh/vendor-completions/_trainrun", "fish": "fish/vendor_completions.d/trainrun.fish"}


def run(*command, **options) -> str:
    """Runs a command and returns what it prints; what it says of an error is shown."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}make_deb: {command[0]} failed (see above)")
    return done.stdout


def filled(name: str, **values: str) -> str:
    """A file of deb_package with its @NAMES@ replaced."""
    values["maintainer"] = f"{os.environ.get('DEBFULLNAME', 'The trainrun project')} <{os.environ.get('DEBEMAIL', 'trainrun@localhost')}>"
    return re.sub(r"@([A-Z]+)@", lambda found: values[found.group(1).lower()], (PACKAGE / name).read_text())


def require_tools() -> None:
    for tool in ("as", "dpkg-deb", "dpkg-shlibdeps", "ld", "strip"):
        if not shutil.which(tool):
            sys.exit(f"make_deb: there is no {tool}; install dpkg-dev and binutils")


def is_elf(path: pathlib.Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def packed(target: pathlib.Path, text: str) -> None:
    """Writes a .gz that does not depend on the time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def install_program(build: pathlib.Path, home: pathlib.Path) -> list[pathlib.Path]:
    """Installs into `home`; returns the programs and libraries."""
    for component in ("trainrun", "libtorch"):
        run("cmake", "--install", build, "--component", component, "--prefix", home, stderr=subprocess.DEVNULL)
    if not (home / "bin/trainrun").is_file():
        sys.exit(f"make_deb: {build} has no program; build the target trainrun first")
    for name in ELSEWHERE:
        shutil.rmtree(home / name, ignore_errors=True)
    if not (home / "lib/trainrun/torch/lib/libtorch_cuda.so").exists():
        (home / "lib/libtrainrun_cuda.so").unlink(missing_ok=True)  # which could not be opened
    files = [path for path in home.rglob("*") if is_elf(path)]
    for path in files:
        run("strip", "--strip-unneeded", "--remove-section=.comment", "--remove-section=.note", path)
        path.chmod(0o755 if path.parent.name == "bin" or path.name == "trainrun-starter" else 0o644)
    return files


def add_documents(tree: pathlib.Path, home: pathlib.Path, version: str) -> None:
    documents = tree / "usr/share/doc/trainrun"
    documents.mkdir(parents=True)
    notices = []
    for folder in sorted((home / "lib/trainrun").glob("*.dist-info")):
        target = documents / "licences" / folder.name.removesuffix(".dist-info")
        shutil.move(folder / "licenses", target)
        shutil.rmtree(folder)
        notices.append(f" {target.relative_to(tree).as_posix()}")
    (documents / "copyright").write_text(filled("copyright", licences="\n".join(notices).lstrip()))
    packed(documents / "changelog.gz", filled("changelog", version=version))
    shutil.copy(PACKAGE / "README.Debian", documents)
    overrides = tree / "usr/share/lintian/overrides/trainrun"
    overrides.parent.mkdir(parents=True)
    shutil.copy(PACKAGE / "lintian-overrides", overrides)


def add_completions(tree: pathlib.Path, home: pathlib.Path) -> None:
    program = home / "bin/trainrun"
    for shell, place in COMPLETIONS.items():
        target = tree / "usr/share" / place
        target.parent.mkdir(parents=True)
        target.write_text(run(program, "completion", shell))
    packed(tree / "usr/share/man/man1/trainrun.1.gz", run(program, "completion", "man"))


def needed_libraries(file: pathlib.Path) -> set[str]:
    return set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", file)))


def looked_through(files: list[pathlib.Path]) -> list[pathlib.Path]:
    """The files whose symbols say which packages are needed. LibTorch's have so many that dpkg-shlibdeps takes half a minute for them, and they are built for older
    systems than the program: one of them is looked through only if it needs a library that neither the program needs nor the package brings."""
    own = [path for path in files if path.parent.parent.name != "torch" and path.name != "trainrun-starter"]
    known = set().union({path.name for path in files}, *map(needed_libraries, own))
    return own + [path for path in files if path.parent.parent.name == "torch" and not needed_libraries(path) <= known]


def add_stand_ins(libraries: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Libraries of the same names, without symbols: dpkg-shlibdeps takes 5 s to read LibTorch's, which no package has."""
    folder.mkdir()
    run("as", "-o", folder / "empty.o", input="")
    for library in libraries:
        run("ld", "-shared", "-soname", library.name, "-o", folder / library.name, folder / "empty.o")


def needed_packages(files: list[pathlib.Path], folder: pathlib.Path) -> str:
    """What dpkg-shlibdeps finds: "libc6 (>= 2.35), libcurl4 (>= 7.16.2), …"."""
    (folder / "debian").mkdir()
    (folder / "debian/control").write_text("Source: trainrun\n\nPackage: trainrun\nArchitecture: amd64\n")
    read = looked_through(files)
    brought = [path for path in files if ".so" in path.name]
    add_stand_ins([path for path in brought if path not in read], folder / "stand_ins")
    own = [folder / "stand_ins", *sorted({path.parent for path in brought if path in read})]
    options = ["-O", "--ignore-missing-info", *(f"-l{path}" for path in own)]
    found = run("dpkg-shlibdeps", *options, *(f"-e{path}" for path in read), cwd=folder, stderr=subprocess.DEVNULL)
    return re.search(r"shlibs:Depends=(.*)", found).group(1)


def add_control(tree: pathlib.Path, version: str, depends: str) -> None:
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum((path.stat().st_size + 1023) // 1024 for path in files)
    control = tree / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(filled("control", version=version, size=str(size), depends=depends))
    sums = run("md5sum", *(path.relative_to(tree) for path in files), cwd=tree)
    (control / "md5sums").write_text(sums)
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        elif not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def main(build: str, destination: str, compression: str = "xz") -> None:
    require_tools()
    os.umask(0o022)
    version_file = (pathlib.Path(build) / "trainrunConfigVersion.cmake").read_text()
    version = re.search(r'set\(PACKAGE_VERSION "([0-9.]+)"\)', version_file).group(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        tree = folder / "tree"
        home = tree / "usr/lib/trainrun"
        files = install_program(pathlib.Path(build).resolve(), home)
        (tree / "usr/bin").mkdir()
        (tree / "usr/bin/trainrun").symlink_to("../lib/trainrun/bin/trainrun")
        add_documents(tree, home, version)
        add_completions(tree, home)
        add_control(tree, version, needed_packages(files, folder))
        pathlib.Path(destination).mkdir(parents=True, exist_ok=True)
        target = pathlib.Path(destination).resolve() / f"trainrun_{version}_amd64.deb"
        run("dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", tree, target)
        print(target)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
