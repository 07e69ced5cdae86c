"""A model behind HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from time import monotonic, time

import anyio
from msgspec.structs import replace

from travois.core.models import Model
from travois.permissions.masking import register
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
"""How many milliseconds a key is good for, unless the variable says otherwise."""
PATIENCE = 60.0
"""How many seconds the command may take: a person may have to log in."""

Headers = tuple[tuple[str, str], ...]


class PrintedKey:
    """The key as it is at the moment; `heard` is told each one, so that no log shows it."""

    def __init__(self, command: str, heard: Callable[[Headers], None]) -> None:
        self._command, self._heard = command, heard
        self._key, self._until, self._uses = "", 0.0, 0

    async def headers(self) -> Headers:
        """What proves whose a request is; raises `Problem`."""
        if not self._key or monotonic() > self._until:
            self._key, self._uses = await self._asked(), 0
            life = os.environ.get(LIFE, "")
            self._until = monotonic() + (int(life) if life.isdecimal() else USUAL) / 1000
        self._uses += 1
        proof = (("x-api-key", self._key), ("authorization", f"Bearer {self._key}"))
        register((("apiKeyHelper", self._key),))
        self._heard((proof[0],))
        return proof

    def refused(self) -> bool:
        """Forget the key; whether it had been good before, so that another one may help."""
        worn, self._key = self._uses > 1, ""
        return worn

    async def _asked(self) -> str:
        from subprocess import DEVNULL

        line = ("/bin/sh", "-c", self._command)
        try:
            with anyio.fail_after(PATIENCE):
                done = await anyio.run_process(line, check=False, stdin=DEVNULL)
        except TimeoutError:
            raise Problem("auth", f"apiKeyHelper said nothing for {PATIENCE:g} s") from None
        key = done.stdout.decode(errors="replace").strip()
        if done.returncode or not key.isascii() or len(key.split()) != 1:
            why = done.stderr.decode(errors="replace").strip()[-200:] or "it printed no key"
            raise Problem("auth", f"apiKeyHelper failed with {done.returncode}: {why}")
        return key


ERROR_BODY = 1 << 20
"""How much of an error's body is worth reading."""
ERROR_WAIT = 10.0
"""How long to wait for it, in seconds."""
DANGLING = 0.5
"""How long a server may take to end a body whose reply is whole, in seconds."""
SILENCE = 600.0
"""How long a server may keep the connection alive, in seconds, and say nothing to the matter."""
EXPLAINED = frozenset(("auth", "missing", "network"))
"""Problems to which advice is added."""
HEADERS = (("accept-encoding", "identity"), ("user-agent", f"travois/{__version__}"))


class HttpModel:
    """One model at one endpoint, over one transport."""

    def __init__(
        self,
        model: Model,
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
        """Send the request; the last thing yielded is the reply. Raises `Problem`."""
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
        """The headers of a request with whatever proves whose it is."""
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
        """When the model last said something: signs of life alone are not enough for ever."""
        now = anyio.current_time()
        if not deltas and now - last > self._silence:
            what = f"the server kept the connection for {self._silence:g} s but said nothing"
            raise Problem("timeout", what)
        return now if deltas else last

    async def _refusal(self, response: Response) -> Problem:
        from travois.providers.errors import problem

        where = response.headers.get("location", "")
        if 300 <= response.status < 400 and where:
            what = f"the server sends requests on to {where}: set the base URL to where it is"
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
    """Let the body end by itself, so that the connection can be kept; do not wait for it long."""
    with anyio.move_on_after(DANGLING):
        async for _ in response.chunks:
            pass


async def _body(response: Response) -> bytes:
    """What came of an error's body; the status says enough if the rest does not come.

    An empty body has a meaning of its own, so one that was lost is not empty.
    """
    body, whole = bytearray(), False
    with anyio.move_on_after(ERROR_WAIT):
        whole = await _collected(response, body)
    if packed := _packed(response):
        return f"(no words but {packed})".encode()
    return bytes(body) or (b"" if whole else b"(the server broke off before it said why)")


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
    """Why what came with a good status cannot be a reply; empty if it can."""
    if _packed(response):
        return f"the server answers in {_packed(response)}, which nobody asked for"
    if response.headers.get("content-type", "").lower().startswith("text/html"):
        return "the server answers with a web page: is the base URL right?"
    return ""


def _packed(response: Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else encoding


def _request(response: Response) -> str:
    """The provider's name for this request, for its support."""
    return response.headers.get("request-id") or response.headers.get("x-request-id", "")
