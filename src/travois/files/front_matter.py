"""Front matter: the fields of a markdown file between two lines of `---`.

It supports the part of YAML that people write there: texts, lists, and texts of several lines. What
is nested deeper stays text. The caller decides which text is a number or a boolean.

Model sees: nothing of it as it is.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

import msgspec

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports

with lazy_imports():
    import json


FrontMatterValue = str | tuple[str, ...]
FRONT_MATTER_PATTERN = compile_lazily(
    r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE
)
KEY_LINE = compile_lazily(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
LIST_ITEM = compile_lazily(r"-(?:[ \t]+|$)")
BLOCK_SCALAR = compile_lazily(r"([|>])[-+\d]*(?:[ \t]+#.*)?")
YAML_COMMENT = compile_lazily(r"(?:^|[ \t])#(?:[ \t].*)?$")
QUOTED_SCALAR = compile_lazily(r"(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^']|'')*)')(?:[ \t]+#.*)?")
NULL_VALUES = frozenset(("", "~", "null"))
MAX_FRONT_MATTER_CHARS = 1 << 16


class FrontMatter(msgspec.Struct, frozen=True):
    """The values of a file's front matter, their lines (from 1), the body, and what is wrong."""

    values: dict[str, FrontMatterValue] = {}
    lines: dict[str, int] = {}
    body: str = ""
    flaws: tuple[tuple[int, str], ...] = ()


class FrontMatterField(msgspec.Struct):
    """One key with all lines that belong to it."""

    key: str
    line: int
    head: str
    more: list[str]


def parse_front_matter(text: str) -> FrontMatter:
    """Parse a file into its front matter and body; an invalid value is kept as text."""
    found = FRONT_MATTER_PATTERN.match(text)
    if found is None or len(found[1]) > MAX_FRONT_MATTER_CHARS:
        return FrontMatter(body=text, flaws=((1, _explain_missing_front_matter(text)),))
    fields, flaws = _split_fields(found[1])
    values: dict[str, FrontMatterValue] = {}
    for field in fields:
        if field.key in values:
            flaws.append((field.line, f"{field.key} appears twice; remove one"))
        try:
            value = _parse_field(field)
        except ValueError as error:
            flaws.append((field.line, f"{field.key} {error}"))
            value = field.head
        if value not in NULL_VALUES:
            values[field.key] = value
    lines = {field.key: field.line for field in fields}
    return FrontMatter(values, lines, text[found.end() :].strip("\r\n"), tuple(sorted(flaws)))


def split_on_commas(text: str) -> tuple[str, ...]:
    """Split a front matter value at commas outside quotes and brackets."""
    parts, start, depth, quote = list[str](), 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and not text[start:at].strip():
            quote = char
        elif char == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
        else:
            depth += (char in "([{") - (char in ")]}")
    return tuple(part for word in (*parts, text[start:]) if (part := word.strip()))


def _explain_missing_front_matter(text: str) -> str:
    """Explain why a text has no readable front matter."""
    if not text.startswith("---"):
        return "the front matter is missing; put it between two lines with ---"
    if FRONT_MATTER_PATTERN.match(text):
        return f"the front matter is longer than {MAX_FRONT_MATTER_CHARS:,} characters; shorten it"
    return "the front matter is not closed; add a line with --- below it"


def _split_fields(front: str) -> tuple[list[FrontMatterField], list[tuple[int, str]]]:
    """Split front matter into its top-level fields and the lines that are invalid."""
    fields, flaws = list[FrontMatterField](), list[tuple[int, str]]()
    for number, raw in enumerate(front.split("\n"), 2):
        line = raw.rstrip()
        if found := KEY_LINE.fullmatch(line):
            fields.append(FrontMatterField(found[1], number, (found[2] or "").strip(), []))
        elif fields and (not line or line[0] in " \t" or LIST_ITEM.match(line)):
            fields[-1].more.append(line)
        elif line and not line.startswith("#"):
            flaws.append((number, "this line is not `key: value`; indent it or fix it"))
    return fields, flaws


def _parse_field(field: FrontMatterField) -> FrontMatterValue:
    """Parse the lines of a front matter field; raises ValueError with what is wrong."""
    if style := BLOCK_SCALAR.fullmatch(field.head):
        text = dedent("\n".join(field.more)).strip("\n")
        return text if style[1] == "|" else re.sub(r"\n(\n*)", lambda gap: gap[1] or " ", text)
    more = [line.strip() for line in field.more if not line.lstrip().startswith("#")]
    more = [line for line in more if line]
    if not field.head and more and LIST_ITEM.match(more[0]):
        return _parse_list_items(more)
    lines = (field.head, *more)
    if field.head[:1] not in ("'", '"'):
        lines = [YAML_COMMENT.sub("", line) for line in lines]
    text = " ".join(lines).strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError("is a list without a closing ]; add it")
        return tuple(_parse_scalar(word) for word in split_on_commas(text[1:-1]))
    return _parse_scalar(text)


def _parse_list_items(lines: list[str]) -> tuple[str, ...]:
    """Parse a front matter list with one item per line; lines without a dash continue an item."""
    items: list[str] = []
    for line in lines:
        if found := LIST_ITEM.match(line):
            items.append(line[found.end() :])
        else:
            items[-1] += f" {line}"
    return tuple(text for item in items if (text := _parse_scalar(item.strip())))


def _parse_scalar(text: str) -> str:
    """Parse a front matter value as text: unquoted, or in single or double quotes."""
    if text[:1] not in ("'", '"'):
        return YAML_COMMENT.sub("", text).strip()
    found = QUOTED_SCALAR.fullmatch(text)
    if found is None:
        raise ValueError("has unbalanced quotes; close them at the end of the value")
    if found[2] is not None:
        return found[2].replace("''", "'")
    try:
        return json.loads(f'"{found[1]}"', strict=False)
    except ValueError:
        raise ValueError("has an invalid escape; write \\\\ for a backslash") from None


# Front matter that is nested: the tables and lists of YAML that people write below one key.


NESTED_KEY = compile_lazily(r"(\"[^\"]*\"|'[^']*'|[^\s\"'#\[\]{},][^:]*?)[ \t]*:(?:[ \t]+(.*))?")
JSON_SCALAR = compile_lazily(r"true|false|null|-?\d+(\.\d+)?")
MAX_NESTING_SPACES = 40


class IndentedLines:
    """The lines still to parse."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.rest = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    @property
    def depth(self) -> int:
        """The indentation of the next line; -1 at the end."""
        return len(self.rest[0]) - len(self.rest[0].lstrip()) if self.rest else -1

    def take(self) -> str:
        """Return the next line, without its indentation."""
        return self.rest.pop(0).strip()


def parse_nested_value(text: str, key: str) -> object:
    """Return the nested value of a front matter key; None if missing or invalid."""
    found = FRONT_MATTER_PATTERN.match(text)
    part = re.search(
        rf"(?m)^{re.escape(key)}[ \t]*:(.*(?:\n(?:[ \t-].*)?)*)", found[1] if found else ""
    )
    if part is None:
        return None
    head, _, more = part[1].expandtabs().partition("\n")
    try:
        return (
            _parse_nested_scalar(head.strip())
            if head.strip()
            else _parse_node(IndentedLines(more.split("\n")))
        )
    except (ValueError, IndexError, RecursionError):
        return None


def _parse_node(lines: IndentedLines) -> object:
    """Parse the nested front matter at the next line: a mapping, list or text."""
    depth = lines.depth
    if depth > MAX_NESTING_SPACES:
        raise ValueError("too deep")
    if LIST_ITEM.match(lines.rest[0].lstrip()):
        return _parse_list(lines, depth)
    if NESTED_KEY.fullmatch(lines.rest[0].strip()):
        return _parse_table(lines, depth)
    return _parse_nested_scalar(" ".join(_take_deeper_stripped(lines, depth - 1)))


def _parse_list(lines: IndentedLines, depth: int) -> list[object]:
    """Parse an indented list of nested front matter."""
    items: list[object] = []
    while lines.depth == depth and (found := LIST_ITEM.match(lines.rest[0].lstrip())):
        line = lines.take()[found.end() :].strip()
        if not line:
            items.append(_parse_node(lines) if lines.depth > depth else None)
        elif line[0] not in "[{\"'" and NESTED_KEY.fullmatch(line):
            lines.rest.insert(0, " " * (depth + found.end()) + line)
            items.append(_parse_node(lines))
        else:
            items.append(
                _parse_nested_scalar(" ".join((line, *_take_deeper_stripped(lines, depth))))
            )
    return items


def _parse_table(lines: IndentedLines, depth: int) -> dict[str, object]:
    """Parse an indented mapping of nested front matter."""
    table: dict[str, object] = {}
    while lines.depth == depth and (found := NESTED_KEY.fullmatch(lines.rest[0].strip())):
        lines.take()
        table[str(_parse_nested_scalar(found[1]))] = _parse_table_value(
            (found[2] or "").strip(), lines, depth
        )
    if lines.depth > depth:
        raise ValueError("unexpected indentation")
    return table


def _parse_table_value(head: str, lines: IndentedLines, depth: int) -> object:
    """Parse the value of a nested front matter key: a block, an inline value or a nested node."""
    if style := BLOCK_SCALAR.fullmatch(head):
        block = [*_take_deeper(lines, depth)]
        return dedent("\n".join(block)) if style[1] == "|" else " ".join(map(str.strip, block))
    if head:
        return _parse_nested_scalar(" ".join((head, *_take_deeper_stripped(lines, depth))))
    beside = lines.depth == depth and bool(LIST_ITEM.match(lines.rest[0].lstrip()))
    return _parse_node(lines) if beside or lines.depth > depth else None


def _take_deeper_stripped(lines: IndentedLines, depth: int) -> list[str]:
    return [line.strip() for line in _take_deeper(lines, depth)]


def _take_deeper(lines: IndentedLines, depth: int) -> list[str]:
    """Take all front matter lines that are indented further."""
    taken: list[str] = []
    while lines.depth > depth:
        taken.append(lines.rest.pop(0))
    return taken


def _parse_nested_scalar(text: str) -> object:
    """Parse an inline value of nested front matter: text, JSON scalar, `[list]` or `{mapping}`."""
    if text[:1] in "\"'" and (found := QUOTED_SCALAR.fullmatch(text)):
        quoted = found[1]
        return (
            json.loads(f'"{quoted}"', strict=False)
            if quoted is not None
            else found[2].replace("''", "'")
        )
    bare = YAML_COMMENT.sub("", text).strip()
    if bare[:1] == "[" and bare.endswith("]"):
        return [_parse_nested_scalar(part) for part in split_on_commas(bare[1:-1])]
    if bare[:1] == "{" and bare.endswith("}"):
        pairs = (NESTED_KEY.fullmatch(part) for part in split_on_commas(bare[1:-1]))
        return {
            str(_parse_nested_scalar(pair[1])): _parse_nested_scalar((pair[2] or "").strip())
            for pair in pairs
            if pair
        }
    return json.loads(bare) if JSON_SCALAR.fullmatch(bare) else bare
