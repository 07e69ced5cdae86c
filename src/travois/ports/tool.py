"""What a tool is: a schema, what it will touch, and how it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from travois.core.content import Shown, Text
from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.ports.world import Env, Job

A = TypeVar("A", bound=msgspec.Struct)


class Outcome(msgspec.Struct, frozen=True):
    """What a call brought: what the model sees, JSON for programs, and state that changed."""

    content: tuple[Shown, ...]
    error: bool = False
    detail: str = ""
    changes: tuple[Changed, ...] = ()
    lines: int = -1
    """As in `Result`."""


class Here(msgspec.Struct, frozen=True):
    """Where a call would happen: enough to say what it would touch."""

    root: str
    cwd: str
    temp: str = ""
    """The session's private folder for /tmp; empty where /tmp is the machine's own."""
    apart: tuple[str, ...] = ()
    """Folders that are what they are even if they lie in /tmp."""
    jobs: Mapping[str, Job] = {}
    """The commands in the background."""


class Tool(msgspec.Struct, Generic[A], frozen=True):
    """One tool. `access` is pure; `run` may raise `Refusal` to tell the model what is wrong."""

    name: str
    description: str
    args: type[A]
    access: Callable[[A, Here], tuple[Access, ...]]
    run: Callable[[A, Env, str], Awaitable[Outcome]]
    """Called with the arguments, the world, and the id of the call."""
    summary: Callable[[A], str]
    """One line for a person: what this call does."""
    room: int = 0
    """The smallest window, in tokens, in which it is worth its words, unless it is asked for."""
    bounded: bool = False
    """Whether its results keep to the room of their call by themselves."""
    paged: bool = False
    """Whether its results are pages of a file: they are never stored or cut afterwards."""
    polls: bool = False
    """Whether to ask the same again and again is what it is for."""
    deferred: bool = False
    """Left out of the head of a request; found with ToolSearch and callable by name."""
    judged_as: str = ""
    """The tool whose permission rules hold for it; empty for its own."""
    schema: str = ""
    """The JSON schema of the arguments, where another says what they are and no struct does."""
    stands: Callable[[A], tuple[str, str]] | None = None
    """The call that this one stands for: the name of a tool that is lent, and its arguments."""


AnyTool = Tool[Any]


class Refusal(Exception):
    """The call cannot be done; the words go to the model, so they say what to do instead."""


def said(
    text: str, *, detail: str = "", changes: tuple[Changed, ...] = (), lines: int = -1
) -> Outcome:
    """An outcome that is plain text."""
    return Outcome((Text(text),), detail=detail, changes=changes, lines=lines)


PATHS = frozenset(("path", "file_path", "notebook_path", "workdir"))
"""How arguments that are paths are called, whatever the tool."""


def refuse_nul(args: object) -> None:
    """Refuse a path with a NUL character; raises `Refusal`. No program can be given one."""
    for name in PATHS:
        value = getattr(args, name, None)
        if isinstance(value, str) and "\0" in value:
            raise Refusal(f"{name} has a NUL character, which no path can hold. Leave it out.")
