"""What can be typed after a slash, and what it answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import Call, Text, extract_text
from travois.core.facts import Assistant, Changed, Result, Spawned
from travois.permissions.rules import parse_permission_rule
from travois.ports.world import Command
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.testing import Scripted, say
from travois.tui.line_mode import LineModeHost
from travois.tui.slash import CommandPrompt, complete_slash_line, run_slash_line
from travois.tui.slash_registry import SLASH_COMMANDS

REVIEW = """\
---
description: Look at a file
argument-hint: FILE
---
Review $1 with care.
Said: !`echo by a program`
"""
Answer = str | CommandPrompt | None


class Reader:
    """Somebody at the keyboard who types what a test says."""

    def __init__(self, *typed: str) -> None:
        self.typed, self.seen = list(typed), list[str]()

    def line(self, text: str) -> None:
        self.seen.append(text)

    async def read(self, prompt: str) -> str | None:
        return self.typed.pop(0)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    return Options(cwd=str(tmp_path / "work"))


def at_desk(
    options: Options, run: Callable[[LineModeHost], Awaitable[None]], reader: Reader | None = None
) -> None:
    """Do something in a conversation in which one thing was said."""

    async def main() -> None:
        async with LiveSession(options, model=Scripted(say("ok"))) as session:
            await session.ask("hello")
            await run(LineModeHost(session, options, reader or Reader()))

    anyio.run(main)


def answers(options: Options, *lines: str) -> list[Answer]:
    found: list[Answer] = []

    async def run(desk: LineModeHost) -> None:
        found.extend([await run_slash_line(desk, line) for line in lines])

    at_desk(options, run)
    return found


def test_help_lists_every_command_in_its_group_and_those_of_ones_own(options: Options) -> None:
    write(options, ".claude/commands/review.md", REVIEW)
    (told,) = answers(options, "/help")
    assert isinstance(told, str)
    lines = told.split("\n")
    titles = [line for line in lines if not line.startswith(("  ", "Also"))]
    assert titles == [
        "Conversation",
        "Work",
        "Sessions",
        "Context and cost",
        "Memory",
        "Permissions",
        "Background",
        "Keys and reports",
        "General",
        "Custom commands",
    ]
    assert {line.split()[0].lstrip("/") for line in lines if "/" in line[:4]} == {
        *SLASH_COMMANDS,
    }
    assert len(titles) == len(set(titles)) and told.count("  /review ") == 1
    assert "  /review FILE             Look at a file (.claude/commands/review.md)" in lines


def write(options: Options, name: str, text: str) -> None:
    path = Path(options.cwd, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_word_that_is_nearly_a_command_is_told_with_the_one_that_was_meant(
    options: Options,
) -> None:
    assert answers(options, "/contxt", "/xyzzy") == [
        "There is no command /contxt; did you mean /context?",
        "There is no command /xyzzy; /help lists the commands.",
    ]


def test_how_much_is_thought_can_be_changed_between_turns(options: Options) -> None:
    assert answers(options, "/effort high", "/effort huge", "/effort auto") == [
        "The effort is high.",
        "Unknown effort 'huge'\n  Choose: low, medium, high, xhigh, max.",
        "The effort is left to the model.",
    ]


def test_a_command_of_ones_own_is_said_filled_with_the_typed_line_last(options: Options) -> None:
    write(options, ".claude/commands/review.md", REVIEW)
    (said,) = answers(replace(options, mode="bypass"), "/review a.py")
    assert said == CommandPrompt(
        (Text("Review a.py with care.\nSaid: by a program"), Text("/review a.py"))
    )


def test_a_command_of_ones_own_that_may_not_run_its_program_is_not_said(options: Options) -> None:
    write(options, ".claude/commands/wipe.md", "Do it: !`rm -rf .`")
    (told,) = answers(options, "/wipe")
    assert isinstance(told, str)
    assert told.startswith("/wipe was not run")


def test_a_command_of_ones_own_hides_none_of_ours_and_a_bad_file_is_told(options: Options) -> None:
    write(options, ".claude/commands/help.md", "mine")
    write(options, ".gemini/commands/bad.toml", "prompt = 3 x")
    seen: list[str] = []

    async def run(desk: LineModeHost) -> None:
        seen.extend(desk.notices)
        assert desk.commands["help"] is SLASH_COMMANDS["help"]

    at_desk(options, run)
    bad, hidden = seen
    assert "bad.toml is ignored" in bad
    assert hidden.endswith("help.md is ignored: a built-in command has that name")


def test_names_and_words_that_follow_them_are_offered(options: Options) -> None:
    async def run(desk: LineModeHost) -> None:
        assert [name for name, _ in complete_slash_line(desk, None, "re")] == [
            "rewind",
            "redo",
            "review",
            "resume",
            "rename",
        ]
        assert list(complete_slash_line(desk, "tasks", "s")) == [("see", ""), ("stop", "")]

    at_desk(options, run)


def test_rules_are_listed_with_who_said_them_and_an_answer_can_be_forgotten(
    options: Options, tmp_path: Path
) -> None:
    home = TravoisHome(tmp_path / "home").prepare()
    trust.remember_answer(home, trust.trust_root(options.cwd), "Bash(make:*)")
    home.settings.write_text(json.dumps({"permissions": {"deny": ["Bash(rm:*)"]}}))

    async def run(desk: LineModeHost) -> None:
        agent = desk.session.runtime.agent
        told = await run_slash_line(desk, "/permissions")
        assert isinstance(told, str)
        assert told.startswith("Mode default.")
        assert f"deny    Bash(rm:*)    {home.settings}"[:60] in told
        assert "allow   Bash(make:*)  your answers in this folder" in told
        assert "deny: " in str(await run_slash_line(desk, "/permissions why rm x"))
        await run_slash_line(desk, "/permissions forget Bash(make:*)")
        assert [rule.text for rule in agent.permissions.guard.rules] == ["Bash(rm:*)"]
        assert trust.list_answers(home, trust.trust_root(options.cwd)) == ()
        again = await run_slash_line(desk, "/permissions forget Bash(make:*)")
        assert str(again).startswith("No saved answer allows 'Bash(make:*)'")
        assert await run_slash_line(desk, "/permissions mode plan") == "The mode is plan."
        assert agent.permissions.guard.mode == "plan"

    at_desk(options, run)


def test_forgetting_an_answer_leaves_a_rule_of_a_file_that_says_the_same(
    options: Options, tmp_path: Path
) -> None:
    home = TravoisHome(tmp_path / "home").prepare()

    async def run(desk: LineModeHost) -> None:
        agent = desk.session.runtime.agent
        mine = parse_permission_rule("Bash(make:*)", "allow", origin="your answer")
        file = parse_permission_rule("Bash(make:*)", "allow", origin="a file")
        agent.permissions.guard = replace(agent.permissions.guard, rules=(file, mine))
        trust.remember_answer(home, trust.trust_root(options.cwd), "Bash(make:*)")
        await run_slash_line(desk, "/permissions forget Bash(make:*)")
        assert agent.permissions.guard.rules == (file,)

    at_desk(options, run)


def test_hooks_are_listed_with_their_file(options: Options, tmp_path: Path) -> None:
    home = TravoisHome(tmp_path / "home").prepare()
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}
    home.settings.write_text(json.dumps({"hooks": {"PostToolUse": [hook]}}))
    (told,) = answers(options, "/hooks")
    assert isinstance(told, str)
    assert told.split("\n")[1].split() == ["PostToolUse", "Bash", str(home.settings), "true"]


def test_programs_in_the_background_are_seen_and_stopped(options: Options) -> None:
    async def run(desk: LineModeHost) -> None:
        agent = desk.session.runtime.agent
        assert await run_slash_line(desk, "/tasks") == "No background tasks."
        line = "echo up; sleep 60"
        job = await agent.world.processes.start(
            Command(("bash", "-c", line), options.cwd), id="bash_1"
        )
        agent.session.append(Changed("job:bash_1", "running"))
        while not job.peek_output().total:
            await job.wait_for_change()
        assert "bash_1  running" in str(await run_slash_line(desk, "/tasks"))
        assert await run_slash_line(desk, "/tasks see bash_1") == "up"
        assert job.peek_output().head_and_tail() == b"up\n"
        stopped = await run_slash_line(desk, "/tasks stop bash_1")
        assert stopped == "Stopped bash_1 and everything it started."
        assert job.status is not None
        told = agent.session.view.items[-1].fact.content
        assert extract_text(told).startswith("[bash_1: stopped by the user] bash -c")
        assert not await desk.session.news()
        assert await run_slash_line(desk, "/tasks stop bash_1") == "bash_1 has already ended."
        assert "No running agent 'bash_9'" in str(await run_slash_line(desk, "/tasks stop bash_9"))

    at_desk(options, run)


def test_agents_are_told_with_the_kinds_that_there_are(options: Options) -> None:
    (told,) = answers(options, "/agents")
    assert isinstance(told, str)
    assert told.startswith("No agents yet.")
    assert {"explore", "general", "plan", "fork"} <= {
        line.split(" ")[0] for line in told.split("\n")
    }


def test_the_last_result_is_shown_whole(options: Options) -> None:
    lines = "\n".join(f"line {number}" for number in range(200))

    async def run(desk: LineModeHost) -> None:
        log = desk.session.runtime.agent.session
        assert await run_slash_line(desk, "/output") == "There is no result yet."
        log.append(Assistant((Call("c1", "Bash", "{}"), Call("c2", "Bash", "{}")), "calls"))
        log.append(Result("c1", (Text(lines),)))
        log.append(Result("c2", (Text("red\x1b[31m"),)))
        assert await run_slash_line(desk, "/output 2") == lines
        assert "\x1b" not in str(await run_slash_line(desk, "/output"))
        assert await run_slash_line(desk, "/output 3") == "There are only 2 results."

    at_desk(options, run)


def spawned_once(desk: LineModeHost) -> None:
    desk.session.runtime.agent.session.append(Spawned("a1", "explore", "count the logs"))


def test_an_agent_is_chosen_from_a_list_that_ends_with_the_tables(options: Options) -> None:
    reader = Reader("2", "", "1")

    async def run(desk: LineModeHost) -> None:
        spawned_once(desk)
        told = str(await run_slash_line(desk, "/agents"))
        assert "a1" in told and "explore" in told and "TYPE" in told
        assert reader.seen == [
            "Which agent?",
            "  1. a1  count the logs: explore · ended",
            "  2. list: all agents and agent types as tables",
        ]
        assert await run_slash_line(desk, "/agents") == "", "nothing was chosen"
        assert "has no agent 'a1'" in str(await run_slash_line(desk, "/agents")), "shown at once"

    at_desk(options, run, reader)


def test_a_front_end_that_cannot_ask_lists_agents_and_servers(options: Options) -> None:
    async def run(desk: LineModeHost) -> None:
        spawned_once(desk)
        desk.can_choose = False
        assert "count the logs" in str(await run_slash_line(desk, "/agents"))
        assert str(await run_slash_line(desk, "/mcp")).startswith("SERVER")

    servers = {"mcpServers": {"s": {"command": "true"}}}
    at_desk(replace(options, mcp=(json.dumps(servers),)), run)


def test_an_mcp_server_is_chosen_then_shown_disabled_enabled_and_reconnected(
    options: Options,
) -> None:
    pytest.importorskip("mcp")
    lender = str(Path(__file__).parents[1] / "mcp" / "lender.py")
    server = {"command": sys.executable, "args": [lender, "none"]}
    typed = replace(options, mcp=(json.dumps({"mcpServers": {"s": server}}),))
    reader = Reader("1", "3", "1", "2", "1", "2", "2")

    async def run(desk: LineModeHost) -> None:
        (link,) = desk.session.runtime.mcp_servers.links
        await link.wait_until_started()
        assert await run_slash_line(desk, "/mcp") == "s is disabled, until this session ends."
        assert not link.on
        assert "Enable it first" in str(await run_slash_line(desk, "/mcp reconnect s"))
        assert await run_slash_line(desk, "/mcp") == "s is enabled."
        assert str(await run_slash_line(desk, "/mcp")).startswith("s is connected: ")
        assert str(await run_slash_line(desk, "/mcp")).startswith("SERVER")
        shown = str(await run_slash_line(desk, "/mcp show s"))
        assert shown.startswith("s: connected (") and "\nadd " in shown
        assert "/mcp__s__greet" in shown
        assert "There is no MCP server 'x'" in str(await run_slash_line(desk, "/mcp show x"))
        assert any(line.startswith("  1. s: disabled") for line in reader.seen)

    at_desk(typed, run, reader)


def test_commands_of_the_command_line_run_with_their_defaults(options: Options) -> None:
    found, nothing, why, checked = answers(
        options, "/search hello", "/search -nothing", "/permissions why rm -rf x", "/doctor"
    )
    assert "/resume" in str(found)
    assert "no matching" in str(nothing).lower()
    assert str(why).startswith("ask") and "sandbox" in str(checked).lower()


def test_what_fills_the_window_is_a_table(options: Options) -> None:
    (told,) = answers(options, "/context")
    kinds = [line.split()[0] for line in str(told).split("\n")[:9]]
    assert kinds == [
        *("PART", "system", "tools", "instructions", "memory", "summary"),
        *("messages", "results", "free"),
    ]


def test_settings_are_told_with_who_decided_them(options: Options) -> None:
    some, one, wrong = answers(
        replace(options, mode="plan"), "/config", "/config tui.vim", "/config tui.vin"
    )
    assert isinstance(some, str)
    assert some.split("\n")[1].split() == ["permissions.defaultMode", '"plan"', "command", "line"]
    assert "tui.vim" not in some
    assert isinstance(one, str)
    assert one.split("\n")[1].split() == ["tui.vim", "false", "default"]
    assert wrong == "Unknown setting 'tui.vin'\n  Did you mean tui.vim?"


def test_a_conversation_is_written_as_a_document_and_nothing_is_overwritten(
    options: Options,
) -> None:
    write(options, "there.md", "mine")
    written, refused = answers(options, "/export talk.html", "/export there.md")
    assert str(written).startswith("talk.html (")
    assert "hello" in Path(options.cwd, "talk.html").read_text()
    assert refused == "there.md already exists\n  Choose another name."


def test_a_session_is_named_branched_off_and_left_for_another(options: Options) -> None:
    async def run(desk: LineModeHost) -> None:
        assert (
            await run_slash_line(desk, "/rename  the   talk")
            == "Renamed. To resume it: /resume the talk"
        )
        last = desk.session.runtime.agent.session.all_entries()[-1].fact
        assert last == Changed("name", "the talk")
        assert await run_slash_line(desk, "/resume the talk") == "You are already in this session."
        assert str(await run_slash_line(desk, "/resume nothing")).startswith(
            "There is no session 'nothing'"
        )
        assert not desk.left
        await run_slash_line(desk, "/fork")
        assert desk.left
        assert desk.next == replace(options, resume=desk.session.id, fork=True)

    at_desk(options, run)


def test_the_other_session_is_chosen_by_number_or_by_words(options: Options) -> None:
    ids: list[str] = []

    async def first(desk: LineModeHost) -> None:
        ids.append(desk.session.id)

    reader = Reader("nothing like it", "hel", "1")

    async def second(desk: LineModeHost) -> None:
        assert await run_slash_line(desk, "/resume") == ""
        assert desk.next == replace(options, resume=ids[0])

    at_desk(options, first)
    at_desk(options, second, reader)
    assert [line.partition("  (")[0] for line in reader.seen] == [
        "1 sessions in this project:",
        "  1. hello",
        "0 sessions in this project:",
        "1 sessions in this project:",
        "  1. hello",
    ]
