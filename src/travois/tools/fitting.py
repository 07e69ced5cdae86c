"""Whether arguments fit a JSON schema that somebody else wrote.

Only what can be said for certain, in bounded time: kinds, required and unknown fields, choices.
Patterns, references and conditions are the server's to judge; they could be made to run for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from travois.wire.loose import rows, table

DEEPEST, MANY = 8, 100
KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def misfit(schema: object, value: object) -> str:
    """The first thing that is wrong with a value; empty if nothing is."""
    return next(_wrong(table(schema), value, "the arguments", depth=0), "")


def _wrong(schema: dict[str, object], value: object, where: str, *, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        return
    kinds = schema.get("type")
    named = [kinds] if isinstance(kinds, str) else rows(kinds)
    if named and not any(_is(kind, value) for kind in named):
        yield f"{where} should be of type {' or '.join(map(str, named))}"
        return
    choices = rows(schema.get("enum"))
    if choices and value not in choices:
        yield f"{where} should be one of {', '.join(map(repr, choices[:20]))}"
    if _is("object", value):
        yield from _fields(schema, table(value), where, depth=depth)
    inner = table(schema.get("items"))
    for number, element in enumerate(rows(value)[:MANY]):
        yield from _wrong(inner, element, f"{where}[{number}]", depth=depth + 1)


def _fields(
    schema: dict[str, object], value: dict[str, object], where: str, *, depth: int
) -> Iterator[str]:
    known = table(schema.get("properties"))
    for name in rows(schema.get("required")):
        if name not in value:
            yield f"{where} lack {name!r}"
    strict = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for name, inner in value.items():
        if name in known:
            yield from _wrong(table(known[name]), inner, f"{name!r}", depth=depth + 1)
        elif strict:
            yield f"{where} have no field {name!r}; there are: {', '.join(known) or 'none'}"


def _is(kind: object, value: object) -> bool:
    if not isinstance(kind, str) or kind not in KINDS:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    whole = kind != "integer" or not isinstance(value, float) or value.is_integer()
    return isinstance(value, KINDS[kind]) and whole
