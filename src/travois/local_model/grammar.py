"""Grammars for tool calls, built from the tools' JSON schemas and the words of the request.

A small model invents paths and patterns. Under this grammar it cannot: a string is a stretch of
whole words of the request, one of the values that the schema lists, or a constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

Schema: TypeAlias = dict[str, Any]
WORD = re.compile(r"[\w~*?/@.+:$<>=-]*[\w*/]|[^\w\s]")
WHOLE = re.compile(r"[\w*/]")
LONGEST = 60
"""The most words of a request that can be copied."""
MOST = 3
"""The most items of a list."""
DEEPEST = 6
BOUNDS = {"minLength", "maxLength", "pattern", "format", "not"}
"""What makes it necessary to look at each stretch of words by itself."""


class Ref(NamedTuple):
    """A reference to another rule."""

    name: str


Sequenced: TypeAlias = tuple[str | Ref, ...]
Rules: TypeAlias = dict[str, tuple[Sequenced, ...]]
"""Alternatives by the name of their rule, each a row of texts and other rules; `root` is first."""


class Inexpressible(Exception):
    """A schema of which no value can be made from the words of the request."""


def rules(tools: Mapping[str, Schema], text: str) -> Rules:
    """Build the grammar of a call to one of these tools, `Name {"argument":"value"}`."""
    making = _Making(text)
    for name, schema in tools.items():
        try:
            made = making.value(schema, schema, depth=0)
        except Inexpressible:
            continue
        making.rules["root"] = (*making.rules["root"], (f"{name} ", made))
    return making.rules


def render(made: Rules) -> str:
    """Render the rules as a GBNF grammar for llama.cpp."""
    return "\n".join(f"{name} ::= {_alternatives(rows)}" for name, rows in made.items()) + "\n"


def _alternatives(rows: tuple[Sequenced, ...]) -> str:
    return " | ".join(" ".join(map(_term, row)) or '""' for row in rows)


def _term(term: str | Ref) -> str:
    if isinstance(term, Ref):
        return term.name
    escaped = term.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


class _Making:
    """A builder of grammar rules for one request."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = [(hit.start(), hit.end()) for hit in WORD.finditer(text)][:LONGEST]
        self._named: dict[tuple[Sequenced, ...], str] = {}
        self.rules: Rules = {"root": ()}

    def value(self, schema: Schema, whole: Schema, *, depth: int) -> Ref:
        """Add the rule for all values of a schema; raises `InexpressibleSchema`."""
        if depth > DEEPEST:
            raise Inexpressible
        schema = _resolved(schema, whole)
        if either := schema.get("anyOf") or schema.get("oneOf"):
            return self._any(either, whole, depth=depth)
        if listed := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
            return self._rule(*((_json(value),) for value in listed))
        kinds = schema.get("type", "string")
        if isinstance(kinds, list):
            alike = [{**schema, "type": kind} for kind in cast("list[str]", kinds)]
            return self._any(alike, whole, depth=depth)
        if kinds == "object":
            return self._object(schema, whole, depth=depth)
        if kinds == "array":
            return self._array(schema, whole, depth=depth)
        return self._plain(kinds, schema)

    def _any(self, schemas: Sequence[Schema], whole: Schema, *, depth: int) -> Ref:
        found: list[Sequenced] = []
        for schema in schemas:
            try:
                found.append((self.value(schema, whole, depth=depth + 1),))
            except Inexpressible:
                continue
        return self._rule(*found)

    def _plain(self, kind: str, schema: Schema) -> Ref:
        match kind:
            case "boolean":
                return self._rule(("true",), ("false",))
            case "null":
                return self._rule(("null",))
            case "integer" | "number":
                return self._rule(*((text,) for text in self._numbers(schema)))
            case "string" if BOUNDS & schema.keys():
                return self._rule(*((_json(s),) for s in self._spans() if _fits(s, schema)))
            case "string":
                return self._copied()
            case _:
                raise Inexpressible

    def _object(self, schema: Schema, whole: Schema, *, depth: int) -> Ref:
        """The members in the order of the schema; those that are not required may be left out."""
        known, needed = schema.get("properties", {}), set(schema.get("required", ()))
        parts: list[tuple[str, Ref, bool]] = []
        for name, member in known.items():
            try:
                made = self.value(member, whole, depth=depth + 1)
            except Inexpressible:
                if name in needed:
                    raise
                continue
            parts.append((f"{_json(name)}:", made, name in needed))
        if needed - known.keys():
            raise Inexpressible
        return self._rule(("{", self._members(parts), "}"))

    def _members(self, parts: list[tuple[str, Ref, bool]]) -> Ref:
        """From the last member to the first: each as it stands first, and after another."""
        first = after = self._rule(())
        for name, made, needed in reversed(parts):
            opening, following = (name, made, after), (f",{name}", made, after)
            first = self._rule(opening) if needed else self._rule(opening, (first,))
            after = self._rule(following) if needed else self._rule(following, (after,))
        return first

    def _array(self, schema: Schema, whole: Schema, *, depth: int) -> Ref:
        item = self.value(schema.get("items", {"type": "string"}), whole, depth=depth + 1)
        least = max(1, schema.get("minItems", 1))
        counts = range(least, max(least, min(MOST, schema.get("maxItems", MOST))) + 1)
        if least > schema.get("maxItems", least):
            raise Inexpressible
        return self._rule(*(("[", item, *((",", item) * (n - 1)), "]") for n in counts))

    def _copied(self) -> Ref:
        """Return a stretch of words: each may be the last, or be followed by the next one."""
        if "copied" in self.rules:
            return Ref("copied")
        starts = tuple(('"', Ref(f"from{at}"), '"') for at in self._whole())
        if not starts:
            raise Inexpressible
        self.rules["copied"] = starts
        for at in range(self._whole()[-1] + 1):
            start, end = self._words[at]
            ends: tuple[Sequenced, ...] = ()
            if at in self._whole():
                ends = ((_inside(self._text[start:end]),),)
            if at < self._whole()[-1]:
                upto = self._words[at + 1][0]
                ends += ((_inside(self._text[start:upto]), Ref(f"from{at + 1}")),)
            self.rules[f"from{at}"] = ends
        return Ref("copied")

    def _whole(self) -> list[int]:
        """Which of the words are words and not marks between them: a stretch begins and ends so."""
        return [
            at for at, (start, end) in enumerate(self._words) if WHOLE.search(self._text[start:end])
        ]

    def _spans(self) -> Iterator[str]:
        for at in self._whole():
            for last in self._whole():
                if at <= last:
                    yield self._text[self._words[at][0] : self._words[last][1]]

    def _numbers(self, schema: Schema) -> Iterator[str]:
        """Numbers that the request names and the schema allows."""
        for text in dict.fromkeys(re.findall(r"(?<![\w.])[1-9]\d{0,8}(?![\w.]*\w)", self._text)):
            if schema.get("minimum", 0) <= int(text) <= schema.get("maximum", int(text)):
                yield text

    def _rule(self, *rows: Sequenced) -> Ref:
        if not rows:
            raise Inexpressible
        name = self._named.setdefault(rows, f"r{len(self.rules)}")
        self.rules[name] = rows
        return Ref(name)


def _resolved(schema: Schema, whole: Schema) -> Schema:
    ref = schema.get("$ref", "")
    return whole.get("$defs", {}).get(ref.rpartition("/")[2], {"type": ""}) if ref else schema


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _inside(text: str) -> str:
    return _json(text)[1:-1]


def _fits(text: str, schema: Schema) -> bool:
    if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text)):
        return False
    if "format" in schema or "not" in schema:
        return False
    return bool(re.search(schema.get("pattern", ""), text))
