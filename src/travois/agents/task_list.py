"""The task list that an agent and all agents below it share."""

from __future__ import annotations

from travois.core.facts import Changed
from travois.core.tasks import (
    TODOS_STATE,
    TaskError,
    TaskList,
    read_stored,
    read_tasks,
    store_tasks,
)
from travois.engine.agent import Agent
from travois.ports.agents import TaskListEdit
from travois.ports.tool import ToolError
from travois.sessions.session import Session


class SessionTasks:
    """A task list that only this process changes: it is state of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def member_name(self) -> str:
        """Return no name: this list belongs to no team."""
        return ""

    def read(self) -> str:
        """Return the list as the log has it."""
        return self._session.state.get(TODOS_STATE, "")

    def change(self, edit: TaskListEdit) -> str:
        """Apply an edit at once: nothing can come between reading and writing."""
        value = store_tasks(edit(read_stored(self.read())))
        if value != (self.read() or "[]"):
            self._session.append(Changed(TODOS_STATE, value))
        return value


class AgentTasks:
    """The shared task list, as one agent uses it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._store = agent.team.tasks or SessionTasks(agent.session)

    @property
    def me(self) -> str:
        """The name under which the agent owns tasks; empty for the one that a person talks to."""
        birth, child = self._agent.team.birth, ""
        if birth is not None:
            # The state of a fork holds the name of the conversation, which is not its own.
            own = "" if birth.kind == "fork" else self._agent.session.state.get("name", "")
            child = own or birth.id
        return "/".join(filter(None, (self._store.member_name, child)))

    def read(self) -> TaskList:
        """Return the list as it is, also as others changed it."""
        value = self._store.read()
        self._record_in_log(value)
        return read_tasks(value)

    def preview(self, edit: TaskListEdit) -> TaskList:
        """Return what an edit would make of the list; nothing is changed."""
        return edit(read_stored(self._store.read()))

    def change(self, edit: TaskListEdit) -> TaskList:
        """Change the list; raises `ToolError` if the edit is invalid."""
        try:
            value = self._store.change(edit)
        except TaskError as error:
            raise ToolError(str(error)) from None
        self._record_in_log(value)
        return read_tasks(value)

    def _record_in_log(self, value: str) -> None:
        """Keep in a child's own log what it saw: its ledger is made from that."""
        session = self._agent.session
        if self._agent.team.birth is not None and session.state.get(TODOS_STATE, "[]") != (
            value or "[]"
        ):
            session.append(Changed(TODOS_STATE, value))
