"""One HTTP/1.1 connection: h11 parses, anyio carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import h11
from anyio.abc import ByteStream

from travois.providers.http.tcp import Tcp
from travois.providers.http.tls import broken, mute, silent
from travois.providers.replies import Problem

if TYPE_CHECKING:
    from anyio.streams.tls import TLSStream

CHUNK = 256 * 1024
LONGEST_HEAD = 256 * 1024


class Line:
    """One open connection, used by one request at a time."""

    def __init__(self, tcp: Tcp, tls: TLSStream | None) -> None:
        self.stream: ByteStream = tls or tcp
        self._tcp = tcp
        self.parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
        self.kept: float | None = None
        """Since when it has been unused; None if it never was used before."""
        self.heard = False
        """Whether the server has said anything to this request."""

    @property
    def spoken(self) -> bool:
        """Whether the request is sent, all of it."""
        return self.parser.our_state is not h11.SEND_BODY

    async def event(self, patience: float | None) -> h11.Event | None:
        """The next thing the server says; None at the end of its message."""
        while True:
            try:
                event = self.parser.next_event()
            except h11.RemoteProtocolError as error:
                raise self._senseless(error) from None
            if isinstance(event, h11.Event):
                return None if isinstance(event, h11.EndOfMessage) else event
            data = await self._receive(patience)
            if not data and not self.heard:
                raise mute()
            self.heard = True
            self.parser.receive_data(data)

    def keep(self) -> bool:
        """Make ready for another request; false if there can be none on this connection."""
        over = self.parser.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
        if not over or self.parser.trailing_data != (b"", False):
            return False
        self.parser.start_next_cycle()
        self.kept, self.heard = anyio.current_time(), False
        return True

    def alive(self, patience: float) -> bool:
        """Whether it can still be used: what speaks unasked says goodbye."""
        if self.kept is not None and anyio.current_time() - self.kept >= patience:
            return False
        return not self._tcp.speaks()

    async def hang_up(self) -> None:
        """Close at once, whatever is still on its way."""
        await anyio.aclose_forcefully(self.stream)

    async def _receive(self, patience: float | None) -> bytes:
        try:
            with anyio.fail_after(patience):
                return await self.stream.receive(CHUNK)
        except TimeoutError:
            raise silent(patience or 0.0) from None
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, OSError) as error:
            raise broken(error) from None

    def _senseless(self, error: h11.RemoteProtocolError) -> Problem:
        if self.parser.trailing_data[1]:
            return Problem("network", f"the server hung up in the middle of its answer: {error}")
        return Problem("network", f"the server does not speak HTTP as it should: {error}")
