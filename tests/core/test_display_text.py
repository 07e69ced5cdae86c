"""Nothing reaches a terminal that it obeys or that cannot be seen, on whatever way it comes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import unicodedata
from io import StringIO

import pytest

from travois import terminal as plain
from travois.core.display_text import clean_for_stream, clean_for_terminal, replace_invisible
from travois.tui import markdown

CLASSES = {
    "controls": [*range(9), *range(11, 32), 127],
    "other controls": [*range(0x80, 0xA0)],
    "zero width": [0x200B, 0x2060, 0xFEFF, 0x180E, 0x34F, 0xAD],
    "joiners": [0x200C, 0x200D, 0xFE0F, 0xE0100],
    "directions": [0x200E, 0x200F, 0x61C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "lines": [0x2028, 0x2029],
    "tags": [0xE0001, 0xE0041, 0xE007F],
    "fillers": [0x115F, 0x1160, 0x3164, 0xFFA0],
    "annotations": [0xFFF9, 0xFFFA, 0xFFFB],
}
WAYS = {
    "words of others": clean_for_terminal,
    "cells of the screen": markdown.clean_display_text,
    "lists": plain.escape_controls,
}


class Screen(StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CLASSES)
def test_no_way_lets_any_of_them_through(way: str, kind: str) -> None:
    for code in CLASSES[kind]:
        assert chr(code) not in WAYS[way](f"a{chr(code)}b"), hex(code)


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind != "controls"])
def test_what_is_printed_with_our_own_colours_has_none_of_them(kind: str) -> None:
    for code in CLASSES[kind]:
        assert replace_invisible(f"\x1b[1ma{chr(code)}b\x1b[0m").startswith("\x1b[1ma")
        assert chr(code) not in replace_invisible(f"a{chr(code)}b")


def test_every_format_character_is_covered() -> None:
    formats = [c for c in map(chr, range(sys.maxunicode)) if unicodedata.category(c) == "Cf"]
    words = {
        c for c in formats if "ARABIC" in unicodedata.name(c, "") or ord(c) in range(0x600, 0x900)
    }
    signs = {c for c in formats if 0x11000 <= ord(c) <= 0x1FFFF}
    assert [
        hex(ord(c)) for c in formats if c in clean_for_terminal(c) and c not in words | signs
    ] == []


def test_words_in_any_script_and_pictures_stay() -> None:
    text = "naïve Ελλάδα עברית العربية हिन्दी 日本語 한국어 é 😀 ─┼ \ue0b0\tand\nlines"
    assert clean_for_terminal(text) == text


def test_pipes_and_files_get_every_byte() -> None:
    text = "a\u200bb\x1b[31m\ufeff"
    assert clean_for_stream(text, StringIO()) == text
    assert clean_for_stream(text, Screen()) == "a\ufffdb\ufffd[31m\ufffd"


CODE = """
import sys
from travois.terminal import print_line, print_warning
from travois.core.display_text import write_stderr
text = "x" + "".join(map(chr, map(int, sys.argv[1:]))) + "y"
print_line(text); print_warning(text); write_stderr(text + "\\n")
"""


def printed_on_a_terminal(codes: list[int]) -> bytes:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-c", CODE, *map(str, codes)]
    child = subprocess.Popen(argv, stdout=theirs, stderr=theirs)
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 1 << 16):
            found += part
    except OSError:
        pass
    os.close(ours)
    assert child.wait() == 0
    return found


def test_a_real_terminal_sees_none_and_a_pipe_all() -> None:
    codes = [code for kind in CLASSES if kind != "controls" for code in CLASSES[kind]]
    shown = printed_on_a_terminal(codes).decode()
    assert shown.count("x") == 3
    assert [hex(code) for code in codes if chr(code) in shown] == []
    piped = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, codes)], capture_output=True, check=True
    )
    assert all(chr(code) in piped.stdout.decode() for code in codes)
