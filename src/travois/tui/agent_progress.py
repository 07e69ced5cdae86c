"""Progress lines: the spinner of the main agent, and one line for each running subagent."""

from __future__ import annotations

import msgspec

from travois.engine.agent import Agent
from travois.ports.world import AgentProgress
from travois.tui.layout import clean_display_text, cut_line, display_width
from travois.tui.theme import Theme

SPINNER_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_FRAME_SECONDS = 0.3
"""Seconds that each spinner frame is shown."""


class SpinnerState(msgspec.Struct, frozen=True):
    """The activity that the spinner line shows."""

    what: str
    seconds: float
    sent: int = 0
    """In tokens."""
    said: int = 0
    dollars: float = 0.0


def render_spinner(work: SpinnerState, theme: Theme, columns: int) -> str:
    """Render the spinner line; parts that do not fit are dropped from the end."""
    parts = [f"{format_elapsed(work.seconds)}"]
    if work.sent or work.said:
        parts.append(f"↑ {format_token_count(work.sent)} ↓ {format_token_count(work.said)}")
    if work.dollars:
        parts.append(f"${work.dollars:.4f}")
    parts.append("Esc stops")
    while display_width(shown := " · ".join(parts)) > columns - len(work.what) - 6 and parts[1:]:
        parts.pop()
    return f"  {_render_frame(work.seconds, theme)} {work.what}  {theme.mark(shown, 'quiet')}"


def render_waiting(what: str, seconds: float, theme: Theme, columns: int) -> str:
    """Render what the program waits for, and for how long."""
    time = theme.mark(format_elapsed(seconds), "quiet")
    return f"  {_render_frame(seconds, theme)} {cut_line(what, columns - 12)}  {time}"


def _render_frame(seconds: float, theme: Theme) -> str:
    """Render the picture of the spinner that is due."""
    frame = int(seconds / SPINNER_FRAME_SECONDS) % len(SPINNER_FRAMES)
    return theme.mark(SPINNER_FRAMES[frame], "accent")


def format_elapsed(seconds: float) -> str:
    """Format an agent's elapsed time for its progress line."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"


def format_token_count(number: int) -> str:
    """Format an agent's token count in at most five characters."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 100_000 else f"{number // 1_000:,}k"


MIN_SHOWN_DOLLARS = 0.0005
"""Smaller amounts are not shown."""


def format_agent_progress(now: AgentProgress) -> str:
    """Format a subagent's activity, last tool, tokens and cost on one line."""
    parts = [clean_display_text(now.doing)]
    parts += [clean_display_text(now.tool)] if now.tool else []
    parts += [f"{format_token_count(now.tokens)} tokens"] if now.tokens else []
    parts += [format_price(now.dollars)] if now.dollars >= MIN_SHOWN_DOLLARS else []
    return " · ".join(parts)


def format_price(dollars: float) -> str:
    """Format an agent's cost; empty if it is next to nothing."""
    return f"${dollars:.3f}" if dollars >= MIN_SHOWN_DOLLARS else ""


def list_running_agents(agent: Agent) -> list[AgentProgress]:
    """List the progress of the running subagents, in the order they were started."""
    if agent.team.children is None:
        return []
    known = agent.team.children.progress()
    return [known[id] for id in agent.session.running if id in known]


def enable_activity_names(agent: Agent) -> None:
    """Let a small model describe subagents' activity, since a person sees it."""
    if agent.team.naming is not None:
        agent.team.naming.watched = True
