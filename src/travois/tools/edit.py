"""Edit, MultiEdit and Write: changing text files.

A file that the model has not read may be edited where `old_string` occurs in it exactly: who can
quote a text knows it. A file that has changed since the model read it is edited as it is now, under
the same condition, and the model is told. Neither counts as having read the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal, TypeVar

import anyio
import msgspec
from anyio import to_thread

from travois.core.display_text import escape_path
from travois.core.facts import Changed
from travois.core.patterns import compile_lazily
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, FileStat, StaleFile, content_digest
from travois.tools.diff import FilePatch, compare_texts, render_excerpt
from travois.tools.paths import (
    absolute_path,
    describe_link,
    display_path,
    require_file,
    write_access,
)
from travois.tools.text import (
    DecodedText,
    TextEncoding,
    TextSplice,
    apply_splices,
    decode_text,
    flatten_line_ends,
    line_ending_near,
    line_endings,
    line_number,
)
from travois.tools.text_match import (
    TextMatch,
    TextMatches,
    describe_nearest_lines,
    drop_overlaps,
    find_text,
    render_replacement,
)

# One text for another in a file's text: what it means, and why it may not be done.


MAX_LISTED_PLACES = 20
LINE_NUMBER_PATTERN = compile_lazily(r"\s*\d+\t")


class Change(msgspec.Struct, frozen=True):
    """A text to find, and its replacement."""

    old_string: str
    new_string: str
    replace_all: bool = False


class EditPlan(msgspec.Struct, frozen=True):
    """The splices of an edit, and how closely the text matched."""

    splices: tuple[TextSplice, ...]
    how: Literal["exact", "folded", "lines"] = "exact"


def plan_edit(text: str, change: Change, *, forgiving: bool) -> EditPlan:
    """Plan one change of an Edit call; raises `ToolError` if it is ambiguous."""
    if change.old_string == change.new_string:
        raise ToolError("old_string and new_string are the same, so there is nothing to change.")
    if not change.old_string:
        return _plan_new_text(text, change)
    if flatten_line_ends(change.old_string).text == flatten_line_ends(change.new_string).text:
        return _plan_line_end_change(text, change)
    found = find_text(text, change.old_string)
    if not found.matches or not (forgiving or found.how == "exact"):
        numbered = " Omit the line numbers." if LINE_NUMBER_PATTERN.match(change.old_string) else ""
        advice = describe_nearest_lines(text, change.old_string)
        raise ToolError(f"old_string is not in the file.{numbered} {advice}")
    return EditPlan(_build_splices(text, change, _choose_matches(text, change, found)), found.how)


def _plan_new_text(text: str, change: Change) -> EditPlan:
    """Plan an Edit call with an empty old_string, which only fills an empty file."""
    if text:
        raise ToolError(
            "old_string is empty, which only works for an empty or missing file. "
            "Quote the text to replace, or use Write to replace the whole file."
        )
    return EditPlan((TextSplice(0, 0, change.new_string),))


def _plan_line_end_change(text: str, change: Change) -> EditPlan:
    """Plan an Edit call that changes nothing but line endings, matched exactly."""
    matches, at = list[TextMatch](), text.find(change.old_string)
    while at >= 0:
        matches.append(TextMatch(at, at + len(change.old_string)))
        at = text.find(change.old_string, matches[-1].end)
    if not matches:
        raise ToolError("old_string is not in the file with these line endings.")
    chosen = _choose_matches(text, change, TextMatches(tuple(matches), "exact"))
    return EditPlan(
        tuple(TextSplice(match.start, match.end, change.new_string) for match in chosen)
    )


def _choose_matches(text: str, change: Change, found: TextMatches) -> list[TextMatch]:
    """Choose the places that an Edit call replaces, or refuse if old_string is ambiguous."""
    if len(found.matches) == 1:
        return list(found.matches)
    if change.replace_all and found.how == "exact":
        return drop_overlaps(found.matches)
    numbers = [line_number(text, match.start) for match in found.matches[:MAX_LISTED_PLACES]]
    places = ", ".join(map(str, numbers)) + (
        ", ..." if len(found.matches) > MAX_LISTED_PLACES else ""
    )
    if found.how == "exact":
        advice = "Include surrounding lines to make it unique, or set replace_all."
        raise ToolError(f"old_string occurs {len(found.matches)} times (lines {places}). {advice}")
    raise ToolError(
        f"old_string is not in the file exactly, and {len(found.matches)} places are similar "
        f"(lines {places}). Quote the one you mean exactly, with surrounding lines."
    )


def _build_splices(text: str, change: Change, matches: list[TextMatch]) -> tuple[TextSplice, ...]:
    """Build the replacements of an edit with the indentation and line ending of each place."""
    kinds = line_endings(text) or ["\n"]
    made = list[TextSplice]()
    for match in matches:
        ending = kinds[0]
        if len(kinds) > 1:
            ending = line_ending_near(text, match.start, match.end, usual=kinds[0])
        new = render_replacement(
            text, match, old=change.old_string, new=change.new_string, ending=ending
        )
        if new is None:
            raise ToolError(
                "old_string matches only with less indentation, and a line of new_string has too "
                "little to remove. Use the file's own indentation in both."
            )
        made.append(TextSplice(match.start, match.end, new))
    return tuple(made)


MAX_EDIT_ATTEMPTS = 30
MAX_EDITED_FILE_BYTES = 50_000_000
THREAD_TEXT_BYTES = 500_000
WorkT = TypeVar("WorkT")
LENIENT_MATCH_NOTES = {
    "folded": " Matched despite different quotes, dashes or spaces; the file's own were kept.",
    "lines": " Matched despite different indentation or trailing spaces; new_string was adjusted.",
}
CHANGED_OUTSIDE_NOTE = (
    " The file had changed since you read it; the edit was applied to its current content. "
    "Read it again before you rely on the rest."
)
UNREAD_NOTE = " You have not read the file in its current state: Read it first."


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


class EditedText(msgspec.Struct, frozen=True):
    """A text after some changes, with the number of places and any lenient matches."""

    result: DecodedText
    places: int = 0
    forgiven: tuple[str, ...] = ()


async def _run_edit(args: EditArgs, env: Env, call: str) -> ToolOutcome:
    change = Change(args.old_string, args.new_string, args.replace_all)
    return await _edit_file(args.file_path, (change,), env=env)


async def _run_multi_edit(args: MultiEditArgs, env: Env, call: str) -> ToolOutcome:
    return await _edit_file(args.file_path, args.edits, env=env)


async def _edit_file(path: str, changes: Sequence[Change], *, env: Env) -> ToolOutcome:
    """Edit a file, and try again if another program changes it meanwhile."""
    full = absolute_path(path, env.cwd)
    async with env.files.queue(full):
        for attempt in range(MAX_EDIT_ATTEMPTS):
            try:
                return await _try_edit(full, changes, env=env)
            except StaleFile:
                await anyio.sleep(attempt * 0.002)
    raise ToolError(
        f"Another program keeps changing {display_path(full, env)}; your edit was not made."
    )


async def _try_edit(path: str, changes: Sequence[Change], *, env: Env) -> ToolOutcome:
    """Read, change and write a file once for Edit and MultiEdit, and describe the outcome."""
    stat = await env.files.stat(path)
    if stat is not None or changes[0].old_string:
        stat = await require_file(path, env)
    source = await _read_edit_source(path, stat, env=env)
    seen, is_now = env.state.get(f"seen:{path}"), content_digest(source.data)
    known = not source.data or seen == is_now
    edited = await _run_in_thread(
        partial(_apply_changes, source, changes, known=known), len(source.data)
    )
    before, after = source.text if stat else None, edited.result
    patch = await _run_in_thread(partial(compare_texts, path, before, after.text), len(source.data))
    digested = await env.files.replace(path, after.data, expect=is_now if stat else None)
    return text_outcome(
        _describe_edit(edited, display_path(path, env) + describe_link(stat), created=stat is None)
        + (CHANGED_OUTSIDE_NOTE if seen and not known else "")
        + f"\n{render_excerpt(patch)}".rstrip(),
        detail=patch.json(),
        changes=(Changed(f"seen:{path}", digested),) if known else (),
    )


async def _run_in_thread(work: Callable[[], WorkT], size: int) -> WorkT:
    """Run work on a large text in a thread, so that it does not block the event loop."""
    if size < THREAD_TEXT_BYTES:
        return work()
    return await to_thread.run_sync(work, abandon_on_cancel=True)


async def _read_edit_source(path: str, stat: FileStat | None, *, env: Env) -> DecodedText:
    """Read and decode the file to edit; refuse binary and very large files."""
    if stat is None:
        return DecodedText(b"", "", TextEncoding("utf-8"))
    if stat.size > MAX_EDITED_FILE_BYTES:
        raise ToolError(
            f"{display_path(path, env)} is too large for Edit; use Bash with sed or ed."
        )
    source = decode_text(await env.files.read(path))
    if source is None:
        raise ToolError(f"{display_path(path, env)} is not a text file and cannot be edited.")
    return source


def _apply_changes(source: DecodedText, changes: Sequence[Change], *, known: bool) -> EditedText:
    """Apply all changes of an Edit call; raises `ToolError` if one of them does not fit."""
    edited = EditedText(source)
    for number, change in enumerate(changes, 1):
        try:
            edited = _apply_change(edited, change, known=known)
        except ToolError as refusal:
            several = len(changes) > 1
            which = f"Edit {number} of {len(changes)} failed; nothing was changed: "
            raise ToolError(
                f"{which if several else ''}{refusal}{'' if known else UNREAD_NOTE}"
            ) from None
    if edited.result.data == source.data:
        raise ToolError("The edits cancel each other out; nothing was changed.")
    return edited


def _apply_change(edited: EditedText, change: Change, *, known: bool) -> EditedText:
    """Apply one change of Edit or MultiEdit to the text, noting a lenient match."""
    made = plan_edit(edited.result.text, change, forgiving=known)
    try:
        result = apply_splices(edited.result, made.splices)
    except UnicodeEncodeError as error:
        encoding, bad = edited.result.encoding, error.object[error.start : error.end]
        words = f"The file is {encoding.label}, which cannot encode {bad!r}; use other characters"
        raise ToolError(f"{words} or convert the file first (Bash: iconv).") from error
    forgiven = (LENIENT_MATCH_NOTES[made.how],) if made.how in LENIENT_MATCH_NOTES else ()
    return EditedText(result, edited.places + len(made.splices), edited.forgiven + forgiven)


def _describe_edit(edited: EditedText, name: str, *, created: bool) -> str:
    """Describe a finished edit: file name, number of places, and lenient matches."""
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
    access=lambda args, here: write_access(args.file_path, here),
    run=_run_edit,
    summary=lambda args: f"Edit {escape_path(args.file_path)}",
)
MULTI_EDIT = Tool(
    name="MultiEdit",
    description="Apply several edits to one file in order: all or none.",
    args=MultiEditArgs,
    access=lambda args, here: write_access(args.file_path, here),
    run=_run_multi_edit,
    summary=lambda args: f"Edit {escape_path(args.file_path)} in {len(args.edits)} places",
    deferred=True,
)


# Write: a whole file at once.


class WriteArgs(msgspec.Struct, frozen=True):
    """A file and its new content."""

    file_path: str
    content: str


async def _run_write(args: WriteArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Write tool: create or overwrite a file, unless another program changes it."""
    path = absolute_path(args.file_path, env.cwd)
    async with env.files.queue(path):
        try:
            return await _write_file(path, args.content, env=env)
        except StaleFile as stale:
            raise ToolError(
                f"{display_path(path, env)} was changed by another program just now; "
                "nothing was written. Read it again first."
            ) from stale


async def _write_file(path: str, content: str, *, env: Env) -> ToolOutcome:
    """Write a whole file in its previous encoding, if the model has read what it replaces."""
    stat = await env.files.stat(path)
    if stat is None:
        digested = await env.files.replace(path, content.encode(), expect=None)
        return _describe_write(
            compare_texts(path, None, content), display_path(path, env), digested=digested
        )
    stat = await require_file(path, env)
    data = await env.files.read(path, limit=MAX_EDITED_FILE_BYTES)
    _refuse_unread_file(
        path,
        content_digest(data) if len(data) < MAX_EDITED_FILE_BYTES else "",
        known=not data,
        env=env,
    )
    old = decode_text(data)
    made, kept = _encode_like(content, old)
    digested = await env.files.replace(path, made, expect=content_digest(data))
    patch = compare_texts(path, old.text if old else "", content)
    return _describe_write(
        patch, display_path(path, env) + describe_link(stat) + kept, digested=digested
    )


def _refuse_unread_file(path: str, is_now: str, *, known: bool, env: Env) -> None:
    """Refuse to overwrite a file that was not read or has changed since it was read."""
    seen = env.state.get(f"seen:{path}")
    if known or seen == is_now:
        return
    why = "has changed since you read it" if seen else "exists and you have not read it"
    advice = "Read it first, so that nothing is lost; to change part of it, use Edit."
    raise ToolError(f"{display_path(path, env)} {why}; nothing was written. {advice}")


def _encode_like(content: str, old: DecodedText | None) -> tuple[bytes, str]:
    """Encode a written file's content like the old file, with a remark on what was kept."""
    encoding = TextEncoding(old.encoding.codec, old.encoding.bom) if old else TextEncoding("utf-8")
    kinds = line_endings(old.text) if old else []
    remark = encoding.label
    if len(kinds) == 1 and kinds != ["\n"] and "\r" not in content:
        content = content.replace("\n", kinds[0])
        remark += " CRLF" if kinds == ["\r\n"] else " CR"
    try:
        data = encoding.bom + encoding.encode(content)
    except UnicodeEncodeError:
        return content.encode(), f" (as UTF-8; it was {encoding.label})"
    return data, f" (kept {remark.strip()})" if remark else ""


def _describe_write(patch: FilePatch, name: str, *, digested: str) -> ToolOutcome:
    """Build the result of the Write tool, with line counts and the diff."""
    lines = f"{patch.added} lines" if patch.type == "create" else f"+{patch.added} -{patch.removed}"
    return text_outcome(
        f"{'Created' if patch.type == 'create' else 'Wrote'} {name}: {lines}.",
        detail=patch.json(),
        changes=(Changed(f"seen:{patch.file_path}", digested),),
    )


WRITE = Tool(
    name="Write",
    description=(
        "Create a file and its folders, or replace a whole file. Read an existing file first."
    ),
    args=WriteArgs,
    access=lambda args, here: write_access(args.file_path, here),
    run=_run_write,
    summary=lambda args: f"Write {escape_path(args.file_path)}",
)


# What a call would change, for a person to see before it runs.


def preview_change(tool: str, args: str, *, path: str, data: bytes | None) -> FilePatch | None:
    """Preview what Edit, MultiEdit or Write would make of a file; None if it is not a text.

    `data` is None where there is no file. Raises `ToolError` if the edit does not fit.
    """
    source = decode_text(data) if data is not None else DecodedText(b"", "", TextEncoding("utf-8"))
    if source is None:
        return None
    before = None if data is None else source.text
    if tool == "Write":
        return compare_texts(path, before, msgspec.json.decode(args, type=WriteArgs).content)
    if tool == "Edit":
        one = msgspec.json.decode(args, type=EditArgs, strict=False)
        changes = (Change(one.old_string, one.new_string, one.replace_all),)
    else:
        changes = msgspec.json.decode(args, type=MultiEditArgs, strict=False).edits
    return compare_texts(path, before, _apply_changes(source, changes, known=True).result.text)
