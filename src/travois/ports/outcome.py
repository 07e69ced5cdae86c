"""What came of a program: how it ended, what it said, and what an attempt of it would change."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol

import msgspec


class Captured(msgspec.Struct, frozen=True):
    """A capped record of output: its head, its tail, and how much there was in all."""

    head: bytes
    tail: bytes
    total: int
    file: str = ""
    """Where all of it is, if that was asked for and it is more than was kept."""
    missing_lines: int = 0
    """How many line ends the missing bytes have."""
    is_capped: bool = False
    """Whether the file has reached its limit, so that the program was ended."""

    @property
    def missing(self) -> int:
        """How many bytes in the middle were not kept."""
        return self.total - len(self.head) - len(self.tail)

    @property
    def lines(self) -> int:
        """How many lines there were in all; a last one without an end counts."""
        ends = self.head.count(b"\n") + self.tail.count(b"\n") + self.missing_lines
        last = self.tail or self.head
        return ends + bool(last and not last.endswith(b"\n"))

    def joined(self) -> bytes:
        """Head and tail with nothing between; whole iff nothing is missing."""
        return self.head + self.tail


class Completed(msgspec.Struct, frozen=True):
    """How a program ended. `status` is negative for a signal."""

    status: int
    output: Captured
    errors: Captured
    timed_out: bool = False
    cut: bool = False
    """Whether it was ended because whoever read its output had enough."""
    left_running: tuple[int, ...] = ()
    """Processes that it started and left behind."""
    aside: bytes = b""
    """What it said to us alone: the last few kilobytes of it."""
    job: str = ""
    """The background job as which it goes on, if it outlived its timeout."""
    refused: tuple[str, ...] = ()
    """Whom it tried to reach over the network and may not, and why, in words."""
    session_ports: tuple[int, ...] = ()
    """Where servers of the session listen, in its own network, if this program failed outside."""


class Change(msgspec.Struct, frozen=True):
    """One path that an attempt left different; `size` is what it has there."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    size: int
    was: str = ""
    """Its path before, if it was renamed."""


class Attempt(Protocol):
    """A program that ran in a copy of the workspace, until what it did is kept or dropped."""

    completed: Completed
    changes: tuple[Change, ...]

    async def read(self, path: str) -> bytes:
        """The bytes that a path has in the copy."""
        ...

    async def keep(self, *, named: Collection[str] = ()) -> tuple[Change, ...]:
        """Make it real, each file at once; returns what was not kept.

        What is pinned or has a protected name is kept only if it, or a folder above it, is named.
        Raises `Stale`, with nothing kept, if the real files changed since the attempt began.
        """
        ...

    async def drop(self) -> None:
        """Forget the copy; nothing of it stays."""
        ...
