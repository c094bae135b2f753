"""The program, as tests call it."""

import os
import pathlib

_BUILT = str(pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/trainrun")

BINARY = os.environ.get("TRAINRUN_BINARY", _BUILT)

# The same, for calls that are only waited for: they take a start that was made before, if there is one (tests/warm).
# What is killed, measured or looked at as a process is started by BINARY.
CALLED = os.environ.get("TRAINRUN_CALLED", BINARY)
