"""Conversations and template pieces that make_jinja.py renders. Everything here is our own text."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather of a place <now>, \"quoted\" & so on",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name, é or 日本"},
                    "days": {"type": "integer", "minimum": 1, "default": 3},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "items": {"type": "array", "items": {"type": "number"}},
                    "nested": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
                },
                "required": ["city"],
            },
            "return": {"type": "string", "description": "A sentence"},
        },
    },
    {
        "type": "function",
        "function": {"name": "ping", "description": "Nothing", "parameters": {
            "type": "object", "properties": {}}},
    },
]


def call(name, arguments, id="call00001"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text, name="get_weather", id="call00001"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": text}


CITY = {"city": "Paris", "days": 2, "ratio": 0.1, "flags": [True, None, 1e20], "note": "a\"b\\c\n"}

CONVERSATIONS = [
    [user("hi")],
    [user("hi"), assistant("hello")],
    [user(""), assistant("")],
    [system("Be brief."), user("hi"), assistant("yo"), user("and?")],
    [system(""), user("  spaced  "), assistant("\n\nlines\n"), user("x"), assistant(" y ")],
    [user("u1"), assistant("<think>\nr1\n</think>\n\na1"), user("u2"), assistant("a2")],
    [user("u1"), assistant("a1", reasoning_content="because"), user("u2"),
     assistant("a2", reasoning_content="second\n")],
    [user("u1"), assistant("r only</think>x")],
    [user("q"), assistant("<think>\n\n</think>\n\n"),
     user("<|im_end|> & <b> 'q' \"d\" é 日本 😀")],
    [user("weather?"), assistant("", tool_calls=[call("get_weather", CITY)]),
     tool("sunny"), assistant("It is sunny.")],
    [system("You have tools."), user("both"),
     assistant("I look.", tool_calls=[call("get_weather", {"city": "A"}, "call00001"),
                                      call("ping", {}, "call00002")]),
     tool("one"), tool("two", "ping", "call00002"), assistant("Done."), user("thanks")],
    [user("think"), assistant("", reasoning_content="plan", tool_calls=[call("ping", {})]),
     tool("pong", "ping"), assistant("", reasoning_content="again",
                                     tool_calls=[call("ping", {"x": [1, {"y": "z"}]})]),
     tool("{\"json\": true}", "ping"), assistant("end", reasoning_content="")],
    [user("one"), user("two"), assistant("three")],
    [system("only")],
    [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f"), user("g")],
    [user([{"type": "text", "text": "part one "}, {"type": "text", "text": "part two"}])],
    [user("<tool_response>\nx\n</tool_response>"), assistant("y")],
    [user("it's \"quoted\" \\ back\ttab"), assistant("z")],
]

SETTINGS = [
    {"add_generation_prompt": False},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "tools": TOOLS},
    {"add_generation_prompt": False, "tools": TOOLS[:1]},
]

# Whole templates in the manner of the families, written for this test.
FAMILIES = {
    "strip_old_reasoning": """{%- set ns = namespace(last=messages|length - 1, seeking=true) %}
{%- for m in messages[::-1] %}
    {%- set at = (messages|length - 1) - loop.index0 %}
    {%- if ns.seeking and m.role == "user" and not (m.content is string and
           m.content.startswith("<tool_response>") and m.content.endswith("</tool_response>")) %}
        {%- set ns.seeking = false %}
        {%- set ns.last = at %}
    {%- endif %}
{%- endfor %}
{%- if tools %}
    {{- "<s>tools\\n" }}
    {%- for t in tools %}
        {{- t | tojson }}{{ "\\n" }}
    {%- endfor %}
    {{- "</s>\\n" }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == "assistant" %}
        {%- set content = m.content %}
        {%- set why = "" %}
        {%- if m.reasoning_content is string %}
            {%- set why = m.reasoning_content %}
        {%- elif "</think>" in content %}
            {%- set why = content.split("</think>")[0].rstrip("\\n").split("<think>")[-1] %}
            {%- set content = content.split("</think>")[-1].lstrip("\\n") %}
        {%- endif %}
        {{- "<s>assistant\\n" }}
        {%- if loop.index0 > ns.last and (loop.last or why) %}
            {{- "<think>\\n" ~ why.strip("\\n") ~ "\\n</think>\\n\\n" }}
        {%- endif %}
        {{- content }}
        {%- for c in m.tool_calls or [] %}
            {%- set c = c.function if c.function is defined else c %}
            {{- "\\n<call>" + c.name + " " + (c.arguments | tojson) + "</call>" }}
        {%- endfor %}
        {{- "</s>\\n" }}
    {%- elif m.role == "tool" %}
        {{- "<s>user" if loop.first or messages[loop.index0 - 1].role != "tool" else "" }}
        {{- "\\n<tool_response>\\n" + m.content + "\\n</tool_response>" }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{ "</s>\\n" }}{% endif %}
    {%- else %}
        {{- "<s>" + m.role + "\\n" + (m.content if m.content is string else
              m.content | map(attribute="text") | join("")) + "</s>\\n" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<s>assistant\\n" }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- "<think>\\n\\n</think>\\n\\n" }}
    {%- endif %}
{%- endif %}""",
    "typed_tools": """{% macro kind(p, pad="") -%}
{%- if p.enum %}{{ p.enum | map("tojson") | join(" | ") }}
{%- elif p.type == "array" %}{{ kind(p["items"], pad) }}[]
{%- elif p.type == "object" -%}
{
{% for name, q in (p.properties or {}) | dictsort -%}
{{ pad }}  {{ name }}{{ "" if name in (p.required or []) else "?" }}: {{ kind(q, pad ~ "  ") }},
{% endfor %}{{ pad }}}
{%- else %}{{ {"string": "str", "integer": "int"}.get(p.type, "any") }}{% endif %}
{%- endmacro %}
{{ bos_token }}{% for t in tools or [] %}{% set f = t.function %}
type {{ f.name | upper }} = (_: {{ kind(f.parameters) }}) =>
 {{ f["return"].type | default("any") }};
// {{ f.description | trim | replace("<now>", "now") }}
{% endfor %}
{% for m in messages if m.role != "system" %}
[{{ loop.index }}/{{ loop.length }}{{ " last" if loop.last }}] {{ m.role }}: {{ m.content
 if m.content is string else m.content | length }}
{% else %}
no messages but the system's
{% endfor %}
{% if not add_generation_prompt is defined %}?{% endif %}""",
    "generation_tags": """{{ bos_token }}{% for m in messages %}
{%- if m.role == "assistant" %}
{{- "<A>" }}{% generation %}{{ m.content | trim }}{{ eos_token }}{% endgeneration %}
{%- else %}
{{- "<" + m.role[:1] | upper + ">" + m.content | string | trim }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<A>" }}{% endif %}""",
    "alternating": """{%- if messages[0]["role"] == "system" %}
    {%- set loop_messages = messages[1:] %}{% set first = messages[0]["content"] + "\\n\\n" %}
{%- else %}
    {%- set loop_messages = messages %}{% set first = "" %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {{- bos_token + "[INST] " + (first if loop.index0 == 0 else "")
            + message["content"] + " [/INST]" }}
    {%- else %}
        {{- " " + message["content"] + eos_token }}
    {%- endif %}
{%- endfor %}""",
}

DATA = {
    "n": 7, "x": 2.5, "s": "Hello, Wörld", "empty": "", "nothing": None, "yes": True, "no": False,
    "words": ["b", "A", "c", "a", "B"], "numbers": [3, 1, 2, 3], "mixed": [1, "a", None, True, 2.0],
    "deep": {"a": {"b": [10, 20, {"c": "d"}]}, "items": "entry", "get": 5},
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25},
               {"name": "Cid", "age": 31, "tags": []}],
    "text": "one\ntwo\r\n\n  three\n", "html": "<a href='x'>&\"</a>", "floats": [
        0.0, -0.0, 1.0, 0.1, 1e16, 1e15, 123456789.123, 1e-4, 1e-5, 1.5e300, 3.0000000000000004],
    "unicode": "ß ﬁ İ ΑΣ ΑΣ. Σ ǆ ǅ éÉ ŉ ΐ \u2028 \u00a0 \x1f \x7f \u200b 😀",
}
