"""The syntax tree of a command line, and whether it covers all of its text."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from travois.permissions.shell.parse import WORDS, Unclear

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

BLANK = re.compile(rb"[ \t]*")
CONTINUED = re.compile(rb"(?=.*[ \t])[ \t]*(?:\\\n[ \t]*)+", re.DOTALL)
"""Lines may be continued between two words, but not inside one."""
LINES = re.compile(rb"[ \t\n]*")
ASCII = bytes(byte if byte < 128 else ord("%") for byte in range(256))
"""The grammar's scanner looks characters up in tables that end at 255 and crashes beyond them.

To the shell all of them are plain parts of words, as the percent sign is.
"""
APART = WORDS | {"command_name", "variable_assignment"}


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse(source: bytes) -> Node:
    """The root of the tree; what is no valid text is in it too, marked as such."""
    return _parser().parse(source.translate(ASCII)).root_node


def tiled(node: Node, source: bytes, *, lines: bool = False) -> list[Node]:
    """The children of a node, which leave nothing between them unread."""
    children = node.children
    end = node.start_byte
    for child in children:
        gap = source[end : child.start_byte]
        if gap and not _empty(gap, lines=lines):
            raise Unclear(f"{gap.decode(errors='replace')!r} was not understood")
        end = child.end_byte
    rest = source[end : node.end_byte]
    if rest and not _empty(rest, lines=True):
        raise Unclear(f"{rest.decode(errors='replace')!r} was not understood")
    return children


def parted(node: Node, source: bytes) -> list[Node]:
    """The children of a node that is made of words, none of which touches the next."""
    children = tiled(node, source)
    check_parted(children)
    return children


def check_parted(nodes: list[Node]) -> None:
    """Raise if two of these that should be words of their own touch."""
    for one, other in pairwise(nodes):
        if one.end_byte == other.start_byte and one.type in APART and other.type in APART:
            raise Unclear("two words touch each other")


def _empty(gap: bytes, *, lines: bool) -> bool:
    blank = LINES if lines else BLANK
    return bool(blank.fullmatch(gap) or CONTINUED.fullmatch(gap))
