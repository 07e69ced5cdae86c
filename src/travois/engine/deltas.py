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


class Signalled(msgspec.Struct, frozen=True):
    """Something for the terminal to obey: a bell, a title, a message beside it."""

    text: str
