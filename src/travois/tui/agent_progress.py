"""What sub-agents are doing, in words for people."""

from __future__ import annotations

import msgspec

from travois.engine.agent import Agent
from travois.ports.world import AgentProgress
from travois.tui.markdown import Theme, clean, width

# The line that says that it works, for how long, and what it has cost so far.


TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PACE = 0.3
"""How many seconds each picture stands."""


class Work(msgspec.Struct, frozen=True):
    """What is done at the moment."""

    what: str
    seconds: float
    sent: int = 0
    """Tokens."""
    said: int = 0
    dollars: float = 0.0


def line(work: Work, theme: Theme, columns: int) -> str:
    """The work in one line; what has no room is left out, the last first."""
    picture = theme.mark(TURNS[int(work.seconds / PACE) % len(TURNS)], "accent")
    parts = [f"{clock(work.seconds)}"]
    if work.sent or work.said:
        parts.append(f"↑ {count(work.sent)} ↓ {count(work.said)}")
    if work.dollars:
        parts.append(f"${work.dollars:.4f}")
    parts.append("Esc stops")
    while width(shown := " · ".join(parts)) > columns - len(work.what) - 6 and parts[1:]:
        parts.pop()
    return f"  {picture} {work.what}  {theme.mark(shown, 'quiet')}"


def clock(seconds: float) -> str:
    """A time as people say it."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"


def count(number: int) -> str:
    """A number of tokens in few signs."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 100_000 else f"{number // 1_000:,}k"


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
    if agent.team.children is None:
        return []
    known = agent.team.children.progress()
    return [known[id] for id in agent.session.running if id in known]


def watch_agents(agent: Agent) -> None:
    """Let a small model name what sub-agents do: from here on somebody sees it."""
    if agent.team.naming is not None:
        agent.team.naming.watched = True
