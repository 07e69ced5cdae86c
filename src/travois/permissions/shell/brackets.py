"""Tests between brackets: their words, and which of them evaluate what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from travois.core.display_text import listed
from travois.permissions.shell import tree
from travois.permissions.shell.parse import WORDS, Reading, Unclear, raw, read
from travois.permissions.shell.plan import Word

if TYPE_CHECKING:
    from tree_sitter import Node

NUMBERED = listed("-eq -ne -lt -le -gt -ge -v -R")
"""What evaluates its operands when it stands between double brackets."""


def words(node: Node, at: Reading) -> Iterator[Word]:
    """The words and operators of a test."""
    for child in tree.tiled(node, at.source, lines=node.type != "test_command"):
        if child.type in WORDS:
            yield from read(child, at)
        elif child.type in ("regex", "test_operator") or not child.children:
            yield Word(raw(child, at.source))
        else:
            yield from words(child, at)


def check(found: tuple[Word, ...]) -> None:
    """Raise if a test between double brackets would evaluate text."""
    if any(word.text in NUMBERED for word in found):
        raise Unclear("it evaluates text as numbers")
