"""The direction of dependencies, read off the #include lines: tools -> runner -> registry -> LibTorch, never upward, nor
between the rooms of runner/ and of registry/; no circles of files or rooms; no two types of one name, which a linker would
take for one; and which headers a plugin is compiled against.

    tests/include_direction_test.py            # lists the faults
    tests/include_direction_test.py --rooms    # prints the table of rooms that registry/README.md holds
"""

import collections
import pathlib
import re
import subprocess
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
    "yaml-cpp/": {"runner", "registry"},
    "spdlog/": {"runner", "tools", "tests"},
    "CLI/": {"tools"},
    "doctest/": {"tests"},
    "valijson/": {"tests"},
    "oniguruma.h": {"registry"},
    "utf8proc.h": {"registry"},
    "regex": {"tests"},  # std::regex calls itself for every character of a text: registry/language/name_regex.h
}
# Recipes' YAML, and that of the cards of data sets.
FILES_WITH_YAML_CPP = {"runner/recipe/yaml.cpp", "runner/recipe/yaml_messages.h", "runner/recipe/yaml_messages.cpp", "registry/formats/files/yaml_file.cpp"}
WITH_ARROW = "registry/data/tables/arrow/"  # a library of its own
GENERATED = {"registry/public_headers.h"}
# The rooms of registry/, the lowest first, and which of the others each may include. What lies in registry/ itself may
# include all of them.
REGISTRY_ROOMS: dict[str, set[str]] = {
    "language": set(),
    "formats": {"language"},
    "tensors": {"language", "formats"},
    "kernels": {"language", "tensors"},
    "graph": {"language", "tensors", "kernels"},
    "kinds": {"language", "tensors", "graph"},
    "layers": {"language", "tensors", "formats", "kernels", "graph", "kinds"},
    "models": {"language", "tensors", "formats", "graph", "kinds", "layers"},
    "components": {"language", "tensors", "formats", "kernels", "graph", "kinds"},
    "data": {"language", "tensors", "formats", "kinds"},
    "text_data": {"language", "tensors", "formats", "kinds", "data"},
    "image_data": {"language", "tensors", "formats", "kinds", "components", "data"},
}
MOST_ROOMS, MOST_LINES = 12, 15_000
WITHOUT_LIBTORCH = "registry/language/"
# How many headers a plugin is compiled against: registry/plugin.h and all that it includes. One more is one more whose
# change requires every plugin to be compiled again.
PUBLIC_HEADERS = 40
# The rooms of runner/, the lowest first: one may include itself and those before it.
ROOMS = [
    "process",
    "base",
    "recipe",
    "device",
    "data",
    "model",
    "distributed",
    "run",
    "loggers",
    "control",
    "generate",
    "train",
    "predict",
    "replay",
    "foresight",
    "init",
    "interop",
    "bundle",
    "report",
    "sweep",
]

NAMESPACE = re.compile(r"^namespace ([\w:]+) \{|^\}  // namespace \w")
UNNAMED = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|class|union|enum class) (\w+)(?: final)? (?::|\{)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(name: str) -> str:
    """The room of registry/ that a file lies in; "" for registry/ itself."""
    return name.split("/")[1] if name.count("/") > 1 else ""


def registry_fault(name: str, target: str) -> str | None:
    """What is wrong where the file `name` of registry/ includes `target`, which is of registry/, too."""
    own, other = room_of(name), room_of(target)
    for room, file in ((own, name), (other, target)):
        if room and room not in REGISTRY_ROOMS:
            return f"{file} is in no room of registry/"
    if not own or own == other or other in REGISTRY_ROOMS[own]:
        return None
    return f"registry/{own} may not include {target}"


def room_fault(name: str, target: str) -> str | None:
    """What is wrong where the file `name` includes `target`, which lies in the same top-level folder."""
    if name.startswith("registry/"):
        return registry_fault(name, target)
    own, other = name.split("/")[1], target.split("/")[1]
    for room, file in ((own, name), (other, target)):
        if room not in ROOMS:
            return f"{file} is in no room of runner/"
    return None if ROOMS.index(other) <= ROOMS.index(own) else f"runner/{own} may not include {target}"


def includes_of(root: pathlib.Path) -> dict[str, set[str]]:
    """Of each file, header and source taken together ("registry/kinds/layer"), those that it includes."""
    graph: dict[str, set[str]] = {}
    for folder in MAY_INCLUDE:
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in {".h", ".cpp"}):
            own = str(path.relative_to(root).with_suffix(""))
            for line in path.read_text().splitlines():
                match = INCLUDE.match(line)
                if match and match.group(1) == '"':
                    target = str(pathlib.PurePath(match.group(2)).with_suffix(""))
                    if target != own:
                        graph.setdefault(own, set()).add(target)
    return graph


def circles_of(root: pathlib.Path) -> list[str]:
    """Every group of files, and of rooms of registry/, that include each other."""
    graph = includes_of(root)
    return circles_in(graph) + circles_in(arrows_of(graph))


def arrows_of(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Of each room of registry/, those that its files include."""
    arrows: dict[str, set[str]] = {}
    for name, targets in graph.items():
        own = room_of(name) if name.startswith("registry/") else ""
        for target in targets if own else ():
            other = room_of(target) if target.startswith("registry/") else ""
            if other and other != own:
                arrows.setdefault(f"registry/{own}/", set()).add(f"registry/{other}/")
    return arrows


def circles_in(graph: dict[str, set[str]]) -> list[str]:
    """Every group of nodes that reach each other, by whatever way (Tarjan 1972), as "a, b include each other"."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles = []

    def visit(file: str) -> None:
        number[file] = low[file] = len(number)
        stack.append(file)
        for other in sorted(graph.get(file, ())):
            if other not in number:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == number[file]:
            begin = stack.index(file)
            group, stack[begin:] = sorted(stack[begin:]), []
            if len(group) > 1:
                circles.append(", ".join(group) + " include each other")

    for file in sorted(graph):
        if file not in number:
            visit(file)
    return circles


def faults_of(root: pathlib.Path) -> list[str]:
    """Every #include that the rules above forbid, as "file:line: what is wrong"."""
    faults = []
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
                    if target not in GENERATED and not (root / target).is_file():
                        faults.append(f'{place}: "{target}" is no file of the project; say it from the top folder')
                    elif target.split("/")[0] not in allowed:
                        faults.append(f"{place}: {folder} may not include {target}")
                    elif folder in ("runner", "registry") and target.startswith(f"{folder}/"):
                        fault = room_fault(str(name), target)
                        if fault:
                            faults.append(f"{place}: {fault}")
                elif target.split("/")[0] in MAY_INCLUDE:
                    faults.append(f'{place}: say "{target}", in quotes')
                elif str(name).startswith(WITHOUT_LIBTORCH) and target.split("/")[0] in ("torch", "ATen", "c10"):
                    faults.append(f"{place}: {WITHOUT_LIBTORCH} knows no LibTorch")
                for library, folders in LIBRARIES.items():
                    if target.startswith(library) and folder not in folders:
                        faults.append(f"{place}: {folder} may not include {target}")
                if target.startswith(("arrow/", "parquet/")) and not str(name).startswith(WITH_ARROW):
                    faults.append(f"{place}: Arrow is included in {WITH_ARROW} alone")
                if target.startswith("yaml-cpp/") and str(name) not in FILES_WITH_YAML_CPP:
                    faults.append(f"{place}: yaml-cpp is included in {', '.join(sorted(FILES_WITH_YAML_CPP))} alone")
    return faults


def public_headers_of(root: pathlib.Path) -> list[str]:
    """What a plugin is compiled against: cmake/public_headers.cmake makes the tag of plugins of the same ones."""
    found, unread = set(), ["registry/plugin.h"]
    while unread:
        header = unread.pop()
        if header not in found and header not in GENERATED:
            found.add(header)
            unread += re.findall(r'^#include "(registry/[^"]+)"', (root / header).read_text(), re.MULTILINE)
    return sorted(found)


def lines_of_rooms(root: pathlib.Path) -> dict[str, int]:
    lines: dict[str, int] = collections.Counter()
    for path in (root / "registry").rglob("*"):
        if path.suffix in {".h", ".cpp"}:
            lines[room_of(str(path.relative_to(root)))] += path.read_text().count("\n")
    return lines


def table_of_rooms(root: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Of each room, the lowest first: how many hundred lines it has, and which rooms its files include."""
    arrows, lines = arrows_of(includes_of(root)), lines_of_rooms(root)
    included = {room: {other.split("/")[1] for other in arrows.get(f"registry/{room}/", set())} for room in REGISTRY_ROOMS}
    return {room: (round(lines[room] / 100), ", ".join(r for r in REGISTRY_ROOMS if r in included[room]) or "none")
            for room in REGISTRY_ROOMS}  # fmt: skip


def types_in(text: str) -> set[str]:
    """The types that a file defines for others to see, with their namespaces."""
    types, inside = set(), []
    for line in UNNAMED.sub("", text).splitlines():
        if match := NAMESPACE.match(line):
            inside = [*inside, match[1]] if match[1] else inside[:-1]
        elif match := TYPE.match(line):
            types.add("::".join([*inside, match[1]]))
    return types


def types_defined_twice(root: pathlib.Path) -> list[str]:
    """Each as "name is defined in file and in file": what the compiler makes of the one would serve the other, too."""
    places: dict[str, list[str]] = {}
    for folder in ("registry", "runner", "tools"):  # what plugins and the tests' programs define meets only these
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in {".h", ".cpp"}):
            for name in types_in(path.read_text()):
                places.setdefault(name, []).append(str(path.relative_to(root)))
    return [f"{name} is defined in {' and in '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def test_no_include_goes_up():
    assert faults_of(ROOT) == []


def test_no_files_include_each_other():
    assert circles_of(ROOT) == []


def test_no_type_is_defined_twice():
    assert len(types_in((ROOT / "registry/kinds/layer.h").read_text())) > 1
    assert types_defined_twice(ROOT) == []


def test_each_room_has_its_readme():
    for top, rooms in (("runner", ROOMS), ("registry", list(REGISTRY_ROOMS))):
        folders = [path for path in (ROOT / top).iterdir() if path.is_dir() and any(path.iterdir())]
        assert sorted(path.name for path in folders) == sorted(rooms)
        assert [room for room in rooms if not (ROOT / top / room / "README.md").is_file()] == []


def test_the_rooms_of_registry_are_small_and_in_its_readme():
    assert len(REGISTRY_ROOMS) <= MOST_ROOMS
    lines = lines_of_rooms(ROOT)
    assert [room for room in lines if lines[room] > MOST_LINES] == []
    readme = (ROOT / "registry/README.md").read_text()
    said = {row[0]: (float(row[1]) * 10, row[2]) for row in re.findall(r"^\| `(\w+)/` \| ([\d.]+) \| ([\w, ]+) \|", readme, re.MULTILINE)}
    assert list(said) == list(REGISTRY_ROOMS)
    for room, (hundreds, included) in table_of_rooms(ROOT).items():
        print(f"{room:12}{hundreds / 10:6} thousand lines, includes {included}")
        assert said[room][1] == included, f"registry/README.md, {room}: tests/include_direction_test.py --rooms prints the table"
        assert abs(said[room][0] - hundreds) <= max(3, 0.15 * hundreds), f"registry/README.md, {room}: it has {hundreds / 10} thousand lines"


def test_state_of_a_thread_is_listed_with_its_reason():
    """What is not passed on is hard to follow: one more is a decision, told in the README of registry/ or runner/."""
    for top in ("registry", "runner"):
        listed = (ROOT / top / "README.md").read_text()
        for path in (ROOT / top).rglob("*.cpp"):
            if re.search(r"^\s*(static )?thread_local ", path.read_text(), re.MULTILINE):
                name = str(path.relative_to(ROOT / top))
                assert name in listed, f"{top}/README.md does not list the thread_local of {name}"


def test_a_plugin_is_compiled_against_few_headers():
    headers = public_headers_of(ROOT)
    rooms = {room_of(header) for header in headers}
    assert rooms == {"", "kinds", "graph", "tensors", "language"}
    assert len(headers) == PUBLIC_HEADERS, "a header more is a decision: what it says becomes a part of every plugin"


def tag_of_plugins(root: pathlib.Path) -> str:
    """The part of it that says which headers a plugin was compiled against, as the build makes it."""
    header = root / "made.h"
    script = ROOT / "cmake/public_headers.cmake"
    subprocess.run(["cmake", f"-DROOT={root}", f"-DOUT={header}", f"-DLIST={root / 'made.txt'}", "-P", script], check=True)
    assert (root / "made.txt").read_text().split() == public_headers_of(root)
    return header.read_text()


def test_only_a_change_of_a_public_header_makes_plugins_invalid(tmp_path):
    for path in (ROOT / "registry").rglob("*.h"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    before = tag_of_plugins(tmp_path)
    for name in ("formats/text/tokenizer.h", "data/tables/table.h", "kernels/cpu_path.h", "layers/attention.h"):
        with (tmp_path / "registry" / name).open("a") as header:
            header.write("struct AnotherOne {};\n")
    assert tag_of_plugins(tmp_path) == before
    with (tmp_path / "registry/kinds/layer.h").open("a") as header:
        header.write("struct AnotherOne {};\n")
    assert tag_of_plugins(tmp_path) != before


def write_tree(root: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)


def test_an_include_that_goes_up_is_found(tmp_path):
    write_tree(tmp_path, {
        "registry/kinds/layer.h": '#include "runner/train/job.h"\n#include "registry/data/table.h"\n',
        "registry/data/table.h": '#include "registry/kinds/layer.h"\n#include "registry/misc/other.h"\n',
        "registry/misc/other.h": "",
        "registry/language/value.h": "#include <ATen/core/Tensor.h>\n",
        "registry/catalog.h": '#include "registry/data/table.h"\n',
        "registry/log.cpp": "\n#include <spdlog/spdlog.h>\n",
        "registry/data/tables/arrow/cells.cpp": "#include <arrow/array.h>\n",
        "registry/table.cpp": "#include <parquet/arrow/reader.h>\n",
        "runner/data/data.h": '#include "registry/kinds/layer.h"\n',
        "runner/data/sampler.cpp": '#include "runner/data/data.h"\n#include "runner/train/job.h"\n',
        "runner/misc/other.h": '#include "runner/data/data.h"\n',
        "runner/train/job.h": '#include "runner/data/data.h"\n#include "job.h"\n',
        "tools/main.cpp": '#include "runner/train/job.h"\n#include "registry/kinds/layer.h"\n',
    })
    assert faults_of(tmp_path) == [
        "registry/data/table.h:2: registry/misc/other.h is in no room of registry/",
        "registry/kinds/layer.h:1: registry may not include runner/train/job.h",
        "registry/kinds/layer.h:2: registry/kinds may not include registry/data/table.h",
        "registry/language/value.h:1: registry/language/ knows no LibTorch",
        "registry/log.cpp:2: registry may not include spdlog/spdlog.h",
        "registry/table.cpp:1: Arrow is included in registry/data/tables/arrow/ alone",
        "runner/data/sampler.cpp:2: runner/data may not include runner/train/job.h",
        "runner/misc/other.h:1: runner/misc/other.h is in no room of runner/",
        'runner/train/job.h:2: "job.h" is no file of the project; say it from the top folder',
    ]


def test_files_that_include_each_other_are_found(tmp_path):
    write_tree(tmp_path, {
        "registry/a.h": "",
        "registry/a.cpp": '#include "registry/a.h"\n#include "registry/c.h"\n',
        "registry/b.h": '#include "registry/a.h"\n',
        "registry/c.h": '#include "registry/b.h"\n',
        "runner/data/data.h": '#include "registry/a.h"\n#include "registry/b.h"\n',
    })
    assert circles_of(tmp_path) == ["registry/a, registry/b, registry/c include each other"]


def test_rooms_that_include_each_other_are_found(tmp_path):
    write_tree(tmp_path, {
        "registry/kinds/layer.h": "",
        "registry/kinds/build.cpp": '#include "registry/graph/graph.h"\n',
        "registry/graph/graph.h": "",
        "registry/graph/plan.cpp": '#include "registry/kernels/sum.h"\n',
        "registry/kernels/sum.h": '#include "registry/kinds/layer.h"\n',
        "registry/data/table.h": '#include "registry/kinds/layer.h"\n',
    })
    assert circles_of(tmp_path) == ["registry/graph/, registry/kernels/, registry/kinds/ include each other"]


def test_types_defined_twice_are_found(tmp_path):
    write_tree(tmp_path, {
        "registry/table.h": "namespace trainrun {\nstruct Table {\n};\nclass Row;\nenum class Kind { kA };\n}  // namespace trainrun\n",
        "registry/own.cpp": "namespace trainrun {\nnamespace {\nstruct Table {\n};\n}  // namespace\n}  // namespace trainrun\n",
        "registry/inner.h": "namespace trainrun::inner {\nstruct Table {\n};\n}  // namespace trainrun::inner\n",
        "runner/text.h": "namespace trainrun {\nclass Table final : public Base {\n};\nclass Row {\n};\n}  // namespace trainrun\n",
        "runner/kind.cpp": "namespace trainrun {\nenum class Kind { kA };\n}  // namespace trainrun\n",
    })
    assert types_defined_twice(tmp_path) == [
        "trainrun::Kind is defined in registry/table.h and in runner/kind.cpp",
        "trainrun::Table is defined in registry/table.h and in runner/text.h",
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["--rooms"]:
        for room_name, (hundred_lines, includes) in table_of_rooms(ROOT).items():
            print(f"| `{room_name}/` | {hundred_lines / 10} | {includes} |")
        sys.exit(0)
    found = faults_of(ROOT) + circles_of(ROOT) + types_defined_twice(ROOT)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
