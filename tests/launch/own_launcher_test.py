"""Our own launcher: what other ranks say, whose cores they use."""

import collections
import os
import pathlib
import re

import launching
import pytest


def threads_of(pid: int) -> str:
    return dict(line.split("=", 1) for line in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in line)["OMP_NUM_THREADS"]


def ranks_of_job(tmp_path, num_processes, *overrides, before=(), **variables):
    """Cores and OMP_NUM_THREADS of each rank."""
    environment = {name: value for name, value in launching.ENVIRONMENT.items() if name != "OMP_NUM_THREADS"} | variables
    job = launching.start([*before, *launching.command(tmp_path / "run", *launching.LONG, f"num_processes={num_processes}", *overrides)],
                          env=environment)
    with launching.ending(job):
        launching.wait_for(launching.has_trained(tmp_path / "run"), job)
        ranks = launching.ranks_of(tmp_path / "run")
        assert sorted(ranks) == list(range(num_processes))
        return [(os.sched_getaffinity(ranks[rank]), threads_of(ranks[rank])) for rank in range(num_processes)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process may use one core only")
def test_each_rank_has_cores_of_its_own(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    share = len(allowed) // 2
    assert ranks_of_job(tmp_path, 2) == [(set(allowed[:share]), str(share)), (set(allowed[share:2 * share]), str(share))]


@pytest.mark.parametrize("case", ["pin_cores: false", "fewer cores than ranks"])
def test_ranks_share_the_cores(tmp_path, case):
    allowed = sorted(os.sched_getaffinity(0))
    if case == "pin_cores: false":
        ranks = ranks_of_job(tmp_path, 2, "distributed.pin_cores=false", OMP_NUM_THREADS="3")
        assert ranks == 2 * [(set(allowed), "3")]
    else:
        ranks = ranks_of_job(tmp_path, 2, before=["taskset", "--cpu-list", str(allowed[-1])])
        assert ranks == 2 * [({allowed[-1]}, "1")]


SHARED = {"TRAINRUN_GLOO": ""}  # also where all tests are to run with Gloo


def maps_ranks_memory(pid: int) -> bool:
    return "memfd:trainrun-ranks" in pathlib.Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("kind", ["MULTI_CPU", "FSDP"])
def test_two_ranks_train_to_the_same_weights_through_shared_memory_and_through_gloo(tmp_path, kind):
    for folder, variables in (("shared", SHARED), ("gloo", {"TRAINRUN_GLOO": "1"})):
        job = launching.called(tmp_path / folder, *launching.SHORT, f"distributed_type={kind}", "num_processes=2", "evaluation.every=10", "checkpoint.every=10")
        done = launching.run(job, env=launching.ENVIRONMENT | variables)
        assert done.returncode == 0, done.stderr
        is_told = "the ranks exchange through Gloo, not through shared memory: rank 0: TRAINRUN_GLOO is set" in done.stdout
        assert is_told == (folder == "gloo"), done.stdout
    figures = [[(line["step"], line.get("train/loss"), line.get("eval/loss")) for line in launching.lines(tmp_path / folder)]
               for folder in ("shared", "gloo")]
    assert figures[0] == figures[1]
    weights = [sorted((tmp_path / folder / "checkpoints").rglob("model.safetensors"))[-1].read_bytes() for folder in ("shared", "gloo")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("stopped_by", ["the end", "SIGKILL"])
def test_nothing_is_left_of_the_memory_that_ranks_have_in_common(tmp_path, stopped_by):
    names = set(os.listdir("/dev/shm"))
    job = launching.start(launching.command(tmp_path / "run", *(launching.SHORT if stopped_by == "the end" else launching.LONG), "num_processes=2"),
                          env=launching.ENVIRONMENT | SHARED)
    with launching.ending(job):
        ranks = launching.wait_for(lambda: (found := launching.ranks_of(tmp_path / "run")) and len(found) == 2 and found, job)
        if stopped_by == "SIGKILL":
            launching.wait_for(launching.has_trained(tmp_path / "run"), job)
            assert all(maps_ranks_memory(pid) for pid in ranks.values())
            for pid in ranks.values():
                launching.kill(pid)
        job.wait(timeout=60)
    assert set(os.listdir("/dev/shm")) <= names


def test_ranks_in_two_containers_exchange_through_gloo(tmp_path):
    """Where process numbers are not the same, rank 0's memory cannot be found: here in a process namespace of each rank."""
    unshare = launching.need("unshare")
    if launching.run([unshare, "--pid", "--fork", "true"]).returncode != 0:
        pytest.skip("no process namespaces here")
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launching.free_port())}
    words = [unshare, "--pid", "--fork", *launching.command(tmp_path / "run", *launching.SHORT)]
    other = launching.start(words, env=launching.ENVIRONMENT | SHARED | place | {"RANK": "1", "LOCAL_RANK": "1"})
    with launching.ending(other):
        main = launching.run(words, env=launching.ENVIRONMENT | SHARED | place | {"RANK": "0", "LOCAL_RANK": "0"})
        assert main.returncode == 0, main.stderr
        assert other.wait(timeout=60) == 0
    assert "not through shared memory: rank 1: it is on another machine than rank 0, or in another container" in main.stdout


def test_what_other_ranks_say_has_their_number(tmp_path):
    """The dynamic linker has each process say something, with its number."""
    job = launching.command(tmp_path / "run", *launching.SHORT, "num_processes=3")
    done = launching.run(job, env=launching.ENVIRONMENT | {"LD_DEBUG": "statistics"})
    assert done.returncode == 0, done.stderr
    said = collections.defaultdict(set)
    for line in done.stderr.splitlines():
        prefix, process = re.fullmatch(r"(\[rank \d\] |) *(\d+):\t.*", line).groups()
        said[process].add(prefix)
    assert sorted(map(sorted, said.values())) == [[""], [""], ["[rank 1] "], ["[rank 2] "]]
    assert "[rank" not in done.stdout


def test_a_run_goes_on_from_a_checkpoint_of_other_ranks_where_its_samples_end(tmp_path):
    """Three steps in an epoch of 1,438 samples, of 480 each; then of 160."""
    common = [*launching.RANKS, "training={num_epochs: 2}", "scheduler={type: LinearWithWarmup}"]
    first = launching.run(launching.called(tmp_path / "first", *common, "num_processes=3", "dataloader={batch_size: 160}", "checkpoint={every: 1, keep_last: null}"))
    assert first.returncode == 0, first.stderr
    begin = tmp_path / "first/checkpoints/step-00000004"  # the first step of the second epoch
    second = launching.run(launching.called(tmp_path / "second", *common, "distributed_type=NO", "dataloader={batch_size: 160}",
                                            "checkpoint={every: null, resume: %s}" % begin))
    assert second.returncode == 0, second.stderr
    assert "resumed at step 4/10" in second.stdout  # 958 of 1,438 samples left: 6 batches of up to 160
    lines = [line["train/lr"] for line in launching.lines(tmp_path / "second")]
    assert lines == pytest.approx([3e-3 * (10 - step) / 10 for step in range(4, 10)])  # to nothing at the end that it has now


def test_no_name_server_is_asked_about_the_ranks_of_a_machine(tmp_path):
    """LibTorch would ask for the name of each rank that connects, and have all wait for the answer: for seconds where there is none."""
    strace = launching.need("strace")
    job = launching.command(tmp_path / "run", *launching.SHORT, "num_processes=2")
    done = launching.run([strace, "-f", "--seccomp-bpf", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=connect", *job])
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "trace").read_text()
    assert 'inet_addr("127.0.0.1")' in asked or '"::ffff:127.0.0.1"' in asked  # the ranks meet
    assert "htons(53)" not in asked
    assert "cannot be retrieved" not in done.stderr
