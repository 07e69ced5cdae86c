"""Hooks of another agent's settings, unchanged, around the real program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.program import Program
from tests.e2e.test_terminal import Screen
from travois.core.content import extract_text
from travois.core.facts import Decided, Ended, Hooked, Result, User
from travois.hooks.events import HOOK_EVENT_NAMES

COMMON = ["session_id", "transcript_path", "cwd", "permission_mode", "model", "hook_event_name"]
TURN = ["prompt_id", "turn_id"]
"""What is told besides of all that belongs to a turn, or comes after one."""
STANDING = ("seconds_since_last_response", "context_tokens")
"""What is told only of a session that goes on."""
OWN = {
    "SessionStart": ["source"],
    "UserPromptSubmit": ["prompt"],
    "PreToolUse": ["tool_name", "tool_input", "tool_use_id"],
    "PermissionRequest": ["tool_name", "tool_input", "permission_suggestions"],
    "PermissionDenied": ["tool_name", "tool_input", "tool_use_id", "reason"],
    "PostToolUse": ["tool_name", "tool_input", "tool_response", "tool_use_id", "duration_ms"],
    "PostToolUseFailure": [
        *("tool_name", "tool_input", "tool_use_id", "error", "is_interrupt", "duration_ms"),
    ],
    "PostToolBatch": ["tool_calls"],
    "CwdChanged": ["old_cwd", "new_cwd"],
    "Notification": ["message", "notification_type", "title"],
    "Stop": ["stop_hook_active", "last_assistant_message", "background_tasks", "session_crons"],
    "StopFailure": ["error", "error_details"],
    "SessionEnd": ["reason"],
}
ONCE = (
    *("SessionStart", "UserPromptSubmit", "PermissionRequest", "PostToolUseFailure"),
    *("PostToolBatch", "CwdChanged", "Stop", "SessionEnd"),
)
CALLED = dict.fromkeys(ONCE, 1) | {"PreToolUse": 4}
"""How often each event comes in a run of `script`, besides those that depend on the answer."""


def script(folder: Path, *, to: str) -> list[dict[str, Any]]:
    """Four calls, of which one works, one fails, one asks and one moves; then a last word."""
    uses = (
        ("Read", {"file_path": f"{folder}/a.txt"}),
        ("Read", {"file_path": f"{folder}/missing.txt"}),
        ("Write", {"file_path": f"{folder}/b.txt", "content": "b"}),
        ("Bash", {"command": f"cd {to}"}),
    )
    asked = [{"tool_use": {"name": name, "input": given}} for name, given in uses]
    return [{"say": asked}, {"say": [{"text": "Done."}]}]


class House:
    """A home with another agent's settings, and what its hooks were told."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._told = program.home.parent / "told.jsonl"
        self.recorder = program.home.parent / "record.sh"
        self.recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$(cat)" >> {self._told}\n')
        self.recorder.chmod(0o755)
        (program.folder / "a.txt").write_text("needle\n")
        (program.folder / "sub").mkdir()

    def install(self, hooks: dict[str, Any]) -> None:
        folder = self.program.home.parent / ".claude"
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text(json.dumps({"hooks": hooks}))

    def everywhere(self) -> None:
        hook = {"type": "command", "command": str(self.recorder)}
        self.install({event: [{"hooks": [hook]}] for event in HOOK_EVENT_NAMES})

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._told.read_text().splitlines()]

    def counted(self) -> dict[str, int]:
        """How often each event was heard; each must have brought exactly its fields."""
        told = self.told()
        self._told.unlink()
        for one in told:
            for key in STANDING:
                one.pop(key, None)
            before = one["hook_event_name"] == "SessionStart"
            common = COMMON if before else [*COMMON[:-1], *TURN, COMMON[-1]]
            assert list(one) == [*common, *OWN[one["hook_event_name"]]]
        return dict(Counter(one["hook_event_name"] for one in told))


@pytest.fixture
def house(program: Program) -> House:
    return House(program)


def test_every_event_is_heard_exactly_once_headless_and_resumed(house: House) -> None:
    house.everywhere()
    program = house.program
    both = [*script(program.folder, to="sub"), *script(program.folder, to="..")]
    denied = {"PostToolUse": 2, "PermissionDenied": 1}
    with lab.server(both) as api:
        program.url = api.url
        done = program.ask("go")
        assert (done.code, done.out) == (0, "Done.\n")
        assert done.err.startswith("travois: a tool call was denied\n  Write: ")
        first = house.told()
        assert house.counted() == CALLED | denied
        assert program.ask("again", "--continue").code == 0
        second = house.told()
        assert house.counted() == CALLED | denied
        api.no_invalid()
        api.append_only()
    assert (first[0]["source"], second[0]["source"]) == ("startup", "resume")
    assert {one["session_id"] for one in (*first, *second)} == {program.logs()[0].parent.name}
    transcript = Path(first[0]["transcript_path"])
    assert (transcript.parent, transcript.stem) == (
        program.logs()[0].parent,
        first[0]["session_id"],
    )
    assert first[-1]["reason"] == "other"
    runs = [e.fact for e in program.facts() if isinstance(e.fact, Hooked)]
    assert Counter(run.event for run in runs) == Counter(
        one["hook_event_name"] for one in (*first, *second)
    )
    assert "crashed" not in [e.fact.why for e in program.facts() if isinstance(e.fact, Ended)]


def test_every_event_is_heard_exactly_once_in_the_terminal(house: House) -> None:
    house.everywhere()
    program = house.program
    with lab.server(script(program.folder, to="sub")) as api:
        program.url = api.url
        screen = Screen(program, *program.model)
        screen.until("> ")
        screen.type("go\n")
        screen.until("Answer: ")
        screen.type("yes\n")
        screen.until("Done.")
        screen.until("> ")
        assert screen.leave() == 0
    told = house.told()
    assert house.counted() == CALLED | {"PostToolUse": 3, "Notification": 1}
    (bell,) = [one for one in told if one["hook_event_name"] == "Notification"]
    assert bell["notification_type"] == "permission_prompt"
    assert told[-1]["reason"] == "prompt_input_exit"


def test_a_failed_turn_is_heard_exactly_once(house: House) -> None:
    house.everywhere()
    with lab.server([]) as api:
        house.program.url = api.url
        error = {"status": 401, "type": "authentication_error", "message": "who are you?"}
        api.fault({"http": error}, every=1)
        assert house.program.ask("go").code == 1
    told = house.told()
    counted = house.counted()
    assert counted == dict.fromkeys(
        ("SessionStart", "UserPromptSubmit", "StopFailure", "SessionEnd"), 1
    )
    assert told[2]["error"] == "authentication_failed"


def test_a_prompt_that_a_hook_blocks_never_leaves(house: House) -> None:
    stop = {"type": "command", "command": "grep -q password && echo 'a secret' >&2 && exit 2"}
    house.install({"UserPromptSubmit": [{"hooks": [stop]}]})
    with lab.server([]) as api:
        house.program.url = api.url
        done = house.program.ask("my password is 1234")
        assert api.bodies == []
    assert done.code == 1
    assert "travois: The prompt was blocked by a hook: a secret" in done.err
    (log,) = house.program.logs()
    assert "1234" not in log.read_text()
    facts = [entry.fact for entry in house.program.facts()]
    assert [f for f in facts if isinstance(f, User) and f.origin == "human"] == []
    assert [f.outcome for f in facts if isinstance(f, Hooked)] == ["blocked: a secret"]
    assert facts[-1] == Ended("hook", "a secret")


def test_hooks_that_cannot_run_are_reported_and_nothing_else_suffers(house: House) -> None:
    lost = {"type": "command", "command": "/no/such/hook", "args": []}
    house.install({"SessionStart": [{"hooks": [lost]}], "Stop": [{"hooks": [lost]}], "Moon": []})
    with lab.server([{"say": [{"text": "Fine."}]}]) as api:
        house.program.url = api.url
        done = house.program.ask("go")
    assert (done.code, done.out) == (0, "Fine.\n")
    for text in ("hooks.Moon is ignored", "the SessionStart hook", "the Stop hook"):
        assert text in done.err


def test_the_example_of_the_page_guards_a_branch(house: House) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
    settings, *_ = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    folder = house.program.folder / ".travois" / "hooks"
    folder.mkdir(parents=True)
    (folder / "guard.py").write_text(program)
    house.install(json.loads(settings)["hooks"])
    calls = [
        {"tool_use": {"name": "Bash", "input": {"command": "git push origin main"}}},
        {"tool_use": {"name": "Bash", "input": {"command": "ls"}}},
    ]
    with lab.server([{"say": calls}, {"say": [{"text": "Done."}]}]) as api:
        house.program.url = api.url
        assert house.program.ask("go", "--allowedTools", "Bash").code == 0
        api.no_invalid()
    decided = [e.fact for e in house.program.facts() if isinstance(e.fact, Decided)]
    assert [(d.verdict, d.by) for d in decided] == [("deny", "hook"), ("allow", "rule")]
    assert decided[0].because == "main is protected: push a branch and open a pull request"


def test_a_session_without_hooks_loads_nothing_that_runs_them() -> None:
    code = "import sys, travois.compose.session; print('travois.hooks.run' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- events that need more than calls -------------------------------------------------------------


def heard(house: House, event: str) -> list[dict[str, Any]]:
    """What was told of an event, without what is told of every one."""
    common = (*COMMON, *TURN)
    told = [one for one in house.told() if one["hook_event_name"] == event]
    return [{k: v for k, v in one.items() if k not in common} for one in told]


def test_a_folder_is_made_ready_when_that_is_asked_for(house: House) -> None:
    house.everywhere()
    program = house.program
    assert program.run("--init-only", *program.model).code == 0
    with lab.server([{"say": [{"text": "Done."}]}]) as api:
        program.url = api.url
        assert program.ask("go", "--maintenance").code == 0
    events = [one["hook_event_name"] for one in house.told()]
    assert events[:3] == ["Setup", "SessionStart", "SessionEnd"]
    assert heard(house, "Setup") == [{"trigger": "init"}, {"trigger": "maintenance"}]


def test_a_cleared_conversation_ends_and_another_begins(house: House) -> None:
    house.everywhere()
    with lab.server([{"say": [{"text": "Done."}]}] * 2) as api:
        house.program.url = api.url
        screen = Screen(house.program, *house.program.model)
        screen.until("> ")
        screen.type("go\n")
        screen.until("Done.")
        screen.until("> ")
        screen.type("/clear\n")
        screen.until("Resume with")
        screen.until("> ")
        assert screen.leave() == 0
    starts = [one["source"] for one in heard(house, "SessionStart")]
    ends = [one["reason"] for one in heard(house, "SessionEnd")]
    assert (starts, ends) == (["startup", "clear"], ["clear", "prompt_input_exit"])


def test_a_file_that_a_hook_watches_is_told_when_it_changes_and_sets_variables(
    house: House,
) -> None:
    folder = house.program.folder
    (folder / "a.cfg").write_text("1")
    also = json.dumps({"hookSpecificOutput": {"watchPaths": [f"{folder}/b.cfg"]}})
    load = f'{house.recorder}; echo "export WORD=changed" >> "$CLAUDE_ENV_FILE"; touch told-'
    groups = [
        {"matcher": f"{one}.cfg", "hooks": [{"type": "command", "command": load + one}]}
        for one in "ab"
    ]
    start = {"type": "command", "command": f"echo '{also}'"}
    house.install({"SessionStart": [{"hooks": [start]}], "FileChanged": groups})
    both = "[ -e told-a ] && [ -e told-b ]"
    write = f"echo 2 > a.cfg; touch b.cfg; for n in $(seq 99); do {both} && break; sleep 0.1; done"
    calls = [
        {"say": [{"tool_use": {"name": "Bash", "input": {"command": line}}}]}
        for line in (write, "echo it is $WORD")
    ]
    with lab.server([*calls, {"say": [{"text": "Done."}]}]) as api:
        house.program.url = api.url
        assert house.program.ask("go", "--allowedTools", "Bash").code == 0
    told = sorted((one["file_path"], one["event"]) for one in heard(house, "FileChanged"))
    assert told == [(f"{folder}/a.cfg", "change"), (f"{folder}/b.cfg", "add")]
    results = [e.fact for e in house.program.facts() if isinstance(e.fact, Result)]
    assert extract_text(results[-1].content).startswith("it is changed")


# --- variables that hooks name --------------------------------------------------------------------

WEBHOOK = "https://hooks.example/services/T0/B0/quartz-lily-77"
PRINTING = 'printf "%s|%s|%s" "$GH_TOKEN" "$SLACK_WEBHOOK_URL" "$OTHER_TOKEN" > "$0.out"'


def print_variables(folder: Path) -> dict[str, Any]:
    """A hook that writes down what it was given, and says it too."""
    script = folder / "print.sh"
    script.write_text(f"{PRINTING}\necho token: $GH_TOKEN $SLACK_WEBHOOK_URL\n")
    env = ["GH_TOKEN", "SLACK_WEBHOOK_URL", "NOT_SET"]
    hook = {"type": "command", "command": f"sh {script}", "env": env, "own": True}
    return {"UserPromptSubmit": [{"hooks": [hook]}]}


def test_a_hook_of_the_users_own_gets_the_variables_that_it_names(house: House) -> None:
    program, folder = house.program, house.program.home.parent
    program.extra |= {
        "GH_TOKEN": "gh-maple-31-heron",
        "SLACK_WEBHOOK_URL": WEBHOOK,
        "OTHER_TOKEN": "other-cedar-52-finch",
    }
    house.install(print_variables(folder))
    with program.served(["ok"]):
        assert program.ask("go").code == 0
    assert (folder / "print.sh.out").read_text() == f"gh-maple-31-heron|{WEBHOOK}|"
    logged = program.logs()[0].read_text()
    assert "token: [redacted: GH_TOKEN] [redacted: SLACK_WEBHOOK_URL]" in logged
    assert "gh-maple" not in logged and "quartz-lily" not in logged


def test_a_hook_of_a_workspace_gets_no_variables_even_if_it_is_trusted(house: House) -> None:
    program, folder = house.program, house.program.folder
    program.extra |= {"GH_TOKEN": "gh-maple-31-heron", "SLACK_WEBHOOK_URL": WEBHOOK}
    hooks = {"hooks": print_variables(folder)}
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text(json.dumps(hooks))
    assert program.run("trust").code == 0
    with program.served(["ok"]):
        done = program.ask("go")
    assert done.code == 0
    assert (folder / "print.sh.out").read_text() == "||"
    assert "`env` in its hooks is ignored" in done.err


# --- hooks in the sandbox -------------------------------------------------------------------------

TRYING = """
touch "$CLAUDE_PROJECT_DIR/inside" 2>/dev/null && echo wrote-inside
touch "$HOME/outside" 2>/dev/null && echo wrote-outside
exit 0
"""


def settings_with(house: House, **hook: object) -> str:
    script = house.program.home.parent / "own" / "try.sh"
    script.parent.mkdir()
    script.write_text(TRYING)
    written = {"type": "command", "command": f"sh {script}", **hook}
    return json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [written]}]}})


@pytest.mark.parametrize(
    ("hook", "everywhere", "expected"),
    [
        ({}, False, (True, True)),
        ({"sandbox": True}, False, (True, False)),
        ({}, True, (True, False)),
        ({"sandbox": False}, True, (True, True)),
    ],
)
def test_a_hook_runs_in_the_sandbox_where_it_or_the_settings_say_so(
    house: House, hook: dict[str, bool], everywhere: bool, expected: tuple[bool, bool]
) -> None:
    program = house.program
    settings = json.loads(settings_with(house, **hook)) | {"sandbox": {"hooks": everywhere}}
    with program.served(["ok"]):
        done = program.ask("go", "--settings", json.dumps(settings))
    assert done.code == 0, done.err
    outside = program.home.parent / "outside"
    assert ((program.folder / "inside").exists(), outside.exists()) == expected


def test_a_hook_that_wants_the_sandbox_does_not_run_where_there_is_none(house: House) -> None:
    program = house.program
    settings = json.loads(settings_with(house, sandbox=True)) | {"sandbox": {"enabled": False}}
    with program.served(["ok"]):
        done = program.ask("go", "--settings", json.dumps(settings))
    assert "it must run in the sandbox, which is not available here" in done.err
    assert not (program.folder / "inside").exists()
