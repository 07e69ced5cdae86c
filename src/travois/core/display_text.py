"""Display text: characters that disguise what a text says, and text safe for terminals."""

from __future__ import annotations

import re
import sys
from typing import TextIO

INVISIBLE_PATTERN = (
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\ue000-\uf8ff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
"""Controls, joiners, marks of direction, odd blanks, halves of pairs, and what has no shape."""
HIDING_BLANKS = 100
"""A run of blanks that could push the rest of a line out of sight."""
HIDING_LINES = 30
"""A run of empty lines that could do the same."""


def find_deception(text: str) -> str:
    """Return why a person could misread this text; empty if nobody could."""
    if not _is_plain_ascii(text) and (found := re.search(INVISIBLE_PATTERN, text)):
        return f"it has an invisible character (U+{ord(found[0]):04X})"
    if _has_long_padding(text):
        return "it has a long run of blanks that could hide the rest"
    return ""


def _is_plain_ascii(text: str) -> bool:
    """Return whether a text is only printable ASCII and white space, safe to display."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _has_long_padding(text: str) -> bool:
    blanks = text.replace("\t", " ")
    return " " * HIDING_BLANKS in blanks or "\n" * HIDING_LINES in blanks.replace(" ", "")


def escape_invisible(text: str) -> str:
    """Return a text on one line for display, with invisible characters escaped."""
    return "".join(c if _is_visible(c) else c.encode("unicode_escape").decode() for c in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() and (char.isascii() or not re.match(INVISIBLE_PATTERN, char))


def split_names(names: str) -> frozenset[str]:
    """Split names at blanks into a set."""
    return frozenset(names.split())


# What may reach a terminal: words and lines, and nothing that it obeys or that cannot be seen.


REPLACEMENT_CHAR = "\N{REPLACEMENT CHARACTER}"
JOINER_CODES = (0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
"""They only shape the letters and pictures around them, so they are left out."""
INVISIBLE_CODES = (
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
INVISIBLE_TABLE: dict[int, str] = dict.fromkeys(INVISIBLE_CODES, REPLACEMENT_CHAR) | dict.fromkeys(
    JOINER_CODES, ""
)
"""Invisible characters beyond ASCII, with their replacements."""
CONTROL_TABLE: dict[int, str] = (
    dict.fromkeys((*range(9), *range(11, 32), 127), REPLACEMENT_CHAR) | INVISIBLE_TABLE
)
"""The same, with all control characters except tabs and line ends."""


def clean_for_terminal(text: str) -> str:
    """Replace control sequences and invisible characters in untrusted text for a terminal."""
    return text.translate(CONTROL_TABLE)


def replace_invisible(text: str) -> str:
    """Replace invisible characters in display text that may contain our own colours."""
    return text if text.isascii() else text.translate(INVISIBLE_TABLE)


def clean_for_stream(text: str, stream: TextIO) -> str:
    """Return untrusted text as it is for a pipe or file, and cleaned for a terminal."""
    return clean_for_terminal(text) if stream.isatty() else text


def write_stderr(text: str) -> None:
    """Write display text to standard error."""
    sys.stderr.write(clean_for_stream(text, sys.stderr))


def escape_path(path: str) -> str:
    """Escape characters of a displayed path that are invisible or could trick a terminal."""
    if path.isprintable():
        return path
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)
