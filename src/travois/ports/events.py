"""What is only for the eye, and never stored."""

from __future__ import annotations

import msgspec


class Retrying(msgspec.Struct, frozen=True):
    """A request failed and will be tried again."""

    kind: str
    message: str
    status: int
    attempt: int
    attempts: int
    wait: float


class Running(msgspec.Struct, frozen=True):
    """A tool call started."""

    call: str
    name: str


class Progress(msgspec.Struct, frozen=True):
    """A running tool call has something to show."""

    call: str
    text: str


class Warned(msgspec.Struct, frozen=True):
    """Something the user should know that stops nothing."""

    text: str


class Doing(msgspec.Struct, frozen=True):
    """What goes on, in a word or two: a hook runs."""

    text: str


class Compacting(msgspec.Struct, frozen=True):
    """A summary is being written for a compaction, since so many seconds; `over` at its end."""

    seconds: float = 0.0
    over: bool = False


class Signalled(msgspec.Struct, frozen=True):
    """Something for the terminal to obey: a bell, a title, a message beside it."""

    text: str


class AgentProgress(msgspec.Struct, frozen=True):
    """What a sub-agent is doing, and what it has used so far."""

    id: str
    call: str
    """The call of its parent that started it."""
    doing: str
    """In three to five words."""
    tool: str = ""
    """The last one that it used."""
    tokens: int = 0
    dollars: float = 0.0
