"""JSON schemas of tool arguments, as short as possible since every request pays for them.

Schemas do not forbid extra fields: a model that adds one can still go on with its work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Literal

import msgspec

from travois.core.json import as_list, as_object

OBVIOUS_BOUNDS = (
    *(("minimum", 0), ("minimum", 1), ("exclusiveMinimum", 0)),
    *(("minLength", 1), ("minItems", 1)),
)
"""Bounds that no model needs to be told of; a call is checked all the same."""
SchemaHook = Callable[[type], dict[str, Any]]
"""Returns the schema of a type that msgspec does not know."""


@cache
def build_json_schema(struct: type[msgspec.Struct], hook: SchemaHook | None = None) -> str:
    """Build a struct's schema as compact JSON, always the same text for the same struct."""
    whole = msgspec.json.schema(struct, schema_hook=hook)
    return msgspec.json.encode(inline_json_schema(whole)).decode()


def inline_json_schema(whole: dict[str, Any]) -> dict[str, Any]:
    """Inline a JSON schema's definitions; raises RecursionError if one contains itself."""
    return _inline_schema_node(whole, as_object(whole.get("$defs")))


def _inline_schema_node(node: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Inline one schema node without references, titles and nulls; descriptions stay."""
    left_out = {name for name, bound in OBVIOUS_BOUNDS if node.get(name) == bound}
    left_out |= {"$ref", "$defs", "default", "anyOf"}
    said = {k: v for k, v in node.items() if k not in left_out}
    if not said.get("required"):
        said.pop("required", None)
    if "$ref" in node:
        return said | _inline_schema_node(_resolve_struct_ref(node, named), named)
    if "anyOf" in node:
        said |= _inline_choices(node, named)
    if "enum" in node and all(isinstance(one, str) for one in as_list(node["enum"])):
        said |= {"type": "string", "enum": [one for one in as_list(node["enum"]) if one]}
    if node.get("default"):
        said["default"] = node["default"]
    if "items" in said:
        said["items"] = _inline_schema_node(as_object(said["items"]), named)
    if "properties" in said:
        fields = as_object(said["properties"]).items()
        told = ((name, as_object(field)) for name, field in fields)
        said["properties"] = {
            name: _inline_schema_node(field, named)
            for name, field in told
            if not field.get("x-hidden")
        }
    return said


def _resolve_struct_ref(node: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Resolve a schema reference, without the class docstring, which the model need not read."""
    struct = as_object(named[str(node["$ref"]).removeprefix("#/$defs/")])
    return {k: v for k, v in struct.items() if k not in ("title", "description")}


def _inline_choices(node: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return a schema's choices without null: an argument that may be absent is not required."""
    choices = [_inline_schema_node(as_object(one), named) for one in as_list(node["anyOf"])]
    real = [one for one in choices if one.get("type") != "null"]
    return real[0] if len(real) == 1 else {"anyOf": real}


# Whether a value is what a JSON schema asks for, in words that a model can act on.


MAX_FLAWS = 10
"""The most flaws that are reported at once."""
MAX_CHECK_DEPTH = 60
MAX_CHECK_STEPS = 20_000
"""The most rules that are checked, so that a recursive schema ends."""
PatternMode = Literal["checked", "skipped"]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole_number(value: object) -> bool:
    """Return whether a JSON value is an integer for a schema; 1.0 counts, true does not."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


TYPE_CHECKS: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": _is_whole_number,
    "number": _is_number,
}


class SchemaCheck(msgspec.Struct, frozen=True):
    """A schema being checked against one value."""

    root: object
    patterns: PatternMode
    steps: Iterator[int]
    """The steps that are left."""


def find_schema_flaws(
    value: object, schema: object, *, patterns: PatternMode = "checked"
) -> tuple[str, ...]:
    """Check tool arguments against a schema; return flaws that a model can fix, empty if valid."""
    check = SchemaCheck(schema, patterns, iter(range(MAX_CHECK_STEPS)))
    return tuple(islice(_check_value(value, schema, "", check=check, depth=0), MAX_FLAWS))


def _check_value(
    value: object, schema: object, at: str, *, check: SchemaCheck, depth: int
) -> Iterator[str]:
    """Check a value of tool arguments against a JSON schema; yield each flaw."""
    if schema is False:
        yield f"{at or '/'} is not allowed"
    rules = as_object(schema)
    if depth > MAX_CHECK_DEPTH or not rules or next(check.steps, None) is None:
        return

    def check_inner(inner: object, rule: object, place: str) -> Iterator[str]:
        return _check_value(inner, rule, place, check=check, depth=depth + 1)

    if isinstance(rules.get("$ref"), str):
        yield from check_inner(value, _follow_reference(check.root, rules["$ref"]), at)
    yield from _check_scalar(value, rules, at or "/")
    if check.patterns == "checked":
        yield from _check_pattern(value, rules, at or "/")
    if TYPE_CHECKS["object"](value):
        yield from _check_members(as_object(value), rules, at, check_inner)
    if TYPE_CHECKS["array"](value):
        yield from _check_items(as_list(value), rules, at, check_inner)
    yield from _check_choices(value, rules, at, check_inner)


CheckInner = Callable[[object, object, str], Iterator[str]]


def _check_scalar(value: object, rules: dict[str, Any], at: str) -> Iterator[str]:
    """Check a value against the type, choices and bounds of its schema."""
    wanted = rules.get("type")
    kinds = [wanted] if isinstance(wanted, str) else as_list(wanted)
    known = [kind for kind in kinds if isinstance(kind, str) and kind in TYPE_CHECKS]
    if known and not any(TYPE_CHECKS[kind](value) for kind in known):
        yield f"{at} must be {' or '.join(known)}, not {_json_type_name(value)}"
    if "enum" in rules and not any(_is_same_value(value, one) for one in as_list(rules["enum"])):
        yield f"{at} must be one of {rules['enum']}"
    if "const" in rules and not _is_same_value(value, rules["const"]):
        yield f"{at} must be {rules['const']!r}"
    if isinstance(value, str):
        yield from _check_bounds(len(value), rules, at, ("minLength", "maxLength"), "characters")
    if _is_number(value):
        yield from _check_bounds(value, rules, at, ("minimum", "maximum"), "")


def _check_pattern(value: object, rules: dict[str, Any], at: str) -> Iterator[str]:
    """Check a string against the pattern of its schema."""
    pattern = rules.get("pattern")
    if isinstance(value, str) and isinstance(pattern, str) and not _matches_pattern(pattern, value):
        yield f"{at} must match {pattern}"


def _check_bounds(
    size: Any, rules: dict[str, Any], at: str, names: tuple[str, str], unit: str
) -> Iterator[str]:
    """Check a size or number against the lower and upper bound of its schema."""
    low, high = (rules.get(name) for name in names)
    if _is_number(low) and size < low:
        yield f"{at} must be at least {low} {unit}".rstrip()
    if _is_number(high) and size > high:
        yield f"{at} must be at most {high} {unit}".rstrip()


def _check_members(
    value: dict[str, Any], rules: dict[str, Any], at: str, within: CheckInner
) -> Iterator[str]:
    """Check the members of an object against its schema, including missing ones."""
    known = as_object(rules.get("properties"))
    closed = rules.get("additionalProperties") is False and "patternProperties" not in rules
    wanted = [name for name in as_list(rules.get("required")) if isinstance(name, str)]
    yield from (f"{at}/{name} is missing" for name in wanted if name not in value)
    for name, inner in value.items():
        if name in known:
            yield from within(inner, known[name], f"{at}/{name}")
        elif closed:
            yield f"{at}/{name} is not a known property; known are: {', '.join(known)}"
        elif "patternProperties" not in rules:
            yield from within(inner, rules.get("additionalProperties"), f"{at}/{name}")


def _check_items(
    value: list[Any], rules: dict[str, Any], at: str, within: CheckInner
) -> Iterator[str]:
    """Check the items of an array against its schema."""
    yield from _check_bounds(len(value), rules, at or "/", ("minItems", "maxItems"), "items")
    first = as_list(rules.get("prefixItems"))
    for number, inner in enumerate(value):
        rule = first[number] if number < len(first) else rules.get("items")
        yield from within(inner, rule, f"{at}/{number}")


def _check_choices(
    value: object, rules: dict[str, Any], at: str, within: CheckInner
) -> Iterator[str]:
    """Check a value against `allOf`, `anyOf` and `oneOf` of its schema."""
    for rule in as_list(rules.get("allOf")):
        yield from within(value, rule, at)
    for name in ("anyOf", "oneOf"):
        fits = [not list(within(value, rule, at)) for rule in as_list(rules.get(name))]
        if fits and not any(fits):
            yield f"{at or '/'} matches none of the {len(fits)} allowed schemas"
        elif name == "oneOf" and sum(fits) > 1:
            yield f"{at or '/'} matches more than one of the allowed schemas"


def _follow_reference(root: object, reference: str) -> object:
    """Follow a `$ref` within the JSON schema; any other reference has no rules."""
    node = root
    for word in reference.removeprefix("#").strip("/").split("/") if "#" in reference else ():
        node = as_object(node).get(word.replace("~1", "/").replace("~0", "~")) if word else node
    return node if node is not root or reference == "#" else {}


def _is_same_value(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _matches_pattern(pattern: str, text: str) -> bool:
    """Return whether a JSON schema's pattern matches; an invalid pattern matches everything."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True


def _json_type_name(value: object) -> str:
    return next((kind for kind, fits in TYPE_CHECKS.items() if fits(value)), "that")
