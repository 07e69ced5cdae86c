"""What a run comes to, as a program sees it: results, errors told apart, events, output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from travois import (
    ApiError,
    Budget,
    BudgetError,
    HookEvent,
    HookReply,
    HookStoppedError,
    InterruptedRunError,
    LimitError,
    Options,
    OutputError,
    PermissionDenied,
    RefusalError,
    RunError,
    Session,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    ToolContext,
    ToolFailedError,
    TurnEnded,
    UserError,
    hook,
    run_sync,
    tool,
)
from travois.testing import Scripted, ScriptLine, call, calls, fail, refuse, say


@tool(safe=True)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(safe=True, on_error="stop_turn")
def explode() -> None:
    """Explode."""
    raise ZeroDivisionError("no")


@tool(safe=True)
async def wait_for_ever(context: ToolContext) -> None:
    """Wait."""
    context.report("waiting")
    await anyio.sleep_forever()


@hook("PreToolUse", matcher="add")
def stop_everything(event: HookEvent) -> HookReply:
    return HookReply(stop=f"{event.tool} of {event.input['a']} is too much")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return Options(cwd=folder, tools=[add, explode, wait_for_ever])


def run(main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main)


def with_changes(options: Options, **changes: Any) -> Options:
    return msgspec.structs.replace(options, **changes)


def test_a_result_has_text_usage_turns_and_the_id_to_resume(options: Options) -> None:
    async def main() -> None:
        async with Session(options, model=Scripted(call("add", a=2), say("Three."))) as session:
            result = await session.run("2 + 1?")
            assert (result.text, result.why, result.ok) == ("Three.", "finished", True)
            assert (result.turns, result.usage.input_tokens, result.usage.output_tokens) == (
                *(2, 20),
                10,
            )
            assert result.session_id == session.id and result.raise_for_error() is result
        async with Session(
            with_changes(options, resume=result.session_id), model=Scripted(say("Still three."))
        ) as again:
            assert await again.ask("Again?") == "Still three."

    run(main)


ENDS: list[tuple[str, type[RunError], dict[str, Any], ScriptLine]] = [
    ("api_error", ApiError, {}, fail("auth", "bad key", status=401)),
    ("refused", RefusalError, {}, refuse("I would rather not.")),
    ("limit", LimitError, {"budget": Budget(turns=1)}, call("add", a=1)),
    ("budget", BudgetError, {"budget": Budget(tokens=10)}, say("never said")),
    ("tool_failed", ToolFailedError, {}, call("explode")),
    ("hook", HookStoppedError, {"hooks": [stop_everything]}, call("add", a=9)),
]


@pytest.mark.parametrize(("why", "kind", "changes", "line"), ENDS, ids=[end[0] for end in ENDS])
def test_each_way_to_fail_has_an_error_of_its_own(
    why: str, kind: type[RunError], changes: dict[str, Any], line: ScriptLine, options: Options
) -> None:
    async def main() -> None:
        async with Session(with_changes(options, **changes), model=Scripted(line)) as session:
            result = await session.run("Go.")
            assert (result.why, type(result.error), result.ok) == (why, kind, False)
            with pytest.raises(kind) as caught:
                await session.run("Go.", raise_on_error=True)
            assert caught.value.result is not None
            with pytest.raises(kind):
                await session.ask("Go.")

    run(main)


def test_errors_say_what_was_wrong(options: Options) -> None:
    async def main() -> None:
        async with Session(options, model=Scripted(ENDS[0][3])) as session:
            error = (await session.run("Go.")).error
            assert isinstance(error, ApiError)
            assert (error.kind, error.status, error.is_retryable) == ("auth", 401, False)
        async with Session(options, model=Scripted(call("explode"))) as session:
            error = (await session.run("Go.")).error
            assert isinstance(error, ToolFailedError)
            assert (error.tool, type(error.__cause__)) == ("explode", ZeroDivisionError)
        limited = with_changes(options, budget=Budget(turns=1))
        async with Session(limited, model=Scripted(call("add", a=1))) as session:
            error = (await session.run("Go.")).error
            assert isinstance(error, LimitError) and error.limit == "turns"

    run(main)


def test_an_error_leaves_the_block_as_itself(options: Options) -> None:
    async def main() -> None:
        with pytest.raises(RefusalError, match="rather not"):
            async with Session(options, model=Scripted(refuse("I would rather not."))) as session:
                await session.run("Go.", raise_on_error=True)

    run(main)


def test_a_stopped_run_says_that_it_was_interrupted(options: Options) -> None:
    async def main() -> None:
        async with Session(options, model=Scripted(call("wait_for_ever"), say("Fine."))) as session:
            stream = session.stream("Go.")
            async for event in stream:
                if isinstance(event, ToolCallStarted):
                    session.stop()
            assert isinstance(stream.result.error, InterruptedRunError)
            assert await session.ask("And now?") == "Fine."

    run(main)


def test_leaving_the_stream_stops_the_run_and_the_next_one_starts(options: Options) -> None:
    async def main() -> None:
        async with Session(options, model=Scripted(call("wait_for_ever"), say("Fine."))) as session:
            stream = session.stream("Go.")
            async for event in stream:
                if isinstance(event, ToolCallStarted):
                    break
            with pytest.raises(UserError, match="not ended"):
                _ = stream.result
            assert await session.ask("And now?") == "Fine."

    run(main)


def test_runs_of_one_session_wait_for_each_other(options: Options) -> None:
    async def main() -> None:
        said: list[str] = []
        async with Session(options, model=Scripted(say("One."), say("Two."))) as session:

            async def ask() -> None:
                said.append(await session.ask("Go."))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                group.start_soon(ask)
        assert said == ["One.", "Two."]

    run(main)


def test_a_stream_is_made_of_plain_events(options: Options) -> None:
    async def main() -> None:
        model = Scripted(calls(("add", {"a": 1}), ("Bash", {"command": "curl x.y"})), say("Two."))
        async with Session(options, model=model) as session:
            events = [event async for event in session.stream("Go.")]
        started = [e for e in events if isinstance(e, ToolCallStarted)]
        assert [(one.name, one.input) for one in started] == [
            ("add", {"a": 1}),
            ("Bash", {"command": "curl x.y"}),
        ]
        finished = {e.name: (e.text, e.is_error) for e in events if isinstance(e, ToolCallFinished)}
        assert finished["add"] == ("2", False) and finished["Bash"][1]
        assert [e.name for e in events if isinstance(e, PermissionDenied)] == ["Bash"]
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Two."
        assert isinstance(events[-1], TurnEnded)
        assert [one.tool for one in events[-1].result.denials] == ["Bash"]

    run(main)


def test_a_text_stream_is_the_text_alone(options: Options) -> None:
    async def main() -> None:
        async with Session(options, model=Scripted(call("add", a=1), say("Two."))) as session:
            stream = session.stream("Go.")
            assert [text async for text in stream.text_stream()] == ["Two."]
            assert stream.result.text == "Two."

    run(main)


class Invoice(msgspec.Struct):
    number: str
    total: float


@dataclass
class Country:
    name: str
    capital: str = ""


def answer(**args: object) -> ScriptLine:
    return call("StructuredOutput", **args)


def test_output_is_of_the_requested_type_and_retried_with_the_error(options: Options) -> None:
    async def main() -> None:
        wrong = answer(number="A1", total="much")
        model = Scripted(wrong, say("Done."), answer(number="A1", total=2.5), say("Done."))
        async with Session(options, model=model) as session:
            result = await session.run("Extract.", output=Invoice)
            assert (result.output, result.why) == (Invoice("A1", 2.5), "finished")
            assert b"/total must be number" in model.requests[1].body
            assert b"answer is still missing" in model.requests[2].body
        model = Scripted(answer(name="France"), say("Done."), answer(value=[1]), say("Done."))
        async with Session(options, model=model) as session:
            assert (await session.run("Extract.", output=Country)).output == Country("France")
            assert (await session.run("Extract.", output=list[int])).output == [1]
            assert (await session.run("Now plain.")).output is None

    run(main)


def test_output_that_never_comes_is_an_error(options: Options) -> None:
    async def main() -> None:
        for line in (say("It is 5."), answer(number=1)):
            async with Session(options, model=Scripted(line)) as session:
                result = await session.run("Extract.", output=Invoice)
                assert isinstance(result.error, OutputError) and result.output is None
                assert result.turns == 6

    run(main)


def test_a_json_schema_gives_plain_values(options: Options) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = Scripted(answer(n=3), say("Done."))
    result = run_sync("Count.", options, model=model, output=schema)
    assert result.output == {"n": 3}


def test_run_sync_refuses_a_running_loop(options: Options) -> None:
    async def main() -> None:
        with pytest.raises(UserError, match="event loop"):
            run_sync("Go.", options, model=Scripted(say("x")))

    run(main)


def test_using_a_session_outside_its_block_says_so(options: Options) -> None:
    async def main() -> None:
        with pytest.raises(UserError, match="not open"):
            await Session(options).run("Go.")

    run(main)
