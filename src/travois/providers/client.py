"""The HTTP client of a model: sends requests, streams replies, turns failures into `ApiError`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from time import monotonic, time

import anyio
from msgspec.structs import replace

from travois.core.models import ModelCard
from travois.permissions.masking import register_secrets
from travois.providers.catalog import Catalog, Endpoint
from travois.providers.clouds import dressed
from travois.providers.http.client import Response, Transport
from travois.providers.replies import Problem, Reply, StreamDelta
from travois.providers.request import Request
from travois.providers.sigv4 import Scope, signed
from travois.version import __version__

# A key that a command of the user's prints, asked for again when it is old or refused.


LIFE = "CLAUDE_CODE_API_KEY_HELPER_TTL_MS"
USUAL = 300_000
"""The lifetime of a key in milliseconds, unless the variable sets another."""
PATIENCE = 60.0
"""The time limit of the command in seconds: a person may have to log in."""

Headers = tuple[tuple[str, str], ...]


class PrintedKey:
    """An API key printed by the user's apiKeyHelper command, renewed when it expires."""

    def __init__(self, command: str, heard: Callable[[Headers], None]) -> None:
        self._command, self._heard = command, heard
        self._key, self._until, self._uses = "", 0.0, 0

    async def headers(self) -> Headers:
        """Return the authentication headers; raises `ApiError`."""
        if not self._key or monotonic() > self._until:
            self._key, self._uses = await self._asked(), 0
            life = os.environ.get(LIFE, "")
            self._until = monotonic() + (int(life) if life.isdecimal() else USUAL) / 1000
        self._uses += 1
        proof = (("x-api-key", self._key), ("authorization", f"Bearer {self._key}"))
        register_secrets((("apiKeyHelper", self._key),))
        self._heard((proof[0],))
        return proof

    def refused(self) -> bool:
        """Discard the key and return whether it had worked before, so that a new one may help."""
        worn, self._key = self._uses > 1, ""
        return worn

    async def _asked(self) -> str:
        from subprocess import DEVNULL

        line = ("/bin/sh", "-c", self._command)
        try:
            with anyio.fail_after(PATIENCE):
                done = await anyio.run_process(line, check=False, stdin=DEVNULL)
        except TimeoutError:
            raise Problem("auth", f"apiKeyHelper did not finish within {PATIENCE:g} s") from None
        key = done.stdout.decode(errors="replace").strip()
        if done.returncode or not key.isascii() or len(key.split()) != 1:
            why = done.stderr.decode(errors="replace").strip()[-200:] or "it printed no key"
            raise Problem("auth", f"apiKeyHelper exited with {done.returncode}: {why}")
        return key


ERROR_BODY = 1 << 20
"""The most bytes of an error's body that are read."""
ERROR_WAIT = 10.0
"""The time to wait for an error's body, in seconds."""
DANGLING = 0.5
"""The time a server has to end a body whose reply is complete, in seconds."""
SILENCE = 600.0
"""The time a server may send only keep-alives and no part of a reply, in seconds."""
EXPLAINED = frozenset(("auth", "missing", "network"))
"""Problems to which advice is added."""
HEADERS = (("accept-encoding", "identity"), ("user-agent", f"travois/{__version__}"))


class HttpModel:
    """A model at one endpoint, reached over one transport."""

    def __init__(
        self,
        model: ModelCard,
        endpoint: Endpoint,
        transport: Transport,
        *,
        silence: float = SILENCE,
        heard: Callable[[Headers], None] = lambda headers: None,
        known: Catalog | None = None,
    ) -> None:
        self._model = model
        self._endpoint = endpoint
        self._transport = transport
        self._silence = silence
        self._known = known
        self._keys = PrintedKey(endpoint.helper, heard) if endpoint.helper else None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send the request; the last thing yielded is the reply. Raises `ApiError`."""
        try:
            async with self._stream(request) as events:
                yield events
        except Problem as problem:
            if problem.kind in EXPLAINED:
                from travois.providers.discovery import explain

                await explain(problem, self._model, self._endpoint, known=self._known)
            raise

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        there = self._endpoint
        request = dressed(request, self._model, there.surface)
        base, mark, query = there.url.partition("?")
        mark = "&" if mark and "?" in request.path else mark
        url, size = f"{base}{request.path}{mark}{query}", len(request.body)
        key = await self._keys.headers() if self._keys else ()
        headers = (*HEADERS, *key, *self._authorized(request, url))
        async with self._transport.post(url, headers=headers, body=request.body) as response:
            if response.status != 200:
                raise await self._refusal(response)
            if why := _no_reply(response):
                raise Problem("garbled", why, retry=False, request=_request(response))
            async with aclosing(self._events(response, size)) as events:
                yield events

    def _authorized(self, request: Request, url: str) -> Headers:
        """Return the request's headers, signed where the provider wants a signature."""
        headers, signer = (*request.headers, *self._endpoint.headers), self._endpoint.signer
        if signer is None:
            return headers
        scope = Scope(signer.region, "bedrock")
        return signed(url, headers, body=request.body, by=signer, scope=scope, now=time())

    async def _events(self, response: Response, size: int) -> AsyncGenerator[StreamDelta | Reply]:
        from travois.providers.stream_reader import reader

        surface = self._endpoint.surface
        reading, broken = reader(self._model, size=size, surface=surface), None
        spoke = anyio.current_time()
        try:
            async for chunk in response.chunks:
                deltas = reading.feed(chunk)
                spoke = self._spoke(spoke, deltas)
                for delta in deltas:
                    yield delta
                if reading.done:
                    await _run_out(response)
        except Problem as problem:
            broken = problem  # what came before may be whole all the same
        try:
            reply = reading.reply()
        except Problem as unfinished:
            error = broken or unfinished
            error.request = error.request or _request(response)
            raise error from None
        yield replace(reply, request=_request(response))

    def _spoke(self, last: float, deltas: list[StreamDelta]) -> float:
        """Return when the model last sent a delta; raises `ApiError` if only keep-alives come."""
        now = anyio.current_time()
        if not deltas and now - last > self._silence:
            what = f"the server sent no part of a reply for {self._silence:g} s"
            raise Problem("timeout", what)
        return now if deltas else last

    async def _refusal(self, response: Response) -> Problem:
        from travois.providers.errors import problem

        where = response.headers.get("location", "")
        if 300 <= response.status < 400 and where:
            what = f"the server redirects to {where}: set the base URL to that address"
            return Problem("invalid", what, status=response.status, request=_request(response))
        found = problem(
            response.status,
            response.headers,
            body=await _body(response),
            protocol=self._model.protocol,
            now=time(),
        )
        if response.status == 401 and self._keys and self._keys.refused():
            found.retry = True
        return found


async def _run_out(response: Response) -> None:
    """Read the body to its end, so that the connection can be reused; give up quickly."""
    with anyio.move_on_after(DANGLING):
        async for _ in response.chunks:
            pass


async def _body(response: Response) -> bytes:
    """Read an error's body; if it does not arrive, the status alone has to do.

    An empty body has a meaning of its own, so one that was lost is not empty.
    """
    body, whole = bytearray(), False
    with anyio.move_on_after(ERROR_WAIT):
        whole = await _collected(response, body)
    if packed := _packed(response):
        return f"(a body encoded with {packed})".encode()
    return bytes(body) or (
        b"" if whole else b"(the connection closed before the error message arrived)"
    )


async def _collected(response: Response, body: bytearray) -> bool:
    try:
        async for chunk in response.chunks:
            body += chunk
            if len(body) > ERROR_BODY:
                break
    except Problem:
        return False
    return True


def _no_reply(response: Response) -> str:
    """Return why a response with a good status cannot be a reply; empty if it can."""
    if _packed(response):
        return f"the server sent an unrequested content encoding: {_packed(response)}"
    if response.headers.get("content-type", "").lower().startswith("text/html"):
        return "the server returned a web page; check the base URL"
    return ""


def _packed(response: Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else encoding


def _request(response: Response) -> str:
    """Return the provider's id for this request, for its support."""
    return response.headers.get("request-id") or response.headers.get("x-request-id", "")
