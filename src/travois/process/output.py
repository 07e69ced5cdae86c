"""Reading the output of programs as fast as it comes, and keeping it within limits."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio import Event

from travois.lazy_imports import lazy_imports
from travois.permissions.secrets import Secrets
from travois.ports.world import CapturedOutput

if TYPE_CHECKING:
    from asyncio import TimerHandle

with lazy_imports():
    import asyncio


# Outputs too large for memory, in files without our secrets.


MAX_SPOOL_BYTES = 1 << 30
"""The most bytes of one output that are written; a program that writes more is ended."""


class OutputSpool:
    """A file with the whole of a large output, without our secrets."""

    def __init__(self, path: str, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        # A secret may be split between two chunks: so many bytes wait for the next one.
        self._held = max((len(value.encode()) for _, value in secrets.values), default=1) - 1
        self._rest = b""
        self._fd = -1
        self._size = 0
        self._failed = False
        self.is_full = False
        """Whether there was more than may be written; the file then has the first part."""

    def add(self, data: bytes) -> None:
        """Write more, up to the limit; after a disk error the file is removed."""
        if self._failed or self.is_full:
            return
        text = self._secrets.redact_bytes(self._rest + data)
        cut = max(0, len(text) - self._held)
        self._rest = text[cut:]
        self._write(text[:cut])

    def finish(self) -> str:
        """Close the file and return its path; empty if there is none."""
        if self._fd >= 0 and not self._failed and not self.is_full:
            self._write(self._rest)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return "" if self._failed or not self._size else self._path

    def _write(self, data: bytes) -> None:
        self.is_full = len(data) > MAX_SPOOL_BYTES - self._size
        data = data[: MAX_SPOOL_BYTES - self._size]
        self._size += len(data)
        try:
            if self._fd < 0:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._failed, self.is_full = True, False
            if self._fd >= 0:  # on a full disk the space is needed elsewhere
                os.unlink(self._path)


PIPE_CHUNK_BYTES = 1024 * 1024
"""The bytes of a read, and of a pipe: larger ones gain little speed."""
READS_PER_TURN = 8
"""The reads from a single pipe in one turn of the event loop."""


class OutputCapture:
    """The head and the tail of a stream of bytes, however long it is."""

    def __init__(self, keep: int, spool: OutputSpool | None = None) -> None:
        self._keep = keep
        self._spool = spool
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._line_ends = 0

    def add(self, chunk: memoryview) -> None:
        """Keep what still fits the head; of the rest, only the end."""
        if self._spool is not None and self._total + len(chunk) > 2 * self._keep:
            first = self._total <= 2 * self._keep
            self._spool.add(bytes(self._head) + self._tail + chunk if first else bytes(chunk))
        self._total += len(chunk)
        self._line_ends += bytes(chunk).count(b"\n")
        room = self._keep - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk[max(0, len(chunk) - self._keep) :]
        if len(self._tail) > 2 * self._keep:
            del self._tail[: len(self._tail) - self._keep]

    @property
    def is_full(self) -> bool:
        """True if its file has reached its limit."""
        return self._spool is not None and self._spool.is_full

    def to_captured(self) -> CapturedOutput:
        """Return what was kept."""
        tail = memoryview(self._tail)
        kept = bytes(tail[max(0, len(tail) - self._keep) :])
        file = self._spool.finish() if self._spool is not None else ""
        head = bytes(self._head)
        missing = self._line_ends - head.count(b"\n") - kept.count(b"\n")
        return CapturedOutput(head, kept, self._total, file, missing, is_capped=self.is_full)

    def take_new(self, *, ended: bool) -> CapturedOutput:
        """Return the output since the last call; an incomplete character waits for its rest."""
        taken = self.to_captured()
        self._head.clear()
        self._tail.clear()
        self._total = self._line_ends = 0
        last = taken.tail or taken.head
        held = 0 if ended else _count_incomplete_utf8(last[-3:])
        if not held:
            return taken
        self.add(memoryview(last)[-held:])
        if taken.tail:
            tail, total = taken.tail[:-held], taken.total - held
            return CapturedOutput(taken.head, tail, total, missing_lines=taken.missing_lines)
        return CapturedOutput(taken.head[:-held], b"", taken.total - held)


class OutputFeed:
    """Output on its way to one reader, complete and in order."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._ended = False
        self._news = Event()

    def add(self, chunk: memoryview) -> None:
        """Queue a chunk for the reader."""
        self._chunks.append(bytes(chunk))
        self._news.set()

    def end(self) -> None:
        """Mark the end of the output."""
        self._ended = True
        self._news.set()

    async def deliver(self, reader: Callable[[bytes], bool]) -> bool:
        """Give the reader every chunk as it comes; return False once it wants no more."""
        while True:
            await self._news.wait()
            self._news = Event()
            chunks, self._chunks = self._chunks, []
            if not all(map(reader, chunks)):
                return False
            if self._ended and not self._chunks:
                return True


class OutputFollower:
    """Output for somebody who reads all of it as it comes, while others read it too."""

    def __init__(self, taken: Callable[[], None]) -> None:
        self._chunks: list[bytes] = []
        self._taken = taken
        self.size = 0

    def add(self, chunk: memoryview) -> None:
        """Queue a chunk."""
        self._chunks.append(bytes(chunk))
        self.size += len(chunk)

    def take(self) -> bytes:
        """Return the output since the last call."""
        chunks, self._chunks, self.size = self._chunks, [], 0
        self._taken()
        return b"".join(chunks)


def _count_incomplete_utf8(end: bytes) -> int:
    """Count the bytes of an incomplete UTF-8 character at the end of a program's output."""
    for size in range(1, len(end) + 1):
        byte = end[-size]
        if byte >= 0xC0:
            whole = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return size if size < whole else 0
        if byte < 0x80:
            return 0
    return 0


class PipeDrain:
    """Empties one pipe on the event loop until its last writer is gone.

    `rest` is a pause after each burst: a background program that floods its pipe then waits for us,
    instead of costing us a whole core to discard its output.
    """

    def __init__(
        self,
        fd: int,
        sink: Callable[[memoryview], None],
        *,
        ended: Callable[[], None],
        buffer: bytearray,
    ) -> None:
        self.open = True
        self.sink = sink
        self.rest = 0.0
        self.burst = READS_PER_TURN
        self._fd = fd
        self._ended = ended
        self._buffer = buffer
        self._pause: TimerHandle | None = None
        self._held = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self.read_available)

    def read_available(self) -> None:
        """Read what is available."""
        if not self.open:
            return
        for _ in range(self.burst):
            try:
                size = os.readv(self._fd, (self._buffer,))
            except BlockingIOError:
                return
            except OSError as error:
                if (
                    error.errno != errno.EIO
                ):  # a terminal reports so that no process holds it any more
                    raise
                size = 0
            if size == 0:
                self.close()
                self._ended()
                return
            with memoryview(self._buffer) as view, view[:size] as chunk:
                self.sink(chunk)
        if self.rest and self._pause is None and not self._held:
            self._loop.remove_reader(self._fd)
            self._pause = self._loop.call_later(self.rest, self._resume_after_rest)

    def pause(self) -> None:
        """Stop reading until `resume`: the program waits for us when its pipe is full."""
        if self.open and not self._held:
            self._held = True
            if self._pause is not None:
                self._pause.cancel()
                self._pause = None
            else:
                self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Continue after `pause`."""
        if self.open and self._held:
            self._held = False
            self._loop.add_reader(self._fd, self.read_available)

    def _resume_after_rest(self) -> None:
        self._pause = None
        self._loop.add_reader(self._fd, self.read_available)

    def close(self) -> None:
        """Stop reading; a program that still writes gets a broken pipe."""
        if not self.open:
            return
        self.open = False
        if self._pause is not None:
            self._pause.cancel()
        elif not self._held and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
