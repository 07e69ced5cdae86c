"""Sessions of Claude Code: a tree of JSONL lines, of which the last branch counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from travois.compat.foreign_agent import CLAUDE
from travois.compat.sessions.format import (
    WHOLE,
    Compaction,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    call,
    content,
    inner,
    lines,
    moment,
    number,
    objects,
    sessions,
    shortened,
    string,
    texts,
    told,
)

NAME, RESUME = CLAUDE.name, CLAUDE.resume
NAMES = ("customTitle", "aiTitle", "summary")
SYNTHETIC = "<synthetic>"
"""Who says what the harness puts into the model's mouth, such as that a request failed."""


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield all sessions, in no order; those of its sub-agents are part of them."""
    return (
        one
        for one in sessions(CLAUDE, CLAUDE.home(environ))
        if not one.path.name.startswith("agent-")
    )


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Return the last branch of a session."""
    alive, story = _branch(path), _Story(longest)
    cwd, names = "", dict.fromkeys(NAMES, "")
    for record in lines(path):
        names |= {key: string(record, key) for key in NAMES if string(record, key)}
        cwd = cwd or string(record, "cwd")
        if string(record, "uuid") in alive:
            story.take(record)
    shorter, model = story.compactions, story.model
    return told(
        NAME, path, turns=story.turns, cwd=cwd, names=names.values(), shorter=shorter, model=model
    )


class _Story:
    """A reader of the lines of one branch.

    The parts of one reply are lines of their own, and the answer to one call may stand before the
    next call of the same reply: these are told together.
    """

    def __init__(self, longest: int) -> None:
        self.turns: list[Spoken] = []
        self.compactions: list[Compaction] = []
        self.model = ""
        self._longest = longest
        self._places: dict[str, int] = {}
        """The number of turns before each line."""
        self._boundary: Json = {}
        self._reply, self._end = "", 0
        """The last reply, and where its turns end."""

    def take(self, record: Json) -> None:
        """Add one line."""
        message, spoken = inner(record, "message"), [*shortened(_spoken(record), self._longest)]
        self._places[string(record, "uuid")] = len(self.turns)
        if string(record, "subtype") == "compact_boundary":
            self._boundary, self._reply = inner(record, "compactMetadata"), ""
        if record.get("isCompactSummary") is True:
            self._compact(texts(message.get("content")))
        if string(record, "type") != "assistant" or not spoken or spoken[0].who != "model":
            self.turns += spoken
            return
        if not self._reply or string(message, "id") != self._reply:
            self._reply, self._end = string(message, "id"), len(self.turns)
        self.turns[self._end : self._end] = spoken
        self._end += len(spoken)
        self.model = string(message, "model") or self.model

    def _compact(self, summary: str) -> None:
        """A summary begins here; lines that its boundary names stay."""
        named = inner(self._boundary, "preservedMessages").get("uuids")
        ids = [str(id) for id in cast("list[object]", named)] if isinstance(named, list) else []
        first = string(inner(self._boundary, "preservedSegment"), "headUuid")
        places = [self._places[id] for id in (*ids, first) if id in self._places]
        at, size = len(self.turns), number(self._boundary, "preTokens")
        self.compactions.append(Compaction(at, summary, at - min(places, default=at), size))


def _branch(path: Path) -> set[str]:
    """Return the lines of the branch that ends last.

    Calls that ran side by side are lines of their own, and so are their results: what hangs on a
    reply of the branch belongs to it.
    """
    parents: dict[str, str] = {}
    beside: dict[str, str] = {}
    last = ""
    for record in lines(path):
        id = string(record, "uuid")
        if not id or record.get("isSidechain") is True:
            continue
        parent = string(record, "parentUuid") or string(record, "logicalParentUuid")
        boundary = string(record, "subtype") == "compact_boundary"
        lost = parent not in parents and (bool(parent) or boundary)
        parents[id] = last if lost else parent
        if source := _beside(record):
            beside[id] = source
        last = id
    alive: set[str] = set()
    while last and last not in alive:
        alive.add(last)
        last = parents.get(last, "")
    replies = {source for id, source in beside.items() if id in alive}
    alive |= {id for id, source in beside.items() if source in replies}
    return alive | {id for id, source in beside.items() if source in alive}


def _beside(record: Json) -> str:
    """Return the reply that a line is a part of, or the line whose call it answers."""
    message = inner(record, "message")
    if string(record, "type") == "assistant":
        return string(message, "id")
    answers = any(string(block, "type") == "tool_result" for block in objects(message, "content"))
    asked_by = string(record, "sourceToolAssistantUUID") or string(record, "parentUuid")
    return asked_by if answers else ""


def _spoken(record: Json) -> Iterator[Spoken]:
    message, at = inner(record, "message"), moment(record.get("timestamp"))
    blocks, kind = objects(message, "content"), string(record, "type")
    text, shown = content(message.get("content"))
    if kind == "assistant" and string(message, "model") == SYNTHETIC:
        if text:
            yield Spoken("note", text, at)
    elif kind == "assistant":
        used = (block for block in blocks if string(block, "type") == "tool_use")
        calls = tuple(call(block, "input") for block in used)
        if text or calls:
            yield Spoken("model", text, at, calls)
    elif kind == "user":
        for block in blocks:
            if string(block, "type") == "tool_result":
                yield _answer(block, at)
        meta = any(record.get(mark) is True for mark in ("isMeta", "isCompactSummary"))
        if text or shown:
            yield Spoken("note" if meta else asked(text), text, at, pictures=shown)


def _answer(block: Json, at: float) -> Spoken:
    text, shown = content(block.get("content"))
    id, error = string(block, "tool_use_id"), block.get("is_error") is True
    return Spoken("tool", text, at, answers=id, error=error, pictures=shown)
