"""trainrun beside the PyTorch of this Python: `trainrun RECIPE` trains what a recipe says.

The program is not Python. This package only finds the torch whose libraries the program runs on, without importing
it, and lets the program take the place of the Python process.
"""

import importlib.util
import os
import sys

#: The folder that holds bin, lib, include and share: what CMake's find_package(trainrun) takes in CMAKE_PREFIX_PATH.
prefix = os.path.dirname(os.path.abspath(__file__))


def needed_torch():
    """The version of torch that the program was built for, "2.11.0"."""
    with open(os.path.join(prefix, "torch_version"), encoding="ascii") as file:
        return file.read().strip()


def torch_folder():
    """The folder of the torch that `import torch` would load. Exits with a message if there is none, or another version."""
    needed = needed_torch()
    cure = f"; install it with: {sys.executable} -m pip install torch=={needed}"
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        sys.exit(f"trainrun: there is no torch for {sys.executable}, and trainrun runs on the libraries of torch {needed}{cure}")
    folder = os.path.dirname(spec.origin)
    with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
        version = next((line.split("'")[1] for line in file if line.startswith("__version__ = '")), "of an unknown version")
    if version.split("+")[0] != needed:
        sys.exit(f"trainrun: {folder} is torch {version}, and this trainrun runs on torch {needed}{cure}")
    return folder


def main():
    """Executes the program with this process's arguments."""
    torch = torch_folder()
    beside = os.path.join(os.path.dirname(prefix), "torch")
    if os.path.realpath(torch) != os.path.realpath(beside):  # the program itself looks for torch beside this package
        libraries = [os.path.join(torch, "lib"), os.environ.get("LD_LIBRARY_PATH")]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    program = os.path.join(prefix, "bin", "trainrun")
    os.execv(program, [program, *sys.argv[1:]])
