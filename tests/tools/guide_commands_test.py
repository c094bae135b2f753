"""The commands that README.md and the pages of docs/guide show: their verbs and options exist, the recipes of the project that they
name are valid with the values that they change, and the links between the pages lead somewhere. Other tests run the guides' own recipes."""

import pathlib
import re
import shlex
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md")), ROOT / "docs/README.md", ROOT / "docs/features.md", ROOT / "docs/scaling.md"]
OF_EVERY_VERB = {"--quiet", "--verbose", "--help"}


def trainrun(*arguments):
    return subprocess.run([CALLED, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def fenced(text):
    """The contents of the page's blocks of commands, which name no language or bash."""
    blocks, language, lines = [], None, []
    for line in text.splitlines():
        if language is None and line.startswith("```"):
            language, lines = line[3:], []
        elif language is not None and line == "```":
            blocks += ["\n".join(lines)] if language in ("", "bash") else []
            language = None
        else:
            lines.append(line)
    return blocks


def commands_of(page):
    """Every call of trainrun in a page's blocks of commands and in its code in running text, as words."""
    text = page.read_text()
    said = [line for block in fenced(text) for line in block.replace("\\\n", " ").splitlines()]
    said += re.findall(r"`(trainrun [a-z][^`]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    found = []
    for line in said:
        if call := re.search(r"(?:^|[\s/])trainrun (.*)", line):
            words = shlex.split(call.group(1), comments=True)
            found += [words] if words else []
    return found


COMMANDS = [(page, words) for page in PAGES for words in commands_of(page)]


@pytest.fixture(name="verbs", scope="module")
def options_of_each_verb():
    verbs = re.findall(r"^  ([a-z][a-z-]+) {2,}", trainrun("--help").stdout, re.MULTILINE)
    assert {"run", "explain", "generate"} <= set(verbs)
    used = {"run", *(words[0] for _, words in COMMANDS)}
    shown = {verb: trainrun(verb, "--help").stdout for verb in verbs if verb in used}
    shown["tokenizer"] += trainrun("tokenizer", "train", "--help").stdout
    return {verb: set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text)) | OF_EVERY_VERB for verb, text in shown.items()}


def test_the_verbs_and_options_that_pages_show_exist(verbs):
    wrong = []
    for page, words in COMMANDS:
        given = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
        if re.fullmatch(r"[a-z][a-z-]+", words[0]):
            if words[0] not in verbs:
                wrong.append(f"{page.name}: no verb {words[0]}")
                continue
            verb = words[0]
        else:
            verb = "run"  # trainrun RECIPE
        wrong += [f"{page.name}: {verb} has no {option}" for option in sorted(given - verbs[verb])]
    assert len(COMMANDS) > 60 and not wrong


def first_value(change):
    """Of the values that a sweep tries of a key, the first: what validate is told."""
    key, value = change.split("=", 1)
    found = re.fullmatch(r"\[([^\[\],]+).*\]|\w+\(([^,]+),.*\)|(\d+)\.\.\d+", value)
    return f"{key}={next(filter(None, found.groups()))}" if found else change


def test_the_recipes_that_pages_name_are_valid_with_the_values_that_they_change():
    tried = {}
    for page, words in COMMANDS:
        recipe = next((i for i, word in enumerate(words) if re.fullmatch(r"(recipes|tests/recipes)/[\w/]+\.yaml", word)), None)
        if recipe is not None:
            changes = tuple(word for word in words[recipe + 1:] if "=" in word and not word.startswith("-"))
            if words[0] == "sweep":
                changes = tuple(map(first_value, changes))
            tried[words[recipe], changes] = page.name
    assert len(tried) >= 6
    for (recipe, changes), page in tried.items():
        result = trainrun("validate", recipe, *changes)
        assert result.returncode == 0, f"{page}: {recipe} {changes}: {result.stderr}"


def anchors_of(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_pages_lead_to_files_and_sections():
    lost = []
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists() or (anchor and anchor not in anchors_of(file)):
                lost.append(f"{page.name}: {target}")
    assert not lost
