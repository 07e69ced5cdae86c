"""Live progress of subagents, reported to watchers whenever it changes.

By rule from the agent's own log; where somebody watches, a small model names the work now and then.
Its requests are on the agent's record and bill like any other question beside its conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.agents.activity import (
    WORK_NAME_NOTE,
    AgentActivity,
    build_naming_prompt,
    parse_activity_name,
)
from travois.agents.report import compute_agent_cost
from travois.core.cache_audit import SessionSpending
from travois.core.content import Text, extract_calls, extract_text
from travois.core.facts import Assistant, Entry, Epoch, Noted, User
from travois.core.view import project_view
from travois.engine.fork import ask_quietly
from travois.ports.events import AgentProgress

if TYPE_CHECKING:
    from travois.engine.agent import Agent

NAMING_PROMPT_FILE = Path(__file__).parent / "prompts" / "doing.md"
NAMING_TIMEOUT_SECONDS = 20.0
"""Seconds that a small model has for a name."""
MAX_NAMING_FAILURES = 2
"""Failed naming requests in a row after which no more are made for an agent."""


def last_progress(id: str, entries: Sequence[Entry], *, call: str) -> AgentProgress:
    """Return the final progress of an agent, computed from its log."""
    work, cost = AgentActivity(), compute_agent_cost(entries)
    for entry in entries:
        work = work.after(entry)
    return _build_progress(id, work, cost, call=call)


def _build_progress(
    id: str, work: AgentActivity, cost: SessionSpending, *, call: str
) -> AgentProgress:
    """Build the progress of a subagent: its activity, tool, tokens and cost."""
    return AgentProgress(
        id=id,
        call=call,
        doing=work.said,
        tool=work.tool,
        tokens=cost.usage.prompt + cost.usage.output,
        dollars=cost.dollars,
    )


class ProgressFollower:
    """Follows one sub-agent while it runs."""

    def __init__(self, agent: Agent, *, call: str, tell: Callable[[AgentProgress], None]) -> None:
        self._agent, self._call, self._tell = agent, call, tell
        entries = agent.session.history()
        self._work, self._spent = AgentActivity(), compute_agent_cost(entries)
        self._told: AgentProgress | None = None
        self._moved = anyio.Event()
        """Set once the agent has done something since its work was named."""

    async def follow(self) -> None:
        """Report the agent's progress until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._name_periodically)
            await self._watch_session()

    async def _watch_session(self) -> None:
        with self._agent.session.watch() as events:
            self._report_progress()
            async for event in events:
                if isinstance(event, Entry):
                    self._apply_entry(event)

    def _apply_entry(self, entry: Entry) -> None:
        self._work, self._spent = self._work.after(entry), self._spent.after_entry(entry)
        if isinstance(entry.fact, Assistant) and extract_calls(entry.fact.content):
            self._moved.set()
        self._report_progress()

    def _report_progress(self) -> None:
        id = self._agent.team.birth.id if self._agent.team.birth else ""
        now = _build_progress(id, self._work, self._spent, call=self._call)
        if now != self._told:
            self._told = now
            self._tell(now)

    async def _name_periodically(self) -> None:
        """Have a small model name the work now and then, if the agent has made progress."""
        agent, failures = self._agent, 0
        while (
            agent.team.naming is not None
            and agent.team.naming.watched
            and failures < MAX_NAMING_FAILURES
        ):
            await self._moved.wait()
            await agent.runtime.sleep(agent.team.naming.seconds)
            self._moved = anyio.Event()
            name = await name_work(agent)
            failures = 0 if name else failures + 1
            if name:
                agent.session.append(Noted(WORK_NAME_NOTE, name))


async def name_work(agent: Agent) -> str:
    """Ask a small model to name an agent's activity; empty if there is none or it fails."""
    small = agent.team.naming.small() if agent.team.naming is not None else None
    if small is None:
        return ""
    at, head = (
        agent.runtime.clock(),
        Epoch(small.card, NAMING_PROMPT_FILE.read_text("utf-8").strip()),
    )
    shown = User((Text(build_naming_prompt(agent.session.history())),))
    view, reply = project_view([Entry(1, at, head), Entry(2, at, shown)]), None
    with anyio.move_on_after(NAMING_TIMEOUT_SECONDS):
        asking = msgspec.structs.replace(agent, model=small.model)
        reply = await ask_quietly(asking, view, what=WORK_NAME_NOTE)
    return parse_activity_name(extract_text(reply.content)) if reply else ""
