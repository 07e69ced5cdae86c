"""Progress of a subagent as `stream-json` lines."""

from __future__ import annotations

from collections.abc import Sequence

from travois.agents.activity import WORK_NAME_NOTE
from travois.agents.activity import AgentActivity as Doing
from travois.agents.report import compute_agent_cost
from travois.compat.claude_json import JsonObject
from travois.core.content import extract_calls
from travois.core.facts import Assistant, Entry, Noted, Spawned
from travois.headless.control.tasks import task_line
from travois.ports.world import Event


class SubagentProgress:
    """Reports a subagent's progress with each reply and each new activity name."""

    def __init__(self, session: str, spawned: Spawned, *, before: Sequence[Entry] = ()) -> None:
        self._session = session
        self._about = spawned
        self._began: float | None = None
        self._uses = self._tokens = 0
        self._work, self._spent = Doing(), compute_agent_cost(before)

    def lines(self, event: Event) -> list[JsonObject]:
        """Return the lines for an event of the subagent."""
        if not isinstance(event, Entry):
            return []
        self._began = event.at if self._began is None else self._began
        self._work, self._spent = self._work.after(event), self._spent.after_entry(event)
        done = extract_calls(event.fact.content) if isinstance(event.fact, Assistant) else ()
        if isinstance(event.fact, Assistant):
            self._tokens = event.fact.usage.context
        named = isinstance(event.fact, Noted) and event.fact.what == WORK_NAME_NOTE
        if not done and not named:
            return []
        self._uses += len(done)
        usage: JsonObject = {"total_tokens": self._tokens, "tool_uses": self._uses}
        usage["duration_ms"] = round(1000 * (event.at - self._began))
        told: JsonObject = {"description": self._about.what, "usage": usage}
        told |= {"last_tool_name": self._work.tool, "summary": self._work.said}
        told["total_cost_usd"] = self._spent.dollars
        what = f"{self._about.id}.{event.seq}"
        return [task_line("task_progress", what, self._about, session=self._session) | told]
