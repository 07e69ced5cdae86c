"""What may reach a terminal: words and lines, and nothing that it obeys or that cannot be seen."""

from __future__ import annotations

import sys
from typing import TextIO

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
"""What is beyond ASCII and cannot be seen, and what is shown for it."""
CONTROL: dict[int, str] = dict.fromkeys((*range(9), *range(11, 32), 127), REPLACED) | INVISIBLE
"""That, and all that a terminal obeys but tabs and ends of lines."""


def harmless(text: str) -> str:
    """Somebody's words with nothing in them that a terminal obeys or that cannot be seen."""
    return text.translate(CONTROL)


def seen(text: str) -> str:
    """A text that may have our own colours, without what cannot be seen."""
    return text if text.isascii() else text.translate(INVISIBLE)


def for_stream(text: str, stream: TextIO) -> str:
    """Somebody's words as they are for a pipe or a file, and harmless for a terminal."""
    return harmless(text) if stream.isatty() else text


def complain(text: str) -> None:
    """Write to standard error."""
    sys.stderr.write(for_stream(text, sys.stderr))
