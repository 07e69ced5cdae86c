"""The task list of a session that is in a team: the team's file, and what of it is in the log."""

from __future__ import annotations

from travois.agents.team_tasks import TeamTaskFile
from travois.core.facts import Changed
from travois.core.tasks import TODOS_STATE, Task, TaskList, add_task, read_tasks
from travois.ports.agents import TaskListEdit
from travois.sessions.session import Session

TEAM_STATE = "team"
"""State of a session: the team whose task list `todos` is a copy of."""


class TeamTasks:
    """A `TaskStore` over the team's file; every list that is read or written goes into the log."""

    def __init__(self, session: Session, file: TeamTaskFile, *, team: str, member: str) -> None:
        self._session, self._file, self._member = session, file, member
        if session.state.get(TEAM_STATE) != team:
            self._contribute_tasks(read_tasks(session.state.get(TODOS_STATE, "")))
            session.append(Changed(TEAM_STATE, team))

    @property
    def member_name(self) -> str:
        """The name of the session in its team."""
        return self._member

    def read(self) -> str:
        """Return the team's list."""
        return self._record_list(self._file.read())

    def change(self, edit: TaskListEdit) -> str:
        """Change the team's list."""
        return self._record_list(self._file.change(edit))

    def _record_list(self, value: str) -> str:
        if (value or "[]") != self._session.state.get(TODOS_STATE, "[]"):
            self._session.append(Changed(TODOS_STATE, value))
        return value

    def _contribute_tasks(self, own: TaskList) -> None:
        """Add the session's open tasks to the team's list when it joins."""
        wanted = [task for task in own if task.is_open]
        if wanted:
            self._file.change(lambda tasks: _append_tasks(tasks, wanted))


def _append_tasks(tasks: TaskList, more: list[Task]) -> TaskList:
    """Append tasks to a team's task list under new ids, without what blocks them."""
    for task in more:
        fresh = Task(
            content=task.content,
            status=task.status,
            active=task.active,
            description=task.description,
            owner=task.owner,
            metadata=task.metadata,
        )
        tasks, _ = add_task(tasks, fresh)
    return tasks
