"""Background commands: reports to the model when they end, and waiting for them.

A job is owed a report as long as the log says that it runs. The report is one fact, so that it is
told exactly once: at the next safe boundary, when the session is left, or when it is resumed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from signal import Signals

import anyio

from travois.core.content import Text
from travois.core.facts import Changed, User
from travois.engine.agent import Agent
from travois.engine.wake_ups import collect_wake_ups, list_wake_ups, wait_for_wake_up
from travois.ports.world import BackgroundJob
from travois.sessions.session import JOB_STATE_PREFIX, Session

JOB_RUNNING = "running"
MAX_REPORT_LINES = 12
"""The most output lines in a report."""
MAX_REPORT_CHARS = 2_000
"""The most characters of these lines."""
MAX_LABEL_CHARS = 120
JOB_WAIT_SECONDS = 10.0
"""The seconds that a headless run or an agent waits for its jobs after its last word.

Some, such as servers, never end."""
LOST_JOB_NOTE = (
    "The session was interrupted while it ran. It no longer runs; how it ended is unknown, and "
    "unread output is lost."
)
FORKED_JOB_NOTE = (
    "It belongs to the session that this one was forked from and cannot be reached from here."
)
CLOSED_JOB_NOTE = "It was stopped because the session was closed."


def describe_status(status: int | None) -> str:
    """Describe the exit status of a background job."""
    if status is None:
        return JOB_RUNNING
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"ended by {Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def running_jobs(agent: Agent) -> dict[str, BackgroundJob]:
    """Return the background jobs, by ID, whose end was not reported to this agent."""
    jobs = agent.world.processes.jobs()
    owed = (id for id, state in agent.session.jobs.items() if state == JOB_RUNNING)
    return {id: jobs[id] for id in owed if id in jobs}


def collect_end_reports(agent: Agent) -> list[User]:
    """Build reports of background jobs that have ended since the last call."""
    waiting = {said.mail for said in agent.turn.inbox}
    over = ((id, job) for id, job in running_jobs(agent).items() if job.is_over)
    return [build_end_report(job) for id, job in over if JOB_STATE_PREFIX + id not in waiting]


def build_end_report(job: BackgroundJob, *, state: str = "") -> User:
    """Build the note that tells the model of a finished job."""
    title = _first_line(job.label)
    tail = job.last_lines(MAX_REPORT_LINES)[-MAX_REPORT_CHARS:]
    shown = "Last output:" if tail else "No unread output."
    parts = [f"[{job.id}: {state or describe_status(job.status)}] {title}", shown, tail]
    if tail:
        parts.append(f"[BashOutput {job.id} shows all unread output.]")
    return _build_job_note(job.id, "\n".join(part for part in parts if part))


def report_lost_jobs(session: Session) -> None:
    """Report the background jobs that a crash ended, according to the log."""
    for what, state in list(session.state.items()):
        if not what.startswith(JOB_STATE_PREFIX) or state != JOB_RUNNING:
            continue
        id = what.removeprefix(JOB_STATE_PREFIX)
        why = LOST_JOB_NOTE if id in session.jobs else FORKED_JOB_NOTE
        session.append(_build_job_note(id, f"[{id}: lost] {why}"))


def report_left_jobs(agent: Agent) -> tuple[str, ...]:
    """Report the background jobs that end with the session; return a notice for the user."""
    ended: list[str] = []
    for job in running_jobs(agent).values():
        if job.is_over:
            agent.session.append(build_end_report(job))
            continue
        agent.session.append(
            _build_job_note(
                job.id, f"[{job.id}: stopped] {_first_line(job.label)}\n{CLOSED_JOB_NOTE}"
            )
        )
        ended.append(f"{job.id} ({_first_line(job.label)})")
    return (f"Stopped with the session: {', '.join(ended)}",) if ended else ()


def hand_over_jobs(child: Agent, parent: Agent) -> str:
    """Hand a subagent's running background jobs over to its parent; return a note about them."""
    left = running_jobs(child)
    for id in left:
        parent.session.append(Changed(JOB_STATE_PREFIX + id, JOB_RUNNING))
    names = ", ".join(f"{id} ({_first_line(job.label)})" for id, job in left.items())
    return f"Background commands still running: {names}" if left else ""


async def wait_for_news(agent: Agent, *, patience: float | None = None) -> bool:
    """Wait until there is news for an agent, such as a finished job, or nothing is running.

    Returns whether there is something to admit. Background jobs are waited for up to a limit, if
    given.
    """
    agents = agent.team.children
    while True:
        agent.turn.inbox.extend(collect_end_reports(agent))
        agent.turn.inbox.extend(await collect_wake_ups(agent))
        if agent.turn.inbox:
            return True
        wakes = agent.runtime.stays_open and bool(list_wake_ups(agent.session))
        jobs = [job.wait for job in running_jobs(agent).values()]
        children = agents is not None and any(
            report.state == JOB_RUNNING for report in agents.reports().values()
        )
        if not jobs and not children and not wakes:
            return False
        waits: list[Callable[[], Awaitable[object]]] = [*jobs]
        waits += [agents.wait_for_news] if agents is not None and children else []
        waits += [partial(wait_for_wake_up, agent)] if wakes else []
        limit = patience if not children else None
        with anyio.move_on_after(limit) as waited:
            await _wait_for_first(waits)
        if waited.cancelled_caught:
            return False


async def _wait_for_first(waits: list[Callable[[], Awaitable[object]]]) -> None:
    """Wait until the first of some background events is set."""
    async with anyio.create_task_group() as group:

        async def wait_and_cancel(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            group.cancel_scope.cancel()

        for wait in waits:
            group.start_soon(wait_and_cancel, wait)


def _build_job_note(id: str, text: str) -> User:
    return User((Text(text),), origin="task", mail=JOB_STATE_PREFIX + id)


def _first_line(label: str) -> str:
    first = next(_nonblank_lines(label), "")
    return first if len(first) <= MAX_LABEL_CHARS else f"{first[:MAX_LABEL_CHARS]}…"


def _nonblank_lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())
