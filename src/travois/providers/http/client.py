"""HTTP/1.1 for model requests: kept connections, bytes in, bytes out, a limit on every wait.

Behind a proxy, httpx2 does the work (see `host.proxied`): it knows how, and costs 100 ms to import
that nobody else should pay. Which of the two a URL needs, `host.transport` says.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio
import h11
import msgspec

from travois.providers.http.line import Line
from travois.providers.http.tcp import dial
from travois.providers.http.tls import Target, deaf, late, silent, target, unreachable
from travois.providers.replies import Problem

if TYPE_CHECKING:
    import ssl

PART = 64 * 1024
"""How much is sent at a time: on a slow line, every part is a sign of life."""
EARLY = 1 << 20
"""How much is read of an answer that came before the request was sent."""


class Timeouts(msgspec.Struct, frozen=True):
    """How long each kind of silence may last, in seconds."""

    connect: float = 10.0
    first_byte: float = 90.0
    """Until the head, and again until the body begins: some servers think between the two."""
    idle: float = 90.0
    is_idle_chosen: bool = False
    """Whether the user set `idle`, so that it holds for a server on this machine as well."""
    local: float = 600.0
    """For a server on this machine; see `host.transport.patience`."""
    keep: float = 60.0
    """How long an unused connection is kept: gateways forget idle ones without a word."""


class Response(msgspec.Struct, frozen=True):
    """A response whose body is still coming; header names are in lower case."""

    status: int
    headers: dict[str, str]
    chunks: AsyncGenerator[bytes]


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


class Direct:
    """The transport for everybody without a proxy; `env` may name certificates to trust."""

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
        """Send; the response lives as long as the block. Raises `Problem`."""
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
        """Hang up everywhere."""
        for to in list(self._idle):
            await self._forget(to)

    async def _forget(self, to: Target) -> None:
        for line in self._idle.pop(to, []):
            await line.hang_up()

    async def _exchange(
        self, to: Target, head: h11.Request, body: bytes
    ) -> tuple[Line, h11.Response, bytes]:
        """Send and wait for the head of the answer; a kept connection that died is replaced."""
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
        """Speak and listen at once: a server may answer, and hang up, before it has heard all."""
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
        """Send in parts; only when all is sent does the server's silence count."""
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
        """The body of an early answer: some of it is better than none."""
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
        import ssl

        from travois.providers.http.trust import contexts

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
    """The head of the answer, or why there is none: a value, since a task group wraps errors."""
    try:
        while not isinstance(event := await line.event(None), h11.Response):
            pass
    except Problem as problem:
        return problem
    return event


def _welcome(line: Line, heard: h11.Response | Problem | None) -> bool:
    """Whether the rest of the request is still worth sending."""
    return isinstance(heard, h11.Response) and (line.spoken or heard.status_code < 300)


def _head(url: str, headers: tuple[tuple[str, str], ...], body: bytes) -> h11.Request:
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    fixed = (("host", parts.netloc.rpartition("@")[2]), ("content-length", str(len(body))))
    return h11.Request(method="POST", target=path or "/", headers=[*fixed, *headers])


def _named(head: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
