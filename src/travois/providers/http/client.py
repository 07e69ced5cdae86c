"""HTTP/1.1 for model requests: connection reuse, streamed bodies, a timeout for every wait.

Behind a proxy, httpx2 does the work (see `proxy`): it can, but costs 100 ms to import, which nobody
else should pay. `transport` decides which of the two a URL needs.
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
import msgspec
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from travois.lazy_imports import lazy_imports
from travois.providers.http.tls import (
    ConnectionTarget,
    connect_timeout_error,
    connection_lost_error,
    create_tls_contexts,
    no_answer_error,
    parse_target,
    send_timeout_error,
    silent_server_error,
    unreachable_error,
)
from travois.providers.replies import ApiError

if TYPE_CHECKING:
    import ssl

    from anyio.streams.tls import TLSStream

with lazy_imports():
    import h11
    from anyio.streams import tls as anyio_tls


# TCP in which sending and receiving fail apart.


class TcpStream(ByteStream):
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

    def disconnect(self) -> None:
        """Shut both directions down, so that any task that reads or writes sees the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
        await checkpoint()

    def has_data(self) -> bool:
        """Return whether there is something to read, including the end of the stream."""
        ears = select.poll()
        ears.register(self._socket.fileno(), select.POLLIN)
        return bool(ears.poll(0))


async def open_tcp(host: str, port: int) -> TcpStream:
    """Open a TCP connection to the host's first address that answers; raises OSError."""
    async with await anyio.connect_tcp(host, port) as found:
        return TcpStream(found.extra(SocketAttribute.raw_socket).dup())  # noqa: S610 - not Django's


# One HTTP/1.1 connection: h11 parses, anyio carries.


READ_CHUNK_BYTES = 256 * 1024
MAX_HEAD_BYTES = 256 * 1024


class RequestHead(msgspec.Struct, frozen=True):
    """The head of an HTTP request."""

    target: str
    headers: tuple[tuple[str, str], ...]
    method: str = "POST"

    def encode(self) -> bytes:
        """Return its bytes, the same as h11 makes of it; raises as h11 does.

        A plain head is written without h11, which is then loaded while the server answers.
        """
        if not self._is_plain():
            return h11.Connection(h11.CLIENT).send(self.to_event()) or b""
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join((*lines, "", "")).encode("ascii")

    def to_event(self) -> h11.Request:
        """Return it as h11 knows it."""
        return h11.Request(method=self.method, target=self.target, headers=list(self.headers))

    def _is_plain(self) -> bool:
        """Return whether nothing in it needs to be checked."""
        names = [name.replace("-", "a") for name, _ in self.headers]
        values = [self.target, *(value for _, value in self.headers)]
        return (
            all(name.isascii() and name.isalnum() for name in names)
            and all(value.isascii() and value.isprintable() for value in values)
            and all(value and value == value.strip() for value in values)
            and " " not in self.target
        )


class HttpConnection:
    """An open HTTP connection, used by one request at a time."""

    def __init__(self, tcp: TcpStream, tls: TLSStream | None) -> None:
        self.stream: ByteStream = tls or tcp
        self._tcp = tcp
        self._parser: h11.Connection | None = None
        self._begun: RequestHead | None = None
        """The head that was sent, and that the parser does not know of."""
        self.kept: float | None = None
        """The time since it is unused; None if it was never used."""
        self.heard = False
        """Whether the server has said anything to this request."""

    def begin_request(self, head: RequestHead) -> bytes:
        """Begin a request; return the bytes to send first."""
        self._begun = head
        return head.encode()

    @property
    def parser(self) -> h11.Connection:
        """The state of both sides of the connection."""
        if self._parser is None:
            self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self._parser.send(begun.to_event())
        return self._parser

    @property
    def is_request_sent(self) -> bool:
        """Return whether the whole request is sent."""
        return self.parser.our_state is not h11.SEND_BODY

    async def next_event(self, patience: float | None) -> h11.Event | None:
        """Return the next event from the server; None at the end of its message."""
        if not self.heard:
            await self._receive_more(patience)
        while True:
            try:
                event = self.parser.next_event()
            except h11.RemoteProtocolError as error:
                raise self._protocol_error(error) from None
            if isinstance(event, h11.Event):
                return None if isinstance(event, h11.EndOfMessage) else event
            await self._receive_more(patience)

    def make_reusable(self) -> bool:
        """Prepare for another request; returns False if the connection cannot be reused."""
        over = self.parser.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
        if not over or self.parser.trailing_data != (b"", False):
            return False
        self.parser.start_next_cycle()
        self.kept, self.heard = anyio.current_time(), False
        return True

    def is_reusable(self, patience: float) -> bool:
        """Return whether the connection can be reused: it is recent and no data came unasked."""
        if self.kept is not None and anyio.current_time() - self.kept >= patience:
            return False
        return not self._tcp.has_data()

    async def close_now(self) -> None:
        """Close at once, whatever is still on its way."""
        await anyio.aclose_forcefully(self.stream)

    async def _receive_more(self, patience: float | None) -> None:
        """Receive the next bytes of the answer; raises `ApiError` if there is none."""
        data = await self._receive(patience)
        if not data and not self.heard:
            raise no_answer_error()
        self.heard = True
        self.parser.receive_data(data)

    async def _receive(self, patience: float | None) -> bytes:
        try:
            with anyio.fail_after(patience):
                return await self.stream.receive(READ_CHUNK_BYTES)
        except TimeoutError:
            raise silent_server_error(patience or 0.0) from None
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, OSError) as error:
            raise connection_lost_error(error) from None

    def _protocol_error(self, error: h11.RemoteProtocolError) -> ApiError:
        if self.parser.trailing_data[1]:
            return ApiError("network", f"the server closed the connection mid-response: {error}")
        return ApiError("network", f"the server sent invalid HTTP: {error}")


SEND_CHUNK_BYTES = 64 * 1024
"""The bytes sent at a time: on a slow connection, every part is a sign of life."""
MAX_EARLY_BYTES = 1 << 20
"""The most bytes read of a response that came before the request was sent."""


class Timeouts(msgspec.Struct, frozen=True):
    """Time limits in seconds, one for each kind of wait."""

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


class HttpResponse(msgspec.Struct, frozen=True):
    """A response whose body is still arriving; header names are in lower case."""

    status: int
    headers: dict[str, str]
    chunks: AsyncGenerator[bytes]


class Transport(Protocol):
    """A way to send requests: direct or through a proxy."""

    def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request; the response lives as long as the block. Raises `ApiError`."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class DirectTransport:
    """The transport without a proxy; `env` may name certificates to trust."""

    def __init__(
        self, timeouts: Timeouts | None = None, *, env: Mapping[str, str] | None = None
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._env = env or {}
        self._idle: dict[ConnectionTarget, list[HttpConnection]] = {}
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncGenerator[HttpResponse]:
        """Send a request; the response lives as long as the block. Raises `ApiError`."""
        to = parse_target(url)
        line, head, early = await self._send_request(to, _build_http_head(url, headers, body), body)
        try:
            async with aclosing(self._read_chunks(line, early)) as chunks:
                yield HttpResponse(head.status_code, _lowercase_headers(head), chunks)
        finally:
            if line.make_reusable():
                self._idle.setdefault(to, []).append(line)
            else:
                await line.close_now()

    async def aclose(self) -> None:
        """Close all connections."""
        for to in list(self._idle):
            await self._close_idle(to)

    async def _close_idle(self, to: ConnectionTarget) -> None:
        for line in self._idle.pop(to, []):
            await line.close_now()

    async def _send_request(
        self, to: ConnectionTarget, head: RequestHead, body: bytes
    ) -> tuple[HttpConnection, h11.Response, bytes]:
        """Send a request and wait for the response head; a dead kept connection is replaced."""
        while True:
            line = await self._get_connection(to)
            try:
                return line, *await self._send_and_listen(line, head, body)
            except ApiError as problem:
                await line.close_now()
                if line.kept is None or line.heard or problem.kind != "network":
                    raise
                await self._close_idle(to)
            except BaseException:
                await line.close_now()
                raise

    async def _send_and_listen(
        self, line: HttpConnection, head: RequestHead, body: bytes
    ) -> tuple[h11.Response, bytes]:
        """Send and listen at once: a server may answer and close before it has read all."""
        heard: h11.Response | ApiError | None = None
        early, start = b"", line.begin_request(head)
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as patience:
                group.start_soon(self._send_head_and_body, line, start, body, patience)
                heard = await _read_response_head(line)
            if not _should_keep_sending(line, heard):
                early = (
                    await self._read_early_body(line) if isinstance(heard, h11.Response) else b""
                )
                group.cancel_scope.cancel()
        if heard is None:
            raise (
                silent_server_error(self._timeouts.first_byte)
                if line.is_request_sent
                else send_timeout_error()
            )
        if isinstance(heard, ApiError):
            raise heard
        return heard, early

    async def _send_head_and_body(
        self, line: HttpConnection, head: bytes, body: bytes, patience: anyio.CancelScope
    ) -> None:
        """Send in parts; the server's silence counts only once all is sent."""
        try:
            await self._send_part(line, head + body[:SEND_CHUNK_BYTES])
            for at in range(SEND_CHUNK_BYTES, len(body), SEND_CHUNK_BYTES):
                await self._send_part(line, body[at : at + SEND_CHUNK_BYTES])
            line.parser.send(h11.Data(data=body))
            line.parser.send(h11.EndOfMessage())
        except TimeoutError:
            patience.cancel()
        except (anyio.BrokenResourceError, OSError):
            pass  # whoever listens hears why, and perhaps an answer
        finally:
            patience.deadline = anyio.current_time() + self._timeouts.first_byte

    async def _send_part(self, line: HttpConnection, part: bytes) -> None:
        with anyio.fail_after(self._timeouts.idle):
            await line.stream.send(part)

    async def _read_early_body(self, line: HttpConnection) -> bytes:
        """Read the body of an early answer; part of it is better than nothing."""
        body = b""
        try:
            while len(body) < MAX_EARLY_BYTES and (
                event := await line.next_event(self._timeouts.idle)
            ):
                body += event.data if isinstance(event, h11.Data) else b""
        except ApiError:
            pass
        return body

    async def _read_chunks(self, line: HttpConnection, early: bytes) -> AsyncGenerator[bytes]:
        if early:
            yield early
        patience = self._timeouts.first_byte
        while line.parser.their_state is h11.SEND_BODY:
            event = await line.next_event(patience)
            if isinstance(event, h11.Data):
                patience = self._timeouts.idle
                yield bytes(event.data)

    async def _get_connection(self, to: ConnectionTarget) -> HttpConnection:
        while kept := self._idle.get(to):
            line = kept.pop()
            if line.is_reusable(self._timeouts.keep):
                return line
            await line.close_now()
        try:
            with anyio.fail_after(self._timeouts.connect):
                return await self._open_connection(to)
        except TimeoutError:
            raise connect_timeout_error(to, self._timeouts.connect) from None
        except (OSError, UnicodeError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise unreachable_error(to, error) from None

    async def _open_connection(self, to: ConnectionTarget) -> HttpConnection:
        if to.scheme == "http":
            return HttpConnection(await open_tcp(to.host, to.port), None)
        doubt: ssl.SSLCertVerificationError | None = None
        for context in (self._tls,) if self._tls else create_tls_contexts(self._env):
            try:
                line = await _connect_tls(to, context)
            except ssl.SSLCertVerificationError as error:
                doubt = error
            else:
                self._tls = context
                return line
        assert doubt is not None
        raise doubt


async def _connect_tls(to: ConnectionTarget, context: ssl.SSLContext) -> HttpConnection:
    """Open a TLS connection for an HTTP client's model requests."""
    tcp = await open_tcp(to.host, to.port)
    try:
        tls = await anyio_tls.TLSStream.wrap(
            tcp, hostname=to.host, ssl_context=context, standard_compatible=False
        )
    except BaseException:
        await anyio.aclose_forcefully(tcp)
        raise
    return HttpConnection(tcp, tls)


async def _read_response_head(line: HttpConnection) -> h11.Response | ApiError:
    """Return the HTTP response head, or the error as a value: task groups wrap exceptions."""
    try:
        while not isinstance(event := await line.next_event(None), h11.Response):
            pass
    except ApiError as problem:
        return problem
    return event


def _should_keep_sending(line: HttpConnection, heard: h11.Response | ApiError | None) -> bool:
    """Return whether the HTTP server still wants the rest of the request."""
    return isinstance(heard, h11.Response) and (line.is_request_sent or heard.status_code < 300)


def _build_http_head(url: str, headers: tuple[tuple[str, str], ...], body: bytes) -> RequestHead:
    """Build the head of an HTTP POST request to a model server."""
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    fixed = (("host", parts.netloc.rpartition("@")[2]), ("content-length", str(len(body))))
    return RequestHead(path or "/", (*fixed, *headers))


def _lowercase_headers(head: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
