"""ApplyPatch: several files changed by one patch, all of them or none.

A file is changed where the old lines of the patch stand in it: who can quote a text knows it. What
would overwrite a file that the model has not read is refused, as Write refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, FileStat, StaleFile, content_digest
from travois.tools.diff import Patch, compare, excerpt
from travois.tools.paths import absolute, existing, plain, short, writes
from travois.tools.text import decode

if TYPE_CHECKING:
    from travois.tools.patch_grammar import FileChange

LIMIT = 50_000_000


class PatchArgs(msgspec.Struct, frozen=True):
    """A patch, from `*** Begin Patch` to `*** End Patch`."""

    input: str


class Step(msgspec.Struct, frozen=True):
    """One file as the patch leaves it; none where it is deleted."""

    sign: str
    path: str
    before: bytes | None
    after: bytes | None
    patch: Patch | None = None
    known: bool = False
    """True if the model has read the file in its previous state."""


def _parse(text: str) -> list[FileChange]:
    from travois.tools.patch_grammar import parse_patch

    return list(parse_patch(text))


def _access(args: PatchArgs, here: CallLocation) -> tuple[Access, ...]:
    paths = (path for change in _parse(args.input) for path in (change.path, change.move))
    return tuple(one for path in dict.fromkeys(filter(None, paths)) for one in writes(path, here))


async def _apply(args: PatchArgs, env: Env, call: str) -> ToolOutcome:
    steps = list[Step]()
    for change in _parse(args.input):
        steps += await _planned(change, steps, env)
    done = list[Step]()
    try:
        for step in steps:
            await _made(step, env)
            done.append(step)
    except (StaleFile, OSError) as error:
        for step in reversed(done):
            await _made(_undone(step), env)
        why = "another program has just changed it" if isinstance(error, StaleFile) else str(error)
        raise ToolError(f"Nothing was changed: {steps[len(done)].path}: {why}.") from None
    shown = [f"{step.sign} {short(step.path, env)}" for step in steps]
    patches = [step.patch for step in steps if step.patch is not None]
    lines = excerpt(patches[0]) if len(patches) == 1 else ""
    return text_outcome(
        "\n".join(filter(None, ("Success. Updated the following files:", *shown, lines))),
        detail=patches[0].json() if len(patches) == 1 else "",
        changes=tuple(
            Changed(f"seen:{s.path}", content_digest(s.after)) for s in steps if s.known and s.after
        ),
    )


async def _planned(change: FileChange, before: list[Step], env: Env) -> list[Step]:
    """Plan the change of one file, after the earlier parts of the patch."""
    path = absolute(change.path, env.cwd)
    if any(step.path == path for step in before):
        raise ToolError(f"The patch contains {change.path} twice; put its chunks into one section.")
    stat = await env.files.stat(path)
    if change.kind == "add":
        return [await _added(change, path, stat, env)]
    stat = await existing(path, env)
    if stat.size > LIMIT:
        raise ToolError(f"{short(path, env)} is too large to patch.")
    data = await env.files.read(path)
    if change.kind == "delete":
        return [Step("D", path, data, None)]
    known = env.state.get(f"seen:{path}") == content_digest(data)
    source = decode(data)
    if source is None:
        raise ToolError(f"{short(path, env)} is not a text file and cannot be patched.")
    from travois.tools.patch_grammar import apply_chunks

    text = apply_chunks(source.text, change.chunks, short(path, env))
    after = source.encoding.bom + source.encoding.encode(text)
    target = absolute(change.move, env.cwd) if change.move else path
    patch = compare(target, source.text, text)
    if target == path:
        return [Step("M", path, data, after, patch, known)]
    if await env.files.stat(target) is not None:
        raise ToolError(f"{short(target, env)} already exists; nothing was changed.")
    return [Step("D", path, data, None), Step("A", target, None, after, patch, known=True)]


async def _added(change: FileChange, path: str, stat: FileStat | None, env: Env) -> Step:
    after = change.text.encode()
    if stat is None:
        return Step("A", path, None, after, compare(path, None, change.text), known=True)
    await existing(path, env)
    data = await env.files.read(path, limit=LIMIT)
    if data and env.state.get(f"seen:{path}") != content_digest(data):
        raise ToolError(
            f"{short(path, env)} exists and you have not read it; nothing was changed. Use "
            "'*** Update File:' to change part of it, or Read it first."
        )
    old = decode(data)
    return Step("M", path, data, after, compare(path, old.text if old else "", change.text), True)


async def _made(step: Step, env: Env) -> None:
    expect = content_digest(step.before) if step.before is not None else None
    if step.after is None:
        await env.files.remove(step.path, expect=expect or "")
    else:
        await env.files.replace(step.path, step.after, expect=expect)


def _undone(step: Step) -> Step:
    return Step(step.sign, step.path, step.after, step.before)


def _summary(args: PatchArgs) -> str:
    try:
        changes = _parse(args.input)
    except ToolError:
        return "Apply a patch"
    return f"Patch {', '.join(plain(change.path) for change in changes)}"


APPLY_PATCH = Tool(
    name="ApplyPatch",
    description=(
        "Change files with a patch: *** Begin Patch, then *** Update File: PATH with chunks of "
        "lines that start with a space, - or +, each under @@ and an enclosing line if needed; "
        "*** Add File: PATH with + lines; *** Delete File: PATH; finally *** End Patch."
    ),
    args=PatchArgs,
    access=_access,
    run=_apply,
    summary=_summary,
    deferred=True,
)
