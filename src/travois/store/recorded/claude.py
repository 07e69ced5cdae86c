"""Sessions of Claude Code: a tree of lines, of which the branch that ends last is the session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.kernel.blocks import Call
from travois.store.recorded.spoken import (
    WHOLE,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    cut,
    encoded,
    folder,
    headline,
    inner,
    latest,
    lines,
    moment,
    objects,
    stamped,
    string,
    texts,
)

NAME, RESUME = "claude", "claude --resume {id}"
NAMES = ("customTitle", "aiTitle", "summary")


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """All sessions, in no order; those of its sub-agents are part of them."""
    home = folder(environ, "CLAUDE_CONFIG_DIR", ".claude")
    for path in home.glob("projects/*/*.jsonl") if home else ():
        if not path.name.startswith("agent-") and (found := stamped(NAME, path)):
            yield found


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """The last branch of a session."""
    alive = _branch(path)
    turns: list[Spoken] = []
    cwd, names = "", dict.fromkeys(NAMES, "")
    for record in lines(path):
        names |= {key: string(record, key) for key in NAMES if string(record, key)}
        cwd = cwd or string(record, "cwd")
        if string(record, "uuid") in alive:
            turns += _spoken(record, longest)
    title = headline(turns, *names.values())
    return Recorded(NAME, path.stem, path, cwd, latest(turns), title, tuple(turns))


def _branch(path: Path) -> set[str]:
    """The lines of the branch that ends last.

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
    """The reply that a line is a part of, or the line whose call it answers."""
    message = inner(record, "message")
    if string(record, "type") == "assistant":
        return string(message, "id")
    answers = any(string(block, "type") == "tool_result" for block in objects(message, "content"))
    return string(record, "parentUuid") if answers else ""


def _spoken(record: Json, longest: int) -> Iterator[Spoken]:
    message, at = inner(record, "message"), moment(record.get("timestamp"))
    blocks, kind = objects(message, "content"), string(record, "type")
    text = cut(texts(message.get("content")), longest)
    if kind == "assistant":
        calls = tuple(_call(block) for block in blocks if string(block, "type") == "tool_use")
        if text or calls:
            yield Spoken("model", text, at, calls)
    elif kind == "user":
        for block in blocks:
            if string(block, "type") == "tool_result":
                yield _answer(block, at, longest)
        meta = any(record.get(mark) is True for mark in ("isMeta", "isCompactSummary"))
        if text:
            yield Spoken("note" if meta else asked(text), text, at)


def _call(block: Json) -> Call:
    return Call(string(block, "id"), string(block, "name"), encoded(block.get("input", {})))


def _answer(block: Json, at: float, longest: int) -> Spoken:
    text = cut(texts(block.get("content")), longest)
    error = block.get("is_error") is True
    return Spoken("tool", text, at, answers=string(block, "tool_use_id"), error=error)
