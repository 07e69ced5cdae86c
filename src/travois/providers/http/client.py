"""HTTP/1.1 for model requests: connection reuse, streamed bodies, a timeout for every wait.

Behind a proxy, httpx2 does the work (see `proxy`): it knows how, and costs 100 ms to import
that nobody else should pay. `transport` decides which of the two a URL needs.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio
import h11
import msgspec
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from travois.providers.http.tls import (
    Target,
    broken,
    contexts,
    deaf,
    late,
    mute,
    silent,
    target,
    unreachable,
)
from travois.providers.replies import Problem

if TYPE_CHECKING:
    import ssl

    from anyio.streams.tls import TLSStream


# TCP in which sending and receiving fail apart.


class Tcp(ByteStream):
    """A TCP stream that two tasks may use: one reads, one writes."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(False)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive the next bytes; raises EndOfStream at the end."""
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
        """Send all bytes."""
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
        """Close the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """Shut both directions down, so that any task that reads or writes sees the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
        await checkpoint()

    def speaks(self) -> bool:
        """Return whether there is something to read, including the end of the stream."""
        ears = select.poll()
        ears.register(self._socket.fileno(), select.POLLIN)
        return bool(ears.poll(0))


async def dial(host: str, port: int) -> Tcp:
    """Open a connection to the first address of the host that answers; raises OSError."""
    async with await anyio.connect_tcp(host, port) as found:
        return Tcp(found.extra(SocketAttribute.raw_socket).dup())  # noqa: S610 - not Django's


# One HTTP/1.1 connection: h11 parses, anyio carries.


CHUNK = 256 * 1024
LONGEST_HEAD = 256 * 1024


class Line:
    """An open HTTP connection, used by one request at a time."""

    def __init__(self, tcp: Tcp, tls: TLSStream | None) -> None:
        self.stream: ByteStream = tls or tcp
        self._tcp = tcp
        self.parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
        self.kept: float | None = None
        """The time since it is unused; None if it was never used."""
        self.heard = False
        """Whether the server has said anything to this request."""

    @property
    def spoken(self) -> bool:
        """Whether the whole request is sent."""
        return self.parser.our_state is not h11.SEND_BODY

    async def event(self, patience: float | None) -> h11.Event | None:
        """Return the next event from the server; None at the end of its message."""
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
        """Prepare for another request; returns False if the connection cannot be reused."""
        over = self.parser.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
        if not over or self.parser.trailing_data != (b"", False):
            return False
        self.parser.start_next_cycle()
        self.kept, self.heard = anyio.current_time(), False
        return True

    def alive(self, patience: float) -> bool:
        """Return whether it can still be used: a server that speaks unasked says goodbye."""
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
            return Problem("network", f"the server closed the connection mid-response: {error}")
        return Problem("network", f"the server sent invalid HTTP: {error}")


PART = 64 * 1024
"""The bytes sent at a time: on a slow connection, every part is a sign of life."""
EARLY = 1 << 20
"""The most bytes read of a response that came before the request was sent."""


class Timeouts(msgspec.Struct, frozen=True):
    """The limits for each kind of silence, in seconds."""

    connect: float = 10.0
    first_byte: float = 90.0
    """Until the head, and again until the body begins: some servers think between the two."""
    idle: float = 90.0
    is_idle_chosen: bool = False
    """Whether the user set `idle`, so that it holds for a server on this machine as well."""
    local: float = 600.0
    """The limit for a server on this machine, which may read a long prompt for minutes."""
    keep: float = 60.0
    """The time an unused connection is kept: gateways drop idle ones silently."""


class Response(msgspec.Struct, frozen=True):
    """A response whose body is still arriving; header names are in lower case."""

    status: int
    headers: dict[str, str]
    chunks: AsyncGenerator[bytes]


class Transport(Protocol):
    """A way to send requests: direct or through a proxy."""

    def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request; the response lives as long as the block. Raises `ApiError`."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Direct:
    """The transport without a proxy; `env` may name certificates to trust."""

    def __init__(
        self, timeouts: Timeouts | None = None, *, env: Mapping[str, str] | None = None
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._env = env or {}
        self._idle: dict[Target, list[Line]] = {}
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncGenerator[Response]:
        """Send a request; the response lives as long as the block. Raises `ApiError`."""
        to = target(url)
        line, head, early = await self._exchange(to, _head(url, headers, body), body)
        try:
            async with aclosing(self._chunks(line, early)) as chunks:
                yield Response(head.status_code, _named(head), chunks)
        finally:
            if line.keep():
                self._idle.setdefault(to, []).append(line)
            else:
                await line.hang_up()

    async def aclose(self) -> None:
        """Close all connections."""
        for to in list(self._idle):
            await self._forget(to)

    async def _forget(self, to: Target) -> None:
        for line in self._idle.pop(to, []):
            await line.hang_up()

    async def _exchange(
        self, to: Target, head: h11.Request, body: bytes
    ) -> tuple[Line, h11.Response, bytes]:
        """Send a request and wait for the response head; a dead kept connection is replaced."""
        while True:
            line = await self._line(to)
            try:
                return line, *await self._converse(line, head, body)
            except Problem as problem:
                await line.hang_up()
                if line.kept is None or line.heard or problem.kind != "network":
                    raise
                await self._forget(to)
            except BaseException:
                await line.hang_up()
                raise

    async def _converse(
        self, line: Line, head: h11.Request, body: bytes
    ) -> tuple[h11.Response, bytes]:
        """Send and listen at once: a server may answer and close before it has read all."""
        heard: h11.Response | Problem | None = None
        early = b""
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as patience:
                group.start_soon(self._speak, line, head, body, patience)
                heard = await _listen(line)
            if not _welcome(line, heard):
                early = await self._rest(line) if isinstance(heard, h11.Response) else b""
                group.cancel_scope.cancel()
        if heard is None:
            raise silent(self._timeouts.first_byte) if line.spoken else deaf()
        if isinstance(heard, Problem):
            raise heard
        return heard, early

    async def _speak(
        self, line: Line, head: h11.Request, body: bytes, patience: anyio.CancelScope
    ) -> None:
        """Send in parts; the server's silence counts only once all is sent."""
        try:
            start = line.parser.send(head) or b""
            await self._part(line, start + body[:PART])
            for at in range(PART, len(body), PART):
                await self._part(line, body[at : at + PART])
            line.parser.send(h11.Data(data=body))
            line.parser.send(h11.EndOfMessage())
        except TimeoutError:
            patience.cancel()
        except (anyio.BrokenResourceError, OSError):
            pass  # whoever listens hears why, and perhaps an answer
        finally:
            patience.deadline = anyio.current_time() + self._timeouts.first_byte

    async def _part(self, line: Line, part: bytes) -> None:
        with anyio.fail_after(self._timeouts.idle):
            await line.stream.send(part)

    async def _rest(self, line: Line) -> bytes:
        """Read the body of an early answer: some of it is better than none."""
        body = b""
        try:
            while len(body) < EARLY and (event := await line.event(self._timeouts.idle)):
                body += event.data if isinstance(event, h11.Data) else b""
        except Problem:
            pass
        return body

    async def _chunks(self, line: Line, early: bytes) -> AsyncGenerator[bytes]:
        if early:
            yield early
        patience = self._timeouts.first_byte
        while line.parser.their_state is h11.SEND_BODY:
            event = await line.event(patience)
            if isinstance(event, h11.Data):
                patience = self._timeouts.idle
                yield bytes(event.data)

    async def _line(self, to: Target) -> Line:
        while kept := self._idle.get(to):
            line = kept.pop()
            if line.alive(self._timeouts.keep):
                return line
            await line.hang_up()
        try:
            with anyio.fail_after(self._timeouts.connect):
                return await self._connect(to)
        except TimeoutError:
            raise late(to, self._timeouts.connect) from None
        except (OSError, UnicodeError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise unreachable(to, error) from None

    async def _connect(self, to: Target) -> Line:
        if to.scheme == "http":
            return Line(await dial(to.host, to.port), None)
        doubt: ssl.SSLCertVerificationError | None = None
        for context in (self._tls,) if self._tls else contexts(self._env):
            try:
                line = await _secured(to, context)
            except ssl.SSLCertVerificationError as error:
                doubt = error
            else:
                self._tls = context
                return line
        assert doubt is not None
        raise doubt


async def _secured(to: Target, context: ssl.SSLContext) -> Line:
    from anyio.streams.tls import TLSStream

    tcp = await dial(to.host, to.port)
    try:
        tls = await TLSStream.wrap(
            tcp, hostname=to.host, ssl_context=context, standard_compatible=False
        )
    except BaseException:
        await anyio.aclose_forcefully(tcp)
        raise
    return Line(tcp, tls)


async def _listen(line: Line) -> h11.Response | Problem:
    """Return the response head, or the error as a value, since a task group wraps exceptions."""
    try:
        while not isinstance(event := await line.event(None), h11.Response):
            pass
    except Problem as problem:
        return problem
    return event


def _welcome(line: Line, heard: h11.Response | Problem | None) -> bool:
    """Return whether the rest of the request is still worth sending."""
    return isinstance(heard, h11.Response) and (line.spoken or heard.status_code < 300)


def _head(url: str, headers: tuple[tuple[str, str], ...], body: bytes) -> h11.Request:
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    fixed = (("host", parts.netloc.rpartition("@")[2]), ("content-length", str(len(body))))
    return h11.Request(method="POST", target=path or "/", headers=[*fixed, *headers])


def _named(head: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
