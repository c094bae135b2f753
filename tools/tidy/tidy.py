#!/usr/bin/env python3
"""Runs clang-tidy over the project's sources, and only over those that changed since they last passed.

Usage: tidy.py CLANG_TIDY BUILD_FOLDER [--jobs N]

What passed is remembered in the user's cache folder by a digest of all that the verdict depends on: the source and the
project's headers that it includes, directly or not, every .clang-tidy above it, clang-tidy's version and the compiler's flags. So a
change costs what it touches, header or source, in any clone on the machine; a new machine checks everything once.

Most of a source's time goes into the headers that it includes: 11 s into LibTorch's. Sources that are compiled alike are
therefore checked as one that includes them all. In such a unit, a source may lean on what one before it includes. So
each is also parsed by itself (parsing.py), by the compiler of BUILD_FOLDER with its precompiled header, which is made
first. What the precompiled header holds, LibTorch and the standard library, a source can miss there unseen, as it can in
the development build.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import sources as project
from parsing import submit_parsing
from sources import ROOT

MOST = 100  # sources that are checked as one
FINDING = re.compile(r"^(/[^\s:]+):\d+:\d+: (?:warning|error):", re.MULTILINE)
# clang-tidy is of another version than the compiler, so it cannot read the compiler's precompiled header.
PRECOMPILED = re.compile(r"-Xclang (-include-pch|-include) -Xclang \S+|-fpch-instantiate-templates|-Winvalid-pch"
                         r"|-Xclang -fno-pch-timestamp|-fsanitize=\S+|-fno-sanitize\S+|-fuse-ld=\S+")


def digest(command: str, source: pathlib.Path, settings: str) -> str:
    """Names everything that clang-tidy's verdict on a source depends on; the same in every clone."""
    result = hashlib.sha256((settings + command.replace(str(ROOT), "")).encode())
    for folder in source.relative_to(ROOT).parents:
        own = ROOT / folder / ".clang-tidy"
        if folder.parts and own.is_file():
            result.update(own.read_bytes())
    for path in project.with_headers(source):
        result.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return result.hexdigest()


def compiler_and_flags(command: str) -> list[str]:
    """Without launchers (ccache), and without the output's name, which depends on the target and not on the source."""
    words = shlex.split(command)
    compiler = next(i for i, word in enumerate(words) if re.search(r"(clang\+\+|g\+\+|c\+\+)[-0-9.]*$", word))
    output = words.index("-o")
    return words[compiler:output] + words[output + 2 :]


def parse_command(entry: dict) -> list[str]:
    words = compiler_and_flags(entry["command"])
    return [word for word in words if word not in ("-c", entry["file"])] + ["-fsyntax-only"]


def tidy_flags(entry: dict) -> list[str]:
    """What clang-tidy has to know to compile the entry's source, without the source."""
    words = compiler_and_flags(PRECOMPILED.sub("", entry["command"]))[1:]
    words = [word for word in words if word not in ("-c", entry["file"])]
    # What libstdc++ says of itself to a clang that is newer than it is no concern of ours.
    return ["-Wno-deprecated-declarations"] + words


def shared_flags(flags: dict[pathlib.Path, list[str]]) -> dict[pathlib.Path, list[str]]:
    """Flags under which a source can be checked together with others: its own and perhaps more macros and folders of
    headers, which other sources need. Who has all of a source's flags, and the most sources, lends it theirs."""
    count = collections.Counter(map(tuple, flags.values()))
    wider = {}
    for own in count:
        wide = [other for other in count if set(own) < set(other) and count[other] > 1
                and all(flag.startswith(("-D", "-I", "-isystem", "/")) for flag in set(other) - set(own))]
        wider[own] = max(wide, key=lambda other: count[other], default=own)

    def widest(own: tuple[str, ...]) -> tuple[str, ...]:
        return own if wider[own] == own else widest(wider[own])

    return {source: list(widest(tuple(own))) for source, own in flags.items()}


def settings_folder(source: pathlib.Path) -> pathlib.Path:
    """The nearest folder above with settings of clang-tidy."""
    return next(folder for folder in source.parents if (folder / ".clang-tidy").is_file())


class Unit:
    """Sources that are checked as one. Two that seem to declare the same for themselves do not go into one unit, nor
    does one that declares what a header of the others does. To guess is enough: what does not compile is taken apart."""

    def __init__(self) -> None:
        self.sources, self.declared, self.introduced = [], {}, set()

    def takes(self, source: pathlib.Path) -> bool:
        declared = project.declared(source)
        return (all(self.declared.get(name, path) == path for name, path in declared.items())
                and self.introduced.isdisjoint(declared)
                and self.declared.keys().isdisjoint(project.introduced(source)))

    def add(self, source: pathlib.Path) -> None:
        self.sources.append(source)
        self.declared |= project.declared(source)
        self.introduced |= project.introduced(source)


def units_of(due: list[pathlib.Path], flags: dict[pathlib.Path, list[str]]) -> list[list[pathlib.Path]]:
    """The sources that are checked as one: those with the same settings and flags, as many as go together."""
    alike = {}
    for source in sorted(due):
        alike.setdefault((settings_folder(source), *flags[source]), []).append(source)
    all_units = []
    for sources in alike.values():
        units = []
        for source in sources:
            unit = next((unit for unit in units if len(unit.sources) < MOST and unit.takes(source)), None)
            if unit is None:
                unit = Unit()
                units.append(unit)
            unit.add(source)
        all_units += [unit.sources for unit in units]
    return sorted(all_units, key=len, reverse=True)  # the longest one is not to start last


def write_unit(sources: list[pathlib.Path], folder: pathlib.Path) -> pathlib.Path:
    """Writes a source that includes them all, below copies of their settings."""
    unit = folder / sources[0].relative_to(ROOT).with_name(f"{sources[0].stem}_and_{len(sources) - 1}_others.cpp")
    unit.parent.mkdir(parents=True, exist_ok=True)
    for parent in sources[0].relative_to(ROOT).parents:  # clang-tidy looks for its settings above the unit
        if (ROOT / parent / ".clang-tidy").is_file():
            shutil.copy(ROOT / parent / ".clang-tidy", folder / parent)
    includes = (f'#include "{source.relative_to(ROOT)}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources)
    unit.write_text("".join(includes))
    return unit


def make_precompiled_header(build_folder: pathlib.Path) -> None:
    done = subprocess.run(["cmake", "--build", str(build_folder), "--target", "trainrun_pch"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cannot make the precompiled header of {build_folder}\n{done.stdout}{done.stderr}")


@dataclasses.dataclass
class Checker:
    clang_tidy: str
    flags: dict[pathlib.Path, list[str]]  # each source's own
    shared: dict[pathlib.Path, list[str]]  # and what it is checked with beside others
    folder: pathlib.Path  # for files of its own

    def run(self, sources: list[pathlib.Path]) -> tuple[pathlib.Path, subprocess.CompletedProcess]:
        alone = len(sources) == 1
        path = sources[0] if alone else write_unit(sources, self.folder)
        flags = (self.flags if alone else self.shared)[sources[0]]
        return path, subprocess.run([self.clang_tidy, "--quiet", str(path), "--", *flags], cwd=ROOT, capture_output=True, text=True)


def check_unit(checker: Checker, sources: list[pathlib.Path]) -> set[pathlib.Path]:
    """Prints what clang-tidy finds, and returns the sources that it is about; all of them where it is about a header."""
    path, done = checker.run(sources)
    if done.returncode == 0:
        return set()

    def check_parts(parts: list[list[pathlib.Path]]) -> set[pathlib.Path]:
        return set().union(*(check_unit(checker, part) for part in parts))

    named = {pathlib.Path(name) for name in FINDING.findall(done.stdout)}
    if len(sources) > 1 and "clang-diagnostic-error" in done.stdout:  # perhaps they do not go together
        clash = next(line for line in done.stdout.splitlines() if "clang-diagnostic-error" in line)
        print(f"clang-tidy: {len(sources)} sources are taken apart, which takes time: {clash.replace(f'{ROOT}/', '')}", flush=True)
        middle = len(sources) // 2
        return check_parts([sources[:middle], sources[middle:]])
    if len(sources) > 1 and named and named <= set(sources):  # each says alone what is wrong with it
        return check_parts([[source] for source in sorted(named)])
    print(done.stdout.replace(f"{ROOT}/", ""), end="", flush=True)
    if not named:
        print(f"{path}: clang-tidy failed\n{done.stderr}", flush=True)
    return set(sources)


def check_all(clang_tidy: str, build_folder: pathlib.Path, entries: dict[pathlib.Path, dict], due: list[pathlib.Path],
              jobs: int, remember: Callable[[pathlib.Path], None]) -> list[pathlib.Path]:
    """Calls `remember` for each source that passes, prints what is wrong with the others, and returns them."""
    if not due:
        return []
    flags = {source: tidy_flags(entry) for source, entry in entries.items()}
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        folder = pathlib.Path(name)
        checker = Checker(clang_tidy, flags, shared_flags(flags), folder)
        header = pool.submit(make_precompiled_header, build_folder)
        units = [pool.submit(check_unit, checker, unit) for unit in units_of(due, checker.shared)]
        header.result()
        parts = submit_parsing({source: parse_command(entries[source]) for source in due}, pool, folder)
        failed = set().union(*(unit.result() for unit in units))
        for part in parts:
            for source, wrong in part.result().items():
                print(wrong.replace(f"{ROOT}/", ""), end="", flush=True)
                if wrong:
                    failed.add(source)
                elif source not in failed:
                    remember(source)
        return sorted(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clang_tidy")
    parser.add_argument("build_folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()

    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "trainrun" / "clang-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([arguments.clang_tidy, "--version"], check=True, capture_output=True, text=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_text()

    entries = {}  # one per source, although a source may be built for several targets
    made = arguments.build_folder.resolve()  # what the build writes only includes sources of the project
    for entry in json.loads((arguments.build_folder / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        is_own = source.is_relative_to(ROOT) and not source.is_relative_to(made)
        if source.suffix == ".cpp" and is_own and source.parent != ROOT / "cmake":
            entries[source] = entry
    if not entries:
        sys.exit(f"no sources in {arguments.build_folder}/compile_commands.json")
    digests = {source: digest(shlex.join(tidy_flags(entry)), source, settings) for source, entry in entries.items()}
    due = [source for source in entries if not (cache / digests[source]).exists()]
    print(f"clang-tidy: {len(entries)} sources, {len(due)} changed since they last passed", flush=True)

    failed = check_all(arguments.clang_tidy, arguments.build_folder, entries, due, arguments.jobs,
                       lambda source: (cache / digests[source]).touch())
    for source in failed:
        print(f"clang-tidy: {source.relative_to(ROOT)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
