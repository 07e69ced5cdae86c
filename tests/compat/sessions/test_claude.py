"""Sessions of Claude Code."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from tests.compat.sessions.writing import CALL, TALK, claude, put, stamp
from travois.compat.sessions import format as loose
from travois.compat.sessions.claude import find_sessions, read_session
from travois.compat.sessions.format import (
    RecordedCompaction,
    RecordedSession,
    RecordedTurn,
    SessionFile,
)


def test_a_session_is_what_was_said_in_it(tmp_path: Path) -> None:
    path = put(tmp_path / "abc.jsonl", claude(TALK))
    title = "why did we drop redis"
    assert read_session(path) == RecordedSession("claude", "abc", path, "/w", 1003.0, title, TALK)


def test_sessions_lie_in_the_folder_that_the_environment_names(tmp_path: Path) -> None:
    path = put(tmp_path / "projects" / "-w" / "abc.jsonl", claude(TALK))
    put(tmp_path / "projects" / "-w" / "agent-1.jsonl", claude(TALK))
    put(tmp_path / "projects" / "-w" / "abc" / "subagents" / "agent-2.jsonl", claude(TALK))
    put(tmp_path / "projects" / "-w" / "empty.jsonl", ())
    stat = path.stat()
    found = [SessionFile("claude", path, f"{stat.st_size} {stat.st_mtime_ns}", stat.st_mtime)]
    assert list(find_sessions({"CLAUDE_CONFIG_DIR": str(tmp_path)})) == found
    default = put(tmp_path / "h" / ".claude" / "projects" / "-w" / "b.jsonl", claude(TALK))
    assert [one.path for one in find_sessions({"HOME": str(tmp_path / "h")})] == [default]


def test_torn_and_unknown_lines_are_left_out(tmp_path: Path) -> None:
    path = put(tmp_path / "abc.jsonl", claude(TALK))
    lines = path.read_bytes().splitlines(keepends=True)
    odd = [b"[1, 2]\n", b"not json\n", b"\xff\xfe\n", b'{"type":"progress","data":{"x":1}}\n']
    torn = lines[-1][: len(lines[-1]) // 2]
    path.write_bytes(b"".join([*odd, *lines, *odd, b'{"message": 5, "uuid": 7}\n', torn]))
    assert read_session(path).turns == TALK


def test_what_was_rewound_is_not_part_of_the_session(tmp_path: Path) -> None:
    lines = claude(TALK)
    again = claude([RecordedTurn("user", "use postgres instead", 1010.0)])[0]
    path = put(tmp_path / "a.jsonl", [*lines, again | {"uuid": "n1", "parentUuid": "u1"}])
    assert [turn.text for turn in read_session(path).turns] == [
        "why did we drop redis",
        "Let me look.",
        "no such file",
        "use postgres instead",
    ]


def test_calls_that_ran_side_by_side_keep_their_results(tmp_path: Path) -> None:
    reply = {"type": "assistant", "timestamp": stamp(2)}

    def call(uuid: str, parent: str) -> dict[str, object]:
        block = {"type": "tool_use", "id": uuid, "name": "Read", "input": {}}
        message = {"id": "msg", "content": [block]}
        return reply | {"uuid": uuid, "parentUuid": parent, "message": message}

    def result(uuid: str, call: str) -> dict[str, object]:
        block = {"type": "tool_result", "tool_use_id": call, "content": [{"text": f"of {call}"}]}
        about = {"type": "user", "uuid": uuid, "parentUuid": call, "timestamp": stamp(3)}
        return about | {"message": {"content": [block]}}

    first = claude([RecordedTurn("user", "read both", 1.0)])
    lines = [call("a", "u0"), call("b", "a"), result("ra", "a"), result("rb", "b")]
    last = {"uuid": "z", "parentUuid": "rb", "timestamp": stamp(4), "type": "assistant"}
    path = put(
        tmp_path / "s.jsonl",
        [*first, *lines, last | {"message": {"id": "m2", "content": [{"text": "Both."}]}}],
    )
    told = [(turn.who, turn.text or turn.calls[0].id) for turn in read_session(path).turns]
    assert told == [
        ("user", "read both"),
        ("model", "a"),
        ("model", "b"),
        ("tool", "of a"),
        ("tool", "of b"),
        ("model", "Both."),
    ]


def test_what_was_said_before_a_compaction_is_there(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
    summary = claude([RecordedTurn("note", "This session is being continued", 1010.0)])[0]
    after = claude([RecordedTurn("user", "go on", 1011.0)])[0]
    for more in ({}, {"logicalParentUuid": "u3"}, {"logicalParentUuid": "lost"}):
        lines = [
            *claude(TALK),
            boundary | more,
            summary | {"uuid": "s", "parentUuid": "b", "isCompactSummary": True},
            after | {"uuid": "t", "parentUuid": "s"},
        ]
        turns = read_session(put(tmp_path / "a.jsonl", lines)).turns
        assert turns[:4] == TALK
        assert [(turn.who, turn.text) for turn in turns[4:]] == [
            ("note", "This session is being continued"),
            ("user", "go on"),
        ]


def test_a_title_that_was_chosen_wins(tmp_path: Path) -> None:
    named = [{"type": "ai-title", "aiTitle": "Caching"}, {"customTitle": "Redis, goodbye"}]
    assert (
        read_session(put(tmp_path / "a.jsonl", [*claude(TALK), *named])).title == "Redis, goodbye"
    )
    assert read_session(put(tmp_path / "a.jsonl", [*named[:1], *claude(TALK)])).title == "Caching"


def test_words_of_the_harness_are_not_the_users(tmp_path: Path) -> None:
    injected = [
        RecordedTurn("user", "<command-name>/clear</command-name>", 1.0),
        RecordedTurn("user", "<system-reminder>be brief</system-reminder>", 2.0),
        RecordedTurn("user", "[Request interrupted by user]", 3.0),
        RecordedTurn("user", "<div> does not render, why?", 4.0),
    ]
    found = read_session(put(tmp_path / "a.jsonl", claude(injected)))
    assert [turn.who for turn in found.turns] == ["note", "note", "note", "user"]
    assert found.title == "<div> does not render, why?"


def test_a_session_of_many_megabytes_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("w") as file:
        for number in range(30):
            turn = RecordedTurn(
                "tool", f"{number} " + "x" * (1 << 20), float(number), answers=CALL.id
            )
            line = claude([turn])[0] | {"uuid": f"u{number}", "parentUuid": f"u{number - 1}"}
            file.write(json.dumps(line) + "\n")
    tracemalloc.start()
    found = read_session(path, longest=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(turn.text) for turn in found.turns] == [101] * 30
    assert peak < path.stat().st_size / 3


def test_a_monstrous_line_is_passed_over_and_what_follows_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = claude(TALK)
    huge = claude([RecordedTurn("user", "y" * 9000)])[0] | {"uuid": "h", "parentUuid": "u0"}
    monkeypatch.setattr(loose, "MAX_LINE_BYTES", 1000)
    assert read_session(put(tmp_path / "a.jsonl", [first, huge, *rest])).turns == TALK


def test_what_the_harness_says_for_the_model_is_a_note(tmp_path: Path) -> None:
    lines = claude([TALK[0], RecordedTurn("model", "API Error: 529", 1001.0), TALK[3]])
    lines[1]["message"]["model"] = "<synthetic>"
    lines[2]["message"]["model"] = "claude-opus-5-5"
    found = read_session(put(tmp_path / "a.jsonl", lines))
    assert [turn.who for turn in found.turns] == ["user", "note", "model"]
    assert found.model == "claude-opus-5-5"


def test_a_compaction_is_told_with_its_summary_and_what_was_kept(tmp_path: Path) -> None:
    summary = claude([RecordedTurn("note", "In short.", 1010.0)])[0]
    summary |= {"uuid": "s", "parentUuid": "b", "isCompactSummary": True}
    for kept in (
        {"preservedMessages": {"uuids": ["u3"]}},
        {"preservedSegment": {"headUuid": "u3"}},
    ):
        boundary: dict[str, object] = {"type": "system", "subtype": "compact_boundary"}
        boundary |= {"uuid": "b", "parentUuid": None, "logicalParentUuid": "u3"}
        boundary |= {"compactMetadata": {"preTokens": 7, **kept}}
        found = read_session(put(tmp_path / "a.jsonl", [*claude(TALK), boundary, summary]))
        assert found.compactions == (RecordedCompaction(4, "In short.", kept=1, tokens=7),)


def test_a_character_that_was_cut_in_two_does_not_lose_its_line(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", claude(TALK))
    cut = path.read_text().replace("It lost writes.", r"It lost \ud83d\ude00 \ud83d and \ude00.")
    path.write_text(cut)
    assert read_session(path).turns[-1].text == "It lost 😀 \ufffd and \ufffd."
