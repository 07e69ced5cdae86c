"""The model client: sends requests over HTTP, streams replies, turns failures into `ApiError`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from time import monotonic, time

import anyio
from msgspec.structs import replace

from travois.core.models import ModelCard
from travois.lazy_imports import lazy_imports
from travois.permissions.secrets import register_secrets
from travois.providers.catalog import Catalog, ModelEndpoint
from travois.providers.clouds import adapt_request_for_cloud
from travois.providers.http.client import HttpResponse, Transport
from travois.providers.rate_limits import RateLimiter
from travois.providers.replies import ApiError, Reply, StreamDelta
from travois.providers.request import Request
from travois.providers.sigv4 import SigningScope, sign_aws_request
from travois.version import __version__

with lazy_imports():
    import subprocess

    from travois.providers import errors, explain_errors, stream_reader


# A key that a command of the user's prints, asked for again when it is old or refused.


KEY_TTL_VARIABLE = "CLAUDE_CODE_API_KEY_HELPER_TTL_MS"
DEFAULT_KEY_TTL_MS = 300_000
"""The lifetime of a key in milliseconds, unless the variable sets another."""
KEY_HELPER_TIMEOUT = 60.0
"""The time limit of the command in seconds: a person may have to log in."""

Headers = tuple[tuple[str, str], ...]


class ApiKeyCommand:
    """An API key printed by the user's apiKeyHelper command, renewed when it expires."""

    def __init__(self, command: str, heard: Callable[[Headers], None]) -> None:
        self._command, self._heard = command, heard
        self._key, self._until, self._uses = "", 0.0, 0

    async def auth_headers(self) -> Headers:
        """Return the authentication headers; raises `ApiError`."""
        if not self._key or monotonic() > self._until:
            self._key, self._uses = await self._run_command(), 0
            life = os.environ.get(KEY_TTL_VARIABLE, "")
            self._until = (
                monotonic() + (int(life) if life.isdecimal() else DEFAULT_KEY_TTL_MS) / 1000
            )
        self._uses += 1
        proof = (("x-api-key", self._key), ("authorization", f"Bearer {self._key}"))
        register_secrets((("apiKeyHelper", self._key),))
        self._heard((proof[0],))
        return proof

    def discard_key(self) -> bool:
        """Discard the key and return whether it had worked before, so that a new one may help."""
        worn, self._key = self._uses > 1, ""
        return worn

    async def _run_command(self) -> str:
        line = ("/bin/sh", "-c", self._command)
        try:
            with anyio.fail_after(KEY_HELPER_TIMEOUT):
                done = await anyio.run_process(line, check=False, stdin=subprocess.DEVNULL)
        except TimeoutError:
            raise ApiError(
                "auth", f"apiKeyHelper did not finish within {KEY_HELPER_TIMEOUT:g} s"
            ) from None
        key = done.stdout.decode(errors="replace").strip()
        if done.returncode or not key.isascii() or len(key.split()) != 1:
            why = done.stderr.decode(errors="replace").strip()[-200:] or "it printed no key"
            raise ApiError("auth", f"apiKeyHelper exited with {done.returncode}: {why}")
        return key


MAX_ERROR_BYTES = 1 << 20
"""The most bytes of an error's body that are read."""
ERROR_BODY_TIMEOUT = 10.0
"""The time to wait for an error's body, in seconds."""
STREAM_END_TIMEOUT = 0.5
"""The time a server has to end a body whose reply is complete, in seconds."""
MAX_SILENT_SECONDS = 600.0
"""The time a server may send only keep-alives and no part of a reply, in seconds."""
EXPLAINED_KINDS = frozenset(("auth", "missing", "network"))
"""Problems to which advice is added."""
CLIENT_HEADERS = (("accept-encoding", "identity"), ("user-agent", f"travois/{__version__}"))


class HttpModel:
    """A model at one endpoint, reached over one transport."""

    def __init__(
        self,
        model: ModelCard,
        endpoint: ModelEndpoint,
        transport: Transport,
        *,
        silence: float = MAX_SILENT_SECONDS,
        heard: Callable[[Headers], None] = lambda headers: None,
        catalog: Catalog | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        """`limiter` is shared with other clients of the same model."""
        self._model = model
        self._endpoint = endpoint
        self._transport = transport
        self._silence = silence
        self._known = catalog
        self._limiter = limiter or RateLimiter(endpoint.url, model.id)
        self._keys = ApiKeyCommand(endpoint.helper, heard) if endpoint.helper else None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send the request; the last thing yielded is the reply. Raises `ApiError`."""
        try:
            async with self._send_and_stream(request) as events:
                yield events
        except ApiError as problem:
            if problem.kind in EXPLAINED_KINDS:
                await explain_errors.explain_api_error(
                    problem, self._model, self._endpoint, catalog=self._known
                )
            raise

    @asynccontextmanager
    async def _send_and_stream(
        self, request: Request
    ) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        there = self._endpoint
        request = adapt_request_for_cloud(request, self._model, there.surface)
        base, mark, query = there.url.partition("?")
        mark = "&" if mark and "?" in request.path else mark
        url, size = f"{base}{request.path}{mark}{query}", len(request.body)
        await self._limiter.wait_for_turn()
        key = await self._keys.auth_headers() if self._keys else ()
        headers = (*CLIENT_HEADERS, *key, *self._sign_headers(request, url))
        async with self._transport.post(url, headers=headers, body=request.body) as response:
            self._limiter.record_response(response.status, response.headers, now=time())
            if response.status != 200:
                raise await self._error_of_response(response)
            if why := _unusable_reply_reason(response):
                raise ApiError("garbled", why, retry=False, request=_request_id_of(response))
            async with aclosing(self._read_deltas(response, size)) as events:
                yield events

    def _sign_headers(self, request: Request, url: str) -> Headers:
        """Return the request's headers, signed where the provider wants a signature."""
        headers, signer = (*request.headers, *self._endpoint.headers), self._endpoint.signer
        if signer is None:
            return headers
        scope = SigningScope(signer.region, "bedrock")
        return sign_aws_request(url, headers, body=request.body, by=signer, scope=scope, now=time())

    async def _read_deltas(
        self, response: HttpResponse, size: int
    ) -> AsyncGenerator[StreamDelta | Reply]:
        surface = self._endpoint.surface
        reading, broken = (
            stream_reader.create_reply_reader(self._model, size=size, surface=surface),
            None,
        )
        spoke = anyio.current_time()
        try:
            async for chunk in response.chunks:
                deltas = reading.feed(chunk)
                spoke = self._check_silence(spoke, deltas)
                for delta in deltas:
                    yield delta
                if reading.done:
                    await _drain_response(response)
        except ApiError as problem:
            broken = problem  # what came before may be whole all the same
        try:
            reply = reading.finish()
        except ApiError as unfinished:
            error = broken or unfinished
            error.request = error.request or _request_id_of(response)
            raise error from None
        yield replace(reply, request=_request_id_of(response))

    def _check_silence(self, last: float, deltas: list[StreamDelta]) -> float:
        """Return when the model last sent a delta; raises `ApiError` if only keep-alives arrive."""
        now = anyio.current_time()
        if not deltas and now - last > self._silence:
            what = f"the server sent no part of a reply for {self._silence:g} s"
            raise ApiError("timeout", what)
        return now if deltas else last

    async def _error_of_response(self, response: HttpResponse) -> ApiError:
        where = response.headers.get("location", "")
        if 300 <= response.status < 400 and where:
            what = f"the server redirects to {where}: set the base URL to that address"
            return ApiError(
                "invalid", what, status=response.status, request=_request_id_of(response)
            )
        found = errors.parse_error_response(
            response.status,
            response.headers,
            body=await _read_error_body(response),
            protocol=self._model.protocol,
            now=time(),
        )
        if response.status == 401 and self._keys and self._keys.discard_key():
            found.retry = True
        return found


async def _drain_response(response: HttpResponse) -> None:
    """Read a model response to its end so that the connection can be reused; give up quickly."""
    with anyio.move_on_after(STREAM_END_TIMEOUT):
        async for _ in response.chunks:
            pass


async def _read_error_body(response: HttpResponse) -> bytes:
    """Read the body of a failed model request; if it does not arrive, the status must do.

    An empty body has a meaning of its own, so one that was lost is not empty.
    """
    body, whole = bytearray(), False
    with anyio.move_on_after(ERROR_BODY_TIMEOUT):
        whole = await _collect_body(response, body)
    if packed := _content_encoding(response):
        return f"(a body encoded with {packed})".encode()
    return bytes(body) or (
        b"" if whole else b"(the connection closed before the error message arrived)"
    )


async def _collect_body(response: HttpResponse, body: bytearray) -> bool:
    """Read a failed request's body up to a limit; return False if the connection broke before."""
    try:
        async for chunk in response.chunks:
            body += chunk
            if len(body) > MAX_ERROR_BYTES:
                break
    except ApiError:
        return False
    return True


def _unusable_reply_reason(response: HttpResponse) -> str:
    """Return why a successful HTTP response cannot be a model reply; empty if it can."""
    if _content_encoding(response):
        return f"the server sent an unrequested content encoding: {_content_encoding(response)}"
    if response.headers.get("content-type", "").lower().startswith("text/html"):
        return "the server returned a web page; check the base URL"
    return ""


def _content_encoding(response: HttpResponse) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else encoding


def _request_id_of(response: HttpResponse) -> str:
    """Return the provider's ID for a model request, for a support case."""
    return response.headers.get("request-id") or response.headers.get("x-request-id", "")
