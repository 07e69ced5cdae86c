"""Front matter: what a markdown file says of itself between two lines of `---`.

It is the part of YAML that people write there: texts, lists, and texts of several lines. What is
nested deeper stays the text that it is. Whoever asks decides which text is a number or a yes.

Model sees: nothing of it as it is.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

import msgspec

Value = str | tuple[str, ...]
FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
ITEM = re.compile(r"-(?:[ \t]+|$)")
BLOCK = re.compile(r"([|>])[-+\d]*(?:[ \t]+#.*)?")
COMMENT = re.compile(r"(?:^|[ \t])#(?:[ \t].*)?$")
QUOTED = re.compile(r"(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^']|'')*)')(?:[ \t]+#.*)?")
NOTHING = frozenset(("", "~", "null"))
LONGEST = 1 << 16


class Front(msgspec.Struct, frozen=True):
    """The values of a file's front matter, their lines (from 1), the body, and what is wrong."""

    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    body: str = ""
    flaws: tuple[tuple[int, str], ...] = ()


class Field(msgspec.Struct):
    """One key with all lines that belong to it."""

    key: str
    line: int
    head: str
    more: list[str]


def read(text: str) -> Front:
    """Parse a file into its front matter and body; an invalid value is kept as text."""
    found = FRONT.match(text)
    if found is None or len(found[1]) > LONGEST:
        return Front(body=text, flaws=((1, _unread(text)),))
    fields, flaws = _fields(found[1])
    values: dict[str, Value] = {}
    for field in fields:
        if field.key in values:
            flaws.append((field.line, f"{field.key} appears twice; remove one"))
        try:
            value = _value(field)
        except ValueError as error:
            flaws.append((field.line, f"{field.key} {error}"))
            value = field.head
        if value not in NOTHING:
            values[field.key] = value
    lines = {field.key: field.line for field in fields}
    return Front(values, lines, text[found.end() :].strip("\r\n"), tuple(sorted(flaws)))


def split(text: str) -> tuple[str, ...]:
    """Return the parts between commas that are in no quotes or brackets."""
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


def _unread(text: str) -> str:
    """Explain why a text has no readable front matter."""
    if not text.startswith("---"):
        return "the front matter is missing; put it between two lines with ---"
    if FRONT.match(text):
        return f"the front matter is longer than {LONGEST:,} characters; shorten it"
    return "the front matter is not closed; add a line with --- below it"


def _fields(front: str) -> tuple[list[Field], list[tuple[int, str]]]:
    fields, flaws = list[Field](), list[tuple[int, str]]()
    for number, raw in enumerate(front.split("\n"), 2):
        line = raw.rstrip()
        if found := KEY.fullmatch(line):
            fields.append(Field(found[1], number, (found[2] or "").strip(), []))
        elif fields and (not line or line[0] in " \t" or ITEM.match(line)):
            fields[-1].more.append(line)
        elif line and not line.startswith("#"):
            flaws.append((number, "this line is not `key: value`; indent it or fix it"))
    return fields, flaws


def _value(field: Field) -> Value:
    """Read the lines of a field; raises ValueError with what is wrong."""
    if style := BLOCK.fullmatch(field.head):
        text = dedent("\n".join(field.more)).strip("\n")
        return text if style[1] == "|" else re.sub(r"\n(\n*)", lambda gap: gap[1] or " ", text)
    more = [line.strip() for line in field.more if not line.lstrip().startswith("#")]
    more = [line for line in more if line]
    if not field.head and more and ITEM.match(more[0]):
        return _items(more)
    lines = (field.head, *more)
    if field.head[:1] not in ("'", '"'):
        lines = [COMMENT.sub("", line) for line in lines]
    text = " ".join(lines).strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError("is a list without a closing ]; add it")
        return tuple(_scalar(word) for word in split(text[1:-1]))
    return _scalar(text)


def _items(lines: list[str]) -> tuple[str, ...]:
    """Return a list with one item a line; lines without a dash go on with the item before."""
    items: list[str] = []
    for line in lines:
        if found := ITEM.match(line):
            items.append(line[found.end() :])
        else:
            items[-1] += f" {line}"
    return tuple(text for item in items if (text := _scalar(item.strip())))


def _scalar(text: str) -> str:
    if text[:1] not in ("'", '"'):
        return COMMENT.sub("", text).strip()
    found = QUOTED.fullmatch(text)
    if found is None:
        raise ValueError("has unbalanced quotes; close them at the end of the value")
    if found[2] is not None:
        return found[2].replace("''", "'")
    try:
        from json import loads

        return loads(f'"{found[1]}"', strict=False)
    except ValueError:
        raise ValueError("has an invalid escape; write \\\\ for a backslash") from None


# Front matter that is nested: the tables and lists of YAML that people write below one key.


NESTED_KEY = re.compile(r"(\"[^\"]*\"|'[^']*'|[^\s\"'#\[\]{},][^:]*?)[ \t]*:(?:[ \t]+(.*))?")
BARE = re.compile(r"true|false|null|-?\d+(\.\d+)?")
DEEPEST = 40


class Lines:
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


def nested(text: str, key: str) -> object:
    """Return the nested value of a front matter key; None if missing or invalid."""
    found = FRONT.match(text)
    part = re.search(
        rf"(?m)^{re.escape(key)}[ \t]*:(.*(?:\n(?:[ \t-].*)?)*)", found[1] if found else ""
    )
    if part is None:
        return None
    head, _, more = part[1].expandtabs().partition("\n")
    try:
        return _nested_scalar(head.strip()) if head.strip() else _node(Lines(more.split("\n")))
    except (ValueError, IndexError, RecursionError):
        return None


def _node(lines: Lines) -> object:
    """Return the table, list or text that begins at the next line."""
    depth = lines.depth
    if depth > DEEPEST:
        raise ValueError("too deep")
    if ITEM.match(lines.rest[0].lstrip()):
        return _list(lines, depth)
    if NESTED_KEY.fullmatch(lines.rest[0].strip()):
        return _table(lines, depth)
    return _nested_scalar(" ".join(_deeper(lines, depth - 1)))


def _list(lines: Lines, depth: int) -> list[object]:
    items: list[object] = []
    while lines.depth == depth and (found := ITEM.match(lines.rest[0].lstrip())):
        line = lines.take()[found.end() :].strip()
        if not line:
            items.append(_node(lines) if lines.depth > depth else None)
        elif line[0] not in "[{\"'" and NESTED_KEY.fullmatch(line):
            lines.rest.insert(0, " " * (depth + found.end()) + line)
            items.append(_node(lines))
        else:
            items.append(_nested_scalar(" ".join((line, *_deeper(lines, depth)))))
    return items


def _table(lines: Lines, depth: int) -> dict[str, object]:
    table: dict[str, object] = {}
    while lines.depth == depth and (found := NESTED_KEY.fullmatch(lines.rest[0].strip())):
        lines.take()
        table[str(_nested_scalar(found[1]))] = _nested_value((found[2] or "").strip(), lines, depth)
    if lines.depth > depth:
        raise ValueError("unexpected indentation")
    return table


def _nested_value(head: str, lines: Lines, depth: int) -> object:
    if style := BLOCK.fullmatch(head):
        block = [*_block(lines, depth)]
        return dedent("\n".join(block)) if style[1] == "|" else " ".join(map(str.strip, block))
    if head:
        return _nested_scalar(" ".join((head, *_deeper(lines, depth))))
    beside = lines.depth == depth and bool(ITEM.match(lines.rest[0].lstrip()))
    return _node(lines) if beside or lines.depth > depth else None


def _deeper(lines: Lines, depth: int) -> list[str]:
    return [line.strip() for line in _block(lines, depth)]


def _block(lines: Lines, depth: int) -> list[str]:
    """Take all lines that are indented further."""
    taken: list[str] = []
    while lines.depth > depth:
        taken.append(lines.rest.pop(0))
    return taken


def _nested_scalar(text: str) -> object:
    from json import loads

    if text[:1] in "\"'" and (found := QUOTED.fullmatch(text)):
        quoted = found[1]
        return (
            loads(f'"{quoted}"', strict=False)
            if quoted is not None
            else found[2].replace("''", "'")
        )
    bare = COMMENT.sub("", text).strip()
    if bare[:1] == "[" and bare.endswith("]"):
        return [_nested_scalar(part) for part in split(bare[1:-1])]
    if bare[:1] == "{" and bare.endswith("}"):
        pairs = (NESTED_KEY.fullmatch(part) for part in split(bare[1:-1]))
        return {
            str(_nested_scalar(pair[1])): _nested_scalar((pair[2] or "").strip())
            for pair in pairs
            if pair
        }
    return loads(bare) if BARE.fullmatch(bare) else bare
