"""HTTP/1.1 for model requests: kept connections, bytes in, bytes out, a limit on every wait.

h11 parses, anyio connects. Behind a proxy, httpx2 does both (see `host.proxied`): it knows how, and
costs 100 ms to import that nobody else should pay.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio
import h11
import msgspec
from anyio.abc import ByteStream

from travois.wire.replies import Problem

if TYPE_CHECKING:
    import ssl

CHUNK = 256 * 1024


class Timeouts(msgspec.Struct, frozen=True):
    """How long each kind of silence may last, in seconds."""

    connect: float = 10.0
    first_byte: float = 90.0
    idle: float = 90.0


class Response(msgspec.Struct, frozen=True):
    """A response whose body is still coming."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """How requests travel."""

    def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AbstractAsyncContextManager[Response]:
        """Send; the response lives as long as the block. Raises `Problem`."""
        ...

    async def aclose(self) -> None:
        """Hang up everywhere."""
        ...


class Line:
    """One open connection."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.parser = h11.Connection(h11.CLIENT)
        self.fresh = True


class Direct:
    """The transport for everybody without a proxy."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()
        self._idle: dict[tuple[str, str, int], list[Line]] = {}
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncGenerator[Response]:
        """Send; the response lives as long as the block. Raises `Problem`."""
        target = _target(url)
        line, head = await self._exchange(target, _head(url, headers, body), body)
        whole = False

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal whole
            while (event := await self._event(line, self._timeouts.idle)) is not None:
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
            whole = True

        try:
            yield Response(head.status_code, _named(head), chunks())
        finally:
            if whole and line.parser.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                line.parser.start_next_cycle()
                line.fresh = False
                self._idle.setdefault(target, []).append(line)
            else:
                await _hang_up(line)

    async def aclose(self) -> None:
        """Hang up everywhere."""
        for lines in self._idle.values():
            for line in lines:
                await _hang_up(line)
        self._idle.clear()

    async def _exchange(
        self, target: tuple[str, str, int], head: h11.Request, body: bytes
    ) -> tuple[Line, h11.Response]:
        """Send and wait for the status line; a kept connection that died is replaced once."""
        while True:
            line = await self._line(target)
            try:
                return line, await self._send(line, head, body)
            except Problem as problem:
                await _hang_up(line)
                if line.fresh or problem.kind != "network":
                    raise
            except BaseException:
                await _hang_up(line)
                raise

    async def _send(self, line: Line, head: h11.Request, body: bytes) -> h11.Response:
        start = line.parser.send(head) or b""
        try:
            with anyio.fail_after(self._timeouts.first_byte):
                await line.stream.send(start + body if len(body) < CHUNK else start)
                if len(body) >= CHUNK:
                    await line.stream.send(body)
        except TimeoutError:
            raise Problem("timeout", "the server does not take the request") from None
        except (anyio.BrokenResourceError, OSError) as error:
            raise _broken(error) from None
        line.parser.send(h11.Data(data=body))
        line.parser.send(h11.EndOfMessage())
        while True:
            event = await self._event(line, self._timeouts.first_byte)
            if isinstance(event, h11.Response):
                return event

    async def _event(self, line: Line, patience: float) -> h11.Event | None:
        """The next thing the server says; None at the end of its message."""
        while True:
            try:
                event = line.parser.next_event()
            except h11.RemoteProtocolError as error:
                raise Problem("network", f"the server broke the connection: {error}") from None
            if event is h11.NEED_DATA:
                line.parser.receive_data(await _receive(line, patience))
            elif isinstance(event, h11.Event):
                return None if isinstance(event, h11.EndOfMessage) else event
            else:
                raise Problem("network", "the server closed the connection")

    async def _line(self, target: tuple[str, str, int]) -> Line:
        kept = self._idle.get(target)
        if kept:
            return kept.pop()
        scheme, host, port = target
        try:
            with anyio.fail_after(self._timeouts.connect):
                return Line(await self._connect(scheme, host, port))
        except TimeoutError:
            what = f"no connection to {host}:{port} within {self._timeouts.connect:g} s"
            raise Problem("timeout", what) from None
        except OSError as error:
            raise Problem("network", f"cannot connect to {host}:{port}: {_plain(error)}") from None

    async def _connect(self, scheme: str, host: str, port: int) -> ByteStream:
        if scheme == "http":
            return await anyio.connect_tcp(host, port)
        return await anyio.connect_tcp(
            host, port, ssl_context=self._context(), tls_standard_compatible=False
        )

    def _context(self) -> ssl.SSLContext:
        import ssl

        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


async def _receive(line: Line, patience: float) -> bytes:
    try:
        with anyio.fail_after(patience):
            return await line.stream.receive(CHUNK)
    except TimeoutError:
        raise Problem("timeout", f"the server was silent for {patience:g} s") from None
    except anyio.EndOfStream:
        return b""
    except (anyio.BrokenResourceError, OSError) as error:
        raise _broken(error) from None


async def _hang_up(line: Line) -> None:
    await anyio.aclose_forcefully(line.stream)


def _broken(error: Exception) -> Problem:
    return Problem("network", f"the connection broke: {_plain(error.__cause__ or error)}")


def _plain(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _target(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def _head(url: str, headers: tuple[tuple[str, str], ...], body: bytes) -> h11.Request:
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    fixed = (("host", parts.netloc.rpartition("@")[2]), ("content-length", str(len(body))))
    return h11.Request(method="POST", target=path or "/", headers=[*fixed, *headers])


def _named(head: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
