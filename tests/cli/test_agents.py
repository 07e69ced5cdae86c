"""`travois agents`: a tree from the logs, one agent's words, and the kinds there are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.commanding import run
from tests.sessions.sample import opened, write
from travois.commands import agents
from travois.core.content import Call, Text
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Assistant, Changed, Ended, Epoch, Finished, Spawned, User
from travois.core.models import ModelCard, Price, Usage
from travois.sessions.home import TravoisHome, identify_project
from travois.sessions.log_file import SessionLog

EPOCH = Epoch(ModelCard("lab", "echo-1", "chat", price=Price(input=1.0, output=10.0)), "Be brief.")
USAGE = Usage(input=1_000_000, output=100_000)
READ = Call("1", "Read", '{"file_path": "/w/main.py"}')
ID = "aaaa1111-0000-4000-8000-000000000001"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TravoisHome:
    """A home, and a workspace to stand in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return TravoisHome(tmp_path / "home").prepare()


def put(folder: Path, *facts: AnyFact, parent: str = "") -> Path:
    more: dict[str, object] = {"parent": parent, "at": 3} if parent else {}
    write(folder, first=opened(folder.name, **more), then=list(facts))
    return folder


def session(home: TravoisHome, *facts: AnyFact) -> Path:
    return put(home.session_folder(identify_project(home, os.getcwd()).key, ID), EPOCH, *facts)


def family(home: TravoisHome) -> Path:
    """A session with two agents, the first of which has one itself."""
    top = session(
        home,
        User((Text("go"),)),
        Spawned("job-1", "job", "a server"),
        Spawned("a1", "explore", "find the callers"),
        Finished("a1", "done", USAGE),
        Spawned("a2", "fork", "write the tests"),
    )
    asked = Assistant((READ,), "calls", USAGE)
    first = put(top / "agents" / "a1", EPOCH, Spawned("a1.1", "general", "try it"), asked)
    put(first / "agents" / "a1.1", EPOCH, Changed("name", "trial"), Ended("turns"))
    put(top / "agents" / "a2", asked, parent=ID)
    return top


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert run(agents, "agents", *words, "--json") == 0
    out = capsys.readouterr().out
    return [json.loads(line) for line in out.splitlines()] if "show" in words else json.loads(out)


def test_the_agents_of_a_session_are_a_tree(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    family(home)
    reading, tokens = "Reading the file main.py", 1_100_000
    keys = ("id", "parent", "depth", "kind", "what", "name", "state", "tool", "doing", "tokens")
    assert [tuple(row[key] for key in keys) for row in rows(capsys)] == [
        ("a1", "", 0, "explore", "find the callers", "", "done", "Read", reading, tokens),
        ("a1.1", "a1", 1, "general", "try it", "trial", "lost", "", "Stopped at its limit", 0),
        ("a2", "", 0, "fork", "write the tests", "", "lost", "Read", reading, tokens),
    ]
    assert [row["dollars"] for row in rows(capsys, "aaaa")] == [2.0, 0.0, 2.0]


def test_agents_of_a_session_that_is_open_run_until_they_end(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    with SessionLog.open(family(home)):
        assert [row["state"] for row in rows(capsys)] == ["done", "running", "running"]


def test_the_table_is_made_for_people(
    home: TravoisHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    family(home)
    monkeypatch.setattr("time.time", lambda: 1_700_000_600.0)
    assert run(agents, "agents") == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["AGENT", "TYPE", "STATE", "TOKENS", "COST", "STARTED", "LAST TOOL", "DOING", "TASK"],
        ["a1", "explore", "done", "1,100,000", "$2.000", "10 min ago", "Read",
         "Reading the file main.py", "find the callers"],
        ["a1.1 (trial)", "general", "lost", "0", "10 min ago", "Stopped at its limit", "try it"],
        ["a2", "fork", "lost", "1,100,000", "$2.000", "10 min ago", "Read",
         "Reading the file main.py", "write the tests"],
    ]  # fmt: skip


def test_a_session_without_agents_says_so(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    session(home, User((Text("go"),)))
    assert run(agents, "agents", ID) == 0
    assert capsys.readouterr().out == "This session has no subagents.\n"


def test_one_agent_is_shown_with_its_own_words_only(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    family(home)
    assert run(agents, "agents", "show", "a2") == 0
    out = capsys.readouterr().out
    assert "main.py" in out
    assert "a fork of" in out
    assert "go" not in out.split()
    told = rows(capsys, "show", "a1.1", ID)
    assert [entry["fact"]["type"] for entry in told] == ["opened", "epoch", "changed", "ended"]  # type: ignore[index]


def test_an_agent_that_is_not_there_and_odd_words_are_told(home: TravoisHome) -> None:
    family(home)
    with pytest.raises(UserError, match="has no agent 'a9'"):
        run(agents, "agents", "show", "a9")
    with pytest.raises(UserError, match="Invalid arguments for `travois agents`"):
        run(agents, "agents", "a", "b")


def test_the_kinds_are_listed_with_their_files_and_what_is_wrong_with_others(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(".claude/agents").absolute()
    folder.mkdir(parents=True)
    mine, bad = folder / "mine.md", folder / "bad.md"
    mine.write_text("---\nname: mine\ndescription: Does mine.\n---\nDo it.")
    bad.write_text("---\nname: bad\n---\nDo it.")
    assert run(agents, "agents", "types") == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["TYPE", "FROM"],
        ["explore", "built-in"],
        ["general", "built-in"],
        ["mine", str(mine)],
        ["plan", "built-in"],
    ]
    missing = "description is missing; add a line `description: …`"
    assert err == f"travois: {bad}:1: {missing}\n"
