"""A program in the background on this machine."""

from __future__ import annotations

import errno
import os
import termios
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from shlex import join
from signal import SIGINT, SIGKILL
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from travois.ports.world import Captured, Command, Following
from travois.process.output import Capture, Drain, Feed, Follower, Spool
from travois.process.reap import gone, send
from travois.process.spawn import Started
from travois.sandbox.wrap import read_report
from travois.tools.output import readable

if TYPE_CHECKING:
    from asyncio import TimerHandle


# One started program: what it says, and how it ends.


LINGER = 0.1
"""How long after a program's end to wait for others that still hold its output."""
REST = 0.01
"""The pause of a background program that floods us, after each burst."""
SHOWN = 64 * 1024
"""How much of one read goes to whoever watches."""
ASIDE = 8 * 1024
BEHIND = 1024 * 1024
"""How far a follower may be behind before the program has to wait for it."""


class Child:
    """A program that was started.

    It is `done` when it has ended and nobody holds its output any more, or when those who do have
    had their time.
    """

    def __init__(
        self,
        started: Started,
        mark: str,
        *,
        keep: int,
        buffer: bytearray,
        spool: Spool | None = None,
        watch: Callable[[bytes], None] | None = None,
        is_read: bool = False,
    ) -> None:
        self.mark = mark
        self.pid = started.popen.pid
        self.status: int | None = None
        self.exited = anyio.Event()
        self.done = anyio.Event()
        self.over = anyio.Event()
        """Set when it is done, or when it said more than may be written to a file."""
        self.when_done: Callable[[], None] | None = None
        """What is to be called once it is done, by itself and not because we closed it."""
        self.guard = started.fence.guard
        self.output, self.errors = Capture(keep, spool), Capture(keep)
        self.aside = Capture(ASIDE)
        self.feed = Feed()
        """All output on its way to a reader, if it has one."""
        self.confined = started.fence.confine is not None
        """Whether it is bound in our own space of processes, and can leave some behind there."""
        self.fenced = started.fence.report >= 0
        """Whether it is not the program itself but what holds the walls around it."""
        self.shares_network = started.fence.network is not None
        """Whether it is in the network that the commands of the session share."""
        self.failed = False
        """Whether the walls could not be built, so that nothing ran."""
        self.into = started.line[0] if started.tty else -1
        """Where we type to it; -1 where it has no terminal."""
        self._followers: list[Follower] = []
        self._waiters: set[anyio.Event] = set()
        self._popen = started.popen
        self._started = started
        self._inner = 0
        self._watch = watch
        self._is_read = is_read
        self._linger: TimerHandle | None = None
        drain = partial(Drain, ended=self._settle, buffer=buffer)
        self._drains = [drain(started.output, self._heard)]
        if is_read:
            self._drains[0].burst = 1  # the reader has its turn before there is more to read
        if started.errors >= 0:
            self._drains.append(drain(started.errors, self.errors.add))
        self._whisper = drain(started.aside, self.aside.add) if started.aside >= 0 else None
        self._exit = Exit(self.pid, self._poll)

    @property
    def silent(self) -> bool:
        """Whether nobody holds its output any more."""
        return not any(drain.open for drain in self._drains)

    def slow(self) -> None:
        """Let it wait a little when it floods us."""
        for drain in self._drains:
            drain.rest = REST

    async def changed(self) -> None:
        """Wait until it says something, or ends."""
        event = anyio.Event()
        self._waiters.add(event)
        try:
            await event.wait()
        finally:
            self._waiters.discard(event)

    @contextmanager
    def followed(self) -> Generator[Follower]:
        """All of its output from here on; a flood waits for whoever follows."""
        follower = Follower(self._catch_up)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)
            self._catch_up()

    def _catch_up(self) -> None:
        if all(follower.size <= BEHIND for follower in self._followers):
            self._drains[0].release()

    def detach(self, keep: int) -> Captured:
        """Go on in the background; returns what it has said so far."""
        said = self.output.fresh(ended=False)
        held, self.output = self.output.taken().head, Capture(keep)
        self.output.add(memoryview(held))  # half a character that waits for its other half
        self._watch = None
        self.slow()
        return said

    def _stir(self) -> None:
        for event in self._waiters:
            event.set()

    def mute(self) -> None:
        """Take no more of its output: if it goes on writing, that ends it."""
        self._drains[0].close()

    def leave(self) -> None:
        """Go on taking what those it left behind write, so that they live, and forget it."""
        self.slow()
        self.output = self.errors = Capture(0)
        for drain in self._drains:
            drain.sink = _forget

    @property
    def refused(self) -> tuple[str, ...]:
        """Whom it tried to reach and may not."""
        door = self._started.fence.door
        return door.refused if door else ()

    def unfence(self) -> None:
        """Tidy up what its walls stood on; it is over."""
        self._started.after.close()

    def close(self) -> None:
        """Let go of everything that is open."""
        self.done.set()
        self.over.set()
        self.feed.end()
        self._exit.close()
        if self._linger is not None:
            self._linger.cancel()
        if self._whisper is not None:
            self._whisper.close()
        for drain in self._drains:
            drain.close()
        self.hang_up()
        self.unfence()
        self._stir()

    def hang_up(self) -> None:
        """Type no more."""
        if self.into >= 0:
            os.close(self.into)
            self.into = -1

    def _heard(self, chunk: memoryview) -> None:
        self.output.add(chunk)
        if self.output.is_full and not self.over.is_set():
            self._drains[0].hold()
            self.over.set()
        if self._watch is not None:
            self._watch(bytes(chunk[-SHOWN:]))
        if self._is_read:
            self.feed.add(chunk)
        for follower in self._followers:
            follower.add(chunk)
            if follower.size > BEHIND:
                self._drains[0].hold()
        self._stir()

    def _poll(self) -> bool:
        self.status = self._popen.poll()
        if self.status is None:
            return False
        if self.fenced:
            self._unfenced(self.status)
        self.exited.set()
        if self._whisper is not None:
            self._whisper.pull()
            self._whisper.close()
        for drain in self._drains:
            drain.pull()
        self._settle()
        return True

    def _unfenced(self, code: int) -> None:
        """Learn how it ended; what is left inside the walls is dying, and that is waited for."""
        report = read_report(self._started.fence.report)
        self.failed = code > 0 and not report.ran
        self.status = report.status(code)
        self._inner = report.inner
        if self._inner and not self._vanished():
            self._exit.close()
            self._exit = Exit(self._inner, self._vanished)

    def _vanished(self) -> bool:
        if self._inner and not gone(self._inner):
            return False
        self._inner = 0
        self._settle()
        return True

    def _settle(self) -> None:
        if self.status is None or self._inner or self.done.is_set():
            return
        if self.silent:
            self._finish()
        elif self._linger is None:
            self._linger = get_running_loop().call_later(LINGER, self._finish)

    def _finish(self) -> None:
        if self.done.is_set():
            return
        self.done.set()
        self.over.set()
        self.feed.end()
        self.hang_up()
        if self.when_done is not None:
            self.when_done()
        self._stir()


def _forget(chunk: memoryview) -> None:
    pass


class Exit:
    """Notices the end of one child: told by the kernel where it can, else by looking."""

    def __init__(self, pid: int, ended: Callable[[], bool]) -> None:
        self._ended = ended
        self._loop = get_running_loop()
        self._timer: TimerHandle | None = None
        self._fd = _pidfd(pid)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._told)
        else:
            self._timer = self._loop.call_later(0.001, self._look, 0.001)

    def _told(self) -> None:
        if self._ended():
            self.close()

    def _look(self, pause: float) -> None:
        self._timer = None
        if not self._ended():
            longer = min(pause * 1.5, 0.02)
            self._timer = self._loop.call_later(longer, self._look, longer)

    def close(self) -> None:
        """Stop noticing."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
        self._fd, self._timer = -1, None


def _pidfd(pid: int) -> int:
    """A descriptor that is readable once the process has ended; -1 where there is none."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


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


# A program that we talk with line by line, for as long as both live.


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
