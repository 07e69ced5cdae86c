"""Hooks: what is written, who listens, what their answers mean, and what they do to a turn.

The hooks are real programs and a real server; only the model is scripted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engine.fakes import RecordingPerson, agent, begun, check, facts, play, prompt, small
from travois.core.content import Text, extract_text
from travois.core.facts import Asked, Changed, Decided, Ended, Hooked, Noted, Result, User
from travois.core.tool_names import PARTIAL_ALIASES, TOOL_ALIASES
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.hooks.config import (
    Hook,
    ParsedHooks,
    matches_subject,
    parse_hooks,
    select_matching_hooks,
)
from travois.hooks.events import (
    TOOL_EVENT_NAMES,
    ConfigChange,
    CwdChanged,
    InstructionsLoaded,
    Notification,
    PostCompact,
    PreCompact,
    PreToolUse,
    SessionStart,
    Stop,
    SubagentStart,
    SubagentStop,
)
from travois.hooks.fire import fire_hooks, notify_hooks
from travois.hooks.output import (
    NO_DECISION,
    HookContext,
    HookDecision,
    HookResult,
    interpret_hook_result,
    merge_decisions,
)
from travois.hooks.run import HookEnvironment, HttpHookLimits, LocalHooks, parse_export_lines
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.rules import ToolUse
from travois.permissions.rules import parse_permission_rule as rule
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env, PersonAnswer, UserWarned
from travois.process.local_processes import LocalProcesses
from travois.testing import call, calls, say
from travois.tools.shell.bash import BASH

Tree = dict[str, Any]


# --- what is written -----------------------------------------------------------------------------


def test_a_file_of_hooks_is_read_and_what_cannot_be_used_spoils_nothing_else() -> None:
    tree: Tree = {
        "PreToolUse": [
            {
                "matcher": "Bash",
                "hooks": [
                    {"type": "command", "command": "a", "timeout": 5, "if": "Bash(git *)"},
                    {"type": "oracle", "prompt": "is it good?"},
                    {"type": "agent"},
                    {"type": "command"},
                ],
            },
            {"matcher": "(", "hooks": [{"type": "command", "command": "b"}]},
        ],
        "Stop": [{"hooks": [{"type": "http", "url": "http://x/", "onFailure": "block"}]}],
        "MoonRise": [{"hooks": [{"type": "command", "command": "c"}]}],
        "SessionEnd": {"hooks": []},
    }
    assert parse_hooks(tree, origin="f") == ParsedHooks(
        (
            Hook(
                "command",
                "a",
                None,
                "bash",
                condition="Bash(git *)",
                timeout=5,
                event="PreToolUse",
                matcher="Bash",
                origin="f",
            ),
            Hook("http", url="http://x/", on_failure="block", event="Stop", origin="f"),
        ),
        (
            "f: a PreToolUse hook is ignored: Invalid enum value 'oracle' - at `$.type`",
            "f: a PreToolUse hook is ignored: prompt is missing",
            "f: a PreToolUse hook is ignored: command is missing",
            "f: a PreToolUse hook is ignored: its matcher '(' is not a regular expression: "
            "missing ), unterminated subpattern at position 0",
            "f: hooks.MoonRise is ignored: unknown event",
            "f: hooks.SessionEnd is ignored: Expected `array`, got `object`",
        ),
    )


@pytest.mark.parametrize(
    ("matcher", "tool", "expected"),
    [
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("bash", "Bash", False),
        ("Edit|Write", "Write", True),
        ("Edit, Write", "Write", True),
        ("Edit|Write", "MultiEdit", False),
        ("Edit.*", "MultiEdit", True),
        ("^Edit", "MultiEdit", False),
        ("mcp__db__.*", "mcp__db__drop", True),
        ("mcp__db__.*", "mcp__web__get", False),
        ("mcp__my-db__drop", "mcp__my-db__drop", True),
        ("Notebook.*|Read", "Read", True),
        ("Task", "Agent", True),
        ("Task|Write", "Agent", True),
        ("^Task$", "Agent", True),
        ("(Task|Bash)", "Agent", True),
        ("Agent", "Agent", True),
        ("Task", "TaskCreate", False),
        ("Task", "Bash", False),
        ("shell", "Bash", True),
        ("exec_command", "Bash", True),
        ("^(shell|exec_command)$", "Bash", True),
        ("^(?!Bash$)", "Bash", False),
        ("KillBash", "KillShell", True),
        ("update_plan", "TodoWrite", True),
        ("read_file|write_file", "Write", True),
        ("LS", "Bash", False),
        ("PowerShell", "Bash", False),
    ],
)
def test_a_matcher_is_a_list_of_names_or_a_regular_expression(
    matcher: str, tool: str, expected: bool
) -> None:
    hook = Hook("command", "x", event="PreToolUse", matcher=matcher)
    assert matches_subject(hook, tool) is expected


@pytest.mark.parametrize("name", [name for name in TOOL_ALIASES if name not in PARTIAL_ALIASES])
@pytest.mark.parametrize("event", sorted(TOOL_EVENT_NAMES))
def test_a_matcher_with_another_agents_name_means_our_tool(name: str, event: str) -> None:
    hook = Hook("command", "x", event=event, matcher=f"Nothing|{name}")
    assert matches_subject(hook, TOOL_ALIASES[name].tool)


def test_names_of_tools_mean_nothing_else_at_other_events() -> None:
    assert not matches_subject(Hook("command", "x", event="SubagentStart", matcher="Task"), "Agent")


def test_names_of_failures_hold_no_hyphens_so_such_a_matcher_is_an_expression() -> None:
    assert matches_subject(Hook("command", "x", event="StopFailure", matcher="a-b"), "xa-bx")
    assert not matches_subject(Hook("command", "x", event="SessionEnd", matcher="a-b"), "xa-bx")


@pytest.mark.parametrize(
    ("condition", "command", "expected"),
    [
        ("Bash(git *)", "git push", True),
        ("Bash(git *)", "ls && git push", True),
        ("Bash(git *)", "ls", False),
        ("Edit", "ls", False),
        ("Bash(", "ls", True),
    ],
)
def test_a_condition_is_a_rule_and_one_that_cannot_be_read_holds(
    condition: str, command: str, expected: bool
) -> None:
    from travois.permissions.shell.judge import plan_command

    use = ToolUse(
        "Bash",
        (Access("exec", command),),
        "/w",
        plans=(plan_command(command, cwd="/w", home="/h"),),
    )
    hook = Hook("command", "x", event="PreToolUse", condition=condition)
    occasion = PreToolUse("Bash", {}, "c1")
    assert bool(select_matching_hooks((hook,), occasion, use)) is expected
    assert select_matching_hooks((hook,), occasion, None) == ()


def test_the_same_hook_in_two_files_listens_once() -> None:
    one = Hook("command", "x", event="Stop", origin="a")
    two = Hook("command", "x", event="Stop", origin="b", matcher="*")
    other = Hook("command", "x", event="Stop", timeout=3)
    assert select_matching_hooks((one, two, other), Stop(False, "", (), ()), None) == (one, other)


# --- what answers mean ---------------------------------------------------------------------------

DENY = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}
REWRITE = {"hookSpecificOutput": {"updatedInput": {"path": "b"}}}
MALFORMED = "JSON is malformed: object keys must be strings (byte 1)"
PRE = "PreToolUse"
WORDS = HookDecision(context=("words",))
REFUSED = HookDecision(block="no", reason="no")


def hears(text: str, event: str = PRE) -> HookDecision:
    return HookDecision(messages=(f"the {event} hook 'x'{text}",))


@pytest.mark.parametrize(
    ("event", "answer", "heard", "outcome"),
    [
        (PRE, HookResult("words"), NO_DECISION, "exit 0"),
        ("UserPromptSubmit", HookResult(" words\n"), WORDS, "exit 0"),
        ("SessionStart", HookResult("words"), WORDS, "exit 0"),
        (PRE, HookResult("{}", "why", 2), HookDecision(block="why"), "blocked: why"),
        (
            PRE,
            HookResult('{"decision":"approve"}', "why", 2),
            HookDecision(block="why"),
            "blocked: why",
        ),
        (PRE, HookResult(json.dumps(DENY)), REFUSED, "blocked: no"),
        (PRE, HookResult(json.dumps(DENY), "", 1), REFUSED, "blocked: no"),
        (
            PRE,
            HookResult('{"decision":"approve"}'),
            HookDecision(decision="allow"),
            "decided: allow",
        ),
        (
            PRE,
            HookResult(json.dumps(REWRITE)),
            HookDecision(input='{"path": "b"}'),
            "changed the input",
        ),
        (
            "PostToolUse",
            HookResult('{"hookSpecificOutput":{"updatedToolOutput":"y"}}'),
            HookDecision(output='"y"'),
            "changed the output",
        ),
        (PRE, HookResult("", "oops\nmore", 1), hears(": exit 1: oops"), "exit 1"),
        (
            PRE,
            HookResult("", "gone", 127),
            hears(" could not start: gone"),
            "could not start: gone",
        ),
        (
            PRE,
            HookResult("{oops"),
            hears(f" printed invalid JSON: {MALFORMED}"),
            f"exit 0, bad JSON: {MALFORMED}",
        ),
        ("PermissionRequest", HookResult("", "why", 2), NO_DECISION, "exit 2: why"),
        ("SessionStart", HookResult("", "why", 2), HookDecision(messages=("why",)), "exit 2: why"),
        ("Notification", HookResult("", "why", 2), NO_DECISION, "exit 2: why"),
        (
            "Stop",
            HookResult('{"decision":"block","reason":"go on"}'),
            HookDecision(block="go on", reason="go on"),
            "blocked: go on",
        ),
        (
            "Stop",
            HookResult('{"continue":false,"stopReason":"enough","systemMessage":"m"}'),
            HookDecision(stop="enough", messages=("m",)),
            "stopped: enough",
        ),
        ("Stop", HookResult(failure="timed out"), hears(": timed out", "Stop"), "timed out"),
    ],
)
def test_what_a_hook_says_and_how_it_ends_decide(
    event: str, answer: HookResult, heard: HookDecision, outcome: str
) -> None:
    assert interpret_hook_result(Hook("command", "x", event=event), answer) == (heard, outcome)


@pytest.mark.parametrize(
    "answer",
    [HookResult(status=1), HookResult(status=127), HookResult(failure="timed out after 1 s")],
)
def test_a_hook_that_must_not_fail_closes_the_gate(answer: HookResult) -> None:
    shut = interpret_hook_result(
        Hook("command", "x", event="PreToolUse", on_failure="block"), answer
    )[0]
    assert shut.block == shut.messages[0] != ""
    told = interpret_hook_result(
        Hook("command", "x", event="SessionEnd", on_failure="block"), answer
    )[0]
    assert told.block == ""


def test_of_many_answers_the_strictest_wins_and_all_words_are_kept() -> None:
    many = (
        HookDecision(decision="allow", reason="a", input="1", context=("x",)),
        HookDecision(decision="ask", reason="b", input="2", messages=("m",)),
        HookDecision(context=("y",), block="p"),
        HookDecision(block="q", stop="s"),
    )
    assert merge_decisions(many) == HookDecision(
        block="p\nq", decision="ask", reason="b", input="1", context=("x", "y"), messages=("m",),
        stop="s",
    )  # fmt: skip
    assert (
        merge_decisions((HookDecision(decision="defer"), HookDecision(decision="ask"))).decision
        == "defer"
    )
    assert merge_decisions(()) == NO_DECISION


def test_exports_are_read_and_never_run() -> None:
    text = 'export A=1 B=\'$HOME x\'\n# note\nPATH="/opt:$PATH"\n$(touch x)\nexport C="$A$B"\n\'\n'
    assert dict(parse_export_lines(text, {"PATH": "/bin", "HOME": "/h"})) == {
        "A": "1", "B": "$HOME x", "PATH": "/opt:/bin", "C": "1$HOME x",
    }  # fmt: skip


# --- running them --------------------------------------------------------------------------------


class Workshop:
    """A folder with hooks in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heard = folder / "heard.jsonl"
        self.kept = folder / "kept"
        self.kept.mkdir()

    def hooks(self, tree: Tree, *, reach: HttpHookLimits | None = None) -> LocalHooks:
        parsed = parse_hooks(tree, origin="test")
        assert parsed.notices == ()
        root = str(self.folder.resolve())
        place = HookEnvironment("s1", "/log.jsonl", root, self.kept)
        return LocalHooks(
            parsed.hooks, LocalProcesses(), place=place, reach=reach or HttpHookLimits()
        )

    def recorder(self, then: str = "") -> Tree:
        """A hook that keeps what it is told, and then does as it is asked."""
        return command(f"cat >> {self.heard}; echo >> {self.heard}; {then}")

    def told(self) -> list[Tree]:
        lines = self.heard.read_text().splitlines() if self.heard.exists() else []
        return [json.loads(line) for line in lines]


def command(line: str, **more: Any) -> Tree:
    return {"type": "command", "command": line, **more}


def on(event: str, *hooks: Tree, matcher: str = "") -> Tree:
    return {event: [{"matcher": matcher, "hooks": list(hooks)}]}


def answer(**fields: Any) -> str:
    return f"cat <<'EOF'\n{json.dumps(fields)}\nEOF\n"


def specific(event: str, **fields: Any) -> str:
    return answer(hookSpecificOutput={"hookEventName": event, **fields})


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


READ = small("Read")
WRITE = small("Write", kind="write")
AT = HookContext("/", "default")


def reader(shop: Workshop, tree: Tree, *lines: Any, **more: Any) -> Agent:
    """An agent that reads a.txt once, unless it is told to say other lines."""
    script = lines or (call("Read", path="a.txt"), say("done"))
    tools = more.pop("tools", (READ, WRITE))
    return agent(shop.folder, *script, tools=tools, hooks=shop.hooks(tree), **more)


def results(one: Agent) -> list[str]:
    return [extract_text(fact.content) for fact in facts(one, Result)]


def outcomes(one: Agent) -> list[tuple[str, str]]:
    return [(fact.event, fact.outcome) for fact in facts(one, Hooked)]


def notes(one: Agent) -> list[str]:
    return [extract_text(fact.content) for fact in facts(one, User) if fact.origin == "hook"]


def warnings(one: Agent) -> list[str]:
    """Play a turn; what the user was told besides."""
    prompt(one)
    told: list[str] = []

    async def main() -> None:
        with one.session.watch() as events:
            await run_turn(one)
            while events.statistics().current_buffer_used:
                event = events.receive_nowait()
                told.extend([event.text] if isinstance(event, UserWarned) else [])

    anyio.run(main)
    check(one)
    return told


def test_a_hook_that_exits_with_2_keeps_a_call_from_running(shop: Workshop) -> None:
    one = reader(shop, on("PreToolUse", command("echo 'not that file' >&2; exit 2")))
    assert play(one) == "end"
    assert results(one) == ["Permission denied: not that file. Nothing was run."]
    (decided,) = facts(one, Decided)
    assert (decided.verdict, decided.by) == ("deny", "hook")
    assert outcomes(one) == [("PreToolUse", "blocked: not that file")]


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("exit 1", "exit 1"),
        ("no-such-program-here", "could not start: "),
        ("./plain.txt", "could not start: "),
        ("echo '{oops'", "exit 0, bad JSON: JSON is malformed"),
        ("printf '\\xff\\xfe'", "exit 0"),
        ("head -c 10000000 /dev/zero", "exit 0"),
        ("kill -9 $$", "exit -9"),
    ],
)
def test_a_hook_that_fails_stops_nothing_and_is_reported(
    shop: Workshop, line: str, outcome: str
) -> None:
    (shop.folder / "plain.txt").write_text("x")
    one = reader(shop, on("PreToolUse", command(line)))
    told = warnings(one)
    assert results(one) == ["saw a.txt"]
    ((event, found),) = outcomes(one)
    assert event == "PreToolUse"
    assert found.startswith(outcome)
    assert len(told) == (outcome != "exit 0")


@pytest.mark.parametrize("failure", ["block", "continue"])
def test_a_hook_that_hangs_is_ended_and_blocks_only_if_it_was_told_to(
    shop: Workshop, failure: str
) -> None:
    one = reader(shop, on("PreToolUse", command("sleep 600", timeout=0.2, onFailure=failure)))
    assert play(one) == "end"
    assert outcomes(one) == [("PreToolUse", "timed out after 0.2 s")]
    assert results(one)[0].startswith("Permission denied" if failure == "block" else "saw")


@pytest.mark.parametrize("failure", ["block", "continue"])
def test_a_program_that_cannot_be_started_is_reported(shop: Workshop, failure: str) -> None:
    hook = command("/no/such/program", args=["x"], onFailure=failure)
    one = reader(shop, on("PreToolUse", hook))
    (told,) = warnings(one)
    assert "could not start" in told
    assert results(one)[0].startswith("Permission denied" if failure == "block" else "saw")


def test_hooks_are_told_everything_on_standard_input(shop: Workshop) -> None:
    tree = on("PreToolUse", shop.recorder("env > env.txt; pwd > pwd.txt"))
    assert play(reader(shop, tree)) == "end"
    root = str(shop.folder.resolve())
    (told,) = shop.told()
    id = told.pop("tool_use_id")
    assert told == {
        "session_id": "s1",
        "transcript_path": "/log.jsonl",
        "cwd": root,
        "permission_mode": "acceptEdits",
        "model": "echo-1",
        "prompt_id": "turn-1",
        "turn_id": "turn-1",
        "hook_event_name": "PreToolUse",
        "tool_name": "Read",
        "tool_input": {"path": "a.txt"},
    }
    assert id
    env = (shop.folder / "env.txt").read_text().splitlines()
    assert {f"CLAUDE_PROJECT_DIR={root}", "CLAUDE_CODE_SESSION_ID=s1"} <= set(env)
    assert not any(line.startswith("CLAUDE_ENV_FILE") for line in env)
    assert (shop.folder / "pwd.txt").read_text().strip() == root


def test_the_project_folder_is_filled_in_and_arguments_need_no_shell(shop: Workshop) -> None:
    one = command("echo '${CLAUDE_PROJECT_DIR}' > one.txt")
    two = command("touch", args=["${CLAUDE_PROJECT_DIR}/a b; c"])
    assert play(reader(shop, on("PreToolUse", one, two))) == "end"
    assert (shop.folder / "one.txt").read_text().strip() == str(shop.folder.resolve())
    assert (shop.folder / "a b; c").exists()


def test_all_matching_hooks_run_side_by_side_and_the_same_one_once(shop: Workshop) -> None:
    meet = "touch {0}; for i in $(seq 200); do [ -e {1} ] && exit 0; sleep 0.05; done; exit 2"
    hooks = (command(meet.format("p", "q")), command(meet.format("q", "p")))
    counted = command("echo x >> count")
    tree = on("PreToolUse", *hooks, counted, counted)
    assert play(reader(shop, tree)) == "end"
    assert [outcome for _, outcome in outcomes(reader(shop, tree))] == []
    assert (shop.folder / "count").read_text() == "x\n"


def test_a_hook_that_runs_once_is_spent(shop: Workshop) -> None:
    script = (call("Read", path="a"), call("Read", path="b"), say("done"))
    one = reader(shop, on("PreToolUse", shop.recorder() | {"once": True}), *script)
    assert play(one) == "end"
    assert [told["tool_input"] for told in shop.told()] == [{"path": "a"}]


def test_nobody_waits_for_a_hook_in_the_background(shop: Workshop) -> None:
    line = "while [ ! -e go ]; do sleep 0.02; done; " + specific(
        "PreToolUse", additionalContext="late"
    )
    one = reader(shop, on("PreToolUse", command(line, **{"async": True})))
    prompt(one)

    async def main() -> None:
        assert await run_turn(one) == "end"
        assert outcomes(one) == []
        (shop.folder / "go").touch()
        with anyio.fail_after(300):
            while not facts(one, Hooked):
                await anyio.sleep(0.02)
                await notify_hooks(one, "idle_prompt", "nothing")

    anyio.run(main)
    assert outcomes(one) == [("PreToolUse", "exit 0")]
    assert [extract_text(said.content) for said in one.turn.inbox] == ["<hook>\nlate\n</hook>"]


def test_a_hook_in_the_background_is_ended_when_its_time_is_over(shop: Workshop) -> None:
    hooks = shop.hooks(on("Notification", command("sleep 600", timeout=0.1)))
    runs: list[Hooked] = []

    async def main() -> HookDecision:
        bell = Notification("look", "permission_prompt")
        assert await hooks.fire(bell, AT, record=runs.append) == NO_DECISION
        assert runs == []
        await anyio.sleep(0.2)
        return await hooks.fire(Stop(False, "", (), ()), AT, record=runs.append)

    heard = anyio.run(main)
    assert runs == [Hooked("Notification", "sleep 600", "timed out after 0.1 s")]
    assert heard.messages == ("the Notification hook 'sleep 600': timed out after 0.1 s",)


# --- what they do to calls -----------------------------------------------------------------------


def test_a_hook_may_change_the_input_and_that_is_a_fact(shop: Workshop) -> None:
    changed = specific("PreToolUse", updatedInput={"path": "b.txt"})
    one = reader(shop, on("PreToolUse", command(changed)))
    assert play(one) == "end"
    assert results(one) == ["saw b.txt"]
    (noted,) = facts(one, Noted)
    assert noted.what == "hook changed input"
    kept = json.loads(noted.text)
    assert (json.loads(kept["before"]), json.loads(kept["after"])) == (
        {"path": "a.txt"},
        {"path": "b.txt"},
    )
    assert outcomes(one) == [("PreToolUse", "changed the input")]


def test_changed_input_is_validated_and_judged_like_any_other(shop: Workshop) -> None:
    rules = (rule("Read(secret.txt)", "deny"),)
    guard = Permissions("accept-edits", rules, (str(shop.folder.resolve()),))
    denied = specific("PreToolUse", permissionDecision="allow", updatedInput={"path": "secret.txt"})
    one = reader(shop, on("PreToolUse", command(denied)), guard=guard)
    assert play(one) == "end"
    assert results(one)[0].startswith("Permission denied: rule: deny Read(secret.txt)")
    two = reader(shop, on("PreToolUse", command(specific("PreToolUse", updatedInput={"p": 1}))))
    assert play(two) == "end"
    assert results(two)[0].startswith(
        "Permission denied: a hook changed its input, and then Read was not run: it has no argument"
    )


def test_calls_that_a_hook_makes_collide_run_one_after_the_other(shop: Workshop) -> None:
    running: list[int] = []
    most: list[int] = []

    async def write(args: Any, env: Env, id: str) -> ToolOutcome:
        running.append(1)
        most.append(len(running))
        await anyio.sleep(0.02)
        running.pop()
        return text_outcome(args.path)

    script = (calls(("Write", {"path": "a"}), ("Write", {"path": "b"})), say("done"))
    same = on("PreToolUse", command(specific("PreToolUse", updatedInput={"path": "same"})))
    one = reader(shop, same, *script, tools=(small("Write", write, kind="write"),))
    assert play(one) == "end"
    assert (results(one), most) == (["same", "same"], [1, 1])


@pytest.mark.parametrize(
    ("rules", "decision", "expected"),
    [
        ((), "allow", "saw a.txt"),
        ((("Write", "deny"),), "allow", "Permission denied: rule: deny Write"),
        ((("Write", "ask"),), "allow", "Permission denied: nobody is here"),
        ((("Write", "allow"),), "ask", "Permission denied: nobody is here"),
        ((("Write", "allow"),), "defer", "Permission denied: nobody is here"),
        ((), "", "Permission denied: nobody is here"),
    ],
)
def test_a_hook_grants_what_the_mode_would_ask_and_never_what_a_rule_forbids(
    shop: Workshop, rules: tuple[tuple[str, Any], ...], decision: str, expected: str
) -> None:
    guard = Permissions("default", tuple(rule(*r) for r in rules), (str(shop.folder.resolve()),))
    line = specific("PreToolUse", permissionDecision=decision) if decision else "true"
    script = (call("Write", path="a.txt"), say("done"))
    one = reader(shop, on("PreToolUse", command(line)), *script, guard=guard)
    assert play(one) == "end"
    assert results(one)[0].startswith(expected)


def asked(shop: Workshop, line: str, **more: Any) -> tuple[Agent, RecordingPerson]:
    person = RecordingPerson(PersonAnswer(allow=True))
    guard = Permissions("default", (), (str(shop.folder.resolve()),))
    script = (call("Write", path="a.txt"), call("Write", path="a.txt"), say("done"))
    tree = on("PermissionRequest", command(line))
    one = reader(shop, tree, *script, guard=guard, person=person, **more)
    return one, person


def test_a_hook_may_answer_for_the_person_and_make_it_a_rule(shop: Workshop) -> None:
    update = {
        "type": "addRules",
        "rules": [{"toolName": "Write"}],
        "behavior": "allow",
        "destination": "session",
    }
    decision = {"behavior": "allow", "updatedInput": {"path": "b"}, "updatedPermissions": [update]}
    one, person = asked(shop, specific("PermissionRequest", decision=decision))
    assert play(one) == "end"
    assert (person.asked, facts(one, Asked)) == ([], [])
    assert results(one) == ["saw b", "saw a.txt"]
    assert outcomes(one) == [("PermissionRequest", "decided: allow, changed the input")]
    assert [noted.what for noted in facts(one, Noted)] == [
        "hook changed permissions",
        "hook changed input",
    ]
    assert [decided.by for decided in facts(one, Decided)] == ["hook", "rule"]


def test_a_hook_may_say_no_for_the_person_and_end_the_turn(shop: Workshop) -> None:
    decision = {"behavior": "deny", "message": "not today", "interrupt": True}
    one, person = asked(shop, specific("PermissionRequest", decision=decision))
    assert play(one) == "hook"
    assert person.asked == []
    assert results(one) == ["Permission denied: not today. Nothing was run."]
    assert facts(one, Ended)[-1] == Ended("hook", "not today")


def test_a_hook_without_an_opinion_leaves_the_question_to_the_person(shop: Workshop) -> None:
    one, person = asked(shop, "exit 2")
    assert play(one) == "end"
    assert len(person.asked) == 2
    assert results(one) == ["saw a.txt", "saw a.txt"]


def test_hooks_hear_of_what_was_denied_and_may_let_it_be_tried_again(shop: Workshop) -> None:
    guard = Permissions("accept-edits", (rule("Read", "deny"),), (str(shop.folder.resolve()),))
    hook = shop.recorder(specific("PermissionDenied", retry=True))
    tree = on("PermissionDenied", hook) | on("PreToolUse", shop.recorder())
    one = reader(shop, tree, guard=guard)
    assert play(one) == "end"
    (told,) = shop.told()
    assert (told["hook_event_name"], told["reason"]) == ("PermissionDenied", "rule: deny Read")
    assert results(one)[0].endswith("A hook allows another attempt.")


def test_a_hook_may_change_the_output_and_the_original_is_kept(shop: Workshop) -> None:
    line = specific("PostToolUse", updatedToolOutput="(redacted)")
    one = reader(shop, on("PostToolUse", shop.recorder(line)))
    assert play(one) == "end"
    assert results(one) == ["(redacted)"]
    (noted,) = facts(one, Noted)
    blob = json.loads(noted.text)["blob"]
    assert json.loads(one.world.blobs.get(blob))["content"] == [
        {"type": "text", "text": "saw a.txt"}
    ]
    (told,) = shop.told()
    assert told["tool_response"] == "saw a.txt"
    assert told["duration_ms"] >= 0


def test_feedback_on_a_call_reaches_the_model_after_its_results(shop: Workshop) -> None:
    tree = on("PostToolUse", command("echo 'mind the style' >&2; exit 2"))
    script = (calls(("Read", {"path": "a"}), ("Read", {"path": "b"})), say("done"))
    one = reader(shop, tree, *script)
    assert play(one) == "end"
    assert sorted(results(one)) == ["saw a", "saw b"]
    assert notes(one) == ["A hook reports on the Read call: mind the style"] * 2


def test_a_failure_has_an_event_of_its_own(shop: Workshop) -> None:
    async def fail(args: Any, env: Env, id: str) -> ToolOutcome:
        raise OSError("broken")

    tree = on("PostToolUseFailure", shop.recorder()) | on("PostToolUse", shop.recorder())
    one = reader(shop, tree, tools=(small("Read", fail),))
    assert play(one) == "end"
    (told,) = shop.told()
    assert (told["hook_event_name"], told["error"]) == ("PostToolUseFailure", "Read failed: broken")
    assert told["is_interrupt"] is False


def test_a_stopped_turn_keeps_the_result_that_a_hook_was_looking_at(shop: Workshop) -> None:
    one = reader(shop, on("PostToolUse", command("touch up; sleep 600")))
    prompt(one)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(run_turn, one)
            with anyio.fail_after(300):
                while not (shop.folder / "up").exists():  # noqa: ASYNC110 - it comes from outside
                    await anyio.sleep(0.02)
            group.cancel_scope.cancel()

    anyio.run(main)
    check(one)
    assert results(one) == ["saw a.txt"]
    assert outcomes(one) == [("PostToolUse", "stopped")]


def test_the_whole_batch_is_told_and_a_block_ends_the_turn(shop: Workshop) -> None:
    tree = on("PostToolBatch", shop.recorder("echo enough >&2; exit 2"))
    script = (calls(("Read", {"path": "a"}), ("Read", {"path": "b"})), say("never said"))
    one = reader(shop, tree, *script)
    assert play(one) == "hook"
    assert facts(one, Ended)[-1] == Ended("hook", "enough")
    (told,) = shop.told()
    shown = [(asked["tool_input"], asked["tool_response"]) for asked in told["tool_calls"]]
    assert shown == [({"path": "a"}, "saw a"), ({"path": "b"}, "saw b")]


def test_a_hook_may_stop_everything_before_a_call_runs(shop: Workshop) -> None:
    tree = on("PreToolUse", command(answer(**{"continue": False, "stopReason": "lunch"})))
    script = (calls(("Read", {"path": "a"}), ("Read", {"path": "b"})), say("never said"))
    one = reader(shop, tree, *script)
    assert play(one) == "hook"
    assert facts(one, Ended)[-1] == Ended("hook", "lunch")
    assert results(one) == [
        "Permission denied: lunch. Nothing was run.",
        "Stopped before it ran: nothing was done.",
    ]


# --- what they do to turns -----------------------------------------------------------------------


def test_a_blocked_prompt_is_not_sent_and_the_user_is_told(shop: Workshop) -> None:
    tree = on("UserPromptSubmit", shop.recorder("echo 'no secrets' >&2; exit 2"))
    one = reader(shop, tree)
    assert warnings(one) == ["The prompt was blocked by a hook: no secrets"]
    assert [told["prompt"] for told in shop.told()] == ["go"]
    assert facts(one, User) == []
    assert outcomes(one) == [("UserPromptSubmit", "blocked: no secrets")]
    assert facts(one, Ended) == [Ended("hook", "no secrets")]


def test_what_a_hook_adds_to_a_prompt_follows_it(shop: Workshop) -> None:
    one = reader(shop, on("UserPromptSubmit", command("echo 'It is Monday.'")), say("done"))
    assert play(one) == "end"
    assert [(fact.origin, extract_text(fact.content)) for fact in facts(one, User)] == [
        ("human", "go"),
        ("hook", "<hook>\nIt is Monday.\n</hook>"),
    ]


def test_long_words_of_a_hook_are_shown_in_part_and_kept_whole(shop: Workshop) -> None:
    kept: dict[str, bytes] = {}

    def spill(name: str, data: bytes) -> str:
        kept[name] = data
        return f"/kept/{name}"

    many = on("UserPromptSubmit", command("head -c 10000000 /dev/zero | tr '\\0' x"))
    one = reader(shop, many, say("done"))
    import msgspec

    one.world = msgspec.structs.replace(one.world, spill=spill)
    assert play(one) == "end"
    ((name, data),) = kept.items()
    (note,) = notes(one)
    assert "x" * 2000 + "\n[" in note and f"full text: /kept/{name}]" in note
    assert len(note) < 2200
    assert b"bytes omitted" in data


def test_a_hook_sends_the_model_back_to_work_until_it_is_content(shop: Workshop) -> None:
    line = (
        "[ -e twice ] && exit 0; [ -e once ] && touch twice; touch once; echo 'run it' >&2; exit 2"
    )
    one = reader(shop, on("Stop", shop.recorder(line)), say("first"), say("second"), say("third"))
    assert play(one) == "end"
    assert notes(one) == ["run it", "run it"]
    told = [(t["stop_hook_active"], t["last_assistant_message"]) for t in shop.told()]
    assert told == [(False, "first"), (True, "second"), (True, "third")]


def test_a_hook_that_is_never_content_is_overruled(shop: Workshop) -> None:
    one = reader(shop, on("Stop", command("echo again >&2; exit 2")), say("done"))
    assert "A Stop hook blocked 8 times in a row; ending the turn." in warnings(one)
    assert notes(one) == ["again"] * 8
    assert facts(one, Ended) == [Ended("end")]


def test_a_turn_that_fails_has_an_event_of_its_own(shop: Workshop) -> None:
    from travois.providers.replies import ApiError

    tree = on("StopFailure", shop.recorder(), matcher="rate_limit") | on("Stop", shop.recorder())
    one = reader(shop, tree, ApiError("rate", "slow down", status=429, retry=False))
    assert play(one) == "failed"
    (told,) = shop.told()
    assert (told["hook_event_name"], told["error"]) == ("StopFailure", "rate_limit")


def test_variables_of_a_hook_reach_later_commands_and_survive_resuming(shop: Workshop) -> None:
    setting = "echo 'export GREETING=\"hello $USER_WORD\" USER_WORD=x' >> $CLAUDE_ENV_FILE"
    moved = shop.recorder("echo 'export PLACE=moved' >> $CLAUDE_ENV_FILE")
    tree = on("SessionStart", command(setting)) | on("CwdChanged", moved)
    (shop.folder / "sub").mkdir()
    guard = Permissions("bypass", (), (str(shop.folder.resolve()),))
    script = (call("Bash", command="cd sub"), call("Bash", command="echo $GREETING $PLACE"))
    session = begun()
    one = reader(shop, tree, *script, say("done"), tools=(BASH,), guard=guard, session=session)
    prompt(one)

    async def main() -> None:
        await fire_hooks(one, SessionStart("startup"))
        assert await run_turn(one) == "end"
        await one.world.processes.aclose()  # type: ignore[attr-defined]

    anyio.run(main)
    assert results(one)[1] == "hello moved"
    root = str(shop.folder.resolve())
    (told,) = shop.told()
    assert (told["old_cwd"], told["new_cwd"]) == (root, f"{root}/sub")
    env = [json.loads(f.value) for f in facts(one, Changed) if f.what == "env"]
    assert env[-1] == {"GREETING": "hello ", "USER_WORD": "x", "PLACE": "moved"}
    assert list(shop.kept.iterdir()) == []


def test_events_without_a_subsystem_can_be_told_all_the_same(shop: Workshop) -> None:
    occasions = (
        SubagentStart("a1", "Explore"),
        SubagentStop("a1", "Explore", "/log", stop_hook_active=False),
        PreCompact("auto", ""),
        PostCompact("auto", "short"),
        ConfigChange("user_settings"),
        InstructionsLoaded("/w/AGENTS.md", "Project", "session_start"),
        CwdChanged("/a", "/b"),
    )
    tree: Tree = {}
    for occasion in occasions:
        tree |= on(occasion.event, shop.recorder())
    one = reader(shop, tree)

    async def main() -> None:
        for occasion in occasions:
            await fire_hooks(one, occasion)

    anyio.run(main)
    common = {
        *("session_id", "transcript_path", "cwd", "permission_mode", "model", "hook_event_name"),
    }
    own = {told["hook_event_name"]: set(told) - common for told in shop.told()}
    assert own == {
        "SubagentStart": {"agent_id", "agent_type"},
        "SubagentStop": {"agent_id", "agent_type", "agent_transcript_path", "stop_hook_active"},
        "PreCompact": {"trigger", "custom_instructions"},
        "PostCompact": {"trigger", "compact_summary"},
        "ConfigChange": {"source"},
        "InstructionsLoaded": {"file_path", "memory_type", "load_reason"},
        "CwdChanged": {"old_cwd", "new_cwd"},
    }


def test_the_shell_has_moved_once_whatever_runs_beside_it(shop: Workshop) -> None:
    async def move(args: Any, env: Env, id: str) -> ToolOutcome:
        return text_outcome("moved", changes=(Changed("cwd", env.root + "/sub"),))

    slow = command(f"case $(cat) in *Read*) while [ ! -e {shop.heard} ]; do sleep 0.02; done; esac")
    tree = on("PostToolUse", slow) | on("CwdChanged", shop.recorder())
    script = (calls(("Read", {"path": "a"}), ("Move", {"path": "b"})), say("done"))
    one = reader(shop, tree, *script, tools=(READ, small("Move", move)))
    assert play(one) == "end"
    assert [told["hook_event_name"] for told in shop.told()] == ["CwdChanged"]


# --- hooks behind a URL --------------------------------------------------------------------------


class Server(BaseHTTPRequestHandler):
    """Answers by path: /deny denies, /fail fails, /hang never answers."""

    got: list[tuple[str, str, Tree]]
    release: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append((self.path, self.headers.get("x-key", ""), json.loads(body)))
        if self.path == "/hang":
            self.release.wait(300)
            return
        text = json.dumps(DENY).encode() if self.path == "/deny" else b"oops"
        self.send_response(500 if self.path == "/fail" else 200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[tuple[str, list[tuple[str, str, Tree]]]]:
    got: list[tuple[str, str, Tree]] = []
    release = threading.Event()
    kind = type("Bound", (Server,), {"got": got, "release": release})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()


def post(url: str, **more: Any) -> Tree:
    return {"type": "http", "url": url, **more}


def test_a_server_decides_like_a_command(shop: Workshop, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOOK_KEY", "k1")
    monkeypatch.setenv("OTHER", "o1")
    with serving() as (url, got):
        headers = {"X-Key": "$HOOK_KEY-${OTHER}"}
        hook = post(f"{url}/deny", headers=headers, allowedEnvVars=["HOOK_KEY"])
        one = reader(shop, on("PreToolUse", hook))
        assert play(one) == "end"
    assert results(one) == ["Permission denied: no. Nothing was run."]
    ((path, key, told),) = got
    assert (path, key, told["tool_name"]) == ("/deny", "k1-", "Read")
    assert outcomes(one) == [("PreToolUse", "blocked: no")]


@pytest.mark.parametrize("failure", ["continue", "block"])
@pytest.mark.parametrize(
    ("path", "timeout", "outcome"),
    [("/fail", 300, "the server replied with status 500"), ("/hang", 0.3, "timed out after 0.3 s")],
)
def test_a_server_that_fails_or_hangs_blocks_only_if_it_was_told_to(
    shop: Workshop, path: str, timeout: float, outcome: str, failure: str
) -> None:
    with serving() as (url, _):
        hook = post(f"{url}{path}", timeout=timeout, onFailure=failure)
        one = reader(shop, on("PreToolUse", hook))
        assert play(one) == "end"
    assert outcomes(one) == [("PreToolUse", outcome)]
    assert results(one)[0].startswith("saw" if failure == "continue" else "Permission denied")


def test_a_server_that_is_not_there_is_reported(shop: Workshop) -> None:
    one = reader(shop, on("PreToolUse", post("http://127.0.0.1:9/")))
    (told,) = warnings(one)
    assert "could not be reached" in told
    assert results(one) == ["saw a.txt"]


def test_only_urls_that_settings_name_are_sent_to(shop: Workshop) -> None:
    with serving() as (url, got):
        tree = on("PreToolUse", post(f"{url}/deny"))
        reach = HttpHookLimits(urls=("https://hooks.example.com/*",))
        one = agent(
            shop.folder, call("Read", path="a"), say("done"), tools=(READ,),
            hooks=shop.hooks(tree, reach=reach),
        )  # fmt: skip
        assert play(one) == "end"
        assert got == []
        assert results(one) == ["saw a"]
        named = HttpHookLimits(urls=("http://127.0.0.1:*",), variables=())
        two = agent(
            shop.folder, call("Read", path="a"), say("done"), tools=(READ,),
            hooks=shop.hooks(tree, reach=named),
        )  # fmt: skip
        assert play(two) == "end"
        assert len(got) == 1


def test_an_agent_without_hooks_is_heard_by_nobody(shop: Workshop) -> None:
    one = agent(shop.folder, call("Read", path="a"), say("done"), tools=(READ,))
    assert play(one) == "end"
    assert (facts(one, Hooked, Noted), notes(one)) == ([], [])
    assert anyio.run(fire_hooks, one, Stop(False, "", (), ())) is NO_DECISION


def test_half_a_character_still_reaches_a_hook(shop: Workshop) -> None:
    hooks = shop.hooks(on("PreToolUse", shop.recorder()))

    async def main() -> None:
        occasion = PreToolUse("Read", {"path": "\ud800"}, "c1")
        await hooks.fire(occasion, AT, record=lambda run: None)

    anyio.run(main)
    assert shop.told()[0]["tool_input"] == {"path": "\ud800"}


def test_a_session_that_was_named_by_a_hook_keeps_the_name(shop: Workshop) -> None:
    line = specific("UserPromptSubmit", sessionTitle="parser work")
    one = reader(shop, on("UserPromptSubmit", command(line)), say("done"))
    assert play(one) == "end"
    assert one.session.state["name"] == "parser work"
    assert facts(one, Changed) == [Changed("name", "parser work")]
    assert facts(one, User) == [User((Text("go"),))]
