#!/usr/bin/env python3
"""Whether a move of code changed a number: what every recipe that ships, and every valid one of the tests, trains to.

    tests/parity/moves.py record PROGRAM OUT.json     # before the move, and after it
    tests/parity/moves.py compare BEFORE.json AFTER.json

A record is written after each run, and goes on where it was when it is begun again with the same program. `--way` and `--recipe` choose
what is run, `--stand-ins FOLDER` makes small data of the same form for recipes whose data is not at hand (tests/parity/stand_in_data.py),
`--jobs` says how many recipes run at once.

Of each recipe it keeps the SHA-256 of what `explain` says, and of losses and weights after three steps by one process, two
ranks of DDP and two of FSDP. Both records must come from one machine. A recipe that cannot be run in one of these ways
(its data is not there, its optimizer wants whole tensors) counts by its error, which must stay the same, too.
"""

import argparse
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
LARGE_DATA = ("mnist", "fashion", "cifar10", "pets", "shakespeare_char", "gpt2", "mrpc", "lora", "dpo")
LARGE_NETS = ("wide", "resnet", "cifar10", "shakespeare", "image_folder", "segmentation", "gpt2", "mrpc")
WAYS = {
    "one process": ["distributed_type='NO'", "num_processes=1"],
    "2 ranks of DDP": ["distributed_type=MULTI_CPU", "num_processes=2"],
    "2 ranks of FSDP": ["distributed_type=FSDP", "num_processes=2"],
}
KINDS = ["explain", *WAYS]


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
        evaluation = NOT_EVALUATED if any(word in recipe for word in LARGE_DATA) else EVALUATED
        size = ["dataloader.batch_size=4"] if any(word in recipe for word in LARGE_NETS) else []
        result = call(program, recipe, *COMMON, *evaluation, *size, *WAYS[way], f"output_dir={folder}/run")
        if result.returncode != 0:
            print(f"{recipe}, {way}: exit code {result.returncode}\n{result.stderr[-600:]}", file=sys.stderr, flush=True)
            return f"error: exit code {result.returncode}"  # which rank speaks first is not the same each time
        run = pathlib.Path(folder) / "run"  # or, of a recipe that trains all folds, those below it
        logs, nets = sorted(run.glob("**/metrics.jsonl")), sorted(run.glob("**/checkpoints/latest/model.safetensors"))
        if not logs or not nets:
            sys.exit(f"{recipe}, {way}: the run left no metrics.jsonl or no weights")
        lines = [line for log in logs for line in log.read_text().splitlines()]
        losses = digest("\n".join(json.dumps(without_times(line)) for line in lines))
        weights = digest(b"".join(net.read_bytes() for net in nets))
        return f"losses {losses}, weights {weights}"


def explained(program: str, recipe: str) -> str:
    result = call(program, "explain", recipe)
    return digest(result.stdout + result.stderr)


def begun(program: str, out: pathlib.Path) -> dict:
    """What `out` has of this program already."""
    files = [pathlib.Path(program), *sorted(pathlib.Path(program).parent.with_name("lib").glob("*.so"))]
    fresh = {"program": digest("".join(digest(file.read_bytes()) for file in files)), "data": os.environ.get("TRAINRUN_DATA", ""), "recipes": {}}
    if not out.exists():
        return fresh
    found = json.loads(out.read_text())
    for key in ("program", "data"):
        if found.get(key) != fresh[key]:
            sys.exit(f"{out} is a record of another {key} ({found.get(key)}, not {fresh[key]}): name another file, or remove it")
    return found


def record(program: str, out: pathlib.Path, kinds: list[str], only: str, jobs: int) -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    found = begun(program, out)
    entries = found["recipes"]
    missing = [(recipe, kind) for kind in kinds for recipe in recipes() if only in recipe and kind not in entries.get(recipe, {})]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(explained, program, recipe) if kind == "explain" else pool.submit(trained, program, recipe, kind): (recipe, kind) for recipe, kind in missing}
        for job in concurrent.futures.as_completed(running):
            recipe, kind = running[job]
            entries.setdefault(recipe, {})[kind] = job.result()
            part = out.with_name(out.name + ".part")
            part.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
            part.rename(out)


def compare(before: dict, after: dict) -> int:
    if before["data"] != after["data"]:
        sys.exit(f"the records are of different data: {before['data']} and {after['data']}")
    before, after = before["recipes"], after["recipes"]
    print(f"{'':16}{'recipes':>8}{'equal':>8}{'not':>8}{'errors':>8}{'of one':>8}")
    different, single = [], []
    for kind in KINDS:
        either = sorted(recipe for recipe in before.keys() | after.keys() if kind in before.get(recipe, {}) or kind in after.get(recipe, {}))
        both = [recipe for recipe in either if kind in before.get(recipe, {}) and kind in after.get(recipe, {})]
        unequal = [recipe for recipe in both if before[recipe][kind] != after[recipe][kind]]
        errors = sum(before[recipe][kind].startswith("error") and recipe not in unequal for recipe in both)
        print(f"{kind:16}{len(either):8}{len(both) - len(unequal) - errors:8}{len(unequal):8}{errors:8}{len(either) - len(both):8}")
        different += [f"{kind}: {recipe}: {before[recipe][kind]} -> {after[recipe][kind]}" for recipe in unequal]
        single += [f"{kind}: {recipe}: in one record alone" for recipe in either if recipe not in both]
    print("\n".join(different + single))
    return 1 if different or single else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("program")
    recording.add_argument("out", type=pathlib.Path)
    recording.add_argument("--way", action="append", choices=KINDS, help="all of them unless given, again for several")
    recording.add_argument("--recipe", default="", help="only recipes whose path contains this")
    recording.add_argument("--stand-ins", type=pathlib.Path, help="a folder in which data that TRAINRUN_DATA lacks is made")
    recording.add_argument("--jobs", type=int, default=2)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=pathlib.Path)
    comparing.add_argument("after", type=pathlib.Path)
    chosen = parser.parse_args()
    if chosen.verb == "compare":
        return compare(json.loads(chosen.before.read_text()), json.loads(chosen.after.read_text()))
    if chosen.stand_ins:
        sys.path.insert(0, str(ROOT))
        from tests.parity import stand_in_data

        made = stand_in_data.make(chosen.stand_ins.resolve(), pathlib.Path(os.environ.get("TRAINRUN_DATA", ROOT / "data")))
        print(f"made, since TRAINRUN_DATA lacks them: {', '.join(made)}", file=sys.stderr)
        os.environ["TRAINRUN_DATA"] = str(chosen.stand_ins.resolve())
    record(str(pathlib.Path(chosen.program).resolve()), chosen.out, chosen.way or KINDS, chosen.recipe, chosen.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
