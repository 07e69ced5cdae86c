"""Detection of files that the model just changed but whose text it no longer sees.

Model sees: what is missing of such a file, as `restore` shows it, at the tail.
Tokens: the room that the caller gives, once for each file until the next compaction.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from travois.context.compaction.cut import is_summary
from travois.context.compaction.passages import file_name
from travois.context.ledger.extractors import (
    ActionKind,
    ToolAction,
    classify_tool,
    decode_arguments,
)
from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.view import CLEARED_RESULT, View

SHOWING_KINDS: tuple[ActionKind, ...] = ("read", "write")
"""Calls that show the text of a file."""
PAGE_CONTINUES = re.compile(r"; continue with offset=(\d+)\]\s*$")
"""The end of a Read result that had no room for more."""
PAGE_END_CHARS = 200
"""The last characters in which this end is looked for."""


def find_next_page_line(text: str) -> int:
    """Return the line at which a Read page stopped for lack of room; 0 if it did not."""
    found = PAGE_CONTINUES.search(text, max(0, len(text) - PAGE_END_CHARS))
    return int(found[1]) if found else 0


def list_note_texts(view: View) -> list[str]:
    """Return the texts of harness notes in the conversation, without summaries."""
    facts = [item.fact for item in view.items if not is_summary(item)]
    return [extract_text(f.content) for f in facts if isinstance(f, User) and f.origin == "note"]


def list_edited_paths(view: View) -> list[str]:
    """Return the files that the last reply changed in part."""
    reply = view.items[view.replied].fact if view.replied >= 0 else None
    asked = extract_calls(reply.content) if isinstance(reply, Assistant) else ()
    failed = {
        item.fact.call
        for item in view.items[view.replied + 1 :]
        if isinstance(item.fact, Result) and item.fact.error
    }
    paths = (_path_of_call(call, ("edit",)) for call in asked if call.id not in failed)
    return list(dict.fromkeys(filter(None, paths)))


def is_file_in_sight(view: View, path: str) -> bool:
    """Return whether the last result that showed a file still stands there, to its end."""
    last = next(
        (
            call
            for call in _newest_calls_naming(view, file_name(path))
            if _path_of_call(call, SHOWING_KINDS) == path
        ),
        None,
    )
    if last is None or last.id in view.cleared:
        return False
    if classify_tool(last.name, decode_arguments(last.args)) == "write":
        return last.id not in view.cleared_inputs
    shown = next(
        (i.fact for i in view.items if isinstance(i.fact, Result) and i.fact.call == last.id), None
    )
    text = extract_text(shown.content) if shown else ""
    return bool(text) and not text.startswith(CLEARED_RESULT) and not find_next_page_line(text)


def _newest_calls_naming(view: View, name: str) -> Iterator[Call]:
    """Yield the visible calls that name a file, newest first."""
    for item in reversed(view.items):
        if isinstance(item.fact, Assistant):
            yield from (
                call for call in reversed(extract_calls(item.fact.content)) if name in call.args
            )


def _path_of_call(call: Call, kinds: tuple[ActionKind, ...]) -> str:
    """Return the file that a call of one of these kinds names; empty for other kinds."""
    args = decode_arguments(call.args)
    kind = classify_tool(call.name, args)
    return ToolAction(0, kind, call.name, args, "").path if kind in kinds else ""
