"""One run of one peer, in a process of its own: `peer.py WISHES`, JSON of what to run; prints its figures as JSON in the last line.

Each way to train is written as its users write it. What only this file has is the clock, which looks on at the end of each optimizer step.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_tasks import Task, Wish, make  # noqa: E402


class Clock:
    """Looks on after each optimizer step. The first half of `steps` warms up, the second half is a round, which is timed.

    In turns with other programs, each line of standard input asks for another round, and its end stops the process.
    """

    def __init__(self, steps: int | None, measure: str):
        self.steps, self.measure = steps, measure
        self.warm = max(1, steps // 2) if steps else 0
        self.losses = []  # of the batches of this step
        self.last = []  # of the step that is compared: the last of the first round, or of the epoch
        self.count, self.saving = 0, 0.0
        self.begin = self.half = time.perf_counter()
        self.value = None

    def step(self) -> None:
        now = time.perf_counter()
        self.count += 1
        if self.measure == "start" and self.count == 1:
            print("FIRST STEP", float(self.losses[-1]), flush=True)
        if self.count == self.steps or not self.steps:
            self.last = self.losses
        self.losses = []
        timed = max(1, (self.steps or 1) - self.warm)
        if self.steps and self.count >= self.steps and (self.count - self.warm) % timed == 0:
            self.value = (now - self.half) / timed
            if self.measure == "turns":
                self.tell_and_wait()
        elif self.count == self.warm and self.measure == "turns":
            self.wait()
        elif self.count == self.warm:
            self.half = time.perf_counter()

    def tell_and_wait(self) -> None:
        print(json.dumps(self.figures()), flush=True)
        self.last = []  # later rounds are other steps than the other programs'
        self.wait()

    def wait(self) -> None:
        if not sys.stdin.readline():
            os._exit(0)
        self.half = time.perf_counter()

    def save(self, write, folder: pathlib.Path) -> None:
        begin = time.perf_counter()
        write(folder)
        if self.count > self.warm:
            self.saving += time.perf_counter() - begin

    def figures(self) -> dict:
        loss = sum(loss.item() for loss in self.last) / len(self.last) if self.last else None
        return {"value": self.value, "loss": loss, "threads": torch.get_num_threads()}


@dataclasses.dataclass
class Run:
    task: Task
    wish: Wish
    clock: Clock
    evaluates: bool = False
    saves_to: pathlib.Path | None = None
    correct: int = 0
    evaluated: int = 0

    def count(self, output: torch.Tensor, labels: torch.Tensor) -> None:
        self.correct += (output.argmax(dim=1) == labels).sum().item()
        self.evaluated += len(labels)


def batches(run: Run, loader):
    """As many as the steps take; a new epoch where the data end."""
    if run.evaluates:
        return iter(loader)
    if run.clock.measure == "turns":
        return itertools.chain.from_iterable(itertools.repeat(loader))
    return itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), run.wish.steps * run.task.accumulation)


def autocast(run: Run):
    return torch.autocast("cpu", torch.bfloat16) if run.wish.bf16 else contextlib.nullcontext()


def compile_first(run: Run, model) -> None:
    """Compiles for every shape of an epoch before the clock starts: what compiling takes is not counted."""
    sizes = {len(run.task.train.dataset) % run.wish.batch, run.wish.batch, len(run.task.evaluation.dataset) % 128, 128} - {0}
    for size in sorted(sizes, reverse=True):
        images, labels = (torch.stack(list(part)) for part in zip(*(run.task.train.dataset[i] for i in range(size))))
        run.task.loss(model.train(), (images, labels)).backward()
        run.task.optimizer.zero_grad()
        with torch.no_grad():
            model.eval()(images)


def plain(run: Run, compiled: bool = False) -> None:
    task, model = run.task, run.task.model
    if run.wish.ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    if compiled:
        model = torch.compile(model)
        if run.evaluates:
            compile_first(run, model)
    model.train()
    run.clock.begin = time.perf_counter()
    for number, batch in enumerate(batches(run, task.train), start=1):
        with autocast(run):
            loss = task.loss(model, batch)
        (loss / task.accumulation).backward()
        run.clock.losses.append(loss.detach())
        if number % task.accumulation:
            continue
        if task.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        task.optimizer.step()
        if task.scheduler:
            task.scheduler.step()
        task.optimizer.zero_grad()
        run.clock.step()
        if run.saves_to:
            run.clock.save(lambda to: torch.save({"model": model.state_dict(), "optimizer": task.optimizer.state_dict(), "step": number}, to / "last.pt"), run.saves_to)
    if run.evaluates:
        model.eval()
        with torch.no_grad():
            for images, labels in task.evaluation:
                run.count(model(images), labels)


def accelerate(run: Run) -> None:
    from accelerate import Accelerator

    task = run.task
    accelerator = Accelerator(mixed_precision="bf16" if run.wish.bf16 else "no", cpu=True, gradient_accumulation_steps=task.accumulation)
    model, optimizer, loader, scheduler = accelerator.prepare(task.model, task.optimizer, task.train, task.scheduler)
    model.train()
    run.clock.begin = time.perf_counter()
    for batch in batches(run, loader):
        with accelerator.accumulate(model):
            loss = task.loss(model, batch)
            accelerator.backward(loss)
            if task.clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), task.clip)
            optimizer.step()
            if scheduler:
                scheduler.step()
            optimizer.zero_grad()
        run.clock.losses.append(loss.detach())
        if accelerator.sync_gradients:
            run.clock.step()
            if run.saves_to:
                run.clock.save(lambda to: accelerator.save_state(to), run.saves_to)
    if run.evaluates:
        evaluation = accelerator.prepare(task.evaluation)
        model.eval()
        with torch.no_grad():
            for images, labels in evaluation:
                run.count(*accelerator.gather_for_metrics((model(images), labels)))


def lightning(run: Run) -> None:
    import logging
    import warnings

    import lightning as L

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    task, clock = run.task, run.clock

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = task.model

        def training_step(self, batch, index):
            return task.loss(self.model, batch)

        def validation_step(self, batch, index):
            images, labels = batch
            run.count(self.model(images), labels)

        def configure_optimizers(self):
            if not task.scheduler:
                return task.optimizer
            return {"optimizer": task.optimizer, "lr_scheduler": {"scheduler": task.scheduler, "interval": "step"}}

    class Watch(L.Callback):
        def on_train_start(self, trainer, module):
            clock.begin = time.perf_counter()

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            clock.losses.append(task.accumulation * outputs["loss"].detach())  # Lightning divides it
            if (index + 1) % task.accumulation == 0:
                clock.step()
                if run.saves_to:
                    clock.save(lambda to: trainer.save_checkpoint(to / "last.ckpt"), run.saves_to)

    length = {"max_epochs": 1} if run.evaluates else {"max_steps": -1 if clock.measure == "turns" else run.wish.steps, "max_epochs": -1, "limit_val_batches": 0}
    trainer = L.Trainer(accelerator="cpu", devices=1, precision="bf16-mixed" if run.wish.bf16 else "32-true", accumulate_grad_batches=task.accumulation,
                        gradient_clip_val=task.clip, callbacks=[Watch()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, num_sanity_val_steps=0, use_distributed_sampler=False, **length)
    trainer.fit(Module(), task.train, task.evaluation if run.evaluates else None)


WAYS = {"PyTorch": plain, "torch.compile": lambda run: plain(run, compiled=True), "Accelerate": accelerate, "Lightning": lightning}


def layouts(job: str, wish: Wish) -> dict:
    """The seconds of a step with the channels first and last, in plain PyTorch."""
    seconds = {}
    for layout in ("first", "last"):
        clock = Clock(wish.steps, "layouts")
        plain(Run(make(job, dataclasses.replace(wish, layout=layout)), wish, clock))
        seconds[layout] = clock.value
    return {"layout": min(seconds, key=seconds.get), "layouts": seconds}


def main() -> None:
    wishes = json.loads(sys.argv[1])
    way, job, measure = wishes.pop("way"), wishes.pop("job"), wishes.pop("measure")
    wish = Wish(**wishes | {"data": pathlib.Path(wishes["data"])})
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
        wish.rank, wish.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if measure == "layouts":
        print(json.dumps(layouts(job, wish)))
        return
    epoch = measure == "epoch"
    clock = Clock(None if epoch else wish.steps, measure)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(make(job, wish), wish, clock, evaluates=epoch, saves_to=pathlib.Path(folder) if measure == "checkpoint" else None)
        WAYS[way](run)
        done = time.perf_counter()
    if epoch:
        figures = clock.figures() | {"value": done - clock.begin, "accuracy": run.correct / max(1, run.evaluated)}
    elif measure == "checkpoint":
        figures = clock.figures() | {"value": clock.saving / (clock.count - clock.warm)}
    else:
        figures = clock.figures()
    if wish.rank == 0:
        print(json.dumps(figures), flush=True)
    if wish.ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
