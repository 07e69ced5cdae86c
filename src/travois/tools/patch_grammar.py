"""The patch format of OpenAI's models: several files in one text, located by context.

`*** Begin Patch`, then for each file `*** Add File:`, `*** Delete File:` or `*** Update File:` with
chunks of lines behind a blank, `-` or `+`, and `*** End Patch`. A chunk has no line numbers: it is
where its old lines stand, below the line that `@@` names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from travois.ports.tool import ToolError
from travois.tools.match import describe_nearest_lines

PATCH_BEGIN = "*** Begin Patch"
PATCH_END = "*** End Patch"
PATCH_END_OF_FILE = "*** End of File"
FILE_HEADER = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+?)\s*$")
MOVE_HEADER = re.compile(r"\*\*\* Move to: (.+?)\s*$")
DASH_FOLD = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
QUOTE_FOLD = {ord(c): "'" for c in "\u2018\u2019\u201a\u201b"} | {
    ord(c): '"' for c in "\u201c\u201d\u201e\u201f"
}


class PatchChunk(msgspec.Struct, frozen=True):
    """Lines to find and what to put in their place, below the lines that `anchors` name."""

    anchors: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


class FileChange(msgspec.Struct, frozen=True):
    """The part of a patch for one file."""

    kind: Literal["add", "delete", "update"]
    path: str
    text: str = ""
    """The content of a new file."""
    move: str = ""
    chunks: tuple[PatchChunk, ...] = ()


def parse_patch(text: str) -> tuple[FileChange, ...]:
    """Parse a patch into its file changes; raises `ToolError` if it is malformed."""
    lines = text.strip("\r\n").replace("\r\n", "\n").split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines or lines[0].strip() != PATCH_BEGIN:
        raise ToolError(f"Not a patch: the first line must be '{PATCH_BEGIN}'.")
    ends = [n for n, line in enumerate(lines) if line.strip() == PATCH_END]
    if not ends:
        raise ToolError(f"The patch is incomplete: the last line must be '{PATCH_END}'.")
    found = tuple(_parse_file_changes(lines[1 : ends[-1]]))
    if not found:
        raise ToolError("The patch names no file; start a section with '*** Update File: PATH'.")
    return found


def _parse_file_changes(lines: list[str]) -> Iterator[FileChange]:
    """Split a patch at its file headers and parse the change of each file."""
    heads = [n for n, line in enumerate(lines) if FILE_HEADER.match(line)]
    if not heads:
        return
    if any(line.strip() for line in lines[: heads[0]]):
        raise ToolError(f"The patch has a line before its first file: {lines[0]!r}.")
    for start, end in zip(heads, (*heads[1:], len(lines)), strict=True):
        match = FILE_HEADER.match(lines[start])
        assert match is not None
        yield _parse_file_change(match[1], match[2], lines[start + 1 : end])


def _parse_file_change(kind: str, path: str, body: list[str]) -> FileChange:
    """Parse one file section of a patch: an added, deleted or updated file."""
    match kind:
        case "Add":
            if wrong := next((line for line in body if line and line[0] != "+"), ""):
                raise ToolError(
                    f"In the new file {path}, this line does not start with +: {wrong!r}."
                )
            return FileChange("add", path, "".join(f"{line[1:]}\n" for line in body if line))
        case "Delete":
            return FileChange("delete", path)
        case _:
            move = MOVE_HEADER.match(body[0]) if body else None
            chunks = tuple(_parse_chunks(path, body[1:] if move else body))
            if not chunks and move is None:
                raise ToolError(f"The patch changes nothing in {path}: the section is empty.")
            return FileChange("update", path, move=move[1] if move else "", chunks=chunks)


def _parse_chunks(path: str, lines: list[str]) -> Iterator[PatchChunk]:
    """Parse an updated file of a patch into chunks with their context anchors."""
    anchors, old, new = list[str](), list[str](), list[str]()
    begun = False
    for line in lines:
        if line.startswith("@@"):
            if begun:
                yield PatchChunk(tuple(anchors), tuple(old), tuple(new))
                anchors, old, new, begun = [], [], [], False
            if named := line[2:].strip().removesuffix("@@").strip():
                anchors.append(named)
        elif line.strip() == PATCH_END_OF_FILE:
            yield PatchChunk(tuple(anchors), tuple(old), tuple(new), at_end=True)
            anchors, old, new, begun = [], [], [], False
        elif line[:1] in ("", " ", "-", "+"):
            begun = True
            _add_chunk_line(line, old, new)
        else:
            raise ToolError(
                f"In the patch of {path}, this line must start with one of ' -+@': {line!r}."
            )
    while old and new and not old[-1] and not new[-1] and lines and not lines[-1]:
        # Blank lines between two files of a patch are not lines of the first one.
        for held in (old, new, lines):
            held.pop()
    if old or new:
        yield PatchChunk(tuple(anchors), tuple(old), tuple(new))


def _add_chunk_line(line: str, old: list[str], new: list[str]) -> None:
    """Add a patch line to the old lines, the new lines or both, by its sign."""
    if line[:1] != "+":
        old.append(line[1:])
    if line[:1] != "-":
        new.append(line[1:])


def apply_chunks(text: str, chunks: Sequence[PatchChunk], path: str) -> str:
    """Return a text after the chunks of a patch; raises `ToolError` where one does not fit."""
    feed = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(feed)
    ended = bool(lines) and not lines[-1]
    if ended:
        lines.pop()
    made, at = list[str](), 0
    for number, chunk in enumerate(chunks, 1):
        start = _find_chunk_start(
            lines, chunk, at, which=f"chunk {number} of {len(chunks)} in {path}"
        )
        made += (*lines[at:start], *_render_chunk(lines, chunk, start))
        at = start + len(chunk.old)
    made += lines[at:]
    return feed.join(made) + (feed if made and (ended or not text) else "")


def _render_chunk(lines: Sequence[str], chunk: PatchChunk, start: int) -> list[str]:
    """Return the new lines of a patch chunk; kept lines stay as the file has them."""
    kept, made, taken = lines[start : start + len(chunk.old)], list[str](), 0
    for line in chunk.new:
        rest = chunk.old[taken:]
        if line in rest:
            taken += rest.index(line) + 1
            made.append(kept[taken - 1])
        else:
            made.append(line)
    return made


def _find_chunk_start(lines: Sequence[str], chunk: PatchChunk, at: int, *, which: str) -> int:
    """Find the line at which a chunk applies, from line `at` on."""
    for anchor in chunk.anchors:
        found = _find_lines(lines, (anchor,), at)
        if found < 0:
            raise ToolError(
                f"Nothing was changed: {which} needs the line {anchor!r}, which is missing."
            )
        at = found + 1
    if not chunk.old:
        return at if chunk.anchors else len(lines)
    last = len(lines) - len(chunk.old)
    if chunk.at_end and last >= at and _find_lines(lines, chunk.old, last) == last:
        return last
    found = _find_lines(lines, chunk.old, at)
    if found >= 0:
        return found
    near = describe_nearest_lines("\n".join(lines), "\n".join(chunk.old))
    raise ToolError(f"Nothing was changed: {which} does not match the file. {near}")


def _find_lines(lines: Sequence[str], wanted: Sequence[str], at: int) -> int:
    """Find the first place of a patch chunk's lines from `at` on, ever less exactly; else -1."""
    for same in (str, str.rstrip, str.strip, _fold_line):
        sought = [same(line) for line in wanted]
        there = [same(line) for line in lines[at:]]
        for start in range(len(there) - len(sought) + 1):
            if there[start] == sought[0] and there[start : start + len(sought)] == sought:
                return at + start
    return -1


def _fold_line(line: str) -> str:
    """Simplify the typography of a line of a patch: plain quotes and dashes, no outer blanks."""
    text = unicodedata.normalize("NFKC", line).translate(DASH_FOLD | QUOTE_FOLD)
    return text.strip()
