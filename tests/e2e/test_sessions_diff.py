"""`travois sessions diff`: two sessions side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.program import Program

ALLOWED = ("--permission-mode", "accept-edits", "--allowedTools", "Bash")


def use(name: str, **args: object) -> dict[str, Any]:
    return {"tool_use": {"name": name, "input": args}}


def ids(program: Program) -> list[str]:
    return [log.parent.name for log in program.logs()]


def spoken(program: Program, script: list[Any], prompt: str, *args: str) -> str:
    """Run one task by this script; returns the id of the session it made or went on with."""
    before = set(ids(program))
    with program.served(script):
        done = program.ask(prompt, *ALLOWED, *args)
        assert done.code == 0, done.err
    (made,) = set(ids(program)) - before
    return made


def diff(program: Program, *args: str) -> Any:
    done = program.run("sessions", "diff", *args, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.fixture
def forks(program: Program) -> tuple[str, str]:
    """A session, and a fork of it, that went on differently."""
    (program.folder / "notes.txt").write_text("one\ntwo\n")
    first = [{"say": [use("Read", file_path="notes.txt")]}, {"say": "I know it."}]
    parent = spoken(program, first, "look at notes.txt")
    write = [use("Write", file_path="new.py", content="x = 1\n")]
    ran = [use("Bash", command="echo three >> notes.txt")]
    fork = spoken(
        program,
        [{"say": write}, {"say": ran}, {"say": "Python it is."}],
        "do it in Python",
        *("-c", "--fork-session"),
    )
    (program.folder / "notes.txt").write_text("one\ntwo\n")
    (program.folder / "new.py").unlink()
    write = [use("Write", file_path="new.py", content="x = 2\n")]
    with program.served([{"say": write}, {"say": "Done."}]):
        assert program.ask("do it your way", *ALLOWED, "-r", parent).code == 0
    return parent, fork


def test_forks_are_compared_from_where_they_part(program: Program, forks: tuple[str, str]) -> None:
    parent, fork = forks
    found = diff(program, parent, fork)
    assert (found["relation"], found["shared_prompts"]) == (
        "b is a fork of a",
        ["look at notes.txt"],
    )
    a, b = found["a"], found["b"]
    assert (a["id"], a["prompts"], a["tools"]) == (parent, ["do it your way"], {"Write": 1})
    assert (b["id"], b["prompts"]) == (fork, ["do it in Python"])
    assert b["tools"] == {"Write": 1, "Bash": 1}
    assert (a["replies"], b["replies"]) == (2, 3)
    assert (a["outcome"], a["last_words"], b["last_words"]) == ("end", "Done.", "Python it is.")
    assert a["models"] == b["models"] == ["anthropic/claude-opus-5-5"]
    assert a["cost_usd"] > 0 and b["output_tokens"] > 0
    assert (a["files_from"], b["files_from"]) == ("snapshots", "snapshots")
    added = {"status": "added", "added": 1, "removed": 0}
    assert found["files"] == [
        {"path": "new.py", "a": added, "b": added, "same": False},
        {
            "path": "notes.txt",
            "a": None,
            "b": {"status": "modified", "added": 1, "removed": 0},
            "same": False,
        },
    ]
    turned = diff(program, fork, parent)
    assert turned["relation"] == "a is a fork of b" and turned["a"] == b


def test_people_see_a_table_and_a_patch(program: Program, forks: tuple[str, str]) -> None:
    parent, fork = forks
    done = program.run("sessions", "diff", parent[:13], fork[:13], "--patch")
    assert (done.code, done.err) == (0, "")
    assert "B is a fork of A; they diverge after prompt 1: 'look at notes.txt'." in done.out
    assert "B prompt: do it in Python" in done.out
    assert "B final answer: Python it is." in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["added", "+1", "-0", "added", "+1", "-0", "differs", "new.py"] in rows
    assert ["-", "modified", "+1", "-0", "only", "B", "notes.txt"] in rows
    assert ["Bash", "0", "1"] in rows
    assert "--- A/new.py\n+++ B/new.py\n@@ -1 +1 @@\n-x = 2\n+x = 1\n" in done.out


def test_two_models_at_one_task_share_nothing_but_the_task(program: Program) -> None:
    script = [{"say": [use("Write", file_path="a.txt", content="hi\n")]}, {"say": "Done."}]
    one = spoken(program, script, "write a.txt")
    (program.folder / "a.txt").unlink()
    program.protocol = "chat"
    other = spoken(program, script, "write a.txt")
    found = diff(program, one, other)
    assert (found["relation"], found["shared_prompts"], found["parted_at"]) == ("unrelated", [], 0)
    assert found["a"]["models"] == ["anthropic/claude-opus-5-5"]
    assert found["b"]["models"] == ["openai/lab-model"]
    assert found["a"]["prompts"] == found["b"]["prompts"] == ["write a.txt"]
    assert [(row["path"], row["same"]) for row in found["files"]] == [("a.txt", True)]


def test_without_snapshots_calls_tell_what_was_changed(program: Program) -> None:
    script = [{"say": [use("Write", file_path="a.txt", content="hi\n")]}, {"say": "Done."}]
    off = ("--settings", '{"fileCheckpointingEnabled": false}')
    one = spoken(program, script, "write a.txt", *off)
    other = spoken(program, [{"say": "No."}], "write a.txt", *off)
    found = diff(program, one, other)
    assert (found["a"]["files_from"], found["b"]["files_from"]) == ("calls", "snapshots")
    (row,) = found["files"]
    assert (row["path"], row["a"]["status"], row["b"]) == ("a.txt", "modified", None)


def test_a_session_and_itself_and_one_that_is_not_there(program: Program) -> None:
    one = spoken(program, [{"say": "Hi."}], "hello")
    same = program.run("sessions", "diff", one, one)
    assert same.code == 2 and "A and B are the same session" in same.err
    assert program.run("sessions", "diff", one, "nothing").code == 2
