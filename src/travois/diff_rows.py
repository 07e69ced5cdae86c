"""Diff rows: a change of a file as numbered lines, with changed words and syntax colours.

The terminal, the exported documents and the inspector draw these rows; only they know colours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.display_text import escape_invisible
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.tools.diff import DiffHunk, FilePatch, compare_texts
from travois.tools.text import split_lines

with lazy_imports():
    import difflib
    import html

    import pygments
    from pygments import lexers

SyntaxRole = Literal["", "keyword", "string", "number", "name", "type", "comment"]
RowKind = Literal[" ", "-", "+", "gap", "file"]
SYNTAX_ROLE_NAMES: tuple[SyntaxRole, ...] = (
    "",
    "keyword",
    "string",
    "number",
    "name",
    "type",
    "comment",
)
DIFF_PART_PATTERN = compile_lazily(r"\w+|\s+|[^\w\s]")
MIN_SIMILARITY = 0.5
"""Two lines that have less in common are shown as one removed and one added as a whole."""
MAX_COMPARED_CHARS = 1_000
MAX_PAIRED_LINES = 30
MAX_COLOURED_CHARS = 100_000
"""Longer texts are shown without syntax colours, and longer lines without changed words."""
HUNK_HEADING = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
TAB_COLUMNS = 4
SIGNS_BY_KIND: dict[RowKind, str] = {"gap": "⋯", "file": ""}
"""What stands for the sign of a row that is no line of the file."""
LEXER_LEAD = {".php": "<?php\n"}
"""A hunk begins amid the file: some lexers need what stands before."""


class Span(msgspec.Struct, frozen=True):
    """A part of a line that looks the same."""

    text: str
    syntax: SyntaxRole = ""
    is_changed: bool = False


class DiffRow(msgspec.Struct, frozen=True):
    """A line of a diff; `old` and `new` are its numbers, 0 where it does not stand.

    Of several files, a row of the kind `file` names the one whose rows follow.
    """

    kind: RowKind
    old: int = 0
    new: int = 0
    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """The line without its looks."""
        return "".join(span.text for span in self.spans)


def build_diff_rows(patch: FilePatch) -> list[DiffRow]:
    """Build the diff rows of a change, with a gap between hunks."""
    rows: list[DiffRow] = []
    for hunk in patch.structured_patch:
        rows += [DiffRow("gap")] if rows else []
        rows += _build_hunk_rows(hunk, patch.file_path)
    return rows


def build_change_rows(patches: Sequence[FilePatch], named: Mapping[str, str]) -> list[DiffRow]:
    """Build the diff rows of what a call changed; each of several files begins with its name.

    `named` has the paths as the call writes them, with the contents of created files.
    """
    rows: list[DiffRow] = []
    for patch in patches:
        if len(patches) > 1 or patch.type == "delete":
            rows.append(DiffRow("file", spans=(Span(_describe_change(patch, named)),)))
        if patch.type == "create":
            made = named.get(find_written_path(patch.file_path, named), "")
            rows += build_file_rows(patch.file_path, made)
        else:
            rows += build_diff_rows(patch)
    return rows


def _describe_change(patch: FilePatch, named: Mapping[str, str]) -> str:
    """Describe a file's change as the heading of its diff."""
    path, origin = (
        escape_invisible(find_written_path(one, named))
        for one in (patch.file_path, patch.moved_from)
    )
    if patch.type == "delete":
        return f"{path}  deleted, {patch.removed:,} line{'' if patch.removed == 1 else 's'}"
    told = f"{origin} → {path}" if origin else path
    counts = f"+{patch.added} -{patch.removed}" if patch.type == "update" else f"+{patch.added}"
    long = "  too long to show" if patch.truncated else ""
    return f"{told}  {'new, ' if patch.type == 'create' else ''}{counts}{long}"


def find_written_path(path: str, named: Iterable[str]) -> str:
    """Find how a call writes this absolute path."""
    ends = ((one, f"/{os.path.normpath(one).lstrip('/')}") for one in named)
    return next((one for one, end in ends if path.endswith(end)), path)


def build_file_rows(path: str, text: str) -> list[DiffRow]:
    """Build the diff rows of a new file: all lines are added."""
    lines = [_clean_line(line) for line in split_lines(text)]
    coloured = _colour_lines(path, lines)
    return [DiffRow("+", 0, number, spans) for number, spans in enumerate(coloured, 1)]


def build_text_rows(path: str, before: str | None, after: str) -> list[DiffRow]:
    """Build the diff rows between two texts; `before` is None for a new file."""
    if before is None:
        return build_file_rows(path, after)
    return build_diff_rows(compare_texts(path, before, after))


def parse_unified_rows(diff: str, path: str) -> list[DiffRow]:
    """Build the diff rows of one file's unified diff; without hunk headers they have no numbers."""
    rows: list[DiffRow] = []
    starts, lines = (0, 0), list[str]()
    for line in (*diff.splitlines(), "@@"):
        is_header = line.startswith(("---", "+++")) and not (rows or lines or any(starts))
        if is_header or line.startswith("\\"):
            continue
        if not line.startswith("@@"):
            lines.append(line or " ")
            continue
        if lines:
            rows += [DiffRow("gap")] if rows else []
            hunk = DiffHunk(starts[0], 0, starts[1], 0, tuple(lines))
            built = _build_hunk_rows(hunk, path)
            rows += built if starts != (0, 0) else (replace(row, old=0, new=0) for row in built)
        found = HUNK_HEADING.match(line)
        starts, lines = (int(found[1]), int(found[2])) if found else (0, 0), []
    return rows


def render_diff_html(rows: Sequence[DiffRow]) -> str:
    """Render rows as an HTML table; the page brings the colours of its classes."""
    names = {"+": "added", "-": "removed", " ": "kept", "gap": "gap", "file": "file"}
    cells = (
        f'<tr class="{names[row.kind]}"><td>{row.old or ""}</td><td>{row.new or ""}</td>'
        f"<td>{SIGNS_BY_KIND.get(row.kind, row.kind)}</td>"
        f"<td>{''.join(map(_render_span_html, row.spans))}</td></tr>"
        for row in rows
    )
    return f'<table class="diff">{"".join(cells)}</table>'


def _render_span_html(span: Span) -> str:
    text = html.escape(span.text)
    if span.syntax:
        text = f'<span class="s-{span.syntax}">{text}</span>'
    return f"<mark>{text}</mark>" if span.is_changed else text


def _clean_line(line: str) -> str:
    return escape_invisible(line.expandtabs(TAB_COLUMNS))


def _build_hunk_rows(hunk: DiffHunk, path: str) -> Iterator[DiffRow]:
    """Build the rows of one hunk; each side is coloured as the text that it is."""
    signs = [line[:1] for line in hunk.lines]
    lines = [_clean_line(line[1:]) for line in hunk.lines]
    looks: list[tuple[Span, ...]] = [()] * len(lines)
    for other in "+-":
        side = [at for at, sign in enumerate(signs) if sign != other]
        coloured = _colour_lines(path, [lines[at] for at in side])
        for at, spans in zip(side, coloured, strict=True):
            looks[at] = spans
    for one, two in _pair_changed_lines(signs, lines):
        looks[one], looks[two] = _mark_changed_words(looks[one], looks[two])
    old, new = hunk.old_start, hunk.new_start
    for sign, spans in zip(signs, looks, strict=True):
        kind: RowKind = "+" if sign == "+" else "-" if sign == "-" else " "
        yield DiffRow(kind, old if kind != "+" else 0, new if kind != "-" else 0, spans)
        old += kind != "+"
        new += kind != "-"


def _pair_changed_lines(signs: Sequence[str], lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pair each removed line with the added line that replaces it, in their order."""
    by_sign = groupby(range(len(signs)), key=signs.__getitem__)
    runs = [(sign, list(run)) for sign, run in by_sign]
    for (sign, went), (following, came) in pairwise(runs):
        if (sign, following) == ("-", "+"):
            yield from (
                zip(went, came, strict=True)
                if len(went) == len(came)
                else (_pair_by_words(went, came, lines))
            )


def _pair_by_words(
    went: Sequence[int], came: Sequence[int], lines: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Pair lines that share most of their words; no pair crosses another."""
    words = {at: frozenset(re.findall(r"\w+", lines[at])) for at in (*went, *came)}
    first = 0
    for one in went[:MAX_PAIRED_LINES]:
        rest = came[first : first + MAX_PAIRED_LINES]
        best = max(rest, key=lambda two: len(words[one] & words[two]), default=None)
        if best is not None and 2 * len(words[one] & words[best]) > len(words[one]):
            yield one, best
            first = came.index(best) + 1


def _mark_changed_words(
    old: tuple[Span, ...], new: tuple[Span, ...]
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Mark the words in which two lines differ, unless they have little in common."""
    before, after = ("".join(span.text for span in side) for side in (old, new))
    if max(len(before), len(after)) > MAX_COMPARED_CHARS:
        return old, new
    a, b = DIFF_PART_PATTERN.findall(before), DIFF_PART_PATTERN.findall(after)
    match = difflib.SequenceMatcher(None, a, b, autojunk=False)
    codes = match.get_opcodes()
    kept = sum(len("".join(a[i:j]).strip()) for tag, i, j, _, _ in codes if tag == "equal")
    if 2 * kept < MIN_SIMILARITY * len((before + after).replace(" ", "")):
        return old, new
    changed = [code for code in codes if code[0] != "equal"]
    return (
        _mark_ranges(old, [_char_range(a, i, j) for _, i, j, _, _ in changed]),
        _mark_ranges(new, [_char_range(b, k, m) for _, _, _, k, m in changed]),
    )


def _char_range(words: Sequence[str], start: int, stop: int) -> tuple[int, int]:
    first = sum(map(len, words[:start]))
    return first, first + sum(map(len, words[start:stop]))


def _mark_ranges(spans: tuple[Span, ...], ranges: list[tuple[int, int]]) -> tuple[Span, ...]:
    """Split a diff row's spans at the changed ranges, and mark what is inside."""
    cuts = sorted({edge for pair in ranges for edge in pair})
    marked: list[Span] = []
    at = 0
    for span in spans:
        end = at + len(span.text)
        edges = [at, *(cut for cut in cuts if at < cut < end), end]
        for start, stop in pairwise(edges):
            inside = any(first <= start and stop <= last for first, last in ranges)
            text = span.text[start - at : stop - at]
            marked += [Span(text, span.syntax, is_changed=inside)] if text else []
        at = end
    return tuple(marked)


def _colour_lines(path: str, lines: list[str]) -> list[tuple[Span, ...]]:
    """Split a diff's lines into spans by the syntax of the file's language, if known."""
    text = "\n".join(lines)
    plain = [(Span(line),) if line else () for line in lines]
    if not lines or len(text) > MAX_COLOURED_CHARS:
        return plain
    finder = lexers.find_lexer_class_for_filename(path)
    if finder is None:
        return plain
    lexer = finder(stripnl=False, ensurenl=False)
    lead = next((start for end, start in LEXER_LEAD.items() if path.endswith(end)), "")
    tokens = pygments.lex(lead + text, lexer)
    coloured: list[list[Span]] = [[]]
    for kind, part in tokens:
        role = find_syntax_role(str(kind))
        for number, piece in enumerate(part.split("\n")):
            if number:
                coloured.append([])
            if piece:
                _append_span(coloured[-1], piece, role)
    coloured = coloured[lead.count("\n") :]
    same = len(coloured) == len(lines)
    return [tuple(spans) for spans in coloured] if same else plain


def _append_span(spans: list[Span], text: str, role: SyntaxRole) -> None:
    """Append a text to a diff row's spans; it joins the last one if both look the same."""
    before = spans[-1] if spans else None
    if before and (before.syntax == role or not text.strip()):
        spans[-1] = Span(before.text + text, before.syntax)
    else:
        spans.append(Span(text, role))


SYNTAX_ROLES: tuple[tuple[str, SyntaxRole], ...] = (
    ("Token.Comment", "comment"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Keyword.Constant", "number"),
    ("Token.Keyword.Type", "type"),
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Name.Class", "type"),
    ("Token.Name.Exception", "type"),
    ("Token.Name.Tag", "type"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Decorator", "name"),
    ("Token.Name.Attribute", "name"),
)


def find_syntax_role(kind: str) -> SyntaxRole:
    """Return a Pygments token's role in the syntax colours of a diff."""
    for start, role in SYNTAX_ROLES:
        if kind.startswith(start):
            return role
    return ""
