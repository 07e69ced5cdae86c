"""ApplyPatch: several files changed by one patch, all of them or none.

A file is changed where the old lines of the patch stand in it: who can quote a text knows it. What
would overwrite a file that the model has not read is refused, as Write refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from travois.core.facts import Changed
from travois.lazy_imports import lazy_imports
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, FileStat, StaleFile, content_digest
from travois.tools.diff import FilePatch, compare_texts, render_excerpt
from travois.tools.paths import absolute_path, display_path, escape_path, require_file, write_access
from travois.tools.text import decode_text

if TYPE_CHECKING:
    from travois.tools.patch_grammar import FileChange

with lazy_imports():
    from travois.tools import patch_grammar


MAX_PATCHED_FILE_BYTES = 50_000_000


class PatchArgs(msgspec.Struct, frozen=True):
    """A patch, from `*** Begin Patch` to `*** End Patch`."""

    input: str


class PatchedFile(msgspec.Struct, frozen=True):
    """One file as the patch leaves it; none where it is deleted."""

    sign: str
    path: str
    before: bytes | None
    after: bytes | None
    patch: FilePatch | None = None
    known: bool = False
    """True if the model has read the file in its previous state."""


def _parse_changes(text: str) -> list[FileChange]:
    """Parse the text of an ApplyPatch call into its file changes."""
    return list(patch_grammar.parse_patch(text))


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
    lines = render_excerpt(patches[0]) if len(patches) == 1 else ""
    return text_outcome(
        "\n".join(filter(None, ("Success. Updated the following files:", *shown, lines))),
        detail=patches[0].json() if len(patches) == 1 else "",
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
        return [PatchedFile("D", path, data, None)]
    known = env.state.get(f"seen:{path}") == content_digest(data)
    source = decode_text(data)
    if source is None:
        raise ToolError(f"{display_path(path, env)} is not a text file and cannot be patched.")
    text = patch_grammar.apply_chunks(source.text, change.chunks, display_path(path, env))
    after = source.encoding.bom + source.encoding.encode(text)
    target = absolute_path(change.move, env.cwd) if change.move else path
    patch = compare_texts(target, source.text, text)
    if target == path:
        return [PatchedFile("M", path, data, after, patch, known)]
    if await env.files.stat(target) is not None:
        raise ToolError(f"{display_path(target, env)} already exists; nothing was changed.")
    return [
        PatchedFile("D", path, data, None),
        PatchedFile("A", target, None, after, patch, known=True),
    ]


async def _plan_new_file(
    change: FileChange, path: str, stat: FileStat | None, env: Env
) -> PatchedFile:
    """Plan an ApplyPatch section that adds a file; refuse to overwrite an unread one."""
    after = change.text.encode()
    if stat is None:
        return PatchedFile(
            "A", path, None, after, compare_texts(path, None, change.text), known=True
        )
    await require_file(path, env)
    data = await env.files.read(path, limit=MAX_PATCHED_FILE_BYTES)
    if data and env.state.get(f"seen:{path}") != content_digest(data):
        raise ToolError(
            f"{display_path(path, env)} exists and you have not read it; nothing was changed. Use "
            "'*** Update File:' to change part of it, or Read it first."
        )
    old = decode_text(data)
    return PatchedFile(
        "M", path, data, after, compare_texts(path, old.text if old else "", change.text), True
    )


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
