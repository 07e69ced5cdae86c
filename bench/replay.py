"""One recorded session through the real engine: its replies are played, its results are given.

Only the model and the tools are scripted. The loop, the layers, the log and the encoder are those
of the program, in a folder of their own; the clock follows the recorded times. The recorded files
lie in a scratch tree as they were at each moment, so that they can be shown again. With thinking in
the history, old results are left out by the provider, whose part the lab's code plays.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from bench.billing import HEAD, Bill, Seen, seen, tokens
from bench.present import present, stated_by_model
from bench.steps import Step, shown
from bench.tree import Tree, TreeFiles
from travois.context.layers import ContextLayers
from travois.context.tool_results import count_fitting_parts, estimate_text_tokens
from travois.core.content import Text, extract_calls, extract_text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Entry,
    Epoch,
    Opened,
    ToolSpec,
)
from travois.core.models import CONTEXT_EDITING_BETA, ModelCard, Price, Usage
from travois.core.tokens import estimate_tokens
from travois.engine.agent import (
    Agent,
    AgentContext,
    AgentPermissions,
    AgentRuntime,
    AgentTools,
    World,
)
from travois.engine.loop import run_turn
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.ports.tool import AnyTool, CallLocation, Tool, ToolOutcome, text_outcome
from travois.ports.world import Env, PermissionQuestion, PersonAnswer, WebPage
from travois.process.local_processes import LocalProcesses
from travois.providers.encoder import RequestEncoder
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.sessions.blobs import BlobStore
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session

PRICE = Price(input=1.0, output=5.0, read=0.1, write=1.25)
ENDS = "(The recorded session ends here.)"
OTHER = "other"
"""The cause of a lost prefix that no entry of the log explains."""
LONGEST = 10
"""A reply of the model may fill this part of its window: 20K of 200K, as the real ones."""
READERS = ("Read", "read", "read_file", "view")
"""What recorded agents call the tool that shows files."""
NUMBERED = 1.2
"""How much longer a page is with its line numbers."""
SUMMARY = 1_500
"""How many tokens the fixed summary of a fork has at most."""
HEADING = re.compile(r"^## .+$", re.MULTILINE)
PRESENT = re.compile(r"(?i)current|state")
"""What a heading says under which the present belongs."""
FILLER = "A head of the usual size: rules, surroundings, schemas [1, 2, 3] {x}.\n"


class Moment(msgspec.Struct, frozen=True):
    """The first request after a compaction."""

    at: int
    """How many steps were played."""
    aside: int
    """How many of them are no longer shown."""
    fact: Compacted
    tree: Tree


class Watcher(msgspec.Struct):
    """Told of each request of the conversation before it is answered."""

    sent: Callable[[Step, Seen, int], None] = lambda step, request, compactions: None
    """The step that follows, what the model sees, and how often it was compacted so far."""
    compacted: Callable[[Seen, Moment], None] = lambda request, moment: None
    """What the model sees right after a compaction; told before `sent` of the same request."""


class Player:
    """The model: plays the recorded replies, bills each request, and sums up when asked aside."""

    def __init__(self, steps: list[Step], *, tree: Tree, window: int, watcher: Watcher) -> None:
        self.bill = Bill(window)
        self.tree = tree
        self.at = 0
        self.now = steps[0].time
        self.counts: dict[str, int] = {}
        self.causes: dict[str, int] = {}
        """Why the cached prefix was lost, each time that it was."""
        self._moved = OTHER
        self.misses: list[float] = []
        """How far the engine's own count of each request was from the bill."""
        self.agent: Agent | None = None
        self.steps = steps
        self._watcher = watcher
        self._replies: list[int] = []
        """The entries of the replies so far."""
        self._fresh: Compacted | None = None
        """A compaction that no request followed yet."""

    def heard(self, entry: Entry) -> None:
        """Take note of what was written to the log."""
        kind = type(entry.fact).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if isinstance(entry.fact, Assistant):
            self._replies.append(entry.seq)
        elif isinstance(entry.fact, Compacted):
            self._fresh, self._moved = entry.fact, f"compaction ({entry.fact.trigger})"
        elif isinstance(entry.fact, Cleared):
            self._moved = "clearing"

    @property
    def done(self) -> bool:
        return self.at >= len(self.steps)

    def feed(self) -> None:
        """Say what was said before the next reply, at the time of that reply."""
        assert self.agent is not None
        self.now = self.steps[self.at].time
        self.agent.turn.inbox.extend(self.steps[self.at].said)

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
        if self._fresh is not None:
            gone = sum(seq <= self._fresh.last for seq in self._replies)
            self._watcher.compacted(request, Moment(self.at, gone, self._fresh, self.tree))
            self._fresh = None
        self.at += 1
        self._watcher.sent(step, request, self.counts.get(Compacted.__name__, 0))
        output = sum(tokens(shown(block)) for block in step.content)
        read, write = self._charge(request)
        assert self.agent is not None and self.agent.session.view.sent is not None
        self.misses.append(abs(self.agent.session.view.sent.tokens / (read + write) - 1))
        usage = Usage(read=read, write=write, output=output)
        if not extract_calls(step.content):
            return Reply(step.content, stop="end", usage=usage, left_out=request.left_out)
        if not self.done:
            self.agent.turn.inbox.extend(self.steps[self.at].said)
        return Reply(step.content, stop="calls", usage=usage, left_out=request.left_out)

    def _charge(self, request: Seen) -> tuple[int, int]:
        """Bill a request, and note what moved the prefix if it was lost."""
        breaks = self.bill.breaks
        paid = self.bill.charge(request, at=self.now)
        if self.bill.breaks > breaks:
            self.causes[self._moved] = self.causes.get(self._moved, 0) + 1
        self._moved = OTHER
        return paid

    def _aside(self, request: Seen) -> Reply:
        text = self._summary(request.texts[-1])
        if "<notes>" in request.texts[-1]:
            text = f"# Current state\n{text}"
        read = self.bill.aside(request, output=tokens(text))
        return Reply((Text(text),), stop="end", usage=Usage(read=read, output=tokens(text)))

    def _summary(self, asked: str) -> str:
        """The first sentence of each message of the human, the last words of the model, and where
        the work stands at this moment: the same whatever is asked, under the headings asked for.
        """
        past = self.steps[: self.at]
        human = [extract_text(u.content) for s in past for u in s.said if u.origin == "human"]
        last = next(
            (extract_text(s.content) for s in reversed(past) if extract_text(s.content)), ""
        )
        lines = [text.strip().split("\n")[0].split(". ")[0][:300] for text in human]
        first, now = _headings(asked)
        text = "\n".join((first, *lines))[: int((SUMMARY - 1) * 2.75) - len(last)]
        return "\n".join(part for part in (text, now, last, stated_by_model(present(past))) if part)

    async def run(self, args: msgspec.Struct, env: Env, call: str) -> ToolOutcome:
        """Give the recorded result of a call; by then it is the time of the next reply."""
        outcome = self.steps[self.at - 1].results[call]
        if not self.done:
            self.now = self.steps[self.at].time
        changes = self.tree.run(call, state=env.state)
        return msgspec.structs.replace(outcome, changes=changes) if changes else outcome

    async def read(self, args: msgspec.Struct, env: Env, call: str) -> ToolOutcome:
        """Give the recorded page of a file as far as Read would show it."""
        outcome = await self.run(args, env, call)
        lines = extract_text(outcome.content).split("\n")
        most = min(env.room.share, round(env.room.cap * NUMBERED))
        count = count_fitting_parts(
            len(lines), lambda n: estimate_text_tokens("\n".join(lines[:n])), tokens=most
        )
        if count == len(lines):
            return outcome
        told = f"[lines 1-{count} of {len(lines):,}; continue with offset={count + 1}]"
        return text_outcome("\n".join([*lines[:count], told]), changes=outcome.changes)


def _headings(asked: str) -> tuple[str, str]:
    """The headings under which the request and the present belong, if some are asked for."""
    found = HEADING.findall(asked)
    now = (heading for heading in found if PRESENT.search(heading))
    return (found[0], next(now, "")) if found else ("", "")


async def _once(reply: Reply) -> AsyncGenerator[StreamDelta | Reply]:
    await anyio.lowlevel.checkpoint()
    yield reply


class HeardLog:
    """The program's own log, whose player hears of each entry."""

    def __init__(self, log: SessionLog, heard: Callable[[Entry], None]) -> None:
        self.sync, self.read = log.sync, log.read
        self._log, self._heard = log, heard

    def append(self, fact: AnyFact) -> Entry:
        entry = self._log.append(fact)
        self._heard(entry)
        return entry


class Free(msgspec.Struct):
    """Arguments of any shape."""


def _touches_nothing(args: Free, here: CallLocation) -> tuple[Access, ...]:
    return ()


class Nobody:
    """There is no one to ask."""

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        return PersonAnswer(allow=True)


class NoWeb:
    """There is no network."""

    async def fetch(self, url: str, *, limit: int, timeout: float) -> WebPage:
        raise OSError("there is no network here")


class Setting(msgspec.Struct, frozen=True):
    """How a session is played."""

    window: int
    layers: ContextLayers
    cwd: str = "/"
    """Where the recorded agent worked."""
    edits: bool = False
    """Whether the provider leaves out old results when it is told to."""


def replay(
    steps: list[Step], folder: Path, *, setting: Setting, watcher: Watcher
) -> tuple[Player, str]:
    """Play all steps; returns the player, and why it ended early if it did."""
    given = [
        (c, s.results[c.id]) for s in steps for c in extract_calls(s.content) if c.id in s.results
    ]
    tree = Tree(folder.with_name(f"{folder.name}-files"), given)
    player = Player(steps, tree=tree, window=setting.window, watcher=watcher)

    async def main() -> str:
        opened = Opened(folder.name, cwd=setting.cwd, project="bench", version="0")
        with SessionLog.create(folder, opened, clock=lambda: player.now) as log:
            session = Session(HeardLog(log, player.heard))
            async with anyio.create_task_group() as group:
                player.agent = _agent(player, session, folder, setting=setting)
                player.agent.runtime.background = group.start_soon
                return await _play(player, player.agent)

    return player, anyio.run(main)


def _card(setting: Setting) -> ModelCard:
    layers, window = setting.layers, setting.window
    limitless = not (layers.compact or layers.offload or layers.clear)
    card = ModelCard("bench", "recorded", "anthropic", price=PRICE, output=window // LONGEST)
    return msgspec.structs.replace(
        card,
        window=1 << 40 if limitless else window,
        betas=(CONTEXT_EDITING_BETA,) if setting.edits else (),
    )


async def _play(player: Player, agent: Agent) -> str:
    while not player.done:
        before = player.at
        player.feed()
        why = await run_turn(agent)
        if why not in ("end", "refusal") or player.at == before:
            return f"{why} at step {player.at}"
    return ""


def _agent(player: Player, session: Session, folder: Path, *, setting: Setting) -> Agent:
    names = {call.name for step in player.steps for call in extract_calls(step.content)}
    tools: dict[str, AnyTool] = {name: _tool(name, player) for name in sorted(names)}
    specs = tuple(ToolSpec(name, name, '{"type":"object"}') for name in tools)
    session.append(Epoch(_card(setting), _head(), specs))
    kept = folder / "tool-results"
    blobs = BlobStore(folder / "blobs")

    def spill(call: str, data: bytes) -> str:
        kept.mkdir(mode=0o700, exist_ok=True)
        path = kept / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in call)}.txt"
        path.write_bytes(data)
        return str(path)

    return Agent(
        session=session,
        model=player,
        encoder=RequestEncoder(blobs.get),
        tools=AgentTools(tools),
        world=World(
            "/", TreeFiles(player.tree), LocalProcesses(), NoWeb(), blobs, spill, kept=str(kept)
        ),
        permissions=AgentPermissions(
            Permissions(mode="bypass", folders=(_workspace(setting.cwd),)), Nobody()
        ),
        context=AgentContext(setting.layers),
        runtime=AgentRuntime(clock=lambda: player.now),
    )


def _workspace(cwd: str) -> str:
    """The folder whose files may be shown; of a path that is none here, all."""
    return cwd if cwd.startswith("/") else "/"


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
    return FILLER * (HEAD // estimate_tokens(FILLER))
