"""Writes docs/performance.md and its plots from the table's JSON; no figure is written by hand. The JSON goes beside the plots, so that the next page has
the rows that are not measured again; those of a page without one keep their lines."""

import json
import pathlib
import re
import statistics

from . import results, runs
from .rows import all_rows

HEAD = """\
# How fast trainrun trains on a CPU{without}

<!-- Made by `tools/bench/all --write` from its JSON; edit tools/bench/table instead. -->

"""
HOW = """\
## How this was measured

- `tools/bench/all` runs trainrun and its peers in turns, each in a process of its own, round by round; who goes first changes with each round. Tables have the
  medians of {rounds}, unless a row says otherwise. Each row was measured on the machine above, with a 1-minute load of {load} as a run began.
- The peers are written as their users write them (`tools/bench/table/peer.py`): a loop in plain PyTorch, the same with `torch.compile(model)`, `Accelerator.prepare`, and
  Lightning's `Trainer` without its logger, checkpoints, progress bar and summary. Data, batches, optimizer and schedule are the same for all. All have the default
  number of threads, unless a row says otherwise.
- A step's time is the mean of the second half of a run's steps; the first half warms up. A peer of such a row then stays and trains another half in each round, while trainrun begins
  each round anew. `torch.compile` compiles before, and that time is not counted, nor is it in the epoch's. Images of peers are kept with the
  channels first or last: whichever was faster in plain PyTorch at the beginning of the row.
- **The better peer** is the one with the smallest median. The ratio says how many times as much it takes as trainrun: the median of the rounds' ratios, with the smallest and largest. Below 1, trainrun loses.
- **Product** is what a product of two 2048x2048 matrices (smaller ones where that takes more than half a second) reached in PyTorch as the row began, in the row's precision. **Arithmetic** is a step's multiplications and additions (three forward
  passes by direct sums) at that speed; Winograd's algorithm needs fewer, and trainrun leaves out positions that nothing reads, such as padding, so that a step may be faster. **Kernels** is the time that a step's layers, loss and optimizer take in `trainrun profile`.
  For rows of two ranks, the products of two processes of one thread each, at the same time, are compared with those of one process alone: what two processors of this machine add up to.
- Losses of the last step are compared where the initial weights and the order of samples are the same. Where they are not, the table says why.

"""


class OldPage:
    """What a page of this kind of machine says of rows that the figures lack, each with its rounds and the date and build that it was measured with."""

    def __init__(self, text: str, machine: str):
        named = re.search(r"^(\d{4}-\d\d-\d\d), (.*?), Linux .*?; (trainrun \w+)", text, re.MULTILINE)
        self.text = text if named and named[2] == machine else ""
        self.measured = f" ({named[1]}, {named[3]})" if named else ""
        usual = re.search(r"medians of (.*? rounds?), unless", text.replace("\n ", ""))
        self.usual = f"; {usual[1]}" if usual else ""

    def kept(self, line: str) -> str:
        title, bar, rest = line.partition(" | ")
        if ", trainrun " not in title:
            title += self.measured
        return title + bar + re.sub(r"(\*\* \([^)]*\), [^|;]+?)(?= \|)", r"\1" + self.usual, rest)

    def rows(self, group: str) -> tuple[str, dict[str, str]]:
        """The head of a group's table, and its lines by the names of rows."""
        head, _, *lines = self.text.partition(f"## {group}\n\n")[2].partition("\n\n")[0].splitlines() or ["", ""]
        return head, {line.removeprefix("| ").partition(":")[0]: self.kept(line) for line in lines}

    def growth(self) -> str:
        text = self.text.partition("## Growth\n\n")[2].partition("## How this was measured")[0]
        return f"Measured{self.measured}.\n\n{text}" if text and not text.startswith("Measured") else text


def line_of(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [line_of(cells) for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n\n"


def kind_text(machine: dict) -> str:
    return f"{machine['processor']}: {machine['processors']} of its {machine['of']} processors ({', '.join(machine['features'])}), {machine['memory_gib']} GiB of memory"


def machine_text(found: dict) -> str:
    machine, versions = found["machine"], found["machine"]["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    floors = [row["floor"] for row in found["rows"].values() if "floor" in row]
    text = (f"{found['date']}, {kind_text(machine)}, Linux {machine['kernel']}; trainrun {machine['commit']}{' with ' + ' '.join(machine['overrides']) if machine['overrides'] else ''}; {named}.")
    if floors:
        fp32, bf16 = (statistics.median(floor[kind] for floor in floors) for kind in ("fp32", "bf16"))
        text += f" A large product reaches {fp32:.3g} GFLOP/s in float32 and {bf16:.3g} in bfloat16 (medians over the rows; {floors[0]['threads']} threads)."
    return text + "\n\n"


def ratio_text(row: dict, found: dict, usual: int) -> str:
    if "ratio" not in found:
        return ""
    text = f"**{found['ratio']:.2f}** ({found['low']:.2f} to {found['high']:.2f}), {found['better']}"
    if "cut" in row:
        return f"{text}; {found['rounds']} of {row['rounds']} rounds"
    return text + (f"; {results.rounds_text(found['rounds'])}" if found["rounds"] != usual else "")


def measured_text(row: dict) -> str:
    """When, and with which program, a row of an earlier build was measured."""
    return f" ({row['measured']})" if "measured" in row else ""


def floor_text(row: dict) -> str:
    floor = row.get("floor", {})
    if "fp32" not in floor:
        return ""
    parts = [f"{floor['bf16' if row['bf16'] else 'fp32']:.0f} GFLOP/s"]
    parts += [f"{name} {results.shown(row, floor[name])} {row['unit']}" for name in ("arithmetic", "kernels") if name in floor]
    if row["base"] and "two_over_one" in floor:
        parts.append(f"two processes' products {floor['two_over_one']:.2f} of one's")
    return ", ".join(parts)


def loss_text(row: dict, found: dict) -> str:
    values = []
    for name in (row["ours"], found.get("better")):
        for figure, form in (("loss", ".4g"), ("accuracy", ".2%")):
            each = [run[figure] for run in results.runs_of(row, name) if run.get(figure) is not None] if name else []
            values += [format(statistics.median(each), form)] if each else []
    return f"{', '.join(values)}: {found['losses']}" if "losses" in found else ", ".join(values)


def group_text(name: str, rows: dict, usual: int, old: OldPage) -> str:
    programs = list(dict.fromkeys(program for row in rows.values() for program in row["programs"] if results.runs_of(row, program)))
    extra = ["over one rank"] if any(row["base"] for row in rows.values()) else []
    lines = {}
    for row_name, row in rows.items():
        found = results.summary(row)
        if not found:
            continue
        cells = [results.shown(row, found["medians"][program]) if program in found["medians"] else "" for program in programs]
        cells = [f"{row_name}: {row['title']} [{row['unit']}]{measured_text(row)}", *cells, ratio_text(row, found, usual)]
        if extra:
            cells.append(", ".join(f"{program}: {times:.2f}" for program, times in found["over_base"].items()))
        lines[row_name] = line_of([*cells, floor_text(row), loss_text(row, found)])
    head = line_of(["row", *programs, "better peer ÷ trainrun", *extra, "product, arithmetic, kernels", "loss of the last step, accuracy"])
    old_head, old_lines = old.rows(name)
    if old_head == head or not lines:
        head, lines = old_head, old_lines | lines
    if not lines:
        return ""
    order = {row.name: number for number, row in enumerate(all_rows())}
    ordered = [lines[row] for row in sorted(lines, key=lambda row: order.get(row, len(order)))]
    return f"## {name}\n\n" + "\n".join([head, line_of(["---"] * (head.count(" | ") + 1)), *ordered]) + "\n\n"


def growth_text(series: str, rows: dict, plot: str | None) -> str:
    title = next(iter(rows.values()))["title"]
    text = f"### {series.removeprefix('growth: ').capitalize()}: {title}\n\n"
    if plot:
        text += f"![{title}]({plot})\n\n"
    programs = list(dict.fromkeys(program for row in rows.values() for program in row["programs"]))
    lines = []
    for row in sorted(rows.values(), key=lambda row: row["x"]):
        found = results.summary(row)
        if found:
            cells = [results.shown(row, found["medians"][program]) if program in found["medians"] else "" for program in programs]
            lines.append([f"{row['x']:g}{measured_text(row)}", *cells, f"{found['ratio']:.2f}" if "ratio" in found else ""])
    unit = next(iter(rows.values()))["unit"]
    return text + table([series.removeprefix("growth: "), *(f"{program} [{unit}]" for program in programs), "÷ trainrun"], lines)


def draw(found: dict, page: pathlib.Path, python: pathlib.Path) -> list[pathlib.Path]:
    """The plots of growth, by matplotlib; none where it is not installed."""
    if not (runs.BENCH_PACKAGES / "matplotlib").is_dir():
        return []
    wanted = {}
    for row in found["rows"].values():
        if row["x"] is None or not results.summary(row):
            continue
        plot = wanted.setdefault(row["group"].removeprefix("growth: "), {"title": row["title"], "unit": row["unit"], "scale": row["scale"], "lines": {}})
        for program, value in results.medians(row).items():
            plot["lines"].setdefault(program, []).append([row["x"], value])
    if not wanted:
        return []
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    done = runs.run([python, "-B", runs.HERE / "plots.py", json.dumps(wanted), folder], {"PYTHONPATH": str(runs.BENCH_PACKAGES)})
    return [pathlib.Path(line) for line in done.output.splitlines()]


def rest_text(found: dict, old: OldPage) -> str:
    lines = [f"- {what}: {why.splitlines()[0]}" for what, why in found["left_out"].items()]
    if old.text or any("measured" in row for row in found["rows"].values()):
        lines.append("- rows with a date and a build in brackets were not measured again with the program named above")
    missing = [row.name for row in all_rows() if row.name not in found["rows"] and row.name not in found["left_out"]]
    if missing:
        lines.append(f"- not measured this time: {', '.join(missing)}")
    text = "## Left out\n\n" + ("\n".join(lines) or "Nothing.") + "\n\n"
    return text + "## To repeat this\n\n```\ntools/setup --tests\ntools/bench/all --setup\ntools/bench/all --write\n```\n\n" \
        "The whole takes hours: `--list` prints the rows with estimates, `--only` takes some of them, `--budget 25m` stops in time; what the JSON has is not measured again.\n"


def usual_rounds(found: dict) -> int:
    counts = [summary["rounds"] for row in found["rows"].values() if (summary := results.summary(row))]
    return statistics.mode(counts) if counts else 0


def has_avx512(found: dict) -> bool:
    return "avx512f" in found["machine"]["features"]


def place_of(found: dict) -> pathlib.Path:
    """Each kind of machine has a page of its own, as its figures have a JSON of their own."""
    return runs.ROOT / "docs" / ("performance.md" if has_avx512(found) else "performance_avx2.md")


def figures_of(page: pathlib.Path) -> pathlib.Path:
    return page.with_suffix("") / "figures.json"


def text_of(found: dict, plots: dict[str, str], old: OldPage) -> str:
    groups: dict[str, dict] = {row.group: {} for row in all_rows()}
    for name, row in found["rows"].items():
        groups.setdefault(row["group"], {})[name] = row
    loads = [run["load"] for row in found["rows"].values() for run in row["runs"]] or [0]
    text = HEAD.format(without="" if has_avx512(found) else " without AVX-512") + machine_text(found)
    if found["quick"]:
        text += "**These are figures of `--quick`: one round of a few steps with small batches. They show that the tool works, not how fast anything is.**\n\n"
    lost = results.losing(found)
    text += "## Where trainrun loses\n\n" + ("".join(f"- {line}\n" for line in lost) or "In no row was a peer faster, in no round.\n") + "\n"
    text += "".join(group_text(name, rows, usual_rounds(found), old) for name, rows in groups.items() if not name.startswith("growth"))
    growth = {name: rows for name, rows in groups.items() if name.startswith("growth") and rows}
    if not growth and old.growth():
        text += "## Growth\n\n" + old.growth()
    if growth:
        text += "## Growth\n\n" + "".join(growth_text(name, rows, plots.get(name.removeprefix("growth: "))) for name, rows in growth.items())
    text += HOW.format(rounds=results.rounds_text(usual_rounds(found)), load=f"{min(loads):.1f} to {max(loads):.1f}")
    return text + rest_text(found, old)


def write(found: dict, page: pathlib.Path, python: pathlib.Path) -> list[pathlib.Path]:
    """The files that were written."""
    plots = draw(found, page, python)
    old = OldPage(page.read_text() if page.exists() else "", kind_text(found["machine"]))
    page.write_text(text_of(found, {path.stem: f"{path.parent.name}/{path.name}" for path in plots}, old))
    figures = figures_of(page)
    figures.parent.mkdir(parents=True, exist_ok=True)
    figures.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return [page, *plots, figures]
