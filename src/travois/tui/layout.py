"""Text layout for the terminal: harmless text, measured in cells, cut and folded to a width."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from travois.core.display_text import clean_for_terminal
from travois.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

with lazy_imports():
    from prompt_toolkit import formatted_text, utils

COLOUR_PATTERN = re.compile(r"(\x1b\[[0-9;]*m)")
STYLE_PATTERN = re.compile(r"(\x1b\[[0-9;]*m|\x1b\[K|\x1b\]8;[^\x1b]*\x1b\\)")
"""The only escape sequences that we print with text: colours, fillings and links."""

FIRST_COLUMN_PATTERN = re.compile(r"\s*(?:\S ?)+\s+(?<=\s{2})(?=\S)")
LEADING_BLANKS_PATTERN = re.compile(r"\s*")


def clean_display_text(text: str) -> str:
    """Remove everything from a text that a terminal would act on."""
    plain = clean_for_terminal(text.replace("\r\n", "\n")).expandtabs(4)
    return plain.encode("utf-8", "replace").decode()


def display_width(text: str) -> int:
    """Return the width of a text in cells, without its colours."""
    plain = STYLE_PATTERN.sub("", text) if "\x1b" in text else text
    return len(plain) if plain.isascii() else utils.get_cwidth(plain)


def cut_line(text: str, room: int) -> str:
    """Cut a text without colours to one line, marking the cut."""
    line = " ".join(text.split("\n"))
    if display_width(line) <= room:
        return line
    kept = fold_lines(line, max(1, room - 1))[0]
    return f"{kept}…"


def fold_lines(text: str, room: int) -> list[str]:
    """Break lines at this width; colours continue on the next line."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if display_width(line) <= room else _fold_line(line, room)
    return lines


def wrap_words(text: str, room: int) -> list[str]:
    """Wrap prose without colours between words where possible."""
    lines: list[str] = []
    for word in text.split(" "):
        last = f"{lines[-1]} {word}".rpartition("\n")[2] if lines else ""
        if lines and (display_width(last) <= room or display_width(word) > room):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [part for line in lines for part in fold_lines(line, room)]


def wrap_hanging(line: str, room: int) -> list[str]:
    """Wrap a line between words; what follows stands below its text, or its second column."""
    if display_width(line) <= room:
        return [line]
    lead = FIRST_COLUMN_PATTERN.match(line)
    if lead is None or len(lead[0]) > room // 2:
        lead = LEADING_BLANKS_PATTERN.match(line)
    margin = len(lead[0]) if lead else 0
    first, *more = wrap_words(line[margin:], room - margin)
    return [line[:margin] + first, *(" " * margin + part for part in more)]


def _fold_line(line: str, room: int) -> list[str]:
    """Break one line, reopening its colours on each part."""
    lines, kept, used, colour = list[str](), "", 0, ""
    for part in STYLE_PATTERN.split(line):
        if part.startswith("\x1b"):
            kept, colour = kept + part, "" if part == "\x1b[0m" else colour + part
            continue
        for char in part:
            size = display_width(char)
            if used + size > room:
                lines.append(kept + ("\x1b[0m" if colour else ""))
                kept, used = colour, 0
            kept, used = kept + char, used + size
    return [*lines, kept]


@lru_cache(maxsize=2048)
def parse_ansi_line(line: str) -> StyleAndTextTuples:
    """Parse a line with colours into prompt_toolkit fragments."""
    return formatted_text.to_formatted_text(formatted_text.ANSI(line))
