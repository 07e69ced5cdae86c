"""Sessions of Codex."""

from __future__ import annotations

from pathlib import Path

from tests.compat.sessions.writing import TALK, Line, codex, put, stamp
from travois.compat.sessions.codex import find_sessions, read_session
from travois.compat.sessions.format import (
    RecordedCompaction,
    RecordedMedia,
    RecordedSession,
    RecordedTurn,
)
from travois.core.content import Call

FAILED = RecordedTurn(
    "tool", "Process exited with code 2\nOutput:\nboom", 1002.0, answers="c1", error=True
)
SAID = (
    TALK[0],
    RecordedTurn("model", "Let me look.", 1001.0),
    RecordedTurn("model", "", 1001.0, TALK[1].calls),
    FAILED,
    TALK[3],
)
WRITTEN = (TALK[0], TALK[1], FAILED, TALK[3])


def event(**payload: object) -> Line:
    return {"type": "event_msg", "payload": payload}


def test_a_session_is_what_was_said_in_it(tmp_path: Path) -> None:
    path = put(tmp_path / "r.jsonl", codex(WRITTEN))
    title = "why did we drop redis"
    assert read_session(path) == RecordedSession(
        "codex", "thread-1", path, "/w", 1003.0, title, SAID
    )


def test_sessions_lie_by_day_and_in_the_archive(tmp_path: Path) -> None:
    day = put(tmp_path / "sessions" / "2026" / "11" / "16" / "rollout-1.jsonl", codex(TALK))
    old = put(tmp_path / "archived_sessions" / "rollout-2.jsonl", codex(TALK))
    assert [one.path for one in find_sessions({"CODEX_HOME": str(tmp_path)})] == [day, old]


def test_events_tell_nothing_twice_and_unknown_lines_nothing(tmp_path: Path) -> None:
    first, *items = codex(WRITTEN)
    odd: list[Line] = [
        event(type="user_message", message="why did we drop redis"),
        {"type": "turn_context", "payload": {"cwd": "/x"}},
        {"type": "response_item", "payload": {"type": "reasoning", "summary": []}},
        {"type": "invention", "payload": None},
    ]
    path = put(tmp_path / "r.jsonl", [first, *odd, *items, *odd])
    path.write_bytes(path.read_bytes() + b'{"type":"response_item","payl')
    assert read_session(path).turns == SAID


def test_turns_that_were_rolled_back_are_not_part_of_it(tmp_path: Path) -> None:
    more = codex([RecordedTurn("user", "and memcached?", 5.0), RecordedTurn("model", "Hm.", 6.0)])[
        1:
    ]
    back = event(type="thread_rolled_back", num_turns=1)
    assert read_session(put(tmp_path / "r.jsonl", [*codex(WRITTEN), *more, back])).turns == SAID


def test_what_the_harness_says_is_not_the_users(tmp_path: Path) -> None:
    injected = [
        RecordedTurn("user", "<environment_context>\n<cwd>/w</cwd></environment_context>", 1.0),
        RecordedTurn("user", "# AGENTS.md instructions for /w\n\nBe brief.", 2.0),
        RecordedTurn("note", "you may write", 3.0),
    ]
    turns = read_session(put(tmp_path / "r.jsonl", codex([*injected, TALK[0]]))).turns
    assert [turn.who for turn in turns] == ["note", "note", "note", "user"]


def test_patches_and_shell_calls_are_calls(tmp_path: Path) -> None:
    patch = {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": "*** x"}
    done = {
        "type": "custom_tool_call_output",
        "call_id": "p",
        "output": {"content": "no", "success": False},
    }
    shell = {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}}
    lines = [{"type": "response_item", "payload": item} for item in (patch, done, shell)]
    assert read_session(put(tmp_path / "r.jsonl", [*codex([]), *lines])).turns == (
        RecordedTurn("model", "", calls=(Call("p", "apply_patch", '{"input":"*** x"}'),)),
        RecordedTurn("tool", "no", answers="p", error=True),
        RecordedTurn("model", "", calls=(Call("s", "shell", '{"command":["ls"]}'),)),
    )


def test_sessions_of_early_versions_have_bare_items(tmp_path: Path) -> None:
    place = RecordedTurn("user", "<environment_context>\n<cwd>/w</cwd></environment_context>")
    bare = [line["payload"] for line in codex([place, *TALK])[1:]]
    path = put(tmp_path / "r.jsonl", [{"id": "old", "instructions": None}, *bare])
    found = read_session(path)
    assert (found.id, found.cwd, found.title) == ("old", "/w", "why did we drop redis")


def test_a_thread_that_another_one_started_says_nothing_of_its_own(tmp_path: Path) -> None:
    lines = codex(TALK)
    lines[0]["payload"]["source"] = {"subagent": {"thread_spawn": {"depth": 1}}}
    assert read_session(put(tmp_path / "r.jsonl", lines)).turns == ()


def test_images_and_compactions_are_told(tmp_path: Path) -> None:
    shown = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    message = {"type": "message", "role": "user", "content": [shown]}
    lines = [
        *codex(WRITTEN),
        {"type": "compacted", "payload": {"message": "In short."}},
        {"type": "compacted", "payload": {"message": "", "replacement_history": []}},
        {"type": "turn_context", "payload": {"model": "gpt-6.1-sol"}},
        {"type": "response_item", "timestamp": stamp(1010), "payload": message},
    ]
    found = read_session(put(tmp_path / "r.jsonl", lines))
    assert found.turns[-1].pictures == (RecordedMedia("image/png", "AAAA"),)
    assert found.compactions == (RecordedCompaction(len(SAID), "In short."),)
    assert found.model == "gpt-6.1-sol"
    short = read_session(tmp_path / "r.jsonl", longest=10).turns
    assert [turn.text for turn in short[-2:]] == ["It lost wr…", ""]
    assert (len(short), short[-1].pictures) == (len(found.turns), ())
