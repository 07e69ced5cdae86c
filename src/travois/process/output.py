"""Output taken as fast as it comes and kept within a cap."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio import Event

from travois.permissions.secrets import Secrets
from travois.ports.world import Captured

if TYPE_CHECKING:
    from asyncio import TimerHandle


# All of an output that is too large to be held in memory, in a file, without our secrets.


MOST = 1 << 30
"""How many bytes of one output are written at most; a program that writes more is ended."""


class Spool:
    """A file that grows with an output; it exists only once there is something to write."""

    def __init__(self, path: str, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        self._held = max((len(value.encode()) for _, value in secrets.values), default=1) - 1
        self._rest = b""
        self._fd = -1
        self._size = 0
        self._failed = False
        self.is_full = False
        """Whether there was more than may be written; the file then has the first part."""

    def add(self, data: bytes) -> None:
        """Write more, up to the limit; where the disk says no, there is no file in the end."""
        if self._failed or self.is_full:
            return
        text = self._secrets.redacted_bytes(self._rest + data)
        cut = max(0, len(text) - self._held)
        self._rest = text[cut:]
        self._write(text[:cut])

    def finish(self) -> str:
        """Where the whole output is; empty if it is nowhere."""
        if self._fd >= 0 and not self._failed and not self.is_full:
            self._write(self._rest)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return "" if self._failed or not self._size else self._path

    def _write(self, data: bytes) -> None:
        self.is_full = len(data) > MOST - self._size
        data = data[: MOST - self._size]
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
            if self._fd >= 0:  # a full disk has better uses for the room
                os.unlink(self._path)


CHUNK = 1024 * 1024
"""The size of a read, and of a pipe: beyond it there is little speed to win."""
BURST = 8
"""How many reads one turn of the event loop gives to a single pipe."""


class Capture:
    """The head and the tail of a stream of bytes, however long it is."""

    def __init__(self, keep: int, spool: Spool | None = None) -> None:
        self._keep = keep
        self._spool = spool
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._line_ends = 0

    def add(self, chunk: memoryview) -> None:
        """Keep what still fits the head; of the rest, only the end of it all."""
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
        """Whether its file may not grow any further."""
        return self._spool is not None and self._spool.is_full

    def taken(self) -> Captured:
        """What was kept."""
        tail = memoryview(self._tail)
        kept = bytes(tail[max(0, len(tail) - self._keep) :])
        file = self._spool.finish() if self._spool is not None else ""
        head = bytes(self._head)
        missing = self._line_ends - head.count(b"\n") - kept.count(b"\n")
        return Captured(head, kept, self._total, file, missing, is_capped=self.is_full)

    def fresh(self, *, ended: bool) -> Captured:
        """What came since the last call of this; half a character waits for its other half."""
        taken = self.taken()
        self._head.clear()
        self._tail.clear()
        self._total = self._line_ends = 0
        last = taken.tail or taken.head
        held = 0 if ended else _half(last[-3:])
        if not held:
            return taken
        self.add(memoryview(last)[-held:])
        if taken.tail:
            tail, total = taken.tail[:-held], taken.total - held
            return Captured(taken.head, tail, total, missing_lines=taken.missing_lines)
        return Captured(taken.head[:-held], b"", taken.total - held)


class Feed:
    """Output on its way to one reader, whole and in order."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._ended = False
        self._news = Event()

    def add(self, chunk: memoryview) -> None:
        """Hold this until the reader comes for it."""
        self._chunks.append(bytes(chunk))
        self._news.set()

    def end(self) -> None:
        """Say that nothing more will come."""
        self._ended = True
        self._news.set()

    async def give(self, reader: Callable[[bytes], bool]) -> bool:
        """Give the reader everything as it comes; false once it wants no more."""
        while True:
            await self._news.wait()
            self._news = Event()
            chunks, self._chunks = self._chunks, []
            if not all(map(reader, chunks)):
                return False
            if self._ended and not self._chunks:
                return True


class Follower:
    """Output as it comes, for somebody who looks at all of it while others read it, too."""

    def __init__(self, taken: Callable[[], None]) -> None:
        self._chunks: list[bytes] = []
        self._taken = taken
        self.size = 0

    def add(self, chunk: memoryview) -> None:
        """Hold this until it is taken."""
        self._chunks.append(bytes(chunk))
        self.size += len(chunk)

    def take(self) -> bytes:
        """What came since the last call of this."""
        chunks, self._chunks, self.size = self._chunks, [], 0
        self._taken()
        return b"".join(chunks)


def _half(end: bytes) -> int:
    """How many of these last bytes begin a UTF-8 character that has not come whole."""
    for size in range(1, len(end) + 1):
        byte = end[-size]
        if byte >= 0xC0:
            whole = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return size if size < whole else 0
        if byte < 0x80:
            return 0
    return 0


class Drain:
    """Empties one pipe on the event loop until its last writer is gone.

    `rest` is a pause after each burst: a background program that floods its pipe then waits for
    us, instead of taking a whole core of ours to throw its output away.
    """

    def __init__(
        self,
        fd: int,
        sink: Callable[[memoryview], None],
        *,
        ended: Callable[[], None],
        buffer: bytearray,
    ) -> None:
        from asyncio import get_running_loop

        self.open = True
        self.sink = sink
        self.rest = 0.0
        self.burst = BURST
        self._fd = fd
        self._ended = ended
        self._buffer = buffer
        self._pause: TimerHandle | None = None
        self._held = False
        self._loop = get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self.pull)

    def pull(self) -> None:
        """Take what is there."""
        if not self.open:
            return
        for _ in range(self.burst):
            try:
                size = os.readv(self._fd, (self._buffer,))
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EIO:  # so a terminal says that nobody holds it any more
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
            self._pause = self._loop.call_later(self.rest, self._resume)

    def hold(self) -> None:
        """Take nothing more until `release`: the program waits for us when its pipe is full."""
        if self.open and not self._held:
            self._held = True
            if self._pause is not None:
                self._pause.cancel()
                self._pause = None
            else:
                self._loop.remove_reader(self._fd)

    def release(self) -> None:
        """Go on after `hold`."""
        if self.open and self._held:
            self._held = False
            self._loop.add_reader(self._fd, self.pull)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._fd, self.pull)

    def close(self) -> None:
        """Stop listening; a program that still writes gets a broken pipe."""
        if not self.open:
            return
        self.open = False
        if self._pause is not None:
            self._pause.cancel()
        elif not self._held and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
