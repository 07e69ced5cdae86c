"""How much of what is sent is read from the provider's cache, on days shaped like real ones.

Prompts of eight tool steps, 860 tokens a step, a median prefix of 126K tokens, pauses between
prompts of 86 seconds (median) and 21 minutes (one in ten). The loop, the layers, the log and the
encoder are the program's; the provider and its cache are the lab's, in the lab's own time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import msgspec

from bench.fidelity import KEEP_ALL
from bench.replay import FILLER, Free, Nobody, NoWeb
from travois.context.cache_lifetime import CacheTtl
from travois.context.layers import ContextLayers
from travois.core.content import Text
from travois.core.facts import Epoch, Opened, ToolSpec, User
from travois.core.models import ModelCard
from travois.engine.agent import (
    Agent,
    AgentContext,
    AgentPermissions,
    AgentRuntime,
    AgentTools,
    World,
)
from travois.engine.loop import run_turn
from travois.files.disk import DiskFiles
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.ports.tool import CallLocation, Tool, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.process.local_processes import LocalProcesses
from travois.providers.catalog import resolve_model
from travois.providers.encoder import RequestEncoder
from travois.providers.errors import parse_error_response
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.providers.stream_reader import create_reply_reader
from travois.sessions.blobs import BlobStore
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session
from travois_lab import Prompt, call, text
from travois_lab.http import Request as Asked
from travois_lab.objects import Json
from travois_lab.routes import answer
from travois_lab.world import World as Lab

SESSIONS = 8
PROMPTS, STEPS, ADDED = 30, 8, 860
RESUMED = 10
HEAD = 20_000
PAUSE, SPREAD = log(86), log(21 * 60 / 86) / 1.2816
"""Of the logarithm of a pause: its median, and its deviation where one in ten is 21 minutes."""
BYTES = 4
"""Of which the lab counts one token."""
DAY = 1_700_000_000.0
LIVES = {"5m": 300.0, "1h": 3_600.0}


class Row(msgspec.Struct, frozen=True):
    """One request of a conversation, as the provider counted it."""

    read: int
    prompt: int
    before: int
    """The prompt of the request before it."""
    pause: float
    life: float
    """How long the cache of the request before it lived."""
    resumed: bool = False


class Day:
    """One conversation with the lab's model, in the lab's time."""

    def __init__(self, seed: int, *, life: CacheTtl) -> None:
        self.life: CacheTtl = life
        self.chance = Random(seed)
        self.lab = Lab(self._speak)
        self.rows: list[Row] = []
        self.pause, self.resumed, self.steps = 0.0, False, 0
        self.agent: Agent | None = None

    def now(self) -> float:
        return DAY + self.lab.clock.now()

    def wait(self, seconds: float) -> None:
        self.pause += seconds
        self.lab.clock.advance(seconds)

    def _speak(self, prompt: Prompt, state: object) -> list[Json]:
        self.steps += 1
        if self.steps % (STEPS + 1) == 0:
            return [text("Done. " + self._words(ADDED // 4))]
        return [text(self._words(60)), call("Look", path=f"src/m{self.steps}.py")]

    def _words(self, tokens: int) -> str:
        words = (f"{self.chance.choice(NOUNS)}_{self.chance.randrange(999)}" for _ in range(999))
        return " ".join(words)[: tokens * BYTES]

    async def look(self, args: Free, env: Env, call: str) -> ToolOutcome:
        self.wait(exp(self.chance.gauss(log(6), 0.8)))
        return text_outcome(self._words(ADDED - 120))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send a request to the lab; what is asked beside the conversation is only billed."""
        assert self.agent is not None and self.agent.session.view.epoch is not None
        card, sent = self.agent.session.view.epoch.model, self.agent.session.view.sent
        headers = {"x-api-key": "bench", **dict(request.headers)}
        response = answer(self.lab, Asked("POST", request.path, {}, headers, request.body))
        body = b"".join(step for step in response.steps if isinstance(step, bytes))
        if response.status != 200:
            raise parse_error_response(
                response.status, {}, body=body, protocol="anthropic", now=0.0
            )
        if sent is not None and sent.chain == request.chain:
            self._count(card)
        yield _read(card, body)

    def _count(self, card: ModelCard) -> None:
        usage = self.lab.ledger[-1].usage
        before = self.rows[-1].prompt if self.rows else 0
        row = Row(usage.read, usage.prompt, before, self.pause, LIVES[self.life], self.resumed)
        self.rows.append(row)
        self.pause, self.resumed, self.life = 0.0, False, card.cache_ttl


NOUNS = ("parser", "index", "window", "ledger", "socket", "column", "branch", "report", "cache")


async def _read(card: ModelCard, body: bytes) -> AsyncGenerator[StreamDelta | Reply]:
    reading = create_reply_reader(card, size=len(body))
    for delta in reading.feed(body):
        yield delta
    await anyio.lowlevel.checkpoint()
    yield reading.finish()


def _nothing(args: Free, here: CallLocation) -> tuple[Access, ...]:
    return ()


async def spend(day: Day, folder: Path, layers: ContextLayers) -> None:
    """All prompts of a day, with a resume after every tenth."""
    for part in range(0, PROMPTS, RESUMED):
        held = SessionLog.open(folder) if part else _begin(day, folder)
        with held:
            async with anyio.create_task_group() as group:
                agent = day.agent = _agent(day, Session(held), folder, layers)
                agent.runtime.background = group.start_soon
                for _ in range(RESUMED):
                    agent.turn.inbox.append(User((Text(day._words(40)),)))
                    assert await run_turn(agent) == "end"
                    day.wait(exp(day.chance.gauss(PAUSE, SPREAD)))
        day.resumed = True


def _begin(day: Day, folder: Path) -> SessionLog:
    opened = Opened(folder.name, cwd="/", project="bench", version="0")
    held = SessionLog.create(folder, opened, clock=day.now)
    spec = ToolSpec("Look", "Look at a file.", '{"type":"object"}')
    head = (FILLER * HEAD)[: HEAD * BYTES]
    card = msgspec.structs.replace(resolve_model("claude-opus-5-5", {}), cache_ttl=day.life)
    Session(held).append(Epoch(card, head, (spec,)))
    return held


def _agent(day: Day, session: Session, folder: Path, layers: ContextLayers) -> Agent:
    tool = Tool("Look", "Look at a file.", Free, _nothing, day.look, lambda args: "look")
    blobs = BlobStore(folder / "blobs")

    def spill(name: str, data: bytes) -> str:
        (folder / name).write_bytes(data)
        return str(folder / name)

    return Agent(
        session=session,
        model=day,
        encoder=RequestEncoder(blobs.get),
        tools=AgentTools({"Look": tool}),
        world=World("/", DiskFiles(), LocalProcesses(), NoWeb(), blobs, spill, kept=str(folder)),
        permissions=AgentPermissions(Permissions(mode="bypass"), Nobody()),
        context=AgentContext(layers),
        runtime=AgentRuntime(clock=day.now),
    )


def share(rows: list[Row]) -> float:
    """The part of all tokens that was read from the cache."""
    return sum(row.read for row in rows) / max(1, sum(row.prompt for row in rows))


def report(name: str, days: list[Day]) -> None:
    rows = [row for day in days for row in day.rows]
    user = [row for day in days for row in day.rows[STEPS + 1 :: STEPS + 1]]
    warm = [row for row in user if row.pause <= row.life]
    resumed = [row for row in rows if row.resumed and row.pause <= row.life]
    again = sum(row.read for row in resumed) / max(1, sum(row.before for row in resumed))
    cold = sum(row.prompt for row in rows if row.pause > row.life)
    print(
        f"{name:16} prefix {median(row.prompt for row in rows):8,.0f}  all {share(rows):6.1%}"
        f"  user steps in life {share(warm):6.1%} ({len(warm)} of {len(user)})"
        f"  resumed reads {again:6.1%} ({len(resumed)})"
        f"  all but cold {share([row for row in rows if row.pause <= row.life]):6.1%}"
        f"  cold tokens {cold / sum(row.prompt for row in rows):5.1%}"
        f"  compacted {sum(_compactions(day) for day in days):3}"
        f"  ${sum(day.lab.ledger.cost() for day in days):7.2f}"
    )


def _compactions(day: Day) -> int:
    return sum(1 for a, b in zip(day.rows, day.rows[1:], strict=False) if b.prompt < a.prompt)


def measure(layers: ContextLayers, *, life: CacheTtl = "5m") -> list[Day]:
    days: list[Day] = []
    for seed in range(SESSIONS):
        day = Day(seed, life=life)
        with TemporaryDirectory() as scratch:
            anyio.run(spend, day, Path(scratch).resolve() / "s", layers)
        days.append(day)
    return days


def main() -> None:
    report("no management", measure(msgspec.structs.replace(KEEP_ALL, lifetime=False)))
    report("Travois", measure(ContextLayers()))
    report("the same, 1h", measure(ContextLayers(), life="1h"))
