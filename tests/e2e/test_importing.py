"""The real program takes over sessions of other agents, and goes on with them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

import travois_lab as lab
from tests.compat.sessions.writing import claude, put
from tests.corpus.recorded import FOLDER, needed
from tests.e2e.program import Program, read
from tests.importing.homes import make, talk, text
from travois.compat.sessions.format import RecordedTurn
from travois.core.facts import Noted

OK = {"say": [{"text": "Going on."}], "repeat": True}
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
TINY = {
    "providers": {"openai": {"protocol": "chat"}},
    "models": {"openai/tiny": {"window": 60_000, "output": 4_000}},
}


def test_sessions_of_all_agents_go_on_at_the_model_of_your_choice(program: Program) -> None:
    talk(program.home.parent)
    first = program.run("import", "--json")
    assert [row["sessions"] for row in json.loads(first.out)] == [1, 1, 1, 1]
    agents = ("claude", "codex", "opencode", "gemini")
    done = program.run("import", *agents, "--only", "sessions", "--yes")
    assert (done.code, done.err) == (0, "")
    with program.served([OK]) as api:
        for id in ID.findall(done.out):
            found = program.ask("go on", "--resume", id)
            assert (found.code, found.out) == (0, "Going on.\n"), found.err
        assert len(api.ledger) >= 4  # and a summary of what has no room
        said = api.ledger[0].body.decode()
        assert "why did we drop redis" in said
        assert "It lost writes." in said
    again = program.run("import", *agents, "--only", "sessions", "--yes")
    assert again.out.count("already imported") == 4
    assert len(program.logs()) == 4


def test_all_that_an_agent_keeps_is_shown_first_and_then_taken_over(program: Program) -> None:
    person = program.home.parent
    make(person)
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(program.folder))
    memory = "---\nname: db\ndescription: We use Postgres\ntype: project\n---\nPostgres 16.\n"
    text(person / ".claude" / "projects" / slug / "memory" / "db.md", memory)
    text(person / ".claude" / "projects" / "-other" / "memory" / "x.md", memory)
    for name in ("empty", "silent"):
        text(person / ".claude" / "projects" / "-w" / f"{name}.jsonl", '{"type":"summary"}\n')
    plan = json.loads(program.run("import", "claude", "--dry-run", "--json").out)
    assert [one["title"] for one in plan["sessions"]] == ["why did we drop redis"]
    told = {(one["part"], one["name"]): one["fate"] for one in plan["things"]}
    assert told["memory", "db"] == "kept"
    assert told["memory", "1 other projects"] == "left out"
    assert told["sessions", "1 session"] == "translated"
    assert told["sessions", "2 sessions"] == "left out"
    assert not (program.home / "settings.json").exists()
    done = program.run("import", "claude", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "Wrote 10 files" in done.out
    assert "Memories imported. Undo: travois memory undo" in done.out
    assert "Imported: 1 session. Resume the last one with travois --resume" in done.out
    assert json.loads(program.run("memory", "list", "--json").out)[0]["name"] == "db"
    again = program.run("import", "claude", "--yes")
    assert again.out.endswith("everything is already here\n")


@needed
def test_recorded_sessions_go_on_even_where_the_window_is_too_small(program: Program) -> None:
    names = ("claude-code-0780117d7671", "codex-fd76b186fc3d", "swe-agent-", "tau-bench-")
    files = [str(min(FOLDER.glob(f"{name}*.gz"))) for name in names]
    done = program.run("import", *files, "--yes")
    assert done.code == 0, done.err
    with lab.server([OK]) as api:
        program.url, program.protocol = api.url, "chat"
        for id in ID.findall(done.out):
            words = ("--resume", id, "--settings", json.dumps(TINY), "--model", "openai/tiny")
            found = program.run("-p", "go on", *words)
            assert (found.code, found.out) == (0, "Going on.\n"), found.err
        assert len(api.ledger) >= 4  # and a summary of what has no room
        assert all(one.usage.prompt < 60_000 for one in api.ledger)


def test_an_import_that_is_killed_leaves_whole_sessions_and_is_gone_on_with(
    program: Program,
) -> None:
    long = [
        RecordedTurn("user" if n % 2 else "model", f"word {n} " * 50, 1000.0 + n)
        for n in range(300)
    ]
    projects = program.home.parent / ".claude" / "projects" / "-w"
    for number in range(40):
        put(projects / f"s{number:02}.jsonl", claude(long))
    child = program.start("import", "claude", "--yes")
    while len(program.logs()) < 3 and child.poll() is None:
        time.sleep(0.01)
    child.kill()
    child.communicate()
    seen = program.logs()
    assert 3 <= len(seen) < 40
    assert all(whole(log) for log in seen)
    assert program.run("import", "claude", "--yes").code == 0
    assert len(program.logs()) == 40
    assert all(whole(log) for log in program.logs())
    assert [path.name for path in (program.home / "importing").iterdir()] == ["lock"]


def whole(log: Path) -> bool:
    """Whether the last thing that an import writes is there."""
    last = read(log)[-1].fact
    return isinstance(last, Noted) and last.what == "extracted"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("claude",), "Cannot ask: standard input is not a terminal"),
        (("cursor",), "cursor is neither an agent nor a file"),
        (("claude", "--only", "sesions"), "Cannot import 'sesions'"),
        (("settings.json",), "is not a session that Travois can import"),
    ],
)
def test_what_cannot_be_done_is_said(program: Program, words: tuple[str, ...], told: str) -> None:
    make(program.home.parent)
    put(program.folder / "settings.json", [{"model": "x"}])
    done = program.run("import", *words)
    assert done.code == 2
    assert told in done.err
    assert not program.logs()
