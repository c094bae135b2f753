"""Does what a message of the program advises, as somebody would who takes it at its word.

A form of advice that is not known here raises UnknownAdvice: a new one is added with how it is followed.
"""

import re
from typing import NamedTuple

SAYS_WHAT_TO_DO = re.compile(r"\bwrite |\bdid you mean ")


class UnknownAdvice(AssertionError):
    """A message says what to do in a way that nobody has taught this page."""


class Told(NamedTuple):
    """One line of an error: `place` is (line, column) in the recipe, or None."""

    place: tuple | None
    path: str
    message: str


def told_by(line, file):
    """A line of standard error about `file`, or about another file: then it has no place in this one."""
    own = re.sub(r" \[T\d{4}\]$", "", line).removeprefix(f"{file}:")
    found = re.match(r"(?:(?P<other>[^\s:]+):)?(\d+):(\d+): (?:([A-Za-z_]\w*(?:\.[\w<]+|\[\d+\])*): )?(.*)$", own)
    if not found:
        return Told(None, "", own)
    place = None if found["other"] else (int(found[2]), int(found[3]))
    return Told(place, found[4] or "", found[5])


# --- Places in the text of a recipe ----------------------------------------------------------------------


def offset_of(text, place):
    lines = text.splitlines(keepends=True)
    return sum(len(line) for line in lines[: place[0] - 1]) + place[1] - 1


def end_of_value(text, begin, in_flow):
    """Where a scalar or a flow collection ends that begins there."""
    if text[begin] in "'\"":
        return text.index(text[begin], begin + 1) + 1
    depth = 0
    for i in range(begin, len(text)):
        if text[i] in "[{":
            depth += 1
        elif text[i] in "]}":
            depth -= 1
            if depth == 0 and text[begin] in "[{":
                return i + 1
            if depth < 0:
                return len(text[:i].rstrip())
        elif depth == 0 and (text[i] == "\n" or (text[i] == "," and in_flow) or text.startswith(" #", i)):
            return len(text[:i].rstrip())
    return len(text.rstrip())


def value_span(text, place):
    begin = offset_of(text, place)
    line = text[text.rfind("\n", 0, begin) + 1 : begin]
    return begin, end_of_value(text, begin, "{" in line or "[" in line)


def with_value(text, place, value):
    begin, end = value_span(text, place)
    return text[:begin] + value + text[end:]


def without_entry(text, place):
    """Without the key at the place, its value, and a comma beside them."""
    begin = offset_of(text, place)
    colon = text.index(":", begin)
    value = colon + 1 + len(text[colon + 1 :]) - len(text[colon + 1 :].lstrip(" "))
    line = text[text.rfind("\n", 0, begin) + 1 : begin]
    in_flow = "{" in line
    end = end_of_value(text, value, in_flow)
    if in_flow and text[end:].lstrip().startswith(","):
        end = text.index(",", end) + 1
    elif in_flow:
        begin = len(text[:begin].rstrip().removesuffix(","))
    else:
        end = min(text.find("\n", end) + 1, len(text)) or len(text)
    return text[:begin] + text[end:]


def key_place(text, place, key):
    """The place of the key whose value is at `place`."""
    begin = text.rindex(key, 0, offset_of(text, place))
    return text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin)


# --- Advice --------------------------------------------------------------------------------------------------

QUOTED = re.compile(r"'([^']*)'")


def meant(text, told, found):
    """`did you mean NEW?`: another name, in place of what the message quotes or of the key."""
    new = found["new"]
    begin = offset_of(text, told.place)
    if found["given"]:
        return without_entry(text, told.place), []
    if found["instead"]:
        return text[:begin] + re.sub(rf"\b{re.escape(found['instead'])}(?=\s*:)", new, text[begin:], count=1), []
    said = told.message[: found.start()]
    reference = re.search(r"no value named ([\w.\[\]]+)", said)
    file = re.search(r"there is no file (\S+), nor ([^\s;]+)", said)
    quoted = QUOTED.findall(said)
    if told.message.startswith("unknown key") or told.message.startswith("unknown parameter"):
        old = re.split(r"[.\]]", told.path)[-1]
    elif reference:
        old = reference[1]
    elif file:
        old = file[2]
    elif quoted:
        old = quoted[-1]
    else:
        raise UnknownAdvice(told.message)
    line = text.rfind("\n", 0, begin) + 1
    at = text.find(old, begin)
    if at < 0:
        at = text.find(old, line, begin)  # the key of the value at the place
    if at < 0:  # by default: it is not written
        return text, [f"{told.path}={new}"]
    return text[:at] + new + text[at + len(old) :], []


def moved(text, told, found):
    """`write PLACE instead`: the value goes to another place of the recipe."""
    begin = offset_of(text, told.place)
    value = text.index(":", begin) + 1
    value += len(text[value:]) - len(text[value:].lstrip(" "))
    line = text[text.rfind("\n", 0, begin) + 1 : begin]
    return without_entry(text, told.place), [f"{found['place']}={text[value:end_of_value(text, value, '{' in line)]}"]


def scalar_changed(change):
    def follow(text, told, _):
        begin, end = value_span(text, told.place)
        return text[:begin] + change(text[begin:end]) + text[end:], []

    return follow


def unwrapped(text, told, _):
    begin, end = value_span(text, told.place)
    if text[begin] == "[":
        return text[:begin] + text[begin + 1 : end - 1] + text[end:], []
    return text[:begin] + re.sub(r"^- ", "  ", text[begin:]), []


def without_dashes(text, told, _):
    begin, end = value_span(text, told.place)
    if text[begin] == "[":
        return text[:begin] + "{" + text[begin + 1 : end - 1] + "}" + text[end:], []
    lines = text.splitlines(keepends=True)
    first = told.place[0] - 1
    indent = told.place[1] - 1
    for i in range(first, len(lines)):
        if not lines[i].startswith(" " * indent + "- "):
            break
        lines[i] = " " * indent + lines[i][indent + 2 :]
    return "".join(lines), []


def replaced(text, told, _):
    section = told.path.split(".")[0]
    return re.sub(rf"^{section}: (?={{)", f"{section}: !replace ", text, flags=re.MULTILINE), []


def literal(text, told, _):
    begin = offset_of(text, told.place)
    at = text.index("${", begin)
    return text[:at] + "$" + text[at:], []


def with_default(text, told, found):
    begin = offset_of(text, told.place)
    return text[:begin] + re.sub(r"\$\{env:\w+\}", lambda _: found["text"], text[begin:], count=1), []


def settings_in(text):
    """The pairs of `KEY: VALUE and KEY: VALUE`; what follows them is ended by a comma, a semicolon or a space."""
    pairs = []
    while found := re.match(r"(?: and )?([a-z_][\w.\[\]]*): ", text):
        begin = found.end()
        is_plain = text[begin] not in "[{'\""
        end = begin + len(re.match(r"[^\s;,]*", text[begin:])[0]) if is_plain else end_of_value(text, begin, True)
        pairs.append((found[1], text[begin:end]))
        text = text[end:]
    return pairs


def owner(text, told):
    """The path of the mapping that the message is about: that of its parameter where it is about a single value."""
    begin = offset_of(text, told.place) if told.place else 0
    is_mapping = text[begin] == "{" or re.match(r"[\w.]+: ", text[begin:])
    is_parameter = told.place and "." in told.path and not told.path.endswith("]") and not is_mapping
    return told.path.rpartition(".")[0] if is_parameter else told.path


def settings(text, told, found):
    """`write KEY: VALUE`, in the mapping that the message is about where KEY is no whole path."""
    own = f"{owner(text, told)}." if told.path else ""
    return text, [f"{'' if '.' in key else own}{key}={value}" for key, value in settings_in(found["settings"])]


def named_inputs(text, told, found):
    """Roles, or NAME, for which the user knows the names: here the model's last output and the label."""
    count = len(found["names"].split(","))
    known = ["'3'", "label"] if "metrics" in told.path else ["flat", "fc"] if "name: fc" in text else ["'1'"] * count
    names = known[:count]
    return text, [f"{told.path}.inputs=[{', '.join(names)}]"]


def within(text, told, found):
    """`PART …; write KEY: VALUE in it`"""
    return text, [f"{told.path}.{found['part']}.{found['key']}={found['value']}"]


def on_command_line(text, told, found):
    return text, [found["override"]]


def replaced_value(text, told, found):
    return with_value(text, told.place, found["value"]), []


FORMS = [
    (r"did you mean (?:the parameter )?(?P<new>\S+?)(?: instead of (?P<instead>\S+?))?"
     r"(?P<given>, which is given as well)?\?$", meant),
    (r"write (?P<place>[\w.]+) instead$", moved),
    (r"write it without quotes$", scalar_changed(lambda text: text.strip("'\""))),
    (r"write it without the leading zero$", scalar_changed(lambda text: text.lstrip("0"))),
    (r"write it in decimal$", scalar_changed(lambda text: str(int(text, 0)))),
    (r"write it without the dash, or the brackets, around it$", unwrapped),
    (r"write its keys without the dashes before them, or in \{ \} in place of \[ \]$", without_dashes),
    (r"write !replace before the mapping$", replaced),
    (r"write \$\$\{ for a literal \$\{$", literal),
    (r"write (?P<text>\$\{env:\w+:-default\})$", with_default),
    (r"\bbut (?P<part>[a-z]\w*) .*; write (?P<key>\w+): (?P<value>\w+) in it\b", within),
    (r"write inputs: \[(?P<names>[^\]]+)\]", named_inputs),
    (r"write how many to take, or leave it out for all$", scalar_changed(lambda _: "1")),
    (r"write (?P<override>\S+=\S+) before it on the command line$", on_command_line),
    (r"write (?P<settings>[\w.\[\]]+: .+)$", settings),
    (r"write (?P<value>\[.*\]|[\w.+-]+)$", replaced_value),
]


def followed(text, told):
    """The recipe's text, and what to give on the command line, after doing what `told` advises."""
    for form, follow in FORMS:
        if found := re.search(form, told.message):
            return follow(text, told, found)
    raise UnknownAdvice(f"nobody knows how to follow: {told.message}")


