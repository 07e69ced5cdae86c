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
from travois.agents.report import compute_agent_cost
from travois.compose.mail import STOP_SENDER
from travois.compose.memory import consent_by_scope
from travois.compose.open_session import Workspace
from travois.core.errors import UserError
from travois.core.facts import Changed, Ended, Entry, Finished, Noted, Opened, Spawned
from travois.engine.agent import Agent
from travois.engine.tool_calls import run_child_guarded
from travois.memory.dreaming import lock as night
from travois.memory.dreaming.consolidate import (
    DreamMode,
    DreamResult,
    consolidate_memories,
    make_dream_agent,
    read_dream_result,
    record_dream_result,
)
from travois.memory.dreaming.lock import DreamConditions, DreamLock, DreamLockState
from travois.memory.dreaming.rules import UserPassage
from travois.memory.history import MemoryTransaction
from travois.memory.speakers import collect_statements
from travois.memory.store import FolderMemoryStore, open_memories
from travois.ports.world import Event
from travois.sessions import blobs, catalog, lock
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog, read_entries
from travois.sessions.session import Session
from travois.settings.schema import LoadedSettings
from travois.version import __version__

DREAMS_FOLDER = "dreams"
UNREPORTED_MARK = "morning"
"""The file beside the log of a dream whose outcome no session has reported yet."""
DREAM_KIND = "dream"
DREAM_LABEL = "consolidates memories"
MAX_KEPT_LOGS = 30
"""The most logs that are kept."""
MAX_READ_SESSIONS = 200
"""The most sessions that one dream reads."""
MAX_READ_MESSAGES = 1_000
"""The most user messages that one dream reads."""
MAX_SEARCHED_CHANGES = 1_000
"""The most changes that are searched for that of a consolidation."""
MAX_REPORTED_STEPS = 3
"""The most steps that a report names."""
STOP_POLL_SECONDS = 0.5
"""The seconds between checks for a request to stop."""

DreamState = Literal["running", "completed", "failed", "killed"]


class DreamStatus(msgspec.Struct, frozen=True):
    """The status of one consolidation, read from its log."""

    id: str
    state: DreamState
    stage: str
    phase: str
    began: float
    over: float
    """When its log last grew."""
    dreamt: DreamResult


class ProjectDreams(msgspec.Struct, frozen=True):
    """The memory consolidations of one project."""

    place: Workspace
    memories: FolderMemoryStore
    gates: DreamConditions = DreamConditions()
    tell: Callable[[Event], None] = lambda event: None
    """Shows the events of a consolidation to a person who waits for it."""

    @property
    def logs(self) -> Path:
        """The folder of their logs."""
        return dream_logs_folder(self.place)

    @property
    def folder(self) -> Path:
        """The folder of the memories and of the time of the last consolidation."""
        return self.memories.folders()["project"]

    def check_gates(self) -> DreamLockState | str:
        """Return the basis for a consolidation, or why none starts by itself."""
        if not self.folder.is_dir():
            return "there are no memories"
        return night.check_dream_conditions(
            self.folder, self.gates, now=time.time(), sessions=self._count_sessions_since
        )

    def claim(self, state: DreamLockState) -> DreamLock | None:
        """Claim the consolidation, under the name of its log."""
        id = time.strftime(f"dream-%m%d-%H%M%S-{os.urandom(2).hex()}")
        return night.claim_dream(self.folder, id, state=state)

    async def run(self, parent: Agent | str, mine: DreamLock) -> DreamResult:
        """Consolidate with a log that others can watch; it counts only if it finishes."""
        folder = self.logs / mine.dream
        host = None if isinstance(parent, str) else parent.session
        if host is not None:
            host.append(Spawned(mine.dream, DREAM_KIND, DREAM_LABEL))
        try:
            _remove_old_dreams(self.logs)
            folder.mkdir(mode=0o700)
            (folder / UNREPORTED_MARK).touch(0o600)
            await self.run_in_folder(parent, folder)
        finally:  # none of this waits, so it is done also while we are cancelled
            done = read_dream_status(folder).dreamt
            mine.complete() if done.state == "completed" else mine.roll_back()
            if host is not None:
                cost = compute_agent_cost(_read_dream_log(folder))
                host.append(Finished(mine.dream, done.state, cost.usage, cost.dollars))
        return done

    async def run_in_folder(
        self, parent: Agent | str, folder: Path, *, manner: DreamMode = "make"
    ) -> None:
        """Consolidate with a log in this folder."""
        opened = Opened(folder.name, self.place.cwd, self.place.project.key, __version__)
        since = night.read_lock_state(self.folder).last_time
        with SessionLog.create(folder, opened) as log:
            session = Session(log)
            if not isinstance(parent, str):
                session.secrets = parent.session.secrets
                parent = make_dream_agent(
                    parent, session, id=folder.name, log=str(folder / LOG_FILE_NAME)
                )
            work = partial(
                consolidate_memories,
                session,
                self.memories,
                id=folder.name,
                agent=parent,
                gather=partial(collect_passages, self.place, since),
                since=since,
                manner=manner,
                undone=self._list_undone_steps(),
            )
            over = DreamResult("killed")
            try:
                if manner == "make":
                    await anyio.to_thread.run_sync(
                        self.memories.record_edits, abandon_on_cancel=True
                    )
                await self._run_until_stopped(session, Mailbox(folder / "mail"), work)
            except* (UserError, OSError) as broken:
                over = DreamResult("failed", why=str(broken.exceptions[0]))
            finally:
                if read_dream_result(session.all_entries()) is None:
                    record_dream_result(session, over)

    def list_statuses(self) -> list[DreamStatus]:
        """Return the status of every consolidation, the last one first."""
        return [read_dream_status(folder) for folder in list_dream_folders(self.logs)]

    def stop(self) -> DreamStatus | None:
        """Ask the running consolidation to stop, if there is one."""
        running = next((one for one in self.list_statuses() if one.state == "running"), None)
        if running is not None:
            Mailbox(self.logs / running.id / "mail").put(STOP_SENDER, "")
        return running

    async def _run_until_stopped(
        self, session: Session, box: Mailbox, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run the work unless someone asks it to stop."""
        with session.watch() as events:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch_for_stop, box, group.cancel_scope)
                group.start_soon(_relay_events, events, self.tell)
                await work()
                group.cancel_scope.cancel()
            while events.statistics().current_buffer_used:
                self.tell(events.receive_nowait())

    def _list_undone_steps(self) -> frozenset[str]:
        """Return the steps of earlier consolidations that a person undid."""
        gone = {one.id for one in self.memories.history(MAX_SEARCHED_CHANGES) if one.undone}
        return frozenset(
            w for one in self.list_statuses() if one.dreamt.id in gone for w in one.dreamt.steps
        )

    def _count_sessions_since(self, at: float) -> int:
        """Count the sessions with activity since then."""
        return sum(1 for _ in list_recent_logs(self.place, at))


def compose_dreaming(workspace: Workspace, loaded: LoadedSettings) -> ProjectDreams:
    """Compose the memory consolidation of a project from its settings."""
    asked = loaded.settings.memory
    found = open_memories(
        workspace.home,
        workspace.project,
        consent=consent_by_scope(asked),
        index=None,
        trusted=loaded.trust == "trusted",
        directory=asked.directory,
    )
    dream = asked.dream
    return ProjectDreams(
        workspace,
        found,
        DreamConditions(asked.enabled and dream.enabled, dream.hours, dream.sessions),
    )


def dream_logs_folder(workspace: Workspace) -> Path:
    """Return the folder of a project's memory consolidation logs."""
    return workspace.home.path / DREAMS_FOLDER / workspace.project.key


def list_dream_folders(logs: Path) -> list[Path]:
    """Return the folders of a project's memory consolidations, the last one first."""
    found = logs.glob(f"*/{LOG_FILE_NAME}")
    return [path.parent for path in sorted(found, key=_last_modified, reverse=True)]


def _last_modified(path: Path) -> float:
    """Return when a memory consolidation's log last grew."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_dream_status(folder: Path) -> DreamStatus:
    """Read a memory consolidation's status; one that stops without an end was killed."""
    found = _read_dream_log(folder)
    state = {e.fact.what: e.fact.value for e in found if isinstance(e.fact, Changed)}
    over = read_dream_result(found)
    runs = over is None and lock.find_lock_holder(folder) is not None
    return DreamStatus(
        folder.name,
        "running" if runs else over.state if over else "killed",
        state.get("stage", "starting"),
        state.get("phase", ""),
        found[0].at if found else 0.0,
        found[-1].at if found else 0.0,
        over or DreamResult("killed"),
    )


def _read_dream_log(folder: Path) -> list[Entry]:
    return [*read_entries(folder / LOG_FILE_NAME, [])] if (folder / LOG_FILE_NAME).is_file() else []


def list_recent_logs(workspace: Workspace, at: float) -> list[Path]:
    """Return the session logs for memory consolidation that grew since then, latest last."""
    found: list[tuple[float, Path]] = []
    for folder in catalog.list_session_folders(workspace.home, workspace.project.keys):
        with suppress(OSError):
            found.append(((folder / LOG_FILE_NAME).stat().st_mtime, folder / LOG_FILE_NAME))
    return [path for grown, path in sorted(found) if grown > at]


def collect_passages(workspace: Workspace, since: float) -> list[UserPassage]:
    """Collect the user's messages since then for memory consolidation, latest last."""
    found: list[UserPassage] = []
    for log in list_recent_logs(workspace, since)[-MAX_READ_SESSIONS:]:
        said = collect_statements(entry for entry in read_entries(log, []) if entry.at > since)
        own = (one for one in said if one.voice == "user")
        found += (UserPassage(log.parent.name, one.seq, one.at, one.text) for one in own)
    return sorted(found, key=lambda passage: passage.at)[-MAX_READ_MESSAGES:]


def report_finished_dreams(nights: ProjectDreams, agent: Agent) -> tuple[str, ...]:
    """Report finished memory consolidations to the user, each once, not to the model."""
    found: list[str] = []
    for mark in sorted(nights.logs.glob(f"*/{UNREPORTED_MARK}")):
        night = read_dream_status(mark.parent)
        if night.state == "running" or not _claim_report(mark):
            continue
        made = (
            one for one in nights.memories.history(MAX_SEARCHED_CHANGES) if one.session == night.id
        )
        if (change := next(made, None)) is not None and not change.undone:
            found.append(_format_dream_report(night.dreamt.steps, change))
            agent.session.append(Noted(UNREPORTED_MARK, found[-1]))
    return tuple(found)


def _claim_report(mark: Path) -> bool:
    """Claim a memory consolidation's report, so that only one session shows it."""
    try:
        mark.unlink()
    except OSError:
        return False
    return True


def _format_dream_report(steps: Sequence[str], transaction: MemoryTransaction) -> str:
    """Format the report of a memory consolidation in the background, and how to undo it."""
    more = (
        f"; and {len(steps) - MAX_REPORTED_STEPS} more" if len(steps) > MAX_REPORTED_STEPS else ""
    )
    what = "; ".join(steps[:MAX_REPORTED_STEPS]) or f"{len(transaction.files)} files changed"
    undo = f"travois memory undo {transaction.id}"
    return f"memories were consolidated in the background: {what}{more} ({undo})"


async def dream_when_due(nights: ProjectDreams, agent: Agent) -> None:
    """Run memory consolidation when it is due: at the start of a session, and after turns."""
    with agent.session.watch() as events:
        state = await _dream_if_due(nights, agent)
        async for event in events:
            if state == "killed":
                return
            if isinstance(event, Entry) and isinstance(event.fact, Ended):
                state = await _dream_if_due(nights, agent)


async def _dream_if_due(nights: ProjectDreams, agent: Agent) -> str:
    """Run memory consolidation if it is due; return the outcome."""
    seen = await anyio.to_thread.run_sync(nights.check_gates, abandon_on_cancel=True)
    mine = None if isinstance(seen, str) else nights.claim(seen)
    if mine is None:
        return ""
    states: list[str] = []

    async def run_dream() -> None:
        states.append((await nights.run(agent, mine)).state)

    await run_child_guarded(agent, run_dream)
    return states[-1] if states else "failed"


async def _relay_events(events: AsyncIterable[Event], tell: Callable[[Event], None]) -> None:
    async for event in events:
        tell(event)


async def _watch_for_stop(box: Mailbox, scope: anyio.CancelScope) -> None:
    """Cancel a running memory consolidation when a request to stop it arrives."""
    while True:
        if any(letter.sender == STOP_SENDER for letter in box.take()):
            scope.cancel()
        await anyio.sleep(STOP_POLL_SECONDS)


def _remove_old_dreams(logs: Path) -> None:
    """Remove old memory consolidation logs to make room for one more."""
    blobs.make_folders(logs)
    for old in list_dream_folders(logs)[MAX_KEPT_LOGS - 1 :]:
        rmtree(old, ignore_errors=True)
