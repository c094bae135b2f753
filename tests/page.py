"""Runs a page of tests by pytest, in a copy of a process that has imported what most pages need, where there is one.

    page.py run SOCKET FILE [PARTS [OPTION …]]   what ctest calls for each page; its output and exit code are pytest's, which gets the options
    page.py serve SOCKET                         starts that process, in the background (ctest does, before the first page)
    page.py stop SOCKET                          ends it

Importing torch, torchvision, pytest and scikit-learn takes 5 s of a processor, transformers and its models 2, and there are some 180 pages.
A page has a process of its own all the same: a copy, made by fork, of one that has only imported. Without a server `run` imports by itself. The
server also starts those of the program and of trainrun_probe (tests/warm), which end with it. `run` itself imports little: it may be called by
python -S, which finds no packages, and starts anew without that where there is no server.

A page whose tests wait more than they compute can be run as several PARTS beside each other, each with every PARTSth test.
"""

import json
import os
import signal
import socket
import struct
import sys

IMPORTED = ["numpy", "pytest", "safetensors.torch", "sklearn.datasets", "torch", "torchvision", "yaml"]
# What some thirty pages need, where it is installed. transformers imports a model, or its pipelines, when they are first named.
IMPORTED_IF_THERE = ["PIL.Image", "peft", "pyarrow.parquet", "scipy.stats", "sklearn.metrics", "tokenizers", "torch.distributed.run", "torchvision.transforms.v2",
                     "transformers", "transformers.models.auto.modeling_auto", "transformers.pipelines",
                     *(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "distilbert", "gpt2", "llama", "mistral", "qwen2", "qwen3", "roberta"))]
IDLE_S = 1200  # after which a server that nobody stopped ends


class Part:
    """Leaves only every `num_parts`th of the collected tests, from `first` on."""

    def __init__(self, first: int, num_parts: int):
        self.tests = slice(first, None, num_parts)

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = items[self.tests]


def run_pytest(file: str, first: int, num_parts: int, options: list[str]) -> int:
    import pytest

    if "torch" in sys.modules and "OMP_NUM_THREADS" in os.environ:  # which is read as torch is imported
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.path.insert(0, os.getcwd())  # as python -m pytest does
    # Plugins that packages bring (anyio's) would be imported, and rewritten, for each page. What is logged would be caught, for each phase of each
    # test, from every logger of every package.
    words = ["-q", "-rs", "-p", "no:cacheprovider", "-p", "no:logging", "--disable-plugin-autoload", *options, file]
    return int(pytest.main(words, plugins=[Part(first, num_parts)]))


def end_by(status: int) -> None:
    """Ends without taking torch apart."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def in_folder_of(path: str):
    """A path to a socket has 107 characters at most, so it is named from its folder."""
    os.chdir(os.path.dirname(path))
    return os.path.basename(path)


# --- The server ------------------------------------------------------------------------------------------------------


def become(request: dict, files: list[int]) -> None:
    """Takes over the working folder, the environment and the standard streams of whoever asked."""
    import tempfile

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None  # what our own TMPDIR said may have been kept there
    sys.argv = ["pytest", request["file"]]


def end_with(connection: socket.socket) -> None:
    """Ends the page's processes when ctest, for whom they work, has ended its own."""
    connection.recv(1)
    os.killpg(0, signal.SIGKILL)


def left_over() -> dict[int, str]:
    """The processes of this page's session that still run beside it: number and command."""
    found = {}
    for number in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{number}/stat") as file:
                state, _, _, session = file.read().rsplit(")", 1)[1].split()[:4]
            with open(f"/proc/{number}/cmdline") as file:
                command = file.read().replace("\0", " ").strip()
        except OSError:  # it has ended meanwhile
            continue
        if int(session) == os.getpid() and number != os.getpid() and state not in "ZX":
            found[number] = command
    return found


def end_what_is_left() -> bool:
    """A process that a test left behind would slow down, or disturb, the pages after this one. Whether there was none."""
    import contextlib
    import time

    deadline = time.monotonic() + 2
    while (left := left_over()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for number, command in left.items():
        print(f"a test of this page left process {number} behind, which is killed: {command[:200]}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return not left


def serve_page(connection: socket.socket) -> None:
    import threading
    import traceback

    size = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))[0]
    text, files, _, _ = socket.recv_fds(connection, 1, 3)
    text += connection.recv(size - 1, socket.MSG_WAITALL)
    request = json.loads(text)
    become(request, files)
    threading.Thread(target=end_with, args=(connection,), daemon=True).start()
    status = 1
    try:
        status = run_pytest(request["file"], request["first"], request["num_parts"], request["options"])
    except BaseException:
        traceback.print_exc()
    status = status if end_what_is_left() else status or 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([status]))
    os._exit(status)


def start_programs(environment: dict[str, str]) -> None:
    """Starts the program that is called as TRAINRUN_CALLED, and trainrun_probe, if it is built."""
    import subprocess

    warm = os.path.join(environment["TRAINRUN_BUILD_DIR"], "warm")
    probe = os.path.join(environment["TRAINRUN_BUILD_DIR"], "bin/trainrun_probe")
    servers = []
    for name, program in {"trainrun": environment["TRAINRUN_BINARY"], "trainrun_probe": probe}.items():
        variables = {"LD_PRELOAD": f"{warm}/libtrainrun_warm.so", "LD_BIND_NOW": "1",  # once, rather than in each call
                     "TRAINRUN_WARM_SOCKET": f"{warm}/{name}.socket", "TRAINRUN_WARM_CLIENT": f"{warm}/{name}"}
        if os.path.exists(program):
            servers.append(subprocess.Popen([program], env=environment | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    for server in servers:
        if server.stdout.readline() != b"ready\n":
            sys.exit(f"the server of {server.args[0]} did not start")


def seed_no_absent_devices() -> None:
    """torch.manual_seed keeps the seed for each kind of device that may yet be used, with the whole stack of who called: half a millisecond each."""
    import torch

    absent = [torch.xpu, torch.mtia, *([] if os.path.exists("/dev/nvidiactl") else [torch.cuda])]
    for device in absent:
        device.manual_seed_all = lambda seed: None


def serve(path: str) -> None:
    import gc

    environment = dict(os.environ)  # as the pages' will be: scikit-learn adds to ours
    for name in IMPORTED:
        __import__(name)
    for name in IMPORTED_IF_THERE:
        try:
            __import__(name)
        except ImportError:
            pass  # a page that needs it says so
    seed_no_absent_devices()
    gc.freeze()  # what the pages share is not looked through again, nor copied for it
    gc.set_threshold(20_000, 50, 50)  # as the pages inherit it: modules and test cases are many objects that stay
    name = in_folder_of(path)
    if os.path.exists(name):
        os.unlink(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    listener.settimeout(IDLE_S)
    ready, readiness = os.pipe()
    if os.fork() > 0:
        os.close(readiness)
        os._exit(0 if os.read(ready, 1) else 1)  # ctest goes on
    os.setsid()
    start_programs(environment)
    os.write(readiness, b"r")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for file in (nothing, ready, readiness):
        os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            os._exit(0)
        connection.setblocking(True)
        if connection.recv(1) == b"s":
            os._exit(0)
        if os.fork() == 0:
            listener.close()
            serve_page(connection)
        connection.close()


# --- Whoever asks ----------------------------------------------------------------------------------------------------


def connected(path: str) -> socket.socket | None:
    folder = os.getcwd()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(in_folder_of(path))
        return connection
    except OSError:
        return None
    finally:
        os.chdir(folder)


def ask_for(connection: socket.socket, part: dict, output: int, errors: int) -> None:
    """Has a part of a page run; what it says goes to the open files of these numbers."""
    request = part | {"folder": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(request).encode()
    connection.sendall(b"r" + struct.pack("<I", len(text)))
    socket.send_fds(connection, [text[:1]], [0, output, errors])
    connection.sendall(text[1:])


def status_of(connection: socket.socket) -> int:
    status = connection.recv(1)
    return status[0] if status else 1


def run_here(file: str, options: list[str]) -> int:
    if sys.flags.no_site:
        os.execv(sys.executable, [sys.executable, *(["-B"] if sys.flags.dont_write_bytecode else []), *sys.argv])
    return run_pytest(file, 0, 1, options)


def run(path: str, file: str, num_parts: int, options: list[str]) -> int:
    connections = [connected(path) for _ in range(num_parts)]
    if None in connections:
        return run_here(file, options)
    parts = [{"file": file, "first": first, "num_parts": num_parts, "options": options} for first in range(num_parts)]
    if num_parts == 1:
        ask_for(connections[0], parts[0], 1, 2)
        return status_of(connections[0])
    import shutil
    import tempfile

    said = [tempfile.TemporaryFile() for _ in connections]
    for part, connection, output in zip(parts, connections, said):
        ask_for(connection, part, output.fileno(), output.fileno())
    statuses = [status_of(connection) for connection in connections]
    for output in said:
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout.buffer)
    return max(statuses)


def main() -> None:
    verb, path = sys.argv[1], os.path.abspath(sys.argv[2])
    if verb == "serve":
        serve(path)
    elif verb == "stop":
        if connection := connected(path):
            connection.send(b"s")
    else:
        end_by(run(path, sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 1, sys.argv[5:]))


if __name__ == "__main__":
    main()
