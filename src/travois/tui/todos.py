"""The model's list of what is to be done."""

from __future__ import annotations

from travois.core.tasks import Task, Tasks, read_tasks, task_remark
from travois.tui.cells import clean, cut
from travois.tui.themes import Theme

MOST = 8


def read(value: str) -> Tasks:
    """The list as the session keeps it."""
    return read_tasks(value)


def lines(todos: Tasks, theme: Theme, columns: int, *, most: int = MOST) -> list[str]:
    """A line for each; of a long list, the part where the work is."""
    at = next((n for n, todo in enumerate(todos) if todo.status != "completed"), len(todos))
    first = max(0, min(at - 2, len(todos) - most))
    shown = [_line(todos, todo, theme, columns=columns) for todo in todos[first : first + most]]
    rest = len(todos) - len(shown)
    return [*shown, *([theme.mark(f"    … {rest} more", "quiet")] if rest else [])]


def _line(todos: Tasks, todo: Task, theme: Theme, *, columns: int) -> str:
    text = cut(clean(f"{todo.content}{task_remark(todos, todo)}"), columns - 6)
    match todo.status:
        case "completed":
            return f"  {theme.mark('✓', 'good')} {theme.mark(text, 'quiet')}"
        case "in_progress":
            return f"  {theme.mark('▸', 'accent')} {theme.mark(text, 'strong')}"
        case "pending" | "deleted":
            return f"    {text}"
