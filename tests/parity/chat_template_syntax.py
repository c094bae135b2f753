"""Templates that try what Jinja can do, and the variables that they read."""

# What of Jinja templates may use, each line a template of its own; the first variables are those below.
VARIABLES = {"text": " It's a \"Text\", ünï 日本 ", "words": ["b", "A", "c", "a"], "numbers": [3, -1, 2.5, 0], "none": None, "yes": True, "no": False,
             "table": {"b": 1, "a": {"x": [1, 2, {"y": None}]}, "items": "own", "é": "ü\n\"'\\"}, "rows": [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}, {"v": "z"}],
             "nested": [[1, 2], [3], []], "empty": "", "zero": 0}
SYNTAX = r"""
{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ text.strip(' "I') }}|{{ text|trim }}|{{ 'xxaxx'|trim('x') }}
{{ text.upper() }}|{{ text.lower() }}|{{ text.title() }}|{{ text.capitalize() }}|{{ text|upper }}|{{ text|title }}|{{ text|capitalize }}|{{ 'foo-bar (baz) it\'s'|title }}
{{ text.split() }}|{{ text.split(' ') }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ' a  b '.split(none, 1) }}|{{ ' a  b c '.rsplit(None, 1) }}|{{ ''.split() }}|{{ ''.split(',') }}
{{ 'a\nb\r\nc\n\nd'.splitlines() }}|{{ 'a\nb\r\n'.splitlines(true) }}|{{ ''.splitlines() }}
{{ text.startswith(' It') }}|{{ text.endswith(('x', ' ')) }}|{{ text.find('a') }}|{{ text.rfind('ü') }}|{{ text.count(' ') }}|{{ 'aaa'.count('aa') }}|{{ 'ab'.count('') }}
{{ text.replace('t', 'TT') }}|{{ text.replace('t', '', 1) }}|{{ text|replace('x', 'y') }}|{{ 'aé'.replace('', '-') }}|{{ 'abab'|replace('a', 'c', 1) }}
{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('bc') }}|{{ 'abc'.removeprefix('x') }}|{{ '-'.join(words) }}|{{ '12'.isdigit() }}|{{ 'a1'.isalnum() }}|{{ 'aB'.isalpha() }}|{{ ' '.isspace() }}
{{ 'abcdef'[1:4] }}|{{ 'abcdef'[::-1] }}|{{ 'abcdef'[-2:] }}|{{ 'abcdef'[:-9] }}|{{ 'abcdef'[10:] }}|{{ 'äöü'[1] }}|{{ 'äöü'[-1] }}|{{ words[1:] }}|{{ words[::2] }}|{{ words[-1:0:-2] }}
{{ words[0] }}|{{ words.0 }}|{{ words[-1] }}|{{ words[9] }}|{{ table['b'] }}|{{ table.a.x[2].y }}|{{ table.missing }}|{{ table['missing'] is defined }}|{{ table['items'] }}
{{ table.items()|list }}|{{ table.keys()|list }}|{{ table.values()|list }}|{{ table.get('b') }}|{{ table.get('q') }}|{{ table.get('q', 'z') }}|{{ table|length }}|{{ table|list }}|{{ table|items|list }}
{% for k, v in table.items() %}{{ k }}={{ v }};{% endfor %}|{% for k in table %}{{ k }}{% endfor %}|{% for k, v in table|dictsort %}{{ k }},{% endfor %}|{{ {'b': 2, 'a': 3}|dictsort(by='value', reverse=true) }}
{{ words|join(', ') }}|{{ numbers|join }}|{{ rows|join('-', attribute='v') }}|{{ words|first }}|{{ words|last }}|{{ words|length }}|{{ words|count }}|{{ 'añb'|list }}|{{ 'añb'|length }}|{{ 'añb'|first }}
{{ words|sort }}|{{ words|sort(true) }}|{{ words|sort(case_sensitive=true) }}|{{ numbers|sort }}|{{ rows|selectattr('k', 'defined')|sort(attribute='k', reverse=true) }}|{{ words|unique|list }}|{{ words|reverse|list }}|{{ 'abé'|reverse }}
{{ numbers|max }}|{{ numbers|min }}|{{ words|max }}|{{ numbers|sum }}|{{ rows|selectattr('k')|sum(attribute='k') }}|{{ []|sum }}|{{ [[1], [2]]|sum(start=[]) }}
{{ rows|map(attribute='v')|list }}|{{ rows|map(attribute='k', default=0)|list }}|{{ words|map('upper')|join }}|{{ nested|map('length')|list }}|{{ nested|map('first')|list|length }}|{{ words|map('replace', 'a', 'q')|list }}
{{ numbers|select('odd')|list if false else 'x' }}|{{ numbers|select|list }}|{{ numbers|reject|list }}|{{ numbers|select('>', 1)|list }}|{{ rows|selectattr('k', 'equalto', 2)|list }}|{{ rows|rejectattr('k')|list }}|{{ rows|selectattr('v', 'in', ['x'])|list }}
{{ words|batch(3)|list }}|{{ words|batch(3, '-')|list }}|{{ '3'|int + 1 }}|{{ 'x'|int }}|{{ 'x'|int(7) }}|{{ '2.9'|int }}|{{ 2.9|int }}|{{ 'ff'|int(0, 16) }}|{{ '1.5'|float }}|{{ 'q'|float }}|{{ true|int }}|{{ ' 12 '|int }}
{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.567|round(2) }}|{{ 2.1|round(0, 'ceil') }}|{{ 2.19|round(1, 'floor') }}|{{ 5|round }}|{{ -3|abs }}|{{ 2.5|abs }}|{{ -2.5|abs }}
{{ 1 + 2 * 3 - 4 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ 7.5 // 2 }}|{{ 7.5 % 2 }}|{{ -2 ** 2 }}|{{ 10 / 4 }}|{{ 1 / 3 }}|{{ 2 ** 3 ** 2 }}|{{ 6 / 3 }}
{{ 1e3 }}|{{ 1.5e-7 }}|{{ 1e16 }}|{{ 123456789.125 }}|{{ 1e22 }}|{{ 0.1 + 0.2 }}|{{ 1_000 }}|{{ 100000000000000000.0 }}|{{ 3.0 }}|{{ -0.0 }}|{{ 1E5 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ {'k': 'v'} }}|{{ 'ab' * 3 }}|{{ [1] * 2 }}|{{ [1] + [2] }}|{{ 'a' 'b' }}|{{ (1, 2) + (3,) }}|{{ true + true }}|{{ 'a' + 'b' * 2 }}|{{ 0 * 'a' }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 'a' < 'b' }}|{{ 1 == 1.0 }}|{{ true == 1 }}|{{ 'a' == 1 }}|{{ [1, 2] == [1, 2] }}|{{ (1,) == [1] }}|{{ {'a': 1} == {'a': 1.0} }}|{{ none == false }}|{{ [1, 2] < [1, 3] }}|{{ 1 != 2 }}|{{ missing == missing2 }}
{{ 'a' in 'cat' }}|{{ 'x' not in 'cat' }}|{{ 1 in [1.0] }}|{{ 'b' in table }}|{{ 3 in (1, 2) }}|{{ 'x' in missing }}|{{ not 'a' in 'cat' }}|{{ not not 1 }}|{{ not (true and false) or false }}
{{ 1 and 2 }}|{{ 0 or 'x' }}|{{ '' and missing.x }}|{{ [] or {} or none or 0 }}|{{ 'y' if yes else 'n' }}|{{ 'y' if no }}|{{ 'a' if no else 'b' if no else 'c' }}|{{ ('y' if yes) ~ 1 }}
{{ missing }}|{{ missing is defined }}|{{ missing is undefined }}|{{ missing|default('d') }}|{{ none|default('d') }}|{{ none|default('d', true) }}|{{ ''|d('e', boolean=true) }}|{{ missing|length }}|{{ missing|join }}|{{ missing|list }}|{{ missing|upper }}
{{ none is none }}|{{ 1 is none }}|{{ 'a' is string }}|{{ 1 is number }}|{{ 1.0 is float }}|{{ 1 is integer }}|{{ true is integer }}|{{ true is number }}|{{ true is boolean }}|{{ table is mapping }}|{{ words is sequence }}|{{ words is iterable }}|{{ 1 is iterable }}|{{ 'x' is sequence }}|{{ none is iterable }}|{{ missing is iterable }}
{{ 3 is odd }}|{{ 4 is even }}|{{ 9 is divisibleby 3 }}|{{ 9 is divisibleby(2) }}|{{ 1 is eq 1 }}|{{ 1 is ne(2) }}|{{ 2 is gt 1 }}|{{ 2 is lessthan 1 }}|{{ 1 is in [1] }}|{{ 'a' is not in 'b' }}|{{ true is true }}|{{ 1 is true }}|{{ 0 is false }}|{{ none is sameas none }}|{{ 'AB' is upper }}|{{ 'ab' is lower }}|{{ range is callable }}|{{ 'upper' is filter }}|{{ 'odd' is test }}
{{ not missing is defined }}|{{ 1 is defined and 2 is defined }}|{{ 3 is odd or missing is defined }}|{{ (1 is defined) ~ 'x' }}|{{ words is defined and words|length > 2 }}|{{ 1 is number is defined if no else 'k' }}
{{ -1|abs }}|{{ (-1)|abs }}|{{ 1 + 2|string|length }}|{{ 'a'|upper ~ 'b'|upper }}|{{ -numbers[0] }}|{{ +1 }}|{{ - 1 - -1 }}|{{ 'x'.upper().lower().upper() }}|{{ [1, [2, 3]][1][0] }}
{{ table|tojson }}|{{ table|tojson(indent=2) }}|{{ table|tojson(ensure_ascii=true) }}|{{ table|tojson(separators=(',', ':')) }}|{{ {'b': 1, 'a': []}|tojson(sort_keys=true, indent='-') }}|{{ 'x\u0007\x7f😀'|tojson }}|{{ '😀'|tojson(ensure_ascii=True) }}|{{ [1.0, 1e-7, none, true]|tojson }}|{{ {1: 2, true: 3, none: 4}|tojson }}|{{ (1, 2)|tojson }}|{{ []|tojson(indent=4) }}
{{ text|indent }}|{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb\n\nc'|indent(2, true) }}|{{ 'a\nb\n\nc\n'|indent('> ', blank=true) }}|{{ ''|indent }}|{{ [1, 'it\'s', "\"", '\'"', 'a\nb\t\\', 'é\u00ad\u200b😀'] }}
{{ [none, true, 1.5, (1,), (), {}, {'a': {'b': []}}] }}|{{ (1, 2) }}|{{ 1, 2 }}|{{ [] }}|{{ [1, 2,] }}|{{ {'a': 1,} }}|{{ () }}|{{ {1: 'a', 1.0: 'b'} }}|{{ 'tab\there' }}
{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}|{% set ns = namespace(x=1, y='q') %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set a, b = 'xy' %}{{ a }}|{% set t = 1, 2 %}{{ t }}|{% set (a, b) = [3, 4] %}{{ a + b }}|{% if yes %}{% set q = 5 %}{% endif %}{{ q }}|{% set z %}in {{ 1 + 1 }}{% endset %}{{ z }}|{% set z | upper | replace('A', 'b') %}abc{% endset %}{{ z }}
{% for i in range(5) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }};{% endfor %}
{% for i in range(10) if i is even %}{{ loop.index }}:{{ i }}{{ ',' if not loop.last }}{% else %}none{% endfor %}|{% for i in [] %}x{% else %}none{% endfor %}|{% for i in missing %}x{% else %}none{% endfor %}|{% for c in 'aé' %}[{{ c }}]{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}|{% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }};{% endfor %}|{% for a in nested %}{% for b in a %}{{ loop.depth }}{{ b }}{% endfor %}{% endfor %}
{{ range(3)|list }}|{{ range(1, 4)|list }}|{{ range(5, 0, -2)|list }}|{{ range(3)[1] }}|{{ range(0)|list }}|{{ dict(a=1, b=2) }}|{{ dict({'x': 1}, y=2) }}|{{ dict() }}
{% macro m(a, b='B', c=none) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(c=3, a=4) }}{{ m() }}|{{ m(1)|upper }}|{{ m(m(1)) }}|{% set f = m %}{{ f(2) }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}|{% set g = 'out' %}{% macro h() %}{{ g }}{% endmacro %}{{ h() }}{% set g = 'later' %}{{ h() }}|{% macro o(x, y=x) %}{{ y }}{% endmacro %}{{ o(3) }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}in {{ 1 + 1 }}{% endcall %}|{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) each([1, 2]) %}[{{ v }}]{% endcall %}
{% filter upper %}abc {{ 'd' }}{% endfilter %}|{% filter replace('a', 'b')|trim %}  aa {% endfilter %}|{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}|{% raw %}{{ not }} {% this %}{# or #}{% endraw %}|{# gone #}x{#- gone -#}   y
a  {{- 1 -}}  b  {%- if yes -%}  c  {%- endif -%}  d|  {% if yes %}  e  {% endif %}  f|{{ 'x' -}}   |{{- 'y' }} z {%+ if yes +%}  g {% endif +%} h
{{ 'a' if 'b' in words else 'c' }}|{{ words[words|length - 1] }}|{{ (words|first)|upper }}|{{ {'a': words}['a'][0] }}|{{ text[0] == ' ' }}|{{ (text|trim)[0] }}|{{ "it's" ~ 'a "q"' }}|{{ 'a\\b\x41\u00e9\n' }}|{{ '\q' }}
{{ '%s'|default('x') }}|{{ 5|string ~ 'x' }}|{{ [1, 2, 3][-1] }}|{{ 'abc'|attr('upper')() }}|{{ 'abc'|safe }}|{{ none|string }}|{{ true|lower }}|{{ words.index('c') }}|{{ words.count('a') }}|{{ 'abc'.index('c') }}
{{ [[1, 2], [3]]|tojson }}|{{ nested|sum(start=[]) }}|{{ 'x' ~ missing ~ 'y' }}|{{ missing or 'z' }}|{{ table.a['x'][0] }}|{{ rows[0]['v'] }}{{ rows[0].v }}|{{ rows|map(attribute='v')|map('upper')|join('+') }}
{% if no %}{{ 1|nope }}{{ 1 is nope }}{% endif %}{{ 'a' if yes else 'b'|nope }}
{{ raise_exception('stop ' ~ 1) }}
{{ missing.x }}
{{ missing + 1 }}
{{ (('<a>'|safe) + ('b'|safe) + 'c') ~ '<d>' }}{{ '<'|safe }}{{ ['<'|safe, 'x']|join('>') }}
{{ +true }}|{{ +2.5 }}|{{ 3 + +1 }}
{{ +'a' }}
{{ 'a' + 1 }}
{{ none.x.y }}
{{ 1 / 0 }}
{{ missing() }}
{{ 1() }}
{{ none|length }}
{{ [1]|sort|first|upper|length|nope }}
{{ 1 is nope }}
{{ words.append(1) }}
{{ table.update({}) }}
{{ table.pop('a') }}
{{ 'a' < 1 }}
{% for i in 5 %}{% endfor %}
{% for i in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% set a, b = [1] %}
{{ 'abc'.index('z') }}
{{ {[1]: 2} }}
{{ missing|tojson }}
{{ range|tojson }}
{{ m }}{{ m(1) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(q=2) }}
{% set ns.x = 1 %}
{% set table.x = 1 %}
{% set ns = namespace(_x=1) %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ range(1000000) }}
{{ ''.__class__ }}{{ ''.__class__.__mro__ }}
{{ words.__class__.x }}
{{ (1).__class__.y }}
{{ range.__globals__ }}{{ range.__globals__.x }}
{% if %}{% endif %}
{% if yes %}
{% endif %}
{% for i in words %}
{% else %}
{{ 1 + }}
{{ }}
{{ (1 }}
{{ [1 }}
{{ 'abc }}
{{ 1 2 }}
{% frob %}
{% set %}
{% set x %}
{% set 1 = 2 %}
{% set true = 2 %}
{% macro %}{% endmacro %}
{# unended
{{ unended
{% unended
{{ $ }}
{{ a..b }}
{{ 1 is defined is string }}
{% break %}
{% endfor %}
{{ {'a' 1} }}
{{ words[1:2:3:4] }}
{{ m(a=1, 2) }}
{{ not }}
{{ 'a' | }}
{{ 'a' is }}
""".strip("\n").split("\n")
SYNTAX += ["a\n", "a\n\n", "\n{% if yes %}\nb\n{% endif %}\nc\n", "  {% if yes %}\n  b\n  {% endif %}\n  c", "  {{ 1 }}\n  {% set x = 1 %}  \n  {{ x }}",
           "{% if yes %}  {# c #}\n  x{% endif %}\n\n", "a\r\nb\rc\n", "  {%- if yes %}\n\n  b\n  {%- endif %}\n", "\t {# comment #}\n x", "{% for i in range(2) %}\n{{ i }}\n{% endfor %}\nend",
           "{%- for i in range(2) -%}\n  {{ i }}\n{%- endfor -%}\n end", "{% raw %}\n  {{ x }}\n  {% endraw %}\ny", "x {%+ if yes %}\n y{%+ endif %}\n", "{% if yes %}\n    {% if yes %}\n    z\n    {% endif %}\n{% endif %}",
           "{% generation %}\n  a\n{% endgeneration %}\nb{% generation %}{{ text }}{% endgeneration %}c", "{{ 'multi\nline' }}\n", "{#\n a\n#}\nb", "  {#- a -#}  \n b", "é{% if yes %}ü{% endif %}{% generation %}日本{% endgeneration %}"]
