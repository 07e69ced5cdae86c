"""Themes and text layout for the terminal, and Markdown that is rendered while it streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import StringIO
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.syntax import Syntax
from rich.theme import Theme as Styles

from travois.core.display_text import clean_for_terminal
from travois.core.errors import UserError

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples


# Text layout: harmless text, measured in cells, cut and folded to a width.


OURS = re.compile(r"(\x1b\[[0-9;]*m)")
"""The only escape sequences that we print with text: colours."""


def clean(text: str) -> str:
    """Remove everything from a text that a terminal would act on."""
    plain = clean_for_terminal(text.replace("\r\n", "\n")).expandtabs(4)
    return plain.encode("utf-8", "replace").decode()


def width(text: str) -> int:
    """Return the width of a text in cells, without its colours."""
    from prompt_toolkit.utils import get_cwidth

    plain = OURS.sub("", text)
    return len(plain) if plain.isascii() else get_cwidth(plain)


def cut(text: str, room: int) -> str:
    """Cut a text without colours to one line, marking the cut."""
    line = " ".join(text.split("\n"))
    if width(line) <= room:
        return line
    kept = folded(line, max(1, room - 1))[0]
    return f"{kept}…"


def folded(text: str, room: int) -> list[str]:
    """Break lines at this width; colours continue on the next line."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if width(line) <= room else _fold(line, room)
    return lines


def worded(text: str, room: int) -> list[str]:
    """Wrap prose without colours between words where possible."""
    lines: list[str] = []
    for word in text.split(" "):
        last = f"{lines[-1]} {word}".rpartition("\n")[2] if lines else ""
        if lines and (width(last) <= room or width(word) > room):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [part for line in lines for part in folded(line, room)]


def _fold(line: str, room: int) -> list[str]:
    """Break one line, reopening its colours on each part."""
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
    """Parse a line with colours into prompt_toolkit fragments."""
    from prompt_toolkit.formatted_text import ANSI, to_formatted_text

    return to_formatted_text(ANSI(line))


# Themes use only the terminal's own colours, so that its colour scheme applies.


Name = Literal["auto", "dark", "light", "none"]
Role = Literal["accent", "good", "bad", "warn", "quiet", "strong"]
NAMES: tuple[Name, ...] = ("auto", "dark", "light", "none")
RESET = "\x1b[0m"
PLAIN: dict[Role, str] = {"quiet": "2", "strong": "1"}
DARK: dict[Role, str] = {"accent": "36", "good": "32", "bad": "31", "warn": "33", **PLAIN}
LIGHT: dict[Role, str] = {"accent": "34", "good": "32", "bad": "31", "warn": "35", **PLAIN}


class Theme(msgspec.Struct, frozen=True):
    """The colours of text roles and of code."""

    name: Literal["dark", "light", "none"]
    roles: dict[Role, str]

    def mark(self, text: str, role: Role) -> str:
        """Return the text in the colour of a role."""
        code = self.roles.get(role, "")
        return f"\x1b[{code}m{text}{RESET}" if code and text else text

    @property
    def code(self) -> str:
        """The name of the highlighter's theme for code."""
        return f"ansi_{'light' if self.name == 'light' else 'dark'}"


def named(word: str) -> Name:
    """Return the theme name that was typed."""
    for name in NAMES:
        if name == word:
            return name
    raise UserError(f"Unknown theme {word!r}", fix=f"Choose one of: {', '.join(NAMES)}.")


def theme(name: Name, environ: Mapping[str, str]) -> Theme:
    """Return the theme of this name; `NO_COLOR` and `COLORFGBG` decide what "auto" means."""
    if name == "none" or (name == "auto" and environ.get("NO_COLOR")):
        return Theme("none", PLAIN)
    bright = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    if name == "light" or (name == "auto" and bright):
        return Theme("light", LIGHT)
    return Theme("dark", DARK)


INDENT = 2
WIDEST = 100
"""Longer lines of prose are hard to read."""
STYLES = {
    **{f"markdown.h{level}": "bold" for level in range(1, 7)},
    **dict.fromkeys(("markdown.item.bullet", "markdown.item.number", "markdown.hr"), "dim"),
    **dict.fromkeys(("markdown.block_quote", "markdown.link_url"), "dim"),
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.link": "underline",
}
GROUND = re.compile(r"\x1b\[49m|;49(?=m)")
BLANK_END = re.compile(r"(?:\s|\x1b\[[0-9;]*m)+$")


class Stream:
    """The text of one reply as lines: finished ones, and those that may still change."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._text = ""
        self._told = 0
        """Lines of the open block that were already returned as finished."""
        self._columns: int = 0
        """The width at that time."""
        self._first = True

    def feed(self, text: str) -> None:
        """Add text."""
        self._text += text

    def lines(self, columns: int, *, most: int) -> tuple[list[str], list[str]]:
        """Return newly finished lines, and at most `most` lines that may still change."""
        done: list[str] = []
        self._fit(columns)
        start = self._open()
        if start:
            done = self._shown(self._text[:start], columns)[self._told :]
            self._text, self._told, self._first = self._text[start:], 0, False
        rest = self._shown(self._text, columns)[self._told :]
        surplus = max(0, len(rest) - most)
        self._told += surplus
        return [*done, *rest[:surplus]], rest[surplus:]

    def end(self, columns: int) -> list[str]:
        """Return all remaining lines."""
        self._fit(columns)
        rest = self._shown(self._text, columns)[self._told :]
        self._text, self._told = "", 0
        return rest

    def _fit(self, columns: int) -> None:
        """Recount the finished lines by their letters after the width has changed."""
        if self._told and columns != self._columns:
            before = sum(map(_letters, self._shown(self._text, self._columns)[: self._told]))
            after = accumulate(map(_letters, self._shown(self._text, columns)))
            self._told = sum(letters <= before for letters in after)
        self._columns = columns

    def _open(self) -> int:
        """Return where the last block begins, which may still change."""
        if "\n" not in self._text:
            return 0
        # A later line can still change the last block (a setext heading, a list that goes on), but
        # no block before it.
        tokens = _parsed(self._text)
        starts = [token.map[0] for token in tokens if token.level == 0 and token.map]
        last = max(starts, default=0)
        return sum(len(line) for line in self._text.splitlines(keepends=True)[:last])

    def _shown(self, text: str, columns: int) -> list[str]:
        """Render blocks, with an empty line before each but the first."""
        lines = rendered(text, self._theme, columns)
        return lines if self._first or not lines else ["", *lines]


def _letters(line: str) -> int:
    return len("".join(OURS.sub("", line).split()))


class Title(markdown.Heading):
    """A heading aligned with the text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class Code(markdown.CodeBlock):
    """A code block without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            background_color="default",
            word_wrap=True,
            padding=(0, 2),
        )


class Page(markdown.Markdown):
    """Markdown rendered left-aligned, without terminal hyperlinks."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": Title,
        "fence": Code,
        "code_block": Code,
    }


def _parsed(text: str) -> list[Token]:
    """Parse Markdown, treating HTML as plain text."""
    plain = MarkdownIt("commonmark", {"html": False})
    return plain.enable(["strikethrough", "table"]).parse(text)


def rendered(text: str, theme: Theme, columns: int) -> list[str]:
    """Render Markdown as lines with colours."""
    room = max(10, min(columns - INDENT - 1, WIDEST))
    out = StringIO()
    page = Page("", code_theme=theme.code, hyperlinks=False)
    page.parsed = _parsed(clean(text))
    _console(out, theme, room).print(page)
    lines = list(_tidy(out.getvalue().split("\n")))
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return [" " * INDENT + line if line else "" for line in folded("\n".join(lines), room)]


def _tidy(lines: list[str]) -> Iterator[str]:
    """Strip trailing blanks, which would be copied along with the text."""
    for line in lines:
        kept = BLANK_END.sub("", GROUND.sub("", line))
        yield kept + RESET if OURS.search(kept) else kept


def _console(out: StringIO, theme: Theme, columns: int) -> Console:
    code = "none" if theme.name == "none" else "cyan" if theme.name == "dark" else "blue"
    return Console(
        file=out,
        force_terminal=True,
        color_system="standard",
        no_color=theme.name == "none",
        width=columns,
        theme=Styles({**STYLES, "markdown.code": code}),
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
