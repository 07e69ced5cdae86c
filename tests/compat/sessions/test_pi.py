"""Sessions of pi."""

from __future__ import annotations

from pathlib import Path

from tests.compat.sessions.writing import TALK, Line, put, stamp
from travois.compat.sessions.format import (
    RecordedCompaction,
    RecordedMedia,
    RecordedSession,
    RecordedTurn,
)
from travois.compat.sessions.pi import find_sessions, read_session


def entry(id: str, parent: str, at: float, **more: object) -> Line:
    return {"type": "message", "id": id, "parentId": parent, "timestamp": stamp(at), **more}


def said(role: str, *blocks: Line, **more: object) -> Line:
    return {"message": {"role": role, "content": list(blocks), **more}}


HEAD: Line = {"type": "session", "version": 3, "id": "p1", "timestamp": stamp(0), "cwd": "/w"}
CALL: Line = {
    "type": "toolCall",
    "id": "c1",
    "name": "Edit",
    "arguments": {"file_path": "/w/cache.py"},
}
LINES: list[Line] = [
    HEAD,
    entry("a", "", 1000.0, message={"role": "user", "content": "why did we drop redis"}),
    entry("b", "a", 1001.0)
    | said("assistant", {"type": "thinking"}, {"type": "text", "text": "Let me look."}, CALL)
    | {"model": "x"},
    entry("c", "b", 1002.0)
    | said("toolResult", {"type": "text", "text": "no such file"}, toolCallId="c1", isError=True),
    entry("d", "c", 1003.0) | said("assistant", {"type": "text", "text": "It lost writes."}),
]


def test_a_session_is_what_was_said_in_it(tmp_path: Path) -> None:
    path = put(tmp_path / "sessions" / "--w--" / "1_p1.jsonl", LINES)
    title = "why did we drop redis"
    assert read_session(path) == RecordedSession("pi", "p1", path, "/w", 1003.0, title, TALK)
    assert [one.path for one in find_sessions({"PI_CODING_AGENT_DIR": str(tmp_path)})] == [path]


def test_only_the_last_branch_counts_and_a_compaction_keeps_what_it_names(tmp_path: Path) -> None:
    image: Line = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    bash = {"role": "bashExecution", "command": "ls", "output": "x"}
    lines = [
        *LINES,
        entry("e", "a", 1004.0)
        | said("assistant", {"type": "text", "text": "Another."}, model="m"),
        entry("f", "e", 1005.0, message=bash),
        entry("g", "f", 1006.0, summary="In short.", firstKeptEntryId="e", tokensBefore=9)
        | {"type": "compaction"},
        entry("h", "g", 1007.0) | said("user", image),
        entry("i", "h", 1008.0, name="Caching") | {"type": "session_info"},
    ]
    found = read_session(put(tmp_path / "a.jsonl", lines))
    assert found.turns == (
        TALK[0],
        RecordedTurn("model", "Another.", 1004.0),
        RecordedTurn("note", "$ ls\nx", 1005.0),
        RecordedTurn("user", "", 1007.0, pictures=(RecordedMedia("image/png", "AAAA"),)),
    )
    assert found.compactions == (RecordedCompaction(3, "In short.", kept=2, tokens=9),)
    assert (found.title, found.model) == ("Caching", "m")
