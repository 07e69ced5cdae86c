"""The last line: with whom, how, where, how full, how warm, and what goes on beside."""

from __future__ import annotations

import msgspec

from travois.tui.cells import clean, width
from travois.tui.themes import Role, Theme

MUCH, FULL = 65, 85
CELLS = 8


class Standing(msgspec.Struct, frozen=True):
    """How things stand."""

    model: str = ""
    mode: str = "default"
    branch: str = ""
    used: int = 0
    """Per cent of what the conversation may grow to."""
    warm: float = 0.0
    """For how many seconds the provider still remembers."""
    tasks: int = 0
    doing: str = ""
    """What the last of the agents among them is doing."""
    todos: tuple[int, int] = (0, 0)
    """How many tasks of the list are completed, and of how many."""


def line(standing: Standing, theme: Theme, columns: int) -> str:
    """The standing in one line; what has no room is left out, the least needed first."""
    role: Role = "warn" if standing.mode != "default" else "quiet"
    parts = {
        "model": theme.mark(clean(standing.model.rpartition("/")[2]), "quiet"),
        "mode": theme.mark(standing.mode, role) if standing.mode != "default" else "",
        "branch": theme.mark(clean(standing.branch), "quiet"),
        "used": _meter(standing.used, theme),
        "warm": theme.mark(f"cache {_left(standing.warm)}", "quiet") if standing.warm else "",
        "todos": theme.mark(_todos(*standing.todos), "quiet"),
        "tasks": theme.mark(_tasks(standing.tasks), "accent") if standing.tasks else "",
        "doing": theme.mark(clean(standing.doing), "quiet"),
    }
    gap = theme.mark(" · ", "quiet")
    for dropped in ("", "warm", "todos", "doing", "branch", "model", "tasks"):
        parts.pop(dropped, None)
        shown = "  " + gap.join(part for part in parts.values() if part)
        if width(shown) <= columns:
            return shown
    return ""


def _meter(used: int, theme: Theme) -> str:
    role: Role = "bad" if used >= FULL else "warn" if used >= MUCH else "quiet"
    full = min(CELLS, round(used / 100 * CELLS))
    return theme.mark(f"{'━' * full}{'╌' * (CELLS - full)} {used}%", role)


def _left(seconds: float) -> str:
    return (
        f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(1, round(seconds / 15)) * 15} s"
    )


def _todos(done: int, total: int) -> str:
    return f"{done}/{total} done" if done < total else ""


def _tasks(count: int) -> str:
    return f"{count} task{'s' if count > 1 else ''}"
