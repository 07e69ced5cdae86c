"""Travois as a library: real tools, a scripted model, nothing leaves the process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Decided, Ended, Entry, Result
from travois.core.view import open_calls
from travois.ports.world import PermissionQuestion, PersonAnswer
from travois.providers.replies import ApiError, Grew
from travois.testing import Scripted, call, calls, say
from travois_lab.validate import anthropic_faults


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return Options(cwd=str(folder), mode="bypass")


def scripted(*lines: object) -> Scripted:
    return Scripted(*lines, judge=anthropic_faults)  # type: ignore[arg-type]


def run(main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main)


def test_a_turn_is_a_stream_of_entries_and_deltas(options: Options) -> None:
    Path(options.cwd, "a.txt").write_text("needle\n")

    async def main() -> None:
        async with LiveSession(
            options, model=scripted(call("Read", file_path="a.txt"), say("Found."))
        ) as s:
            events = [event async for event in s.run("look")]
        kinds = [type(event.fact).__name__ for event in events if isinstance(event, Entry)]
        ran = ["Assistant", "Decided", "Result", "Changed"]
        assert kinds == ["User", "Sent", *ran, "Sent", "Assistant", "Ended"]
        assert (
            "".join(e.text for e in events if isinstance(e, Grew) and e.kind == "text") == "Found."
        )
        (result,) = [e.fact for e in events if isinstance(e, Entry) and isinstance(e.fact, Result)]
        assert "needle" in extract_text(result.content)

    run(main)


def test_asking_gives_the_last_words(options: Options) -> None:
    async def main() -> None:
        async with LiveSession(options, model=scripted(say("Four."))) as session:
            assert await session.ask("2 + 2?") == "Four."
            assert await session.ask("again?") == "Four."

    run(main)


def test_leaving_the_loop_stops_the_turn_and_answers_every_call(options: Options) -> None:
    two = calls(("Bash", {"command": "sleep 60"}), ("Bash", {"command": "sleep 60"}))

    async def main() -> None:
        async with LiveSession(options, model=scripted(two, say("Fine."))) as session:
            async with aclosing(session.run("go")) as events:
                async for event in events:
                    if isinstance(event, Entry) and isinstance(event.fact, Decided):
                        break
            view = session.runtime.agent.session.view
            assert open_calls(view) == ()
            assert [type(item.fact).__name__ for item in view.items[-2:]] == ["Result", "Result"]
            assert await session.ask("and now?") == "Fine."

    run(main)


def test_leaving_the_block_stops_the_turn_and_answers_every_call(options: Options) -> None:
    async def main() -> None:
        model = scripted(call("Bash", command="sleep 60"), say("Fine."))
        async with LiveSession(options, model=model) as session:
            id = session.id
            async for event in session.run("go"):
                if isinstance(event, Entry) and isinstance(event.fact, Decided):
                    break
        async with LiveSession(
            Options(cwd=options.cwd, mode="bypass", resume=id), model=model
        ) as again:
            assert open_calls(again.runtime.agent.session.view) == ()
            assert await again.ask("and now?") == "Fine."

    run(main)


def test_a_person_is_asked_and_their_reason_goes_to_the_model(options: Options) -> None:
    asked: list[PermissionQuestion] = []

    class Person:
        async def decide(self, question: PermissionQuestion) -> PersonAnswer:
            asked.append(question)
            return PersonAnswer(allow=False, reason="not on a Sunday")

    async def main() -> None:
        model = scripted(call("Bash", command="touch deployed"), say("Very well."))
        careful = Options(cwd=options.cwd)
        async with LiveSession(careful, model=model, person=Person()) as session:
            events = [event async for event in session.run("deploy")]
        (result,) = [e.fact for e in events if isinstance(e, Entry) and isinstance(e.fact, Result)]
        assert result.error and "not on a Sunday" in extract_text(result.content)

    run(main)
    assert [(q.tool, q.args) for q in asked] == [("Bash", '{"command":"touch deployed"}')]


def test_a_failing_model_ends_the_turn_with_a_reason(options: Options) -> None:
    async def main() -> None:
        async with LiveSession(options, model=scripted(ApiError("auth", "bad key"))) as session:
            events = [event async for event in session.run("go")]
        last = events[-1]
        assert isinstance(last, Entry)
        assert last.fact == Ended("failed", "auth: bad key")

    run(main)


def test_a_prompt_that_cannot_fit_is_refused_and_changes_nothing(options: Options) -> None:
    async def main() -> None:
        async with LiveSession(options, model=scripted(say("ok"))) as session:
            before = session.runtime.agent.session.last
            with pytest.raises(UserError, match="does not fit"):
                await session.ask("word " * 400_000)
            assert session.runtime.agent.session.last == before
            assert await session.ask("short") == "ok"

    run(main)


def test_several_turns_and_a_resume_keep_the_prefix(options: Options) -> None:
    model = scripted(call("Glob", pattern="*"), say("one"), say("two"), say("three"))

    async def main() -> None:
        async with LiveSession(options, model=model) as session:
            await session.ask("first")
            await session.ask((Text("second"),))
            id = session.id
        async with LiveSession(Options(cwd=options.cwd, resume=id), model=model) as again:
            reply = [e async for e in again.run("third") if isinstance(e, Entry)]
        assert isinstance(reply[-2].fact, Assistant)

    run(main)
    stems = [request.body.split(b'"messages":[')[1] for request in model.requests]
    plain = [stem.replace(b',"cache_control":{"type":"ephemeral"}', b"") for stem in stems]
    for earlier, later in pairwise(plain):
        assert later.startswith(earlier.rpartition(b"]}]")[0])
