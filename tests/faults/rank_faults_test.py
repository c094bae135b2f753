"""Ranks that are killed, stopped or cut off in each phase of a job: every process ends in time, and it is said who was lost, and where.

A part of the matrix runs by itself; all of it by  TRAINRUN_ALL_FAULTS=1 tools/test -R faults/rank_faults
"""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launch"))
import launching  # noqa: E402

TIMEOUT = 3  # seconds: distributed.timeout
GRACE = 5  # seconds after it, when all must have ended
ALL = bool(os.environ.get("TRAINRUN_ALL_FAULTS"))

SMALL = "[Flatten, {type: Linear, out_features: 32}, ReLU, {type: Linear, out_features: 10}]"
LARGE = "[Flatten, {type: Linear, out_features: 2048}, ReLU, {type: Linear, out_features: 2048}, {type: Linear, out_features: 10}]"  # 4 M parameters
MANY = "type: Synthetic, shape: [1, 8, 8], num_classes: 10, task: classification"
SLOW_STEP = "training={num_epochs: 1, gradient_accumulation_steps: 1000000}"  # the whole epoch is one step
ENDLESS = "training={num_epochs: 1000000}"


def has_lines(count: int):
    return lambda folder: launching.has_trained(folder, count)()


def has_begun(folder) -> bool:
    log = pathlib.Path(folder) / "log.txt"
    return log.exists() and "effective batch" in log.read_text()


def cpu_ticks(pid: int) -> int:
    """What a process has computed so far, in hundredths of a second."""
    return sum(int(word) for word in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])


def is_saving(folder) -> bool:
    return any(path.name.startswith(".") and path.is_dir() for path in (pathlib.Path(folder) / "checkpoints").glob(".*"))


# {phase: (recipe, when it has begun, how it is named)}
PHASES = {
    "rendezvous": ([f"model.layers={SMALL}", ENDLESS], None, r"the meeting before step 1|the start before step 1|where the ranks meet|has waited at|has not come"),
    "first step": ([f"model.layers={SMALL}", SLOW_STEP, f"dataset.train={{{MANY}, num_samples: 400000}}", "dataset.eval=null", "metrics=[]",
                    "dataloader={batch_size: 1, num_workers: 0}"], has_begun, r"step 1\b"),
    "mid-epoch": ([f"model.layers={SMALL}", ENDLESS], has_lines(3), r"step [1-9]\d*"),
    "evaluation": ([f"model.layers={SMALL}", ENDLESS, f"dataset.eval={{{MANY}, num_samples: 1000000}}", "metrics=[]", "evaluation.every=1",
                    "dataloader={batch_size: 16, eval_batch_size: 1, num_workers: 0}"], has_lines(1), r"the evaluation after step 1\b"),
    "checkpoint": ([f"model.layers={LARGE}", ENDLESS, "checkpoint={every: 1, keep_last: 1}"], is_saving, r"the checkpoint of step \d+|step [1-9]\d*"),
}
FAULTS = ["killed", "stopped", "cut off", "keeper stopped"]
KINDS = {"DDP": "distributed_type=MULTI_CPU", "FSDP": "distributed_type=FSDP"}

SOME = [
    ("killed", "rendezvous", "DDP", 2),
    ("killed", "evaluation", "FSDP", 3),
    ("killed", "checkpoint", "DDP", 2),
    ("stopped", "rendezvous", "DDP", 3),
    ("stopped", "first step", "DDP", 2),
    ("stopped", "evaluation", "DDP", 3),
    ("stopped", "checkpoint", "FSDP", 2),
    ("cut off", "rendezvous", "DDP", 2),
    ("cut off", "mid-epoch", "FSDP", 3),
    ("keeper stopped", "rendezvous", "DDP", 2),
    ("keeper stopped", "mid-epoch", "DDP", 3),
    ("keeper stopped", "checkpoint", "DDP", 2),
]
CASES = list(itertools.product(FAULTS, PHASES, KINDS, [2, 3])) if ALL else SOME


class Machines:
    """Two network namespaces joined by a cable; of the ranks, the last is on the second."""

    ADDRESSES = ["10.78.0.1", "10.78.0.2"]

    def __init__(self, stack: contextlib.ExitStack):
        for program in ("ip", "unshare", "nsenter"):
            launching.need(program)
        pids = []
        for _ in self.ADDRESSES:
            holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)
            stack.callback(holder.communicate)
            if not holder.stdout.readline():
                pytest.skip(f"no network namespaces here: {holder.stderr.read().decode().strip()}")
            pids.append(holder.pid)
        self.inside = [["nsenter", "--net", "--target", str(pid)] for pid in pids]
        made = launching.run(["ip", "link", "add", "cable", "netns", str(pids[0]), "type", "veth", "peer", "name", "cable", "netns", str(pids[1])])
        if made.returncode != 0:
            pytest.skip(f"no virtual network cable here: {made.stderr.strip()}")
        for enter, address in zip(self.inside, self.ADDRESSES):
            for words in (f"address add {address}/24 dev cable", "link set cable up", "link set lo up", "route add 192.0.2.0/24 dev cable"):
                subprocess.run([*enter, "ip", *words.split()], check=True)

    def cut(self):
        subprocess.run([*self.inside[0], "ip", "link", "set", "cable", "down"], check=True)


class Job:
    """The processes of one job, what they say, and how a fault comes to one of them."""

    def __init__(self, folder, fault: str, phase: str, kind: str, num_ranks: int, stack: contextlib.ExitStack):
        self.folder = folder / "run"
        self.said = folder / "said.txt"
        self.fault, self.phase, self.num_ranks = fault, phase, num_ranks
        recipe, self.has_come, self.place = PHASES[phase]
        self.machines = Machines(stack) if fault == "cut off" else None
        self.own_launcher = fault in ("killed", "stopped")
        words = launching.command(self.folder, "dataloader={batch_size: 16, num_workers: 0}", "logging.every_steps=1", "evaluation.every=null",
                                  "checkpoint.every=null", f"distributed={{timeout: {TIMEOUT}, meeting_timeout: {60 if self.has_come else TIMEOUT}}}",
                                  KINDS[kind], *recipe)
        words[1] = str(folder / "recipe.yaml")  # data sets of another type want a recipe without those of the small one
        synthetic = [word for word in words if word.startswith("dataset.")]
        text = pathlib.Path(launching.RECIPE).read_text()
        for word in synthetic:
            name, value = word.removeprefix("dataset.").split("=", 1)
            text = re.sub(rf"^  {name}: .*$", f"  {name}: {value}", text, flags=re.MULTILINE)
        (folder / "recipe.yaml").write_text(text)
        words = [word for word in words if word not in synthetic]
        self.output = stack.enter_context(open(self.said, "w"))
        if self.own_launcher:
            self.started = [self.start([*words, f"num_processes={num_ranks}"])]
        else:
            address = Machines.ADDRESSES[0] if self.machines else "127.0.0.1"
            place = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": address, "MASTER_PORT": str(launching.free_port())}
            enter = [self.machines.inside[rank == num_ranks - 1] if self.machines else [] for rank in range(num_ranks)]
            self.started = [self.start([*enter[rank], *words], place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(num_ranks)]
        for process in self.started:
            stack.callback(process.wait)
            stack.callback(process.kill)

    def start(self, words, variables=None):
        return subprocess.Popen(words, cwd=launching.ROOT, env=launching.ENVIRONMENT | (variables or {}), stdin=subprocess.DEVNULL,
                                stdout=self.output, stderr=self.output)

    @property
    def victim(self) -> int:
        return 0 if self.fault == "keeper stopped" else self.num_ranks - 1

    def wait_until(self, condition):
        deadline = time.monotonic() + 120
        while not (value := condition()):
            assert all(process.poll() is None for process in self.started), self.said.read_text()
            assert time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.005)
        return value

    def ranks(self) -> dict[int, int]:
        """The process of each rank, once all are there."""
        if not self.own_launcher:
            return {rank: process.pid for rank, process in enumerate(self.started)}
        return self.wait_until(lambda: (found := launching.ranks_of(self.folder, below=self.started[0].pid)) and len(found) == self.num_ranks and found)

    def strike(self) -> list[int]:
        """The processes that must end from now on."""
        ranks = self.ranks()
        if self.has_come:
            self.wait_until(lambda: self.has_come(self.folder))
        if self.phase == "evaluation":  # it is what takes time after the step's line
            before = {pid: cpu_ticks(pid) for pid in ranks.values()}
            self.wait_until(lambda: all(cpu_ticks(pid) >= ticks + 20 for pid, ticks in before.items()))
        if self.fault == "cut off":
            self.machines.cut()
        else:
            os.kill(ranks[self.victim], signal.SIGKILL if self.fault == "killed" else signal.SIGSTOP)
        processes = set(ranks.values()) | {process.pid for process in self.started}
        return sorted(processes - ({ranks[0]} if self.fault == "keeper stopped" else set()))


def still_there(job: Job, pids: list[int]) -> list[int]:
    for process in job.started:
        process.poll()
    return [pid for pid in pids if launching.is_alive(pid)]


@pytest.mark.parametrize("fault, phase, kind, num_ranks", CASES)
def test_every_process_ends_in_time_and_says_who_was_lost_and_where(tmp_path, fault, phase, kind, num_ranks):
    with contextlib.ExitStack() as stack:
        job = Job(tmp_path, fault, phase, kind, num_ranks, stack)
        pids = job.strike()
        deadline = time.monotonic() + TIMEOUT + GRACE
        while left := still_there(job, pids):
            assert time.monotonic() < deadline, f"{left} of {pids} still there\n{job.said.read_text()}"
            time.sleep(0.02)
    said = job.said.read_text()
    assert re.search(rf"rank {job.victim}\b[^;\n]*(has not answered since|was killed by signal 9|has not come|has waited at)|nobody answers at", said), said
    assert re.search(job.place, said) or (fault, phase) == ("killed", "rendezvous"), said
    assert not re.search(r"rank (?!" + str(job.victim) + r"\b)\d+(, which keeps the ranks' store,)? has not answered", said) or fault == "cut off", said


def test_a_launcher_that_is_stopped_and_keeps_the_store_ends_the_ranks(tmp_path):
    with contextlib.ExitStack() as stack:
        job = Job(tmp_path, "stopped", "mid-epoch", "DDP", 2, stack)
        ranks = job.ranks()
        job.wait_until(lambda: job.has_come(job.folder))
        os.kill(job.started[0].pid, signal.SIGSTOP)
        deadline = time.monotonic() + TIMEOUT + GRACE
        while any(launching.is_alive(pid) for pid in ranks.values()):
            assert time.monotonic() < deadline, job.said.read_text()
            time.sleep(0.02)
        os.kill(job.started[0].pid, signal.SIGCONT)
        assert job.started[0].wait(timeout=20) == 1
    assert re.search(r"the launcher, which keeps the ranks' store, has not answered since step [1-9]", job.said.read_text())


def save_on_a_slow_disk(folder, *overrides: str) -> subprocess.CompletedProcess:
    """A job of two ranks, which may wait 2 s for each other; its first checkpoint takes 4."""
    strace = launching.need("strace")
    words = launching.command(folder, "dataloader={batch_size: 16}", "evaluation.every=null", "checkpoint={every: 2}", "distributed_type=MULTI_CPU",
                              "num_processes=2", "training={num_epochs: null, max_steps: 3}", "distributed={timeout: 2}", *overrides)
    return launching.run([strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=5000000:when=7", *words])


@pytest.mark.parametrize("background", ["true", "false"])
def test_a_slow_disk_of_rank_0_does_not_count_against_the_others(tmp_path, background):
    """Each thread's seventh sync is slow: the training thread's of step 2, or the writing thread's of step 3."""
    done = save_on_a_slow_disk(tmp_path / "run", f"checkpoint.background={background}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run/checkpoints/step-00000002").exists()


@pytest.mark.parametrize("limit", [60, 3])
def test_a_slow_disk_after_the_last_checkpoint_does_not_make_a_job_fail_that_is_done(tmp_path, limit):
    """summary.json is written when all is saved: the others wait for it as for a checkpoint, and one that is really late harms nobody."""
    strace = launching.need("strace")
    words = launching.command(tmp_path / "run", "dataloader={batch_size: 16}", "evaluation.every=null", "checkpoint={every: null}",
                              "distributed_type=MULTI_CPU", "num_processes=2", "training={num_epochs: null, max_steps: 3}",
                              f"distributed={{timeout: 2, meeting_timeout: 60, checkpoint_timeout: {limit}}}")
    done = launching.run([strace, "-f", "-qq", "-o", tmp_path / "calls.txt", "-e", "trace=fsync,openat", "-e", "inject=fsync:delay_enter=5000000:when=4", *words])
    assert done.returncode == 0, done.stdout + done.stderr
    opened, delayed = [re.search(text, (tmp_path / "calls.txt").read_text()) for text in (r"\.summary\.json\.tmp", r"\(DELAYED\)")]
    assert opened and delayed and opened.start() < delayed.start(), "it is summary.json that is synced slowly"
    assert (tmp_path / "run/summary.json").exists()
    assert "[c10d]" not in done.stderr and "frame #" not in done.stderr, done.stderr


@pytest.mark.parametrize("background, step", [("true", 3), ("false", 2)])
def test_a_disk_that_is_slower_than_a_checkpoint_may_take_is_said(tmp_path, background, step):
    hasty = save_on_a_slow_disk(
        tmp_path / "run", "distributed.checkpoint_timeout=3", f"checkpoint.background={background}")
    assert hasty.returncode != 0
    lost = rf"rank 1 lost the others during the checkpoint of step {step}\b.*rank 0 is behind, at the checkpoint of step {step}\b"
    assert re.search(lost, hasty.stderr), hasty.stderr
