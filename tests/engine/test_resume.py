"""After a crash at any entry, one repair makes the session sendable again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engine.fakes import MemoryLog, agent, begun, faults, log, play, small
from travois.core.content import Call, Text, extract_calls
from travois.core.facts import Assistant, Changed, Decided, Ended, Entry, Result, Sent, User
from travois.core.models import ApiProtocol, Usage
from travois.core.view import open_calls
from travois.engine.agent import Agent
from travois.engine.loop import NEVER_RAN_RESULT, UNKNOWN_RESULT, answer_open_calls, run_turn
from travois.providers.encoder import RequestEncoder
from travois.providers.replies import ApiError, Reply
from travois.sessions.session import Session
from travois.testing import Scripted, say
from travois.testing import calls as wanted

TOOLS = [small("Look"), small("Edit", kind="write")]
TURNS = 30


def line(number: int) -> Reply | ApiError:
    """The lines of a long session, by turns: looking, editing, failing, being cut."""
    look: Any = ("Look", {"path": f"f{number}"})
    edit: Any = ("Edit", {"path": f"f{number}"})
    match number % 6:
        case 0:
            return wanted(look, look, edit, text="let me look")
        case 1:
            return ApiError("overloaded", "busy")
        case 2:
            return wanted(edit, ("Nope", {}))
        case 3:
            cut = (Text("a long"), Call("", "Look", "{"))
            return Reply(cut, stop="length", usage=Usage(input=9))
        case 4:
            return Reply((Text("searching"),), stop="pause", usage=Usage(input=9))
        case _:
            return say(f"done {number}")


def recorded(folder: Path, protocol: ApiProtocol) -> list[Entry]:
    """A session of thirty turns."""
    one = agent(folder, *map(line, range(6 * TURNS)), tools=TOOLS, session=begun(TOOLS, protocol))
    for number in range(TURNS):
        one.session.append(Changed("cwd", str(folder)))
        assert play(one, f"task {number}") == "end"
    return log(one).entries


def body(session: Session) -> bytes:
    session.append(User((Text("where were we?"),)))
    return RequestEncoder({}.__getitem__).build_request(session.view).body


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_session_that_ended_at_any_entry_can_go_on(tmp_path: Path, protocol: ApiProtocol) -> None:
    whole = recorded(tmp_path, protocol)
    assert len([e for e in whole if isinstance(e.fact, Ended)]) == TURNS
    assert len(whole) > 20 * TURNS
    for end in range(2, len(whole) + 1):
        session = Session(MemoryLog(whole[:end]))
        before = {call.id for call in open_calls(session.view)}
        decided = dict(session.decided)
        answer_open_calls(session, started=UNKNOWN_RESULT)
        told = {e.fact.call: e.fact for e in session._log.read()[end:]}  # type: ignore[union-attr]
        assert set(told) == before
        for call, result in told.items():
            ran = call in decided and decided[call].verdict == "allow"
            assert result == Result(
                call, (Text(UNKNOWN_RESULT if ran else NEVER_RAN_RESULT),), error=True
            )
        assert faults(body(session)) == []


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_turn_on_a_broken_off_session_needs_no_other_repair(
    tmp_path: Path, protocol: ApiProtocol
) -> None:
    whole = recorded(tmp_path, protocol)
    for end in range(2, len(whole) + 1, 11):
        session = Session(MemoryLog(whole[:end]))
        one = agent(tmp_path, say("here"), tools=TOOLS, session=session)
        asked = len([e for e in whole[:end] if isinstance(e.fact, Sent)])
        assert play(one, "go on") == "end"
        assert len([e for e in log(one).entries if isinstance(e.fact, Sent)]) == asked + 1


def test_a_session_may_go_on_in_the_other_protocol(tmp_path: Path) -> None:
    from tests.engine.fakes import epoch

    whole = recorded(tmp_path, "anthropic")
    session = Session(MemoryLog(whole))
    session.append(epoch("chat", TOOLS))
    assert faults(body(session)) == []


def test_stopped_and_resumed_again_and_again_every_call_has_one_result(tmp_path: Path) -> None:
    """Each turn is stopped a little later; the session is loaded anew each time."""
    entries = begun(TOOLS)._log.read()
    for steps in range(40):
        one = agent(
            tmp_path,
            *map(line, range(6)),
            tools=TOOLS,
            session=Session(MemoryLog(entries)),
        )
        stop_after(one, steps)
        entries = log(one).entries
    facts = [entry.fact for entry in entries]
    asked = [
        c.id for fact in facts if isinstance(fact, Assistant) for c in extract_calls(fact.content)
    ]
    answered = [fact.call for fact in facts if isinstance(fact, Result)]
    assert sorted(asked) == sorted(answered)
    assert len(set(asked)) == len(asked) > 30
    assert any(isinstance(fact, Decided) for fact in facts)
    final = agent(tmp_path, say("ok"), tools=TOOLS, session=Session(MemoryLog(entries)))
    assert isinstance(final.model, Scripted)
    assert play(final) == "end"


def stop_after(one: Agent, steps: int) -> None:
    one.turn.inbox.append(User((Text(f"stop after {steps}"),)))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(run_turn, one)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
