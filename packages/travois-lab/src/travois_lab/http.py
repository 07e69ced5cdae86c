"""A small HTTP/1.1 server on loopback, in which every byte of an answer is under our control."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import anyio.abc
import msgspec

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 256 * 1024 * 1024
READ_SIZE = 1 << 20
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    529: "Overloaded",
}


class Request(msgspec.Struct, frozen=True):
    """One request as it arrived; header names are in lower case."""

    method: str
    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""


class Pause(msgspec.Struct, frozen=True):
    """Flush what was sent, and wait."""

    seconds: float


class Cut(msgspec.Struct, frozen=True):
    """End the connection here, politely or with a reset."""

    how: Literal["close", "reset"] = "close"


Step = bytes | Pause | Cut


class Response(msgspec.Struct, frozen=True):
    """An answer as steps to take; bytes between two pauses leave in one write."""

    status: int
    headers: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    framing: Literal["length", "chunked"] = "length"
    claimed: int | None = None
    """The content length to claim where it is to be a lie."""
    before: float = 0.0
    """How long to wait before the first byte of the head."""


class Live(msgspec.Struct, frozen=True):
    """An answer whose bytes are still on their way from somewhere else."""

    status: int
    headers: tuple[tuple[str, str], ...]
    chunks: AsyncGenerator[bytes]


Answer = Callable[[Request], Response | Awaitable[Live]]


class _Closed(Exception):
    """The peer is gone, or asked for what we do not speak."""


class _Connection:
    """One client's connection: requests in, steps out."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self.held = bytearray()

    async def more(self) -> None:
        try:
            self.held += await self.stream.receive(READ_SIZE)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _Closed from None

    async def send(self, data: bytes) -> None:
        try:
            await self.stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _Closed from None

    async def until(self, mark: bytes) -> bytes:
        start = 0
        while (end := self.held.find(mark, start)) < 0:
            if len(self.held) > HEAD_LIMIT:
                raise _Closed
            start = max(0, len(self.held) - len(mark))
            await self.more()
        taken = bytes(self.held[:end])
        del self.held[: end + len(mark)]
        return taken

    async def exactly(self, count: int) -> bytes:
        if count > BODY_LIMIT:
            raise _Closed
        while len(self.held) < count:
            await self.more()
        if len(self.held) == count:
            taken, self.held = bytes(self.held), bytearray()
            return taken
        taken = bytes(memoryview(self.held)[:count])
        del self.held[:count]
        return taken

    async def request(self) -> Request:
        """The next request, whole."""
        head = await self.until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        try:
            method, target, _ = first.split(" ", 2)
        except ValueError:
            raise _Closed from None
        headers = _read_headers(lines)
        if headers.get("expect", "").lower() == "100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        url = urlsplit(target)
        body = await self.body(headers)
        return Request(method, unquote(url.path), dict(parse_qsl(url.query)), headers, body)

    async def body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self.chunks()
        length = headers.get("content-length", "0")
        if not length.isdigit():
            raise _Closed
        return await self.exactly(int(length))

    async def chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = int((await self.until(b"\r\n")).split(b";")[0] or b"0", 16)
            if size == 0:
                while await self.until(b"\r\n"):
                    pass
                return b"".join(parts)
            parts.append(await self.exactly(size))
            await self.until(b"\r\n")

    async def answer(self, response: Response) -> None:
        """Take the steps of a response; raises `_Closed` when the connection ended with it."""
        if response.before:
            await anyio.sleep(response.before)
        pending = bytearray(_head(response))
        for step in response.steps:
            if isinstance(step, bytes):
                pending += _framed(step, response)
                continue
            if pending:
                await self.send(bytes(pending))
                pending.clear()
            await self.rest(step)
        if response.framing == "chunked":
            pending += b"0\r\n\r\n"
        await self.send(bytes(pending))
        if response.claimed is not None:
            raise _Closed

    async def reply(self, answer: Response | Awaitable[Live]) -> None:
        """Send an answer, made or in the making."""
        if isinstance(answer, Response):
            await self.answer(answer)
        else:
            await self.relay(await answer)

    async def relay(self, live: Live) -> None:
        """Pass on what comes, as it comes."""
        await self.send(_head(Response(live.status, live.headers, (), "chunked")))
        async with aclosing(live.chunks) as chunks:
            async for chunk in chunks:
                if chunk:
                    await self.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await self.send(b"0\r\n\r\n")

    async def rest(self, step: Pause | Cut) -> None:
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
            return
        if step.how == "reset":
            raw = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _Closed


def _framed(data: bytes, response: Response) -> bytes:
    if response.framing == "length" or not data:
        return data
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(response: Response) -> bytes:
    reason = REASONS.get(response.status, "Status")
    lines = [f"HTTP/1.1 {response.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    if response.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    else:
        length = sum(len(step) for step in response.steps if isinstance(step, bytes))
        lines.append(f"content-length: {length if response.claimed is None else response.claimed}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_headers(lines: list[str]) -> dict[str, str]:
    """The headers by lower-case name; two hosts or origins are no host or origin at all."""
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        key = name.strip().lower()
        if key in headers and key in ("host", "origin"):
            raise _Closed
        headers[key] = value.strip()
    return headers


async def serve_connection(stream: anyio.abc.SocketStream, answer: Answer) -> None:
    """Answer the requests of one connection until it ends."""
    async with stream:
        with suppress(_Closed):
            await _serve(_Connection(stream), answer)


async def _serve(connection: _Connection, answer: Answer) -> None:
    while True:
        request = await connection.request()
        await connection.reply(answer(request))
        if request.headers.get("connection", "").lower() == "close":
            return


def reply_json(
    value: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """A JSON answer."""
    kind = ("content-type", "application/json")
    return Response(status, (kind, *headers), (msgspec.json.encode(value),))
