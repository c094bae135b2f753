"""What tools/lint parses by itself is not helped by what the compiler has read for others."""

import concurrent.futures
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/tidy"))

import parsing  # noqa: E402
import sources  # noqa: E402

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
