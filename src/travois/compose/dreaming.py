"""Memory consolidation in the background: when it runs, its logs, and its reports."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Literal

import anyio
import anyio.to_thread
import msgspec

from travois.agents.mailbox import Mailbox
from travois.agents.report import spent
from travois.compose.mail import STOP
from travois.compose.memory import consents
from travois.compose.open_session import Place
from travois.core.errors import Fault
from travois.core.facts import Changed, Ended, Entry, Finished, Noted, Opened, Spawned
from travois.engine.agent import Agent
from travois.engine.tool_calls import survived
from travois.memory.dreaming import lock as night
from travois.memory.dreaming.consolidate import Dreamt, Manner, dream, dreamer, end, ended
from travois.memory.dreaming.lock import Gates, Night, Seen
from travois.memory.dreaming.rules import Passage
from travois.memory.history import Transaction
from travois.memory.speakers import heard
from travois.memory.store import FolderMemories, open_memories
from travois.ports.world import Event
from travois.sessions import blobs, catalog, lock
from travois.sessions.log_file import NAME, Log, entries
from travois.sessions.session import Session
from travois.settings.schema import Loaded
from travois.version import __version__

FOLDER = "dreams"
MORNING = "morning"
"""The file beside the log of a dream whose outcome no session has reported yet."""
KIND = "dream"
WHAT = "consolidates memories"
KEPT = 30
"""The most logs that are kept."""
MANY = 200
"""The most sessions that one dream reads."""
MUCH = 1_000
"""The most user messages that one dream reads."""
HISTORY = 1_000
"""The most changes that are searched for that of a consolidation."""
TOLD = 3
"""The most steps that a report names."""
PAUSE = 0.5
"""The seconds between checks for a request to stop."""

State = Literal["running", "completed", "failed", "killed"]


class Told(msgspec.Struct, frozen=True):
    """The status of one consolidation, read from its log."""

    id: str
    state: State
    stage: str
    phase: str
    began: float
    over: float
    """When its log last grew."""
    dreamt: Dreamt


class Nights(msgspec.Struct, frozen=True):
    """The memory consolidations of one project."""

    place: Place
    memories: FolderMemories
    gates: Gates = Gates()
    tell: Callable[[Event], None] = lambda event: None
    """Shows the events of a consolidation to a person who waits for it."""

    @property
    def logs(self) -> Path:
        """The folder of their logs."""
        return logs(self.place)

    @property
    def folder(self) -> Path:
        """The folder of the memories and of the time of the last consolidation."""
        return self.memories.folders()["project"]

    def gate(self) -> Seen | str:
        """Return the basis for a consolidation, or why none starts by itself."""
        if not self.folder.is_dir():
            return "there are no memories"
        return night.gate(self.folder, self.gates, now=time.time(), sessions=self._since)

    def begin(self, seen: Seen) -> Night | None:
        """Claim the consolidation, under the name of its log."""
        id = time.strftime(f"dream-%m%d-%H%M%S-{os.urandom(2).hex()}")
        return night.begin(self.folder, id, seen=seen)

    async def run(self, parent: Agent | str, mine: Night) -> Dreamt:
        """Consolidate with a log that others can watch; it counts only if it finishes."""
        folder = self.logs / mine.dream
        host = None if isinstance(parent, str) else parent.session
        if host is not None:
            host.append(Spawned(mine.dream, KIND, WHAT))
        try:
            _tidy(self.logs)
            folder.mkdir(mode=0o700)
            (folder / MORNING).touch(0o600)
            await self.dream(parent, folder)
        finally:  # none of this waits, so it is done also while we are cancelled
            done = told(folder).dreamt
            mine.done() if done.state == "completed" else mine.undo()
            if host is not None:
                cost = spent(_read(folder))
                host.append(Finished(mine.dream, done.state, cost.usage, cost.dollars))
        return done

    async def dream(self, parent: Agent | str, folder: Path, *, manner: Manner = "make") -> None:
        """Consolidate with a log in this folder."""
        opened = Opened(folder.name, self.place.cwd, self.place.project.key, __version__)
        since = night.look(self.folder).last
        with Log.create(folder, opened) as log:
            session = Session(log)
            if not isinstance(parent, str):
                session.secrets = parent.session.secrets
                parent = dreamer(parent, session, id=folder.name, log=str(folder / NAME))
            work = partial(
                dream,
                session,
                self.memories,
                id=folder.name,
                agent=parent,
                gather=partial(passages, self.place, since),
                since=since,
                manner=manner,
                undone=self._undone(),
            )
            over = Dreamt("killed")
            try:
                if manner == "make":
                    await anyio.to_thread.run_sync(self.memories.edited, abandon_on_cancel=True)
                await self._until_stopped(session, Mailbox(folder / "mail"), work)
            except* (Fault, OSError) as broken:
                over = Dreamt("failed", why=str(broken.exceptions[0]))
            finally:
                if ended(session.record()) is None:
                    end(session, over)

    def all(self) -> list[Told]:
        """Return the status of every consolidation, the last one first."""
        return [told(folder) for folder in nights(self.logs)]

    def stop(self) -> Told | None:
        """Ask the running consolidation to stop, if there is one."""
        running = next((one for one in self.all() if one.state == "running"), None)
        if running is not None:
            Mailbox(self.logs / running.id / "mail").put(STOP, "")
        return running

    async def _until_stopped(
        self, session: Session, box: Mailbox, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run the work unless someone asks it to stop."""
        with session.watch() as events:
            async with anyio.create_task_group() as group:
                group.start_soon(_heed, box, group.cancel_scope)
                group.start_soon(_relay, events, self.tell)
                await work()
                group.cancel_scope.cancel()
            while events.statistics().current_buffer_used:
                self.tell(events.receive_nowait())

    def _undone(self) -> frozenset[str]:
        """Return the steps of earlier consolidations that a person undid."""
        gone = {one.id for one in self.memories.history(HISTORY) if one.undone}
        return frozenset(w for one in self.all() if one.dreamt.id in gone for w in one.dreamt.steps)

    def _since(self, at: float) -> int:
        """Count the sessions with activity since then."""
        return sum(1 for _ in recent(self.place, at))


def opened(place: Place, loaded: Loaded) -> Nights:
    """Compose the consolidations of a project from its settings."""
    asked = loaded.settings.memory
    found = open_memories(
        place.home,
        place.project,
        consent=consents(asked),
        index=None,
        trusted=loaded.trust == "trusted",
        directory=asked.directory,
    )
    dream = asked.dream
    return Nights(place, found, Gates(asked.enabled and dream.enabled, dream.hours, dream.sessions))


def logs(place: Place) -> Path:
    """Return the folder of a project's consolidation logs."""
    return place.home.path / FOLDER / place.project.key


def nights(logs: Path) -> list[Path]:
    """Return the folders of a project's consolidations, the last one first."""
    found = logs.glob(f"*/{NAME}")
    return [path.parent for path in sorted(found, key=_time, reverse=True)]


def _time(path: Path) -> float:
    """Return when a log last grew; only one grows at a time."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def told(folder: Path) -> Told:
    """Read the status of a consolidation; one that just stops counts as killed."""
    found = _read(folder)
    state = {e.fact.what: e.fact.value for e in found if isinstance(e.fact, Changed)}
    over = ended(found)
    runs = over is None and lock.holder(folder) is not None
    return Told(
        folder.name,
        "running" if runs else over.state if over else "killed",
        state.get("stage", "starting"),
        state.get("phase", ""),
        found[0].at if found else 0.0,
        found[-1].at if found else 0.0,
        over or Dreamt("killed"),
    )


def _read(folder: Path) -> list[Entry]:
    return [*entries(folder / NAME, [])] if (folder / NAME).is_file() else []


def recent(place: Place, at: float) -> list[Path]:
    """Return the logs of this project's sessions that grew since then, the latest last."""
    found: list[tuple[float, Path]] = []
    for folder in catalog.folders(place.home, place.project.keys):
        with suppress(OSError):
            found.append(((folder / NAME).stat().st_mtime, folder / NAME))
    return [path for grown, path in sorted(found) if grown > at]


def passages(place: Place, since: float) -> list[Passage]:
    """Collect what the user wrote in sessions since then, the latest last."""
    found: list[Passage] = []
    for log in recent(place, since)[-MANY:]:
        said = heard(entry for entry in entries(log, []) if entry.at > since)
        own = (one for one in said if one.voice == "user")
        found += (Passage(log.parent.name, one.seq, one.at, one.text) for one in own)
    return sorted(found, key=lambda passage: passage.at)[-MUCH:]


def morning(nights: Nights, agent: Agent) -> tuple[str, ...]:
    """Report finished consolidations to the person, each once; the model is not told."""
    found: list[str] = []
    for mark in sorted(nights.logs.glob(f"*/{MORNING}")):
        night = told(mark.parent)
        if night.state == "running" or not _taken(mark):
            continue
        made = (one for one in nights.memories.history(HISTORY) if one.session == night.id)
        if (change := next(made, None)) is not None and not change.undone:
            found.append(_news(night.dreamt.steps, change))
            agent.session.append(Noted(MORNING, found[-1]))
    return tuple(found)


def _taken(mark: Path) -> bool:
    """Claim the report of a consolidation, so that only one session gives it."""
    try:
        mark.unlink()
    except OSError:
        return False
    return True


def _news(steps: Sequence[str], made: Transaction) -> str:
    more = f"; and {len(steps) - TOLD} more" if len(steps) > TOLD else ""
    what = "; ".join(steps[:TOLD]) or f"{len(made.files)} files changed"
    undo = f"travois memory undo {made.id}"
    return f"memories were consolidated in the background: {what}{more} ({undo})"


async def watch(nights: Nights, agent: Agent) -> None:
    """Consolidate beside a conversation when it is due: at its start, and after turns."""
    with agent.session.watch() as events:
        state = await _perhaps(nights, agent)
        async for event in events:
            if state == "killed":
                return
            if isinstance(event, Entry) and isinstance(event.fact, Ended):
                state = await _perhaps(nights, agent)


async def _perhaps(nights: Nights, agent: Agent) -> str:
    """Consolidate if it is due; return the outcome."""
    seen = await anyio.to_thread.run_sync(nights.gate, abandon_on_cancel=True)
    mine = None if isinstance(seen, str) else nights.begin(seen)
    if mine is None:
        return ""
    states: list[str] = []

    async def run() -> None:
        states.append((await nights.run(agent, mine)).state)

    await survived(agent, run)
    return states[-1] if states else "failed"


async def _relay(events: AsyncIterable[Event], tell: Callable[[Event], None]) -> None:
    async for event in events:
        tell(event)


async def _heed(box: Mailbox, scope: anyio.CancelScope) -> None:
    while True:
        if any(letter.sender == STOP for letter in box.take()):
            scope.cancel()
        await anyio.sleep(PAUSE)


def _tidy(logs: Path) -> None:
    """Remove old logs to make room for one more."""
    blobs.make_folders(logs)
    for old in nights(logs)[KEPT - 1 :]:
        rmtree(old, ignore_errors=True)
