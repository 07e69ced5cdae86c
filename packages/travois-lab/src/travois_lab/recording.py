"""Recordings of real providers: made by a proxy, kept without credentials, and played again."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from travois.core.errors import UserError
from travois_lab.exchange import SECRET
from travois_lab.http import Live, Pause, Request, Response, Step, reply_json
from travois_lab.objects import Json, is_list, is_object
from travois_lab.positions import Position, locate
from travois_lab.talk import Protocol
from travois_lab.tokens import tokens
from travois_lab.world import World

Mode = Literal["sequence", "canonical", "bytes"]
HOP = ("host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive")
KEPT = ("content-type", "request-id", "x-request-id", "retry-after", "retry-after-ms")


class Took(msgspec.Struct, frozen=True):
    """One recorded exchange."""

    n: int
    t: float
    method: str
    path: str
    request_bytes_b64: str
    request_sha: str
    response_status: int
    headers: dict[str, str]
    events: tuple[tuple[float, str], ...]
    """Seconds since the one before, and the bytes in base64."""

    @property
    def request(self) -> bytes:
        """The request's body."""
        return b64decode(self.request_bytes_b64)


# --- recording ------------------------------------------------------------------------------------


class Recorder:
    """A proxy that writes down what passes through it."""

    def __init__(self, upstream: str, out: Path) -> None:
        self.upstream = upstream.rstrip("/")
        self.out = out
        self.n = 0
        self.start = time.monotonic()

    async def answer(self, request: Request) -> Live:
        """Pass one request on, and its answer back."""
        import httpx2

        self.n += 1
        client = httpx2.AsyncClient(timeout=600.0)
        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {k: v for k, v in request.headers.items() if k not in HOP}
        url = f"{self.upstream}{request.path}{query}"
        sent = client.build_request(request.method, url, headers=headers, content=request.body)
        try:
            response = await client.send(sent, stream=True)
        except httpx2.HTTPError as error:
            await client.aclose()
            body = msgspec.json.encode({"error": {"message": f"lab record: {url}: {error}"}})
            return Live(502, (("content-type", "application/json"),), _once(body))
        kept = {k: v for k, v in response.headers.items() if k.lower() in KEPT}
        chunks = self._pass(request, response, client, kept)
        return Live(response.status_code, tuple(kept.items()), chunks)

    async def _pass(
        self, request: Request, response: Any, client: Any, kept: dict[str, str]
    ) -> AsyncGenerator[bytes]:
        events: list[tuple[float, str]] = []
        n, at, last = self.n, time.monotonic() - self.start, time.monotonic()
        try:
            async for chunk in response.aiter_bytes():
                now = time.monotonic()
                events.append((round(now - last, 4), b64encode(chunk).decode()))
                last = now
                yield chunk
        finally:
            await response.aclose()
            await client.aclose()
            self._write(request, n, at, response.status_code, kept, tuple(events))

    def _write(
        self,
        request: Request,
        n: int,
        at: float,
        status: int,
        kept: dict[str, str],
        events: tuple[tuple[float, str], ...],
    ) -> None:
        took = Took(
            n,
            round(at, 4),
            request.method,
            request.path,
            b64encode(request.body).decode(),
            sha256(request.body).hexdigest(),
            status,
            {k: v for k, v in kept.items() if k not in SECRET},
            events,
        )
        with self.out.open("ab") as file:
            file.write(msgspec.json.encode(took) + b"\n")


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


# --- replaying ------------------------------------------------------------------------------------


def load_recording(path: str | Path) -> list[Took]:
    """The exchanges of a recording."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"cannot read the recording {path}", why=error.strerror or "") from None
    took: list[Took] = []
    for number, line in enumerate(lines, 1):
        try:
            took.append(msgspec.json.decode(line, type=Took))
        except msgspec.MsgspecError as error:
            raise UserError(f"{path}: line {number}", why=str(error)) from None
    return took


class Replay:
    """A recording as a provider: each request gets what it got then, if it is what it was then."""

    def __init__(self, took: list[Took], *, mode: Mode = "sequence", timing: str = "none") -> None:
        self.took = took
        self.mode: Mode = mode
        self.timing = timing
        self.next = 0
        self.world = World()

    def answer(self, request: Request) -> Response:
        """The recorded answer; a 409 that tells the difference where there is none."""
        exchange = self.world.ledger.open(request, _protocol(request.path), at=float(self.next))
        self.world.ledger.place(exchange, [_position(request.body)])
        found, why = self._find(request)
        if found is None:
            exchange.status, exchange.error = 409, why
            return reply_json({"error": {"type": "replay_mismatch", "message": why}}, status=409)
        exchange.status = found.response_status
        steps: list[Step] = []
        for wait, raw in found.events:
            if self.timing == "recorded":
                steps.append(Pause(wait))
            steps.append(b64decode(raw))
        return Response(
            found.response_status, tuple(found.headers.items()), tuple(steps), "chunked"
        )

    def _find(self, request: Request) -> tuple[Took | None, str]:
        if self.mode == "canonical":
            return self._equal(request)
        if self.next >= len(self.took):
            return None, f"the recording ends after {len(self.took)} requests"
        expected = self.took[self.next]
        if self.mode == "bytes" and request.body != expected.request:
            where = difference(expected.request, request.body)
            return None, f"request {self.next + 1} is not what was recorded: {where}"
        self.next += 1
        return expected, ""

    def _equal(self, request: Request) -> tuple[Took | None, str]:
        asked = _decoded(request.body)
        for took in self.took[self.next :] + self.took[: self.next]:
            if took.path == request.path and _decoded(took.request) == asked:
                self.next = took.n
                return took, ""
        close = self.took[min(self.next, len(self.took) - 1)] if self.took else None
        where = difference(close.request, request.body) if close else "nothing was recorded"
        return None, f"no recorded request is equal to this one: {where}"


def _protocol(path: str) -> Protocol:
    if "messages" in path:
        return "anthropic"
    return "responses" if "responses" in path else "chat"


def _position(body: bytes) -> Position:
    text = body.decode(errors="replace")
    return locate("messages", "body", "body", b"body\0" + body, tokens(text))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return body


def difference(old: bytes, new: bytes) -> str:
    """Where two bodies first differ: the byte, and the path of the value there."""
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    if at is None:
        at = min(len(old), len(new))
    path = _path(_decoded(old), _decoded(new)) or "only in spacing or order of keys"
    return f"{path} (byte {at}: {old[at : at + 20]!r} became {new[at : at + 20]!r})"


def _path(old: Any, new: Any, here: str = "") -> str:
    if old == new:
        return ""
    if is_object(old) and is_object(new):
        return _object_path(old, new, here)
    if is_list(old) and is_list(new):
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            if a != b:
                return _path(a, b, f"{here}[{i}]")
        return f"{here} has {len(new)} items, not {len(old)}"
    return f"{here or 'body'} changed"


def _object_path(old: Json, new: Json, here: str) -> str:
    for key in [*old, *(k for k in new if k not in old)]:
        where = f"{here}.{key}" if here else key
        if key not in new:
            return f"{where} is missing"
        if key not in old:
            return f"{where} was added"
        if old[key] != new[key]:
            return _path(old[key], new[key], where)
    return ""
