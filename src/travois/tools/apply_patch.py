"""ApplyPatch: several files changed by one patch, all of them or none.

A file is changed where the old lines of the patch occur in it: who can quote a text knows it. What
would overwrite a file that the model has not read is refused, as Write refuses it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.display_text import escape_path
from travois.core.facts import Changed
from travois.core.patterns import compile_lazily
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, FileStat, StaleFile, content_digest
from travois.tools.diff import FilePatch, compare_texts, encode_patches, render_excerpt
from travois.tools.paths import (
    absolute_path,
    display_path,
    require_file,
    write_access,
)
from travois.tools.text import decode_text, split_lines
from travois.tools.text_match import describe_nearest_lines

PATCH_BEGIN = "*** Begin Patch"
PATCH_END = "*** End Patch"
PATCH_END_OF_FILE = "*** End of File"
FILE_HEADER = compile_lazily(r"\*\*\* (Add|Delete|Update) File: (.+?)\s*$")
MOVE_HEADER = compile_lazily(r"\*\*\* Move to: (.+?)\s*$")
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
    """Apply the chunks of a patch to a text; raises `ToolError` if one does not fit."""
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
    """Find the line at which a patch chunk applies, from line `at` on."""
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
    """Find where a patch chunk's lines first occur, more and more leniently; -1 if nowhere."""
    for same in (str, str.rstrip, str.strip, _fold_line):
        sought = [same(line) for line in wanted]
        there = [same(line) for line in lines[at:]]
        for start in range(len(there) - len(sought) + 1):
            if there[start] == sought[0] and there[start : start + len(sought)] == sought:
                return at + start
    return -1


def _fold_line(line: str) -> str:
    """Simplify the typography of a patch line: plain quotes and dashes, no outer blanks."""
    text = unicodedata.normalize("NFKC", line).translate(DASH_FOLD | QUOTE_FOLD)
    return text.strip()


MAX_PATCHED_FILE_BYTES = 50_000_000


class PatchArgs(msgspec.Struct, frozen=True):
    """A patch, from `*** Begin Patch` to `*** End Patch`."""

    input: str


class PatchedFile(msgspec.Struct, frozen=True):
    """One file as the patch leaves it; None if it is deleted."""

    sign: str
    path: str
    before: bytes | None
    after: bytes | None
    patch: FilePatch | None = None
    known: bool = False
    """True if the model has read the file in its previous state."""


def _parse_changes(text: str) -> list[FileChange]:
    """Parse the text of an ApplyPatch call into its file changes."""
    return list(parse_patch(text))


def _patch_access(args: PatchArgs, here: CallLocation) -> tuple[Access, ...]:
    """List the files that an ApplyPatch call writes, for the permission check."""
    paths = (path for change in _parse_changes(args.input) for path in (change.path, change.move))
    return tuple(
        one for path in dict.fromkeys(filter(None, paths)) for one in write_access(path, here)
    )


async def _run_apply_patch(args: PatchArgs, env: Env, call: str) -> ToolOutcome:
    """Apply a patch to all its files, and undo what was written if one of them fails."""
    steps = list[PatchedFile]()
    for change in _parse_changes(args.input):
        steps += await _plan_file_change(change, steps, env)
    return await write_patched_files(steps, env)


async def write_patched_files(steps: Sequence[PatchedFile], env: Env) -> ToolOutcome:
    """Write all files of a patch or a rename, or none; describe what changed."""
    done = list[PatchedFile]()
    try:
        for step in steps:
            await _write_patched_file(step, env)
            done.append(step)
    except (StaleFile, OSError) as error:
        for step in reversed(done):
            await _write_patched_file(_reverse_file_change(step), env)
        why = "another program has just changed it" if isinstance(error, StaleFile) else str(error)
        raise ToolError(f"Nothing was changed: {steps[len(done)].path}: {why}.") from None
    shown = [f"{step.sign} {display_path(step.path, env)}" for step in steps]
    patches = [step.patch for step in steps if step.patch is not None]
    edited = [patch for patch in patches if patch.type != "delete"]
    lines = render_excerpt(edited[0]) if len(edited) == 1 else ""
    return text_outcome(
        "\n".join(filter(None, ("Success. Updated the following files:", *shown, lines))),
        detail=encode_patches(patches),
        changes=tuple(
            Changed(f"seen:{s.path}", content_digest(s.after)) for s in steps if s.known and s.after
        ),
    )


async def _plan_file_change(
    change: FileChange, before: list[PatchedFile], env: Env
) -> list[PatchedFile]:
    """Plan the change of one file of a patch, after the earlier parts of the patch."""
    path = absolute_path(change.path, env.cwd)
    if any(step.path == path for step in before):
        raise ToolError(f"The patch contains {change.path} twice; put its chunks into one section.")
    stat = await env.files.stat(path)
    if change.kind == "add":
        return [await _plan_new_file(change, path, stat, env)]
    stat = await require_file(path, env)
    if stat.size > MAX_PATCHED_FILE_BYTES:
        raise ToolError(f"{display_path(path, env)} is too large to patch.")
    data = await env.files.read(path)
    if change.kind == "delete":
        return [PatchedFile("D", path, data, None, _compare_deleted(path, data))]
    known = env.state.get(f"seen:{path}") == content_digest(data)
    target = absolute_path(change.move, env.cwd) if change.move else path
    after, patch = _update_file(change, path, data, target=target, name=display_path(path, env))
    if target == path:
        return [PatchedFile("M", path, data, after, patch, known)]
    if await env.files.stat(target) is not None:
        raise ToolError(f"{display_path(target, env)} already exists; nothing was changed.")
    return [
        PatchedFile("D", path, data, None),
        PatchedFile("A", target, None, after, patch, known=True),
    ]


def _update_file(
    change: FileChange, path: str, data: bytes, *, target: str, name: str
) -> tuple[bytes, FilePatch]:
    """Apply a patch's chunks to the bytes of a file; return the new ones and the diff."""
    source = decode_text(data)
    if source is None:
        raise ToolError(f"{name} is not a text file and cannot be patched.")
    text = apply_chunks(source.text, change.chunks, name)
    patch = compare_texts(target, source.text, text)
    if target != path:
        patch = replace(patch, moved_from=path)
    return source.encoding.bom + source.encoding.encode(text), patch


def _compare_new_file(change: FileChange, path: str, data: bytes | None) -> FilePatch:
    """Compute the diff of a file that a patch writes whole."""
    old = None if data is None else decode_text(data)
    before = None if data is None else old.text if old else ""
    return compare_texts(path, before, change.text)


def _compare_deleted(path: str, data: bytes) -> FilePatch:
    """Compute the diff of a file that a patch deletes; it counts the lines and shows none."""
    source = decode_text(data)
    return FilePatch("delete", path, 0, len(split_lines(source.text)) if source else 0)


async def _plan_new_file(
    change: FileChange, path: str, stat: FileStat | None, env: Env
) -> PatchedFile:
    """Plan an ApplyPatch section that adds a file; refuse to overwrite an unread one."""
    after = change.text.encode()
    if stat is None:
        patch = _compare_new_file(change, path, None)
        return PatchedFile("A", path, None, after, patch, known=True)
    await require_file(path, env)
    data = await env.files.read(path, limit=MAX_PATCHED_FILE_BYTES)
    if data and env.state.get(f"seen:{path}") != content_digest(data):
        raise ToolError(
            f"{display_path(path, env)} exists and you have not read it; nothing was changed. Use "
            "'*** Update File:' to change part of it, or Read it first."
        )
    return PatchedFile("M", path, data, after, _compare_new_file(change, path, data), known=True)


async def _write_patched_file(step: PatchedFile, env: Env) -> None:
    """Write or remove one file of a patch, if it is still as it was when it was read."""
    expect = content_digest(step.before) if step.before is not None else None
    if step.after is None:
        await env.files.remove(step.path, expect=expect or "")
    else:
        await env.files.replace(step.path, step.after, expect=expect)


def _reverse_file_change(step: PatchedFile) -> PatchedFile:
    return PatchedFile(step.sign, step.path, step.after, step.before)


def _summarize_patch(args: PatchArgs) -> str:
    """Name the files of an ApplyPatch call in one line."""
    try:
        changes = _parse_changes(args.input)
    except ToolError:
        return "Apply a patch"
    return f"Patch {', '.join(escape_path(change.path) for change in changes)}"


APPLY_PATCH = Tool(
    name="ApplyPatch",
    description=(
        "Change files with a patch: *** Begin Patch, then *** Update File: PATH with chunks of "
        "lines that start with a space, - or +, each under @@ and an enclosing line if needed; "
        "*** Add File: PATH with + lines; *** Delete File: PATH; finally *** End Patch."
    ),
    args=PatchArgs,
    access=_patch_access,
    run=_run_apply_patch,
    summary=_summarize_patch,
    deferred=True,
)


# What a patch would change, for a person to see before it runs.


def preview_patch(
    text: str, folder: str, read: Callable[[str], bytes | None]
) -> tuple[FilePatch, ...]:
    """Preview what a patch would make of the files in a folder; `read` returns None for no file.

    Raises `ToolError` if the patch does not fit.
    """
    return tuple(_preview_file_change(change, folder, read) for change in parse_patch(text))


def _preview_file_change(
    change: FileChange, folder: str, read: Callable[[str], bytes | None]
) -> FilePatch:
    path = absolute_path(change.path, folder)
    data = read(path)
    if change.kind == "add":
        return _compare_new_file(change, path, data)
    if data is None:
        raise ToolError(f"{change.path} does not exist.")
    if change.kind == "delete":
        return _compare_deleted(path, data)
    target = absolute_path(change.move, folder) if change.move else path
    return _update_file(change, path, data, target=target, name=change.path)[1]


def list_patched_files(text: str) -> dict[str, str]:
    """Return the paths in a patch, as the patch writes them, with the contents of new files."""
    try:
        changes = parse_patch(text)
    except ToolError:
        return {}
    return {path: one.text for one in changes for path in (one.path, one.move) if path}
