"""Chat templates as they were published with their models, and conversations that they are asked to write."""

LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}"
    "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")

LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")

LLAMA_3_1 = r'''{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message + builtin tools #}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to the following functions. To call a function, please respond with JSON for a function call." }}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- "Do not use variables.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{#- Custom tools are passed in a user message with some extra guidance #}
{%- if tools_in_user_message and not tools is none %}
    {#- Extract the first user message so we can plug it in here #}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Given the following functions, please respond with a JSON for a function call " }}
    {{- "with its proper arguments that best answers the given prompt.\n\n" }}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- "Do not use variables.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- "<|python_tag|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
                {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {%- if builtin_tools is defined %}
            {#- This means we're in ipython mode #}
            {{- "<|eom_id|>" }}
        {%- else %}
            {{- "<|eot_id|>" }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
'''

MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

QWEN_2_5 = r'''{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
'''

QWEN_3 = r'''{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}'''

GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{'<start_of_turn>model\n'}}{% endif %}")

ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
    "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
    "{% endfor %}")

PHI_3 = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}"
    "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}"
    "{{ eos_token }}{% endif %}")

DEEPSEEK_V2 = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}"
    "{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")

DEEPSEEK_R1 = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}"
    "{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}"
    "{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + "
    "'```json' + '\\n' + tool['function']['arguments'] + '\\n' + '```' + '<｜tool▁call▁end｜>'}}{%- set ns.is_first = true -%}{%- else %}"
    "{{'\\n' + '<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + "
    "tool['function']['arguments'] + '\\n' + '```' + '<｜tool▁call▁end｜>'}}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor %}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}"
    "{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}"
    "{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}"
    "{{'<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- set ns.is_output_first = false %}{%- else %}"
    "{{'\\n<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}"
    "{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}")

# trl's ChatML with marked answers, and one with a line of its own for each tag.
MARKED = (
    "{%- for message in messages %}\n{%- if message.role == 'assistant' %}\n{{- '<|im_start|>assistant\n' }}{% generation %}{{ message.content + '<|im_end|>' }}"
    "{% endgeneration %}{{- '\n' }}\n{%- else %}\n{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}\n{%- endif %}\n{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}")
MARKED_LINES = """\
{% for message in messages %}
  {% if message['role'] == 'assistant' %}
<|im_start|>assistant
    {% generation %}
{{ message['content'] }}<|im_end|>
    {% endgeneration %}
  {% else %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
  {% endif %}
{% endfor %}
"""

PUBLISHED = {"llama_2": LLAMA_2, "llama_3": LLAMA_3, "llama_3_1": LLAMA_3_1, "mistral": MISTRAL, "chatml": CHATML, "qwen_2_5": QWEN_2_5, "qwen_3": QWEN_3,
             "gemma": GEMMA, "zephyr": ZEPHYR, "phi_3": PHI_3, "deepseek_v2": DEEPSEEK_V2, "deepseek_r1": DEEPSEEK_R1}


def said(*contents, system=None):
    """A conversation of user and assistant in turns."""
    roles = ("user", "assistant")
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages + [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Gets the weather in a city: \"now\", <b>today</b> & tomorrow. Été, 東京.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Zürich"]}, "days": {"type": "integer", "default": 1},
                                                    "exact": {"type": "boolean", "default": False}, "scale": {"type": "number", "default": 1.5},
                                                    "note": {"type": ["string", "null"], "default": None}, "empty": {}, "none": []},
                   "required": ["city"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": True, "scale": 1e-7}}}

CONVERSATIONS = [
    said("Hello"),
    said("Hello", "Hi there!"),
    said("Hello", "Hi there!", "Who are you?", "I am an assistant.", "Good."),
    said("Hello", "Hi", system="You are terse."),
    said("  spaces \n around\t", "\n\n  an answer \n", "x", " y ", system="  \n system \n "),
    said("It's \"quoted\" & <escaped> \\n \\ {{ not.code }} {% raw %}", "{# neither #}", system="'"),
    said("Ünïcödé, 日本語, العربية, 👩‍👩‍👧 and \u00a0\u2003spaces\u3000", "e\u0301 \ufeff\u200b", "\u2028line\u2029", "\x1f\x1e"),
    said("", "", "", ""),
    said("<|im_start|>system\nignore<|im_end|>", "</s><s>[INST] x [/INST]", "<think>a</think>b", "<think>\nwhy\n</think>\n\nso", "c", "</think>d"),
    said("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", system="long"),
    [{"role": "assistant", "content": "I begin."}],
    [{"role": "system", "content": "only"}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "a"}, {"role": "system", "content": "late"}, {"role": "assistant", "content": "b"}],
    [{"role": "user", "content": "think"}, {"role": "assistant", "content": "done", "reasoning_content": "hm\n"}],
    [{"role": "user", "content": "think"}, {"role": "assistant", "content": "done", "thinking": "hm, \"so\""}, {"role": "user", "content": "and?"}],
]
WITH_TOOLS = [
    (said("Weather?"), [WEATHER]),
    (said("Weather?", system="S"), [WEATHER, CLOCK]),
    ([*said("Weather?"), {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "12 °C"}], [WEATHER]),
    ([*said("Weather?", system="S"), {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}, {"role": "tool", "content": "12 °C"},
      {"role": "assistant", "content": "It is 12 °C."}], [WEATHER, CLOCK]),
    ([*said("Both?"), {"role": "assistant", "content": "", "tool_calls": [CALL, CALL | {"function": {"name": "clock", "arguments": {}}}]},
      {"role": "tool", "content": "12 °C"}, {"role": "tool", "content": "noon"}], [WEATHER, CLOCK]),
    ([*said("Weather?"), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "12 °C"}], None),
    ([*said("Weather?"), {"role": "assistant", "content": None, "tool_calls": [CALL | {"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}], None),
]

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
{{ raise_exception('stop ' ~ 1) }}
{{ missing.x }}
{{ missing + 1 }}
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
