"""One recorded session through the real engine: its replies are played, its results are given.

Only the model and the tools are scripted. The loop, the layers, the log and the encoder are those
of the program, in a folder of their own; the clock follows the recorded times.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from bench.billing import HEAD, Bill, Seen, seen, tokens
from travois.context.layers import Layers
from travois.context.offload import measure, most_that_fits
from travois.engine.agent import Agent, World
from travois.engine.loop import turn
from travois.engine.ports import Answer, Env, Page, Question
from travois.engine.session import Session
from travois.engine.tool import AnyTool, Here, Outcome, Tool, said
from travois.host.files import DiskFiles
from travois.host.process import LocalProcesses
from travois.kernel.blocks import AnyBlock, Call, Text, calls, words
from travois.kernel.facts import (
    AnyFact,
    Compacted,
    Entry,
    Epoch,
    Opened,
    Origin,
    ToolSpec,
    User,
)
from travois.kernel.models import Model, Price, Usage
from travois.kernel.tokens import estimate
from travois.policy.access import Access
from travois.policy.judge import Guard
from travois.store.blobs import Blobs
from travois.store.log import Log
from travois.wire.encode import Encoder
from travois.wire.pieces import Request
from travois.wire.replies import Reply, StreamDelta

PRICE = Price(input=1.0, output=5.0, read=0.1, write=1.25)
ORIGINS: dict[str, Origin] = {"human": "human", "task": "task"}
BEGINS = "(The recorded session begins here.)"
ENDS = "(The recorded session ends here.)"
LONGEST = 10
"""A reply of the model may fill this part of its window: 20K of 200K, as the real ones."""
READERS = ("Read", "read", "read_file", "view")
"""What recorded agents call the tool that shows files."""
NUMBERED = 1.2
"""How much longer a page is with its line numbers."""
SUMMARY = 1_500
"""How many tokens the fixed summary of a fork has at most."""
FILLER = "A head of the usual size: rules, surroundings, schemas [1, 2, 3] {x}.\n"


class Step(msgspec.Struct):
    """One recorded reply: what was said before it, and what its calls brought."""

    index: int
    """Which recorded message it is."""
    time: float
    said: tuple[User, ...]
    content: tuple[AnyBlock, ...]
    results: dict[str, Outcome] = {}

    @property
    def sizes(self) -> list[int]:
        """The tokens of the reply's blocks and of what its calls brought."""
        given = [words(outcome.content) for outcome in self.results.values()]
        return [tokens(text) for text in (*map(_shown, self.content), *given)]


def script(messages: Sequence[dict[str, Any]]) -> list[Step]:
    """The recorded messages as steps; thinking is left out, and so are replies of nothing else."""
    steps: list[Step] = []
    waiting: list[User] = []
    used: dict[str, int] = {}
    for index, message in enumerate(messages):
        rename(message["content"], used)
        if message["role"] == "assistant":
            content = tuple(_blocks(message["content"]))
            if steps and content and not waiting and not calls(steps[-1].content):
                steps[-1].content += content
            elif content:
                said = tuple(waiting) or (() if steps else (User((Text(BEGINS),), origin="note"),))
                steps.append(Step(index, message["t"], said, content))
                waiting = []
            continue
        for block in message["content"]:
            if block["type"] == "tool_result":
                text = (Text(str(block["content"])),)
                outcome = Outcome(text, error=bool(block.get("is_error")))
                steps[-1].results[block["tool_use_id"]] = outcome
            elif block["type"] == "text" and block["text"].strip():
                origin = ORIGINS.get(message["origin"], "note")
                waiting.append(User((Text(block["text"]),), origin=origin))
    return steps


def rename(blocks: list[dict[str, Any]], used: dict[str, int]) -> None:
    """Some recorded agents used an id again for a later call; ours would have renamed it."""
    for block in blocks:
        if block["type"] == "tool_use":
            used[block["id"]] = used.get(block["id"], -1) + 1
        for key in ("id", "tool_use_id"):
            if used.get(block.get(key, ""), 0):
                block[key] += f"_{used[block[key]]}"


def _blocks(blocks: list[dict[str, Any]]) -> list[AnyBlock]:
    found: list[AnyBlock] = []
    for block in blocks:
        if block["type"] == "text" and block["text"].strip():
            found.append(Text(block["text"]))
        elif block["type"] == "tool_use":
            args = block["input"] if isinstance(block["input"], dict) else {"input": block["input"]}
            found.append(Call(block["id"], block["name"], json.dumps(args, ensure_ascii=False)))
    return found


class Watcher(msgspec.Struct):
    """Told of each request of the conversation before it is answered."""

    sent: Callable[[Step, Seen, int], None] = lambda step, request, compactions: None
    """The step that follows, what the model sees, and how often it was compacted so far."""


class Player:
    """The model: plays the recorded replies, bills each request, and sums up when asked aside."""

    def __init__(self, steps: list[Step], *, window: int, watcher: Watcher) -> None:
        self.bill = Bill(window)
        self.at = 0
        self.now = steps[0].time
        self.counts: dict[str, int] = {}
        self.misses: list[float] = []
        """How far the engine's own count of each request was from the bill."""
        self.agent: Agent | None = None
        self.steps = steps
        self._watcher = watcher

    @property
    def done(self) -> bool:
        return self.at >= len(self.steps)

    def feed(self) -> None:
        """Say what was said before the next reply, at the time of that reply."""
        assert self.agent is not None
        self.now = self.steps[self.at].time
        self.agent.inbox.extend(self.steps[self.at].said)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Answer one request: the conversation's own, or one aside."""
        assert self.agent is not None
        sent = self.agent.session.view.sent
        main = sent is not None and sent.chain == request.chain
        yield _once(self._reply(seen(request.body)) if main else self._aside(seen(request.body)))

    def _reply(self, request: Seen) -> Reply:
        if self.done:
            return Reply((Text(ENDS),), stop="end", usage=Usage())
        step = self.steps[self.at]
        self.at += 1
        self._watcher.sent(step, request, self.counts.get(Compacted.__name__, 0))
        output = sum(tokens(_shown(block)) for block in step.content)
        read, write = self.bill.charge(request, at=self.now)
        assert self.agent is not None and self.agent.session.view.sent is not None
        self.misses.append(abs(self.agent.session.view.sent.tokens / (read + write) - 1))
        usage = Usage(read=read, write=write, output=output)
        if not calls(step.content):
            return Reply(step.content, stop="end", usage=usage)
        if not self.done:
            self.agent.inbox.extend(self.steps[self.at].said)
        return Reply(step.content, stop="calls", usage=usage)

    def _aside(self, request: Seen) -> Reply:
        text = self._summary()
        read = self.bill.aside(request, output=tokens(text))
        return Reply((Text(text),), stop="end", usage=Usage(read=read, output=tokens(text)))

    def _summary(self) -> str:
        """The first sentence of each message of the human, and the last words of the model."""
        past = self.steps[: self.at]
        human = [words(u.content) for s in past for u in s.said if u.origin == "human"]
        last = next((words(s.content) for s in reversed(past) if words(s.content)), "")
        lines = [text.strip().split("\n")[0].split(". ")[0][:300] for text in human]
        return "\n".join([*lines, last])[: int((SUMMARY - 1) * 2.75)]

    async def run(self, args: msgspec.Struct, env: Env, call: str) -> Outcome:
        """Give the recorded result of a call; by then it is the time of the next reply."""
        outcome = self.steps[self.at - 1].results[call]
        if not self.done:
            self.now = self.steps[self.at].time
        return outcome

    async def read(self, args: msgspec.Struct, env: Env, call: str) -> Outcome:
        """Give the recorded page of a file as far as Read would show it."""
        outcome = await self.run(args, env, call)
        lines = words(outcome.content).split("\n")
        most = min(env.room.share, round(env.room.cap * NUMBERED))
        count = most_that_fits(len(lines), lambda n: measure("\n".join(lines[:n])), tokens=most)
        if count == len(lines):
            return outcome
        told = f"[lines 1-{count} of {len(lines):,}; continue with offset={count + 1}]"
        return said("\n".join([*lines[:count], told]))


async def _once(reply: Reply) -> AsyncGenerator[StreamDelta | Reply]:
    await anyio.lowlevel.checkpoint()
    yield reply


def _shown(block: AnyBlock) -> str:
    return f"{block.name} {block.args}" if isinstance(block, Call) else words((block,))


class CountingLog:
    """The program's own log, with a count of the facts of each kind."""

    def __init__(self, log: Log, counts: dict[str, int]) -> None:
        self.sync, self.read = log.sync, log.read
        self._log, self._counts = log, counts

    def append(self, fact: AnyFact) -> Entry:
        kind = type(fact).__name__
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._log.append(fact)


class Free(msgspec.Struct):
    """Arguments of any shape."""


def _touches_nothing(args: Free, here: Here) -> tuple[Access, ...]:
    return ()


class Nobody:
    """There is no one to ask."""

    async def decide(self, question: Question) -> Answer:
        return Answer(allow=True)


class NoWeb:
    """There is no network."""

    async def fetch(self, url: str, *, limit: int, timeout: float) -> Page:
        raise OSError("there is no network here")


def replay(
    steps: list[Step], folder: Path, *, window: int, layers: Layers, watcher: Watcher
) -> tuple[Player, str]:
    """Play all steps; returns the player, and why it ended early if it did."""
    player = Player(steps, window=window, watcher=watcher)
    limitless = not (layers.compact or layers.offload or layers.clear)

    async def main() -> str:
        card = Model("bench", "recorded", "anthropic", price=PRICE, output=window // LONGEST)
        card = msgspec.structs.replace(card, window=1 << 40 if limitless else window)
        opened = Opened(folder.name, cwd="/", project="bench", version="0")
        with Log.create(folder, opened, clock=lambda: player.now) as log:
            session = Session(CountingLog(log, player.counts))
            async with anyio.create_task_group() as group:
                player.agent = _agent(player, session, folder, card=card, layers=layers)
                player.agent.background = group.start_soon
                return await _play(player, player.agent)

    return player, anyio.run(main)


async def _play(player: Player, agent: Agent) -> str:
    while not player.done:
        before = player.at
        player.feed()
        why = await turn(agent)
        if why not in ("end", "refusal") or player.at == before:
            return f"{why} at step {player.at}"
    return ""


def _agent(player: Player, session: Session, folder: Path, *, card: Model, layers: Layers) -> Agent:
    names = {call.name for step in player.steps for call in calls(step.content)}
    tools: dict[str, AnyTool] = {name: _tool(name, player) for name in sorted(names)}
    specs = tuple(ToolSpec(name, name, '{"type":"object"}') for name in tools)
    session.append(Epoch(card, _head(), specs))
    kept = folder / "tool-results"
    blobs = Blobs(folder / "blobs")

    def spill(call: str, data: bytes) -> str:
        kept.mkdir(mode=0o700, exist_ok=True)
        path = kept / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in call)}.txt"
        path.write_bytes(data)
        return str(path)

    return Agent(
        session=session,
        model=player,
        encoder=Encoder(blobs.get),
        tools=tools,
        world=World("/", DiskFiles(), LocalProcesses(), NoWeb(), blobs, spill, kept=str(kept)),
        guard=Guard(mode="bypass"),
        person=Nobody(),
        layers=layers,
        clock=lambda: player.now,
    )


def _tool(name: str, player: Player) -> AnyTool:
    paged = name in READERS
    run = player.read if paged else player.run
    # Recorded calls have whatever arguments their agent knew, so the schema is said to be another's.
    return Tool(
        name,
        name,
        Free,
        _touches_nothing,
        run,
        lambda args: "recorded",
        paged=paged,
        schema="{}",
    )


def _head() -> str:
    """A system text that is as large for the engine's own estimate as it is on the bill."""
    return FILLER * (HEAD // estimate(FILLER))
