"""The ports of the task list: how a call uses it, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from travois.core.tasks import Tasks

Edit = Callable[[Tasks], Tasks]
"""A pure change of a list; raises `TaskError`. It may be applied more than once."""


class SharedTasks(Protocol):
    """The task list, as one agent uses it."""

    @property
    def me(self) -> str:
        """The name under which the agent owns tasks; empty for the one that a person talks to."""
        ...

    def read(self) -> Tasks:
        """Return the list as it is, also as others changed it."""
        ...

    def preview(self, edit: Edit) -> Tasks:
        """Return what an edit would make of the list; nothing is changed."""
        ...

    def change(self, edit: Edit) -> Tasks:
        """Change the list; raises `Refusal` if that cannot be done."""
        ...


class TaskStore(Protocol):
    """Where a task list is kept, and the log that has it."""

    @property
    def member(self) -> str:
        """The name of the session in its team; empty without a team."""
        ...

    def read(self) -> str:
        """Return the stored list, with what other processes changed."""
        ...

    def change(self, edit: Edit) -> str:
        """Apply an edit to the newest list and put the outcome on record; raises `TaskError`."""
        ...
