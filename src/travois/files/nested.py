"""Front matter that is nested: the tables and lists of YAML that people write below one key.

Model sees: nothing of it as it is.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

from travois.files.front_matter import BLOCK, COMMENT, FRONT, ITEM, QUOTED, split

KEY = re.compile(r"(\"[^\"]*\"|'[^']*'|[^\s\"'#\[\]{},][^:]*?)[ \t]*:(?:[ \t]+(.*))?")
BARE = re.compile(r"true|false|null|-?\d+(\.\d+)?")
DEEPEST = 40


class Lines:
    """What is still to be read."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.rest = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    @property
    def depth(self) -> int:
        """How far the next line is indented; -1 at the end."""
        return len(self.rest[0]) - len(self.rest[0].lstrip()) if self.rest else -1

    def take(self) -> str:
        """The next line, without its indentation."""
        return self.rest.pop(0).strip()


def nested(text: str, key: str) -> object:
    """What a file says below a key of its front matter; None if that is nothing, or flawed."""
    found = FRONT.match(text)
    part = re.search(
        rf"(?m)^{re.escape(key)}[ \t]*:(.*(?:\n(?:[ \t-].*)?)*)", found[1] if found else ""
    )
    if part is None:
        return None
    head, _, more = part[1].expandtabs().partition("\n")
    try:
        return _scalar(head.strip()) if head.strip() else _node(Lines(more.split("\n")))
    except (ValueError, IndexError, RecursionError):
        return None


def _node(lines: Lines) -> object:
    """The table, list or text that begins at the next line."""
    depth = lines.depth
    if depth > DEEPEST:
        raise ValueError("too deep")
    if ITEM.match(lines.rest[0].lstrip()):
        return _list(lines, depth)
    if KEY.fullmatch(lines.rest[0].strip()):
        return _table(lines, depth)
    return _scalar(" ".join(_deeper(lines, depth - 1)))


def _list(lines: Lines, depth: int) -> list[object]:
    items: list[object] = []
    while lines.depth == depth and (found := ITEM.match(lines.rest[0].lstrip())):
        line = lines.take()[found.end() :].strip()
        if not line:
            items.append(_node(lines) if lines.depth > depth else None)
        elif line[0] not in "[{\"'" and KEY.fullmatch(line):
            lines.rest.insert(0, " " * (depth + found.end()) + line)
            items.append(_node(lines))
        else:
            items.append(_scalar(" ".join((line, *_deeper(lines, depth)))))
    return items


def _table(lines: Lines, depth: int) -> dict[str, object]:
    table: dict[str, object] = {}
    while lines.depth == depth and (found := KEY.fullmatch(lines.rest[0].strip())):
        lines.take()
        table[str(_scalar(found[1]))] = _value((found[2] or "").strip(), lines, depth)
    if lines.depth > depth:
        raise ValueError("a line that belongs to nothing")
    return table


def _value(head: str, lines: Lines, depth: int) -> object:
    if style := BLOCK.fullmatch(head):
        block = [*_block(lines, depth)]
        return dedent("\n".join(block)) if style[1] == "|" else " ".join(map(str.strip, block))
    if head:
        return _scalar(" ".join((head, *_deeper(lines, depth))))
    beside = lines.depth == depth and bool(ITEM.match(lines.rest[0].lstrip()))
    return _node(lines) if beside or lines.depth > depth else None


def _deeper(lines: Lines, depth: int) -> list[str]:
    return [line.strip() for line in _block(lines, depth)]


def _block(lines: Lines, depth: int) -> list[str]:
    """All lines that are indented further."""
    taken: list[str] = []
    while lines.depth > depth:
        taken.append(lines.rest.pop(0))
    return taken


def _scalar(text: str) -> object:
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
        return [_scalar(part) for part in split(bare[1:-1])]
    if bare[:1] == "{" and bare.endswith("}"):
        pairs = (KEY.fullmatch(part) for part in split(bare[1:-1]))
        return {str(_scalar(pair[1])): _scalar((pair[2] or "").strip()) for pair in pairs if pair}
    return loads(bare) if BARE.fullmatch(bare) else bare
