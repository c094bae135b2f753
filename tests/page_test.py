"""A page ends the processes that its tests left behind, and fails for them."""

import subprocess
import sys
import time

from tests.launch.launching import is_alive

PAGE = """\
import os, subprocess
from tests import page
os.setsid()
left = {start}
print(page.end_what_is_left())
"""


def ended(start: str) -> str:
    return subprocess.run([sys.executable, "-c", PAGE.format(start=start)], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def test_a_process_that_was_left_behind_is_named_and_killed():
    said = ended("subprocess.Popen(['sleep', '100'])")
    words = said.split()
    number = int(words[words.index("process") + 1])
    assert said == f"a test of this page left process {number} behind, which is killed: sleep 100\nFalse\n"
    deadline = time.monotonic() + 10
    while is_alive(number):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_those_that_end_in_time_or_belong_to_nobody_here_are_let_be():
    with subprocess.Popen(["sleep", "100"]) as other:
        assert ended("subprocess.Popen(['sleep', '0.1'])") == "True\n"
        assert other.poll() is None
        other.kill()
