"""Programs that were written for another agent drive ours unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("claude_agent_sdk", reason="needs claude-agent-sdk")

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)
from claude_agent_sdk.types import PermissionRuleValue

from tests.conformance.driver import House, response, result, said, use

WRITE = {"file_path": "b.txt", "content": "b"}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def results(messages: list[Any]) -> list[str]:
    """The texts of all tool results."""
    blocks = (b for m in messages if isinstance(m, UserMessage) for b in m.content)
    return [
        " ".join(part.get("text", "") for part in block.content)
        for block in blocks
        if isinstance(block, ToolResultBlock) and isinstance(block.content, list)
    ]


def test_a_query_is_answered(house: House) -> None:
    async def main() -> None:
        opening, reply, last = await house.ask("2+2")
        assert isinstance(opening, SystemMessage) and opening.subtype == "init"
        assert isinstance(reply, AssistantMessage) and reply.content == [TextBlock("Four.")]
        assert isinstance(last, ResultMessage)
        told = (last.subtype, last.result, last.is_error, last.num_turns, last.terminal_reason)
        assert told == ("success", "Four.", False, 1, "completed")
        assert last.total_cost_usd and last.model_usage
        assert house.unexpected_errors() == []

    house.run([said("Four.")], main)


def test_streamed_prompts_each_get_a_turn(house: House) -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        for text in ("one", "two"):
            yield {"type": "user", "message": {"role": "user", "content": text}}

    async def main() -> None:
        messages = await house.ask(prompts(), hooks={"Stop": [HookMatcher(hooks=[silent])]})
        found = [message.result for message in messages if isinstance(message, ResultMessage)]
        assert found == ["First.", "Second."]

    async def silent(told: Any, id: str | None, context: Any) -> Any:
        return {}

    house.run([said("First."), said("Second.")], main)


def test_a_client_talks_turn_by_turn_in_one_session(house: House) -> None:
    async def main() -> None:
        async with house.client() as client:
            await client.query("one")
            first = result(await response(client))
            await client.query("two")
            second = result(await response(client))
            assert (first.result, second.result) == ("First.", "Second.")
            assert first.session_id == second.session_id
            info = await client.get_server_info()
            assert info is not None and "explore" in [one["name"] for one in info["agents"]]
        house.api.append_only()

    house.run([said("First."), said("Second.")], main)


def test_the_host_allows_denies_and_changes_calls(house: House) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
        asked.append((name, given))
        if given.get("content") == "no":
            return PermissionResultDeny(message="not in my house")
        if given.get("content") == "change":
            return PermissionResultAllow(updated_input={**given, "content": "changed"})
        return PermissionResultAllow()

    async def main() -> None:
        async with house.client(can_use_tool=decide) as client:
            await client.query("write")
            messages = await response(client)
        denied, *_ = results(messages)
        assert "not in my house" in denied
        assert [(name, given["content"]) for name, given in asked] == [
            ("Write", "no"),
            ("Write", "change"),
            ("Write", "yes"),
        ]
        assert (house.folder / "b.txt").read_text() == "changed"
        assert (house.folder / "c.txt").read_text() == "yes"
        (denial,) = result(messages).permission_denials or []
        assert denial["tool_name"] == "Write"

    script = [
        use("Write", file_path="a.txt", content="no"),
        use("Write", file_path="b.txt", content="change"),
        use("Write", file_path="c.txt", content="yes"),
        said("Done."),
    ]
    house.run(script, main)


def test_a_denial_can_end_the_turn(house: House) -> None:
    async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultDeny(message="stop it", interrupt=True)

    async def main() -> None:
        async with house.client(can_use_tool=decide) as client:
            await client.query("write")
            last = result(await response(client))
        assert (last.subtype, last.is_error, last.errors) == (
            "error_during_execution",
            True,
            ["stop it"],
        )

    house.run([use("Write", **WRITE), said("never")], main)


def test_an_answer_can_change_what_is_asked_about(house: House) -> None:
    asked: list[str] = []

    async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(given["file_path"])
        assert [update.type for update in context.suggestions] == ["addRules"]
        rule = PermissionRuleValue(tool_name="Write")
        update = PermissionUpdate(
            type="addRules", rules=[rule], behavior="allow", destination="session"
        )
        return PermissionResultAllow(updated_permissions=[update])

    async def main() -> None:
        async with house.client(can_use_tool=decide) as client:
            await client.query("write")
            assert result(await response(client)).result == "Done."
        assert len(asked) == 1

    script = [use("Write", **WRITE), use("Write", file_path="c.txt", content="c"), said("Done.")]
    house.run(script, main)


def test_questions_of_the_model_are_put_to_the_host(house: House) -> None:
    async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
        assert name == "AskUserQuestion"
        (question,) = given["questions"]
        answers = {question["question"]: question["options"][1]["label"]}
        return PermissionResultAllow(updated_input={**given, "answers": answers})

    async def main() -> None:
        async with house.client(can_use_tool=decide) as client:
            await client.query("ask me")
            assert "Blue" in results(await response(client))[0]

    options = [{"label": "Red"}, {"label": "Blue"}]
    asked = use("AskUserQuestion", questions=[{"question": "Which colour?", "options": options}])
    house.run([asked, said("Blue it is.")], main)


def test_hooks_are_called_back_and_have_their_say(house: House) -> None:
    heard: list[str] = []

    async def hear(told: Any, id: str | None, context: Any) -> Any:
        heard.append(told["hook_event_name"])
        return {}

    async def guard(told: Any, id: str | None, context: Any) -> Any:
        assert id == told["tool_use_id"]
        why = {"permissionDecision": "deny", "permissionDecisionReason": "no shell"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **why}}

    async def add(told: Any, id: str | None, context: Any) -> Any:
        context = {"hookEventName": "UserPromptSubmit", "additionalContext": "It is Monday."}
        return {"hookSpecificOutput": context}

    async def main() -> None:
        hooks: Any = {
            "UserPromptSubmit": [HookMatcher(hooks=[add, hear])],
            "PreToolUse": [HookMatcher(matcher="Bash", hooks=[guard], on_failure="block")],
            "PostToolUse": [HookMatcher(matcher="Glob", hooks=[hear])],
            "Stop": [HookMatcher(hooks=[hear])],
        }
        messages = await house.ask("go", hooks=hooks, include_hook_events=True)
        assert any("no shell" in text for text in results(messages))
        assert heard == ["UserPromptSubmit", "PostToolUse", "Stop"]
        assert "It is Monday." in str(house.api.bodies[0]["messages"])
        events = [
            m.hook_event_name for m in messages if getattr(m, "subtype", "") == "hook_response"
        ]
        assert sorted(set(events)) == ["PostToolUse", "PreToolUse", "Stop", "UserPromptSubmit"]

    script = [use("Bash", command="ls"), use("Glob", pattern="*"), said("Done.")]
    house.run(script, main)


def test_a_guard_that_fails_keeps_a_call_from_running(house: House) -> None:
    async def broken(told: Any, id: str | None, context: Any) -> Any:
        raise ValueError("the guard fell over")

    async def main() -> None:
        hooks: Any = {"PreToolUse": [HookMatcher(hooks=[broken], on_failure="block")]}
        messages = await house.ask("go", hooks=hooks)
        assert "the guard fell over" in results(messages)[0]

    house.run([use("Glob", pattern="*"), said("Done.")], main)


LONG_FAILURE = "no luck! " + " ".join(map(str, range(400)))


def test_tools_of_the_host_are_offered_and_called(house: House) -> None:
    @tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"Sum: {args['a'] + args['b']}"}]}

    @tool("fail", "Always fails", {})
    async def fail(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": LONG_FAILURE}], "is_error": True}

    async def main() -> None:
        server = create_sdk_mcp_server("calc", "2.0", tools=[add, fail])
        allowed = ["mcp__calc__add", "mcp__calc__fail"]
        how = {"allowed_tools": allowed, "env": {"MAX_MCP_OUTPUT_TOKENS": "100"}}
        async with house.client(mcp_servers={"calc": server}, **how) as client:
            await client.query("add")
            messages = await response(client)
            status = await client.get_mcp_status()
            await client.toggle_mcp_server("calc", enabled=False)
            await client.query("again")
            refused = results(await response(client))
        assert results(messages)[0] == "Sum: 5"
        assert "no luck!" in results(messages)[1]
        assert (
            f" of {len(LONG_FAILURE):,} characters are left out here. All of it is in "
            in results(messages)[1]
        )
        assert "is disabled" in refused[0]
        opening = messages[0]
        assert isinstance(opening, SystemMessage)
        assert opening.data["mcp_servers"] == [{"name": "calc", "status": "connected"}]
        (told,) = status["mcpServers"]
        assert (told["name"], told["status"]) == ("calc", "connected")
        assert [one["name"] for one in told.get("tools", [])] == ["add", "fail"]
        offered = {one["name"]: one for one in house.api.bodies[0]["tools"]}
        assert offered["mcp__calc__add"]["description"] == "Add two numbers"
        assert set(offered["mcp__calc__add"]["input_schema"]["properties"]) == {"a", "b"}
        house.api.append_only()

    add_two = use("mcp__calc__add", a=2, b=3)
    script = [add_two, use("mcp__calc__fail"), said("5."), add_two, said("Off.")]
    house.run(script, main)


def test_configured_servers_are_told_switched_and_connected_anew(house: House) -> None:
    pytest.importorskip("mcp")
    lender = str(Path(__file__).parents[1] / "mcp" / "lender.py")
    good: Any = {"type": "stdio", "command": sys.executable, "args": [lender, "none"]}
    bad: Any = {"type": "stdio", "command": "no-such-server"}
    add = use("mcp__good__add", a=1, b=2)

    async def main() -> None:
        servers = {"good": good, "bad": bad}
        async with house.client(mcp_servers=servers, allowed_tools=["mcp__good"]) as client:
            await client.query("add")
            assert results(await response(client)) == ["3"]
            other, one = (await client.get_mcp_status())["mcpServers"]
            config = {"type": "stdio", "command": "no-such-server", "args": []}
            assert "no such program" in other.pop("error")
            told = {"name": "bad", "status": "failed", "scope": "run", "config": config}
            assert other == told
            await client.toggle_mcp_server("good", enabled=False)
            await client.query("add")
            assert "it is disabled" in results(await response(client))[0]
            (_, off) = (await client.get_mcp_status())["mcpServers"]
            await client.toggle_mcp_server("good", enabled=True)
            await client.reconnect_mcp_server("good")
            await client.query("add")
            assert results(await response(client)) == ["3"]
            with pytest.raises(Exception, match="bad cannot be reached"):
                await client.reconnect_mcp_server("bad")
            with pytest.raises(Exception, match="There is no MCP server 'none'"):
                await client.reconnect_mcp_server("none")
        assert (off["status"], one["status"]) == ("disabled", "connected")
        assert (one["serverInfo"]["name"], one["tools"][0]["name"]) == ("lender", "add")

    house.run([add, said("3"), add, said("off"), add, said("3")], main)


def test_the_host_chooses_among_skills(house: House) -> None:
    for name in ("greet", "part"):
        path = house.home.parent / ".claude/skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\ndescription: How to {name}.\n---\nAs always.\n")

    async def main() -> None:
        opening, *_ = await house.ask("hello", skills=["greet"])
        assert isinstance(opening, SystemMessage)
        assert opening.data["skills"] == ["greet"]

    house.run([said("Hi.")], main)


def test_an_interrupt_stops_a_turn_and_the_session_goes_on(house: House) -> None:
    async def main() -> None:
        async with house.client(allowed_tools=["Bash"]) as client:
            await client.query("sleep")
            async for message in client.receive_messages():
                if isinstance(message, AssistantMessage):
                    break
            await client.interrupt()
            last = result(await response(client))
            assert (last.subtype, last.is_error) == ("error_during_execution", True)
            await client.query("go on")
            assert result(await response(client)).result == "Here."

    house.run([use("Bash", command="sleep 60"), said("Here.")], main)


def test_model_and_mode_change_while_the_session_goes_on(house: House) -> None:
    async def main() -> None:
        async with house.client() as client:
            await client.query("one")
            await response(client)
            await client.set_model("anthropic/claude-haiku-4-5")
            await client.set_permission_mode("acceptEdits")
            await client.query("two")
            messages = await response(client)
            opening = messages[0]
            assert isinstance(opening, SystemMessage)
            told = (opening.data["model"], opening.data["permissionMode"])
            assert told == ("claude-haiku-4-5", "acceptEdits")
            with pytest.raises(Exception, match="No API key"):
                await client.set_model("mistral/mistral-large")
            with pytest.raises(Exception, match="bypass"):
                await client.set_permission_mode("bypassPermissions")
        assert (house.folder / "b.txt").read_text() == "b"
        assert [body["model"] for body in house.api.bodies] == [
            "claude-opus-5-5",
            *["claude-haiku-4-5"] * 2,
        ]

    house.run([said("One."), use("Write", **WRITE), said("Two.")], main)


def test_sessions_are_resumed_continued_and_forked(house: House) -> None:
    async def main() -> None:
        first = result(await house.ask("one")).session_id
        again = result(await house.ask("two", resume=first))
        latest = result(await house.ask("three", continue_conversation=True))
        branch = result(await house.ask("four", resume=first, fork_session=True))
        named = "6a1f4f0e-4d8c-4a6e-9d51-0c6f2e1f7a11"
        chosen = result(await house.ask("five", session_id=named))
        assert again.session_id == latest.session_id == first
        assert branch.session_id != first
        assert chosen.session_id == named
        said_before = str(house.api.bodies[3]["messages"])
        assert all(word in said_before for word in ("one", "two", "three", "four"))

    house.run([{"say": "ok", "repeat": True}], main)


SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_an_answer_has_the_form_that_was_asked_for(house: House) -> None:
    async def main() -> None:
        form = {"type": "json_schema", "schema": SHAPE}
        last = result(await house.ask("how many?", output_format=form))
        assert (last.subtype, last.structured_output) == ("success", {"n": 4})
        sent = [str(body["messages"][-1]) for body in house.api.bodies]
        assert "still missing" in sent[1] and "must be integer" in sent[2]

    script = [
        said("It is four."),
        use("StructuredOutput", n="four"),
        use("StructuredOutput", n=4),
        said("Done."),
    ]
    house.run(script, main)


def test_a_form_that_never_comes_is_an_error_of_its_own(house: House) -> None:
    async def main() -> None:
        form = {"type": "json_schema", "schema": SHAPE}
        async with house.client(output_format=form) as client:
            await client.query("how many?")
            last = result(await response(client))
        assert last.subtype == "error_max_structured_output_retries"
        assert (last.is_error, last.structured_output) == (True, None)

    house.run([{"say": "four", "repeat": True}], main)


def test_partial_messages_come_as_they_are_made(house: House) -> None:
    async def main() -> None:
        messages = await house.ask("hi", include_partial_messages=True)
        events = [message.event for message in messages if isinstance(message, StreamEvent)]
        deltas = (event["delta"] for event in events if event["type"] == "content_block_delta")
        assert "".join(delta["text"] for delta in deltas) == "Hello there, friend."

    house.run([said("Hello there, friend.")], main)


def test_limits_end_a_run_with_their_own_error(house: House) -> None:
    async def main() -> None:
        with pytest.raises(ResultError) as turns:
            await house.ask("loop", max_turns=1)
        assert turns.value.data["subtype"] == "error_max_turns"
        with pytest.raises(ResultError) as money:
            await house.ask("loop", max_budget_usd=0.000001)
        assert money.value.data["subtype"] == "error_max_budget_usd"

    house.run([{**use("Glob", pattern="*"), "repeat": True}], main)


def test_prompts_tools_folders_and_settings_are_the_hosts_choice(house: House) -> None:
    async def main() -> None:
        more = house.folder.parent / "more"
        more.mkdir()
        await house.ask("a", system_prompt="You are a parrot.", tools=["Read", "Glob"])
        await house.ask(
            "b",
            system_prompt={"type": "preset", "preset": "claude_code", "append": "Rhyme."},
            disallowed_tools=["Bash"],
            add_dirs=[more],
            setting_sources=["user"],
            settings='{"env": {"A": "b"}}',
        )
        first, second = house.api.bodies
        assert first["system"][0]["text"] == "You are a parrot."
        assert [one["name"] for one in first["tools"]] == ["Glob", "Read"]
        assert second["system"][0]["text"].endswith("Rhyme.")
        assert "Bash" not in [one["name"] for one in second["tools"]]
        assert str(more) in str(second["messages"])

    house.run([{"say": "ok", "repeat": True}], main)


def test_agents_of_the_host_work_and_are_heard_of(house: House) -> None:
    async def main() -> None:
        kind = AgentDefinition(description="Counts", prompt="You count.", tools=["Glob"])
        messages = await house.ask("count", agents={"counter": kind}, forward_subagent_text=True)
        calls = [
            (message.parent_tool_use_id is not None, block.name)
            for message in messages
            if isinstance(message, AssistantMessage)
            for block in message.content
            if isinstance(block, ToolUseBlock)
        ]
        assert calls == [(False, "Agent"), (True, "Glob")]
        inner = [m.content for m in messages if getattr(m, "parent_tool_use_id", None)]
        assert [TextBlock("Two files.")] in inner
        (started,) = [m for m in messages if isinstance(m, TaskStartedMessage)]
        (ended,) = [m for m in messages if isinstance(m, TaskNotificationMessage)]
        assert (started.task_id, started.description) == (ended.task_id, "count files")
        assert ended.status == "completed"
        assert result(messages).result == "All counted."

    started = use("Agent", description="count files", prompt="Count.", subagent_type="counter")
    script = [
        {"when": {"system": {"absent": "You count."}, "last_text": "count"}, **started},
        {"when": {"system": "You count."}, **use("Glob", pattern="*")},
        {"when": {"system": "You count."}, **said("Two files.")},
        said("All counted."),
    ]
    house.run(script, main)


def test_the_window_is_told(house: House) -> None:
    async def main() -> None:
        async with house.client() as client:
            await client.query("hi")
            await response(client)
            usage = await client.get_context_usage()
        sizes = {one["name"]: one["tokens"] for one in usage["categories"]}
        assert sum(sizes.values()) == usage["totalTokens"] > 0
        assert sizes["tools"] > sizes["messages"] > 0
        assert (usage["model"], usage["rawMaxTokens"]) == ("claude-opus-5-5", 1_000_000)

    house.run([said("Hello.")], main)


def test_files_go_back_to_what_they_were_before_a_message(house: House) -> None:
    async def main() -> None:
        target = house.folder / "b.txt"
        target.write_text("before")
        more: Any = {"permission_mode": "acceptEdits", "enable_file_checkpointing": True}
        async with house.client(extra_args={"replay-user-messages": None}, **more) as client:
            await client.query("write")
            messages = await response(client)
            replayed = [m for m in messages if isinstance(m, UserMessage) and m.uuid]
            assert replayed[0].content == [TextBlock("write")]
            assert target.read_text() == "after"
            await client.rewind_files(str(replayed[0].uuid))
            assert target.read_text() == "before"
            with pytest.raises(Exception, match="no message"):
                await client.rewind_files("nonsense")

    script = [
        use("Read", file_path="b.txt"),
        use("Write", file_path="b.txt", content="after"),
        said("Done."),
    ]
    house.run(script, main)


def test_a_task_can_be_stopped(house: House) -> None:
    async def main() -> None:
        async with house.client(allowed_tools=["Bash"]) as client:
            await client.query("start")
            task = ""
            ended: list[Any] = []
            async for message in client.receive_messages():
                if isinstance(message, TaskStartedMessage):
                    task = message.task_id
                if isinstance(message, ResultMessage):
                    break
            with anyio.fail_after(300):
                await client.stop_task(task)
                async for message in client.receive_messages():
                    ended.append(message)
                    if isinstance(message, TaskNotificationMessage):
                        break
            assert (ended[-1].task_id, ended[-1].status) == (task, "stopped")
            with pytest.raises(Exception, match="no task"):
                await client.stop_task("a99")

    started = use("Agent", description="wait", prompt="Wait.", run_in_background=True)
    script = [
        {"when": {"last_text": "start"}, **started},
        {"when": {"last_text": "Wait."}, **use("Bash", command="sleep 60")},
        {"say": "ok", "repeat": True},
    ]
    house.run(script, main)


def test_flags_that_mean_nothing_here_are_told_and_ignored(house: House) -> None:
    async def main() -> None:
        more: Any = {"effort": "high", "betas": ["x"], "thinking": {"type": "adaptive"}}
        last = result(await house.ask("hi", extra_args={"strange": "value"}, **more))
        assert last.result == "Hello."
        told = "\n".join(house.errors)
        assert all(f"--{name} has no effect" in told for name in ("betas", "strange"))
        assert "effort" not in told
        assert house.api.bodies[0]["output_config"] == {"effort": "high"}

    house.run([said("Hello.")], main)


def test_a_session_may_go_on_from_an_earlier_message(house: House) -> None:
    async def main() -> None:
        first = await house.ask("one")
        id, point = result(first).session_id, first[1]
        assert isinstance(point, AssistantMessage)
        await house.ask("two", resume=id)
        upto: Any = {"resume": id, "resume_session_at": point.uuid}
        await house.ask("three", fork_session=True, **upto)
        await house.ask("four", **upto)
        with pytest.raises(Exception, match="has no message"):
            await house.ask("five", resume=id, resume_session_at="nothing")

    house.run([said("A."), said("B."), said("C."), said("D.")], main)
    told = [json.dumps(body["messages"]) for body in house.api.bodies]
    assert [[word in text for word in ("one", "A.", "two", "B.")] for text in told[2:]] == [
        [True, True, False, False],
        [True, True, False, False],
    ]


def test_a_session_that_goes_on_can_be_given_tools_and_a_form(house: House) -> None:
    async def main() -> None:
        first = result(await house.ask("hello")).session_id
        form = {"type": "json_schema", "schema": SHAPE}
        last = result(await house.ask("how many?", resume=first, output_format=form))
        assert last.structured_output == {"n": 4}
        assert result(await house.ask("thanks", resume=first)).result == "Welcome."

    script = [said("Hello."), use("StructuredOutput", n=4), said("Done."), said("Welcome.")]
    house.run(script, main)


def test_a_session_that_cannot_be_opened_is_refused_in_words(house: House) -> None:
    async def main() -> None:
        with pytest.raises(Exception, match="no session"):
            await house.ask("hi", resume="6a1f4f0e-4d8c-4a6e-9d51-0c6f2e1f7a11")

    house.run([said("never")], main)


def test_a_host_may_do_without_any_settings(house: House) -> None:
    async def main() -> None:
        (house.folder / "CLAUDE.md").write_text("Answer in rhyme.")
        await house.ask("a", setting_sources=["project"])
        await house.ask("b", setting_sources=[])
        first, second = (str(body["messages"]) for body in house.api.bodies)
        assert "Answer in rhyme." in first and "Answer in rhyme." not in second

    house.run([{"say": "ok", "repeat": True}], main)


def test_a_plan_is_put_to_the_host(house: House) -> None:
    async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
        assert (name, given["plan"]) == ("ExitPlanMode", "Write b.txt")
        update = PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")
        return PermissionResultAllow(updated_permissions=[update])

    async def main() -> None:
        async with house.client(can_use_tool=decide, permission_mode="plan") as client:
            await client.query("plan it")
            assert result(await response(client)).result == "Done."
        assert (house.folder / "b.txt").read_text() == "b"

    plan = use("ExitPlanMode", plan="Write b.txt")
    house.run([plan, use("Write", **WRITE), said("Done.")], main)


def test_a_guard_that_hangs_lets_nothing_pass(house: House) -> None:
    async def hang(told: Any, id: str | None, context: Any) -> Any:
        await anyio.sleep_forever()

    async def main() -> None:
        hooks: Any = {"PreToolUse": [HookMatcher(hooks=[hang], timeout=0.2)]}
        messages = await house.ask("go", hooks=hooks)
        assert "timed out after 0.2 s" in results(messages)[0]

    house.run([use("Glob", pattern="*"), said("Done.")], main)


def test_a_stop_hook_sends_the_model_back_to_work(house: House) -> None:
    async def again(told: Any, id: str | None, context: Any) -> Any:
        return {} if told["stop_hook_active"] else {"decision": "block", "reason": "test it first"}

    async def main() -> None:
        hooks: Any = {"Stop": [HookMatcher(hooks=[again])]}
        assert result(await house.ask("go", hooks=hooks)).result == "Tested."

    script = [said("Done."), {"when": {"last_text": "test it first"}, **said("Tested.")}]
    house.run(script, main)


def test_the_report_of_an_agent_in_the_background_has_a_turn_before_the_run_ends(
    house: House,
) -> None:
    async def silent(told: Any, id: str | None, context: Any) -> Any:
        return {}

    async def main() -> None:
        messages = await house.ask("start", hooks={"Stop": [HookMatcher(hooks=[silent])]})
        found = [message.result for message in messages if isinstance(message, ResultMessage)]
        assert found == ["It works.", "It is back."]
        (ended,) = [m for m in messages if isinstance(m, TaskNotificationMessage)]
        assert ended.status == "completed"

    started = use("Agent", description="look", prompt="Look.", run_in_background=True)
    slow = {"by": "char", "delay_ms": 40}
    script = [
        {"when": {"last_text": "start"}, **started},
        {"when": {"last_text": "Look."}, **said("Found nothing at all here."), "chunks": slow},
        {"when": {"text": "Found nothing"}, **said("It is back.")},
        said("It works."),
    ]
    house.run(script, main)


def test_a_tool_of_the_host_may_decide_in_its_place(house: House) -> None:
    @tool("judge", "Decide", {"type": "object", "properties": {}})
    async def judge(args: dict[str, Any]) -> dict[str, Any]:
        allow = args["input"]["file_path"] == "a.txt"
        verdict = {"behavior": "allow" if allow else "deny", "message": "not that one"}
        return {"content": [{"type": "text", "text": json.dumps(verdict)}]}

    async def main() -> None:
        court = create_sdk_mcp_server("court", tools=[judge])
        how: Any = {"permission_prompt_tool_name": "mcp__court__judge"}
        async with house.client(mcp_servers={"court": court}, **how) as client:
            await client.query("write")
            denied = result(await response(client)).permission_denials or []
        assert [one["tool_input"]["file_path"] for one in denied] == ["b.txt"]
        assert (house.folder / "a.txt").read_text() == "x"

    written = [use("Write", file_path=name, content="x") for name in ("a.txt", "b.txt")]
    house.run([*written, said("Done.")], main)
