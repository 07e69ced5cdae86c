"""Child processes, background jobs, and programs that we talk with over pipes."""

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

from travois.ports.world import CapturedOutput, Command, OutputReader
from travois.process.output import Capture, Drain, Feed, Follower, Spool
from travois.process.reap import gone, send
from travois.process.spawn import Started
from travois.sandbox.wrap import read_report
from travois.tools.output import make_readable

if TYPE_CHECKING:
    from asyncio import TimerHandle


# One started program: its output and its end.


LINGER = 0.1
"""Seconds after a program's end to wait for others that still hold its output."""
REST = 0.01
"""Seconds of pause for a background program that floods us, after each burst."""
SHOWN = 64 * 1024
"""The bytes of one read that go to a watcher of the output."""
ASIDE = 8 * 1024
BEHIND = 1024 * 1024
"""The bytes that a follower may be behind before the program has to wait for it."""


class Child:
    """A program that was started, its output and its end.

    It is `done` when it has ended and no process holds its output any more, or a moment after its
    end if one still does.
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
        """Set when it is done, or when its output exceeds what may be written to a file."""
        self.when_done: Callable[[], None] | None = None
        """Called once it is done by itself, not because we closed it."""
        self.guard = started.fence.guard
        self.output, self.errors = Capture(keep, spool), Capture(keep)
        self.aside = Capture(ASIDE)
        self.feed = Feed()
        """All output on its way to a reader, if it has one."""
        self.confined = started.fence.confine is not None
        """Whether it is bound in our own pid namespace, and can leave processes behind there."""
        self.fenced = started.fence.report >= 0
        """Whether it is not the program itself but the bwrap around it."""
        self.shares_network = started.fence.network is not None
        """Whether it is in the network that the commands of the session share."""
        self.failed = False
        """Whether the sandbox could not be built, so that nothing ran."""
        self.into = started.line[0] if started.tty else -1
        """The descriptor of its terminal's input; -1 without a terminal."""
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
        """Whether no process holds its output any more."""
        return not any(drain.open for drain in self._drains)

    def slow(self) -> None:
        """Let it wait a little when it floods us."""
        for drain in self._drains:
            drain.rest = REST

    async def changed(self) -> None:
        """Wait until it writes something, or ends."""
        event = anyio.Event()
        self._waiters.add(event)
        try:
            await event.wait()
        finally:
            self._waiters.discard(event)

    @contextmanager
    def followed(self) -> Generator[Follower]:
        """Follow all of its output from here on; a flood waits for the follower."""
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

    def detach(self, keep: int) -> CapturedOutput:
        """Let it continue in the background; return its output so far."""
        said = self.output.fresh(ended=False)
        held, self.output = self.output.taken().head, Capture(keep)
        self.output.add(memoryview(held))  # an incomplete character waits for its rest
        self._watch = None
        self.slow()
        return said

    def _stir(self) -> None:
        for event in self._waiters:
            event.set()

    def mute(self) -> None:
        """Stop reading its output: if it goes on writing, that ends it."""
        self._drains[0].close()

    def leave(self) -> None:
        """Discard the output of processes it left behind, but keep reading so that they live."""
        self.slow()
        self.output = self.errors = Capture(0)
        for drain in self._drains:
            drain.sink = _forget

    @property
    def refused(self) -> tuple[str, ...]:
        """Messages about the hosts that it was refused."""
        door = self._started.fence.door
        return door.refused if door else ()

    def unfence(self) -> None:
        """Clean up after its sandbox; it is over."""
        self._started.after.close()

    def close(self) -> None:
        """Release everything that is open."""
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
        """Close the input of its terminal."""
        if self.into >= 0:
            os.close(self.into)
            self.into = -1

    def _heard(self, chunk: memoryview) -> None:
        """Pass a chunk of output to the capture and to everybody who reads along."""
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
        """Return whether the program has ended; then read the rest of its output."""
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
        """Read the exit status from bwrap's report, and wait until the processes inside are
        dead."""
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
        """Finish when the output is closed, or a moment after the program's end."""
        if self.status is None or self._inner or self.done.is_set():
            return
        if self.silent:
            self._finish()
        elif self._linger is None:
            # A process left behind may hold the pipe for hours: its output must not be awaited.
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
    """Notices the end of one child: by a pidfd where possible, else by polling."""

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
    """Return a descriptor that is readable once the process has ended; -1 where there is none."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


TAKES = 5.0
"""Seconds that a program may leave typed input unread before we give up."""
LINE = 4_095
"""The longest line that a terminal passes on while it edits lines itself."""
LOOK = 64 * 1024
"""The bytes at the end of an output in which its last lines are searched."""


class LocalJob:
    """A background program on this machine."""

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
    def is_over(self) -> bool:
        """Whether it has ended and all of its output was read."""
        return self._child.done.is_set()

    def take_output(self) -> CapturedOutput:
        """Return the output since the last call; its errors too, where they are separate."""
        return self._child.output.fresh(ended=self._child.done.is_set())

    def peek_output(self) -> CapturedOutput:
        """Return the output that `fresh` would return, without consuming it."""
        return self._child.output.taken()

    def last_lines(self, count: int) -> str:
        """Return the last lines of what `fresh` would return, without consuming it."""
        output = self.peek_output()
        end = output.tail if output.missing_bytes else output.head_and_tail()
        text = make_readable(CapturedOutput(end[-LOOK:], b"", min(LOOK, len(end)))).text
        return "\n".join(text.rstrip("\n").split("\n")[-count:])

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit status."""
        await self._child.done.wait()
        # A program that survived even SIGKILL counts as killed.
        return -SIGKILL if self._child.status is None else self._child.status

    async def wait_for_change(self) -> None:
        """Wait until it writes something, or ends."""
        await self._child.changed()

    def follow(self) -> AbstractContextManager[OutputReader]:
        """Follow all of its output from here on; `fresh` still returns it."""
        return self._child.followed()

    async def send(self, data: bytes) -> None:
        """Type into its terminal; raises OSError if it has none, or takes nothing."""
        self._refuse_long_lines(data)
        left = memoryview(data)
        while left:
            fd = self._child.into
            if fd < 0:
                raise OSError(errno.EPIPE, f"{self.id} has no open terminal")
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                with anyio.move_on_after(TAKES) as waited:
                    await anyio.wait_writable(fd)
                if waited.cancelled_caught:
                    why = f"{self.id} does not read its input: {len(left):,} bytes were not sent"
                    raise OSError(errno.EAGAIN, why) from None

    def _refuse_long_lines(self, data: bytes) -> None:
        """Raise OSError for a line that a line-editing terminal would silently cut."""
        if self._child.into < 0 or max(map(len, data.splitlines()), default=0) <= LINE:
            return
        if termios.tcgetattr(self._child.into)[3] & termios.ICANON:
            why = f"a line exceeds the terminal's limit of {LINE:,} bytes"
            raise OSError(errno.EMSGSIZE, f"{why}; write the text to a file instead")

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        for pid in self._inside(self._child):
            send(pid, SIGINT)

    async def kill(self) -> None:
        """End it with everything that it started."""
        await self._end(self._child)


# A program that we talk with over its standard input and output.


PIECE = 64 * 1024


class Talk:
    """The standard input and output of a program that we talk with."""

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
        """Write to the program; raises OSError if it does not read any more."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._into, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._into)

    async def receive(self) -> bytes:
        """Return what it wrote; empty at the end."""
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
