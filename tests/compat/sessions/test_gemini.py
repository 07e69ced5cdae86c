"""Sessions of Gemini CLI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.sessions.writing import TALK, Line, gemini, put
from travois.compat.sessions.format import RecordedSession, RecordedTurn
from travois.compat.sessions.gemini import find_sessions, read_session

ABOUT: Line = {"sessionId": "g-1", "projectHash": "h", "kind": "main"}
SAID = (
    TALK[0],
    TALK[1],
    RecordedTurn("tool", "no such file", 1001.0, answers="c1", error=True),
    TALK[3],
)


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    folder = tmp_path / ".gemini" / "tmp" / "work" / "chats"
    folder.mkdir(parents=True)
    (folder.parent / ".project_root").write_text("/w\n")
    return folder


def test_both_forms_of_a_session_say_the_same(chats: Path) -> None:
    title = "why did we drop redis"
    document = put(chats / "session-1.json", [ABOUT | {"messages": gemini(TALK)}])
    assert read_session(document) == RecordedSession(
        "gemini", "g-1", document, "/w", 1003.0, title, SAID
    )
    lines = put(chats / "session-2.jsonl", [ABOUT, *gemini(TALK)])
    assert read_session(lines) == RecordedSession("gemini", "g-1", lines, "/w", 1003.0, title, SAID)


def test_a_session_that_changed_its_form_is_found_once(chats: Path) -> None:
    put(chats / "session-1.json", [ABOUT])
    later = put(chats / "session-1.jsonl", [ABOUT])
    earlier = put(chats / "session-0.json", [ABOUT])
    put(chats / "session-9.json.bak", [ABOUT])
    found = find_sessions({"GEMINI_CLI_HOME": str(chats.parents[3])})
    assert sorted(one.path for one in found) == [earlier, later]


def test_a_message_that_is_written_again_replaces_itself(chats: Path) -> None:
    first, *rest = gemini(TALK)
    path = put(chats / "session-1.jsonl", [ABOUT, first | {"content": "why"}, first, *rest])
    assert read_session(path).turns == SAID


def test_what_was_rewound_is_not_part_of_it(chats: Path) -> None:
    more = {"id": "x", "type": "user", "content": [{"text": "and memcached?"}]}
    lines = [ABOUT, *gemini(TALK), more, {"$rewindTo": "x"}, {"$set": {"summary": "Caching"}}]
    found = read_session(put(chats / "session-1.jsonl", lines))
    assert (found.title, found.turns) == ("Caching", SAID)
    assert read_session(put(chats / "session-1.jsonl", [*lines, {"$rewindTo": "gone"}])).turns == ()


def test_damaged_files_say_what_can_be_told(chats: Path) -> None:
    path = put(chats / "session-1.jsonl", [ABOUT, *gemini(TALK), {"id": "i", "type": "info"}])
    path.write_bytes(path.read_bytes() + b'{"id": "torn')
    assert read_session(path).turns == SAID
    (chats / "session-2.json").write_bytes(b'{"sessionId": "g-2", "messages": [{')
    assert read_session(chats / "session-2.json").turns == ()


def test_a_session_that_another_one_started_says_nothing_of_its_own(chats: Path) -> None:
    path = put(chats / "session-1.jsonl", [ABOUT | {"kind": "subagent"}, *gemini(TALK)])
    assert read_session(path).turns == ()
