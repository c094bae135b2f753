"""Random recipes trained by trainrun and, as plain PyTorch programs, by torch: losses, evaluations and weights agree.

CI takes the first 100 seeds, and those that once differed. Any others: python -B tests/parity/random_nets_test.py --first 100 --count 3000
(TRAINRUN_BUILD_DIR names the build folder; the files of what differs are kept).
"""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import sys
import tempfile
import warnings
from dataclasses import dataclass

# One thread each, here and in the probe: as many cases at a time as there are cores, and sums in one order.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import safetensors.torch
import torch

import random_recipes
import torch_recipes
from probe import Probe, ProbeError

NUM_CASES = 100
# Nets that once differed: by a sum's order in memory, noise where gradients are zero, a batch of one value, parameters that
# no loss depends on, a line search that goes too far.
ONCE_DIFFERENT = (701648, 701772, 701895, 702211, 702308, 702909, 704769, 902722, 902770)
SEEDS = (*range(NUM_CASES), *ONCE_DIFFERENT)
LEAST_EQUAL = 0.8  # of all cases: the rest are refused by both, or rounding leads them far apart
TOLERANCE = {"no": 1e-4, "bf16": 2e-2}  # of losses, and of weights by the largest of their tensor
NOISE = {"no": 2e-7, "bf16": 1e-3}  # relative, of initial weights and data: about what one rounding changes
NUM_NOISY = (4, 40)  # a gradient that is zero but for rounding may be exactly zero in some; so many more where the first explain nothing
NOT_FINITE = re.compile("the loss is|the last evaluation failed|the weights are not finite")  # as trainrun says it
AMPLIFIED = 30  # a difference so many times what noise makes is none of rounding


@dataclass
class Outcome:
    kind: str  # "equal", "rounding", "refused by both", "not finite in both", "PyTorch fails", or "different"
    message: str = ""


def distance(actual: torch_recipes.Run, expected: torch_recipes.Run) -> dict[str, float]:
    """How far apart two runs are, in relative terms: the loss of each step and evaluation, each tensor."""
    far = {}
    for kind in ("losses", "evaluations"):
        ours, theirs = getattr(actual, kind), getattr(expected, kind)
        if len(ours) != len(theirs):
            return {f"{len(ours)} {kind}, not {len(theirs)}": float("inf")}
        scale = max([abs(value) for value in theirs], default=1) or 1
        far |= {f"{kind}[{i}]": abs(a - b) / scale for i, (a, b) in enumerate(zip(ours, theirs))}
    if actual.state.keys() != expected.state.keys():
        return {f"names {sorted(actual.state.keys() ^ expected.state.keys())}": float("inf")}
    for name, tensor in expected.state.items():
        if actual.state[name].shape != tensor.shape:
            return {f"shape of {name}": float("inf")}
        if tensor.numel():
            off = (actual.state[name].double() - tensor.double()).abs().max().item()
            far[name] = off / max(tensor.double().abs().max().item(), 0.05)
    return far


class Case:
    """A seed's recipe with its files in `folder`."""

    def __init__(self, seed: int, folder: pathlib.Path):
        self.drawn, self.folder = random_recipes.RandomRecipe(seed), folder
        self.recipe = json.loads(json.dumps(self.drawn.recipe))
        self.precision = self.recipe.get("mixed_precision", "no")
        folder.mkdir(parents=True)
        for split in ("train", "eval"):
            data = getattr(self.drawn, split)
            path = folder / f"{split}.safetensors"
            safetensors.torch.save_file(data, path)
            self.recipe["dataset"][split]["path"] = str(path)
        self.recipe |= {"output_dir": str(folder / "run"), "checkpoint": {"every": None},
                        "logging": {"every_steps": 1, "report_to": ["jsonl"]}}
        (folder / "recipe.yaml").write_text(json.dumps(self.recipe, indent=1))

    def expected(self, noise: float = 0, noise_seed: int = 0) -> torch_recipes.Run:
        return torch_recipes.train(self.drawn.recipe, self.drawn.train, self.drawn.eval, noise, noise_seed)

    def made_by_noise(self, expected: torch_recipes.Run, num_runs: int) -> dict[str, float]:
        """How far rounding may lead: the most that noise in the initial weights and the data makes of each figure."""
        runs = [distance(self.expected(NOISE[self.precision], seed), expected) for seed in range(num_runs)]
        return {name: max(run.get(name, 0) for run in runs) for name in runs[0]}

    def trained(self, probe: Probe, steps: int) -> torch_recipes.Run:
        """What trainrun makes of it, stopped and resumed half way through `steps` where the case says so."""
        run = torch_recipes.Run()
        overrides = []
        if self.drawn.resumed and steps > 1:
            half = steps // 2
            self.ask(probe, [f"output_dir={self.folder / 'first'}", f"training.max_steps={half}", f"checkpoint.every={half}"])
            self.read(self.folder / "first", run)
            del run.evaluations[self.epochs_within(half):]  # the one at the end of this job
            overrides = [f"checkpoint.resume={self.folder / 'first' / 'checkpoints' / 'latest'}"]
        run.state = self.ask(probe, overrides)
        self.read(self.folder / "run", run)
        return run

    def ask(self, probe: Probe, overrides: list[str]) -> dict[str, torch.Tensor]:
        return probe.ask("train", recipe=str(self.folder / "recipe.yaml"), overrides=overrides)[1].under("state")

    def epochs_within(self, steps: int) -> int:
        """Epochs that the first `steps` steps end."""
        per_epoch = len(torch_recipes.windows(self.drawn.recipe, len(self.drawn.train["label"]), 0))
        return steps // per_epoch

    @staticmethod
    def read(folder: pathlib.Path, run: torch_recipes.Run):
        for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
            if line["split"] == "train":
                run.losses.append(line["train/loss"])
            else:
                run.evaluations.append(line["eval/loss"])

    def compare(self, probe: Probe) -> Outcome:
        refusal = ""
        try:
            expected = self.expected()
        except (ValueError, RuntimeError) as error:  # a batch of one sample in BatchNorm, say
            expected, refusal = None, str(error)
        except ZeroDivisionError:  # LBFGS's line search of a step of length 0 (a rate of 0); trainrun stays where it is
            try:
                losses = self.trained(probe, 0).losses
            except ProbeError as error:
                return Outcome("PyTorch fails" if NOT_FINITE.search(str(error)) else "different", f"by a division by zero; {error}")
            return Outcome("PyTorch fails" if all(map(math.isfinite, losses)) else "different", f"by a division by zero; losses {losses}")
        finite = expected is not None and all(map(torch.isfinite, map(torch.tensor, expected.losses + expected.evaluations)))
        try:
            actual = self.trained(probe, len(expected.losses) if expected else 0)
        except ProbeError as error:
            if refusal:
                return Outcome("refused by both", f"{refusal} | {error}")
            if not finite and NOT_FINITE.search(str(error)):
                return Outcome("not finite in both", str(error))
            return Outcome("different", f"trainrun refuses: {error}")
        if refusal:
            return Outcome("different", f"PyTorch refuses: {refusal}")
        return self.judge(actual, expected)

    def judge(self, actual: torch_recipes.Run, expected: torch_recipes.Run) -> Outcome:
        far = distance(actual, expected)
        worst = max(far, key=far.get)
        if far[worst] <= TOLERANCE[self.precision]:
            return Outcome("equal")
        for num_runs in NUM_NOISY:
            noisy = self.made_by_noise(expected, num_runs)
            unexplained = {name: value for name, value in far.items()
                           if value > TOLERANCE[self.precision] and not value <= AMPLIFIED * noisy.get(name, 0)}
            if not unexplained:
                return Outcome("rounding", f"{worst} is off by {far[worst]:.2g}, noise makes that {noisy[worst]:.2g}")
        first = next(iter(unexplained))
        return Outcome("different", f"{first} is off by {far[first]:.2g}, noise makes that {noisy.get(first, 0):.2g}; first losses "
                                    f"{actual.losses[:3]}, PyTorch {expected.losses[:3]}")


# --- Many at a time

PROBE: Probe | None = None
FOLDER = pathlib.Path()


def start_worker(folder: str):
    global PROBE, FOLDER
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    FOLDER = pathlib.Path(folder)
    own = FOLDER / f"probe-{os.getpid()}"
    own.mkdir()
    PROBE = Probe(own)


def run_case(seed: int) -> tuple[int, Outcome]:
    folder = FOLDER / str(seed)
    try:
        outcome = Case(seed, folder).compare(PROBE)
    except Exception as error:  # the generator or the reference is wrong: said with the seed
        outcome = Outcome("different", f"{type(error).__name__}: {error}")
    if outcome.kind != "different":
        shutil.rmtree(folder)
    return seed, outcome


def run_cases(seeds, folder: pathlib.Path):
    """Seed and outcome of each, as they are known."""
    workers = len(os.sched_getaffinity(0))
    with concurrent.futures.ProcessPoolExecutor(workers, initializer=start_worker, initargs=(str(folder),)) as pool:
        yield from pool.map(run_case, seeds, chunksize=1)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return dict(run_cases(SEEDS, tmp_path_factory.mktemp("random_nets")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_net_trains_as_in_pytorch(outcomes, seed):
    assert outcomes[seed].kind != "different", outcomes[seed].message


def test_most_cases_are_equal_not_merely_explained(outcomes):
    kinds = collections.Counter(outcome.kind for outcome in outcomes.values())
    assert kinds["equal"] >= LEAST_EQUAL * len(SEEDS), dict(kinds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=NUM_CASES, help="how many seeds")
    parser.add_argument("--verbose", action="store_true", help="also say what rounding, or both, explain")
    options = parser.parse_args()
    os.environ.setdefault("TRAINRUN_BUILD_DIR", "build/release")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="random_nets."))
    kinds: collections.Counter = collections.Counter()
    for seed, outcome in run_cases(range(options.first, options.first + options.count), folder):
        kinds[outcome.kind] += 1
        if outcome.kind == "different":
            print(f"seed {seed}: {outcome.message}\n  {folder / str(seed)}", flush=True)
        elif options.verbose and outcome.kind != "equal":
            print(f"seed {seed}: {outcome.kind}: {outcome.message}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    return 1 if kinds["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
