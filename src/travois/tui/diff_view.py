"""Diffs in the terminal: numbered lines on coloured grounds, side by side where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, takewhile, zip_longest
from typing import Literal

from msgspec.structs import replace

from travois.diff_rows import (
    DiffRow,
    Span,
    build_text_rows,
    parse_unified_rows,
)
from travois.tools.diff import FilePatch
from travois.tui.layout import display_width, fold_lines
from travois.tui.theme import RESET_CODE, Theme

MAX_DIFF_LINES = 40
"""Rows of one change that are shown; the rest is counted."""
MIN_SPLIT_COLUMNS = 120
"""From this width on, old and new stand side by side, if nearly all lines fit."""
TOO_LONG_DIFF = "diff too long to show"
MAX_FOLDED_SHARE = 0.1
INDENT = "    "
ERASE_REST = "\x1b[K"
"""Fills the rest of the line with the ground."""
DIFF_ROLES = {"+": "added", "-": "removed"}
CHANGED_END_CODES = {"1": "22", "1;4": "22;24"}


def format_line_counts(changes: Sequence[FilePatch], theme: Theme) -> str:
    """Format a diff's numbers of added and removed lines, in all files."""
    added, removed = sum(one.added for one in changes), sum(one.removed for one in changes)
    came = theme.mark(f"+{added}", "good") if added or not removed else ""
    went = theme.mark(f"-{removed}", "bad") if removed else ""
    return " ".join(part for part in (came, went) if part)


def render_change(
    path: str,
    before: str | None,
    after: str,
    *,
    theme: Theme,
    columns: int,
    most: int = MAX_DIFF_LINES,
) -> list[str]:
    """Render the diff between two texts; `before` is None for a new file."""
    return render_diff_rows(build_text_rows(path, before, after), theme, columns, most=most)


def render_unified_diff(
    diff: str, theme: Theme, columns: int, *, path: str = "", most: int = MAX_DIFF_LINES
) -> list[str]:
    """Render the unified diff of a file in the colours of its language, without headers."""
    return render_diff_rows(parse_unified_rows(diff, path), theme, columns, most=most)


def render_diff_rows(
    rows: Sequence[DiffRow], theme: Theme, columns: int, *, most: int = MAX_DIFF_LINES
) -> list[str]:
    """Render rows of a diff; a last line counts those that are left out."""
    shown, rest = rows[:most], len(rows) - most
    digits = len(str(max((max(row.old, row.new) for row in shown), default=0) or ""))
    render = _render_split if _can_split(shown, columns, digits) else _render_unified
    lines = list(render(shown, theme, columns, digits=digits))
    return lines if rest <= 0 else [*lines, render_more_hint(rest, theme)]


def render_more_hint(count: int, theme: Theme) -> str:
    """Render how many diff lines are not shown, and the key that shows them."""
    return theme.mark(f"{INDENT}Ctrl-O: {count:,} more line{'s' if count > 1 else ''}", "quiet")


def _can_split(rows: Sequence[DiffRow], columns: int, digits: int) -> bool:
    """Return whether a diff has both sides, nearly all of which fit in half the width."""
    if columns < MIN_SPLIT_COLUMNS or not {"+", "-"} <= {row.kind for row in rows}:
        return False
    room = (columns - len(INDENT) - 1) // 2 - digits - 3
    folded = sum(display_width(row.text) > room for row in rows)
    return folded <= MAX_FOLDED_SHARE * len(rows)


def _render_unified(
    rows: Sequence[DiffRow], theme: Theme, columns: int, *, digits: int
) -> Iterator[str]:
    gutter = digits + 1 if digits else 0
    for row in rows:
        if row.kind == "gap":
            yield theme.mark(f"{INDENT}{'⋯':>{digits}}", "quiet")
            continue
        if row.kind == "file":
            yield from _render_heading(row, theme, columns)
            continue
        number = str(row.new or row.old or "")
        for part in _fold_spans(row.spans, columns - len(INDENT) - gutter - 2):
            lead = f"{number:>{digits}} " if digits else ""
            fill = ERASE_REST if theme.has_grounds and row.kind != " " else ""
            yield INDENT + _paint(row, lead, part, theme, fill=fill)
            number = ""


def _render_split(
    rows: Sequence[DiffRow], theme: Theme, columns: int, *, digits: int
) -> Iterator[str]:
    """Render a diff side by side; the right side ends where its text does."""
    width = (columns - len(INDENT) - 1) // 2
    for old, new in _pair_rows(rows):
        if old and old.kind == "gap":
            yield theme.mark(f"{INDENT}{'⋯':>{digits}}", "quiet")
            continue
        if old and old.kind == "file":
            yield from _render_heading(old, theme, columns)
            continue
        left = _render_half(old, theme, digits=digits, width=width, side="old")
        right = _render_half(new, theme, digits=digits, width=width, side="new")
        for one, two in zip_longest(left, right, fillvalue=""):
            yield f"{INDENT}{one or ' ' * width} {two}".rstrip(" ")


def _render_heading(row: DiffRow, theme: Theme, columns: int) -> Iterator[str]:
    """Render the name of the file whose rows follow."""
    for line in fold_lines(row.text, columns - len(INDENT) - 1):
        yield f"{INDENT}{theme.mark(line, 'strong')}"


def _render_half(
    row: DiffRow | None, theme: Theme, *, digits: int, width: int, side: Literal["old", "new"]
) -> Iterator[str]:
    """Render one side of a diff row; its ground, and the left side, fill this width."""
    if row is None:
        return
    number, room = str(row.old if side == "old" else row.new), width - digits - 3
    is_filled = side == "old" or (row.kind == "+" and theme.has_grounds)
    for part in _fold_spans(row.spans, room):
        fill = " " * (room - sum(display_width(span.text) for span in part))
        yield _paint(row, f"{number:>{digits}} ", part, theme, tail=fill if is_filled else "")
        number = ""


def _pair_rows(
    rows: Sequence[DiffRow],
) -> Iterator[tuple[DiffRow | None, DiffRow | None]]:
    """Pair a diff's removed rows with the rows added in their place."""
    removed: list[DiffRow] = []
    for kind, run in groupby(rows, key=lambda row: row.kind):
        same = list(run)
        if kind == "-":
            removed = same
            continue
        if kind == "+":
            yield from zip_longest(removed, same)
        else:
            yield from ((row, None) for row in removed)
            yield from ((row, row) for row in same)
        removed = []
    yield from ((row, None) for row in removed)


def _paint(
    row: DiffRow, lead: str, spans: Sequence[Span], theme: Theme, *, fill: str = "", tail: str = ""
) -> str:
    """Paint a diff line: number, sign and text, with a code only where the style changes."""
    codes, role = theme.codes, DIFF_ROLES.get(row.kind, "")
    if not (role or spans or tail):
        return theme.mark(lead.rstrip(), "quiet")
    if role and theme.has_grounds:
        begin = f"\x1b[{codes[role]};{codes['comment']}m{fill}{lead}\x1b[{codes['text']}m"
    else:
        colour = codes.get(role, "")
        begin = theme.mark(lead, "quiet") + (f"\x1b[{colour}m" if colour else "")
    painted = f"{begin}{row.kind} {''.join(_paint_spans(spans, role, theme))}{tail}"
    return painted + RESET_CODE if "\x1b" in painted else painted


def _paint_spans(spans: Sequence[Span], role: str, theme: Theme) -> Iterator[str]:
    """Paint the text of a diff line; its ground and first colour are already set."""
    codes: Mapping[str, str] = theme.codes
    start, plain = codes["changed"], "39"
    end = CHANGED_END_CODES[start]
    if role and theme.has_grounds:
        start, end = f"{codes[f'{role}-word']};{start}", f"{codes[role]};{end}"
        plain = codes["text"]
    elif role:
        codes = {}  # The colour of the whole line says what happened to it.
    current = plain
    for span in spans:
        code = plain if span.is_changed else codes.get(span.syntax, plain)
        yield f"\x1b[{code}m" if code != current else ""
        yield f"\x1b[{start}m{span.text}\x1b[{end}m" if span.is_changed else span.text
        current = code


def _fold_spans(spans: Sequence[Span], room: int) -> list[tuple[Span, ...]]:
    """Break a diff line at this width; there is always at least one part."""
    parts: list[list[Span]] = [[]]
    left = max(1, room)
    for span in spans:
        text = span.text
        while display_width(text) > left:
            fits = _count_fitting_chars(text, left)
            parts[-1] += [replace(span, text=text[:fits])] if fits else []
            text, left = text[fits:], max(1, room)
            parts.append([])
        parts[-1] += [replace(span, text=text)] if text else []
        left -= display_width(text)
    return [tuple(part) for part in parts]


def _count_fitting_chars(text: str, room: int) -> int:
    if text.isascii():
        return room
    widths = accumulate(map(display_width, text))
    return sum(1 for _ in takewhile(lambda width: width <= room, widths))
