"""Sessions brought over: whole or not at all, once, and with what is known of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.sessions.writing import TALK, claude, gemini, opencode_database, put
from travois.compat.sessions import opencode
from travois.compat.sessions.format import RecordedTurn, SessionFile
from travois.core.errors import UserError
from travois.core.facts import Changed, Noted
from travois.importing.sessions import (
    import_session,
    list_import_candidates,
    lock_staging_folder,
    recognize_session_file,
)
from travois.sessions import lock
from travois.sessions.catalog import list_sessions
from travois.sessions.home import TravoisHome, identify_project
from travois.sessions.log_file import read_entries


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    return TravoisHome(tmp_path / "home").prepare()


def bring_all(home: TravoisHome, *found: SessionFile) -> list[str]:
    with lock_staging_folder(home) as folder:
        fresh = [one for one in list_import_candidates(home, found) if not one.known]
        return [import_session(home, one.found, folder, environ={}) for one in fresh]


def test_an_import_knows_its_folder_title_times_and_origin(
    home: TravoisHome, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    titled = [*claude(TALK, cwd=str(work)), {"customTitle": "Redis, goodbye"}]
    path = put(tmp_path / "abc.jsonl", titled)
    (id,) = bring_all(home, recognize_session_file(path))
    (summary,) = list_sessions(home)
    assert (summary.id, summary.cwd, summary.title) == (id, str(work), "Redis, goodbye")
    assert (summary.created, summary.updated, summary.turns) == (1000.0, 1003.0, 1)
    assert summary.project == identify_project(home, str(work)).key
    (log,) = home.sessions.glob("*/*/log.jsonl")
    facts = [entry.fact for entry in read_entries(log, [])]
    (noted,) = (f for f in facts if isinstance(f, Noted) and f.what == "origin")
    origin = json.loads(noted.text)
    known = {"agent": "claude", "id": "abc", "path": str(path), "last": 1003.0, "turns": 4}
    assert origin == known | {"model": ""}
    assert Changed("name", "Redis, goodbye") in facts


def test_importing_again_imports_only_what_has_grown(home: TravoisHome, tmp_path: Path) -> None:
    path = put(tmp_path / "abc.jsonl", claude(TALK))
    (first,) = bring_all(home, recognize_session_file(path))
    assert bring_all(home, recognize_session_file(path)) == []
    path.touch()
    assert bring_all(home, recognize_session_file(path)) == []
    put(path, claude([*TALK, RecordedTurn("user", "and now?", 1010.0)]))
    (second,) = bring_all(home, recognize_session_file(path))
    assert first != second
    assert {one.id for one in list_sessions(home)} == {first, second}
    assert {one.project for one in list_sessions(home)} == {list_sessions(home)[0].project}


def test_an_import_that_was_killed_leaves_nothing_that_is_seen(
    home: TravoisHome, tmp_path: Path
) -> None:
    path = put(tmp_path / "abc.jsonl", claude(TALK))
    half = home.path / "importing" / "left-behind"
    put(half / "log.jsonl", [{"seq": 1}])
    assert list_sessions(home) == []
    (id,) = bring_all(home, recognize_session_file(path))
    assert [one.id for one in list_sessions(home)] == [id]
    assert [one.name for one in (home.path / "importing").iterdir()] == ["lock"]


def test_what_cannot_be_written_leaves_nothing(home: TravoisHome, tmp_path: Path) -> None:
    path = put(tmp_path / "abc.jsonl", claude(TALK))
    (home.sessions).rmdir()
    home.sessions.write_text("in the way")
    with (
        lock_staging_folder(home) as folder,
        pytest.raises(UserError, match="Cannot import a session"),
    ):
        import_session(home, recognize_session_file(path), folder, environ={})
    assert [one.name for one in (home.path / "importing").iterdir()] == ["lock"]


def test_only_one_import_runs_at_a_time(home: TravoisHome) -> None:
    with (
        lock_staging_folder(home),
        pytest.raises(UserError, match="Another import is running"),
        lock_staging_folder(home),
    ):
        pass
    lock.acquire_lock(home.path / "importing").release()


def test_secrets_of_the_environment_are_not_written_down(home: TravoisHome, tmp_path: Path) -> None:
    key = "sk-live-1234567890abcdef"
    turns = [*TALK[:2], RecordedTurn("tool", f"token {key}", 1002.0, answers="c1")]
    path = put(tmp_path / "abc.jsonl", claude(turns))
    with lock_staging_folder(home) as folder:
        import_session(home, recognize_session_file(path), folder, environ={"SERVICE_API_KEY": key})
    (log,) = home.sessions.glob("*/*/log.jsonl")
    assert key not in log.read_text()


def test_sessions_of_each_agent_are_recognised_and_others_are_not(tmp_path: Path) -> None:
    talk = {"sessionId": "g", "messages": gemini(TALK)}
    for name, lines, agent in (
        ("a.jsonl", [line | {"sessionId": "s"} for line in claude(TALK)], "claude"),
        ("r.jsonl", [{"type": "session_meta", "payload": {"id": "x"}}], "codex"),
        ("g.json", [talk], "gemini"),
        ("p.jsonl", [{"type": "session", "id": "x", "timestamp": "2026"}], "pi"),
        ("t.jsonl", [{"type": "session", "format": "traj/1"}], "traj"),
    ):
        assert recognize_session_file(put(tmp_path / name, lines)).agent == agent
    with pytest.raises(UserError, match="is not a session that Travois can import"):
        recognize_session_file(put(tmp_path / "x.json", [{"hello": 1}]))
    with pytest.raises(UserError, match="Cannot read"):
        recognize_session_file(tmp_path / "missing.json")


def test_a_session_of_a_database_is_brought_over(home: TravoisHome, tmp_path: Path) -> None:
    opencode_database(tmp_path, TALK)
    found = list(opencode.find_sessions({"XDG_DATA_HOME": str(tmp_path)}))
    assert len(bring_all(home, *found)) == 1
    assert [(one.title, one.turns) for one in list_sessions(home)] == [("Caching", 1)]
