"""Whatever the grammar of calls derives is a call that its tool takes, of words that were said."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from travois.engine.tool_definitions import build_tool_specs
from travois.local_model.grammar import (
    GrammarRules,
    RuleRef,
    Schema,
    build_call_grammar,
    render_gbnf,
)
from travois.tools.catalog import TOOLS

TEXT = 'Show me the first 20 lines of "src/a b.py", then grep for 404 in tests/*.py, please.'
SCHEMAS: dict[str, Schema] = {
    spec.name: json.loads(spec.schema) for spec in build_tool_specs(TOOLS, toolset="local")
}


def derived(made: GrammarRules, random: Random, name: str = "root") -> str:
    """One text of the grammar."""
    row = random.choice(made[name])
    parts = (derived(made, random, t.name) if isinstance(t, RuleRef) else t for t in row)
    return "".join(parts)


def strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for inner in value.values() for text in strings(inner)]
        case list():
            return [text for inner in value for text in strings(inner)]
        case _:
            return []


def listed(schema: Any) -> list[str]:
    """All that a schema names as a value."""
    if isinstance(schema, dict):
        own = [*schema.get("enum", ()), schema.get("const")]
        return [*own, *(text for inner in schema.values() for text in listed(inner))]
    return [text for inner in schema for text in listed(inner)] if isinstance(schema, list) else []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_call_of_a_tool_fits_its_schema_and_copies_from_the_request(name: str) -> None:
    made = build_call_grammar({name: SCHEMAS[name]}, TEXT)
    valid = Draft202012Validator(SCHEMAS[name])
    for seed in range(40 if made["root"] else 0):
        tool, _, args = derived(made, Random(seed)).partition(" ")
        value = json.loads(args)
        assert valid.is_valid(value), value
        assert tool == name
        assert all(t in TEXT or t in listed(SCHEMAS[name]) for t in strings(value)), value


def test_all_tools_but_those_that_need_what_nobody_said_can_be_called() -> None:
    made = build_call_grammar(SCHEMAS, TEXT)
    assert {row[0] for row in made["root"]} == {f"{name} " for name in SCHEMAS}
    silent = {row[0] for row in build_call_grammar(SCHEMAS, "?!")["root"]}
    assert "GitStatus " in silent
    assert not {"Read ", "Bash ", "Grep ", "Edit "} & silent


PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 4},
        {"type": "string", "pattern": "^[a-z/]+$"},
        {"type": "string", "format": "uri"},
        {"type": "integer"},
        {"type": "integer", "minimum": 100, "maximum": 500},
        {"type": "number", "minimum": 21},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"enum": ["a", 2, None, 'quo"te\\']},
        {"const": "x"},
    ]
)


def nested(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    members = st.dictionaries(st.sampled_from(["a", "b", '"c', "d"]), inner, max_size=4)
    lists = st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least},
        inner,
        st.integers(0, 4),
    )
    either = st.builds(lambda these: {"anyOf": these}, st.lists(inner, min_size=1, max_size=3))
    return st.one_of(members.flatmap(made), lists, either)


def made(members: dict[str, Schema]) -> st.SearchStrategy[Schema]:
    needed = st.lists(st.sampled_from(sorted(members)), unique=True) if members else st.just([])
    return st.builds(
        lambda names: {
            "type": "object",
            "properties": members,
            "required": names,
            "additionalProperties": False,
        },
        needed,
    )


@given(st.recursive(PLAIN, nested, max_leaves=8), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_whatever_the_schema_what_is_derived_fits_it(schema: Schema, random: Random) -> None:
    grammar = build_call_grammar({"T": schema}, TEXT)
    if grammar["root"]:
        _, _, args = derived(grammar, random).partition(" ")
        assert Draft202012Validator(schema).is_valid(json.loads(args)), args


def test_a_definition_is_followed_and_one_that_never_ends_is_not() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {}}}}
    assert derived(build_call_grammar({"T": tree}, TEXT), Random(1)) == "T {}"
    endless = {
        "$ref": "#/$defs/t",
        "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
    }
    assert build_call_grammar({"T": endless}, TEXT) == {"root": ()}


def test_stretches_begin_and_end_with_words() -> None:
    made = build_call_grammar({"T": {"type": "string"}}, 'open "a.py", "b c".')
    found = {derived(made, Random(seed)) for seed in range(400)}
    texts = {json.loads(text.removeprefix("T ")) for text in found}
    assert texts == {
        *("open", 'open "a.py', 'open "a.py", "b', 'open "a.py", "b c'),
        *("a.py", 'a.py", "b', 'a.py", "b c', "b", "b c", "c"),
    }


def test_it_is_written_as_llama_cpp_reads_it() -> None:
    made = build_call_grammar({"T": {"enum": ['a"b\\', "two\nlines"]}}, "x")
    assert render_gbnf(made) == (
        'root ::= "T " r1\nr1 ::= "\\"a\\\\\\"b\\\\\\\\\\"" | "\\"two\\\\nlines\\""\n'
    )
    assert re.fullmatch(r"(?:\w+ ::= .*\n)+", render_gbnf(build_call_grammar(SCHEMAS, TEXT)))
