"""A program in the background on this machine."""

from __future__ import annotations

import errno
import os
import termios
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from shlex import join
from signal import SIGINT, SIGKILL

import anyio

from travois.ports.world import Captured, Command, Following
from travois.process.child import Child
from travois.process.reap import send

TAKES = 5.0
"""How many seconds a program may leave what is typed unread before we give up."""
LINE = 4_095
"""The longest line that a terminal passes on while it is the terminal that edits lines."""
LOOK = 64 * 1024
"""How much of the end of an output its last lines are looked for in."""


class LocalJob:
    """A program in the background on this machine."""

    def __init__(
        self,
        id: str,
        command: Command,
        *,
        child: Child,
        end: Callable[[Child], Awaitable[None]],
        inside: Callable[[Child], Iterable[int]],
    ) -> None:
        self.id = id
        self.command = join(command.argv)
        self.label = command.label or self.command
        self.tty = command.tty
        self.cage = command.cage
        self.accesses = command.accesses
        self._child = child
        self._end = end
        self._inside = inside

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.status

    @property
    def over(self) -> bool:
        """Whether it has ended and all of its output is in."""
        return self._child.done.is_set()

    def fresh(self) -> Captured:
        """Output since the last call of this; its errors too, where they come apart."""
        return self._child.output.fresh(ended=self._child.done.is_set())

    def waiting(self) -> Captured:
        """The output that `fresh` would give; it stays where it is."""
        return self._child.output.taken()

    def last_lines(self, count: int) -> str:
        """The last lines of what `fresh` would give, as text; it stays where it is."""
        from travois.tools.output import readable

        output = self.waiting()
        end = output.tail if output.missing else output.joined()
        text = readable(Captured(end[-LOOK:], b"", min(LOOK, len(end)))).text
        return "\n".join(text.rstrip("\n").split("\n")[-count:])

    async def wait(self) -> int:
        """Its exit status, when it has ended."""
        await self._child.done.wait()
        # A program that even a kill did not end counts as killed.
        return -SIGKILL if self._child.status is None else self._child.status

    async def changed(self) -> None:
        """Wait until it says something, or ends."""
        await self._child.changed()

    def followed(self) -> AbstractContextManager[Following]:
        """All of its output from here on; `fresh` gives it nevertheless."""
        return self._child.followed()

    async def send(self, data: bytes) -> None:
        """Type into its terminal; raises OSError if it has none, or takes nothing."""
        self._refuse_long_lines(data)
        left = memoryview(data)
        while left:
            fd = self._child.into
            if fd < 0:
                raise OSError(errno.EPIPE, f"{self.id} has no terminal that is open")
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                with anyio.move_on_after(TAKES) as waited:
                    await anyio.wait_writable(fd)
                if waited.cancelled_caught:
                    why = f"{self.id} does not read: {len(left):,} bytes were not typed"
                    raise OSError(errno.EAGAIN, why) from None

    def _refuse_long_lines(self, data: bytes) -> None:
        """A terminal that edits lines drops what is beyond its limit without a word."""
        if self._child.into < 0 or max(map(len, data.splitlines()), default=0) <= LINE:
            return
        if termios.tcgetattr(self._child.into)[3] & termios.ICANON:
            why = f"a line is longer than the {LINE:,} bytes that a terminal takes"
            raise OSError(errno.EMSGSIZE, f"{why}; put the text into a file")

    def interrupt(self) -> None:
        """Send it an interrupt, as Ctrl-C does."""
        for pid in self._inside(self._child):
            send(pid, SIGINT)

    async def kill(self) -> None:
        """End it with everything that it started."""
        await self._end(self._child)
