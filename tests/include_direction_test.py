"""The direction of dependencies, read off the #include lines: tools -> runner -> registry -> LibTorch, never upward."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What a folder's sources may include of the project's folders...
MAY_INCLUDE = {
    "registry": {"registry"},
    "runner": {"runner", "registry"},
    "tools": {"tools", "runner", "registry"},
    "tests": {"tests", "tools", "runner", "registry"},
}
# ... and which of them may include these libraries. What a component is has nothing to do with YAML or logging.
LIBRARIES = {
    "yaml-cpp/": {"runner"},
    "spdlog/": {"runner", "tools", "tests"},
    "CLI/": {"tools"},
    "doctest/": {"tests"},
    "valijson/": {"tests"},
}
MAX_FILES_WITH_YAML_CPP = 1

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def faults_of(root: pathlib.Path) -> list[str]:
    """Every #include that the rules above forbid, as "file:line: what is wrong"."""
    faults, yaml_files = [], set()
    for folder, allowed in MAY_INCLUDE.items():
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"}):
            name = path.relative_to(root)
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                bracket, target = match.groups()
                place = f"{name}:{number}"
                if bracket == '"':
                    if not (root / target).is_file():
                        faults.append(f'{place}: "{target}" is no file of the project; say it from the top folder')
                    elif target.split("/")[0] not in allowed:
                        faults.append(f"{place}: {folder} may not include {target}")
                elif target.split("/")[0] in MAY_INCLUDE:
                    faults.append(f'{place}: say "{target}", in quotes')
                for library, folders in LIBRARIES.items():
                    if target.startswith(library) and folder not in folders:
                        faults.append(f"{place}: {folder} may not include {target}")
                if target.startswith("yaml-cpp/"):
                    yaml_files.add(str(name))
    if len(yaml_files) > MAX_FILES_WITH_YAML_CPP:
        faults.append(f"yaml-cpp is included by more than {MAX_FILES_WITH_YAML_CPP} file: {', '.join(sorted(yaml_files))}")
    return faults


def test_no_include_goes_up():
    assert faults_of(ROOT) == []


def test_an_include_that_goes_up_is_found(tmp_path):
    for name, text in {
        "registry/layer.h": '#include "runner/job.h"\n',
        "registry/log.cpp": "\n#include <spdlog/spdlog.h>\n",
        "runner/job.h": '#include "registry/layer.h"\n#include "job.h"\n',
        "tools/main.cpp": '#include "runner/job.h"\n#include "registry/layer.h"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert faults_of(tmp_path) == [
        "registry/layer.h:1: registry may not include runner/job.h",
        "registry/log.cpp:2: registry may not include spdlog/spdlog.h",
        'runner/job.h:2: "job.h" is no file of the project; say it from the top folder',
    ]


if __name__ == "__main__":
    found = faults_of(ROOT)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
