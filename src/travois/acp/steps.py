"""What sub-agents do, as an editor shows it under the calls that started them."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial

from travois.acp.calls import fenced, text
from travois.core.content import calls
from travois.core.facts import Assistant, Entry
from travois.headless.json_shapes import Json, Object
from travois.ports.agent import Agent
from travois.ports.world import AgentProgress, Event
from travois.tui.agent_progress import progress_line
from travois.tui.calls import summary

LAST = 8
"""How many of the last steps of an agent are shown."""
META = "travois/agent"
"""The key under which an update has what an agent does as data."""


class Steps:
    """The last steps of the agents that each call started, and what they are doing."""

    def __init__(self) -> None:
        self._steps: defaultdict[str, deque[str]] = defaultdict(partial(deque[str], maxlen=LAST))
        self._now: dict[str, str] = {}

    def add(self, call: str, event: Event, agent: Agent) -> bool:
        """Take note of the calls that an agent makes; whether there were any."""
        if not isinstance(event, Entry) or not isinstance(event.fact, Assistant):
            return False
        fresh = [summary(each, agent.tools) for each in calls(event.fact.content)]
        self._steps[call].extend(fresh)
        return bool(fresh)

    def progress(self, now: AgentProgress, *, shown: bool) -> Object:
        """Tell what an agent is doing; in words while its call is not answered yet."""
        self._now[now.call] = progress_line(now)
        about: Object = {"agentId": now.id, "doing": now.doing, "lastTool": now.tool}
        about |= {"tokens": now.tokens, "costUsd": now.dollars}
        update = self.update(now.call) if shown else _update(now.call)
        meta: Object = {META: about}
        update["_meta"] = meta
        return update

    def update(self, call: str) -> Object:
        """The update that shows all of it under the call."""
        lines = [line for line in (self._now.get(call, ""), *self._steps[call]) if line]
        update, content = _update(call), list[Json]()
        content.append(text(fenced("\n".join(lines))))
        update["content"] = content
        return update


def _update(call: str) -> Object:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call}
