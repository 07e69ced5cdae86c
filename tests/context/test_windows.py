"""Endless work in windows of every size: no request over the window, no loop, nothing unseen."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from tests.engine.fakes import Place, agent, begun, check, facts, faults, log, small
from tests.sampling import first
from travois.context.window import current_model
from travois.core.cache_audit import CompactionStrikes
from travois.core.content import AnyBlock, Call, Text
from travois.core.facts import Assistant, Compacted, Failed, User
from travois.core.models import Usage
from travois.core.spending import Budget, Limits
from travois.core.tokens import context_tokens, fact_tokens, stop_threshold
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request

WINDOWS = (8_000, 16_000, 32_000, 64_000, 128_000, 200_000, 1_000_000)
BYTES = 3
"""This provider counts so many bytes of a request as one token."""
PARTS = 8
"""A reply may be at most this part of the window."""
SMALL = 8_000
"""Here the results of one reply may fill half of the room."""
LARGE = 128_000
ROUNDS = int(os.environ.get("TRAVOIS_ROUNDS", "0"))
"""Set it to 500 for the figures of the guide; that takes some minutes."""
VALIDATED = 25
"""One request in so many is judged by the lab; all are weighed."""
WORDS = "alpha beta gamma delta = (x + 1) ; return foo[3] /srv/app/main.py 0x3fa1 naïve 漢字 \n"


class Round(NamedTuple):
    """What the model does next: calls whose results have these sizes, in bytes, or last words."""

    results: tuple[int, ...] = ()
    args: int = 0
    words: int = 40
    line: str = WORDS
    """Of what results are made."""


class Endless:
    """A provider that counts honestly, cuts replies at its window, and takes nothing over it."""

    def __init__(self, rounds: Iterator[Round], *, window: int) -> None:
        self.window = window
        self.sizes: list[int] = []
        self.wanted: tuple[str, ...] = ()
        """What the next request must show: the beginnings of the results asked for last."""
        self.unseen: list[str] = []
        self.round = Round()
        self._rounds = rounds

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        yield _once(self._reply(request.body))

    def _reply(self, body: bytes) -> Reply:
        size = len(body) // BYTES
        self.sizes.append(size)
        assert size <= self.window, f"request {len(self.sizes)} has {size} of {self.window} tokens"
        if len(self.sizes) % VALIDATED == 0:
            assert faults(body) == []
        if b"This is the harness" in body:
            usage = Usage(input=size, output=20)
            return Reply((Text("## 8. Current work\nGoing on."),), stop="end", usage=usage)
        self.unseen += [mark for mark in self.wanted if mark.encode() not in body]
        self.round = next(self._rounds)
        number, room = len(self.sizes), min(self.window - size, self.window // PARTS)
        marks = tuple(f"mark-{number}-{k}." for k in range(len(self.round.results)))
        fill = WORDS * (self.round.args // len(WORDS))
        asked = [Call("", "Look", _args(mark, fill)) for mark in marks]
        content: tuple[AnyBlock, ...] = (Text("x" * self.round.words), *asked)
        output = (self.round.words + sum(len(call.args) for call in asked)) // BYTES
        usage = Usage(input=size, output=min(output, room))
        if output > room:
            self.wanted = ()
            return Reply(content[:2], stop="length", usage=usage)
        self.wanted = marks
        return Reply(content, stop="calls" if marks else "end", usage=usage)

    async def look(self, args: Place, env: Env, call: str) -> ToolOutcome:
        mark = args.path.partition(" ")[0]
        size = self.round.results[int(mark.strip(".").rpartition("-")[2])]
        line = self.round.line
        return text_outcome(mark + (line * (size // len(line) + 1))[:size])


def _args(mark: str, fill: str) -> str:
    return msgspec.json.encode({"path": f"{mark} {fill}"}).decode()


async def _once(reply: Reply) -> AsyncGenerator[StreamDelta | Reply]:
    await anyio.lowlevel.checkpoint()
    yield reply


def mixed(chance: Random, window: int) -> Iterator[Round]:
    """Results of every size up to ten times the window."""
    while True:
        size = min(10 * BYTES * window, 1 << 21, round(10 ** chance.uniform(0, 6.5)))
        yield Round((size,), words=chance.randrange(400))


def lines(chance: Random, window: int) -> Iterator[Round]:
    """Results of one endless line."""
    while True:
        yield Round((chance.randrange(BYTES * window),), line=chance.choice(("x", "7", "漢", "%0")))


def parallel(chance: Random, window: int) -> Iterator[Round]:
    """Many results at a time."""
    while True:
        yield Round(tuple(round(10 ** chance.uniform(0, 5)) for _ in range(chance.randint(1, 12))))


def large_calls(chance: Random, window: int) -> Iterator[Round]:
    """Calls whose arguments are as long as a reply may be, up to 50,000 tokens, or longer."""
    while True:
        most = min(BYTES * window // PARTS, BYTES * 50_000)
        yield Round((100,), args=round(most * chance.choice((0.1, 0.5, 0.9, 0.97, 1.2))))


def tiny(chance: Random, window: int) -> Iterator[Round]:
    """Nothing but small things."""
    while True:
        yield Round((chance.randrange(40),), words=chance.randrange(20))


def chatter(chance: Random, window: int) -> Iterator[Round]:
    """A prompt, some work, a last word; and so on."""
    while True:
        yield from [Round((chance.randrange(30_000),))] * chance.randrange(4)
        yield Round(words=chance.randrange(3_000))


WORK = {work.__name__: work for work in (mixed, lines, parallel, large_calls, tiny, chatter)}
Work = Callable[[Random, int], Iterator[Round]]


class Held:
    """Keeps what is set aside."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def spill(self, name: str, data: bytes) -> str:
        self.names.append(name)
        return f"/kept/{name}.txt"


def working(folder: Path, work: Work, *, window: int) -> tuple[Agent, Endless]:
    provider = Endless(work(Random(window), window), window=window)
    tool = small("Look", provider.look)
    session = begun((tool,), window=window, output=window // PARTS)
    one = agent(folder, tools=(tool,), session=session, model=provider)
    one.world = replace(one.world, spill=Held().spill)
    one.runtime.clock = lambda: log(one).entries[-1].at + 1
    return one, provider


def run(one: Agent, provider: Endless, *, rounds: int, prompts: Iterator[str]) -> None:
    """Turn after turn until so many requests were answered."""

    async def main() -> None:
        while len(provider.sizes) < rounds:
            one.turn.inbox.append(User((Text(next(prompts)),)))
            one.budget = Budget(Limits(turns=rounds - len(provider.sizes)))
            assert await run_turn(one) in ("end", "turns")

    anyio.run(main)
    check(one)


def useless(one: Agent) -> int:
    """The longest row of compactions that freed too little."""
    strikes, most = CompactionStrikes(), 0
    for fact in facts(one, object):
        strikes = strikes.after_fact(fact)
        most = max(most, strikes.useless)
    return most


def apart(one: Agent) -> float:
    """How many replies there are to a compaction."""
    count = len(facts(one, Compacted))
    return len(facts(one, Assistant)) / count if count else float("inf")


def sound(one: Agent, provider: Endless) -> None:
    assert provider.unseen == []
    assert [fact for fact in facts(one, Failed) if fact.kind == "overflow"] == []
    assert useless(one) <= 2
    assert apart(one) >= (3 if provider.window > SMALL else 2)


def plain() -> Iterator[str]:
    while True:
        yield "Go on. Never touch main.py."


@pytest.mark.parametrize("window", first(len(WINDOWS) - 1, WINDOWS))
@pytest.mark.parametrize("name", WORK)
def test_endless_work_stays_in_the_window(tmp_path: Path, name: str, window: int) -> None:
    one, provider = working(tmp_path, WORK[name], window=window)
    run(one, provider, rounds=ROUNDS or (50 if window <= LARGE else 20), prompts=plain())
    sound(one, provider)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_human_may_fill_the_window_again_and_again(tmp_path: Path, window: int) -> None:
    one, provider = working(tmp_path, chatter, window=window)

    def prompts() -> Iterator[str]:
        chance = Random(1)
        while True:
            room = stop_threshold(current_model(one)) - context_tokens(one.session.view)
            text = WORDS * (round(room * chance.uniform(0.3, 1.0) * 2.2) // len(WORDS))
            if fact_tokens(User((Text(text),))) * 1.2 < room:
                yield text
            yield "and?"

    run(one, provider, rounds=40 if window <= LARGE else 12, prompts=prompts())
    sound(one, provider)
