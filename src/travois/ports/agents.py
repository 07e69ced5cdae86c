"""Ports to subagents, worktrees, mail and the task list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from travois.core.models import Usage
from travois.core.tasks import TaskList


class RequestRetrying(msgspec.Struct, frozen=True):
    """A request failed and will be tried again."""

    kind: str
    message: str
    status: int
    attempt: int
    attempts: int
    wait: float


class ToolStarted(msgspec.Struct, frozen=True):
    """A tool call started."""

    call: str
    name: str


class ToolProgress(msgspec.Struct, frozen=True):
    """A running tool call has something to show."""

    call: str
    text: str


class UserWarned(msgspec.Struct, frozen=True):
    """Something the user should know that stops nothing."""

    text: str


class ActivityShown(msgspec.Struct, frozen=True):
    """Something that is going on, in a word or two, such as a hook."""

    text: str


class CompactionProgress(msgspec.Struct, frozen=True):
    """A summary is being written for a compaction; `over` at its end."""

    seconds: float = 0.0
    over: bool = False
    tokens: int = 0
    """The size of what is summarised."""


class TerminalSignal(msgspec.Struct, frozen=True):
    """A control sequence for the terminal: a bell, a title, a notification."""

    text: str


class AgentProgress(msgspec.Struct, frozen=True):
    """The current activity of a subagent, and its usage so far."""

    id: str
    call: str
    """The call of its parent that started it."""
    doing: str
    """In three to five words."""
    tool: str = ""
    """The last one that it used."""
    tokens: int = 0
    dollars: float = 0.0


SIDE_REQUEST_PREFIX = "fork-"
"""Before the number, in the id of a request beside the conversation: it is no subagent."""
HOOK_CALL = "hook"
"""In place of a call: a hook asked for it, and the model is told nothing of it."""
ChildState = Literal["running", "done", "failed", "stopped", "lost", "limit"]


class AgentOrder(msgspec.Struct, frozen=True):
    """A request to start or resume a subagent."""

    prompt: str
    what: str
    """In three to five words, for people."""
    kind: str = "general"
    """The name of a type of agents, or `fork`."""
    name: str = ""
    """By which others can send it messages."""
    background: bool = False
    worktree: bool = False
    call: str = ""
    """The parent's call that asked for it."""
    resume: str = ""
    """The name or id of a child that has ended, which goes on with what it knows."""
    sender: str = ""
    """The sender of the prompt, if it is a message; empty for the task itself."""
    model: str = ""
    """Empty for that of its kind."""
    exact: bool = False
    """True if a model that cannot be used is an error; else the parent's is used in its place."""
    effort: str = ""
    """The effort; empty for that of its type."""
    turns: int = 0
    """The turn limit; zero for that of its type."""


class AgentReport(msgspec.Struct, frozen=True):
    """The outcome of a subagent: its last words, or what it had found when it was stopped."""

    id: str
    state: ChildState
    text: str
    files: tuple[str, ...] = ()
    """The files that it changed."""
    usage: Usage = Usage()


class Subagents(Protocol):
    """The subagents of one agent."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """The types of agents that can be started, each with what it is for."""
        ...

    async def start(self, order: AgentOrder) -> AgentReport:
        """Start a subagent; return its report when it ends, or at once if in the background."""
        ...

    async def resume(self, order: AgentOrder) -> AgentReport:
        """Resume a subagent that has ended; return its report as `start` does."""
        ...

    def find(self, name: str) -> str:
        """Return the id of a child that was ever started, by its name or id; empty if none was."""
        ...

    def reports(self) -> Mapping[str, AgentReport]:
        """Return the last known report of each subagent, by id."""
        ...

    def progress(self) -> Mapping[str, AgentProgress]:
        """Return the latest activity of each subagent of this process, by id."""
        ...

    async def stop(self, id: str) -> AgentReport:
        """Stop a running subagent; raises KeyError if there never was one."""
        ...

    def send_message(self, name: str, text: str, *, sender: str) -> bool:
        """Put mail into the inbox of a subagent or of the parent (`parent`).

        Returns whether anybody of that name or id was there to get it.
        """
        ...

    async def wait_for_news(self) -> bool:
        """Wait until something arrives, or no subagent is running any more.

        Returns whether there is something to admit.
        """
        ...


# The port of worktrees: a session that moves into one, and back.


WORKTREE_STATE = "worktree"
"""State of a session that works in a git worktree; empty where it began."""


class WorktreeMove(msgspec.Struct, frozen=True):
    """A move of the session into a worktree."""

    root: str
    """The workspace in the worktree."""
    path: str
    """The top of the worktree."""
    branch: str
    back: str
    """The folder that the session goes back to."""
    own: bool = True
    """True if the session made it, so that it may remove it too."""


class Worktrees(Protocol):
    """Makes and removes the worktrees of one session. Raises `ToolError`."""

    async def enter(self, name: str, *, path: str) -> WorktreeMove:
        """Make a worktree of that name, or find the one at that path."""
        ...

    async def remove(self, moved: WorktreeMove, *, discard: bool) -> None:
        """Remove a worktree with its branch; refuses to lose work unless that is said."""
        ...


def decode_worktree_move(state: str) -> WorktreeMove | None:
    """Decode the worktree that a session moved into; None if it is where it began."""
    return msgspec.json.decode(state, type=WorktreeMove) if state else None


# The ports of mail: how a call sends a message, and who takes it to other processes.


class Outbox(Protocol):
    """The way for an agent to send messages to other agents."""

    async def send(self, to: str, text: str) -> str:
        """Send a message and return what becomes of it; raises `ToolError` if nobody gets it."""
        ...


class MailTransport(Protocol):
    """The transport of messages to agents in other processes."""

    def teammates(self) -> tuple[str, ...]:
        """Return the names of the other members of our team."""
        ...

    async def deliver(self, to: str, text: str, *, sender: str = "") -> str:
        """Leave a message for one of our team, `session:ID` or `TEAM:NAME`.

        Returns what becomes of it; `sender` is the agent of ours that wrote it, if a child did.
        Raises `UserError`.
        """
        ...


# The ports of the task list: how a call uses it, and where it is kept.


TaskListEdit = Callable[[TaskList], TaskList]
"""A pure change of a list; raises `TaskError`. It may be applied more than once."""


class SharedTasks(Protocol):
    """The task list, as one agent uses it."""

    @property
    def me(self) -> str:
        """The name under which the agent owns tasks; empty for the main agent."""
        ...

    def read(self) -> TaskList:
        """Return the list as it is, also as others changed it."""
        ...

    def preview(self, edit: TaskListEdit) -> TaskList:
        """Return the list as an edit would leave it; nothing is changed."""
        ...

    def change(self, edit: TaskListEdit) -> TaskList:
        """Change the list; raises `ToolError` if that cannot be done."""
        ...


class TaskStore(Protocol):
    """The storage of a task list, recorded in the log."""

    @property
    def member_name(self) -> str:
        """The name of the session in its team; empty without a team."""
        ...

    def read(self) -> str:
        """Return the stored list, with what other processes changed."""
        ...

    def change(self, edit: TaskListEdit) -> str:
        """Apply an edit to the newest list and put the outcome on record; raises `TaskError`."""
        ...
