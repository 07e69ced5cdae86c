"""Here-documents: text between two lines, handed over as it stands."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from travois.permissions.shell.parse import Unclear, raw

if TYPE_CHECKING:
    from tree_sitter import Node

OPERATOR = re.compile(r"<<[ \t]*(['\"]?)([A-Za-z0-9_.-]+)\1")
"""What seems to begin a here-document; whether it does, the parser says."""
PLACEHOLDER = "x\n"
MAX_SHORTENED = 50
MAX_TRIED = 2_000
DELIMITER = re.compile(r"(['\"]?)([A-Za-z0-9_.-]+)\1")
EXPANDED = re.compile(r"[$`\\]")


class Shortened(msgspec.Struct, frozen=True):
    """A text without the bodies of here-documents, and the operators that they belong to."""

    text: str
    operators: frozenset[int]
    """Where they begin, in bytes."""


def shortened(command: str) -> Shortened:
    """Leave out what seems to be the plain text of here-documents."""
    parts: list[str] = []
    operators: list[int] = []
    done = length = 0
    while (found := _operator(command, done)) and len(operators) < MAX_SHORTENED:
        line_end = command.find("\n", found.end()) + 1
        end = _closing(command, found[2], line_end) if line_end else -1
        if end < 0:
            break
        before, line = command[done : found.start()], command[found.start() : line_end]
        body = command[line_end:end]
        expands = not found[1] and EXPANDED.search(body)
        operators.append(length + _size(before))
        parts += (before, line, body if expands else PLACEHOLDER)
        length = sum(map(_size, parts[-3:]), length)
        done = end
    return Shortened("".join((*parts, command[done:])), frozenset(operators))


def _operator(command: str, at: int) -> re.Match[str] | None:
    """The next `<<` that is no part of `<<<` and names a delimiter, if it is found soon."""
    for _ in range(MAX_TRIED):
        at = command.find("<<", at)
        if at < 0:
            return None
        found = OPERATOR.match(command, at) if command[at - 1 : at] != "<" else None
        if found:
            return found
        at += 1
    return None


def _closing(command: str, delimiter: str, at: int) -> int:
    """Where the line begins that is nothing but the delimiter, from this line on; -1 if nowhere."""
    end = f"{delimiter}\n"
    if command.startswith(end, at) or command[at:] == delimiter:
        return at
    found = command.find(f"\n{end}", at - 1)
    if found >= 0:
        return found + 1
    return len(command) - len(delimiter) if command.endswith(f"\n{delimiter}") else -1


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def beside(node: Node, source: bytes) -> list[Node]:
    """What stands on the line of the operator after it; the document itself must be plain text."""
    children = node.children
    if children[0].type == "file_descriptor" and raw(children[0], source) == "0":
        children = children[1:]
    kinds = [child.type for child in children]
    if kinds[:2] != ["<<", "heredoc_start"] or kinds[-2:] != ["heredoc_body", "heredoc_end"]:
        raise Unclear("this kind of here-document is not followed")
    start = DELIMITER.fullmatch(raw(children[1], source))
    if start is None or start[2] != raw(children[-1], source):
        raise Unclear("the end of a here-document is not plain")
    between = children[2:-2]
    _check_lines([children[0], children[1], *between], source, body=children[-2], end=children[-1])
    text = raw(children[-2], source)
    if start[2] in text.split("\n") or (not start[1] and EXPANDED.search(text)):
        raise Unclear("a here-document is not plain text")
    if any(child.type not in ("pipeline", "file_redirect") for child in between):
        raise Unclear("something else follows a here-document on its line")
    return between


def _check_lines(head: list[Node], source: bytes, *, body: Node, end: Node) -> None:
    """The operator's line, the document, and its last line follow each other without a gap."""
    for one, next_ in pairwise(head):
        if source[one.end_byte : next_.start_byte].strip(b" \t"):
            raise Unclear("a here-document has something between its parts")
    gap = source[head[-1].end_byte : body.start_byte]
    after = source[end.end_byte : end.end_byte + 1]
    if gap.strip(b" \t") != b"\n" or body.end_byte != end.start_byte or after not in (b"", b"\n"):
        raise Unclear("a here-document does not stand on lines of its own")
