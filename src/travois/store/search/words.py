"""The words of a text as they are indexed and looked for."""

from __future__ import annotations

import re

VERSION = 1
"""Raised whenever `words` says something else of any text: indexes are then made again."""
WORD = re.compile(r"[^\W_]+")


def words(text: str) -> tuple[str, ...]:
    """Its words in order, without what is only grammar. None has a space or a quote in it."""
    return tuple(WORD.findall(text.lower()))
