"""Chat templates render byte for byte as Python's jinja2 does with Hugging Face's settings."""

import datetime
import functools
import json
from pathlib import Path

import pytest
from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import UndefinedError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.jinja"))
CONVERSATIONS = json.loads((HERE / "conversations.json").read_text())
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class GenerationMark(Extension):
    """{% generation %}: transparent when only text is wanted."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's interface

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def hugging_face_environment() -> ImmutableSandboxedEnvironment:
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message):
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationMark, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


@functools.cache
def parsed(source: str) -> Template:
    return hugging_face_environment().from_string(source)


def render(source: str, conversation: dict, add_generation_prompt: bool) -> dict:
    template = parsed(source)
    try:
        text = template.render(
            messages=conversation["messages"],
            tools=conversation.get("tools"),
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **TOKENS,
            **conversation.get("variables", {}),
        )
    except UndefinedError as error:
        return {"fails": str(error)}
    except TemplateError as error:
        return {"raised": error.message}
    except TypeError as error:
        return {"fails": str(error)}
    return {"text": text}


def request(source: str, conversation: dict, add_generation_prompt: bool) -> dict:
    inputs = {"messages": conversation["messages"], **conversation.get("variables", {})}
    if "tools" in conversation:
        inputs["tools"] = conversation["tools"]
    return {
        "template": source,
        "inputs": inputs,
        "add_generation_prompt": add_generation_prompt,
        **TOKENS,
    }


def same(expected: dict, got: dict) -> bool:
    if "text" in expected:
        return got.get("text") == expected["text"]
    if "raised" in expected:
        return got.get("error") == expected["raised"] and got["code"] == "invalid argument"
    return "error" in got and got["code"] == "invalid argument"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_template_equals_jinja2(path: Path, run_lines):
    source = path.read_text()
    cases = [(c, prompt) for c in CONVERSATIONS for prompt in (True, False)]
    expected = [render(source, *case) for case in cases]
    got = run_lines("render_chats", lines=[request(source, *case) for case in cases])
    different = [
        (case[0]["name"], case[1], want, have)
        for case, want, have in zip(cases, expected, got, strict=True)
        if not same(want, have)
    ]
    assert not different, json.dumps(different[:3], indent=1, ensure_ascii=False)
    assert any("text" in want for want in expected)


def test_there_are_enough_templates():
    assert len(TEMPLATES) >= 15


# anomalyco/opencode#4049
@pytest.mark.parametrize(
    "source",
    [
        "{{ x | tojson(ensure_ascii=False) }}{{ x | tojson(indent=2) }}",
        "{{ x.a.replace('e', 'E').rstrip('l') }}{{ x.a.split('l') }}{{ x.a[1:-1] }}",
        "{% set ns = namespace(n=0) %}{% for i in x.l %}{% set ns.n = ns.n + i %}"
        "{% if not loop.last %}+{% endif %}{% endfor %}={{ ns.n }}",
        "{% macro m(a, b='é') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}",
    ],
)
def test_what_other_engines_lack(source: str, run_lines):
    variables = {"x": {"a": "hello é", "l": [1, 2, 3], "n": None, "f": 0.1}}
    conversation = {"messages": [], "variables": variables}
    got = run_lines("render_chats", lines=[request(source, conversation, False)])
    assert got[0] == render(source, conversation, False)


# ikawrakow/ik_llama.cpp#693: the date is rendered, an unknown name is an error and never a swap.
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ make_up('x') }}", 'function "make_up"'),
        ("{{ messages | make_up }}", 'filter "make_up"'),
        ("{% if messages is make_up %}{% endif %}", 'test "make_up"'),
        ("{% if false %}{{ 'x'.make_up() }}{% endif %}", 'method "make_up"'),
        ("{% macro m() %}{{ make_up() }}{% endmacro %}", 'function "make_up"'),
    ],
)
def test_unknown_names_are_refused_at_load(source: str, name: str, run_lines):
    got = run_lines("render_chats", lines=[request(source, CONVERSATIONS[0], True)])
    assert got[0]["code"] == "unsupported"
    assert name in got[0]["error"]


def test_a_function_asked_for_first_may_be_missing(run_lines):
    source = "{% if make_up is defined %}{{ make_up() }}{% else %}no{% endif %}"
    assert run_lines("render_chats", lines=[request(source, CONVERSATIONS[0], True)]) == [
        {"text": "no"}
    ]


# EricLBuehler/mistral.rs#506: the template's own words reach the caller.
def test_a_refusal_carries_the_templates_message(run_lines):
    source = (HERE / "templates/gemma.jinja").read_text()
    for conversation, message in [
        (CONVERSATIONS[1], "System role not supported"),
        (CONVERSATIONS[2], "System role not supported"),
        (CONVERSATIONS[3], "Conversation roles must alternate user/assistant/user/assistant/..."),
    ]:
        got = run_lines("render_chats", lines=[request(source, conversation, True)])
        assert got == [{"error": message, "code": "invalid argument"}]


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}.{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}{{ ns.x }}",
        "{{ 'x' * 99999999999 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_template_cannot_hang_or_eat_the_memory(source: str, run_lines):
    got = run_lines("render_chats", lines=[request(source, CONVERSATIONS[0], True)])
    assert "error" in got[0]
