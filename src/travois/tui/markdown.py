"""Markdown as lines for the terminal, rendered while it streams."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from io import StringIO
from itertools import accumulate
from typing import ClassVar, Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from rich.table import Table
from rich.theme import Theme as Styles

from travois.diff_rows import SYNTAX_ROLE_NAMES, find_syntax_role
from travois.tui.layout import COLOUR_PATTERN, clean_display_text, fold_lines
from travois.tui.theme import RESET_CODE, Theme

MARKDOWN_INDENT = 2
MAX_PROSE_COLUMNS = 100
"""Longer lines of prose are hard to read."""
MARKDOWN_STYLES = {
    **{f"markdown.h{level}": "bold" for level in range(1, 7)},
    "markdown.table.header": "bold",
    "markdown.link": "underline",
}
QUIET_STYLES = (
    *("markdown.item.bullet", "markdown.item.number", "markdown.hr"),
    *("markdown.block_quote", "markdown.link_url", "markdown.table.border"),
)
COLOUR_SYSTEMS: dict[int, Literal["standard", "256", "truecolor"]] = {
    0: "standard",
    4: "standard",
    8: "256",
    24: "truecolor",
}
BACKGROUND_PATTERN = re.compile(r"\x1b\[49m|;49(?=m)")
TRAILING_BLANKS_PATTERN = re.compile(r"(?:\s|\x1b\[[0-9;]*m)+$")


class MarkdownStream:
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

    def take_lines(self, columns: int, *, most: int) -> tuple[list[str], list[str]]:
        """Return newly finished lines, and at most `most` lines that may still change."""
        done: list[str] = []
        self._refit(columns)
        start = self._open_block_start()
        if start:
            done = self._render_part(self._text[:start], columns)[self._told :]
            self._text, self._told, self._first = self._text[start:], 0, False
        rest = self._render_part(self._text, columns)[self._told :]
        surplus = max(0, len(rest) - most)
        self._told += surplus
        return [*done, *rest[:surplus]], rest[surplus:]

    def finish(self, columns: int) -> list[str]:
        """Return all remaining lines."""
        self._refit(columns)
        rest = self._render_part(self._text, columns)[self._told :]
        self._text, self._told = "", 0
        return rest

    def _refit(self, columns: int) -> None:
        """Recount the finished lines by their letters after the width has changed."""
        if self._told and columns != self._columns:
            before = sum(
                map(_count_letters, self._render_part(self._text, self._columns)[: self._told])
            )
            after = accumulate(map(_count_letters, self._render_part(self._text, columns)))
            self._told = sum(letters <= before for letters in after)
        self._columns = columns

    def _open_block_start(self) -> int:
        """Return where the last block begins, which may still change."""
        if "\n" not in self._text:
            return 0
        # A later line can still change the last block (a setext heading, a list that goes on), but
        # no block before it.
        tokens = _parse_markdown(self._text)
        starts = [token.map[0] for token in tokens if token.level == 0 and token.map]
        last = max(starts, default=0)
        return sum(len(line) for line in self._text.splitlines(keepends=True)[:last])

    def _render_part(self, text: str, columns: int) -> list[str]:
        """Render blocks, with an empty line before each but the first."""
        lines = render_markdown(text, self._theme, columns)
        return lines if self._first or not lines else ["", *lines]


def _count_letters(line: str) -> int:
    return len("".join(COLOUR_PATTERN.sub("", line).split()))


class LeftHeading(markdown.Heading):
    """A heading aligned with the text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class PlainCodeBlock(markdown.CodeBlock):
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


class OpenTable(markdown.TableElement):
    """A table without blank lines above and below it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            table.show_edge = False
            yield table


class TerminalMarkdown(markdown.Markdown):
    """Markdown rendered left-aligned, without terminal hyperlinks."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": LeftHeading,
        "fence": PlainCodeBlock,
        "code_block": PlainCodeBlock,
        "table_open": OpenTable,
    }


def _parse_markdown(text: str) -> list[Token]:
    """Parse Markdown, treating HTML as plain text."""
    plain = MarkdownIt("commonmark", {"html": False})
    return plain.enable(["strikethrough", "table"]).parse(text)


def render_markdown(text: str, theme: Theme, columns: int) -> list[str]:
    """Render Markdown as lines with colours."""
    room = max(10, min(columns - MARKDOWN_INDENT - 1, MAX_PROSE_COLUMNS))
    out = StringIO()
    page = TerminalMarkdown("", hyperlinks=False)
    page.code_theme = CodeColours(theme)  # pyright: ignore[reportAttributeAccessIssue] - Syntax takes both
    page.parsed = _parse_markdown(clean_display_text(text))
    _create_console(out, theme, room).print(page)
    lines = list(_strip_line_ends(out.getvalue().split("\n")))
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return [
        " " * MARKDOWN_INDENT + line if line else "" for line in fold_lines("\n".join(lines), room)
    ]


def _strip_line_ends(lines: list[str]) -> Iterator[str]:
    """Strip trailing blanks, which would be copied along with the text."""
    for line in lines:
        kept = TRAILING_BLANKS_PATTERN.sub("", BACKGROUND_PATTERN.sub("", line))
        yield kept + RESET_CODE if COLOUR_PATTERN.search(kept) else kept


class CodeColours(SyntaxTheme):
    """The colours of code in a text, for rich."""

    def __init__(self, theme: Theme) -> None:
        self._styles = {
            role: to_rich_style(theme.codes.get(role, "")) for role in SYNTAX_ROLE_NAMES
        }

    def get_style_for_token(self, token_type: object) -> Style:
        """Return the style of a Pygments token."""
        return self._styles[find_syntax_role(str(token_type))]

    def get_background_style(self) -> Style:
        """Return no background: code stands on the terminal's own."""
        return Style.null()


@lru_cache(maxsize=64)
def to_rich_style(code: str) -> Style:
    """Convert a theme's terminal code to a style for rendering Markdown."""
    match code.split(";"):
        case ["38", "2", red, green, blue]:
            return Style(color=Color.from_rgb(int(red), int(green), int(blue)))
        case ["38", "5", number]:
            return Style(color=Color.from_ansi(int(number)))
        case ["2"]:
            return Style(dim=True)
        case [number] if number.startswith("3"):
            return Style(color=Color.from_ansi(int(number) - 30))
        case _:
            return Style.null()


def _create_console(out: StringIO, theme: Theme, columns: int) -> Console:
    """Create the console that renders Markdown in the theme's colours."""
    quiet, code = (to_rich_style(theme.codes.get(role, "")) for role in ("quiet", "accent"))
    styles = {**MARKDOWN_STYLES, **dict.fromkeys(QUIET_STYLES, quiet), "markdown.code": code}
    return Console(
        file=out,
        force_terminal=True,
        color_system=COLOUR_SYSTEMS[theme.depth],
        no_color=not theme.depth,
        width=columns,
        theme=Styles(styles),
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
