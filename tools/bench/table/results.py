"""The table's JSON: what was measured where, row by row; and what follows from it."""

import json
import os
import pathlib
import statistics

VERSION = 1
TOLERANCE = {"fp32": 0.005, "bf16": 0.03}  # of losses, relative


def load(path: pathlib.Path) -> dict | None:
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    if found.get("version") != VERSION:
        raise SystemExit(f"{path}: version {found.get('version')} of the table's JSON, expected {VERSION}: give another --json, or remove it")
    return found


def save(path: pathlib.Path, results: dict) -> None:
    """In one piece: who interrupts the table keeps what was measured."""
    partial = path.with_name(path.name + ".new")
    partial.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(partial, path)


def runs_of(row: dict, program: str) -> list[dict]:
    return [run for run in row["runs"] if run["program"] == program]


def medians(row: dict) -> dict[str, float]:
    return {program: statistics.median(run["value"] for run in runs) for program in row["programs"] if (runs := runs_of(row, program))}


def ratios(row: dict, program: str, to: str) -> list[float]:
    """How many times as much as `to` a program takes, round by round."""
    values = {name: {run["round"]: run["value"] for run in runs_of(row, name)} for name in (program, to)}
    return [values[program][number] / values[to][number] for number in sorted(values[program]) if values[to].get(number)]


def loss_verdict(row: dict, better: str) -> str:
    """Whether trainrun and the better peer learn the same, by the losses of the last step."""
    losses = [statistics.median(run["loss"] for run in runs_of(row, name) if run.get("loss") is not None) if runs_of(row, name) else None for name in (row["ours"], better)]
    if row["losses_differ"]:
        return f"not compared: {row['losses_differ']}"
    mine, theirs = losses
    if mine is None or theirs is None:
        return "not known"
    apart, allowed = abs(mine - theirs) / max(abs(theirs), 1e-9), TOLERANCE["bf16" if row["bf16"] else "fp32"]
    return f"equal within {100 * allowed:g} %" if apart <= allowed else f"{100 * apart:.1f} % apart"


def summary(row: dict) -> dict | None:
    """The better peer decides: the one with the smaller median. None where nothing can be compared."""
    middle = medians(row)
    if row["ours"] not in middle:
        return None
    base_programs = set(row["base"].values())
    peers = {name: value for name, value in middle.items() if name != row["ours"] and row["programs"][name] and name not in base_programs}
    found = {"ours": middle[row["ours"]], "medians": middle, "rounds": len(runs_of(row, row["ours"]))}
    if peers:
        better = min(peers, key=peers.get)
        each = ratios(row, better, row["ours"])
        if each:
            found |= {"better": better, "theirs": peers[better], "ratio": statistics.median(each), "low": min(each), "high": max(each), "losses": loss_verdict(row, better)}
    found["over_base"] = {name: statistics.median(each) for name, base in row["base"].items() if name in middle and base in middle and (each := ratios(row, base, name))}
    return found


def shown(row: dict, value: float) -> str:
    """A value in the row's unit, with three digits that count."""
    scaled = value * row["scale"]
    return f"{scaled:,.{max(0, 3 - len(str(int(scaled))))}f}"


def losing(results: dict) -> list[str]:
    """Rows in which a peer is faster, and those in which a round says so."""
    lines = []
    for name, row in results["rows"].items():
        found = summary(row)
        if not found or "ratio" not in found:
            continue
        if found["ratio"] < 1:
            lines.append(f"{name}: {found['better']} takes {found['ratio']:.2f} times trainrun's {shown(row, found['ours'])} {row['unit']}")
        elif found["low"] < 1:
            lines.append(f"{name}: {found['better']} took less in some round (ratios {found['low']:.2f} to {found['high']:.2f})")
        for program, times in found["over_base"].items():
            if program == row["ours"] and times < 1:
                lines.append(f"{name}: two ranks are slower than one ({times:.2f})")
    return lines


def rounds_text(rounds: int) -> str:
    return "one round" if rounds == 1 else f"{rounds} rounds"


def line_of(name: str, row: dict) -> str:
    """One row for people."""
    found = summary(row)
    if not found:
        return f"{name:<24}  not measured"
    parts = [f"{program} {shown(row, value)}" for program, value in found["medians"].items()]
    text = f"{name:<24}  {', '.join(parts)} {row['unit']}"
    if "ratio" in found:
        text += f"; {found['better']} takes {found['ratio']:.2f} times as much ({found['low']:.2f} to {found['high']:.2f}, {rounds_text(found['rounds'])}); losses {found['losses']}"
    for program, times in found["over_base"].items():
        text += f"; {program}: {times:.2f} times its one rank"
    return text
