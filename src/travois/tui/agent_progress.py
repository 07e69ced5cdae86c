"""What sub-agents are doing, in words for people."""

from __future__ import annotations

from travois.ports.agent import Agent
from travois.ports.world import AgentProgress
from travois.tui.cells import clean
from travois.tui.spinner import count

PRICED = 0.0005
"""Less than this many dollars is not shown."""


def progress_line(now: AgentProgress) -> str:
    """What one is doing, its last tool, and what it has used, on one line."""
    parts = [clean(now.doing)]
    parts += [clean(now.tool)] if now.tool else []
    parts += [f"{count(now.tokens)} tokens"] if now.tokens else []
    parts += [price(now.dollars)] if now.dollars >= PRICED else []
    return " · ".join(parts)


def price(dollars: float) -> str:
    """An amount of money; empty if it is next to nothing."""
    return f"${dollars:.3f}" if dollars >= PRICED else ""


def running_agents(agent: Agent) -> list[AgentProgress]:
    """What each sub-agent that runs is doing, in the order in which they were started."""
    if agent.agents is None:
        return []
    known = agent.agents.progress()
    return [known[id] for id in agent.session.running if id in known]


def watch_agents(agent: Agent) -> None:
    """Let a small model name what sub-agents do: from here on somebody sees it."""
    if agent.naming is not None:
        agent.naming.watched = True
