"""The program, as tests call it."""

import os
import pathlib
import re
import subprocess
import time

_BUILT = str(pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/trainrun")

BINARY = os.environ.get("TRAINRUN_BINARY", _BUILT)

# The same, for calls that are only waited for: they take a start that was made before, if there is one (tests/warm).
# What is killed, measured or looked at as a process is started by BINARY.
CALLED = os.environ.get("TRAINRUN_CALLED", BINARY)


def peak_memory(command: list, **options) -> int:
    """The most resident bytes of a process, which must end well.

    Not what wait4 says: that begins with what this process, from which the other was forked, holds itself.
    """
    running = subprocess.Popen([str(word) for word in command], **options)
    peak = 0
    while running.poll() is None:
        found = re.search(r"^VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{running.pid}/status").read_text(), re.MULTILINE)
        peak = max(peak, int(found.group(1)) * 1024 if found else 0)
        time.sleep(0.005)
    assert running.returncode == 0 and peak > 0, running.returncode
    return peak
