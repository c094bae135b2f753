#!/usr/bin/env python3
"""Runs clang-tidy over the project's sources, and only over those that changed since they last passed.

Usage: tidy.py CLANG_TIDY BUILD_FOLDER [--jobs N]

What passed is remembered in the user's cache folder by a digest of all that the verdict depends on: the source and the
project's headers that it includes, directly or not, every .clang-tidy above it, clang-tidy's version and the compiler's flags. So a
change costs what it touches, header or source, in any clone on the machine; a new machine checks everything once.

Most of a source's time goes into the headers that it includes. Sources of a folder that are due and are compiled alike
are therefore checked as one that includes them all. If it passes, so has each of them; if not, each is checked alone,
and says what it says alone. In such a unit, a source may lean on what one before it includes. So each is also parsed by
itself, by the compiler of BUILD_FOLDER with its precompiled header, which is made first. What the precompiled header
holds, LibTorch and the standard library, a source can miss there unseen, as it can in the development build.
"""

import argparse
import concurrent.futures
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEWEST, MOST = 4, 20  # sources that are checked as one
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# clang-tidy is of another version than the compiler, so it cannot read the compiler's precompiled header.
PRECOMPILED = re.compile(r"-Xclang (-include-pch|-include) -Xclang \S+|-fpch-instantiate-templates|-Winvalid-pch"
                         r"|-Xclang -fno-pch-timestamp|-fsanitize=\S+|-fno-sanitize\S+|-fuse-ld=\S+")


def sources_with_headers(source: pathlib.Path) -> list[pathlib.Path]:
    """The source and every file of the project that it includes, directly or not, in a stable order."""
    found, waiting = set(), [source]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            waiting += [ROOT / name, path.parent / name]
    return sorted(found)


def digest(command: str, source: pathlib.Path, settings: str) -> str:
    """Names everything that clang-tidy's verdict on a source depends on; the same in every clone."""
    result = hashlib.sha256((settings + command.replace(str(ROOT), "")).encode())
    for folder in source.relative_to(ROOT).parents:
        own = ROOT / folder / ".clang-tidy"
        if folder.parts and own.is_file():
            result.update(own.read_bytes())
    for path in sources_with_headers(source):
        result.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return result.hexdigest()


def compiler_and_flags(command: str) -> list[str]:
    """Without launchers (ccache), and without the output's name, which depends on the target and not on the source."""
    words = shlex.split(command)
    compiler = next(i for i, word in enumerate(words) if re.search(r"(clang\+\+|g\+\+|c\+\+)[-0-9.]*$", word))
    output = words.index("-o")
    return words[compiler:output] + words[output + 2 :]


def compile_command(entry: dict) -> str:
    flags = compiler_and_flags(PRECOMPILED.sub("", entry["command"]))[1:]
    # What libstdc++ says of itself to a clang that is newer than it is no concern of ours.
    return shlex.join(["clang++", "-Wno-deprecated-declarations"] + flags)


def units_of(due: list[pathlib.Path], commands: dict[pathlib.Path, str]) -> list[list[pathlib.Path]]:
    """The sources that are checked as one: those of a folder that are compiled alike, in equal parts."""
    alike = {}
    for source in due:
        alike.setdefault((source.parent, commands[source].replace(str(source), "")), []).append(source)
    units = []
    for sources in alike.values():
        if len(sources) >= FEWEST:
            num_parts = -(-len(sources) // MOST)
            units += [sources[part::num_parts] for part in range(num_parts)]
    return sorted(units, key=len, reverse=True)  # the longest one is not to start last


def write_unit(sources: list[pathlib.Path], commands: dict[pathlib.Path, str], folder: pathlib.Path) -> dict:
    """Writes the source that includes them all, and returns its entry in the compilation database."""
    unit = folder / (str(sources[0].relative_to(ROOT).with_suffix("")) + "_and_others.cpp")
    unit.parent.mkdir(parents=True, exist_ok=True)
    for parent in sources[0].relative_to(ROOT).parents:  # clang-tidy looks for its settings above the unit
        if (ROOT / parent / ".clang-tidy").is_file():
            shutil.copy(ROOT / parent / ".clang-tidy", folder / parent)
    includes = (f'#include "{source.relative_to(ROOT)}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources)
    unit.write_text("".join(includes))
    return {"directory": str(ROOT), "file": str(unit), "command": commands[sources[0]].replace(str(sources[0]), str(unit))}


def make_precompiled_header(build_folder: pathlib.Path) -> None:
    done = subprocess.run(["cmake", "--build", str(build_folder), "--target", "trainrun_pch"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cannot make the precompiled header of {build_folder}\n{done.stdout}{done.stderr}")


def parses(entry: dict) -> bool:
    done = subprocess.run(compiler_and_flags(entry["command"]) + ["-fsyntax-only"], cwd=entry["directory"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr.replace(f"{ROOT}/", ""), end="", flush=True)
    return done.returncode == 0


def check_all(clang_tidy: str, build_folder: pathlib.Path, entries: dict[pathlib.Path, dict], due: list[pathlib.Path],
              jobs: int, remember: Callable[[pathlib.Path], None]) -> list[pathlib.Path]:
    """Calls `remember` for each source that passes, at once. Returns those that failed."""
    commands = {source: compile_command(entry) for source, entry in entries.items()}
    units = units_of(due, commands)
    if units:
        make_precompiled_header(build_folder)

    with tempfile.TemporaryDirectory() as database, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        listed = [{"directory": str(ROOT), "file": str(s), "command": c} for s, c in commands.items()]
        written = [write_unit(unit, commands, pathlib.Path(database)) for unit in units]
        (pathlib.Path(database) / "compile_commands.json").write_text(json.dumps(listed + written))

        def tidy(path: str) -> subprocess.CompletedProcess:
            return subprocess.run([clang_tidy, "--quiet", "-p", database, path], capture_output=True, text=True)

        def check_parsing(source: pathlib.Path) -> bool:
            passed = parses(entries[source])
            if passed:
                remember(source)
            return passed

        def check_alone(source: pathlib.Path) -> bool:
            done = tidy(str(source))
            if done.returncode == 0:
                remember(source)
            else:
                print(done.stdout.replace(f"{ROOT}/", ""), end="", flush=True)
                if "error:" not in done.stdout:
                    print(f"{source}: clang-tidy failed\n{done.stderr}", flush=True)
            return done.returncode == 0

        outcomes = pool.map(lambda unit: tidy(unit["file"]).returncode == 0, written)
        good = [source for unit, passed in zip(units, outcomes) if passed for source in unit]
        rest = [source for source in due if source not in set(good)]
        parsed, alone = pool.map(check_parsing, good), pool.map(check_alone, rest)
        return [source for source, passed in zip(good + rest, [*parsed, *alone]) if not passed]


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
    for entry in json.loads((arguments.build_folder / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix == ".cpp" and source.is_relative_to(ROOT) and source.parent != ROOT / "cmake":
            entries[source] = entry
    if not entries:
        sys.exit(f"no sources in {arguments.build_folder}/compile_commands.json")
    digests = {source: digest(compile_command(entry), source, settings) for source, entry in entries.items()}
    due = [source for source in entries if not (cache / digests[source]).exists()]
    print(f"clang-tidy: {len(entries)} sources, {len(due)} changed since they last passed", flush=True)

    failed = check_all(arguments.clang_tidy, arguments.build_folder, entries, due, arguments.jobs,
                       lambda source: (cache / digests[source]).touch())
    for source in failed:
        print(f"clang-tidy: {source.relative_to(ROOT)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
