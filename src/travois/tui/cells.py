"""Text as a terminal shows it: only words, measured in cells, cut and folded to a width."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from travois.core.display_text import harmless

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

OURS = re.compile(r"(\x1b\[[0-9;]*m)")
"""The only codes that we ever send along with words: those for colours."""


def clean(text: str) -> str:
    """Somebody's words, with nothing in them that a terminal would obey."""
    plain = harmless(text.replace("\r\n", "\n")).expandtabs(4)
    return plain.encode("utf-8", "replace").decode()


def width(text: str) -> int:
    """How many cells a text takes, without its colours."""
    from prompt_toolkit.utils import get_cwidth

    plain = OURS.sub("", text)
    return len(plain) if plain.isascii() else get_cwidth(plain)


def cut(text: str, room: int) -> str:
    """A text without colours on one line, with a mark where it had to end."""
    line = " ".join(text.split("\n"))
    if width(line) <= room:
        return line
    kept = folded(line, max(1, room - 1))[0]
    return f"{kept}…"


def folded(text: str, room: int) -> list[str]:
    """Lines that are no wider than this; colours go on from line to line."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if width(line) <= room else _fold(line, room)
    return lines


def worded(text: str, room: int) -> list[str]:
    """The same for prose without colours: lines end between words, if a word has room in one."""
    lines: list[str] = []
    for word in text.split(" "):
        last = f"{lines[-1]} {word}".rpartition("\n")[2] if lines else ""
        if lines and (width(last) <= room or width(word) > room):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [part for line in lines for part in folded(line, room)]


def _fold(line: str, room: int) -> list[str]:
    lines, kept, used, colour = list[str](), "", 0, ""
    for part in OURS.split(line):
        if part.startswith("\x1b"):
            kept, colour = kept + part, "" if part == "\x1b[0m" else colour + part
            continue
        for char in part:
            size = width(char)
            if used + size > room:
                lines.append(kept + ("\x1b[0m" if colour else ""))
                kept, used = colour, 0
            kept, used = kept + char, used + size
    return [*lines, kept]


@lru_cache(maxsize=2048)
def fragments(line: str) -> StyleAndTextTuples:
    """A line with colours, as the live region wants it."""
    from prompt_toolkit.formatted_text import ANSI, to_formatted_text

    return to_formatted_text(ANSI(line))
