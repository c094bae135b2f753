"""Ranks that were given different jobs by mistake: the difference is named, by rank and key, before the first step."""

import os
import pathlib
import re
import subprocess
import sys

import launching
import pytest

from tests.program import CALLED

BUILD = pathlib.Path(launching.BINARY).parent
LIBRARIES = {"LD_LIBRARY_PATH": f"{BUILD}:{BUILD.parent}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"}  # of a program that lies elsewhere
CSV = "task: regression, label: y"
REGRESSION = ["model.layers=[{type: Linear, out_features: 1}]", "loss=MSELoss", "metrics=[]", "dataset.eval=null"]

# What rank 1 has besides what both have: (name, of both, of rank 1, what is said of it).
DIFFERENCES = [
    ("lr", [], ["optimizer.lr=0.01"], "rank 1's optimizer.lr is 0.01, rank 0's is 0.003"),
    ("batch_size", [], ["dataloader.batch_size=8"], "rank 1's dataloader.batch_size is 8, rank 0's is 16"),
    ("accumulation", [], ["training.gradient_accumulation_steps=2"], "rank 1's training.gradient_accumulation_steps is 2, rank 0's is not set"),
    ("seed", [], ["seed=4"], "rank 1's seed is 4, rank 0's is 3"),
    ("loss", [], ["loss=MultiMarginLoss"], "rank 1's loss is MultiMarginLoss, rank 0's is CrossEntropyLoss"),
    ("data set", [], ["dataset.train.subset=1000"], "rank 1's dataset.train.subset is 1000, rank 0's is not set"),
    ("number of samples", REGRESSION, ["FILE shorter"], "rank 1's dataset.train (samples) is 30, rank 0's is 40"),
    ("contents", REGRESSION, ["FILE changed"], "rank 1's dataset.train (digest of the first, the middle and the last sample) is "),
    ("comm_hook", [], ["distributed.comm_hook=BF16Compression"], "rank 1's distributed.comm_hook is BF16Compression, rank 0's is not set"),
    ("max_steps", [], ["training.max_steps=9"], "rank 1's training.max_steps is 9, rank 0's is 30"),
    ("program version", [], ["PROGRAM"], "rank 1's program version is trainrun-"),
    ("model", [], ["model.layers[0].out_channels=4"], "rank 1's model.layers[0].out_channels is 4, rank 0's is 8"),
    ("kind of parallelism", [], ["distributed_type=FSDP"], "rank 1's distributed_type is FSDP, rank 0's is MULTI_CPU"),
]


def plain_recipe(folder) -> str:
    """The small recipe, with data of CSV files, whose place each rank is told."""
    text = pathlib.Path(launching.RECIPE).read_text()
    text = re.sub(r"^  train: .*$", f"  train: {{type: CSV, path: nowhere, {CSV}}}", text, flags=re.MULTILINE)
    path = folder / "recipe.yaml"
    path.write_text(text)
    return str(path)


def write_data(folder, rows: int, first: float) -> str:
    folder.mkdir()
    values = [[first if row == 0 else row * 0.5, row * 0.25, row % 7] for row in range(rows)]
    (folder / "data.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in values))
    return f"dataset.train.path={folder / 'data.csv'}"


def other_version(folder) -> str:
    """This program with another version written into it."""
    program = pathlib.Path(launching.BINARY).read_bytes()
    said = launching.run([launching.BINARY, "--version"]).stdout.strip()
    mark = (said + ", LibTorch ").encode()
    assert mark in program
    changed = program.replace(mark, mark.replace(b"trainrun ", b"trainrun-"))
    path = folder / "trainrun"
    path.write_bytes(changed)
    path.chmod(0o755)
    return str(path)


def ranks(folder, each: list[list[str]], programs: list[str], recipe: str = launching.RECIPE):
    port = launching.free_port()
    return [launching.start([programs[rank], recipe, *launching.command(folder, *launching.SHORT, "distributed.timeout=20", *words)[2:]],
                            env=launching.ENVIRONMENT | {"RANK": str(rank), "WORLD_SIZE": str(len(each)), "LOCAL_RANK": str(rank),
                                                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                            | ({} if programs[rank] in (CALLED, launching.BINARY) else LIBRARIES))
            for rank, words in enumerate(each)]


def outcome(jobs) -> list[tuple[int, str, str]]:
    with launching.ending(*jobs):
        return [(*job.communicate(timeout=60), job.returncode)[::-1] for job in jobs]


@pytest.mark.parametrize("name, both, odd, said", DIFFERENCES, ids=[case[0] for case in DIFFERENCES])
def test_a_difference_between_ranks_is_named_before_the_first_step(tmp_path, name, both, odd, said):
    programs = [CALLED] * 2
    each = [[*both], [*both]]
    recipe = plain_recipe(tmp_path) if both is REGRESSION else launching.RECIPE
    if "PROGRAM" in odd:
        programs[1] = other_version(tmp_path)
    elif odd[0].startswith("FILE"):
        files = [write_data(tmp_path / "data0", 40, 0.0), write_data(tmp_path / "data1", *((30, 0.0) if odd[0].endswith("shorter") else (40, 0.1)))]
        each = [[*both, file] for file in files]
    else:
        each[1] += odd
    done = outcome(ranks(tmp_path / "run", each, programs, recipe))
    for exit_code, stderr, _ in done:
        assert exit_code == 1, done
        assert "the ranks do not do the same job: " in stderr, done
        assert said in stderr, done
    assert not (tmp_path / "run/metrics.jsonl").exists()


def test_ranks_may_differ_in_what_nothing_computed_depends_on(tmp_path):
    files = [write_data(tmp_path / f"data{rank}", 40, 0.0) for rank in range(2)]
    each = [[*REGRESSION, files[0]], [*REGRESSION, files[1], "dataloader.num_workers=0", "logging.every_steps=7", "optimizer.lr=3e-3",
                                      f"output_dir={tmp_path / 'other'}", "distributed.pin_cores=false"]]
    done = outcome(ranks(tmp_path / "run", each, [CALLED] * 2, plain_recipe(tmp_path)))
    assert [exit_code for exit_code, _, _ in done] == [0, 0], done
    assert len(launching.losses(tmp_path / "run")) == 30


def test_a_port_where_another_job_has_met_is_named(tmp_path):
    first = ranks(tmp_path / "first", [["training={num_epochs: 4000}", "training.max_steps=null"]] * 2, [launching.BINARY] * 2)
    with launching.ending(*first):
        launching.wait_for(launching.has_trained(tmp_path / "first"), *first)
        taken = launching.processes()[first[0].pid][2]["MASTER_PORT"]
        words = launching.called(tmp_path / "second", *launching.SHORT, "distributed.timeout=3")
        second = [launching.start(words, env=launching.ENVIRONMENT | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                                      "MASTER_PORT": taken}) for rank in range(2)]
        done = outcome(second)
        assert all(job.poll() is None for job in first)
    assert f"port {taken}, at which the ranks meet, is taken on this machine" in done[0][1]
    assert f"another process has come to 127.0.0.1:{taken} as rank 1" in done[1][1]
    assert [exit_code for exit_code, _, _ in done] == [1, 1]


@pytest.mark.parametrize("speaks", [False, True], ids=["is silent", "answers"])
def test_a_port_of_another_program_is_named_by_every_rank(tmp_path, speaks):
    listens = "import socket; s = socket.create_server(('0.0.0.0', 0)); print(s.getsockname()[1], flush=True)\n"
    answers = "while True: c = s.accept()[0]; c.recv(1); c.sendall(b'HTTP/1.0 400 Bad Request\\r\\n\\r\\n'); c.close()"
    held = listens + (answers if speaks else "input()")
    other = launching.start([sys.executable, "-c", held], stdin=subprocess.PIPE)
    with launching.ending(other):
        port = other.stdout.readline().strip()
        words = launching.called(tmp_path / "run", *launching.SHORT, "distributed.timeout=3")
        jobs = [launching.start(words, env=launching.ENVIRONMENT | {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                                                    "MASTER_PORT": port}) for rank in range(3)]
        done = outcome(jobs)
    assert [exit_code for exit_code, _, _ in done] == [1, 1, 1], done
    assert f"port {port}, at which the ranks meet, is taken on this machine" in done[0][1]
    for _, stderr, _ in done[1:]:
        assert f"what listens at 127.0.0.1:{port}, where the ranks meet, is not their store" in stderr
