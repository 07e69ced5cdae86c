"""Diffs between two versions of a file: structured for programs, and as a short excerpt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from travois.core.json import encode_json
from travois.lazy_imports import lazy_imports
from travois.tools.text import show_invalid_bytes, split_lines

with lazy_imports():
    import difflib


CONTEXT_LINES = 3
MAX_COMPARED_PAIRS = 1_000_000
"""Maximum pairs of lines for a detailed comparison."""
MAX_DIFF_LINES = 400
MAX_EXCERPT_ROWS = 8
MAX_EXCERPT_ROW_CHARS = 200


class DiffHunk(msgspec.Struct, frozen=True, rename="camel"):
    """Lines around one change, each with ` `, `-` or `+` in front; numbers count from 1."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]


class FilePatch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The change of one file, in the shape that user interfaces expect."""

    type: Literal["create", "update", "delete"]
    file_path: str
    added: int
    removed: int
    structured_patch: tuple[DiffHunk, ...] = ()
    truncated: bool = False
    moved_from: str = ""

    def json(self) -> str:
        """Return the text that goes into a result's detail."""
        return encode_json(self).decode()


class PatchSet(msgspec.Struct, frozen=True):
    """The changes of several files by one call."""

    files: tuple[FilePatch, ...]


def encode_patches(patches: Sequence[FilePatch]) -> str:
    """Encode what a call changed as its result's detail."""
    if len(patches) == 1:
        return patches[0].json()
    return encode_json(PatchSet(tuple(patches))).decode()


def decode_patches(detail: str) -> tuple[FilePatch, ...]:
    """Decode the file changes of a result's detail; none if it tells of something else."""
    with suppress(msgspec.DecodeError):
        return (msgspec.json.decode(detail, type=FilePatch),)
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(detail, type=PatchSet).files
    return ()


def compare_texts(path: str, before: str | None, after: str) -> FilePatch:
    """Compute the diff between two versions of a file; `before` is None for a new one."""
    new = split_lines(show_invalid_bytes(after))
    if before is None:
        return FilePatch("create", path, added=len(new), removed=0)
    hunks = tuple(_build_hunks(split_lines(show_invalid_bytes(before)), new))
    signs = [line[0] for hunk in hunks for line in hunk.lines]
    small = len(signs) <= MAX_DIFF_LINES
    return FilePatch(
        "update",
        path,
        added=signs.count("+"),
        removed=signs.count("-"),
        structured_patch=hunks if small else (),
        truncated=not small,
    )


def render_excerpt(patch: FilePatch) -> str:
    """Render the changed lines of a diff with numbers and one line of context."""
    rows = [row for hunk in patch.structured_patch for row in _excerpt_rows(hunk)]
    if len(rows) > MAX_EXCERPT_ROWS:
        head = MAX_EXCERPT_ROWS - 3
        rows = [*rows[:head], f"... {len(rows) - MAX_EXCERPT_ROWS + 1} more lines", *rows[-2:]]
    return "\n".join(rows)


def _excerpt_rows(hunk: DiffHunk) -> Iterator[str]:
    """List the changed lines of a diff hunk and their neighbours, with line numbers."""
    signs = [line[0] for line in hunk.lines]
    changed = [index for index, sign in enumerate(signs) if sign != " "]
    near = range(changed[0] - 1, changed[-1] + 2)
    number = hunk.new_start - 1
    for index, line in enumerate(hunk.lines):
        number += line[0] != "-"
        if line[0] != "-" and index in near:
            more = "…" if len(line) > MAX_EXCERPT_ROW_CHARS + 1 else ""
            yield f"{number}\t{line[1 : MAX_EXCERPT_ROW_CHARS + 1]}{more}"


def _build_hunks(old: list[str], new: list[str]) -> Iterator[DiffHunk]:
    """Build the diff hunks between two lists of lines, after trimming equal ends."""
    head = _common_prefix_length(old, new)
    tail = _common_prefix_length(old[head:][::-1], new[head:][::-1])
    start = max(head - CONTEXT_LINES, 0)
    ends = [min(len(side) - tail + CONTEXT_LINES, len(side)) for side in (old, new)]
    a, b = old[start : ends[0]], new[start : ends[1]]
    for group in _group_opcodes(a, b):
        parts = [part for code in group for part in _mark_lines(code, a, b)]
        yield DiffHunk(
            old_start=start + group[0][1] + 1,
            old_lines=group[-1][2] - group[0][1],
            new_start=start + group[0][3] + 1,
            new_lines=group[-1][4] - group[0][3],
            lines=tuple(parts),
        )


Opcode = tuple[str, int, int, int, int]


def _group_opcodes(a: list[str], b: list[str]) -> Iterator[list[Opcode]]:
    """Group the differences of two lists of lines into diff hunks; very large ones become one."""
    if len(a) * len(b) > MAX_COMPARED_PAIRS:
        yield [("replace", 0, len(a), 0, len(b))]
    elif a != b:
        yield from difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(
            CONTEXT_LINES
        )


def _mark_lines(code: Opcode, a: list[str], b: list[str]) -> Iterator[str]:
    """Mark the lines of one diff operation as kept, removed or added."""
    tag, i, j, k, m = code
    if tag == "equal":
        yield from (" " + line for line in a[i:j])
        return
    yield from ("-" + line for line in a[i:j])
    yield from ("+" + line for line in b[k:m])


def _common_prefix_length(one: list[str], other: list[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
