"""Where a piece of text stands in a file, and what takes its place.

The text is first sought as it is, line ends apart. Only if it is nowhere, the search forgives what
models garble: special spaces, quotes and dashes, blanks at line ends, and an indentation that is
off by the same amount on every line. What is forgiven in the search is kept in the file: of the
replaced part, only that changes which differs between the old and the new text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from travois.tools.indent import Shift, indent_of, shift_between
from travois.tools.text import Flat, flatten

BLANKS = "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
SINGLE, DOUBLE = "\u2018\u2019\u201a\u201b\u2032", "\u201c\u201d\u201e\u201f\u2033"
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
FOLD = str.maketrans(
    BLANKS + SINGLE + DOUBLE + DASHES,
    " " * len(BLANKS) + "'" * len(SINGLE) + '"' * len(DOUBLE) + "-" * len(DASHES),
)
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
FED_LINE = re.compile(r"[^\n]*\n|[^\n]+")
COMPARABLE = 250_000
"""Up to this many pairs of lines, it is worth looking for lines that stay in the middle."""


class Match(msgspec.Struct, frozen=True):
    """One place in the file's text, and how the indentation there differs."""

    start: int
    end: int
    shift: Shift = Shift()


class Found(msgspec.Struct, frozen=True):
    """All places where a text stands, and how alike they are."""

    matches: tuple[Match, ...]
    how: Literal["exact", "folded", "lines"]


def find(text: str, needle: str) -> Found:
    """Where `needle` stands in `text`: as it is, else in a forgiving way."""
    flat, sought = flatten(text), flatten(needle).text
    exact = _occurrences(flat, flat.text, sought)
    if exact or not sought.strip():
        return Found(exact, "exact")
    folded = flat.text.translate(FOLD)
    alike = _occurrences(flat, folded, sought.translate(FOLD))
    if alike:
        return Found(alike, "folded")
    return Found(tuple(_blocks(flat, folded, sought.translate(FOLD))), "lines")


def apart(matches: Sequence[Match]) -> list[Match]:
    """Those matches, from the first on, that do not overlap the one before."""
    kept = list[Match]()
    for match in matches:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return kept


def replaced(text: str, match: Match, *, old: str, new: str, ending: str) -> str | None:
    """What takes the place of a match; None if `new` cannot follow the indentation there."""
    span = text[match.start : match.end]
    if span == old and "\n" not in new:
        return new
    before, after = flatten(old).text, new.replace("\r\n", "\n")
    if before.endswith("\n") and not span.endswith(("\n", "\r")):
        before, after = before[:-1], after.removesuffix("\n")
    there, was, shall = LINE.findall(span), FED_LINE.findall(before), FED_LINE.findall(after)
    made = [line for line in map(match.shift.line, shall) if line is not None]
    if len(made) < len(shall):
        return None
    parts = list[str]()
    for tag, i, j, k, m in _changes(was, shall):
        kept = "".join(there[i:j])
        mixed = _merged("".join(was[i:j]), "".join(made[k:m]), kept=kept, ending=ending)
        parts.append(kept if tag == "equal" else mixed)
    return "".join(parts)


def _occurrences(flat: Flat, text: str, needle: str) -> tuple[Match, ...]:
    """Every place of the needle, overlapping ones too: two ways to read are one too many."""
    found = list[Match]()
    at = text.find(needle) if needle else -1
    while at >= 0:
        found.append(Match(flat.back(at), flat.back(at + len(needle))))
        at = text.find(needle, at + 1)
    return tuple(found)


def _blocks(flat: Flat, text: str, needle: str) -> Iterator[Match]:
    """Whole lines that are the needle's but for blanks at their ends and a common shift."""
    wanted, there = needle.removesuffix("\n").split("\n"), text.split("\n")
    bodies, found = [line.strip(" \t") for line in wanted], [line.strip(" \t") for line in there]
    first = next(index for index, body in enumerate(bodies) if body)
    for at, body in enumerate(found):
        top = at - first
        if body != bodies[first] or top < 0 or found[top : top + len(bodies)] != bodies:
            continue
        block = there[top : top + len(bodies)]
        shift = shift_between(_indents(wanted), _indents(block))
        if shift is not None:
            start = sum(map(len, there[:top])) + top
            end = start + len("\n".join(block)) + needle.endswith("\n")
            yield Match(flat.back(start), flat.back(min(end, len(text))), shift)


def _indents(block: Sequence[str]) -> list[str]:
    return [indent_of(line) for line in block if line.strip()]


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Which lines stay and which are replaced by which, as `SequenceMatcher` says it."""
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    i, j, k, m = head, len(old) - tail, head, len(new) - tail
    yield "equal", 0, head, 0, head
    if (j - i) * (m - k) > COMPARABLE:
        yield "replace", i, j, k, m
    else:
        from difflib import SequenceMatcher

        middle = SequenceMatcher(None, old[i:j], new[k:m], autojunk=False)
        for tag, a, b, c, d in middle.get_opcodes():
            yield tag, i + a, i + b, k + c, k + d
    yield "equal", j, len(old), m, len(new)


def _merged(old: str, new: str, *, kept: str, ending: str) -> str:
    """The new text, but with the file's own characters where old and new begin or end alike."""
    flat = flatten(kept)
    text = new.replace("\n", ending)
    if flat.text.translate(FOLD) != old.translate(FOLD):
        return text
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    middle = new[head : len(new) - tail].replace("\n", ending)
    return kept[: flat.back(head)] + middle + kept[flat.back(len(old) - tail) :]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items two sequences share at their beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
