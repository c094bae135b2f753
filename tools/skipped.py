#!/usr/bin/env python3
"""Prints one line on the tests that ctest's log lists as skipped, and how to have them; nothing where none was.

    tools/skipped.py build/release/Testing/Temporary/LastTest.log
"""

import collections
import pathlib
import re
import sys

# What is missing, as the reasons of skipped tests say it -> (what they are for want of, how to have it).
CURES = [
    (r"^no data\b", "data", "run ./trainrun recipes/mnist_cnn.yaml once, which fetches it, or set TRAINRUN_DATA to a folder with mnist/"),
    (r"^no GPU\b|NVIDIA|TensorFloat-32", "a GPU", "run tools/test on a machine with one"),
    (r"^there is a GPU", "a machine without a GPU", "run tools/test on one"),
    (r"tools/setup --tests", "a launcher", "tools/setup --tests installs it"),
    (r"namespaces|network cable", "namespaces of their own", "run tools/test as root, in a container with --privileged"),
    (r"^no network", "a network", "run tools/test where there is another address than 127.0.0.1"),
    (r"one core", "a second core", "let this process use two"),
    (r"^no Chromium", "a browser", "apt-get install chromium, 122 MB to fetch"),
    (r"^axe-core", "axe-core", ".deps/python/bin/python -m pip install --no-deps axe-playwright-python"),
    (r"build all", "a built program", "run tools/setup --tests"),
]
# Combinations that mean nothing: nothing is missing.
NOT_MEANT = r"^(not torch\.optim's|the batch is the only dimension|of several processes)"

SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] [^ ]+?:(?:\d+:)? (.*)$|MESSAGE: skipped: (.*)$", re.MULTILINE)


def summary(log):
    """The line about what `log`, ctest's, says was skipped; "" for nothing."""
    counts = collections.Counter()
    for count, reason, message in SKIPPED.findall(log):
        reason = reason or message
        if re.search(NOT_MEANT, reason):
            continue
        cure = next(((what, how) for pattern, what, how in CURES if re.search(pattern, reason)), (reason, ""))
        counts[cure] += int(count or 1)
    if not counts:
        return ""
    parts = [f"{count} for want of {what} ({how})" if how else f"{count}: {what}" for (what, how), count in counts.most_common()]
    total = sum(counts.values())
    return f"skipped {total} test{'' if total == 1 else 's'}: " + "; ".join(parts)


if __name__ == "__main__":
    line = summary(pathlib.Path(sys.argv[1]).read_text(errors="replace"))
    if line:
        print(line)
