"""A program that we talk with line by line, for as long as both live."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from travois.process.child import Child

PIECE = 64 * 1024


class Talk:
    """Both ends of a conversation with a program."""

    def __init__(
        self, into: int, heard: int, child: Child, *, end: Callable[[Child], Awaitable[None]]
    ) -> None:
        self._into, self._heard = into, heard
        self._child = child
        self._end = end
        for fd in (into, heard):
            os.set_blocking(fd, False)

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.status

    async def send(self, data: bytes) -> None:
        """Say something; raises OSError if it does not listen any more."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._into, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._into)

    async def receive(self) -> bytes:
        """What it said; empty when it will say no more."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return os.read(self._heard, PIECE)
            except BlockingIOError:
                await anyio.wait_readable(self._heard)

    async def aclose(self) -> None:
        """End it with everything that it started."""
        await self._end(self._child)
        for fd in (self._into, self._heard):
            os.close(fd)
