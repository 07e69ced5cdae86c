"""Editors that speak the Agent Client Protocol drive the program: what is said and what is done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("acp", reason="needs agent-client-protocol")

import acp
from acp import schema

from tests.conformance.editor import ALL, House, Window, text

PDF = "JVBERi0xLjQK"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6300"
    "0100000500010d0a2db40000000049454e44ae426082"
)
HELLO = {"say": [{"text": "Hello there."}], "chunks": {"by": "char"}}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def use(name: str, /, **given: Any) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def said(words: str, **when: Any) -> dict[str, Any]:
    return {"say": words, **({"when": when} if when else {})}


def test_a_prompt_is_answered_as_it_streams(house: House) -> None:
    async def main() -> None:
        window = Window()
        async with house.editor(window) as client:
            assert (client.hello.protocol_version, client.hello.agent_info.name) == (1, "travois")
            opened = await client.new_session(cwd=str(house.folder), mcp_servers=[])
            done = await client.prompt(session_id=opened.session_id, prompt=[text("Say hello.")])
        assert done.stop_reason == "end_turn"
        assert done.usage.total_tokens > 0
        chunks = window.of("agent_message_chunk")
        assert len(chunks) > 1 and window.said() == "Hello there."
        assert len({chunk.message_id for chunk in chunks}) == 1
        assert [one.title for one in window.of("session_info_update")] == ["Say hello."]
        assert window.of("usage_update")[-1].size == 1_000_000
        assert "compact" in [
            c.name for c in window.of("available_commands_update")[0].available_commands
        ]
        assert {id for id, _ in window.updates} == {opened.session_id}
        house.api.append_only()

    house.run([HELLO], main)


def test_a_call_runs_if_the_person_allows_it(house: House) -> None:
    async def main() -> None:
        window = Window(answers=("reject_once", "allow_always"))
        async with house.editor(window) as client:
            id = await house.begin(client)
            await client.prompt(session_id=id, prompt=[text("go")])
        assert (house.folder / "b").exists()
        assert not (house.folder / "a").exists()
        first, second = window.asked
        kinds = [option.kind for option in first[1]]
        # The second one that lasts is the offer to run commands in the sandbox without asking.
        assert kinds == ["allow_once", "allow_always", "allow_always", "reject_once"]
        assert first[0].title == "$ touch a"
        assert "touch a" in first[0].content[0].content.text
        told = [one.status for one in window.of("tool_call_update")]
        ends = [status for status in told if status in {"completed", "failed"}]
        assert ends == ["failed", "completed", "completed"]
        assert [one.kind for one in window.of("tool_call")] == ["execute"] * 3
        assert second[0].tool_call_id == window.of("tool_call")[1].tool_call_id

    touches = [use("Bash", command=f"touch {name}") for name in "ab"]
    house.run([*touches, use("Bash", command="touch b"), said("Done.")], main)


def test_an_edit_is_a_diff_and_a_list_is_a_plan(house: House) -> None:
    async def main() -> None:
        path = house.folder / "a.py"
        path.write_text("one\ntwo\nthree\n")
        (house.folder / "dot.png").write_bytes(PIXEL)
        window = Window(answers=("allow_once",) * 2)
        async with house.editor(window) as client:
            id = await house.begin(client)
            await client.prompt(session_id=id, prompt=[text("go")])
        assert path.read_text() == "one\nTWO\nthree\n"
        planned, *_ = window.of("tool_call")
        diff = planned.content[0]
        assert (diff.path, diff.old_text, diff.new_text) == (str(path), "two", "TWO")
        assert (planned.kind, planned.locations[0].path) == ("edit", str(path))
        edited, wrote = [one for one in window.of("tool_call_update") if one.status == "completed"][
            :2
        ]
        done = edited.content[0]
        assert (done.old_text, done.new_text) == ("one\ntwo\nthree\n", "one\nTWO\nthree\n")
        assert (edited.locations[0].path, edited.locations[0].line) == (str(path), 1)
        assert (wrote.content[0].old_text, wrote.content[0].new_text) == (None, "b\n")
        picture = window.of("tool_call_update")[-1].content[1].content
        assert (picture.type, picture.mime_type) == ("image", "image/png")
        (plan,) = window.of("plan")
        assert [(one.content, one.status) for one in plan.entries] == [
            ("look", "completed"),
            ("do", "in_progress"),
        ]

    todos = [{"content": "look", "status": "completed"}, {"content": "do", "status": "in_progress"}]
    script = [
        use("Edit", file_path="a.py", old_string="two", new_string="TWO"),
        use("Write", file_path="b.py", content="b\n"),
        use("TodoWrite", todos=todos),
        use("Read", file_path="dot.png"),
        said("Done."),
    ]
    house.run(script, main)


def test_unsaved_text_is_seen_and_changed_in_the_editor(house: House) -> None:
    path, other, outside = (house.folder / name for name in ("a.txt", "crlf.txt", "../secret"))

    async def main() -> None:
        path.write_text("saved\n")
        other.write_bytes(b"one\r\ntwo\r\n")
        buffers = {str(path): "unsaved\n", str(other): "one\ntwo\n"}
        window = Window(answers=("allow_once",) * 3, buffers=buffers)
        async with house.editor(window, ALL) as client:
            id = await house.begin(client)
            await client.prompt(session_id=id, prompt=[text("go")])
        ends = [one for one in window.of("tool_call_update") if one.status == "completed"]
        assert "unsaved" in ends[0].content[0].content.text
        assert window.wrote == [str(path), str(other)]
        assert path.read_text() == window.buffers[str(path)] == "changed\n"
        assert other.read_bytes() == b"one\r\nTWO\r\n"
        assert len(ends) == 3

    script = [
        use("Read", file_path="a.txt"),
        use("Write", file_path="a.txt", content="changed\n"),
        use("Edit", file_path="crlf.txt", old_string="two", new_string="TWO"),
        said("Done."),
    ]
    house.run(script, main)
    assert not outside.exists()


def test_what_is_attached_reaches_the_model(house: House) -> None:
    async def main() -> None:
        (house.folder / "my notes.md").write_text("the linked words")
        beside = house.folder.parent / "beside"
        beside.mkdir()
        (beside / "more.md").write_text("the words beside")
        window = Window()
        link = house.folder / "my notes.md"
        blocks = [
            text("Look at "),
            acp.resource_link_block("my notes.md", link.as_uri()),
            text(" and "),
            acp.resource_block(acp.embedded_text_resource("file:///x/b.py", "the embedded words")),
            acp.image_block("iVBORw0KGgo=", "image/png"),
            acp.resource_link_block("more.md", (beside / "more.md").as_uri()),
            acp.resource_block(
                acp.embedded_blob_resource("file:///x/p.pdf", PDF, mime_type="application/pdf")
            ),
        ]
        async with house.editor(window) as client:
            id = await house.begin(client, additional_directories=[str(beside)])
            await client.prompt(session_id=id, prompt=blocks)
            with pytest.raises(acp.RequestError, match="audio"):
                await client.prompt(session_id=id, prompt=[acp.audio_block("AAAA", "audio/wav")])
        sent = str(house.api.bodies[0]["messages"])
        assert "the linked words" in sent and "the embedded words" in sent
        assert 'Look at @"my notes.md" and /x/b.py' in sent.replace("\\'", "'")
        assert "iVBORw0KGgo=" in sent and PDF in sent and "the words beside" in sent

    house.run([said("Seen.")], main)


def test_modes_models_and_plans(house: House) -> None:
    async def main() -> None:
        window = Window(answers=("allow_always",))
        async with house.editor(window) as client:
            opened = await client.new_session(cwd=str(house.folder), mcp_servers=[])
            id, held = opened.session_id, opened.modes
            assert held.current_mode_id == "default"
            assert "bypass" not in [mode.id for mode in held.available_modes]
            await client.set_session_mode(session_id=id, mode_id="plan")
            await client.prompt(session_id=id, prompt=[text("plan it")])
            told = [one.current_mode_id for one in window.of("current_mode_update")]
            assert told == ["plan", "accept-edits"]
            plan, options = window.asked[0]
            assert (plan.kind, plan.content[0].content.text) == ("switch_mode", "1. Do it")
            assert [one.kind for one in options] == ["allow_once", "allow_always", "reject_once"]
            haiku = "anthropic/claude-haiku-4-5"
            chosen = await client.set_config_option(config_id="model", session_id=id, value=haiku)
            assert {one.id: one.current_value for one in chosen.config_options} == {
                "mode": "accept-edits",
                "model": haiku,
            }
            for what, value in (("model", "nobody/knows"), ("mode", "bypass"), ("tone", "x")):
                with pytest.raises(acp.RequestError) as wrong:
                    await client.set_config_option(config_id=what, session_id=id, value=value)
                assert wrong.value.code == -32602
            await client.prompt(session_id=id, prompt=[text("go on")])
        assert [body["model"] for body in house.api.bodies][-1] == "claude-haiku-4-5"
        shown = [one.config_options[1].current_value for one in window.of("config_option_update")]
        assert shown[-1] == haiku

    house.run([use("ExitPlanMode", plan="1. Do it"), said("Done."), said("Yes.")], main)


def test_questions_become_forms_or_options(house: House) -> None:
    asked = [
        {"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]},
        {"question": "Many?", "multiSelect": True, "options": [{"label": "x"}, {"label": "y"}]},
    ]

    async def main() -> None:
        forms, plain = Window(), Window(answers=("blue", "x"))
        forms.filled = {"q1": "red", "q2": ["x", "y"]}
        for window, able in ((forms, ALL), (plain, None)):
            async with house.editor(window, able) as client:
                id = await house.begin(client)
                await client.prompt(session_id=id, prompt=[text("ask")])
        assert forms.asked == [] and forms.forms[0][0] == "Which?\nMany?"
        fields = forms.forms[0][1].requested_schema.properties
        assert [field.type for field in fields.values()] == ["string", "array"]
        assert [call.title for call, _ in plain.asked] == ["Which?", "Many?"]
        results = [str(body["messages"][-1]) for body in house.api.bodies[1::2]]
        assert "red" in results[0] and "x, y" in results[0]
        assert "blue" in results[1] and "x" in results[1]

    script = [use("AskUserQuestion", questions=asked), said("Thanks.")] * 2
    house.run(script, main)


def test_commands_are_offered_and_obeyed(house: House) -> None:
    async def main() -> None:
        folder = house.home.parent / ".claude" / "commands"
        folder.mkdir(parents=True)
        (folder / "greet.md").write_text("---\nargument-hint: NAME\n---\nGreet $1 warmly.")
        hook = {"hooks": [{"type": "command", "command": "touch hooked"}]}
        (house.folder / ".claude").mkdir()
        (house.folder / ".claude" / "settings.json").write_text(
            json.dumps({"hooks": {"Stop": [hook]}})
        )
        window = Window()
        async with house.editor(window) as client:
            id = await house.begin(client)
            await client.prompt(session_id=id, prompt=[text("/greet Ada")])
            assert window.said() == "Hello Ada."
            done = await client.prompt(session_id=id, prompt=[text("/context")])
            await client.prompt(session_id=id, prompt=[text("# A heading, /not a command")])
        offered = {c.name: c for c in window.of("available_commands_update")[0].available_commands}
        assert offered["greet"].input.root.hint == "NAME"
        assert "resume" not in offered
        assert done.stop_reason == "end_turn" and "compaction begins" in window.said()
        assert window.said().endswith("A heading.")
        assert len(house.api.bodies) == 2
        assert "review them with `travois trust`" in window.said("agent_thought_chunk")
        assert not (house.folder / "hooked").exists()

    script = [said("Hello Ada.", last_text="Greet Ada warmly."), said("A heading.")]
    house.run(script, main)


def test_an_editor_lends_its_servers(house: House) -> None:
    pytest.importorskip("mcp")
    lender = str(Path(__file__).parents[1] / "mcp" / "lender.py")

    async def main() -> None:
        server = schema.McpServerStdio(
            name="sums", command=sys.executable, args=[lender, "none"], env=[]
        )
        window = Window(answers=("allow_once",))
        async with house.editor(window) as client:
            opened = await client.new_session(cwd=str(house.folder), mcp_servers=[server])
            await client.prompt(session_id=opened.session_id, prompt=[text("add")])
        assert window.asked[0][0].title.startswith("mcp__sums__add")
        ends = [one for one in window.of("tool_call_update") if one.status == "completed"]
        assert "5" in ends[-1].content[0].content.text

    script = [
        use("ToolSearch", query="add two numbers"),
        use("McpCall", tool="mcp__sums__add", arguments={"a": 2, "b": 3}),
        said("Five."),
    ]
    house.run(script, main)


def test_a_command_that_ends_between_prompts_is_told_in_a_turn_of_its_own(house: House) -> None:
    async def main() -> None:
        window = Window()
        async with house.editor(window) as client:
            id = await house.begin(client)
            await client.prompt(session_id=id, prompt=[text("begin")])
            with anyio.fail_after(300):
                while "Heard." not in window.said():  # noqa: ASYNC110 - it comes unasked
                    await anyio.sleep(0.01)
        assert window.said() == "Begun.Heard."

    script = [
        {"when": {"last_text": "begin"}, **use("Bash", command="sleep 1", run_in_background=True)},
        {"when": {"tool_result": {"name": "Bash"}}, "say": "Begun."},
        said("Heard.", last_text="[bash_1: exit code 0]"),
    ]
    house.run(script, main)


def test_agents_are_seen_at_work_and_heard_when_they_are_done(house: House) -> None:
    async def main() -> None:
        window = Window()
        async with house.editor(window) as client:
            id = await house.begin(client)
            await client.prompt(session_id=id, prompt=[text("both")])
            with anyio.fail_after(300):
                while "Heard." not in window.said():  # noqa: ASYNC110 - it comes unasked
                    await anyio.sleep(0.01)
        near, far = window.of("tool_call")
        told = [
            one for one in window.of("tool_call_update") if one.tool_call_id == near.tool_call_id
        ]
        shown = [one.content[0].content.text for one in told if one.content]
        assert any("Running the command ls · Bash · " in one and "\n$ ls\n" in one for one in shown)
        assert "Nothing there." in shown[-1]
        about = [one.field_meta["travois/agent"] for one in told if one.field_meta]
        assert about[-1]["agentId"] == "a1" and about[-1]["doing"] == "Done with its task"
        assert about[-1]["tokens"] > 0 and about[-1]["costUsd"] > 0
        beside = [one for one in window.of("tool_call_update") if one.field_meta]
        assert {one.tool_call_id for one in beside} == {near.tool_call_id, far.tool_call_id}
        assert window.said() == "Both.Heard."
        assert far.title == "Start agent (explore): later"

    def agent(what: str, **more: Any) -> dict[str, Any]:
        given = {"subagent_type": "explore", "prompt": f"look {what}", "description": what, **more}
        return {"tool_use": {"name": "Agent", "input": given}}

    script = [
        {
            "when": {"last_text": "both"},
            "say": [agent("near"), agent("later", run_in_background=True)],
        },
        {"when": {"last_text": "look near"}, **use("Bash", command="ls")},
        {"when": {"tool_result": {"name": "Bash"}}, "say": "Nothing there."},
        {
            "when": {"last_text": "look later"},
            "say": "Late words.",
            "chunks": {"by": "char", "delay_ms": 40},
        },
        {"when": {"tool_result": {"name": "Agent"}}, "say": "Both."},
        said("Heard.", last_text="Late words."),
    ]
    house.run(script, main)
