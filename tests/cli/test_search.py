"""`travois search`: what it finds and how it shows it."""

from __future__ import annotations

import json
from pathlib import Path
from time import localtime, strftime

import pytest

from tests.compat.sessions.writing import TALK, claude, codex, put
from tests.sessions.sample import EPOCH, opened, write
from tests.tui.inside import Inside, inside
from travois.compat.sessions.format import RecordedTurn
from travois.core.content import Text
from travois.core.facts import Assistant, User
from travois.sessions.home import TravoisHome, identify_project

LOST = "Because redis lost writes whenever the replica fell behind, which nobody noticed for weeks."
OURS = [
    EPOCH,
    User((Text("why did we drop redis?"),)),
    Assistant((Text(LOST),), "end"),
]


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    """A session of ours in this project, one of Claude Code in it, one of Codex elsewhere."""
    program = inside(tmp_path, monkeypatch, capsys)
    project = identify_project(TravoisHome(program.home), str(program.folder)).key
    first = opened("0a1b2c3d", cwd=str(program.folder), project=project)
    write(TravoisHome(program.home).session_folder(project, "0a1b2c3d"), first=first, then=[*OURS])
    person = program.home.parent
    here = claude(TALK, cwd=str(program.folder))
    put(person / ".claude" / "projects" / "-w" / "abc.jsonl", here)
    there = codex([RecordedTurn("user", "is redis still in the stack?", 60.0)], cwd="/else where")
    put(person / ".codex" / "sessions" / "rollout-1.jsonl", there)
    return program


def ids(machine: Inside, *args: str) -> set[str]:
    return {one["id"] for one in json.loads(machine.run("search", "redis", "--json", *args).out)}


def test_the_best_sessions_come_with_their_words_and_the_way_back(machine: Inside) -> None:
    done = machine.run("search", "why", "was", "the", "replica", "behind", "--limit", "1")
    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == f"""\
{day(1_700_000_000)}  travois  {shown(machine.folder)}
  why did we drop redis?
    agent: Because redis lost writes whenever the replica fell behind, which
    nobody noticed for weeks.
  travois --resume 0a1b2c3d
"""
    )


def day(at: float) -> str:
    return strftime("%Y-%m-%d", localtime(at))


def shown(folder: Path) -> str:
    return f"~/{folder.name}"


def test_other_agents_sessions_come_with_their_own_command(machine: Inside) -> None:
    done = machine.run("search", "redis in the stack", "--agent", "codex")
    assert (
        done.out
        == f"""\
{day(60)}  codex  /else where
  is redis still in the stack?
    you: is redis still in the stack?
  cd '/else where' && codex resume thread-1
"""
    )


def test_one_project_or_one_agent_can_be_searched(machine: Inside) -> None:
    assert ids(machine) == {"0a1b2c3d", "abc", "thread-1"}
    assert ids(machine, "--here") == {"0a1b2c3d", "abc"}
    assert ids(machine, "--agent", "claude") == {"abc"}
    assert ids(machine, "--agent", "gemini") == set()


def test_json_has_all_that_is_known(machine: Inside) -> None:
    (found,) = json.loads(machine.run("search", "redis", "--agent", "claude", "--json").out)
    path = machine.home.parent / ".claude" / "projects" / "-w" / "abc.jsonl"
    assert found == {
        "agent": "claude",
        "id": "abc",
        "cwd": str(machine.folder),
        "at": 1003.0,
        "title": "why did we drop redis",
        "resume": "claude --resume abc",
        "path": str(path),
        "passages": [{"who": "user", "at": 1000.0, "text": "why did we drop redis"}],
    }


def test_other_agents_can_be_left_out(machine: Inside) -> None:
    assert len(ids(machine)) == 3
    machine.home.mkdir(exist_ok=True)
    (machine.home / "settings.json").write_text(json.dumps({"search": {"agents": False}}))
    assert ids(machine) == {"0a1b2c3d"}


def test_nothing_found_and_nothing_asked_are_told_apart(machine: Inside) -> None:
    none = machine.run("search", "zeppelins")
    assert (none.code, none.out) == (1, "No matching sessions.\n")
    empty = machine.run("search")
    assert (empty.code, empty.out) == (2, "")
    assert "Give a search text" in empty.err
    assert machine.run("search", "--rebuild").out == "3 sessions can be searched.\n"


def test_a_broken_index_is_told_once_and_made_again(machine: Inside) -> None:
    assert len(ids(machine)) == 3
    (machine.home / "index" / "sessions.db").write_bytes(b"rubbish" * 999)
    done = machine.run("search", "redis", "--json")
    assert len(json.loads(done.out)) == 3
    assert "search index" in done.err
    assert machine.run("search", "redis").err == ""


def test_words_that_could_command_a_terminal_are_harmless(machine: Inside) -> None:
    evil = [RecordedTurn("user", "\x1b]0;owned\x07 zeppelin \x1b[2J", 5.0)]
    put(machine.home.parent / ".claude" / "projects" / "-w" / "evil.jsonl", claude(evil))
    out = machine.run("search", "zeppelin").out
    assert "zeppelin" in out
    assert "\x1b" not in out
    assert "\x07" not in out
