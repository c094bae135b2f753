"""One small job of two ranks, however they are started, and what tells whether it trained."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest

from tests.forked import forked
from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = str(ROOT / "tests/recipes/digits_small.yaml")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}  # however a launcher shares the cores, the sums are the same

RANKS = ["distributed_type=MULTI_CPU", "dataloader={batch_size: 16}", "logging.every_steps=1", "evaluation.every=null"]
SHORT = [*RANKS, "training={num_epochs: null, max_steps: 30}", "checkpoint.every=null"]
LONG = [*RANKS, "training={num_epochs: 4000}", "checkpoint.every=null"]


def command(folder, *overrides: str) -> list[str]:
    return [BINARY, RECIPE, f"output_dir={folder}", *overrides]


def called(folder, *overrides: str) -> list[str]:
    """The same, where it is only waited for: see tests/program.py."""
    return [CALLED, *command(folder, *overrides)[1:]]


def run(arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run(arguments, **{"cwd": ROOT, "env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 120, "check": False} | options)


def start(arguments, **options) -> subprocess.Popen:
    return subprocess.Popen(arguments, **{"cwd": ROOT, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options)


def start_torchrun(arguments, **options) -> subprocess.Popen:
    """torchrun, as `python -m torch.distributed.run` starts it: its main, in a copy of this process."""
    words = ["--no-python", "--monitor-interval", "0.1", *arguments]
    return forked("torch.distributed.run", "main", words, **{"cwd": ROOT, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options)


def run_torchrun(arguments, **options) -> subprocess.CompletedProcess:
    with start_torchrun(arguments, **options) as agent:
        try:
            stdout, stderr = agent.communicate(timeout=120)
        except BaseException:
            agent.kill()
            raise
    return subprocess.CompletedProcess(agent.args, agent.returncode, stdout, stderr)


@contextlib.contextmanager
def ending(*processes: subprocess.Popen):
    """Those that are still there at the end are killed."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]


def losses(folder) -> list[float]:
    return [line["train/loss"] for line in lines(folder)]


def assert_trained_as(folder, expected: list[float]):
    assert losses(folder) == pytest.approx(expected, rel=1e-6)
    assert not list(folder.parent.glob(folder.name + "-*")), "each process has trained for itself"


def need(program: str):
    """The program's path; /usr/sbin is not in every user's PATH."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    return found or pytest.skip(f"no {program} here: tools/setup --tests installs it")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def wait_for(condition, *processes: subprocess.Popen, seconds: float = 240):
    """Polls until `condition()`; the processes must not end before."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def has_trained(folder, steps: int = 3):
    metrics = pathlib.Path(folder) / "metrics.jsonl"
    return lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= steps


def processes() -> dict[int, tuple[int, str, dict[str, str]]]:
    """Of this program: parent, command line, environment."""
    found, program = {}, os.path.realpath(BINARY)
    for number in filter(str.isdigit, os.listdir("/proc")):  # tests ask this fifty times a second: no object for each process
        with contextlib.suppress(OSError, IndexError):
            if os.readlink(f"/proc/{number}/exe") == program:
                entry = pathlib.Path("/proc", number)
                environment = dict(line.split("=", 1) for line in (entry / "environ").read_text().split("\0") if "=" in line)
                found[int(number)] = (parent_of(int(number)), (entry / "cmdline").read_text(), environment)
    return found


def parent_of(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def ranks_of(folder, variable: str = "RANK", below: int | None = None) -> dict[int, int]:
    """The process of each rank of a run; of those that `below` is the parent of, where it is given."""
    return {int(environment[variable]): pid for pid, (parent, words, environment) in processes().items()
            if f"output_dir={folder}" in words.split("\0") and variable in environment and below in (None, parent)}


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it has gone, or goes while it is read
        return False


def kill(pid: int):
    os.kill(pid, signal.SIGKILL)
