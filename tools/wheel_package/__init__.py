"""trainrun beside the PyTorch of this Python: `trainrun RECIPE` trains what a recipe says.

The program is not Python. This package only finds the torch whose libraries the program runs on, and the pyarrow
whose libraries read Parquet files, without importing them, and lets the program take the place of the Python process.
"""

import importlib.util
import os
import sys

#: The folder that holds bin, lib, include and share: what CMake's find_package(trainrun) takes in CMAKE_PREFIX_PATH.
prefix = os.path.dirname(os.path.abspath(__file__))


def needed_torch():
    """The version of torch that the program was built with, "2.11.0". It runs on each 2.11."""
    with open(os.path.join(prefix, "torch_version"), encoding="ascii") as file:
        return file.read().strip()


def torch_folder():
    """The folder of the torch that `import torch` would load. Exits with a message if there is none, or one of another release."""
    needed = needed_torch()
    series = needed.rpartition(".")[0]
    cure = f"; install it with: {sys.executable} -m pip install torch=={needed}"
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        sys.exit(f"trainrun: there is no torch for {sys.executable}, and trainrun runs on the libraries of torch {series}{cure}")
    folder = os.path.dirname(spec.origin)
    with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
        version = next((line.split("'")[1] for line in file if line.startswith("__version__ = '")), "of an unknown version")
    if not version.startswith(series + "."):
        sys.exit(f"trainrun: {folder} is torch {version}, and this trainrun runs on torch {series}{cure}")
    return folder


def is_beside(folder):
    """Whether a package lies beside this one, where the program itself looks for it."""
    beside = os.path.join(os.path.dirname(prefix), os.path.basename(folder))
    return os.path.realpath(folder) == os.path.realpath(beside)


def main():
    """Executes the program with this process's arguments."""
    libraries = []
    torch = torch_folder()
    if not is_beside(torch):
        libraries.append(os.path.join(torch, "lib"))
    pyarrow = importlib.util.find_spec("pyarrow")  # the program says what is wrong where it needs one and there is none
    if pyarrow and pyarrow.origin and not is_beside(os.path.dirname(pyarrow.origin)):
        libraries.append(os.path.dirname(pyarrow.origin))
    if libraries:
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(libraries + ([before] if before else []))
    program = os.path.join(prefix, "bin", "trainrun")
    os.execv(program, [program, *sys.argv[1:]])
