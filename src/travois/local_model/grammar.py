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
REQUEST_WORD = re.compile(r"[\w~*?/@.+:$<>=-]*[\w*/]|[^\w\s]")
WORD_CHARACTER = re.compile(r"[\w*/]")
MAX_COPIED_WORDS = 60
"""The most words of a request that can be copied."""
MAX_LIST_ITEMS = 3
"""The most items of a list."""
MAX_SCHEMA_DEPTH = 6
STRING_CONSTRAINTS = {"minLength", "maxLength", "pattern", "format", "not"}
"""What makes it necessary to look at each stretch of words by itself."""


class RuleRef(NamedTuple):
    """A reference to another rule."""

    name: str


RuleSequence: TypeAlias = tuple[str | RuleRef, ...]
GrammarRules: TypeAlias = dict[str, tuple[RuleSequence, ...]]
"""Alternatives by the name of their rule, each a row of texts and other rules; `root` is first."""


class InexpressibleSchema(Exception):
    """A schema of which no value can be made from the words of the request."""


def build_call_grammar(tools: Mapping[str, Schema], text: str) -> GrammarRules:
    """Build the grammar of a call to one of these tools, `Name {"argument":"value"}`."""
    making = _GrammarBuilder(text)
    for name, schema in tools.items():
        try:
            made = making.add_value_rule(schema, schema, depth=0)
        except InexpressibleSchema:
            continue
        making.rules["root"] = (*making.rules["root"], (f"{name} ", made))
    return making.rules


def render_gbnf(made: GrammarRules) -> str:
    """Render the rules as a GBNF grammar for llama.cpp."""
    return (
        "\n".join(f"{name} ::= {_render_alternatives(rows)}" for name, rows in made.items()) + "\n"
    )


def _render_alternatives(rows: tuple[RuleSequence, ...]) -> str:
    return " | ".join(" ".join(map(_render_term, row)) or '""' for row in rows)


def _render_term(term: str | RuleRef) -> str:
    """Render one term of a grammar rule as GBNF for llama.cpp."""
    if isinstance(term, RuleRef):
        return term.name
    escaped = term.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


class _GrammarBuilder:
    """A builder of grammar rules for one request."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = [(hit.start(), hit.end()) for hit in REQUEST_WORD.finditer(text)][
            :MAX_COPIED_WORDS
        ]
        self._named: dict[tuple[RuleSequence, ...], str] = {}
        self.rules: GrammarRules = {"root": ()}

    def add_value_rule(self, schema: Schema, whole: Schema, *, depth: int) -> RuleRef:
        """Add the rule for all values of a schema; raises `InexpressibleSchema`."""
        if depth > MAX_SCHEMA_DEPTH:
            raise InexpressibleSchema
        schema = _resolve_ref(schema, whole)
        if either := schema.get("anyOf") or schema.get("oneOf"):
            return self._add_any_rule(either, whole, depth=depth)
        if listed := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
            return self._add_rule(*((_encode_json_text(value),) for value in listed))
        kinds = schema.get("type", "string")
        if isinstance(kinds, list):
            alike = [{**schema, "type": kind} for kind in cast("list[str]", kinds)]
            return self._add_any_rule(alike, whole, depth=depth)
        if kinds == "object":
            return self._add_object_rule(schema, whole, depth=depth)
        if kinds == "array":
            return self._add_array_rule(schema, whole, depth=depth)
        return self._add_scalar_rule(kinds, schema)

    def _add_any_rule(self, schemas: Sequence[Schema], whole: Schema, *, depth: int) -> RuleRef:
        found: list[RuleSequence] = []
        for schema in schemas:
            try:
                found.append((self.add_value_rule(schema, whole, depth=depth + 1),))
            except InexpressibleSchema:
                continue
        return self._add_rule(*found)

    def _add_scalar_rule(self, kind: str, schema: Schema) -> RuleRef:
        match kind:
            case "boolean":
                return self._add_rule(("true",), ("false",))
            case "null":
                return self._add_rule(("null",))
            case "integer" | "number":
                return self._add_rule(*((text,) for text in self._numbers_in_request(schema)))
            case "string" if STRING_CONSTRAINTS & schema.keys():
                return self._add_rule(
                    *(
                        (_encode_json_text(s),)
                        for s in self._word_spans()
                        if _fits_constraints(s, schema)
                    )
                )
            case "string":
                return self._add_copied_rule()
            case _:
                raise InexpressibleSchema

    def _add_object_rule(self, schema: Schema, whole: Schema, *, depth: int) -> RuleRef:
        """Add the rule for an object; members that are not required may be left out."""
        known, needed = schema.get("properties", {}), set(schema.get("required", ()))
        parts: list[tuple[str, RuleRef, bool]] = []
        for name, member in known.items():
            try:
                made = self.add_value_rule(member, whole, depth=depth + 1)
            except InexpressibleSchema:
                if name in needed:
                    raise
                continue
            parts.append((f"{_encode_json_text(name)}:", made, name in needed))
        if needed - known.keys():
            raise InexpressibleSchema
        return self._add_rule(("{", self._add_members_rule(parts), "}"))

    def _add_members_rule(self, parts: list[tuple[str, RuleRef, bool]]) -> RuleRef:
        """Add the rules for the members of an object, from the last to the first."""
        first = after = self._add_rule(())
        for name, made, needed in reversed(parts):
            opening, following = (name, made, after), (f",{name}", made, after)
            first = self._add_rule(opening) if needed else self._add_rule(opening, (first,))
            after = self._add_rule(following) if needed else self._add_rule(following, (after,))
        return first

    def _add_array_rule(self, schema: Schema, whole: Schema, *, depth: int) -> RuleRef:
        item = self.add_value_rule(schema.get("items", {"type": "string"}), whole, depth=depth + 1)
        least = max(1, schema.get("minItems", 1))
        counts = range(
            least, max(least, min(MAX_LIST_ITEMS, schema.get("maxItems", MAX_LIST_ITEMS))) + 1
        )
        if least > schema.get("maxItems", least):
            raise InexpressibleSchema
        return self._add_rule(*(("[", item, *((",", item) * (n - 1)), "]") for n in counts))

    def _add_copied_rule(self) -> RuleRef:
        """Add the rule for a stretch of words copied from the request."""
        if "copied" in self.rules:
            return RuleRef("copied")
        starts = tuple(('"', RuleRef(f"from{at}"), '"') for at in self._word_positions())
        if not starts:
            raise InexpressibleSchema
        self.rules["copied"] = starts
        for at in range(self._word_positions()[-1] + 1):
            start, end = self._words[at]
            ends: tuple[RuleSequence, ...] = ()
            if at in self._word_positions():
                ends = ((_encode_json_inside(self._text[start:end]),),)
            if at < self._word_positions()[-1]:
                upto = self._words[at + 1][0]
                ends += ((_encode_json_inside(self._text[start:upto]), RuleRef(f"from{at + 1}")),)
            self.rules[f"from{at}"] = ends
        return RuleRef("copied")

    def _word_positions(self) -> list[int]:
        """Return the positions of words, without punctuation: a stretch begins and ends there."""
        return [
            at
            for at, (start, end) in enumerate(self._words)
            if WORD_CHARACTER.search(self._text[start:end])
        ]

    def _word_spans(self) -> Iterator[str]:
        for at in self._word_positions():
            for last in self._word_positions():
                if at <= last:
                    yield self._text[self._words[at][0] : self._words[last][1]]

    def _numbers_in_request(self, schema: Schema) -> Iterator[str]:
        """Return the numbers that the request names and the schema allows."""
        for text in dict.fromkeys(re.findall(r"(?<![\w.])[1-9]\d{0,8}(?![\w.]*\w)", self._text)):
            if schema.get("minimum", 0) <= int(text) <= schema.get("maximum", int(text)):
                yield text

    def _add_rule(self, *rows: RuleSequence) -> RuleRef:
        if not rows:
            raise InexpressibleSchema
        name = self._named.setdefault(rows, f"r{len(self.rules)}")
        self.rules[name] = rows
        return RuleRef(name)


def _resolve_ref(schema: Schema, whole: Schema) -> Schema:
    ref = schema.get("$ref", "")
    return whole.get("$defs", {}).get(ref.rpartition("/")[2], {"type": ""}) if ref else schema


def _encode_json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _encode_json_inside(text: str) -> str:
    return _encode_json_text(text)[1:-1]


def _fits_constraints(text: str, schema: Schema) -> bool:
    """Return whether a word fits its schema's length and pattern for the grammar."""
    if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text)):
        return False
    if "format" in schema or "not" in schema:
        return False
    return bool(re.search(schema.get("pattern", ""), text))
