"""What the end-to-end suite of claude-agent-sdk checks, case by case, with a scripted model.

The suite lives in the repository of the SDK and asks a real model; these cases are our own words
for the same behaviour. `python -m bench conformance` counts them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="needs claude-agent-sdk")

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ConversationResetMessage,
    HookMatcher,
    InMemorySessionStore,
    Message,
    PermissionResultAllow,
    ProcessError,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    create_sdk_mcp_server,
    get_session_messages,
    get_subagent_messages,
    get_subagent_messages_from_store,
    list_sessions,
    list_subagents,
    list_subagents_from_store,
    tool,
)

from tests.conformance.driver import House, response, result, said, use

OK = [{"say": "OK", "repeat": True}]
ECHO_COMMAND = use("Bash", command="echo hello")


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """A house whose client finds the transcripts of the program that it drives."""
    claude = str(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", claude)
    return House(tmp_path, claude=claude)


def opening(messages: list[Message]) -> dict[str, Any]:
    """What the first message tells of the session."""
    first = messages[0]
    assert isinstance(first, SystemMessage) and first.subtype == "init"
    return first.data


async def talk(house: House, prompt: Any = "go", **chosen: Any) -> list[Message]:
    """All messages of one turn of a client."""
    async with house.client(**chosen) as client:
        await client.query(prompt)
        return await response(client)


# Agents and settings


def large_agents() -> dict[str, AgentDefinition]:
    prompt = "Work. " + "x" * 13 * 1024
    return {f"large-{i}": AgentDefinition(description="large", prompt=prompt) for i in range(20)}


def test_an_agent_of_the_client_is_announced(house: House) -> None:
    agent = AgentDefinition(description="tests", prompt="Test.", tools=["Read"], model="sonnet")

    async def main() -> None:
        assert "tester" in opening(await talk(house, agents={"tester": agent}))["agents"]

    house.run(OK, main)


def test_an_agent_is_announced_to_a_single_query_too(house: House) -> None:
    async def main() -> None:
        agents = {"tester": AgentDefinition(description="tests", prompt="Test.")}
        assert "tester" in opening(await house.ask("hi", agents=agents))["agents"]

    house.run(OK, main)


@pytest.mark.parametrize("ask", [House.ask, talk])
def test_agents_of_260_kb_arrive(house: House, ask: Any) -> None:
    async def main() -> None:
        agents = large_agents()
        assert set(agents) <= set(opening(await ask(house, "hi", agents=agents))["agents"])

    house.run(OK, main)


def test_an_agent_in_a_file_loads_and_the_turn_goes_on_to_its_end(house: House) -> None:
    file = house.folder / ".claude/agents/helper.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: helper\ndescription: helps\ntools: Read\n---\nHelp briefly.\n")

    async def main() -> None:
        messages = await talk(house, setting_sources=["project"])
        assert "helper" in opening(messages)["agents"]
        assert any(isinstance(one, AssistantMessage) for one in messages)
        assert result(messages).result == "OK"

    house.run(OK, main)


@pytest.mark.parametrize("sources", [None, ["user", "project", "local"]])
def test_the_output_style_of_local_settings_is_echoed(house: House, sources: Any) -> None:
    file = house.folder / ".claude/settings.local.json"
    file.parent.mkdir()
    file.write_text('{"outputStyle": "local-test-style"}')

    async def main() -> None:
        messages = await talk(house, setting_sources=sources)
        assert opening(messages)["output_style"] == "local-test-style"
        (told,) = house.unexpected_errors()
        assert "unknown output style 'local-test-style'; available: Explanatory, Learning" in told

    house.run(OK, main)


def test_commands_of_a_project_are_left_out_without_its_source(house: House) -> None:
    file = house.folder / ".claude/commands/testcmd.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\ndescription: Test command\n---\nTest.\n")

    async def main() -> None:
        without = opening(await talk(house, setting_sources=["user"]))["slash_commands"]
        assert "testcmd" not in without
        both = opening(await talk(house, setting_sources=["user", "project"]))["slash_commands"]
        assert "testcmd" in both

    house.run(OK, main)


# Clearing, control requests and errors


def test_clear_ends_the_session_and_begins_another(house: House) -> None:
    async def main() -> None:
        async with house.client(max_turns=1) as client:
            await client.query("one")
            first = result(await response(client))
            await client.query("/clear")
            messages = await response(client)
            (reset,) = (one for one in messages if isinstance(one, ConversationResetMessage))
            assert (reset.session_id, bool(reset.uuid)) == (first.session_id, True)
            second = result(messages)
            assert second.session_id == reset.new_conversation_id != first.session_id
            await client.query("two")
            assert result(await response(client)).session_id == second.session_id
        assert "one" not in json.dumps(house.api.bodies[-1]["messages"])
        assert {one.session_id for one in list_sessions(str(house.folder))} == {
            first.session_id,
            second.session_id,
        }

    house.run(OK, main)


def test_the_permission_mode_changes_in_the_middle(house: House) -> None:
    async def main() -> None:
        async with house.client(permission_mode="default") as client:
            modes: list[str] = []
            for mode in ("acceptEdits", "default"):
                await client.set_permission_mode(mode)  # type: ignore[arg-type]
                await client.query("2+2?")
                modes.append(opening(await response(client))["permissionMode"])
            assert modes == ["acceptEdits", "default"]

    house.run(OK, main)


def test_the_model_changes_and_changes_back(house: House) -> None:
    async def main() -> None:
        async with house.client() as client:
            for model in (None, "anthropic/claude-haiku-4-5", None):
                await client.set_model(model)
                await client.query("1+1?")
                assert result(await response(client)).result == "OK"
        models = [body["model"] for body in house.api.bodies]
        assert models == ["claude-opus-5-5", "claude-haiku-4-5", "claude-opus-5-5"]

    house.run(OK, main)


def test_an_interrupt_ends_the_turn(house: House) -> None:
    async def main() -> None:
        async with house.client(include_partial_messages=True) as client:
            await client.query("count")
            async for message in client.receive_messages():
                if isinstance(message, StreamEvent):
                    break
            await client.interrupt()
            last = result(await response(client))
            assert (last.is_error, last.terminal_reason) == (True, "aborted_streaming")

    house.run([{"say": "1 2 3 " * 2000, "chunks": {"by": "char", "delay_ms": 20}}], main)


def test_an_error_of_the_api_arrives_as_an_exception_with_its_result(house: House) -> None:
    async def main() -> None:
        messages: list[Message] = []
        with pytest.raises(ResultError) as raised:
            await house.ask("pong", seen=messages, model="anthropic/claude-no-such-model")
        last, error = result(messages), raised.value
        assert isinstance(error, ProcessError) and error.exit_code is not None
        assert last.result and last.result in str(error)
        told = (last.is_error, last.subtype, last.terminal_reason, last.api_error_status)
        assert told == (True, "success", "api_error", 404)
        assert (error.subtype, error.result, error.session_id) == (
            last.subtype,
            last.result,
            last.session_id,
        )
        assert (error.terminal_reason, error.api_error_status) == ("api_error", 404)
        assert error.data["uuid"] == last.uuid

    house.run(OK, main)


@pytest.mark.parametrize("forward", [True, False])
def test_the_text_of_a_subagent_is_forwarded_only_on_request(house: House, forward: bool) -> None:
    async def main() -> None:
        messages = await house.ask("greet", agents=GREETER, forward_subagent_text=forward)
        calls = {one.id for m in messages for one in blocks(m, ToolUseBlock)}
        texts = [m for m in messages if parent(m) and [*blocks(m, TextBlock)]]
        assert bool(texts) is forward
        assert {parent(m) for m in texts} <= calls

    house.run(GREETING, main)


GREETER = {"greeter": AgentDefinition(description="greets", prompt="Greet.", model="haiku")}
GREETING = [
    {
        "when": {"last_text": "greet"},
        **use("Agent", subagent_type="greeter", description="greet", prompt="say hi"),
    },
    {"when": {"last_text": "say hi"}, **said("Hello there.")},
    {"say": "DONE", "repeat": True},
]


def blocks(message: Message, kind: type[Any]) -> list[Any]:
    content = message.content if isinstance(message, AssistantMessage) else []
    return [block for block in content if isinstance(block, kind)]


def parent(message: Message) -> str | None:
    return message.parent_tool_use_id if isinstance(message, AssistantMessage) else None


# Hooks


class Ear:
    """A hook that hears events and answers each in the same way."""

    def __init__(self, **answer: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self._answer = answer

    async def __call__(self, told: Any, id: str | None, context: Any) -> Any:
        self.heard.append(told)
        return self._answer

    def on(self, *events: str, matcher: str | None = None) -> dict[str, Any]:
        return {"hooks": {one: [HookMatcher(matcher=matcher, hooks=[self])] for one in events}}


def specific(event: str, **answer: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **answer}}


BASH = {"allowed_tools": ["Bash"]}


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
def test_hooks_around_a_call_hear_its_id_and_add_context(house: House, event: str) -> None:
    allow = {"permissionDecision": "allow"} if event == "PreToolUse" else {}
    ear = Ear(**specific(event, additionalContext="This is a test environment.", **allow))

    async def main() -> None:
        messages = await talk(house, **BASH, **ear.on(event, matcher="Bash"))
        (call,) = (one for m in messages for one in blocks(m, ToolUseBlock))
        assert [one["tool_use_id"] for one in ear.heard] == [call.id]
        assert "This is a test environment." in json.dumps(house.api.bodies[-1]["messages"])

    house.run([ECHO_COMMAND, *OK], main)


def test_a_hook_for_notifications_hears_their_kind(house: House) -> None:
    ear = Ear(**specific("Notification", additionalContext="heard"))

    async def decide(name: str, given: Any, context: Any) -> PermissionResultAllow:
        return PermissionResultAllow()

    async def main() -> None:
        write = await talk(house, can_use_tool=decide, **ear.on("Notification"))
        assert result(write).is_error is False
        assert {one["hook_event_name"] for one in ear.heard} <= {"Notification"}
        assert all(one["notification_type"] for one in ear.heard)

    house.run([use("Write", file_path="a.txt", content="a"), *OK], main)


def test_a_hook_hears_of_the_start(house: House) -> None:
    ear = Ear(**specific("SessionStart", additionalContext="It is Monday."))

    async def main() -> None:
        await talk(house, **ear.on("SessionStart"))
        assert [one["source"] for one in ear.heard] == ["startup"]
        assert "It is Monday." in json.dumps(house.api.bodies[0]["messages"])

    house.run(OK, main)


def test_hooks_for_several_events_work_together(house: House) -> None:
    ear = Ear()
    events = ("SessionStart", "Notification", "PreToolUse", "PostToolUse")

    async def main() -> None:
        await talk(house, **BASH, **ear.on(*events))
        heard = [one["hook_event_name"] for one in ear.heard]
        assert heard == ["SessionStart", "PreToolUse", "PostToolUse"]

    house.run([ECHO_COMMAND, *OK], main)


def test_a_hook_denies_with_a_reason_for_the_model(house: House) -> None:
    deny = specific(
        "PreToolUse", permissionDecision="deny", permissionDecisionReason="no Bash in this house"
    )
    ear = Ear(reason="blocked", systemMessage="blocked by a hook", **deny)

    async def main() -> None:
        await talk(house, **BASH, **ear.on("PreToolUse", matcher="Bash"))
        assert [one["tool_name"] for one in ear.heard] == ["Bash"]
        assert "no Bash in this house" in json.dumps(house.api.bodies[-1]["messages"])

    house.run([ECHO_COMMAND, *OK], main)


def test_a_hook_stops_the_turn(house: House) -> None:
    ear = Ear(continue_=False, stopReason="halted", systemMessage="stopped by a hook")

    async def main() -> None:
        last = result(await talk(house, **BASH, **ear.on("PostToolUse", matcher="Bash")))
        assert (last.terminal_reason, len(house.api.bodies)) == ("hook_stopped", 1)
        assert [one["tool_name"] for one in ear.heard] == ["Bash"]

    house.run([ECHO_COMMAND, *OK], main)


def test_a_hook_after_a_call_adds_what_it_saw(house: House) -> None:
    ear = Ear(
        systemMessage="watched",
        suppressOutput=False,
        **specific("PostToolUse", additionalContext="The monitor saw it."),
    )

    async def main() -> None:
        await talk(house, **BASH, **ear.on("PostToolUse", matcher="Bash"))
        assert len(ear.heard) == 1
        assert "The monitor saw it." in json.dumps(house.api.bodies[-1]["messages"])

    house.run([ECHO_COMMAND, *OK], main)


# Partial messages, and who a message is from


JOKE = {"say": [{"thinking": "2 and 2 are 4, step by step."}, {"text": "A joke."}]}
PARTIAL = {"include_partial_messages": True, "model": "anthropic/claude-sonnet-4-5"}
THINKING = {"env": {"MAX_THINKING_TOKENS": "8000"}, "max_turns": 2}


def test_partial_messages_come_as_events_beside_the_whole_ones(house: House) -> None:
    async def main() -> None:
        messages = await talk(house, **PARTIAL, **THINKING)
        assert opening(messages)
        events = {one.event["type"] for one in messages if isinstance(one, StreamEvent)}
        assert events >= {
            *("message_start", "content_block_start", "content_block_delta"),
            *("content_block_stop", "message_stop"),
        }
        assert any(blocks(one, ThinkingBlock) for one in messages)
        assert any(blocks(one, TextBlock) for one in messages)
        assert result(messages).subtype == "success"

    house.run([JOKE], main)


def test_thinking_comes_in_pieces(house: House) -> None:
    async def main() -> None:
        messages = await talk(house, **PARTIAL, **THINKING)
        deltas = [m.event.get("delta", {}) for m in messages if isinstance(m, StreamEvent)]
        thought = [one["thinking"] for one in deltas if one.get("type") == "thinking_delta"]
        assert len(thought) > 1 and "".join(thought) == "2 and 2 are 4, step by step."

    house.run([{**JOKE, "chunks": {"by": "char"}}], main)


def test_no_partial_messages_come_unasked(house: House) -> None:
    async def main() -> None:
        kinds = [type(message) for message in await talk(house)]
        assert kinds == [SystemMessage, AssistantMessage, ResultMessage]

    house.run(OK, main)


def test_the_origin_of_a_prompt_comes_back_with_its_result(house: House) -> None:
    async def one(**more: Any) -> AsyncIterator[dict[str, Any]]:
        said = {"role": "user", "content": "one"}
        yield {"type": "user", "message": said, "parent_tool_use_id": None, **more}

    async def main() -> None:
        async with house.client(max_turns=1) as client:
            await client.query(one(origin={"kind": "human"}))
            assert result(await response(client)).origin == {"kind": "human"}
            await client.query(one())
            assert result(await response(client)).origin is None

    house.run(OK, main)


# Tools of the client


def lend(calls: list[str], name: str) -> dict[str, Any]:
    """A server in the client with two tools that note their calls."""

    @tool("echo", "Echo the text", {"text": str})
    async def echo(args: dict[str, Any]) -> dict[str, Any]:
        calls.append("echo")
        return {"content": [{"type": "text", "text": f"Echo: {args['text']}"}]}

    @tool("greet", "Greet a person", {"name": str})
    async def greet(args: dict[str, Any]) -> dict[str, Any]:
        calls.append("greet")
        return {"content": [{"type": "text", "text": f"Hello, {args['name']}!"}]}

    return {"mcp_servers": {name: create_sdk_mcp_server(name, tools=[echo, greet])}}


def echo_and_greet(name: str) -> list[dict[str, Any]]:
    return [
        use(f"mcp__{name}__greet", name="Alice"),
        use(f"mcp__{name}__echo", text="test"),
        *OK,
    ]


def test_an_allowed_tool_of_the_client_runs(house: House) -> None:
    calls: list[str] = []

    async def main() -> None:
        await talk(house, allowed_tools=["mcp__test__echo"], **lend(calls, "test"))
        assert calls == ["echo"]

    house.run([use("mcp__test__echo", text="hi"), *OK], main)


def test_a_disallowed_tool_of_the_client_never_runs(house: House) -> None:
    calls: list[str] = []
    rules = {"disallowed_tools": ["mcp__test__echo"], "allowed_tools": ["mcp__test__greet"]}

    async def main() -> None:
        await talk(house, **rules, **lend(calls, "test"))
        assert calls == ["greet"]

    house.run(echo_and_greet("test"), main)


def test_several_tools_of_the_client_run_in_one_turn(house: House) -> None:
    calls: list[str] = []
    rules = {"allowed_tools": ["mcp__multi__echo", "mcp__multi__greet"]}

    async def main() -> None:
        await talk(house, **rules, **lend(calls, "multi"))
        assert calls == ["greet", "echo"]

    house.run(echo_and_greet("multi"), main)


def test_without_a_rule_no_tool_of_the_client_runs(house: House) -> None:
    calls: list[str] = []

    async def main() -> None:
        last = result(await talk(house, **lend(calls, "noperm")))
        assert calls == [] and len(last.permission_denials or []) == 2

    house.run(echo_and_greet("noperm"), main)


def test_a_prompt_that_is_a_text_can_use_tools_of_the_client(house: House) -> None:
    calls: list[str] = []

    async def main() -> None:
        chosen = {"allowed_tools": ["mcp__test__echo"], **lend(calls, "test")}
        assert result(await house.ask("go", **chosen)).result == "OK"
        assert calls == ["echo"]

    house.run([use("mcp__test__echo", text="hello world"), *OK], main)


# Standard error, and structured output


def test_a_clean_run_says_nothing_on_standard_error(house: House) -> None:
    async def main() -> None:
        await house.ask("1+1?")
        assert house.unexpected_errors() == []

    house.run(OK, main)


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "simple": (
        {"file_count": {"type": "number"}, "has_tests": {"type": "boolean"}},
        {"file_count": 3, "has_tests": True},
    ),
    "nested": (
        {
            "analysis": {"type": "object", "properties": {"words": {"type": "number"}}},
            "words": {"type": "array", "items": {"type": "string"}},
        },
        {"analysis": {"words": 2}, "words": ["Hello", "world"]},
    ),
    "enum": (
        {"framework": {"type": "string", "enum": ["pytest", "unittest"]}},
        {"framework": "pytest"},
    ),
    "after tools": (
        {"file_count": {"type": "number"}, "has_readme": {"type": "boolean"}},
        {"file_count": 0, "has_readme": False},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_has_the_form_that_was_asked_for(house: House, name: str) -> None:
    properties, answer = FORMS[name]
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    form = {"type": "json_schema", "schema": schema}

    async def main() -> None:
        last = result(await house.ask("go", output_format=form, permission_mode="acceptEdits"))
        assert (last.is_error, last.subtype) == (False, "success")
        assert last.structured_output == answer

    house.run([use("Glob", pattern="*"), use("StructuredOutput", **answer), *OK], main)


# Permission questions


@pytest.mark.parametrize("path", ["/tmp/judged.txt", "judged.txt"])
def test_a_command_that_writes_is_put_to_the_client(house: House, path: str) -> None:
    asked: list[dict[str, Any]] = []

    async def main() -> None:
        await talk(house, can_use_tool=deciding(asked))
        assert [one["command"] for one in asked] == [f"touch {path}"]

    house.run([use("Bash", command=f"touch {path}"), *OK], main)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_query_with_nothing_but_a_callback_is_answered_by_it(
    house: House, streamed: bool
) -> None:
    asked: list[dict[str, Any]] = []

    async def stream() -> AsyncIterator[dict[str, Any]]:
        message = {"role": "user", "content": "write"}
        yield {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""}

    async def main() -> None:
        rules = {"can_use_tool": deciding(asked), "disallowed_tools": ["Bash"], "max_turns": 3}
        last = result(await house.ask(stream() if streamed else "write", **rules))
        assert not last.is_error and (house.folder / "a.txt").read_text() == "hello"
        assert [one["file_path"] for one in asked] == ["a.txt"]

    house.run([use("Write", file_path="a.txt", content="hello"), *OK], main)


def deciding(asked: list[dict[str, Any]]) -> Any:
    """A callback that allows every call and notes its input."""

    async def decide(name: str, given: dict[str, Any], context: Any) -> PermissionResultAllow:
        asked.append(given)
        return PermissionResultAllow()

    return decide


# Transcripts


def test_settings_of_the_client_count_for_a_session_from_its_store(house: House) -> None:
    store: Any = InMemorySessionStore()
    folder = Path(house.claude)
    folder.mkdir()

    async def main() -> None:
        first = await house.ask("one", session_store=store)
        assert opening(first)["output_style"] == "default"
        (folder / "settings.json").write_text('{"outputStyle": "Explanatory"}')
        shutil.rmtree(folder / "projects")
        shutil.rmtree(house.home)
        id = result(first).session_id
        again = await house.ask("two", session_store=store, resume=id)
        assert opening(again)["output_style"] == "Explanatory"
        assert (result(again).session_id, result(again).is_error) == (id, False)

    house.run(OK, main)


def test_a_subagent_s_transcript_names_the_call_that_started_it(house: House) -> None:
    store: Any = InMemorySessionStore()
    folder = str(house.folder)

    async def main() -> None:
        messages = await house.ask("greet", agents=GREETER, session_store=store)
        id = result(messages).session_id
        (call,) = (one.id for m in messages for one in blocks(m, ToolUseBlock))
        (agent,) = list_subagents(id, folder)
        local = get_subagent_messages(id, agent, folder)
        assert [agent] == await list_subagents_from_store(store, id, folder)
        stored = await get_subagent_messages_from_store(store, id, agent, folder)
        assert local == stored and [one.type for one in local][-2:] == ["user", "assistant"]
        assert {(one.parent_tool_use_id, one.parent_agent_id) for one in local} == {(call, None)}

    house.run(GREETING, main)


async def two_turns(house: House) -> tuple[str, str, str]:
    """A session of two turns: its id, the end of the first turn, and the prompt of the second."""
    async with house.client(max_turns=1) as client:
        await client.query("first")
        kept = next(m for m in await response(client) if isinstance(m, AssistantMessage))
        await client.query("second")
        id = result(await response(client)).session_id
    chain = get_session_messages(id, str(house.folder))
    at = [one.uuid for one in chain].index(str(kept.uuid))
    assert chain[at + 1].message["content"] == "second"
    return id, str(kept.uuid), chain[at + 1].uuid


def prompts(house: House, id: str) -> list[str]:
    chain = get_session_messages(id, str(house.folder))
    return [one.message["content"] for one in chain if one.type == "user"]


def test_a_fork_leaves_out_the_turn_that_it_names(house: House) -> None:
    async def main() -> None:
        id, kept, dropped = await two_turns(house)
        upto = {"resume": id, "resume_session_at": kept, "resume_drops_turn": dropped}
        forked = result(await house.ask("third", fork_session=True, **upto))
        assert forked.session_id != id and not forked.is_error
        assert prompts(house, forked.session_id) == ["first", "third"]
        assert prompts(house, id) == ["first", "second"]

    house.run(OK, main)


@pytest.mark.parametrize("named", ["6a1f4f0e-4d8c-4a6e-9d51-0c6f2e1f7a11", ""])
def test_a_fork_that_would_leave_out_another_turn_is_refused(house: House, named: str) -> None:
    async def main() -> None:
        id, kept, _ = await two_turns(house)
        upto = {"resume": id, "resume_session_at": kept, "resume_drops_turn": named}
        with pytest.raises(ProcessError, match="Resume rejected by --resume-drops-turn:"):
            await house.ask("third", fork_session=True, **upto)
        assert prompts(house, id) == ["first", "second"]
        assert [one.session_id for one in list_sessions(str(house.folder))] == [id]

    house.run(OK, main)
