"""Edit and MultiEdit: replacing text in a file, and nothing else.

A file that the model has not read may be edited where `old_string` stands in it to the letter: who
can quote a text knows it. A file that has changed since the model read it is edited as it is now,
under the same condition, and the model is told. Neither counts as having read the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, TypeVar

import anyio
import msgspec
from anyio import to_thread

from travois.core.facts import Changed
from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Env, Stale, Stat, digest
from travois.tools.change import Change, plan
from travois.tools.diff import compare, excerpt
from travois.tools.paths import absolute, existing, linked, plain, short, writes
from travois.tools.text import Decoded, Encoding, decode, splice

TRIES = 30
LIMIT = 50_000_000
LARGE = 500_000
T = TypeVar("T")
FORGIVEN = {
    "folded": " Matched although quotes, dashes or spaces differ; the file's own were kept.",
    "lines": " Matched although indentation or blanks at line ends differ; new_string was fitted.",
}
OUTSIDE = (
    " The file had changed since you read it; the edit was made to its current content. "
    "Read it again before you rely on the rest."
)
UNREAD = " You have not read the file as it is now: Read it first."


class EditArgs(msgspec.Struct, frozen=True):
    """One change to one file."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class MultiEditArgs(msgspec.Struct, frozen=True):
    """Several changes to one file, each made to what the one before left."""

    file_path: str
    edits: Annotated[tuple[Change, ...], msgspec.Meta(min_length=1)]


class Edited(msgspec.Struct, frozen=True):
    """A text after some changes: in how many places, and what was forgiven."""

    result: Decoded
    places: int = 0
    forgiven: tuple[str, ...] = ()


async def _edit(args: EditArgs, env: Env, call: str) -> Outcome:
    change = Change(args.old_string, args.new_string, args.replace_all)
    return await _change(args.file_path, (change,), env=env)


async def _multi_edit(args: MultiEditArgs, env: Env, call: str) -> Outcome:
    return await _change(args.file_path, args.edits, env=env)


async def _change(path: str, changes: Sequence[Change], *, env: Env) -> Outcome:
    full = absolute(path, env.cwd)
    async with env.files.queue(full):
        for attempt in range(TRIES):
            try:
                return await _attempt(full, changes, env=env)
            except Stale:
                await anyio.sleep(attempt * 0.002)
    raise Refusal(f"Another program keeps changing {short(full, env)}; nothing was changed by you.")


async def _attempt(path: str, changes: Sequence[Change], *, env: Env) -> Outcome:
    stat = await env.files.stat(path)
    if stat is not None or changes[0].old_string:
        stat = await existing(path, env)
    source = await _source(path, stat, env=env)
    seen, is_now = env.state.get(f"seen:{path}"), digest(source.data)
    known = not source.data or seen == is_now
    edited = await _in_time(partial(_edited, source, changes, known=known), len(source.data))
    before, after = source.text if stat else None, edited.result
    patch = await _in_time(partial(compare, path, before, after.text), len(source.data))
    digested = await env.files.replace(path, after.data, expect=is_now if stat else None)
    return said(
        _told(edited, short(path, env) + linked(stat), created=stat is None)
        + (OUTSIDE if seen and not known else "")
        + f"\n{excerpt(patch)}".rstrip(),
        detail=patch.json(),
        changes=(Changed(f"seen:{path}", digested),) if known else (),
    )


async def _in_time(work: Callable[[], T], size: int) -> T:
    """The outcome of some work on a text of this size, without keeping everyone else waiting."""
    if size < LARGE:
        return work()
    return await to_thread.run_sync(work, abandon_on_cancel=True)


async def _source(path: str, stat: Stat | None, *, env: Env) -> Decoded:
    if stat is None:
        return Decoded(b"", "", Encoding("utf-8"))
    if stat.size > LIMIT:
        raise Refusal(f"{short(path, env)} is too large to edit here; use Bash with sed or ed.")
    source = decode(await env.files.read(path))
    if source is None:
        raise Refusal(f"{short(path, env)} is not text; it cannot be edited here.")
    return source


def _edited(source: Decoded, changes: Sequence[Change], *, known: bool) -> Edited:
    """The source after all changes; raises `Refusal` if one of them cannot be made."""
    edited = Edited(source)
    for number, change in enumerate(changes, 1):
        try:
            edited = _step(edited, change, known=known)
        except Refusal as refusal:
            several = len(changes) > 1
            which = f"Edit {number} of {len(changes)} failed, nothing was changed: "
            raise Refusal(f"{which if several else ''}{refusal}{'' if known else UNREAD}") from None
    if edited.result.data == source.data:
        raise Refusal("The edits undo each other; there is nothing to change.")
    return edited


def _step(edited: Edited, change: Change, *, known: bool) -> Edited:
    made = plan(edited.result.text, change, forgiving=known)
    try:
        result = splice(edited.result, made.splices)
    except UnicodeEncodeError as error:
        encoding, bad = edited.result.encoding, error.object[error.start : error.end]
        words = f"The file is {encoding.label}, which cannot hold {bad!r}; use other characters"
        raise Refusal(f"{words} or convert the file with Bash iconv first.") from error
    forgiven = (FORGIVEN[made.how],) if made.how in FORGIVEN else ()
    return Edited(result, edited.places + len(made.splices), edited.forgiven + forgiven)


def _told(edited: Edited, name: str, *, created: bool) -> str:
    places = f" in {edited.places} places" if edited.places > 1 else ""
    forgiven = "".join(dict.fromkeys(edited.forgiven))
    return f"{'Created' if created else 'Edited'} {name}{places}.{forgiven}"


EDIT = Tool(
    name="Edit",
    description=(
        "Replace old_string, quoted exactly from the file without line numbers, by new_string. It "
        "must occur once unless replace_all is set. An empty old_string creates the file."
    ),
    args=EditArgs,
    access=lambda args, here: writes(args.file_path, here),
    run=_edit,
    summary=lambda args: f"Edit {plain(args.file_path)}",
)
MULTI_EDIT = Tool(
    name="MultiEdit",
    description="Several Edits of one file, made in order: all of them or none.",
    args=MultiEditArgs,
    access=lambda args, here: writes(args.file_path, here),
    run=_multi_edit,
    summary=lambda args: f"Edit {plain(args.file_path)} in {len(args.edits)} places",
    deferred=True,
)
