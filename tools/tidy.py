#!/usr/bin/env python3
"""Runs clang-tidy over the project's sources, and only over those that changed since they last passed.

Usage: tidy.py CLANG_TIDY BUILD_FOLDER [--jobs N]

What passed is remembered in the user's cache folder by a digest of all that the verdict depends on: the source and the
project's headers that it includes, directly or not, every .clang-tidy above it, clang-tidy's version and the compiler's flags. So a
change costs what it touches, header or source, in any clone on the machine; a new machine checks everything once.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
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


def compile_command(entry: dict) -> str:
    command = PRECOMPILED.sub("", entry["command"])
    words = shlex.split(command)
    compiler = next(i for i, word in enumerate(words) if re.search(r"(clang\+\+|g\+\+|c\+\+)[-0-9.]*$", word))
    output = words.index("-o")
    # Launchers (ccache) go, and so does the output's name, which depends on the target and not on the source.
    # What libstdc++ says of itself to a clang that is newer than it is no concern of ours.
    return shlex.join(["clang++", "-Wno-deprecated-declarations"] + words[compiler + 1 : output] + words[output + 2 :])


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

    commands = {}  # one per source, although a source may be built for several targets
    for entry in json.loads((arguments.build_folder / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix == ".cpp" and source.is_relative_to(ROOT) and source.parent != ROOT / "cmake":
            commands[source] = compile_command(entry)
    if not commands:
        sys.exit(f"no sources in {arguments.build_folder}/compile_commands.json")
    digests = {source: digest(command, source, settings) for source, command in commands.items()}
    todo = [source for source in commands if not (cache / digests[source]).exists()]
    print(f"clang-tidy: {len(commands)} sources, {len(todo)} changed since they last passed", flush=True)

    with tempfile.TemporaryDirectory() as database:
        entries = [{"directory": str(ROOT), "file": str(s), "command": c} for s, c in commands.items()]
        (pathlib.Path(database) / "compile_commands.json").write_text(json.dumps(entries))

        def check(source: pathlib.Path) -> bool:
            done = subprocess.run([arguments.clang_tidy, "--quiet", "-p", database, str(source)],
                                  capture_output=True, text=True)
            if done.returncode == 0:
                (cache / digests[source]).touch()
            else:
                print(done.stdout.replace(f"{ROOT}/", ""), end="", flush=True)
                if "error:" not in done.stdout:
                    print(f"{source}: clang-tidy failed\n{done.stderr}", flush=True)
            return done.returncode == 0

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            failed = [source for source, passed in zip(todo, pool.map(check, todo)) if not passed]
    for source in failed:
        print(f"clang-tidy: {source.relative_to(ROOT)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
