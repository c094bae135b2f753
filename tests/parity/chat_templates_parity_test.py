"""Chat templates give the text of transformers' apply_chat_template, of Jinja2's sandbox; what is hostile is refused with a reason."""

import json
import random
import re
import time

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import tokenizers  # noqa: E402
from transformers.utils.chat_template_utils import _cached_compile_jinja_template  # noqa: E402

import chat_templates  # noqa: E402
from chat_template_syntax import SYNTAX, VARIABLES  # noqa: E402
from chat_templates import CONVERSATIONS, MARKED, MARKED_LINES, PUBLISHED, WITH_TOOLS, said  # noqa: E402
from probe import ProbeError  # noqa: E402

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
CHATS = [{"messages": messages, "tools": tools, "add_generation_prompt": prompt}
         for messages, tools in [(messages, None) for messages in CONVERSATIONS] + WITH_TOOLS for prompt in (False, True)]


def write_tokenizer(folder, **config):
    """A tokenizer of single bytes, as transformers saves it."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    peer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL)
    peer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return peer


def rendered(probe, path, chats=CHATS, template=None):
    reply, _ = probe.ask("chats", path=str(path), chats=json.dumps(chats), template=template)
    return reply["rendered"]


def by_python(peer, template, chat):
    try:
        return peer.apply_chat_template(chat["messages"], tools=chat["tools"], add_generation_prompt=chat["add_generation_prompt"], chat_template=template,
                                        tokenize=False)
    except Exception as error:  # noqa: BLE001 - of Jinja, or of Python as it renders
        return error


def compare(ours, expected, what):
    """The same text, or both refuse."""
    if isinstance(expected, Exception):
        assert "error" in ours, f"{what}: Python says {expected!r}, we give {ours['text']!r}"
    else:
        assert ours.get("text") == expected, f"{what}: {ours}"


@pytest.mark.parametrize("name", [*PUBLISHED, "marked", "marked_lines"])
def test_a_published_template_gives_the_text_of_transformers(probe, tmp_path, name):
    template = (PUBLISHED | {"marked": MARKED, "marked_lines": MARKED_LINES})[name]
    peer = write_tokenizer(tmp_path, chat_template=template)
    texts = 0
    for ours, chat in zip(rendered(probe, tmp_path), CHATS, strict=True):
        expected = by_python(peer, template, chat)
        compare(ours, expected, chat)
        texts += isinstance(expected, str)
        if isinstance(expected, Exception) and "alternate" in str(expected):
            assert str(expected) in ours["error"] and "chat_template, line 1: " in ours["error"]
    assert texts >= 15


def test_what_templates_may_use_of_jinja_does_what_jinja_does(probe):
    reply, _ = probe.ask("templates", templates=SYNTAX, variables=json.dumps(VARIABLES))
    refused = 0
    for source, ours in zip(SYNTAX, reply["rendered"], strict=True):
        try:
            expected = _cached_compile_jinja_template(source).render(**VARIABLES)
        except Exception as error:  # noqa: BLE001
            expected = error
            refused += 1
            assert re.match(r"line \d+: ", ours.get("error", "")), f"{source!r}: {ours}"
        compare(ours, expected, repr(source))
    assert 50 < refused < len(SYNTAX) - 50


TOKENS = re.compile(r"\{\{-?|-?\}\}|\{%-?|-?%\}|\{#|#\}|\w+|'[^']*'|\s+|.", re.DOTALL)
EXPRESSIONS = [each for source in SYNTAX for each in re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", source)]
FILTERS = re.findall(r"\|\s*(\w+(?:\([^()]*\))?)", " ".join(EXPRESSIONS))
FORMS = ["{{{{ ({}) ~ ({}) }}}}", "{{{{ [{}, {}]|tojson }}}}", "{{{{ ({}) == ({}) }}}}", "{{{{ ({}) or ({}) }}}}", "{{{{ ({}) in ({}) }}}}", "{{{{ ({}) + ({}) }}}}",
         "{{{{ ({})[{}] }}}}", "{{% for x in [{}, {}] %}}{{{{ x }}}};{{% endfor %}}", "{{% if {} %}}a{{% elif {} %}}b{{% else %}}c{{% endif %}}"]


def changed(draw: random.Random) -> str:
    """Expressions put together, or a template with a few tokens changed."""
    if draw.random() < 0.6:
        first, second = draw.choice(EXPRESSIONS), draw.choice(EXPRESSIONS)
        filters = "|".join(draw.choices(FILTERS, k=2))
        return draw.choice(FORMS).format(first, second) if draw.random() < 0.6 else f"{{{{ ({first})|{filters} }}}}"
    tokens = TOKENS.findall(draw.choice([*PUBLISHED.values(), *SYNTAX, MARKED]))
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(tokens) + 1)
        tokens[place:place + draw.randint(0, 1)] = draw.choices(TOKENS.findall(draw.choice(SYNTAX)), k=draw.randint(0, 1))
    return "".join(tokens)


def test_templates_put_together_at_random_give_the_same_text_or_are_refused(probe):
    draw = random.Random(7)
    sources = [changed(draw) for _ in range(1500)]
    variables = VARIABLES | {"messages": CONVERSATIONS[3], "tools": None, "add_generation_prompt": True} | SPECIAL
    reply, _ = probe.ask("templates", templates=sources, variables=json.dumps(variables))
    same = 0
    for source, ours in zip(sources, reply["rendered"], strict=True):
        try:
            expected = _cached_compile_jinja_template(source).render(**variables)
        except Exception:  # noqa: BLE001 - we may do without what Python refuses, such as the length of a generator
            continue
        if "text" in ours and " at 0x" not in expected.lower() and "<" not in expected.replace("<s>", ""):  # of Python's own objects
            assert ours["text"] == expected, source
            same += 1
    assert same > 300


HOSTILE = {
    "an endless loop": ("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}", "more than"),
    "a huge text": ("{{ 'x' * 1000000000000 }}", "makes too much: more than 512 MiB"),
    "a huge list": ("{{ [1] * 1000000000000 }}", "makes too much"),
    "doubled": ("{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "makes too much"),
    "nested lists": ("{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}", "100 deep"),
    "shared lists": ("{% set n = namespace(x=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}", "takes too long"),
    "compared lists": ("{% set n = namespace(x=[], y=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
                       "takes too long"),
    "a namespace in itself": ("{% set n = namespace() %}{% set n.x = n %}", "cannot hold"),
    "a kept macro": ("{% set n = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% endfor %}{{ n.m() }}", "cannot hold"),
    "a macro in a list": ("{% macro m() %}{% endmacro %}{% set x = [m] %}", "cannot hold"),
    "a macro that calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "too deep"),
    "a caller that calls itself": ("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{% call m() %}{% endcall %}", "too deep"),
    "brackets": ("{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}", "too deep"),
    "signs": ("{{ " + "-" * 100000 + "1 }}", "too deep"),
    "a sum": ("{{ 1" + " + 1" * 100000 + " }}", "too deep"),
    "filters": ("{{ 1" + "|abs" * 100000 + " }}", "too deep"),
    "attributes": ("{{ a" + ".b" * 100000 + " }}", "too deep"),
    "blocks": ("{% if 1 %}" * 50000, "too deep"),
    "arguments": ("{{ m(" + "1," * 100000 + ") }}", "more than 255 arguments"),
    "a long template": ("x" * 2000000, "longer than 1 MiB"),
    "a large number": ("{{ 9223372036854775807 + 1 }}", "more than 64 bits"),
    "a larger number": ("{{ 99999999999999999999 }}", "out of range"),
    "a number of its own size": ("{{ (-9223372036854775807 - 1) // -1 }}", "more than 64 bits"),
    "a large power": ("{{ 10 ** 1000000 }}", "more than 64 bits"),
    "a long range": ("{{ range(-9223372036854775807, 9223372036854775807) }}", "more than 100000 numbers"),
    "a large join": ("{{ range(90000)|join('x' * 100000) }}", "makes too much"),
    "a large replacement": ("{{ ('a' * 100000).replace('', 'b' * 100000) }}", "makes too much"),
    "a wide indentation": ("{{ 'a'|indent(100000000) }}", "at most 1000 spaces"),
    "a wide date": ("{{ strftime_now('%999999999Y' * 100) }}", "strftime_now"),
    "sorted often": ("{% set l = range(99999)|list %}{% for i in l %}{% set m = l|sort %}{% endfor %}", "more than"),
    "characters": ("{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{{ s[i] }}{% endfor %}", "makes too much"),
    "lengths of a text": ("{% set a = 'a' * 10000000 %}{% for i in range(99999) %}{{ a|length }}{% endfor %}", "takes too long"),
    "keys of a text": ("{% set a = 'a' * 10000000 %}{% set d = {} %}{% for i in range(99999) %}{{ d[a] }}{% endfor %}", "takes too long"),
    "large separators": ("{{ range(90000)|list|tojson(separators=('x' * 1000000, ':')) }}", "makes too much"),
    "a large key": ("{% set d = {'k' * 1000000: 1} %}{{ ([d] * 90000)|tojson }}", "takes too long"),
    "a chain of texts": ("{% set a = 'a' * 10000000 %}{{ a" + " ~ a" * 2000 + " }}", "makes too much"),
    "characters to strip": ("{{ ('a' * 10000000).strip('b' * 10000000 ~ 'a') }}", "takes too long"),
    "compared texts": ("{% set a = 'a' * 10000000 %}{{ ([a] * 90000)|sort(case_sensitive=true)|length }}", "takes too long"),
    "letters of a text": ("{% set a = 'a' * 10000000 %}{% for i in range(99999) %}{{ a is upper }}{{ a.isalpha() }}{% endfor %}", "takes too long"),
    "begins of a text": ("{% set a = 'a' * 10000000 %}{{ a.startswith((a[1:] ~ 'b',) * 90000) }}", "takes too long"),
    "a loop in itself": ("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}", "loop.changed cannot keep functions, loops or namespaces"),
    "an import": ("{% import 'x' as y %}", "{% import %} is not expected here, or not known in chat templates"),
    "a text to be escaped": ("{{ ('<a>'|safe) + '<b>' }}", "would be escaped for HTML; leave safe out"),
    "Python's classes": ("{{ ''.__class__.__mro__ }}", "has no attribute '__class__'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_with_a_reason_and_its_line(probe, name):
    source, message = HOSTILE[name]
    begun = time.monotonic()
    reply, _ = probe.ask("templates", templates=["a\n\n" + source], variables="{}")
    [ours] = reply["rendered"]
    assert message in ours.get("error", "nothing"), str(ours)[:300]
    assert "line 3: " in ours["error"] or name == "a long template"
    assert time.monotonic() - begun < 60  # not for the speed: an endless loop ends


@pytest.mark.parametrize("expression, expected", [("t.find(w ~ 'b')", "-1"), ("t.rfind('b' ~ w)", "-1"), ("(w ~ 'b') in t", "False"), ("t.count(w ~ 'b')", "0"),
                                                  ("t.replace(w ~ 'b', '') == t", "True"), ("t.split(w ~ 'b')|length", "1"), ("t.rsplit('b' ~ w)|length", "1")])
def test_a_search_takes_time_that_grows_with_the_text_alone(probe, expression, expected):
    """Were it to grow with the text times what is looked for, each would take hours."""
    reply, _ = probe.ask("templates", templates=["{% set w = 'a' * 5000000 %}{% set t = w ~ w %}{{ " + expression + " }}"], variables="{}")
    assert reply["rendered"][0].get("text") == expected


@pytest.mark.parametrize("seed", range(20))
def test_searches_find_what_python_finds(probe, seed):
    """In texts of few letters, where what is looked for often begins and does not go on."""
    draw = random.Random(seed)
    text, what = ("".join(draw.choices("ab", k=draw.randint(0, most))) for most in (40, 5))
    templates = [f"{{{{ {text!r}.{name}({what!r}{more}) }}}}" for name, more in
                 [("find", ""), ("rfind", ""), ("count", ""), ("replace", ", 'c'"), *([("split", ""), ("rsplit", ""), ("rsplit", ", 1")] if what else [])]]
    reply, _ = probe.ask("templates", templates=templates, variables="{}")
    assert [ours["text"] for ours in reply["rendered"]] == [str(eval(template[3:-3])) for template in templates]


def test_the_date_is_that_of_the_machine(probe):
    before = time.strftime("%d %b %Y %%")
    reply, _ = probe.ask("templates", templates=["{{ strftime_now('%d %b %Y %%') }}"], variables="{}")
    assert reply["rendered"][0]["text"] in (before, time.strftime("%d %b %Y %%"))


def test_the_template_is_found_where_transformers_finds_it(probe, tmp_path):
    [chat] = [{"messages": said("Hi"), "tools": None, "add_generation_prompt": False}]
    own = "{{ bos_token }}own:{{ messages[0].content }}"
    several = [{"name": "default", "template": own}, {"name": "other", "template": "other{{ eos_token }}"}]
    peer = write_tokenizer(tmp_path, chat_template=own)
    assert rendered(probe, tmp_path, [chat])[0]["text"] == by_python(peer, own, chat) == "<s>own:Hi"
    assert rendered(probe, tmp_path / "tokenizer.json", [chat])[0]["text"] == "<s>own:Hi"
    assert rendered(probe, tmp_path, [chat], "{{ 'text' }}")[0]["text"] == "text"
    (tmp_path / "mine.jinja").write_text("from a file\n")
    assert rendered(probe, tmp_path, [chat], str(tmp_path / "mine.jinja"))[0]["text"] == "from a file"
    (tmp_path / "chat_template.jinja").write_text("beside")
    assert rendered(probe, tmp_path, [chat])[0]["text"] == "beside"
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(chat["messages"], tokenize=False) == "beside"
    (tmp_path / "chat_template.jinja").unlink()
    write_tokenizer(tmp_path, chat_template=several)
    assert rendered(probe, tmp_path, [chat])[0]["text"] == "<s>own:Hi"
    assert rendered(probe, tmp_path, [chat], "other")[0]["text"] == "other</s>"
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.apply_chat_template(chat["messages"], chat_template="other", tokenize=False) == "other</s>"


@pytest.mark.parametrize("config, template, message", [
    ({}, None, "there is no chat_template.jinja, and no chat_template in tokenizer_config.json; write template: FILE"),
    ({}, "nowhere.jinja", "template: 'nowhere.jinja' is neither a template's text nor a file, and the tokenizer has no chat template"),
    ({"chat_template": [{"name": "a", "template": "x"}]}, None, "of several chat templates, none is called default; write template: FILE, or one of a"),
    ({"chat_template": [{"name": "a", "template": "x"}]}, "b", "the tokenizer has a"),
    ({"chat_template": 3}, None, "tokenizer_config.json: chat_template: expected a string"),
    ({"chat_template": [{"name": "a"}]}, None, "chat_template[0]: \"template\" is missing"),
    ({"chat_template": "\n\n{% if %}"}, None, "tokenizer_config.json: chat_template, line 3: unexpected end of the block"),
    ({}, "{% for %}", "template, line 1: unexpected end of the block"),
])
def test_a_missing_or_wrong_template_is_named(probe, tmp_path, config, template, message):
    write_tokenizer(tmp_path, **config)
    with pytest.raises(ProbeError, match=re.escape(message)):
        rendered(probe, tmp_path, [], template)


def test_a_template_that_is_not_utf_8_is_refused(probe, tmp_path):
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff{{ 1 }}")
    with pytest.raises(ProbeError, match="chat_template.jinja: is not UTF-8"):
        rendered(probe, tmp_path, [])


