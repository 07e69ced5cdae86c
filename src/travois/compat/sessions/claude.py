"""Sessions of Claude Code: a tree of JSONL lines, of which the last branch counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import msgspec

from travois.compat.claude_transcript import VIEW_MARK
from travois.compat.foreign_agent import CLAUDE
from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedCompaction,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    build_recorded_session,
    classify_user_text,
    find_session_files,
    int_at,
    join_texts,
    object_at,
    objects_at,
    parse_recorded_call,
    parse_timestamp,
    read_json_lines,
    shorten_turns,
    split_content,
    string_at,
)

CLAUDE_AGENT, RESUME = CLAUDE.name, CLAUDE.resume
TITLE_KEYS = ("customTitle", "aiTitle", "summary")
VIEW_MARK_TEXT = msgspec.json.encode(VIEW_MARK).strip(b"{}")
MAX_MARK_BYTES = 2_000
"""In how many bytes of a file its first line says who wrote it."""
SYNTHETIC_MODEL = "<synthetic>"
"""Who says what the harness puts into the model's mouth, such as that a request failed."""


def find_sessions(environ: Mapping[str, str]) -> Iterator[SessionFile]:
    """Yield all Claude Code sessions, in no order; those of subagents are part of them."""
    return (
        one
        for one in find_session_files(CLAUDE, CLAUDE.find_home(environ))
        if not one.path.name.startswith("agent-") and not _is_view_of_ours(one.path)
    )


def _is_view_of_ours(path: Path) -> bool:
    """Return whether a file is a view of a session of ours, for clients of Claude Code."""
    with path.open("rb") as file:
        return VIEW_MARK_TEXT in file.read(MAX_MARK_BYTES)


def read_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read the last branch of a Claude Code session."""
    alive, story = _last_branch_ids(path), _BranchReader(longest)
    cwd, names = "", dict.fromkeys(TITLE_KEYS, "")
    for record in read_json_lines(path):
        names |= {key: string_at(record, key) for key in TITLE_KEYS if string_at(record, key)}
        cwd = cwd or string_at(record, "cwd")
        if string_at(record, "uuid") in alive:
            story.add_line(record)
    shorter, model = story.compactions, story.model
    return build_recorded_session(
        CLAUDE_AGENT,
        path,
        turns=story.turns,
        cwd=cwd,
        names=names.values(),
        shorter=shorter,
        model=model,
    )


class _BranchReader:
    """A reader of the lines of one branch.

    The parts of one reply are lines of their own, and the answer to one call may stand before the
    next call of the same reply: these are told together.
    """

    def __init__(self, longest: int) -> None:
        self.turns: list[RecordedTurn] = []
        self.compactions: list[RecordedCompaction] = []
        self.model = ""
        self._longest = longest
        self._places: dict[str, int] = {}
        """The number of turns before each line."""
        self._boundary: Json = {}
        self._reply, self._end = "", 0
        """The last reply, and where its turns end."""

    def add_line(self, record: Json) -> None:
        """Add one line."""
        message, spoken = (
            object_at(record, "message"),
            [*shorten_turns(_parse_claude_turns(record), self._longest)],
        )
        self._places[string_at(record, "uuid")] = len(self.turns)
        if string_at(record, "subtype") == "compact_boundary":
            self._boundary, self._reply = object_at(record, "compactMetadata"), ""
        if record.get("isCompactSummary") is True:
            self._add_compaction(join_texts(message.get("content")))
        if string_at(record, "type") != "assistant" or not spoken or spoken[0].who != "model":
            self.turns += spoken
            return
        if not self._reply or string_at(message, "id") != self._reply:
            self._reply, self._end = string_at(message, "id"), len(self.turns)
        self.turns[self._end : self._end] = spoken
        self._end += len(spoken)
        self.model = string_at(message, "model") or self.model

    def _add_compaction(self, summary: str) -> None:
        """A summary begins here; lines that its boundary names stay."""
        named = object_at(self._boundary, "preservedMessages").get("uuids")
        ids = [str(id) for id in cast("list[object]", named)] if isinstance(named, list) else []
        first = string_at(object_at(self._boundary, "preservedSegment"), "headUuid")
        places = [self._places[id] for id in (*ids, first) if id in self._places]
        at, size = len(self.turns), int_at(self._boundary, "preTokens")
        self.compactions.append(RecordedCompaction(at, summary, at - min(places, default=at), size))


def _last_branch_ids(path: Path) -> set[str]:
    """Return the lines of a Claude Code session's last branch.

    Parallel calls are lines of their own, and so are their results: what is attached to a reply of
    the branch belongs to it.
    """
    parents: dict[str, str] = {}
    beside: dict[str, str] = {}
    last = ""
    for record in read_json_lines(path):
        id = string_at(record, "uuid")
        if not id or record.get("isSidechain") is True:
            continue
        parent = string_at(record, "parentUuid") or string_at(record, "logicalParentUuid")
        boundary = string_at(record, "subtype") == "compact_boundary"
        lost = parent not in parents and (bool(parent) or boundary)
        parents[id] = last if lost else parent
        if source := _owning_reply(record):
            beside[id] = source
        last = id
    alive: set[str] = set()
    while last and last not in alive:
        alive.add(last)
        last = parents.get(last, "")
    replies = {source for id, source in beside.items() if id in alive}
    alive |= {id for id, source in beside.items() if source in replies}
    return alive | {id for id, source in beside.items() if source in alive}


def _owning_reply(record: Json) -> str:
    """Return the reply that a Claude Code session line is part of, or whose call it answers."""
    message = object_at(record, "message")
    if string_at(record, "type") == "assistant":
        return string_at(message, "id")
    answers = any(
        string_at(block, "type") == "tool_result" for block in objects_at(message, "content")
    )
    asked_by = string_at(record, "sourceToolAssistantUUID") or string_at(record, "parentUuid")
    return asked_by if answers else ""


def _parse_claude_turns(record: Json) -> Iterator[RecordedTurn]:
    """Yield the turns in one line of a Claude Code session."""
    message, at = object_at(record, "message"), parse_timestamp(record.get("timestamp"))
    blocks, kind = objects_at(message, "content"), string_at(record, "type")
    text, shown = split_content(message.get("content"))
    if kind == "assistant" and string_at(message, "model") == SYNTHETIC_MODEL:
        if text:
            yield RecordedTurn("note", text, at)
    elif kind == "assistant":
        used = (block for block in blocks if string_at(block, "type") == "tool_use")
        calls = tuple(parse_recorded_call(block, "input") for block in used)
        if text or calls:
            yield RecordedTurn("model", text, at, calls)
    elif kind == "user":
        for block in blocks:
            if string_at(block, "type") == "tool_result":
                yield _parse_tool_result(block, at)
        meta = any(record.get(mark) is True for mark in ("isMeta", "isCompactSummary"))
        if text or shown:
            yield RecordedTurn(
                "note" if meta else classify_user_text(text), text, at, pictures=shown
            )


def _parse_tool_result(block: Json, at: float) -> RecordedTurn:
    """Parse a tool result block of a Claude Code session into a turn."""
    text, shown = split_content(block.get("content"))
    id, error = string_at(block, "tool_use_id"), block.get("is_error") is True
    return RecordedTurn("tool", text, at, answers=id, error=error, pictures=shown)
