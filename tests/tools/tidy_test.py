"""What tools/lint parses by itself is not helped by what the compiler has read for others, and what it checks as one goes together."""

import concurrent.futures
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/tidy"))

import parsing  # noqa: E402
import sources  # noqa: E402
import tidy  # noqa: E402

TREE = {
    "a/used.h": "#pragma once\ninline int used() { return 1; }\n",
    "a/more.h": '#pragma once\n#include "a/used.h"\ninline int more() { return used(); }\n',
    "a/good.cpp": '#include "a/used.h"\nint good() { return used(); }\n',
    "a/also_good.cpp": '#include "a/more.h"\nint also_good() { return more() + used(); }\n',
    "a/leans.cpp": '#include "a/used.h"\nint leans() { return more(); }\n',
    "a/alone.cpp": "int alone() { return used(); }\n",
    "a/forgets.cpp": '#include "a/more.h"\nconstexpr int kForgotten = 1;\nint forgets() { return more(); }\n',
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for module in (parsing, sources):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_source_that_leans_on_headers_of_others_is_refused(tree, monkeypatch):
    monkeypatch.setattr(parsing, "WORTHWHILE", 1)  # so that the headers are read before the compiler is forked
    commands = {tree / name: ["c++", "-std=c++20", f"-I{tree}", "-fsyntax-only"] for name in TREE if name.endswith(".cpp")}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        [part] = parsing.submit_parsing(commands, pool, tree)
    wrong = {path.name: text for path, text in part.result().items()}
    assert wrong.pop("good.cpp") == "" and wrong.pop("also_good.cpp") == ""
    assert "a/leans.cpp:2" in wrong.pop("leans.cpp")
    assert "a/alone.cpp:1" in wrong.pop("alone.cpp")
    assert wrong.pop("forgets.cpp").endswith("a/forgets.cpp: never used: kForgotten\n")
    assert not wrong


def test_what_is_read_before_a_source_is_what_it_includes():
    all_sources = sorted((ROOT / "registry").rglob("*.cpp"))

    def check(point, before):
        before = before | set(point.headers)
        found = list(point.sources)
        for source in point.sources:
            assert before <= parsing.headers_of(source), source
        for below in point.points:
            found += check(below, before)
        return found

    assert sorted(check(parsing.plan(all_sources), set())) == all_sources


def test_sources_are_checked_with_more_macros_and_folders_than_their_own_but_not_with_other_instructions():
    bare, logged, shimmed, vectors = ["-O1"], ["-O1", "-DLOG"], ["-O1", "-DLOG", "-isystem", "/shims"], ["-O1", "-DLOG", "-mavx2"]
    flags = {"a": bare, "b": bare, "c": bare, "d": logged, "e": shimmed, "f": shimmed, "g": vectors, "h": vectors, "i": ["-O1", "-DRARE"]}
    shared = tidy.shared_flags(flags)
    assert {tuple(shared[source]) for source in "abcdef"} == {tuple(shimmed)}
    assert [shared["g"], shared["h"], shared["i"]] == [vectors, vectors, ["-O1", "-DRARE"]]


@pytest.mark.parametrize("first, second, together", [
    ("int twice() { return 1; }\n", "int once() { return 1; }\n", True),
    ("int twice() { return 1; }\n", "int twice() { return 2; }\n", False),
    ('#include "a/used.h"\nint one() { return 1; }\n', "int used(int) { return 2; }\n", False),
    ('#include "a/used.h"\nint used(int) { return 1; }\n', '#include "a/used.h"\nint used(char) { return 2; }\n', True),
    ("enum { \n  kMark = 1,\n};\n", "constexpr int kMark = 2;\n", False),
    ("using test::used;\n", "int used() { return 1; }\n", False),
    ("using std::used;\n", "int used() { return 1; }\n", False),
    ("using Kind = int;\n", "using Kind = int;\n", True),
    ("using Kind = int;\n", "using Kind = char;\n", False),
])  # fmt: skip
def test_sources_that_declare_the_same_for_themselves_are_not_checked_as_one(tree, first, second, together):
    unit = tidy.Unit()
    for name, text in (("a/first.cpp", first), ("a/second.cpp", second)):
        (tree / name).write_text(text)
    assert unit.takes(tree / "a/first.cpp")
    unit.add(tree / "a/first.cpp")
    assert unit.takes(tree / "a/second.cpp") == together
