"""Differences between two versions of a text: structured for programs, and as a short excerpt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from travois.core.json import encode_json
from travois.tools.text import lines, shown

CONTEXT = 3
COMPARABLE = 1_000_000
"""Maximum pairs of lines for a detailed comparison."""
LINES = 400
EXCERPT = 8
WIDTH = 200


class Hunk(msgspec.Struct, frozen=True, rename="camel"):
    """Lines around one change, each with ` `, `-` or `+` in front; numbers count from 1."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]


class Patch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The change of one file, in the shape that user interfaces expect."""

    type: Literal["create", "update"]
    file_path: str
    added: int
    removed: int
    structured_patch: tuple[Hunk, ...] = ()
    truncated: bool = False

    def json(self) -> str:
        """Return the text that goes into a result's detail."""
        return encode_json(self).decode()


def compare(path: str, before: str | None, after: str) -> Patch:
    """Compare two versions of a file; `before` is None for a new file."""
    new = lines(shown(after))
    if before is None:
        return Patch("create", path, added=len(new), removed=0)
    hunks = tuple(_hunks(lines(shown(before)), new))
    signs = [line[0] for hunk in hunks for line in hunk.lines]
    small = len(signs) <= LINES
    return Patch(
        "update",
        path,
        added=signs.count("+"),
        removed=signs.count("-"),
        structured_patch=hunks if small else (),
        truncated=not small,
    )


def excerpt(patch: Patch) -> str:
    """Return the changed lines, numbered, with one line of context; long ones are cut."""
    rows = [row for hunk in patch.structured_patch for row in _rows(hunk)]
    if len(rows) > EXCERPT:
        head = EXCERPT - 3
        rows = [*rows[:head], f"... {len(rows) - EXCERPT + 1} more lines", *rows[-2:]]
    return "\n".join(rows)


def _rows(hunk: Hunk) -> Iterator[str]:
    signs = [line[0] for line in hunk.lines]
    changed = [index for index, sign in enumerate(signs) if sign != " "]
    near = range(changed[0] - 1, changed[-1] + 2)
    number = hunk.new_start - 1
    for index, line in enumerate(hunk.lines):
        number += line[0] != "-"
        if line[0] != "-" and index in near:
            yield f"{number}\t{line[1 : WIDTH + 1]}{'…' if len(line) > WIDTH + 1 else ''}"


def _hunks(old: list[str], new: list[str]) -> Iterator[Hunk]:
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    start = max(head - CONTEXT, 0)
    ends = [min(len(side) - tail + CONTEXT, len(side)) for side in (old, new)]
    a, b = old[start : ends[0]], new[start : ends[1]]
    for group in _groups(a, b):
        parts = [part for code in group for part in _marked(code, a, b)]
        yield Hunk(
            old_start=start + group[0][1] + 1,
            old_lines=group[-1][2] - group[0][1],
            new_start=start + group[0][3] + 1,
            new_lines=group[-1][4] - group[0][3],
            lines=tuple(parts),
        )


Code = tuple[str, int, int, int, int]


def _groups(a: list[str], b: list[str]) -> Iterator[list[Code]]:
    from difflib import SequenceMatcher

    if len(a) * len(b) > COMPARABLE:
        yield [("replace", 0, len(a), 0, len(b))]
    elif a != b:
        yield from SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(CONTEXT)


def _marked(code: Code, a: list[str], b: list[str]) -> Iterator[str]:
    tag, i, j, k, m = code
    if tag == "equal":
        yield from (" " + line for line in a[i:j])
        return
    yield from ("-" + line for line in a[i:j])
    yield from ("+" + line for line in b[k:m])


def _alike(one: list[str], other: list[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
