"""Where the tests of GPUs find what they need."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("TRAINRUN_BINARY", str(ROOT / "build/release/bin/trainrun"))
BUILD = pathlib.Path(os.environ.get("TRAINRUN_BUILD_DIR", str(ROOT / "build/release")))
LIBRARY = BUILD / "lib/libtrainrun_cuda.so"

HAS_GPU = any(re.fullmatch(r"nvidia\d+", device.name) for device in pathlib.Path("/dev").iterdir())
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="no GPU here (no /dev/nvidia0)")
needs_none = pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")


def trainrun(*arguments, **variables):
    return subprocess.run([BINARY, *map(str, arguments)], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600, check=False)
