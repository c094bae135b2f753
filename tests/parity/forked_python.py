"""A Python that starts at once: a script that a program may start as its Python, and that hands its arguments to a process
which has imported torch already. That one runs them in a copy of itself.
"""

import contextlib
import os
import pathlib
import runpy
import signal
import sys

SCRIPT = """#!/bin/sh
# The arguments, quoted, and where its output goes: one line for the process that waits.
exec 9>"{folder}/lock" && flock 9
{{ pwd; for argument in "$@"; do printf '%s\\0' "$argument"; done; }} > "{folder}/asked.$$"
echo "$$" > "{folder}/request"
read -r status < "{folder}/reply.fifo"
cat "{folder}/output"
exit "$status"
"""


def serve(folder: pathlib.Path) -> None:
    while True:
        number = (folder / "request").read_text().strip()  # a FIFO: waits
        if number == "end":
            return
        where, *words = (folder / f"asked.{number}").read_bytes().split(b"\n", 1)
        arguments = [word.decode() for word in words[0].split(b"\0")[:-1]]
        child = os.fork()
        if child == 0:
            run(folder, where.decode(), arguments)
        _, status = os.waitpid(child, 0)
        with open(folder / "reply.fifo", "w") as reply:
            reply.write(f"{os.waitstatus_to_exitcode(status)}\n")


def run(folder: pathlib.Path, where: str, arguments: list[str]) -> None:
    """As python ARGUMENTS in the folder `where`."""
    import torch

    status = 1
    try:
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2)
        torch.set_num_threads(1)
        os.chdir(where)
        if arguments[0] == "-c":
            exec(arguments[1], {})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        status = 0
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


@contextlib.contextmanager
def forked_python(folder: pathlib.Path):
    """The path of the script, as long as the context lasts. Begin it before torch has computed anything here."""
    os.mkfifo(folder / "request"), os.mkfifo(folder / "reply.fifo")
    script = folder / "python"
    script.write_text(SCRIPT.format(folder=folder))
    script.chmod(0o755)
    server = os.fork()
    if server == 0:
        try:
            serve(folder)
        finally:
            os._exit(0)
    try:
        yield script
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
