"""Edit, MultiEdit and Write: changing text files.

A file that the model has not read may be edited where `old_string` stands in it to the letter: who
can quote a text knows it. A file that has changed since the model read it is edited as it is now,
under the same condition, and the model is told. Neither counts as having read the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal, TypeVar

import anyio
import msgspec
from anyio import to_thread

from travois.core.facts import Changed
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, FileStat, StaleFile, content_digest
from travois.tools.diff import Patch, compare, excerpt
from travois.tools.match import Found, Match, apart, find, nearest, replaced
from travois.tools.paths import absolute, existing, linked, plain, short, writes
from travois.tools.text import (
    Decoded,
    Encoding,
    Splice,
    decode,
    ending_near,
    endings,
    flatten,
    line_number,
    splice,
)

# One text for another in a file's text: what it means, and why it may not be done.


NAMED = 20
NUMBERED = re.compile(r"\s*\d+\t")


class Change(msgspec.Struct, frozen=True):
    """A text to look for, and the one to put in its place."""

    old_string: str
    new_string: str
    replace_all: bool = False


class Plan(msgspec.Struct, frozen=True):
    """The splices of an edit, and how closely the text matched."""

    splices: tuple[Splice, ...]
    how: Literal["exact", "folded", "lines"] = "exact"


def plan(text: str, change: Change, *, forgiving: bool) -> Plan:
    """Plan one change; raises `Refusal` where its meaning is not clear."""
    if change.old_string == change.new_string:
        raise ToolError("old_string and new_string are the same, so there is nothing to change.")
    if not change.old_string:
        return _fill(text, change)
    if flatten(change.old_string).text == flatten(change.new_string).text:
        return _line_ends(text, change)
    found = find(text, change.old_string)
    if not found.matches or not (forgiving or found.how == "exact"):
        numbered = " Omit the line numbers." if NUMBERED.match(change.old_string) else ""
        advice = nearest(text, change.old_string)
        raise ToolError(f"old_string is not in the file.{numbered} {advice}")
    return Plan(_splices(text, change, _chosen(text, change, found)), found.how)


def _fill(text: str, change: Change) -> Plan:
    if text:
        raise ToolError(
            "old_string is empty, which only works for an empty or missing file. "
            "Quote the text to replace, or use Write to replace the whole file."
        )
    return Plan((Splice(0, 0, change.new_string),))


def _line_ends(text: str, change: Change) -> Plan:
    """Return a change of nothing but line ends is meant to the letter."""
    matches, at = list[Match](), text.find(change.old_string)
    while at >= 0:
        matches.append(Match(at, at + len(change.old_string)))
        at = text.find(change.old_string, matches[-1].end)
    if not matches:
        raise ToolError("old_string is not in the file with these line endings.")
    chosen = _chosen(text, change, Found(tuple(matches), "exact"))
    return Plan(tuple(Splice(match.start, match.end, change.new_string) for match in chosen))


def _chosen(text: str, change: Change, found: Found) -> list[Match]:
    if len(found.matches) == 1:
        return list(found.matches)
    if change.replace_all and found.how == "exact":
        return apart(found.matches)
    numbers = [line_number(text, match.start) for match in found.matches[:NAMED]]
    places = ", ".join(map(str, numbers)) + (", ..." if len(found.matches) > NAMED else "")
    if found.how == "exact":
        advice = "Include surrounding lines to make it unique, or set replace_all."
        raise ToolError(f"old_string occurs {len(found.matches)} times (lines {places}). {advice}")
    raise ToolError(
        f"old_string is not in the file exactly, and {len(found.matches)} places are similar "
        f"(lines {places}). Quote the one you mean exactly, with surrounding lines."
    )


def _splices(text: str, change: Change, matches: list[Match]) -> tuple[Splice, ...]:
    kinds = endings(text) or ["\n"]
    made = list[Splice]()
    for match in matches:
        ending = kinds[0]
        if len(kinds) > 1:
            ending = ending_near(text, match.start, match.end, usual=kinds[0])
        new = replaced(text, match, old=change.old_string, new=change.new_string, ending=ending)
        if new is None:
            raise ToolError(
                "old_string matches only with less indentation, and a line of new_string has too "
                "little to remove. Use the file's own indentation in both."
            )
        made.append(Splice(match.start, match.end, new))
    return tuple(made)


TRIES = 30
LIMIT = 50_000_000
LARGE = 500_000
T = TypeVar("T")
FORGIVEN = {
    "folded": " Matched despite different quotes, dashes or spaces; the file's own were kept.",
    "lines": " Matched despite different indentation or trailing spaces; new_string was adjusted.",
}
OUTSIDE = (
    " The file had changed since you read it; the edit was applied to its current content. "
    "Read it again before you rely on the rest."
)
UNREAD = " You have not read the file in its current state: Read it first."


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


async def _edit(args: EditArgs, env: Env, call: str) -> ToolOutcome:
    change = Change(args.old_string, args.new_string, args.replace_all)
    return await _change(args.file_path, (change,), env=env)


async def _multi_edit(args: MultiEditArgs, env: Env, call: str) -> ToolOutcome:
    return await _change(args.file_path, args.edits, env=env)


async def _change(path: str, changes: Sequence[Change], *, env: Env) -> ToolOutcome:
    full = absolute(path, env.cwd)
    async with env.files.queue(full):
        for attempt in range(TRIES):
            try:
                return await _attempt(full, changes, env=env)
            except StaleFile:
                await anyio.sleep(attempt * 0.002)
    raise ToolError(f"Another program keeps changing {short(full, env)}; your edit was not made.")


async def _attempt(path: str, changes: Sequence[Change], *, env: Env) -> ToolOutcome:
    stat = await env.files.stat(path)
    if stat is not None or changes[0].old_string:
        stat = await existing(path, env)
    source = await _source(path, stat, env=env)
    seen, is_now = env.state.get(f"seen:{path}"), content_digest(source.data)
    known = not source.data or seen == is_now
    edited = await _in_time(partial(_edited, source, changes, known=known), len(source.data))
    before, after = source.text if stat else None, edited.result
    patch = await _in_time(partial(compare, path, before, after.text), len(source.data))
    digested = await env.files.replace(path, after.data, expect=is_now if stat else None)
    return text_outcome(
        _describe_edit(edited, short(path, env) + linked(stat), created=stat is None)
        + (OUTSIDE if seen and not known else "")
        + f"\n{excerpt(patch)}".rstrip(),
        detail=patch.json(),
        changes=(Changed(f"seen:{path}", digested),) if known else (),
    )


async def _in_time(work: Callable[[], T], size: int) -> T:
    """Do some work on a text of this size without blocking the event loop."""
    if size < LARGE:
        return work()
    return await to_thread.run_sync(work, abandon_on_cancel=True)


async def _source(path: str, stat: FileStat | None, *, env: Env) -> Decoded:
    if stat is None:
        return Decoded(b"", "", Encoding("utf-8"))
    if stat.size > LIMIT:
        raise ToolError(f"{short(path, env)} is too large for Edit; use Bash with sed or ed.")
    source = decode(await env.files.read(path))
    if source is None:
        raise ToolError(f"{short(path, env)} is not a text file and cannot be edited.")
    return source


def _edited(source: Decoded, changes: Sequence[Change], *, known: bool) -> Edited:
    """Return the source after all changes; raises `Refusal` if one of them cannot be made."""
    edited = Edited(source)
    for number, change in enumerate(changes, 1):
        try:
            edited = _step(edited, change, known=known)
        except ToolError as refusal:
            several = len(changes) > 1
            which = f"Edit {number} of {len(changes)} failed; nothing was changed: "
            raise ToolError(
                f"{which if several else ''}{refusal}{'' if known else UNREAD}"
            ) from None
    if edited.result.data == source.data:
        raise ToolError("The edits cancel each other out; nothing was changed.")
    return edited


def _step(edited: Edited, change: Change, *, known: bool) -> Edited:
    made = plan(edited.result.text, change, forgiving=known)
    try:
        result = splice(edited.result, made.splices)
    except UnicodeEncodeError as error:
        encoding, bad = edited.result.encoding, error.object[error.start : error.end]
        words = f"The file is {encoding.label}, which cannot encode {bad!r}; use other characters"
        raise ToolError(f"{words} or convert the file first (Bash: iconv).") from error
    forgiven = (FORGIVEN[made.how],) if made.how in FORGIVEN else ()
    return Edited(result, edited.places + len(made.splices), edited.forgiven + forgiven)


def _describe_edit(edited: Edited, name: str, *, created: bool) -> str:
    places = f" in {edited.places} places" if edited.places > 1 else ""
    forgiven = "".join(dict.fromkeys(edited.forgiven))
    return f"{'Created' if created else 'Edited'} {name}{places}.{forgiven}"


EDIT = Tool(
    name="Edit",
    description=(
        "Replace old_string, quoted exactly from the file without line numbers, with new_string. "
        "It must be unique unless replace_all is set. An empty old_string creates the file."
    ),
    args=EditArgs,
    access=lambda args, here: writes(args.file_path, here),
    run=_edit,
    summary=lambda args: f"Edit {plain(args.file_path)}",
)
MULTI_EDIT = Tool(
    name="MultiEdit",
    description="Apply several edits to one file in order: all or none.",
    args=MultiEditArgs,
    access=lambda args, here: writes(args.file_path, here),
    run=_multi_edit,
    summary=lambda args: f"Edit {plain(args.file_path)} in {len(args.edits)} places",
    deferred=True,
)


# Write: a whole file at once.


class WriteArgs(msgspec.Struct, frozen=True):
    """A file and what it shall hold."""

    file_path: str
    content: str


async def _write(args: WriteArgs, env: Env, call: str) -> ToolOutcome:
    path = absolute(args.file_path, env.cwd)
    async with env.files.queue(path):
        try:
            return await _put(path, args.content, env=env)
        except StaleFile as stale:
            raise ToolError(
                f"{short(path, env)} was changed by another program just now; nothing was written. "
                "Read it again first."
            ) from stale


async def _put(path: str, content: str, *, env: Env) -> ToolOutcome:
    stat = await env.files.stat(path)
    if stat is None:
        digested = await env.files.replace(path, content.encode(), expect=None)
        return _describe_write(compare(path, None, content), short(path, env), digested=digested)
    stat = await existing(path, env)
    data = await env.files.read(path, limit=LIMIT)
    _check(path, content_digest(data) if len(data) < LIMIT else "", known=not data, env=env)
    old = decode(data)
    made, kept = _encoded(content, old)
    digested = await env.files.replace(path, made, expect=content_digest(data))
    patch = compare(path, old.text if old else "", content)
    return _describe_write(patch, short(path, env) + linked(stat) + kept, digested=digested)


def _check(path: str, is_now: str, *, known: bool, env: Env) -> None:
    seen = env.state.get(f"seen:{path}")
    if known or seen == is_now:
        return
    why = "has changed since you read it" if seen else "exists and you have not read it"
    advice = "Read it first, so that nothing is lost; to change part of it, use Edit."
    raise ToolError(f"{short(path, env)} {why}; nothing was written. {advice}")


def _encoded(content: str, old: Decoded | None) -> tuple[bytes, str]:
    """Return the content as the old file would hold it, and a remark on that."""
    encoding = Encoding(old.encoding.codec, old.encoding.bom) if old else Encoding("utf-8")
    kinds = endings(old.text) if old else []
    remark = encoding.label
    if len(kinds) == 1 and kinds != ["\n"] and "\r" not in content:
        content = content.replace("\n", kinds[0])
        remark += " CRLF" if kinds == ["\r\n"] else " CR"
    try:
        data = encoding.bom + encoding.encode(content)
    except UnicodeEncodeError:
        return content.encode(), f" (as UTF-8; it was {encoding.label})"
    return data, f" (kept {remark.strip()})" if remark else ""


def _describe_write(patch: Patch, name: str, *, digested: str) -> ToolOutcome:
    lines = f"{patch.added} lines" if patch.type == "create" else f"+{patch.added} -{patch.removed}"
    return text_outcome(
        f"{'Created' if patch.type == 'create' else 'Wrote'} {name}: {lines}.",
        detail=patch.json(),
        changes=(Changed(f"seen:{patch.file_path}", digested),),
    )


WRITE = Tool(
    name="Write",
    description=(
        "Create a file and its folders, or replace a whole file. Read an existing file first. "
        "Prefer Edit for changes."
    ),
    args=WriteArgs,
    access=lambda args, here: writes(args.file_path, here),
    run=_write,
    summary=lambda args: f"Write {plain(args.file_path)} ({len(args.content)} characters)",
)
