"""Sessions of opencode."""

from __future__ import annotations

from pathlib import Path

from tests.compat.sessions.writing import TALK, Line, opencode_database, opencode_files, put
from travois.compat.sessions.format import (
    RecordedCompaction,
    RecordedMedia,
    RecordedSession,
    RecordedTurn,
    SessionFile,
)
from travois.compat.sessions.opencode import find_sessions, read_session

SAID = (
    TALK[0],
    RecordedTurn("model", "Let me look.", 1001.0),
    RecordedTurn("model", "", 1001.0, TALK[1].calls),
    RecordedTurn("tool", "no such file", 1001.0, answers="c1", error=True),
    TALK[3],
)


def test_both_forms_of_a_session_say_the_same(tmp_path: Path) -> None:
    for path in (opencode_files(tmp_path / "a", TALK), opencode_database(tmp_path / "b", TALK)):
        expected = RecordedSession("opencode", "ses_1", path, "/w", 1003.0, "Caching", SAID)
        assert read_session(path) == expected


def test_sessions_of_a_database_are_found_once_and_without_their_children(tmp_path: Path) -> None:
    opencode_files(tmp_path, TALK)
    path = opencode_database(tmp_path, TALK)
    assert list(find_sessions({"XDG_DATA_HOME": str(tmp_path)})) == [
        SessionFile("opencode", path, "7", 0.007)
    ]


def test_a_word_more_changes_the_stamp_of_files(tmp_path: Path) -> None:
    opencode_files(tmp_path, TALK[:1])
    (before,) = find_sessions({"XDG_DATA_HOME": str(tmp_path)})
    opencode_files(tmp_path, TALK)
    (after,) = find_sessions({"XDG_DATA_HOME": str(tmp_path)})
    assert before.path == after.path
    assert before.stamp != after.stamp


def test_what_was_reverted_is_not_part_of_it(tmp_path: Path) -> None:
    revert = {"messageID": "msg_001"}
    assert read_session(opencode_files(tmp_path / "a", TALK, revert=revert)).turns == SAID[:1]
    assert read_session(opencode_database(tmp_path / "b", TALK, revert=revert)).turns == SAID[:1]


def test_damaged_stores_say_what_can_be_told(tmp_path: Path) -> None:
    path = opencode_files(tmp_path, TALK)
    (tmp_path / "opencode" / "storage" / "part" / "msg_002" / "prt_000.json").write_text("{")
    (tmp_path / "opencode" / "opencode.db").write_bytes(b"no database at all")
    assert [one.path for one in find_sessions({"XDG_DATA_HOME": str(tmp_path)})] == [path]
    assert read_session(path).turns == SAID[:4]
    assert read_session(tmp_path / "opencode" / "opencode.db" / "ses_1").turns == ()


def test_a_session_that_another_one_started_says_nothing_of_its_own(tmp_path: Path) -> None:
    assert read_session(opencode_files(tmp_path, TALK, parentID="ses_0")).turns == ()


def test_calls_side_by_side_summaries_and_images_are_told(tmp_path: Path) -> None:
    def tool(id: str, **state: object) -> Line:
        return {"type": "tool", "callID": id, "tool": "read", "state": {"input": {}, **state}}

    path = opencode_files(tmp_path, ())
    parts: list[list[Line]] = [
        [{"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}],
        [
            *({"type": "step-start"}, tool("a", output="of a"), tool("b", status="running")),
            *({"type": "step-finish"}, {"type": "text", "text": "Done."}),
        ],
        [{"type": "text", "text": "In short."}],
    ]
    heads: list[Line] = [
        {"role": "user"},
        {"role": "assistant", "modelID": "some-model"},
        {"role": "assistant", "summary": True},
    ]
    storage = tmp_path / "opencode" / "storage"
    for number, (head, listed) in enumerate(zip(heads, parts, strict=True)):
        put(storage / "message" / "ses_1" / f"m{number}.json", [head])
        for order, part in enumerate(listed):
            put(storage / "part" / f"m{number}" / f"p{order}.json", [part])
    found = read_session(path)
    told = [(turn.who, turn.text, *(call.id for call in turn.calls)) for turn in found.turns]
    assert told == [
        ("user", ""),
        ("model", "", "a"),
        ("model", "", "b"),
        ("tool", "of a"),
        ("model", "Done."),
    ]
    assert found.turns[0].pictures == (RecordedMedia("image/png", "AAAA"),)
    assert (found.compactions, found.model) == ((RecordedCompaction(5, "In short."),), "some-model")
