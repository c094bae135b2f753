#!/usr/bin/env python3
"""Whether a move of code changed a number: what every recipe that ships, and every valid one of the tests, trains to.

    tests/parity/moves.py record PROGRAM OUT.json     # before the move, and after it
    tests/parity/moves.py compare BEFORE.json AFTER.json

Of each recipe it keeps the SHA-256 of what `explain` says, and of losses and weights after three steps by one process, two
ranks of DDP and two of FSDP. Both records must come from one machine. A recipe that cannot be run in one of these ways
(its data is not there, its optimizer wants whole tensors) counts by its error, which must stay the same, too.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = 3
TIMES = {"seconds", "seconds_of", "per_second", "time"}
COMMON = ["device=cpu", f"training.max_steps={STEPS}", "training.num_epochs=null", "logging={every_steps: 1, report_to: [jsonl]}",
          "checkpoint={every: 3, keep_last: 1}", "dataloader.num_workers=0"]  # fmt: skip
EVALUATED = ["evaluation.every=3"]
NOT_EVALUATED = ["evaluation.every=null", "checkpoint.keep_best=null"]  # a test split of MNIST takes a wide net minutes
WAYS = {
    "one process": ["distributed_type='NO'", "num_processes=1"],
    "2 ranks of DDP": ["distributed_type=MULTI_CPU", "num_processes=2"],
    "2 ranks of FSDP": ["distributed_type=FSDP", "num_processes=2"],
}


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def recipes() -> list[str]:
    found = [*(ROOT / "recipes").glob("*.yaml"), *(ROOT / "tests/recipes/valid").glob("*.yaml")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def call(program: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600)


def without_times(line: str) -> dict:
    return {key: value for key, value in json.loads(line).items() if not any(word in key for word in TIMES)}


def trained(program: str, recipe: str, way: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        evaluation = NOT_EVALUATED if "mnist" in recipe else EVALUATED
        size = ["dataloader.batch_size=8"] if "wide" in recipe else []
        result = call(program, recipe, *COMMON, *evaluation, *size, *WAYS[way], f"output_dir={folder}/run")
        if result.returncode != 0:
            return f"error: exit code {result.returncode}"  # which rank speaks first is not the same each time
        lines = (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines()
        losses = digest("\n".join(json.dumps(without_times(line)) for line in lines))
        weights = digest((pathlib.Path(folder) / "run/checkpoints/latest/model.safetensors").read_bytes())
        return f"losses {losses}, weights {weights}"


def record(program: str) -> dict[str, dict[str, str]]:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    entries: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for recipe in recipes():
        explained = call(program, "explain", recipe)
        entries[recipe]["explain"] = digest(explained.stdout + explained.stderr)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {pool.submit(trained, program, recipe, way): (recipe, way) for recipe in recipes() for way in WAYS}
        for job in concurrent.futures.as_completed(jobs):
            recipe, way = jobs[job]
            entries[recipe][way] = job.result()
    return entries


def compare(before: dict, after: dict) -> int:
    if before.keys() != after.keys():
        print("the recipes are not the same: " + ", ".join(sorted(before.keys() ^ after.keys())))
    print(f"{'':16}{'recipes':>8}{'equal':>8}{'not':>8}{'errors':>8}")
    different = []
    for kind in ["explain", *WAYS]:
        pairs = {recipe: (before[recipe][kind], after[recipe][kind]) for recipe in sorted(before.keys() & after.keys())}
        unequal = [recipe for recipe, (old, new) in pairs.items() if old != new]
        errors = sum(old.startswith("error") for old, new in pairs.values())
        print(f"{kind:16}{len(pairs):8}{len(pairs) - len(unequal):8}{len(unequal):8}{errors:8}")
        different += [f"{kind}: {recipe}: {pairs[recipe][0]} -> {pairs[recipe][1]}" for recipe in unequal]
    print("\n".join(different))
    return 1 if different or before.keys() != after.keys() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("program")
    recording.add_argument("out", type=pathlib.Path)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=pathlib.Path)
    comparing.add_argument("after", type=pathlib.Path)
    chosen = parser.parse_args()
    if chosen.verb == "record":
        entries = record(str(pathlib.Path(chosen.program).resolve()))
        chosen.out.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
        return 0
    return compare(json.loads(chosen.before.read_text()), json.loads(chosen.after.read_text()))


if __name__ == "__main__":
    sys.exit(main())
