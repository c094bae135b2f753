"""What tidy.py and parsing.py know of the project's sources by reading them."""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# What stands at the beginning of a line declares something; clang-format indents the rest.
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|class|enum class|using|concept) (\w+)(?=[ ;{=])", re.MULTILINE)
VALUE = re.compile(r"^(?:static |inline |constexpr |const )*[\w:<>,&*]+(?:, [\w:<>,&*]+)*[ &*](\w+)(?: =|\[|\{|;)", re.MULTILINE)
ALIAS = re.compile(r"^using (\w+) = ([^;]+);", re.MULTILINE)
USING = re.compile(r"^using (?:at|c10|std|torch)::(?:\w+::)*(\w+);", re.MULTILINE)
OF_TESTS = re.compile(r"^using test::(\w+);", re.MULTILINE)
FORWARD = re.compile(r"^(?:template <.*> )?(?:struct|class|enum class) \w+;", re.MULTILINE)
ENUMERATOR = re.compile(r"^  (k[A-Z]\w*)(?= =|,|$)", re.MULTILINE)
ENUMERATION = re.compile(r"^enum (?!class)\w+(?: : \w+)? \{([^}]*)\};", re.MULTILINE)
FUNCTION = re.compile(r"^(?=\S)[\w:<>,&* ]+[ &*](\w+)\(", re.MULTILINE)
# Declared by many, as something that may be declared again.
ANYWHERE = {"fs", "namespace"}


@functools.cache
def included_by(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """The project's files that a file names in its #include lines."""
    named = INCLUDE.findall(path.read_text(errors="replace"))
    return tuple(found for name in named for found in (ROOT / name, path.parent / name) if found.is_file())


@functools.cache
def with_headers(source: pathlib.Path) -> list[pathlib.Path]:
    """The source and every file of the project that it includes, directly or not, in a stable order."""
    found, waiting = set(), [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += included_by(path)
    return sorted(found)


@functools.cache
def declared(source: pathlib.Path) -> dict[str, pathlib.Path | str]:
    """What a source and its headers seem to declare, and where; of another name for a type, which type; of functions
    that headers declare, only that they do: others may overload them."""
    found = {}
    for path in reversed(with_headers(source)):
        text = FORWARD.sub("", path.read_text(errors="replace"))
        names = {*TYPE.findall(text), *VALUE.findall(text)} - ANYWHERE
        aliases = {name: target for name, target in ALIAS.findall(text) if name in names}
        found = dict.fromkeys(names, path) | aliases | found
        if path.suffix == ".h":
            found |= dict.fromkeys(FUNCTION.findall(text), pathlib.Path("some header"))
    text = source.read_text()
    found = dict.fromkeys(OF_TESTS.findall(text), pathlib.Path("some header")) | found
    on_one_line = re.findall(r"\bk[A-Z]\w*", " ".join(ENUMERATION.findall(text)))
    own = {*FUNCTION.findall(text), *ENUMERATOR.findall(text), *on_one_line} - found.keys()
    return found | dict.fromkeys(own, source)


@functools.cache
def introduced(source: pathlib.Path) -> set[str]:
    """Names of other libraries that a source uses without their namespace."""
    return set(USING.findall(source.read_text()))
