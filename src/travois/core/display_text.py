"""Characters that can make text look different from what it is, and text for terminals."""

from __future__ import annotations

import re
import sys
from typing import TextIO

UNSEEN_PATTERN = (
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\ue000-\uf8ff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
"""Controls, joiners, marks of direction, odd blanks, halves of pairs, and what has no shape."""
PADDING = 100
"""A run of blanks that could push the rest of a line out of sight."""
EMPTY_LINES = 30
"""A run of empty lines that could do the same."""


def deceptive(text: str) -> str:
    """Return why a person could misread this text; empty if they cannot."""
    if not _is_plain(text) and (found := re.search(UNSEEN_PATTERN, text)):
        return f"it has an invisible character (U+{ord(found[0]):04X})"
    if _pads(text):
        return "it has a long run of blanks that could hide the rest"
    return ""


def _is_plain(text: str) -> bool:
    """Return whether a text has nothing but printable ASCII, blanks and lines: most do."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _pads(text: str) -> bool:
    blanks = text.replace("\t", " ")
    return " " * PADDING in blanks or "\n" * EMPTY_LINES in blanks.replace(" ", "")


def visible(text: str) -> str:
    """Return the text on one line, with an escape for each invisible character."""
    return "".join(c if _seen(c) else c.encode("unicode_escape").decode() for c in text)


def _seen(char: str) -> bool:
    return char.isprintable() and (char.isascii() or not re.match(UNSEEN_PATTERN, char))


def listed(names: str) -> frozenset[str]:
    """Split names at blanks into a set."""
    return frozenset(names.split())


# What may reach a terminal: words and lines, and nothing that it obeys or that cannot be seen.


REPLACED = "\N{REPLACEMENT CHARACTER}"
JOINERS = (0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
"""They only shape the letters and pictures around them, so they are left out."""
UNSEEN = (
    *range(0x80, 0xA0),  # the other controls
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5),
    *range(0x180B, 0x1810),
    *(0x200B, 0x200E, 0x200F),
    *range(0x2028, 0x202F),  # other ends of lines, and marks of direction
    *range(0x2060, 0x2070),
    *(0x3164, 0xFEFF, 0xFFA0),
    *range(0xFFF0, 0xFFFC),
    *range(0xE0000, 0xE0080),
)
INVISIBLE: dict[int, str] = dict.fromkeys(UNSEEN, REPLACED) | dict.fromkeys(JOINERS, "")
"""Invisible characters beyond ASCII, with their replacements."""
CONTROL: dict[int, str] = dict.fromkeys((*range(9), *range(11, 32), 127), REPLACED) | INVISIBLE
"""The same, with all control characters except tabs and line ends."""


def harmless(text: str) -> str:
    """Replace everything in foreign text that a terminal obeys or that is invisible."""
    return text.translate(CONTROL)


def seen(text: str) -> str:
    """Replace invisible characters in text that may contain our own colours."""
    return text if text.isascii() else text.translate(INVISIBLE)


def for_stream(text: str, stream: TextIO) -> str:
    """Return foreign text unchanged for a pipe or a file, and clean for a terminal."""
    return harmless(text) if stream.isatty() else text


def complain(text: str) -> None:
    """Write to standard error."""
    sys.stderr.write(for_stream(text, sys.stderr))
