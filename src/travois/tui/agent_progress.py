"""Progress lines: the spinner of the main agent, and one line for each running subagent."""

from __future__ import annotations

import msgspec

from travois.engine.agent import Agent
from travois.ports.world import AgentProgress
from travois.tui.markdown import Theme, clean, width

TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PACE = 0.3
"""Seconds that each spinner frame is shown."""


class Work(msgspec.Struct, frozen=True):
    """The activity that the spinner line shows."""

    what: str
    seconds: float
    sent: int = 0
    """In tokens."""
    said: int = 0
    dollars: float = 0.0


def line(work: Work, theme: Theme, columns: int) -> str:
    """Render the spinner line; parts that do not fit are dropped from the end."""
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
    """Format a duration."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"


def count(number: int) -> str:
    """Format a token count in at most five characters."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 100_000 else f"{number // 1_000:,}k"


PRICED = 0.0005
"""Smaller amounts are not shown."""


def progress_line(now: AgentProgress) -> str:
    """Format a subagent's activity, last tool, tokens and cost on one line."""
    parts = [clean(now.doing)]
    parts += [clean(now.tool)] if now.tool else []
    parts += [f"{count(now.tokens)} tokens"] if now.tokens else []
    parts += [price(now.dollars)] if now.dollars >= PRICED else []
    return " · ".join(parts)


def price(dollars: float) -> str:
    """Format a cost; empty if it is next to nothing."""
    return f"${dollars:.3f}" if dollars >= PRICED else ""


def running_agents(agent: Agent) -> list[AgentProgress]:
    """List the progress of the running subagents, in the order they were started."""
    if agent.team.children is None:
        return []
    known = agent.team.children.progress()
    return [known[id] for id in agent.session.running if id in known]


def watch_agents(agent: Agent) -> None:
    """Let a small model describe the activity of subagents, since a person sees it."""
    if agent.team.naming is not None:
        agent.team.naming.watched = True
