"""Front matter: what a markdown file says of itself between two lines of `---`.

It is the part of YAML that people write there: texts, lists, and texts of several lines. What is
nested deeper stays the text that it is. Whoever asks decides which text is a number or a yes.

Model sees: nothing of it as it is.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
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
    """What a file says of itself, the lines where (from 1), the text below, and what is wrong."""

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
    """Part a file into its front matter and its body; a value that is flawed is kept as it is."""
    found = FRONT.match(text)
    if found is None or len(found[1]) > LONGEST:
        return Front(body=text, flaws=((1, _unread(text)),))
    fields, flaws = _fields(found[1])
    values: dict[str, Value] = {}
    for field in fields:
        if field.key in values:
            flaws.append((field.line, f"{field.key} is there twice; leave one of them out"))
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
    """The parts between commas that are in no quotes or brackets."""
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
    """Why a text has no front matter that can be read."""
    if not text.startswith("---"):
        return "there is no front matter; put it between two lines of ---"
    if FRONT.match(text):
        return f"the front matter is longer than {LONGEST:,} characters; shorten it"
    return "the front matter has no end; put a line of --- below it"


def _fields(front: str) -> tuple[list[Field], list[tuple[int, str]]]:
    fields, flaws = list[Field](), list[tuple[int, str]]()
    for number, raw in enumerate(front.split("\n"), 2):
        line = raw.rstrip()
        if found := KEY.fullmatch(line):
            fields.append(Field(found[1], number, (found[2] or "").strip(), []))
        elif fields and (not line or line[0] in " \t" or ITEM.match(line)):
            fields[-1].more.append(line)
        elif line and not line.startswith("#"):
            flaws.append((number, "this line is no `key: value`; indent it, or mend it"))
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
            raise ValueError("is a list without its ]; close it")
        return tuple(_scalar(word) for word in split(text[1:-1]))
    return _scalar(text)


def _items(lines: list[str]) -> tuple[str, ...]:
    """A list with one item a line; lines without a dash go on with the item before."""
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
        raise ValueError("has a quote that does not end where the text ends; mend the quotes")
    if found[2] is not None:
        return found[2].replace("''", "'")
    try:
        from json import loads

        return loads(f'"{found[1]}"', strict=False)
    except ValueError:
        raise ValueError("has an escape that means nothing; write \\\\ for a backslash") from None
