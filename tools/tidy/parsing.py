"""Parses each source by itself, in two thirds of the time that a compiler for each would take.

Most of that time goes into loading the precompiled header and into the headers that many sources include. One compiler
reads both, and is then forked for each source (fork_point.cpp). What it reads before is included by every source that
it is forked for, so no source sees a header that it would not see alone:

    root.cpp              headers that all of the sources include, then root.fork_point
      1.h                 headers that some of them include, then 1.fork_point
        registry/kinds/layer.cpp, registry/kinds/loss.cpp, …
      registry/language/value.cpp

A compiler takes such a source for a header, and does not say there which constants and variables of the file are never
used; `unused_values` does.
"""

import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import re
import subprocess
from collections.abc import Iterator

import sources as project
from sources import ROOT

MOST = 48  # sources that one compiler is forked for
SYSTEM_HEADER = 4000  # what a header that is not the project's costs, in bytes of one that is
WORTHWHILE = 20000  # such bytes, read once instead of by each source, are worth another fork


@dataclasses.dataclass
class Point:
    """Headers that are read once, and what the compiler is then forked for."""

    headers: list[pathlib.Path]
    points: list["Point"]
    sources: list[pathlib.Path]


def headers_of(source: pathlib.Path) -> frozenset[pathlib.Path]:
    return frozenset(path for path in project.with_headers(source) if path.suffix == ".h")


def cost(header: pathlib.Path) -> int:
    text = header.read_text()
    return len(text) + SYSTEM_HEADER * text.count("#include <")


def plan(sources: list[pathlib.Path], known: frozenset[pathlib.Path] = frozenset()) -> Point:
    """`known` is read already. All sources read what they have in common; those that share most more are put together,
    as long as that is worthwhile."""
    of_source = {source: headers_of(source) for source in sources}
    common = frozenset.intersection(*of_source.values()) - known
    known |= common
    rest, points = list(sources), []
    while True:
        together = {}
        for source in rest:
            for header in of_source[source] - known:
                together.setdefault(header, []).append(source)

        def gain(header: pathlib.Path) -> int:
            return (len(together[header]) - 1) * sum(map(cost, headers_of(header) - known))

        best = max(sorted(together), key=gain, default=None)
        if best is None or gain(best) < WORTHWHILE:
            return Point(sorted(common), points, rest)
        points.append(plan(together[best], known))
        rest = [source for source in rest if source not in together[best]]


def write_point(point: Point, path: pathlib.Path, numbers: Iterator[int], outputs: dict[pathlib.Path, pathlib.Path]) -> None:
    """Writes the file at `path` and all below it; each source's `outputs` is where the compiler prints about it."""
    fork_point = path.with_suffix(".fork_point")
    path.write_text("".join(f'#include "{header.relative_to(ROOT)}"\n' for header in point.headers)
                    + f'#include "{fork_point.name}"\n')
    lines = []
    for below in point.points:
        file = path.with_name(f"{next(numbers)}.h")
        write_point(below, file, numbers, outputs)
        lines.append(str(file))
    for source in point.sources:
        outputs[source] = path.with_name(f"{next(numbers)}.txt")
        lines.append(f"{source}\t{outputs[source]}")
    fork_point.write_text("\n".join(lines) + "\n")


def build_fork_point(folder: pathlib.Path) -> pathlib.Path:
    library = folder / "fork_point.so"
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", str(pathlib.Path(__file__).with_name("fork_point.cpp")),
                    "-o", str(library)], check=True)
    return library


def unused_values(source: pathlib.Path) -> list[str]:
    """The constants and variables that the source declares for itself and does not name again."""
    text = source.read_text()
    return [name for name in project.VALUE.findall(text) if len(re.findall(rf"\b{name}\b", text)) == 1]


def parse_part(part: list[pathlib.Path], command: list[str], folder: pathlib.Path, library: pathlib.Path) -> dict[pathlib.Path, str]:
    """What is wrong with each source, "" for nothing."""
    folder.mkdir()
    outputs = {}
    write_point(plan(part), folder / "root.cpp", itertools.count(1), outputs)
    done = subprocess.run([*command, str(folder / "root.cpp")], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "LD_PRELOAD": str(library)})

    def wrong_with(source: pathlib.Path) -> str:
        status = pathlib.Path(f"{outputs[source]}.status")
        if not status.is_file():  # a header that it shares with others, or the compiler itself
            return f"{source}: it was not parsed\n{done.stdout}{done.stderr}"
        if status.read_text() != "0\n":
            return re.sub(rf"{re.escape(str(folder))}/\w+\.fork_point", str(source), outputs[source].read_text())
        unused = unused_values(source)
        return f"{source}: never used: {', '.join(unused)}\n" if unused else ""

    return {source: wrong_with(source) for source in part}


def submit_parsing(commands: dict[pathlib.Path, list[str]], pool: concurrent.futures.Executor,
                   folder: pathlib.Path) -> list[concurrent.futures.Future]:
    """`commands`: of each source, the compiler's, without the source. Each future is what `parse_part` returns of some of
    them; `folder` has to stay until they are done."""
    alike = {}
    for source in sorted(commands):
        alike.setdefault(tuple(commands[source]), []).append(source)
    parts = []
    for command, sources in alike.items():
        num_parts = -(-len(sources) // MOST)
        size = -(-len(sources) // num_parts)
        parts += [(sources[first:first + size], list(command)) for first in range(0, len(sources), size)]
    parts.sort(key=lambda part: len(part[0]), reverse=True)
    library = build_fork_point(folder)
    return [pool.submit(parse_part, part, command, folder / f"parsed_{number}", library) for number, (part, command) in enumerate(parts)]
