"""What benchmarks against a peer share: both take turns, and at going first too, so that other load on the machine meets both alike."""

import os
import pathlib
import statistics
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent.parent


def output_of(command: list, environment: dict | None = None) -> str:
    """What a program prints; if it fails, so does the benchmark, with all that the program said."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def processor() -> str:
    found = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} of {len(found)} processors, {found[0] if found else 'unknown'}"


def spread(values: list[float], digits: int = 2) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def take_turns(programs: dict, repetitions: int, cases: list[str]) -> dict:
    """Runs `programs[name](case, repetition)`, a dict of figures, for each; prints them; a list of them under (name, case)."""
    results = {}
    for repetition in range(repetitions):
        for case in cases:
            for name in list(programs)[:: 1 if repetition % 2 == 0 else -1]:
                load = os.getloadavg()[0]
                figures = programs[name](case, repetition)
                results.setdefault((name, case), []).append(figures)
                shown = "  ".join(f"{key} {value:.5g}" for key, value in figures.items())
                print(f"{repetition + 1}  {case}  {name:<12}  {shown}  load {load:.1f}", flush=True)
    return results


def add_arguments(parser) -> None:
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--binary", default=ROOT / "build" / "release" / "bin" / "trainrun", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--python", default=ROOT / ".deps" / "python" / "bin" / "python", type=pathlib.Path)
    parser.add_argument("--data", default=os.environ.get("TRAINRUN_DATA", "data"), type=lambda path: pathlib.Path(path).resolve(),
                        help="the folder that holds the data (default: TRAINRUN_DATA)")
