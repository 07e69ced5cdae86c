"""The engine against the lab, in memory and in the lab's own time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from tests.engine.fakes import OPENED, MemoryLog, Place, agent, small, spec
from travois.core.content import Text
from travois.core.facts import AnyFact, Entry, Epoch, User
from travois.core.models import COMPACTION_BETA, CONTEXT_EDITING_BETA, ModelCard, Price
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.errors import parse_error_response
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.providers.stream_reader import create_reply_reader
from travois.sessions.session import Session
from travois_lab.exchange import Exchange
from travois_lab.http import Request as Asked
from travois_lab.routes import answer
from travois_lab.world import Options, World

PRICE = Price(input=4.0, output=20.0, read=0.2, write=5.0, write_1h=8.0)
OPUS = ModelCard(
    "anthropic",
    "claude-opus-5-5",
    "anthropic",
    price=PRICE,
    output=8_000,
    betas=(CONTEXT_EDITING_BETA, COMPACTION_BETA),
)


class LabModel:
    """A model that the lab plays, without a network."""

    def __init__(self, program: object, **options: Any) -> None:
        self.world = World(program, msgspec.convert(options, Options))

    @property
    def ledger(self) -> list[Exchange]:
        return list(self.world.ledger)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        headers = {"x-api-key": "k", **dict(request.headers)}
        response = answer(self.world, Asked("POST", request.path, {}, headers, request.body))
        body = b"".join(step for step in response.steps if isinstance(step, bytes))
        if response.status != 200:
            named = dict(response.headers)
            raise parse_error_response(
                response.status, named, body=body, protocol="anthropic", now=0.0
            )
        yield _read(body)


async def _read(body: bytes) -> AsyncGenerator[StreamDelta | Reply]:
    reading = create_reply_reader(OPUS, size=len(body))
    for delta in reading.feed(body):
        yield delta
    await anyio.lowlevel.checkpoint()
    yield reading.finish()


class LabLog(MemoryLog):
    """A log whose times are the lab's."""

    world: World

    def append(self, fact: AnyFact) -> Entry:
        entry = replace(super().append(fact), at=1_000.0 + self.world.clock.now())
        self.entries[-1] = entry
        return entry


class Disk:
    """Keeps what is set aside, by path."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def spill(self, name: str, data: bytes) -> str:
        path = f"/kept/{name}.txt"
        self.held[path] = data.decode()
        return path


async def tell(args: Place, env: Env, call: str) -> ToolOutcome:
    return text_outcome(
        f"the text of {args.path} " + f"{args.path} " * 10 + "{{tok:1000}}" + "x" * 4_000
    )


def opened(folder: Path, model: LabModel, **more: Any) -> tuple[Agent, Disk]:
    """An agent that can Read and Ask; all it does takes no time but what the lab is told."""
    tools = (small("Read", tell), small("TodoWrite", kind=None))
    card, log = more.pop("card", OPUS), LabLog(more.pop("entries", ()))
    log.world = model.world
    session = Session(log)
    if not log.entries:
        session.append(OPENED)
        session.append(Epoch(card, "Be brief. {{tok:2000}}", tuple(map(spec, tools))))
    clock = lambda: 1_000.0 + model.world.clock.now()  # noqa: E731
    one = agent(folder, tools=tools, session=session, model=model, clock=clock, **more)
    disk = Disk()
    one.world = replace(one.world, spill=disk.spill, kept="/kept")
    return one, disk


def say(one: Agent, text: str) -> str:
    """One turn."""
    one.turn.inbox.append(User((Text(text),)))
    return anyio.run(run_turn, one)
