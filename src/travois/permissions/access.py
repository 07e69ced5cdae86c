"""The files, commands and hosts that a tool call accesses."""

from __future__ import annotations

from typing import Literal

import msgspec


class Access(msgspec.Struct, frozen=True):
    """One thing that a tool call touches: an absolute path, a command line, a URL or a subagent.

    To `leave` is to run outside the sandbox; to `tell` is to write to agents of another process; to
    `call` is to use an MCP server's tool.
    """

    kind: Literal["read", "write", "exec", "net", "spawn", "tell", "leave", "call"]
    target: str
    spelt: str = ""
    """The path before links were followed, where that is another one; what is done at a URL."""
    scope: Literal["one", "many", "deep"] = "one"
    """A single path, a shell pattern, or a folder with everything in it."""
    names: int = 1
    """The number of hard links of the file."""
    tmp: Literal["", "private", "machine"] = ""
    """The /tmp that a path below /tmp leads to; empty for other paths or a single /tmp."""
    bare: bool = False
    """True if a written path lies in a folder that git treats as a bare repository."""
    asks: bool = False
    """True if a person must approve it, whatever rule allows it."""


def accesses_collide(one: tuple[Access, ...], other: tuple[Access, ...]) -> bool:
    """Return whether two tool calls must not run in parallel: one changes what the other uses."""
    return any(_changes_same(a, b) or _changes_same(b, a) for a in one for b in other)


def _changes_same(a: Access, b: Access) -> bool:
    """Return whether the first tool call's access changes something that the second touches."""
    if a.kind == "exec":
        return True
    return a.kind == "write" and b.kind in ("read", "write") and _paths_overlap(a.target, b.target)


def _paths_overlap(a: str, b: str) -> bool:
    return a == b or a.startswith(b.rstrip("/") + "/") or b.startswith(a.rstrip("/") + "/")
