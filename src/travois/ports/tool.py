"""The port of tools: schema, effects, and how to run one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from travois.core.content import Text, TextOrMedia
from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.ports.world import BackgroundJob, Env

ArgsT = TypeVar("ArgsT", bound=msgspec.Struct)


class ToolOutcome(msgspec.Struct, frozen=True):
    """The result of a call: content for the model, JSON for programs, and changed state."""

    content: tuple[TextOrMedia, ...]
    error: bool = False
    detail: str = ""
    changes: tuple[Changed, ...] = ()
    lines: int = -1
    """As in `Result`."""


class CallLocation(msgspec.Struct, frozen=True):
    """The location of a call, enough to tell what it would touch."""

    root: str
    cwd: str
    temp: str = ""
    """The session's private folder for /tmp; empty where /tmp is the machine's own."""
    apart: tuple[str, ...] = ()
    """Folders that are what they are even if they lie in /tmp."""
    jobs: Mapping[str, BackgroundJob] = {}
    """The commands in the background."""


class Tool(msgspec.Struct, Generic[ArgsT], frozen=True):
    """One tool. `access` is pure; `run` may raise `ToolError` to tell the model what is wrong."""

    name: str
    description: str
    args: type[ArgsT]
    access: Callable[[ArgsT, CallLocation], tuple[Access, ...]]
    run: Callable[[ArgsT, Env, str], Awaitable[ToolOutcome]]
    """Called with the arguments, the world, and the id of the call."""
    summary: Callable[[ArgsT], str]
    """One line for a person: what this call does."""
    room: int = 0
    """The smallest window, in tokens, in which it is worth its words, unless it is asked for."""
    bounded: bool = False
    """True if its results fit into the room of the call by themselves."""
    paged: bool = False
    """True if its results are pages of a file: they are never stored or cut afterwards."""
    polls: bool = False
    """True if repeating the same call is its purpose."""
    deferred: bool = False
    """Left out of the head of a request; found with ToolSearch and callable by name."""
    judged_as: str = ""
    """The tool whose permission rules hold for it; empty for its own."""
    schema: str = ""
    """The JSON schema of the arguments, where another says what they are and no struct does."""
    stands: Callable[[ArgsT], tuple[str, str]] | None = None
    """The call that this one stands for: the name of an MCP tool, and its arguments."""


AnyTool = Tool[Any]


class ToolError(Exception):
    """A call that cannot be done; the message tells the model what to do instead."""


def text_outcome(
    text: str, *, detail: str = "", changes: tuple[Changed, ...] = (), lines: int = -1
) -> ToolOutcome:
    """Build a tool's outcome from plain text."""
    return ToolOutcome((Text(text),), detail=detail, changes=changes, lines=lines)


PATH_FIELDS = frozenset(("path", "file_path", "notebook_path", "workdir"))
"""The names of path arguments in all tools."""


def refuse_nul_paths(args: object) -> None:
    """Refuse a tool's path with a NUL character, which no program can be given."""
    for name in PATH_FIELDS:
        value = getattr(args, name, None)
        if isinstance(value, str) and "\0" in value:
            raise ToolError(f"{name} has a NUL character, which paths cannot contain. Remove it.")
