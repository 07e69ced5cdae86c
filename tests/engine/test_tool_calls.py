"""Answering tool calls: what runs side by side, what never runs, and what the model is told."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.engine.fakes import (
    Place,
    RecordingPerson,
    agent,
    begun,
    facts,
    log,
    play,
    prompt,
    small,
)
from travois.core.content import Call, Text
from travois.core.errors import UserError
from travois.core.facts import Asked, Changed, Decided, Ended, Noted, Result, Sent
from travois.core.models import Usage
from travois.engine.agent import Agent
from travois.engine.loop import STOPPED_RESULT, run_turn
from travois.engine.tool_calls import MAX_PARALLEL_CALLS
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.rules import parse_permission_rule
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, ToolProgress, ToolStarted
from travois.providers.replies import Reply
from travois.testing import call, calls, say


class Gate:
    """Calls that end only when told to, in the order told."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.began: dict[str, anyio.Event] = {}
        self.may_end: dict[str, anyio.Event] = {}

    async def run(self, args: Place, env: Env, call: str) -> ToolOutcome:
        self.running.append(args.path)
        self.most = max(self.most, len(self.running))
        self.event(self.began, args.path).set()
        await self.event(self.may_end, args.path).wait()
        self.running.remove(args.path)
        return text_outcome(f"saw {args.path}")

    def event(self, events: dict[str, anyio.Event], path: str) -> anyio.Event:
        return events.setdefault(path, anyio.Event())


def asked(*wanted: tuple[str, str]) -> Reply:
    return calls(*((tool, {"path": path}) for tool, path in wanted))


def answers(one: Agent) -> dict[str, str]:
    return {result.call: result.content[0].text for result in facts(one, Result)}


def only(one: Agent) -> Result:
    (result,) = facts(one, Result)
    return result


def raw(name: str, args: str) -> Reply:
    return Reply((Call("x", name, args),), stop="calls", usage=Usage())


def test_reads_run_side_by_side_and_are_logged_as_they_finish_but_shown_as_asked(
    tmp_path: Path,
) -> None:
    gate = Gate()
    reply = asked(("Look", "a"), ("Look", "b"), ("Look", "c"))
    one = prompt(agent(tmp_path, reply, say("done"), tools=[small("Look", gate.run)]))

    async def main() -> None:
        with anyio.fail_after(300):
            async with anyio.create_task_group() as group:
                group.start_soon(run_turn, one)
                for path in "abc":
                    await gate.event(gate.began, path).wait()
                assert gate.running == ["a", "b", "c"]
                for count, path in enumerate("cab", 1):
                    gate.event(gate.may_end, path).set()
                    while len(facts(one, Result)) < count:
                        await anyio.lowlevel.checkpoint()

    anyio.run(main)
    assert list(answers(one).values()) == ["saw c", "saw a", "saw b"]
    shown = [i.fact.content[0].text for i in one.session.view.items if isinstance(i.fact, Result)]
    assert shown == ["saw a", "saw b", "saw c"]


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        ([("Look", "a"), ("Look", "a")], 2),
        ([("Look", "a"), ("Edit", "a")], 1),
        ([("Edit", "a"), ("Look", "a")], 1),
        ([("Edit", "a"), ("Edit", "a")], 1),
        ([("Edit", "a"), ("Edit", "b")], 2),
        ([("Edit", "d/a"), ("Look", "d")], 1),
        ([("Edit", "link"), ("Look", "real")], 1),
        ([("Run", "make"), ("Look", "a")], 1),
        ([("Run", "make"), ("Run", "make")], 1),
        ([("Run", "ls"), ("Look", "a")], 2),
        ([("Run", "cat real"), ("Edit", "link")], 1),
        ([("Look", str(n)) for n in range(MAX_PARALLEL_CALLS + 1)], MAX_PARALLEL_CALLS),
        ([("Think", "a"), ("Run", "ls")], 2),
    ],
)
def test_only_what_cannot_collide_runs_together(
    tmp_path: Path, wanted: list[tuple[str, str]], most: int
) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    running: list[str] = []
    seen = 0

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        nonlocal seen
        running.append(args.path)
        seen = max(seen, len(running))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running.remove(args.path)
        return text_outcome("ok")

    kinds = {"Look": "read", "Edit": "write", "Run": "exec", "Think": None}
    tools = [small(name, run, kind=kind) for name, kind in kinds.items()]
    guard = Permissions("bypass", (), (str(tmp_path),))
    one = agent(tmp_path, asked(*wanted), say("done"), tools=tools, guard=guard)
    assert play(one) == "end"
    assert seen == most
    assert len(facts(one, Result)) == len(wanted)


def test_everything_is_on_disk_before_anything_is_changed(tmp_path: Path) -> None:
    synced: list[bool] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        held = log(one)
        synced.append(held.synced == len(held.entries))
        assert isinstance(held.entries[held.synced - 1].fact, Decided)
        return text_outcome("ok")

    one = agent(
        tmp_path,
        asked(("Edit", "a"), ("Edit", "b")),
        say("done"),
        tools=[small("Edit", run, kind="write")],
    )
    assert play(one) == "end"
    assert synced[0] is True


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (raw("Lok", "{}"), "There is no tool 'Lok'. The tools are: Look."),
        (
            raw("Look", "{}"),
            "Look was not run: Object missing required field `path`. Its fields are: path, times.",
        ),
        (
            raw("Look", ""),
            "Look was not run: Object missing required field `path`. Its fields are: path, times.",
        ),
        (
            raw("Look", '{"path":"a","times":"many"}'),
            "Look was not run: Expected `int`, got `str` - at `$.times`. "
            "Its fields are: path, times.",
        ),
        (
            raw("Look", "[]"),
            "Look was not run: Expected `object`, got `array`. Its fields are: path, times.",
        ),
        (
            raw("Look", '{"path":"a'),
            "Look was not run: the arguments are not valid JSON (Input data was truncated). "
            "Send one JSON object.",
        ),
        (
            raw("Look", '{"path":"a\\u0000b"}'),
            "path has a NUL character, which paths cannot contain. Remove it.",
        ),
    ],
)
def test_a_call_that_makes_no_sense_never_runs_and_says_why(
    tmp_path: Path, reply: Reply, words: str
) -> None:
    one = agent(tmp_path, reply, say("sorry"), tools=[small("Look")])
    assert play(one) == "end"
    words = words.replace("{root}", str(tmp_path))
    assert only(one) == Result("x", (Text(words),), error=True)
    assert facts(one, Decided) == [Decided("x", "deny", words, by="schema")]


@pytest.mark.parametrize(
    "args",
    [
        '{"path":"x","z":' + "[" * 100_000 + "]" * 100_000 + "}",
        "[" * 100_000,
        "null",
        '"text"',
        "\0",
        "{}" * 9,
        '{"path":"\\ud800"}',
        "\ud800",
    ],
)
def test_no_arguments_whatever_end_the_session(tmp_path: Path, args: str) -> None:
    one = agent(tmp_path, raw("Look", args), say("sorry"), tools=[small("Look")])
    assert play(one) == "end"
    assert only(one).error


def test_numbers_as_text_are_understood(tmp_path: Path) -> None:
    one = agent(tmp_path, raw("Look", '{"path":"a","times":"2"}'), say("ok"), tools=[small("Look")])
    assert play(one) == "end"
    assert only(one).content == (Text("saw a"),)


def test_a_bad_call_among_good_ones_keeps_the_order_and_everything_gets_one_result(
    tmp_path: Path,
) -> None:
    reply = Reply(
        (
            Call("a", "Look", '{"path":"1"}'),
            Call("b", "Nope", "{}"),
            Call("c", "Look", "{"),
            Call("d", "Look", '{"path":"4"}'),
            Call("e", "Fetch", '{"path":"https://x"}'),
            Call("f", "Look", '{"path":"6"}'),
        ),
        stop="calls",
        usage=Usage(),
    )
    tools = [small("Look"), small("Fetch", kind="net")]
    one = agent(tmp_path, reply, say("done"), tools=tools)
    assert play(one) == "end"
    assert sorted(answers(one)) == list("abcdef")
    shown = [item.fact.call for item in one.session.view.items if isinstance(item.fact, Result)]
    assert shown == list("abcdef")
    assert [result.error for result in facts(one, Result)] == [
        fact.call in "bce" for fact in facts(one, Result)
    ]


@given(
    st.lists(
        st.sampled_from(
            [
                ("Look", '{"path":"a"}'),
                ("Look", '{"path":"b"}'),
                ("Edit", '{"path":"a"}'),
                ("Run", '{"path":"ls"}'),
                ("Fetch", '{"path":"https://x"}'),
                ("Nope", "{}"),
                ("Look", "{"),
                ("Break", '{"path":"a"}'),
            ]
        ),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked_every_call_gets_exactly_one_result_in_the_order_asked(
    wanted: list[tuple[str, str]],
) -> None:
    async def broken(args: Place, env: Env, call: str) -> ToolOutcome:
        raise RuntimeError("broken")

    tools = [
        small("Look"),
        small("Edit", kind="write"),
        small("Run", kind="exec"),
        small("Fetch", kind="net"),
        small("Break", broken),
    ]
    content = tuple(Call(f"c{n}", name, args) for n, (name, args) in enumerate(wanted))
    reply = Reply((Text("well"), *content), stop="calls", usage=Usage())
    one = agent(Path("/w"), reply, say("done"), tools=tools)
    assert play(one) == "end"
    shown = [item.fact.call for item in one.session.view.items if isinstance(item.fact, Result)]
    assert shown == [f"c{n}" for n in range(len(wanted))]
    assert len(facts(one, Result)) == len(facts(one, Decided)) == len(wanted)


def test_headless_nobody_is_there_to_say_yes(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        ran.append(args.path)
        return text_outcome("ok")

    one = agent(tmp_path, asked(("Run", "make")), say("oh"), tools=[small("Run", run, kind="exec")])
    assert play(one) == "end"
    assert (ran, only(one).error) == ([], True)
    assert only(one).content == (Text("Permission denied: nobody is here. Nothing was run."),)
    assert [fact.question for fact in facts(one, Asked)] == ["Run make"]


def test_a_denied_call_is_not_asked_about(tmp_path: Path) -> None:
    person = RecordingPerson()
    guard = Permissions("bypass", (parse_permission_rule("Run(rm:*)", "deny"),), (str(tmp_path),))
    tool = small("Run", kind="exec")
    one = agent(
        tmp_path, asked(("Run", "rm x")), say("oh"), tools=[tool], person=person, guard=guard
    )
    assert play(one) == "end"
    assert person.asked == []
    assert only(one).content == (Text("Permission denied: rule: deny Run(rm:*). Nothing was run."),)


def test_a_link_that_leads_out_of_the_workspace_is_outside(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    (work / "link").symlink_to(other)
    person = RecordingPerson()
    tool = small("Edit", kind="write")
    for path in ("link/a", "link/../a", "../other/a"):
        one = agent(work, asked(("Edit", path)), say("oh"), tools=[tool], person=person)
        assert play(one) == "end"
        assert only(one).error
    outside = os.path.realpath(other / "a")
    assert person.asked[0].because == f"writes outside the workspace: {outside}"
    assert len(person.asked) == 3


@pytest.mark.parametrize(
    ("error", "words", "crash"),
    [
        (ToolError("There is no such file; try b."), "There is no such file; try b.", False),
        (
            FileNotFoundError(2, "No such file", "a"),
            "Look failed: [Errno 2] No such file: 'a'",
            False,
        ),
        (
            UserError("The disk is full", fix="Make room."),
            "Look failed: The disk is full\n  Make room.",
            False,
        ),
        (KeyError("x"), "Look crashed: KeyError: 'x'. This is a bug in the tool.", True),
        (
            AssertionError("no"),
            "Look crashed: AssertionError: no. This is a bug in the tool.",
            True,
        ),
    ],
)
@pytest.mark.parametrize("company", [1, 2])
def test_a_tool_that_fails_tells_the_model_and_the_session_lives(
    tmp_path: Path, error: Exception, words: str, crash: bool, company: int
) -> None:
    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        raise error

    reply = asked(*[("Look", "a")] * company)
    one = agent(tmp_path, reply, say("oh"), tools=[small("Look", run)])
    assert play(one) == "end"
    assert list(answers(one).values()) == [words] * company
    assert [noted.what for noted in facts(one, Noted)] == ["crash"] * company * crash
    if crash:
        assert type(error).__name__ in facts(one, Noted)[0].text


@pytest.mark.parametrize("error", [ToolError("not there"), ZeroDivisionError("oops")])
def test_a_tool_that_cannot_say_what_it_touches_does_not_run(
    tmp_path: Path, error: Exception
) -> None:
    def access(args: Place, here: CallLocation) -> tuple[Access, ...]:
        raise error

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        raise AssertionError("it ran")

    tool: Any = Tool("Look", "Looks.", Place, access, run, lambda args: "")
    one = agent(tmp_path, asked(("Look", "a")), say("oh"), tools=[tool])
    assert play(one) == "end"
    assert only(one).error
    assert str(error) in only(one).content[0].text
    assert [n.what for n in facts(one, Noted)] == (
        [] if isinstance(error, ToolError) else ["crash"]
    )


def test_what_a_call_changes_is_state_for_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    seen: list[tuple[str, str]] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        seen.append((env.cwd, env.state.get("cwd", "")))
        return text_outcome("ok", changes=(Changed("cwd", str(tmp_path / args.path)),))

    lines = asked(("Go", "sub")), asked(("Go", "x")), say("done")
    one = agent(tmp_path, *lines, tools=[small("Go", run, kind=None)])
    assert play(one) == "end"
    sub = str(tmp_path / "sub")
    assert seen == [(str(tmp_path), ""), (sub, sub)]
    assert one.session.state == {"cwd": str(tmp_path / "x")}


def test_watchers_see_calls_start_and_their_progress(tmp_path: Path) -> None:
    one = prompt(
        agent(tmp_path, call("Look", path="a", times=2), say("done"), tools=[small("Look")])
    )

    async def main() -> list[object]:
        with one.session.watch() as events:
            await run_turn(one)
            return [events.receive_nowait() for _ in range(events.statistics().current_buffer_used)]

    eyes = [event for event in anyio.run(main) if isinstance(event, ToolStarted | ToolProgress)]
    id = only(one).call
    assert eyes == [ToolStarted(id, "Look"), ToolProgress(id, "a"), ToolProgress(id, "a")]


def test_a_tool_that_never_ends_ends_when_the_turn_is_stopped(tmp_path: Path) -> None:
    left: list[str] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        try:
            await anyio.sleep_forever()
        finally:
            left.append(args.path)
        raise AssertionError("unreachable")

    one = prompt(agent(tmp_path, asked(("Look", "a"), ("Look", "b")), tools=[small("Look", run)]))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(run_turn, one)
            while len(facts(one, Decided)) < 2 or not one.session.view.open:
                await anyio.lowlevel.checkpoint()
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    assert sorted(left) == ["a", "b"]
    assert list(answers(one).values()) == [STOPPED_RESULT, STOPPED_RESULT]
    assert facts(one, Ended) == [Ended("aborted")]


def test_a_real_program_and_real_files_are_reached_through_the_world(tmp_path: Path) -> None:
    from travois.ports.world import Command

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        done = await env.processes.run(Command(("cat", args.path), env.cwd), timeout=300)
        data = await env.files.read(f"{env.root}/{args.path}")
        return text_outcome(f"{done.status} {done.output.head_and_tail() == data}")

    (tmp_path / "a").write_bytes(b"x" * 1000)
    one = agent(tmp_path, asked(("Look", "a")), say("done"), tools=[small("Look", run)])
    assert play(one) == "end"
    assert only(one).content == (Text("0 True"),)


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_turn_of_many_calls_is_valid_in_each_protocol(tmp_path: Path, protocol: Any) -> None:
    tools = [small("Look"), small("Edit", kind="write")]
    many = asked(*[("Look", str(n)) for n in range(20)], ("Edit", "3"))
    session = begun(tools, protocol)
    one = agent(tmp_path, many, many, say("done"), tools=tools, session=session)
    assert play(one) == "end"
    assert len(facts(one, Result)) == 42
    assert len(facts(one, Sent)) == 3


def test_a_very_long_call_is_judged_beside_the_event_loop(tmp_path: Path) -> None:
    judged_in: list[int] = []

    def access(args: Place, here: CallLocation) -> tuple[Access, ...]:
        judged_in.append(threading.get_ident())
        return ()

    look = replace(small("Look"), access=access)
    for path, threads in (("x" * 40_000, 2), ("x", 1)):
        judged_in.clear()
        play(agent(tmp_path, call("Look", path=path), say("done"), tools=[look]))
        assert len(set(judged_in)) == threads
