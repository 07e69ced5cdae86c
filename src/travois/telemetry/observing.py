"""Watching a session, and the agents that it starts, for telemetry.

What takes time to load is loaded beside the session; until then its events wait in line.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from travois.core.facts import Spawned
from travois.engine.tool_calls import survived
from travois.ports.agent import Agent
from travois.ports.world import Command, Event
from travois.process.run import LocalProcesses
from travois.telemetry import Place, Wish

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from travois.telemetry.otel import Telling
    from travois.telemetry.pipe import Pipe

PATIENCE = 10.0
"""How many seconds a command has to print headers."""


class Arrival(msgspec.Struct, frozen=True):
    """That an agent began: which kind of agent, when, and what its spans belong to."""

    kind: str
    at: int
    above: Context


class Followed(msgspec.Struct):
    """An agent and its events; `telling` is there once it is known what it belongs to."""

    agent: Agent
    events: MemoryObjectReceiveStream[Event]
    line: deque[tuple[int, Event]] = msgspec.field(default_factory=deque[tuple[int, Event]])
    """What has happened, and when, that was not told yet."""
    telling: Telling | None = None

    def drain(self) -> None:
        """Take what has not been heard yet."""
        while self.events.statistics().current_buffer_used:
            self.line.append((time.time_ns(), self.events.receive_nowait()))


class Observer:
    """Follows a session and all agents below it; `trouble` is why it could not."""

    def __init__(self, session: str, wish: Wish) -> None:
        self.trouble = ""
        self.place = Place(os.environ.get("TRACEPARENT", ""))
        self._since = time.time_ns()
        self._session = session
        self._wish = wish
        self._pipe: Pipe | None = None
        self._followed: dict[str, Followed] = {}
        self._arrivals: dict[str, Arrival] = {}

    def attend(self, id: str, followed: Followed) -> None:
        """Take note of an agent before anything happens to it."""
        self._followed[id] = followed

    async def follow(self, id: str) -> None:
        """Tell of one agent, until cancelled or until that breaks, which disturbs nobody."""
        agent = self._followed[id].agent
        self.trouble = await survived(agent, partial(self._follow, id)) or self.trouble

    async def open(self) -> None:
        """Lay the way to the collector."""
        agent = self._followed[self._session].agent
        self.trouble = await survived(agent, partial(self._open, agent)) or self.trouble

    async def _follow(self, id: str) -> None:
        async for event in self._followed[id].events:
            self._followed[id].line.append((time.time_ns(), event))
            self._tell(id)

    async def _open(self, agent: Agent) -> None:
        headers = await _headers(self._wish.helper, agent)
        with anyio.CancelScope(shield=True):
            self._pipe = await to_thread.run_sync(_lay, self._session, self.place, headers)
            self._begin(self._session, Arrival("", self._since, self._pipe.above))

    def _tell(self, id: str) -> None:
        """Tell what waits in line, if it is known whose it is."""
        telling = self._told(id)
        while telling is not None and self._followed[id].line:
            telling.see(*self._followed[id].line.popleft())

    def _begin(self, id: str, arrival: Arrival) -> None:
        self._arrivals[id] = arrival
        self._tell(id)

    def _born(self, fact: Spawned, at: int, above: Context) -> None:
        self._begin(fact.id, Arrival(fact.kind, at, above))

    def _over(self, id: str, at: int) -> bool:
        """End an agent; whether its own events have told what it cost."""
        telling = self._told(id)
        if telling is None:
            return False
        self._followed[id].drain()
        self._tell(id)
        telling.close(at)
        return True

    def _told(self, id: str) -> Telling | None:
        """What tells of an agent, made once it is known where it is and what it belongs to."""
        followed, arrival = self._followed.get(id), self._arrivals.get(id)
        if followed is None or arrival is None or self._pipe is None:
            return None
        if followed.telling is None:
            from travois.telemetry.otel import About, Telling

            session = followed.agent.session
            assert session.view.epoch is not None
            about = About(id, arrival.kind, self._wish.content, session.secrets)
            followed.telling = Telling(
                self._pipe,
                about,
                card=session.view.epoch.model,
                root=self._pipe.root(id, arrival.kind, at=arrival.at, above=arrival.above),
                born=self._born,
                over=self._over,
            )
        return followed.telling

    async def close(self) -> str:
        """Tell the rest and hang up; returns why something could not be told, in words."""
        if self._pipe is None:
            return self.trouble
        for id in list(self._followed):
            self._followed[id].drain()
            self._tell(id)
        for followed in reversed(self._followed.values()):
            if followed.telling is not None:
                followed.telling.close(time.time_ns())
        return self.trouble or await self._pipe.close()


@asynccontextmanager
async def observed(
    agent: Agent, session: str, wish: Wish, *, tell: Callable[[str], None]
) -> AsyncGenerator[None]:
    """Follow a session while the block lasts; `tell` gets one line if that went wrong."""
    observer, before, processes = Observer(session, wish), agent.born, agent.world.processes
    if isinstance(processes, LocalProcesses):
        processes.export("TRACEPARENT", observer.place.told)
    with ExitStack() as watches:
        async with anyio.create_task_group() as group:

            def born(child: Agent) -> None:
                before(child)
                assert child.birth is not None
                events = watches.enter_context(child.session.watch())
                observer.attend(child.birth.id, Followed(child, events))
                group.start_soon(observer.follow, child.birth.id)

            agent.born = born
            events = watches.enter_context(agent.session.watch())
            observer.attend(session, Followed(agent, events))
            group.start_soon(observer.follow, session)
            group.start_soon(observer.open)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            if why := await observer.close():
                tell(f"telemetry was not delivered: {why}")


def _lay(session: str, place: Place, headers: dict[str, str]) -> Pipe:
    from travois.telemetry.pipe import lay

    return lay(session, place, headers)


async def _headers(helper: str, agent: Agent) -> dict[str, str]:
    """What a command of the user's prints for the collector to see."""
    if not helper:
        return {}
    command = Command(("/bin/sh", "-c", helper), agent.world.root, stderr="apart")
    done = await agent.world.processes.run(command, timeout=PATIENCE)
    try:
        return msgspec.json.decode(done.output.joined(), type=dict[str, str])
    except msgspec.DecodeError:
        raise OSError("otelHeadersHelper printed no JSON object of headers") from None
