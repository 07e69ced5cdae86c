"""TCP in which sending and receiving fail apart.

When a write fails, asyncio's own streams throw away what was not read yet; but a server that
refuses a long request often answers, and hangs up, while the request is still being sent.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled


class Tcp(ByteStream):
    """One socket; whoever reads it and whoever writes it may be two tasks."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(False)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What has come, once something has; raises EndOfStream at the end."""
        await checkpoint_if_cancelled()
        waited = False
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                waited = True
            except OSError as error:
                raise anyio.BrokenResourceError from error
            else:
                break
        if not waited:
            await cancel_shielded_checkpoint()  # a fast server must not starve the others
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        """Hand all of it over to the system."""
        await checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Say that nothing more will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """Let whoever reads or writes find the end, whichever task that is."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def aclose(self) -> None:
        """Hang up."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
        await checkpoint()

    def speaks(self) -> bool:
        """Whether there is something to read, be it the end."""
        ears = select.poll()
        ears.register(self._socket.fileno(), select.POLLIN)
        return bool(ears.poll(0))


async def dial(host: str, port: int) -> Tcp:
    """A connection to the first address of the host that answers; raises OSError."""
    async with await anyio.connect_tcp(host, port) as found:
        return Tcp(found.extra(SocketAttribute.raw_socket).dup())  # noqa: S610 - not Django's
