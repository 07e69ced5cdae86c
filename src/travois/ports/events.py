"""Live events for front ends, which are never stored."""

from __future__ import annotations

import msgspec


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
