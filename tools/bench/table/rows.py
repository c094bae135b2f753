"""The rows of the table, in order of importance: what each program does for a row, and about how long that takes."""

import dataclasses
import pathlib
from collections.abc import Callable

from . import ours, runs
from .jobs import JOBS, NO_CHECKPOINT, Job, length_of

PEERS = ["PyTorch", "torch.compile", "Accelerate", "Lightning"]
START = {"trainrun": 0.5, "PyTorch": 3, "torch.compile": 40, "Accelerate": 5, "Lightning": 6}  # seconds from the call to the first step, roughly
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
OURS = "trainrun"


@dataclasses.dataclass
class Context:
    """What measuring needs to know."""

    binary: pathlib.Path
    python: pathlib.Path
    data: pathlib.Path
    peers: list
    quick: bool = False
    overrides: list = dataclasses.field(default_factory=list)  # of the recipes, for trainrun alone
    timeout: float = 1800  # of a process
    layouts: dict = dataclasses.field(default_factory=dict)  # row -> the faster layout of images for peers
    sessions: dict = dataclasses.field(default_factory=dict)  # (row, peer) -> one that waits for its next turn

    def compiled(self) -> dict:
        return {"TORCHINDUCTOR_CACHE_DIR": str(self.data / "inductor")}

    def turn(self, row: str, way: str, job: Job, steps: int, batch: int, **wishes) -> dict:
        """A round of a peer that stays from round to round."""
        asked = {"way": way, "job": job.name, "data": str(self.data), "steps": steps, "batch": batch} | wishes
        if (row, way) not in self.sessions:
            self.sessions[row, way] = runs.Session(self.python, asked, self.compiled(), self.timeout)
        try:
            return self.sessions[row, way].round()
        except runs.Failed:
            del self.sessions[row, way]
            raise

    def end_sessions(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()

    def peer(self, way: str, job: Job, measure: str, steps: int, batch: int, ranks: int = 1, environment: dict | None = None, options: dict | None = None,
             **wishes) -> tuple[dict, runs.Done]:
        asked = {"way": way, "job": job.name, "measure": measure, "data": str(self.data), "steps": steps, "batch": batch} | wishes
        return runs.peer(self.python, asked, ranks, self.compiled() | (environment or {}), timeout=self.timeout, **(options or {}))


@dataclasses.dataclass
class Row:
    """Programs that do the same; all values are better when they are smaller."""

    name: str
    group: str
    title: str
    unit: str
    scale: float  # from a program's value to the unit
    programs: dict  # name -> (the peer that it belongs to or None, function of the context that gives a dict with "value")
    seconds: dict  # program -> what a round takes, roughly, where a float32 product reaches 200 GFLOP/s
    once: dict = dataclasses.field(default_factory=dict)  # program -> what it takes before its first round
    ours: str = OURS
    base: dict = dataclasses.field(default_factory=dict)  # program -> the program of one rank that it is compared with besides
    needs: tuple = ()
    job: Job | None = None
    bf16: bool = False
    losses_differ: str = ""
    prepare: Callable | None = None  # done once before the first round
    x: float | None = None  # of a point of a growth plot
    rounds: int = 99  # at most

    def quick_seconds(self, names) -> float:
        return sum(START.get(name, 10) + 3 for name in names)

    def whole_seconds(self, peers: list, rounds: int) -> float:
        names = [name for name, (peer, _) in self.programs.items() if peer is None or peer in peers]
        return sum(self.once.get(name, 0) + min(rounds, self.rounds) * self.seconds[name] for name in names)


def with_whole(figures: dict, done: runs.Done) -> dict:
    return figures | {"peak_mib": done.peak_mib, "whole": done.whole}


def length(context: Context, job: Job) -> tuple[int, int]:
    """Steps and batch."""
    if not context.quick:
        return job.steps, job.batch
    return (20 if job.steps > 100 else 2), min(max(1, job.batch // 2), 8)


def probe_layout(row: Row) -> Callable:
    """Images with channels first or last: what is faster in plain PyTorch is what all peers of the row use."""
    def probe(context: Context) -> dict:
        return context.peer("PyTorch", row.job, "layouts", 2 if context.quick else 4, length(context, row.job)[1], bf16=row.bf16)[0]
    return probe


def step_row(name: str, bf16: bool) -> Row:
    job = JOBS[name]
    label = f"{name} {'bf16' if bf16 else 'fp32'}"

    def mine(context: Context) -> dict:
        steps, batch = length(context, job)
        return ours.steps(context, job, steps, batch, bf16)

    def theirs(way: str) -> Callable:
        def run(context: Context) -> dict:
            steps, batch = length(context, job)
            layout = context.layouts.get(label, "first")
            if job.stays:
                return context.turn(label, way, job, steps, batch, bf16=bf16, layout=layout)
            return with_whole(*context.peer(way, job, "steps", steps, batch, bf16=bf16, layout=layout))
        return run

    programs = {OURS: (None, mine)} | {way: (way, theirs(way)) for way in PEERS}
    half = {way: job.steps / 2 * job.seconds * (0.6 if way == OURS or bf16 else 1) for way in programs}
    starts = {way: START[way] + half[way] for way in programs}  # and as many steps to warm up
    stay = [way for way in programs if job.stays and way != OURS]
    seconds = {way: half[way] + (0 if way in stay else starts[way]) for way in programs}
    once = {way: starts[way] for way in stay}
    if job.has_layouts:
        once["PyTorch"] += START["PyTorch"] + 8 * job.seconds
    row = Row(label, "A training step", job.title, "ms", 1e3, programs, seconds, once, needs=job.needs, job=job, bf16=bf16, losses_differ=job.losses_differ)
    if job.has_layouts:
        row.prepare = probe_layout(row)
    return row


def epoch_row() -> Row:
    job = JOBS["mnist_cnn"]

    def mine(context: Context) -> dict:
        overrides = ["training.num_epochs=1", "scheduler.total_steps=15000", "evaluation.every=epoch", NO_CHECKPOINT]
        overrides += ["dataset.train.subset=320"] if context.quick else []
        lines, done = ours.train(context, job, overrides, timeout=context.timeout)
        train = [line for line in lines if line["split"] == "train"]
        return with_whole({"value": lines[-1]["time"], "loss": train[-1]["train/loss"], "accuracy": lines[-1]["eval/accuracy"]}, done)

    def theirs(way: str) -> Callable:
        return lambda context: with_whole(*context.peer(way, job, "epoch", 0, job.batch, samples=320 if context.quick else None))

    programs = {OURS: (None, mine)} | {way: (way, theirs(way)) for way in PEERS}
    seconds = {OURS: 5, "PyTorch": 27, "torch.compile": 32, "Accelerate": 30, "Lightning": 40}
    return Row("mnist_cnn epoch", "A whole epoch", "recipes/mnist_cnn.yaml: 1,875 steps and the evaluation of 10,000 images", "s", 1, programs, seconds,
               {"torch.compile": 30}, needs=job.needs, losses_differ=job.losses_differ)


def start_row() -> Row:
    job = JOBS["mnist_cnn"]

    def mine(context: Context) -> dict:
        overrides = [*length_of(job, 1, job.batch), "logging={every_steps: 1, report_to: [console, jsonl]}"]
        lines, done = ours.train(context, job, overrides, timeout=context.timeout, wait_for=r"\bstep 1/1\b")
        return with_whole({"value": done.first, "loss": lines[0]["train/loss"]}, done)

    def theirs(way: str) -> Callable:
        def run(context: Context) -> dict:
            figures, done = context.peer(way, job, "start", 1, job.batch, options={"wait_for": "^FIRST STEP"})
            return with_whole(figures | {"value": done.first}, done)
        return run

    programs = {OURS: (None, mine)} | {way: (way, theirs(way)) for way in PEERS}
    return Row("start", "Start, memory, checkpoints", "mnist_cnn, from the call to the end of the first step", "s", 1, programs, START, needs=job.needs,
               losses_differ=job.losses_differ)


def memory_row() -> Row:
    job = JOBS["mnist_cnn"]

    def mine(context: Context) -> dict:
        lines, done = ours.train(context, job, length_of(job, 20 if context.quick else 200, job.batch), timeout=context.timeout, with_children=True)
        return with_whole({"value": done.tree_mib, "loss": lines[-1]["train/loss"]}, done)

    def theirs(way: str) -> Callable:
        def run(context: Context) -> dict:
            figures, done = context.peer(way, job, "steps", 20 if context.quick else 200, job.batch, options={"with_children": True})
            return with_whole(figures | {"value": done.tree_mib}, done)
        return run

    programs = {OURS: (None, mine)} | {way: (way, theirs(way)) for way in PEERS}
    return Row("memory", "Start, memory, checkpoints", "mnist_cnn: the most that the process and its two workers hold (proportional set size)", "MiB", 1, programs,
               {way: seconds + 3 for way, seconds in START.items()}, needs=job.needs, losses_differ=job.losses_differ, rounds=3)


def checkpoint_row() -> Row:
    job = JOBS["mlp"]

    def mine(context: Context) -> dict:
        steps, batch = length(context, job)
        without = ours.steps(context, job, steps, batch)
        found = ours.steps(context, job, steps, batch, overrides=("checkpoint={every: 1, keep_last: 1}",))
        return found | {"value": max(0.0, found["value"] - without["value"])}

    def theirs(way: str) -> Callable:
        return lambda context: with_whole(*context.peer(way, job, "checkpoint", *length(context, job)))

    programs = {OURS: (None, mine)} | {way: (way, theirs(way)) for way in ("PyTorch", "Accelerate", "Lightning")}
    return Row("checkpoint", "Start, memory, checkpoints", "weights and AdamW's state of 20 M parameters: what a checkpoint of each step adds; trainrun waits until the disk has it (fsync), the peers do not", "ms", 1e3, programs,
               {OURS: 10, "PyTorch": 14, "Accelerate": 20, "Lightning": 24}, needs=job.needs)


def my_ranks(job: Job, ranks: int, steps: int, batch: int) -> Callable:
    kind = ["distributed_type=MULTI_CPU", f"num_processes={ranks}"] if ranks > 1 else []

    def run(context: Context) -> dict:
        count = 10 if context.quick else steps
        figures = ours.steps(context, job, count, batch, overrides=("dataloader.num_workers=0", *kind), environment=ONE_THREAD)
        return figures | {"value": figures["value"] / (batch * ranks)}
    return run


def their_ranks(job: Job, ranks: int, steps: int, batch: int) -> Callable:
    def run(context: Context) -> dict:
        figures, done = context.peer("PyTorch", job, "steps", 10 if context.quick else steps, batch, ranks=ranks, environment=ONE_THREAD, workers=0)
        return with_whole(figures | {"value": figures["value"] / (batch * ranks)}, done)
    return run


def ranks_row(name: str, steps: int, batch: int) -> Row:
    job = JOBS[name]
    programs = {"trainrun, 2 ranks": (None, my_ranks(job, 2, steps, batch)), "trainrun, 1 rank": (None, my_ranks(job, 1, steps, batch)),
                "torch DDP, 2 ranks": ("PyTorch", their_ranks(job, 2, steps, batch)), "PyTorch, 1 rank": ("PyTorch", their_ranks(job, 1, steps, batch))}
    each = steps * job.seconds * 2 * batch / job.batch + 5
    base = {"trainrun, 2 ranks": "trainrun, 1 rank", "torch DDP, 2 ranks": "PyTorch, 1 rank"}
    return Row(f"ranks {name}", "Two ranks of one thread", f"{name}, {batch} samples for each rank", "µs a sample", 1e6, programs,
               {program: each + 5 * ("torch" in program) for program in programs}, ours="trainrun, 2 ranks", base=base, needs=job.needs,
               losses_differ="the samples come in different orders")


def growth_row(series: str, title: str, x: int, job: Job, steps: int, batch: int, override: str = "", wish: dict | None = None) -> Row:
    """A point of a growth plot: trainrun and plain PyTorch, microseconds a sample."""
    name = f"growth {series} {x}"

    def mine(context: Context) -> dict:
        figures = ours.steps(context, job, 4 if context.quick else steps, batch, overrides=(override,) if override else ())
        return figures | {"value": figures["value"] / batch}

    def theirs(context: Context) -> dict:
        figures = context.turn(name, "PyTorch", job, 4 if context.quick else steps, batch, **(wish or {}))
        return figures | {"value": figures["value"] / batch}

    each = steps / 2 * job.seconds * max(0.1, batch / job.batch) * (x / 4 if series == "depth" else 1)
    return Row(name, f"growth: {series}", title, "µs a sample", 1e6, {OURS: (None, mine), "PyTorch": ("PyTorch", theirs)},
               {OURS: each + 1, "PyTorch": each}, {"PyTorch": START["PyTorch"] + each}, needs=job.needs, losses_differ=job.losses_differ, x=x, rounds=3)


def data_row(times: int) -> Row:
    job, samples = JOBS["mnist_cnn"], 600 * times

    def mine(context: Context) -> dict:
        overrides = ["training.num_epochs=1", "scheduler.total_steps=15000", "evaluation.every=null", NO_CHECKPOINT, f"dataset.train.subset={samples}"]
        lines, done = ours.train(context, job, overrides, timeout=context.timeout)
        return with_whole({"value": done.whole, "loss": lines[-1]["train/loss"]}, done)

    def theirs(context: Context) -> dict:
        figures, done = context.peer("PyTorch", job, "steps", -(-samples // job.batch), job.batch, samples=samples)
        return with_whole(figures | {"value": done.whole}, done)

    return Row(f"growth data {times}", "growth: data", "mnist_cnn: an epoch over 600 images ×1 to ×100, from start to exit", "s", 1,
               {OURS: (None, mine), "PyTorch": ("PyTorch", theirs)}, {OURS: 1 + times / 25, "PyTorch": 6 + times / 4}, needs=job.needs, losses_differ=job.losses_differ,
               x=times, rounds=3)


def rank_growth_row(ranks: int) -> Row:
    job = JOBS["mnist_cnn"]
    programs = {OURS: (None, my_ranks(job, ranks, 300, 32)), "torch DDP": ("PyTorch", their_ranks(job, ranks, 300, 32))}
    return Row(f"growth ranks {ranks}", "growth: ranks", "mnist_cnn: 32 samples and one thread for each rank", "µs a sample", 1e6, programs, {OURS: 5, "torch DDP": 16},
               needs=job.needs, losses_differ="the samples come in different orders", x=ranks, rounds=3)


def growth_rows() -> list[Row]:
    cnn, gpt = JOBS["mnist_cnn"], JOBS["nanogpt"]
    rows = [growth_row("batch", "mnist_cnn, by the size of the batch", batch, cnn, max(6, min(300, 20000 // batch)), batch) for batch in (8, 32, 128, 512, 2048, 4096)]
    rows += [data_row(times) for times in (1, 10, 100)]
    rows += [rank_growth_row(ranks) for ranks in (1, 2, 3, 4)]
    rows += [growth_row("width", "mnist_cnn with more channels in its convolution", width, cnn, 40, 128, f"model.layers[0].out_channels={width}", {"width": width})
             for width in (16, 32, 64, 128, 256)]
    rows += [growth_row("depth", "nanoGPT's setting with more layers", depth, gpt, 40, 12, f"model.layers[2].repeat={depth}", {"depth": depth}) for depth in (1, 2, 4, 8, 16)]
    return rows


def all_rows() -> list[Row]:
    """In order of importance: a short budget reaches the first ones."""
    steps = [step_row(name, bf16) for name in JOBS if name not in ("mnist_cnn", "mlp") for bf16 in (False, True)]
    first, then, last = steps[:6], steps[6:8], steps[8:]
    ranks = [ranks_row("resnet18", 4, 64), ranks_row("nanogpt", 200, 12)]
    return [epoch_row(), *first, ranks_row("mnist_cnn", 400, 32), start_row(), memory_row(), *then, *ranks, *last, step_row("mnist_cnn", False), checkpoint_row(),
            *growth_rows()]
