"""Matching an edit's text in a file, exactly first and leniently if that fails.

The text is first searched for as it is, apart from line endings. Only if that fails, the search
ignores what models garble: special spaces, quotes and dashes, trailing blanks, and an indentation
that is off by the same amount on every line. What the search ignores is kept in the file: in the
replaced part, only the differences between the old and the new text change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.tools.text import FlatText, flatten_line_ends, show_invalid_bytes, split_lines

with lazy_imports():
    import difflib


# How one block of lines is indented differently from another, all lines alike.


INDENT_PATTERN = compile_lazily(r"[ \t]*")
INDENT_UNITS = (
    ("", ""),
    *((a, b) for w in (4, 2, 8, 3) for a, b in (("\t", " " * w), (" " * w, "\t"))),
)
"""Tabs for spaces and spaces for tabs, the most common widths first."""


class IndentShift(msgspec.Struct, frozen=True):
    """A change of indentation: one unit for another, then something less or more in front."""

    unit: str = ""
    becomes: str = ""
    less: str = ""
    more: str = ""

    def shift_indent(self, indent: str) -> str | None:
        """Return the indentation after the shift; None if there is too little of it."""
        if self.unit:
            indent = indent.replace(self.unit, self.becomes)
        if not indent.startswith(self.less):
            return None
        return self.more + indent[len(self.less) :]

    def shift_line(self, line: str) -> str | None:
        """Return the line after the shift; a blank line stays as it is."""
        if not line.strip():
            return line
        before = indent_of(line)
        after = self.shift_indent(before)
        return None if after is None else after + line[len(before) :]


def indent_of(line: str) -> str:
    """Return a line's indentation, to match an edit's text."""
    found = INDENT_PATTERN.match(line)
    return found[0] if found else ""


def find_indent_shift(old: Sequence[str], new: Sequence[str]) -> IndentShift | None:
    """Return the one shift between the indentations of an edit's text and the file's; else None."""
    shifts = (_shift_with_unit(old[0], new[0], unit, becomes) for unit, becomes in INDENT_UNITS)
    fitting = [shift for shift in shifts if shift is not None and _shift_fits_all(shift, old, new)]
    return min(fitting, key=lambda shift: len(shift.less) + len(shift.more), default=None)


def _shift_with_unit(old: str, new: str, unit: str, becomes: str) -> IndentShift | None:
    """Return the indentation change from one line to another for a pair of indent units."""
    turned = old.replace(unit, becomes) if unit else old
    if new.endswith(turned):
        return IndentShift(unit, becomes, more=new[: len(new) - len(turned)])
    if turned.endswith(new):
        return IndentShift(unit, becomes, less=turned[: len(turned) - len(new)])
    return None


def _shift_fits_all(shift: IndentShift, old: Sequence[str], new: Sequence[str]) -> bool:
    return all(shift.shift_indent(a) == b for a, b in zip(old, new, strict=True))


SPECIAL_SPACES = "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032"
DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u2033"
SPECIAL_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
TYPOGRAPHY_FOLD = str.maketrans(
    SPECIAL_SPACES + SINGLE_QUOTES + DOUBLE_QUOTES + SPECIAL_DASHES,
    " " * len(SPECIAL_SPACES)
    + "'" * len(SINGLE_QUOTES)
    + '"' * len(DOUBLE_QUOTES)
    + "-" * len(SPECIAL_DASHES),
)
LINE_PATTERN = compile_lazily(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
LF_LINE_PATTERN = compile_lazily(r"[^\n]*\n|[^\n]+")
MAX_LINE_PAIRS = 250_000
"""Maximum pairs of lines to compare in full."""


class TextMatch(msgspec.Struct, frozen=True):
    """One place in the file's text, and how the indentation there differs."""

    start: int
    end: int
    shift: IndentShift = IndentShift()


class TextMatches(msgspec.Struct, frozen=True):
    """All places where a text stands, and how alike they are."""

    matches: tuple[TextMatch, ...]
    how: Literal["exact", "folded", "lines"]


def find_text(text: str, needle: str) -> TextMatches:
    """Find every match of an edit's text in a file: exact if possible, else lenient."""
    flat, sought = flatten_line_ends(text), flatten_line_ends(needle).text
    exact = _find_occurrences(flat, flat.text, sought)
    if exact or not sought.strip():
        return TextMatches(exact, "exact")
    folded = flat.text.translate(TYPOGRAPHY_FOLD)
    alike = _find_occurrences(flat, folded, sought.translate(TYPOGRAPHY_FOLD))
    if alike:
        return TextMatches(alike, "folded")
    return TextMatches(
        tuple(_find_line_blocks(flat, folded, sought.translate(TYPOGRAPHY_FOLD))), "lines"
    )


def drop_overlaps(matches: Sequence[TextMatch]) -> list[TextMatch]:
    """Drop matches of an edit's text that overlap the one before."""
    kept = list[TextMatch]()
    for match in matches:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return kept


def render_replacement(
    text: str, match: TextMatch, *, old: str, new: str, ending: str
) -> str | None:
    """Return the replacement of a match; None if `new` cannot follow the indentation there."""
    span = text[match.start : match.end]
    if span == old and "\n" not in new:
        return new
    before, after = flatten_line_ends(old).text, new.replace("\r\n", "\n")
    if before.endswith("\n") and not span.endswith(("\n", "\r")):
        before, after = before[:-1], after.removesuffix("\n")
    there, was, shall = (
        LINE_PATTERN.findall(span),
        LF_LINE_PATTERN.findall(before),
        LF_LINE_PATTERN.findall(after),
    )
    made = [line for line in map(match.shift.shift_line, shall) if line is not None]
    if len(made) < len(shall):
        return None
    parts = list[str]()
    for tag, i, j, k, m in _line_opcodes(was, shall):
        kept = "".join(there[i:j])
        mixed = _merge_kept_text("".join(was[i:j]), "".join(made[k:m]), kept=kept, ending=ending)
        parts.append(kept if tag == "equal" else mixed)
    return "".join(parts)


def _find_occurrences(flat: FlatText, text: str, needle: str) -> tuple[TextMatch, ...]:
    """Find every place of old_string in a file; overlapping ones count as ambiguous too."""
    found = list[TextMatch]()
    at = text.find(needle) if needle else -1
    while at >= 0:
        found.append(TextMatch(flat.original_index(at), flat.original_index(at + len(needle))))
        at = text.find(needle, at + 1)
    return tuple(found)


def _find_line_blocks(flat: FlatText, text: str, needle: str) -> Iterator[TextMatch]:
    """Yield file lines equal to an edit's text but for trailing blanks and a common shift."""
    wanted, there = needle.removesuffix("\n").split("\n"), text.split("\n")
    bodies, found = [line.strip(" \t") for line in wanted], [line.strip(" \t") for line in there]
    first = next(index for index, body in enumerate(bodies) if body)
    for at, body in enumerate(found):
        top = at - first
        if body != bodies[first] or top < 0 or found[top : top + len(bodies)] != bodies:
            continue
        block = there[top : top + len(bodies)]
        shift = find_indent_shift(_block_indents(wanted), _block_indents(block))
        if shift is not None:
            start = sum(map(len, there[:top])) + top
            end = start + len("\n".join(block)) + needle.endswith("\n")
            yield TextMatch(
                flat.original_index(start), flat.original_index(min(end, len(text))), shift
            )


def _block_indents(block: Sequence[str]) -> list[str]:
    return [indent_of(line) for line in block if line.strip()]


def _line_opcodes(
    old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield `SequenceMatcher` opcodes between an edit's lines and the file's."""
    head = _shared_prefix_length(old, new)
    tail = _shared_prefix_length(old[head:][::-1], new[head:][::-1])
    i, j, k, m = head, len(old) - tail, head, len(new) - tail
    yield "equal", 0, head, 0, head
    if (j - i) * (m - k) > MAX_LINE_PAIRS:
        yield "replace", i, j, k, m
    else:
        middle = difflib.SequenceMatcher(None, old[i:j], new[k:m], autojunk=False)
        for tag, a, b, c, d in middle.get_opcodes():
            yield tag, i + a, i + b, k + c, k + d
    yield "equal", j, len(old), m, len(new)


def _merge_kept_text(old: str, new: str, *, kept: str, ending: str) -> str:
    """Return an edit's new text with the file's own characters where both versions agree."""
    flat = flatten_line_ends(kept)
    text = new.replace("\n", ending)
    if flat.text.translate(TYPOGRAPHY_FOLD) != old.translate(TYPOGRAPHY_FOLD):
        return text
    head = _shared_prefix_length(old, new)
    tail = _shared_prefix_length(old[head:][::-1], new[head:][::-1])
    middle = new[head : len(new) - tail].replace("\n", ending)
    return kept[: flat.original_index(head)] + middle + kept[flat.original_index(len(old) - tail) :]


def _shared_prefix_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many characters of an edit's two versions agree at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


# What stands in a file closest to a text that is not in it.


MAX_SEARCHED_LINES = 50_000
MAX_SEARCHED_CHARS = 2_000_000
"""Part of a file that is searched: advice must be faster than reading the file again."""
MAX_NEAREST_LINES = 12
MAX_ADVICE_LINE_CHARS = 200
MIN_SIMILARITY = 0.4
ODD_CHARACTERS = compile_lazily(
    r"[\x00-\x08\x0b-\x1f\x7f\u00a0\u00ad\u200b-\u200f\u2028\u2029\u2060\ufeff]"
)


def describe_nearest_lines(text: str, needle: str) -> str:
    """Describe the file's lines most like an edit's unmatched text, and how they differ."""
    there, wanted = split_lines(text[:MAX_SEARCHED_CHARS])[:MAX_SEARCHED_LINES], split_lines(needle)
    index = max(range(len(wanted)), key=lambda i: len(wanted[i].strip()), default=-1)
    best = _find_closest_line(there, wanted[index]) if index >= 0 else -1
    if best < 0:
        return "Nothing in the file is similar."
    top = max(best - index, 0)
    block = there[top : top + min(len(wanted), MAX_NEAREST_LINES)]
    rows = (f"{top + i + 1}\t{_escape_line(line)}" for i, line in enumerate(block))
    difference = _first_difference(wanted, there, top)
    return "\n".join(("Most similar lines (odd characters escaped):", *rows, difference)).rstrip()


def _find_closest_line(there: list[str], sought: str) -> int:
    """Return the file line most like a line of old_string; -1 if none is."""
    wanted = _character_triples(sought)
    best, score = -1, MIN_SIMILARITY
    for index, line in enumerate(there):
        if not len(sought) <= 4 * len(line) + 8 or not len(line) <= 4 * len(sought) + 8:
            continue
        found = _character_triples(line)
        alike = 2 * len(wanted & found) / (len(wanted) + len(found))
        if alike > score:
            best, score = index, alike
    return best


def _character_triples(line: str) -> set[str]:
    """Return a line's character trigrams, to find the file's lines most like an edit's text."""
    plain = f" {''.join(line.translate(TYPOGRAPHY_FOLD).lower().split())} "
    return {plain[i : i + 3] for i in range(max(len(plain) - 2, 1))}


def _first_difference(wanted: list[str], there: list[str], top: int) -> str:
    """Describe the first line where old_string of a failed edit differs from the file."""
    pairs = zip(wanted, there[top : top + len(wanted)], strict=False)
    for number, (yours, theirs) in enumerate(pairs, top + 1):
        if yours != theirs:
            says, has = _escape_line(yours), _escape_line(theirs)
            return f"First difference, line {number}: you wrote `{says}`, the file has `{has}`."
    return ""


def _escape_line(line: str) -> str:
    """Escape tabs, odd characters and trailing blanks of a line in a match error."""
    body = line.rstrip(" ")
    ends = body.replace("\t", "\\t") + "\\x20" * min(len(line) - len(body), 8)
    plain = ODD_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", show_invalid_bytes(ends))
    return plain if len(plain) <= MAX_ADVICE_LINE_CHARS else plain[:MAX_ADVICE_LINE_CHARS] + "…"
