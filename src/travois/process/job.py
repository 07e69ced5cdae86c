"""Child processes, background jobs, and programs that we exchange messages with over pipes."""

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
from travois.process.output import OutputCapture, OutputFeed, OutputFollower, OutputSpool, PipeDrain
from travois.process.reap import reap_if_ended, send_signal
from travois.process.spawn import StartedProcess
from travois.sandbox.wrap import read_bwrap_report
from travois.tools.output import make_readable

if TYPE_CHECKING:
    from asyncio import TimerHandle


# One started program: its output and its end.


LINGER_SECONDS = 0.1
"""Seconds after a program's end to wait for others that still hold its output."""
FLOOD_PAUSE_SECONDS = 0.01
"""Seconds of pause for a background program that floods us, after each burst."""
MAX_WATCHED_BYTES = 64 * 1024
"""The bytes of one read that go to a watcher of the output."""
MAX_ASIDE_BYTES = 8 * 1024
MAX_FOLLOWER_BACKLOG_BYTES = 1024 * 1024
"""The bytes that a follower may be behind before the program has to wait for it."""


class ChildProcess:
    """A program that was started, its output and its end.

    It is `done` when it has ended and no process holds its output any more, or a moment after its
    end if one still does.
    """

    def __init__(
        self,
        started: StartedProcess,
        mark: str,
        *,
        keep: int,
        buffer: bytearray,
        spool: OutputSpool | None = None,
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
        self.guard = started.sandboxed.guard
        self.output, self.errors = OutputCapture(keep, spool), OutputCapture(keep)
        self.aside = OutputCapture(MAX_ASIDE_BYTES)
        self.feed = OutputFeed()
        """All output on its way to a reader, if it has one."""
        self.confined = started.sandboxed.confine is not None
        """Whether it is bound in our own pid namespace, and can leave processes behind there."""
        self.fenced = started.sandboxed.report >= 0
        """Whether it is not the program itself but the bwrap around it."""
        self.shares_network = started.sandboxed.network is not None
        """Whether it is in the network that the commands of the session share."""
        self.failed = False
        """Whether the sandbox could not be built, so that nothing ran."""
        self.into = started.line[0] if started.tty else -1
        """The descriptor of its terminal's input; -1 without a terminal."""
        self._followers: list[OutputFollower] = []
        self._waiters: set[anyio.Event] = set()
        self._popen = started.popen
        self._started = started
        self._inner = 0
        self._watch = watch
        self._is_read = is_read
        self._linger: TimerHandle | None = None
        drain = partial(PipeDrain, ended=self._finish_or_linger, buffer=buffer)
        self._drains = [drain(started.output, self._on_output)]
        if is_read:
            self._drains[0].burst = 1  # the reader has its turn before there is more to read
        if started.errors >= 0:
            self._drains.append(drain(started.errors, self.errors.add))
        self._whisper = drain(started.aside, self.aside.add) if started.aside >= 0 else None
        self._exit = ExitWatcher(self.pid, self._poll_exit)

    @property
    def is_silent(self) -> bool:
        """True if no process holds its output any more."""
        return not any(drain.open for drain in self._drains)

    def throttle(self) -> None:
        """Let it wait a little when it floods us."""
        for drain in self._drains:
            drain.rest = FLOOD_PAUSE_SECONDS

    async def wait_for_change(self) -> None:
        """Wait until it writes something, or ends."""
        event = anyio.Event()
        self._waiters.add(event)
        try:
            await event.wait()
        finally:
            self._waiters.discard(event)

    @contextmanager
    def follow(self) -> Generator[OutputFollower]:
        """Follow all of its output from here on; a flood waits for the follower."""
        follower = OutputFollower(self._resume_if_caught_up)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)
            self._resume_if_caught_up()

    def _resume_if_caught_up(self) -> None:
        if all(follower.size <= MAX_FOLLOWER_BACKLOG_BYTES for follower in self._followers):
            self._drains[0].resume()

    def detach(self, keep: int) -> CapturedOutput:
        """Let it continue in the background; return its output so far."""
        said = self.output.take_new(ended=False)
        held, self.output = self.output.to_captured().head, OutputCapture(keep)
        self.output.add(memoryview(held))  # an incomplete character waits for its rest
        self._watch = None
        self.throttle()
        return said

    def _wake_waiters(self) -> None:
        for event in self._waiters:
            event.set()

    def close_output(self) -> None:
        """Stop reading its output: if it goes on writing, that ends it."""
        self._drains[0].close()

    def discard_output(self) -> None:
        """Discard the output of processes it left behind, but keep reading so that they live."""
        self.throttle()
        self.output = self.errors = OutputCapture(0)
        for drain in self._drains:
            drain.sink = _discard_chunk

    @property
    def refusals(self) -> tuple[str, ...]:
        """Messages about the hosts that it was refused."""
        door = self._started.sandboxed.door
        return door.refused if door else ()

    def clean_up_sandbox(self) -> None:
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
        self.close_terminal()
        self.clean_up_sandbox()
        self._wake_waiters()

    def close_terminal(self) -> None:
        """Close the input of its terminal."""
        if self.into >= 0:
            os.close(self.into)
            self.into = -1

    def _on_output(self, chunk: memoryview) -> None:
        """Pass a chunk of output to the capture and to everybody who reads along."""
        self.output.add(chunk)
        if self.output.is_full and not self.over.is_set():
            self._drains[0].pause()
            self.over.set()
        if self._watch is not None:
            self._watch(bytes(chunk[-MAX_WATCHED_BYTES:]))
        if self._is_read:
            self.feed.add(chunk)
        for follower in self._followers:
            follower.add(chunk)
            if follower.size > MAX_FOLLOWER_BACKLOG_BYTES:
                self._drains[0].pause()
        self._wake_waiters()

    def _poll_exit(self) -> bool:
        """Return whether the program has ended; then read the rest of its output."""
        self.status = self._popen.poll()
        if self.status is None:
            return False
        if self.fenced:
            self._read_sandbox_report(self.status)
        self.exited.set()
        if self._whisper is not None:
            self._whisper.read_available()
            self._whisper.close()
        for drain in self._drains:
            drain.read_available()
        self._finish_or_linger()
        return True

    def _read_sandbox_report(self, code: int) -> None:
        """Read the exit status from bwrap's report, and wait until the processes inside are
        dead."""
        report = read_bwrap_report(self._started.sandboxed.report)
        self.failed = code > 0 and not report.ran
        self.status = report.exit_status(code)
        self._inner = report.inner
        if self._inner and not self._poll_inner_exit():
            self._exit.close()
            self._exit = ExitWatcher(self._inner, self._poll_inner_exit)

    def _poll_inner_exit(self) -> bool:
        if self._inner and not reap_if_ended(self._inner):
            return False
        self._inner = 0
        self._finish_or_linger()
        return True

    def _finish_or_linger(self) -> None:
        """Finish when the output is closed, or a moment after the program's end."""
        if self.status is None or self._inner or self.done.is_set():
            return
        if self.is_silent:
            self._finish()
        elif self._linger is None:
            # A process left behind may hold the pipe for hours: its output must not be awaited.
            self._linger = get_running_loop().call_later(LINGER_SECONDS, self._finish)

    def _finish(self) -> None:
        if self.done.is_set():
            return
        self.done.set()
        self.over.set()
        self.feed.end()
        self.close_terminal()
        if self.when_done is not None:
            self.when_done()
        self._wake_waiters()


def _discard_chunk(chunk: memoryview) -> None:
    pass


class ExitWatcher:
    """Notices the end of one child: by a pidfd where possible, else by polling."""

    def __init__(self, pid: int, ended: Callable[[], bool]) -> None:
        self._ended = ended
        self._loop = get_running_loop()
        self._timer: TimerHandle | None = None
        self._fd = _open_pidfd(pid)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._on_readable)
        else:
            self._timer = self._loop.call_later(0.001, self._poll_with_backoff, 0.001)

    def _on_readable(self) -> None:
        if self._ended():
            self.close()

    def _poll_with_backoff(self, pause: float) -> None:
        self._timer = None
        if not self._ended():
            longer = min(pause * 1.5, 0.02)
            self._timer = self._loop.call_later(longer, self._poll_with_backoff, longer)

    def close(self) -> None:
        """Stop noticing."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
        self._fd, self._timer = -1, None


def _open_pidfd(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended; -1 if unsupported."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


TYPING_TIMEOUT_SECONDS = 5.0
"""Seconds that a program may leave typed input unread before we give up."""
MAX_TERMINAL_LINE_BYTES = 4_095
"""The longest line that a terminal passes on while it edits lines itself."""
LAST_LINES_WINDOW_BYTES = 64 * 1024
"""The bytes at the end of an output in which its last lines are searched."""


class LocalJob:
    """A background program on this machine."""

    def __init__(
        self,
        id: str,
        command: Command,
        *,
        child: ChildProcess,
        end: Callable[[ChildProcess], Awaitable[None]],
        inside: Callable[[ChildProcess], Iterable[int]],
    ) -> None:
        self.id = id
        self.command = join(command.argv)
        self.label = command.label or self.command
        self.tty = command.tty
        self.sandbox = command.sandbox
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
        """True if it has ended and all of its output was read."""
        return self._child.done.is_set()

    def take_output(self) -> CapturedOutput:
        """Return the output since the last call; its errors too, where they are separate."""
        return self._child.output.take_new(ended=self._child.done.is_set())

    def peek_output(self) -> CapturedOutput:
        """Return the output that `fresh` would return, without consuming it."""
        return self._child.output.to_captured()

    def last_lines(self, count: int) -> str:
        """Return the last lines of what `fresh` would return, without consuming it."""
        output = self.peek_output()
        end = output.tail if output.missing_bytes else output.head_and_tail()
        text = make_readable(
            CapturedOutput(
                end[-LAST_LINES_WINDOW_BYTES:], b"", min(LAST_LINES_WINDOW_BYTES, len(end))
            )
        ).text
        return "\n".join(text.rstrip("\n").split("\n")[-count:])

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit status."""
        await self._child.done.wait()
        # A program that survived even SIGKILL counts as killed.
        return -SIGKILL if self._child.status is None else self._child.status

    async def wait_for_change(self) -> None:
        """Wait until it writes something, or ends."""
        await self._child.wait_for_change()

    def follow(self) -> AbstractContextManager[OutputReader]:
        """Follow all of its output from here on; `fresh` still returns it."""
        return self._child.follow()

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
                with anyio.move_on_after(TYPING_TIMEOUT_SECONDS) as waited:
                    await anyio.wait_writable(fd)
                if waited.cancelled_caught:
                    why = f"{self.id} does not read its input: {len(left):,} bytes were not sent"
                    raise OSError(errno.EAGAIN, why) from None

    def _refuse_long_lines(self, data: bytes) -> None:
        """Raise OSError for a line that a line-editing terminal would silently cut."""
        if (
            self._child.into < 0
            or max(map(len, data.splitlines()), default=0) <= MAX_TERMINAL_LINE_BYTES
        ):
            return
        if termios.tcgetattr(self._child.into)[3] & termios.ICANON:
            why = f"a line exceeds the terminal's limit of {MAX_TERMINAL_LINE_BYTES:,} bytes"
            raise OSError(errno.EMSGSIZE, f"{why}; write the text to a file instead")

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        for pid in self._inside(self._child):
            send_signal(pid, SIGINT)

    async def kill(self) -> None:
        """End it with everything that it started."""
        await self._end(self._child)


# A program that we talk with over its standard input and output.


STDIO_READ_BYTES = 64 * 1024


class StdioConnection:
    """The standard input and output of a program that we talk with."""

    def __init__(
        self,
        into: int,
        heard: int,
        child: ChildProcess,
        *,
        end: Callable[[ChildProcess], Awaitable[None]],
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
                return os.read(self._heard, STDIO_READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._heard)

    async def aclose(self) -> None:
        """End it with everything that it started."""
        await self._end(self._child)
        for fd in (self._into, self._heard):
            os.close(fd)
