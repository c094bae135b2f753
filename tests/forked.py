"""Python's modules run as programs, in copies of this process: what it has imported, torch above all, they need not import again."""

import importlib
import os
import signal
import subprocess
import sys


def forked(module: str, function: str, arguments: list, env: dict | None = None, **options) -> subprocess.Popen:
    """What subprocess.Popen gives for a Python that calls `function` of the module with the arguments, and gets `options`. It is a process of
    its own: killed, told to stop and waited for as any. Call it where torch has not computed in this process yet."""
    words = [str(word) for word in arguments]
    environment = dict(os.environ if env is None else env)
    return subprocess.Popen(["python", "-m", module, *words], preexec_fn=lambda: _become(module, function, words, environment), **options)


def _let_go_of_files() -> None:
    """But keeps their numbers: objects of before still have them, and close them some day."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != nothing and os.path.exists(f"/proc/self/fd/{number}"):
            os.dup2(nothing, number, inheritable=False)


def _become(module: str, function: str, arguments: list[str], environment: dict[str, str]) -> None:
    """In the child, where its streams and folder are set. Popen waits for the end of a pipe, which exec would close."""
    status = 1
    try:
        _let_go_of_files()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [module, *arguments]
        getattr(importlib.import_module(module), function)(arguments)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
