"""Wake-ups: turns that start by themselves, at a time, on a change of a file, or after a command.

A wake-up is a state of the session, and its message has an id that is made of it. So the log says
what is still to come, also after a restart, and each time counts once; times that were missed while
the session was closed count once together. They start turns only between turns, and only where the
program stays open.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from travois.core.content import Text
from travois.core.facts import Changed, User
from travois.core.json import encode_json
from travois.engine.agent import Agent
from travois.sessions.session import WAKE_UP_PREFIX, Session

MAX_WAKE_UPS = 20
"""The most wake-ups that one session waits for."""
FILE_POLL_SECONDS = 1.0
TIME_POLL_SECONDS = 30.0
"""The longest sleep: a suspended machine is late by no more than this."""


class WakeUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """What starts a turn, and the message that it starts with. The first condition counts."""

    id: str
    prompt: str
    due: float = 0.0
    """The time; 0 for none."""
    every: float = 0.0
    """The seconds from one time to the next; 0 if there is only one."""
    file: str = ""
    stamp: str = ""
    """The file's state when the wake-up was made."""
    job: str = ""
    """The background command whose end it waits for."""

    @property
    def mail(self) -> str:
        """The id of its message, another one for each time."""
        return f"{WAKE_UP_PREFIX}{self.id}@{self.due:.0f}"

    @property
    def change(self) -> Changed:
        """The fact that it is waited for."""
        return Changed(WAKE_UP_PREFIX + self.id, encode_json(self).decode())

    @property
    def cancellation(self) -> Changed:
        """The fact that it is waited for no more."""
        return Changed(WAKE_UP_PREFIX + self.id, "")


def make_wake_up_id(seed: str) -> str:
    """Make a short id for a wake-up."""
    return f"w{blake2b(seed.encode(), digest_size=3).hexdigest()}"


def list_wake_ups(session: Session) -> tuple[WakeUp, ...]:
    """Return the wake-ups that are waited for, and those that come again."""
    found = _read_wake_ups(session)
    return tuple(wake for wake in found if wake.every or wake.mail not in session.received)


def _read_wake_ups(session: Session) -> list[WakeUp]:
    """Read the wake-ups of a session's state, also those that have just come."""
    return [
        msgspec.json.decode(value, type=WakeUp)
        for what, value in session.state.items()
        if value and what.startswith(WAKE_UP_PREFIX)
    ]


def stamp_file(modified: float, size: int) -> str:
    """Return what tells one state of a file from another."""
    return f"{modified}:{size}"


async def collect_wake_ups(agent: Agent) -> list[User]:
    """Build the messages of the wake-ups whose time has come; none where nothing waits."""
    if not agent.runtime.stays_open:
        return []
    waiting = {said.mail for said in agent.turn.inbox}
    found = [(wake, await _find_reason(agent, wake)) for wake in _advance_wake_ups(agent)]
    return [
        User((Text(f"[wake-up {wake.id}, {why}] {wake.prompt}"),), origin="task", mail=wake.mail)
        for wake, why in found
        if why and wake.mail not in waiting
    ]


def _advance_wake_ups(agent: Agent) -> Iterator[WakeUp]:
    """Yield the wake-ups; move those that came to their next time, or end them."""
    session, now = agent.session, agent.runtime.clock()
    for wake in _read_wake_ups(session):
        if wake.mail not in session.received:
            yield wake
            continue
        if not wake.every:
            session.append(wake.cancellation)
            continue
        passed = max((now - wake.due) // wake.every, 1.0)  # the last of those that were missed
        following = replace(wake, due=wake.due + passed * wake.every)
        session.append(following.change)
        yield following


async def _find_reason(agent: Agent, wake: WakeUp) -> str:
    """Return why a wake-up is due; empty if it is not."""
    if wake.due and agent.runtime.clock() >= wake.due:
        return "again" if wake.every else "at the time you set"
    if wake.file and await read_stamp(agent, wake.file) != wake.stamp:
        return f"{wake.file} changed"
    if wake.job and _has_ended(agent, wake.job):
        return f"{wake.job} ended"
    return ""


async def read_stamp(agent: Agent, path: str) -> str:
    """Return the state of a file now; empty if there is none."""
    try:
        found = await agent.world.files.stat(path)
    except OSError:
        return ""
    return stamp_file(found.modified, found.size) if found else ""


def _has_ended(agent: Agent, id: str) -> bool:
    job = agent.world.processes.jobs().get(id)
    return job is None or job.is_over


async def wait_for_wake_up(agent: Agent) -> None:
    """Wait until a wake-up is due."""
    while not await collect_wake_ups(agent):
        wakes = list_wake_ups(agent.session)
        left = min((wake.due - agent.runtime.clock() for wake in wakes if wake.due), default=0.0)
        polls = any(wake.file or wake.job for wake in wakes)
        longest = FILE_POLL_SECONDS if polls else TIME_POLL_SECONDS
        await agent.runtime.sleep(min(left, longest) if left > 0 else longest)
