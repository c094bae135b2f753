"""Runs programs and looks on: how long they take, and the memory that they and their children hold."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
BENCH_PACKAGES = ROOT / ".deps" / "bench"


class Failed(Exception):
    """A program that did not end well; says what it printed last."""


@dataclasses.dataclass
class Done:
    output: str
    whole: float  # seconds from start to exit
    first: float | None = None  # seconds from start to the line that was waited for
    peak_mib: float = 0  # of the process itself
    tree_mib: float = 0  # with its children, memory that they share counted once; 0 where nobody asked


def children_of(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for listing in pathlib.Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, listing.read_text().split())
            except OSError:  # it ended meanwhile
                pass
    return found


def number_in(path: str, name: str) -> int:
    """The kB of a line of one of /proc's files; 0 where the process has ended."""
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB", pathlib.Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match.group(1)) if match else 0


def watch(process: subprocess.Popen, done: Done, with_children: bool) -> None:
    """Until the process ends. What wait4 says would begin with what this process, from which the other was forked, holds itself."""
    while process.poll() is None:
        done.peak_mib = max(done.peak_mib, number_in(f"/proc/{process.pid}/status", "VmHWM") / 1024)
        if with_children:
            whole = sum(number_in(f"/proc/{pid}/smaps_rollup", "Pss") for pid in children_of(process.pid))
            done.tree_mib = max(done.tree_mib, whole / 1024)
        time.sleep(0.02 if with_children else 0.1)


def run(command: list, environment: dict | None = None, timeout: float = 3600, wait_for: str | None = None, with_children: bool = False) -> Done:
    """Throws Failed where the program fails, or takes longer than `timeout`."""
    words = [str(word) for word in command]
    done = Done("", 0)
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=os.environ | (environment or {}), stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        timer = threading.Timer(timeout, lambda: os.killpg(process.pid, signal.SIGKILL))
        looker = threading.Thread(target=watch, args=(process, done, with_children))
        timer.start()
        looker.start()
        lines = []
        try:
            for line in process.stdout:
                if wait_for and done.first is None and re.search(wait_for, line):
                    done.first = time.perf_counter() - begin
                lines.append(line)
            process.wait()
            done.whole = time.perf_counter() - begin
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
            looker.join()
        done.output = "".join(lines)
        if process.returncode != 0:
            errors.seek(0)
            said = (done.output + errors.read()).strip().splitlines()[-8:]
            why = f"took longer than {timeout:.0f} s" if process.returncode == -signal.SIGKILL and done.whole >= timeout else f"exit {process.returncode}"
            raise Failed(f"{' '.join(words[:3])} …: {why}\n  " + "\n  ".join(said))
    if wait_for and done.first is None:
        raise Failed(f"{' '.join(words[:3])} …: printed no line like {wait_for!r}")
    return done


def peer_call(python: pathlib.Path, wishes: dict, ranks: int = 1) -> tuple[list, dict]:
    environment = {"PYTHONPATH": str(BENCH_PACKAGES)} if wishes["way"] == "Lightning" else {}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks] if ranks > 1 else []
    return [python, "-B", *launcher, HERE / "peer.py", json.dumps(wishes)], environment


def peer(python: pathlib.Path, wishes: dict, ranks: int = 1, environment: dict | None = None, **options) -> tuple[dict, Done]:
    """A peer's figures: its last line."""
    command, more = peer_call(python, wishes, ranks)
    done = run(command, more | (environment or {}), **options)
    return json.loads(done.output.splitlines()[-1]), done


class Session:
    """A peer that stays between its turns, warm, and trains another round when it is asked."""

    def __init__(self, python: pathlib.Path, wishes: dict, environment: dict, timeout: float):
        command, more = peer_call(python, wishes | {"measure": "turns"})
        self.words, self.timeout = [str(word) for word in command], timeout
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=ROOT,
                                        env=os.environ | more | environment, start_new_session=True)

    def round(self) -> dict:
        """Its figures; asked before the process is warm, they follow when it is."""
        timer = threading.Timer(self.timeout, lambda: os.killpg(self.process.pid, signal.SIGKILL))
        timer.start()
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            line = next((line for line in self.process.stdout if line.startswith('{"value"')), None)
        except BrokenPipeError:
            line = None
        finally:
            timer.cancel()
        if line is None:
            self.close()
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines()[-8:]
            raise Failed(f"{' '.join(self.words[:3])} …: exit {self.process.returncode}\n  " + "\n  ".join(said))
        return json.loads(line) | {"peak_mib": number_in(f"/proc/{self.process.pid}/status", "VmHWM") / 1024}

    def close(self) -> None:
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        with contextlib.suppress(ProcessLookupError):  # its data loader's workers
            os.killpg(self.process.pid, signal.SIGKILL)
