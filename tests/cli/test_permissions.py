"""`travois permissions`: decisions explained and rules tried, with nothing run."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.cli.commanding import run
from travois.commands import permissions
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import Call
from travois.core.errors import UserError
from travois.core.facts import Assistant, Changed, Decided, Epoch, Opened, User
from travois.core.models import ModelCard
from travois.ports.world import ChoiceRequest, PermissionQuestion, PersonAnswer
from travois.sessions.home import TravoisHome, identify_project, locate_home
from travois.sessions.log_file import SessionLog
from travois.settings.load import load_settings
from travois.testing import Scripted, call, say


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_decision_is_explained_step_by_step(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(permissions, "permissions", "why", "git diff | head") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "allow: reads only inside the workspace  [mode default]"
    assert [line.split()[0] for line in lines[1:]] == ["RUNS", "git", "head"]


def test_the_rule_and_its_file_are_named(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = places / "home" / "settings.json"
    settings.write_text('{"permissions": {"deny": ["Bash(rm:*)"]}}')
    assert run(permissions, "permissions", "why", "ls; rm x", "--mode", "bypassPermissions") == 1
    told = capsys.readouterr().out.splitlines()[0]
    assert told == f"deny: rule: deny Bash(rm:*) ({settings})  [mode bypass]"


def test_another_tool_can_be_asked_about(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(permissions, "permissions", "why", '{"file_path": "a", "content": ""}', "--tool", "Write")
    assert capsys.readouterr().out == f"ask: writes {places}/work/a  [mode default]\n"


def test_a_mode_that_is_none_is_told() -> None:
    with pytest.raises(UserError, match="Unknown mode 'x'"):
        run(permissions, "permissions", "why", "ls", "--mode", "x")


def checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str) -> list:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(permissions, "permissions", "check", "--json") == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_cases_are_judged_in_order_and_nothing_runs(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = {"workspace": str(places / "work"), "cwd": str(places / "work" / "src")}
    cases = [
        {"id": 1, "tool": "Bash", "input": {"command": "touch x"}, **where},
        {"id": "b", "tool": "Bash", "input": {"command": "cat ../a"}, **where},
        {"id": 3, "tool": "Bash", "input": {"command": "cat ../../a"}, **where},
        {"id": 4, "input": {"command": "make x"}, "rules": {"allow": ["Bash(make:*)"]}, **where},
        {"id": 5, "tool": "Read", "input": {"file_path": "a"}, "rules": {"deny": ["Read"]}},
        {"id": 6, "tool": "mcp__a__b", "input": {}},
        {"id": 7, "tool": "mcp__a__b", "input": {}, "rules": {"allow": ["mcp__a"]}},
        {"id": 8, "input": {"command": "touch x"}, "mode": "acceptEdits", **where},
        {"id": 9, "tool": "Bash", "input": {}},
        {"id": 10, "input": {"command": "ls"}, "mode": "nonsense"},
        {"id": 11, "input": {"command": "ls"}, "rules": {"allow": ["Bash("]}},
    ]
    found = checked(monkeypatch, capsys, "\n".join(json.dumps(case) for case in cases))
    assert [(one["id"], one["verdict"]) for one in found] == [
        (1, "ask"),
        ("b", "allow"),
        (3, "ask"),
        (4, "allow"),
        (5, "deny"),
        (6, "ask"),
        (7, "allow"),
        (8, "allow"),
        (9, "deny"),
        (10, "deny"),
        (11, "deny"),
    ]
    assert all(one["because"] for one in found)
    assert not (places / "work" / "src" / "x").exists()


def test_a_line_that_is_no_case_is_denied_under_its_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'junk\n\n{"id": 2, "input": {"command": "ls \\ud83d; x"}}\n[1]\n'
    found = checked(monkeypatch, capsys, text)
    assert [(one["id"], one["verdict"]) for one in found] == [
        (None, "deny"),
        (2, "deny"),
        (None, "deny"),
    ]


def rules(places: Path, **wanted: object) -> Path:
    path = places / "rules.json"
    path.write_text(json.dumps(wanted))
    return path


def test_rules_are_tried_on_their_examples(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rules(
        places,
        allow=["Bash(npm test:*)", "Edit(src/**)", "WebFetch(domain:x.org)"],
        deny=["Read(.env)"],
        examples=[
            "Bash(npm test:*) matches npm test -- --watch && ls",
            "Bash(npm test:*) does not match npm test; npm publish",
            "Edit(src/**) matches src/a/b.py",
            "Edit(src/**) does not match srcs/a",
            "Read(.env) matches sub/.env",
            "Read(.env) does not match .envrc",
            "WebFetch(domain:x.org) matches https://x.org/a",
        ],
    )
    assert run(permissions, "permissions", "test", path) == 0
    assert capsys.readouterr().out == "4 rules, 7 of 7 examples hold\n"


def test_an_example_that_does_not_hold_is_told(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "Bash(npm test:*) matches npm publish"
    path = rules(places, allow=["Bash(npm test:*)"], examples=[wrong, "x", "Bash(y) matches y"])
    assert run(permissions, "permissions", "test", path) == 1
    told = capsys.readouterr()
    assert told.out == "1 rules, 0 of 3 examples hold\n"
    assert f"{wrong!r} does not hold: the rule does not match it" in told.err


def test_settings_whose_examples_do_not_hold_are_refused(places: Path) -> None:
    settings = places / "home" / "settings.json"
    settings.write_text(
        '{"permissions": {"deny": ["Bash(rm:*)"], "examples": ["Bash(rm:*) matches ls"]}}'
    )
    with pytest.raises(UserError, match="does not hold") as caught:
        run(permissions, "permissions", "why", "ls")
    assert str(settings) in str(caught.value)


def test_rules_are_replayed_over_what_was_done(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, cwd = TravoisHome(places / "home"), str(places / "work")
    key = identify_project(home, cwd).key
    commands = ["npm test", "cat ../x", "rm x"]
    with SessionLog.create(home.session_folder(key, "s1"), Opened("s1", cwd, key, "0")) as log:
        log.append(Epoch(ModelCard("lab", "echo", "anthropic"), "system"))
        log.append(User(()))
        log.append(Changed("cwd", f"{cwd}/src"))
        asked = (Call(f"c{n}", "Bash", json.dumps({"command": c})) for n, c in enumerate(commands))
        log.append(Assistant(tuple(asked), "calls"))
        log.append(Decided("c0", "deny", "said so"))
    path = rules(places, allow=["Bash(npm test:*)"], deny=["Bash(rm:*)"])
    assert run(permissions, "permissions", "test", path, "--history", "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["call"]["id"], one["then"], one["now"]) for one in found] == [
        ("c0", "deny", "allow"),
        ("c1", "none", "allow"),
        ("c2", "none", "deny"),
    ]
    assert run(permissions, "permissions", "test", path, "--history") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 calls: 2 allow, 0 ask, 1 deny"


class Host:
    """Allows what is asked, with changes of permissions as other agents write them."""

    def __init__(self, *updates: dict[str, Any]) -> None:
        self.updates = tuple(msgspec.Raw(msgspec.json.encode(update)) for update in updates)

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        return PersonAnswer(allow=True, updates=self.updates)

    async def choose(self, inquiry: ChoiceRequest) -> None:
        return None


def answered(folder: Path, *updates: dict[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """The rules and folders that the next session has after these came with an answer."""

    async def main() -> None:
        model = Scripted(call("Write", file_path="a", content=""), say("done"))
        async with LiveSession(
            Options(cwd=str(folder)), model=model, person=Host(*updates)
        ) as session:
            async for _ in session.run("go"):
                pass

    anyio.run(main)
    settings = load_settings(locate_home(os.environ), str(folder), environ={})
    rules = [f"{rule.effect} {rule.text}" for rule in settings.rules]
    return rules, settings.settings.permissions.additional_directories


def change(kind: str, effect: str, tool: str, what: str = "", *, where: str) -> dict[str, Any]:
    rule = {"toolName": tool, "ruleContent": what or None}
    return {"type": kind, "rules": [rule], "behavior": effect, "destination": where}


def test_what_an_answer_changes_for_good_holds_in_later_sessions(places: Path) -> None:
    work = places / "work"
    folders = {"type": "addDirectories", "directories": [str(places)]}
    kept = answered(
        work,
        change("addRules", "allow", "Bash", "make", where="localSettings"),
        change("addRules", "ask", "Bash", "git push *", where="projectSettings"),
        change("addRules", "deny", "Read", ".env", where="userSettings"),
        change("addRules", "allow", "Bash", "ls", where="session"),
        change("addRules", "allow", "Bash", "pwd", where="cliArg"),
        {**folders, "destination": "localSettings"},
    )
    assert kept == (["deny Read(.env)", "ask Bash(git push *)", "allow Bash(make)"], (str(places),))
    left = answered(
        work,
        change("removeRules", "allow", "Bash", "make", where="localSettings"),
        change("removeRules", "deny", "Read", ".env", where="session"),
        {**folders, "type": "removeDirectories", "destination": "localSettings"},
    )
    assert left == (["deny Read(.env)", "ask Bash(git push *)"], ())
