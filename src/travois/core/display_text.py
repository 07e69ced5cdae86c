"""Characters that make a text look like something else than it is."""

from __future__ import annotations

import re

UNSEEN = (
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\ue000-\uf8ff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
"""Controls, joiners, marks of direction, odd blanks, halves of pairs, and what has no shape."""
PADDING, EMPTY_LINES = 100, 30
"""As many blanks, or lines with nothing on them, could push the rest out of sight."""


def deceptive(text: str) -> str:
    """Why a person could not see what this text says; empty if they can."""
    if not _is_plain(text) and (found := re.search(UNSEEN, text)):
        return f"it has a character that cannot be seen (U+{ord(found[0]):04X})"
    if _pads(text):
        return "it has a long run of blanks that could hide the rest"
    return ""


def _is_plain(text: str) -> bool:
    """Whether a text has nothing but printable ASCII, blanks and lines: most do."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _pads(text: str) -> bool:
    blanks = text.replace("\t", " ")
    return " " * PADDING in blanks or "\n" * EMPTY_LINES in blanks.replace(" ", "")


def visible(text: str) -> str:
    """The text on one line, with an escape for everything that a person could not see."""
    return "".join(c if _seen(c) else c.encode("unicode_escape").decode() for c in text)


def _seen(char: str) -> bool:
    return char.isprintable() and (char.isascii() or not re.match(UNSEEN, char))


def listed(names: str) -> frozenset[str]:
    """A set out of names parted by blanks."""
    return frozenset(names.split())
