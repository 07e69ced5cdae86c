"""What a JSON schema asks for, and what is said of a value that has it not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.providers.json_schema import find_schema_flaws

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"$ref": "#/$defs/kind"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["cat", "dog", None]}},
}


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ({"name": "Ada", "age": 36, "kind": "cat", "tags": ["a"]}, PERSON, ()),
        ({}, PERSON, ("/name is missing",)),
        ({"name": ""}, PERSON, ("/name must be at least 1 characters", "/name must match ^[A-Z]")),
        ({"name": "A", "age": 1.5}, PERSON, ("/age must be integer, not number",)),
        ({"name": "A", "age": 2.0}, PERSON, ()),
        ({"name": "A", "age": True}, PERSON, ("/age must be integer, not boolean",)),
        ({"name": "A", "age": 151}, PERSON, ("/age must be at most 150",)),
        ({"name": "A", "kind": "cow"}, PERSON, ("/kind must be one of ['cat', 'dog', None]",)),
        ({"name": "A", "tags": [1]}, PERSON, ("/tags/0 must be string, not integer",)),
        ({"name": "A", "tags": ["", "", ""]}, PERSON, ("/tags must be at most 2 items",)),
        (
            {"name": "A", "x": 1},
            PERSON,
            ("/x is not a known property; known are: name, age, kind, tags",),
        ),
        ([], PERSON, ("/ must be object, not array",)),
        (1, {"const": True}, ("/ must be True",)),
        ("x", {"type": ["integer", "null"]}, ("/ must be integer or null, not string",)),
        (
            1,
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            ("/ matches none of the 2 allowed schemas",),
        ),
        (
            1,
            {"oneOf": [{"type": "number"}, {"minimum": 0}]},
            ("/ matches more than one of the allowed schemas",),
        ),
        (1, {"allOf": [{"minimum": 2}, {"type": "string"}]}, ("/ must be at least 2", "/ must be")),
        ([1, "a"], {"prefixItems": [{}, {"type": "null"}]}, ("/1 must be null, not string",)),
        ({"a": 1}, {"additionalProperties": {"type": "null"}}, ("/a must be null, not integer",)),
        ({"a": 1}, {"properties": {"a": False}}, ("/a is not allowed",)),
        ("anything", {}, ()),
        ("anything", True, ()),
        ("a", {"pattern": "("}, ()),
        ("a", {"$ref": "https://elsewhere/schema"}, ()),
        (float("inf"), {"type": "integer"}, ("/ must be integer, not number",)),
        ({"x": 1}, {"additionalProperties": False, "patternProperties": {"^x": {}}}, ()),
    ],
)
def test_every_flaw_is_told_where_it_is(value: Any, schema: Any, told: tuple[str, ...]) -> None:
    found = find_schema_flaws(value, schema)
    assert len(found) == len(told)
    assert all(one.startswith(want) for one, want in zip(found, told, strict=True)), found


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["n"]}
    assert find_schema_flaws({"n": 1, "next": {"n": 2, "next": {}}}, tree) == (
        "/next/next/n is missing",
    )
    assert find_schema_flaws({}, {"$ref": "#"}) == ()


def test_only_so_many_flaws_are_told() -> None:
    assert len(find_schema_flaws(["x"] * 50, {"items": {"type": "null"}})) == 10


def test_a_schema_of_a_stranger_takes_only_so_long() -> None:
    doubling: Any = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert find_schema_flaws({}, doubling) == ()
    wide = {"items": {"anyOf": [{"const": n} for n in range(100)]}}
    assert find_schema_flaws([-1] * 100_000, wide) != ()
    slow = {"pattern": "^(a+)+$"}
    assert find_schema_flaws("a" * 40 + "!", slow, patterns="skipped") == ()
    assert find_schema_flaws("b", slow) == ("/ must match ^(a+)+$",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


WORDS = st.sampled_from(
    (
        *("type", "properties", "required", "items", "prefixItems", "enum", "const", "pattern"),
        *("anyOf", "oneOf", "allOf", "$ref", "minimum", "maxLength", "additionalProperties"),
    )
)
SCHEMA = st.recursive(
    JSON | st.sampled_from(("object", "array", "#", "#/properties")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner),
    max_leaves=12,
)


@given(value=JSON, schema=SCHEMA)
def test_no_schema_breaks_it(value: Any, schema: Any) -> None:
    assert isinstance(find_schema_flaws(value, schema), tuple)
