"""Markdown that is still being written: whole blocks are finished, the last one stays open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from itertools import accumulate
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.syntax import Syntax
from rich.theme import Theme as Styles

from travois.tui.cells import OURS, clean, folded
from travois.tui.themes import RESET, Theme

INDENT = 2
WIDEST = 100
"""Prose is easier to read in lines that are no longer than this."""
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
    """The text of one reply, as lines: those that are finished, and those that may change."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._text = ""
        self._told = 0
        """How many lines of the block that is open are finished already."""
        self._columns: int = 0
        """How wide the screen was then."""
        self._first = True

    def feed(self, text: str) -> None:
        """Take more of it."""
        self._text += text

    def lines(self, columns: int, *, most: int) -> tuple[list[str], list[str]]:
        """Lines that are finished from here on, and at most so many that are not."""
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
        """All lines that are not finished yet."""
        self._fit(columns)
        rest = self._shown(self._text, columns)[self._told :]
        self._text, self._told = "", 0
        return rest

    def _fit(self, columns: int) -> None:
        """Know by their letters which lines are finished, if they were so at another width."""
        if self._told and columns != self._columns:
            before = sum(map(_letters, self._shown(self._text, self._columns)[: self._told]))
            after = accumulate(map(_letters, self._shown(self._text, columns)))
            self._told = sum(letters <= before for letters in after)
        self._columns = columns

    def _open(self) -> int:
        """Where the block begins that may still change; all before it is whole."""
        if "\n" not in self._text:
            return 0
        tokens = _parsed(self._text)
        starts = [token.map[0] for token in tokens if token.level == 0 and token.map]
        last = max(starts, default=0)
        return sum(len(line) for line in self._text.splitlines(keepends=True)[:last])

    def _shown(self, text: str, columns: int) -> list[str]:
        """Blocks as lines, with an empty one before each but the very first."""
        lines = rendered(text, self._theme, columns)
        return lines if self._first or not lines else ["", *lines]


def _letters(line: str) -> int:
    return len("".join(OURS.sub("", line).split()))


class Title(markdown.Heading):
    """A heading that stands where the text stands."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class Code(markdown.CodeBlock):
    """Code without a box around it."""

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
    """Markdown in our manner: calm, at the left, without links that a terminal would open."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": Title,
        "fence": Code,
        "code_block": Code,
    }


def _parsed(text: str) -> list[Token]:
    """Markdown in which HTML is text like any other, for people to read."""
    plain = MarkdownIt("commonmark", {"html": False})
    return plain.enable(["strikethrough", "table"]).parse(text)


def rendered(text: str, theme: Theme, columns: int) -> list[str]:
    """Markdown as lines with colours."""
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
    """Without blanks at the ends, which would be copied along with the words."""
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
