"""Forks of one reply whose windows fill up at the same time: the real engine, logs on disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tests.agents.test_child_tasks import BYTES, compactions, fill, texts
from tests.agents.test_spawn import folder, fork, options, own, play, until
from travois.agents.child import OPEN_CALL_RESULT
from travois.compose import models as serving
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.context.compaction import shared_summaries
from travois.context.compaction.cut import SUMMARY_MARK
from travois.context.layers import ContextLayers
from travois.core.facts import Entry, Finished, Spawned
from travois.core.models import Usage
from travois.engine.agent import Agent
from travois.engine.fork import REUSED_OUTCOME
from travois.providers.replies import ApiError, Reply, StreamDelta
from travois.providers.request import Request
from travois.testing import Scripted, call, calls, say

__all__ = ["options"]
WINDOW = 64_000
NAMES = ("alpha", "beta", "gamma")
MARKER = b'"cache_control":{"type":"ephemeral"}'
INHERITED = "Forks go on from here"
TURNS = 21
SUMMARY = "## Discoveries\nThe parser was rewritten in March."
PAST = "We talk about the parser, at length. " * 140
"""What a person says, turn by turn, until the window is nearly full."""


class Family:
    """A parent that talks, then starts forks; each of them reads once and then reports."""

    def __init__(self, *summaries: Reply | ApiError, lines: int = 240) -> None:
        self.asked: list[Request] = []
        """Requests for a summary of what forks have in common."""
        self.own: list[Request] = []
        """Requests for a summary of all that one fork knows, or for a draft of one."""
        self.after: list[str] = []
        """What forks saw after a compaction."""
        self.forks: list[Agent] = []
        self._summaries, self._lines = list(summaries), lines

    def _all_are_here(self) -> bool:
        """Whether all forks have come to where a summary is asked for."""
        logs = [fork.session.history() for fork in self.forks]
        return len(logs) == len(NAMES) and all(map(asked_for, logs))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        reply = await self._reply(request)
        if isinstance(reply, ApiError):
            raise reply
        usage = Usage(input=len(request.body) // BYTES, output=9)
        async with Scripted(replace(reply, usage=usage)).stream(request) as stream:
            yield stream

    async def _reply(self, request: Request) -> Reply | ApiError:
        said = texts(request)
        name = next((n for n in NAMES if any(f"task {n}" in text for text in said)), "")
        if INHERITED in said[-1]:
            self.asked.append(request)
            await until(self._all_are_here)
            return self._summaries.pop(0) if len(self._summaries) > 1 else self._summaries[0]
        if said[-1].startswith("This is the harness"):
            self.own += [request] if name else []
            return say("Written for one alone.")
        if "start them" in said[-1]:
            return calls(*(fork(f"task {name}") for name in NAMES))
        if not name or said[-1].startswith("[agent"):
            return say("Yes.")
        self.after += ["\n".join(said)] if any(SUMMARY_MARK in text for text in said) else []
        if not any("result of" in text for text in said):
            return call("Read", file_path="big.txt", limit=self._lines)
        return say(f"{name} is done.")


def run(options: Options, family: Family, monkeypatch: pytest.MonkeyPatch) -> list[list[Entry]]:
    """Play it; the own logs of the forks."""
    fill(options, WINDOW, monkeypatch)
    logs: list[list[Entry]] = []

    async def main(session: LiveSession) -> None:
        session.runtime.agent.team.on_child = family.forks.append
        for number in range(TURNS):
            await session.ask(f"{number}: {PAST}")
        await session.ask("start them")
        ids = sorted(path.name for path in folder(session).glob("agents/*"))
        logs.extend(own(session, id) for id in ids)

    play(options, family, main)
    return logs


def sources(logs: list[list[Entry]]) -> list[list[str]]:
    return [[fact.source for fact in compactions(log)] for log in logs]


def asked_for(log: list[Entry]) -> set[str]:
    """The questions for a summary, by id."""
    begun = (entry.fact for entry in log if isinstance(entry.fact, Spawned))
    return {fact.id for fact in begun if fact.what == "summary"}


def outcomes(log: list[Entry]) -> list[str]:
    """How the questions beside a conversation ended."""
    ends = (entry.fact for entry in log if isinstance(entry.fact, Finished))
    return [fact.outcome for fact in ends if fact.id in asked_for(log)]


def said_by(family: Family, name: str) -> str:
    """What this fork saw after its compaction."""
    return next(said for said in family.after if f"task {name}" in said)


def test_forks_of_one_reply_pay_for_one_summary(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family(say(SUMMARY))
    logs = run(options, family, monkeypatch)
    assert sources(logs) == [["inherited"]] * 3
    assert (len(family.asked), len(family.own)) == (1, 0)
    assert sorted(outcome for log in logs for outcome in outcomes(log)) == [
        "done",
        REUSED_OUTCOME,
        REUSED_OUTCOME,
    ]
    for name in NAMES:
        said = said_by(family, name)
        assert "The parser was rewritten in March." in said
        assert "result of 239:" in said, "what is its own stays as it was"


def test_the_request_for_it_reads_what_the_forks_have_cached(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family(say(SUMMARY))
    run(options, family, monkeypatch)
    (asked,) = family.asked
    assert not any(f"task {name}" in text for name in NAMES for text in texts(asked)[:-1])
    before, _, after = asked.body.rpartition(OPEN_CALL_RESULT.encode())
    assert before and MARKER in after.partition(b'"This is the harness')[0]


def test_if_the_first_gets_no_answer_the_next_one_asks(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family(ApiError("server", "overloaded"), say(SUMMARY))
    logs = run(options, family, monkeypatch)
    assert sorted(sources(logs)) == [["direct"], ["inherited"], ["inherited"]]
    assert (len(family.asked), len(family.own)) == (2, 1)


def test_whoever_has_waited_long_enough_asks_by_itself(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_summaries, "MAX_SIBLING_WAIT_SECONDS", 0.0)
    family = Family(say(SUMMARY))
    assert sources(run(options, family, monkeypatch)) == [["inherited"]] * 3
    assert (len(family.asked), len(family.own)) == (3, 0)


def test_a_fork_that_has_said_more_than_can_stay_is_asked_about_all_of_it(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        serving, "context_layers", lambda *_: ContextLayers(notes=False, tail=4_000)
    )
    family = Family(say(SUMMARY))
    found = sources(run(options, family, monkeypatch))
    assert len(found) == 3 and all(found)
    assert family.asked == [] and "inherited" not in str(found)
