"""Model requests through a proxy, by httpx2 (HTTP and HTTPS proxies; SOCKS with its extra)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from ssl import SSLCertVerificationError, SSLContext, SSLError

import anyio
import httpx2

from travois.core.errors import UserError
from travois.providers.http.client import PART, Response, Timeouts
from travois.providers.http.tls import (
    Target,
    broken,
    contexts,
    deaf,
    late,
    mute,
    root,
    silent,
    target,
    unreachable,
)
from travois.providers.replies import Problem

MUTE = "without sending a response"
"""How httpx2 says that the server hung up before it said anything."""

FIX = "Set HTTPS_PROXY to an address like http://host:3128."


class Proxied:
    """The transport behind a proxy; without one it works like `DirectTransport`."""

    def __init__(
        self,
        timeouts: Timeouts | None = None,
        *,
        proxy: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._proxy = _address(proxy) if proxy else None
        self._trusts = contexts(env or {})
        self._client = _client(self._timeouts, proxy, next(self._trusts))
        self._again = partial(_client, self._timeouts, proxy)

    @asynccontextmanager
    async def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncGenerator[Response]:
        """Send a request; the response lives as long as the block. Raises `ApiError`."""
        reply = await self._open(url, headers, body)
        reply.request.extensions["timeout"]["read"] = None  # from here on `_chunks` is the clock
        try:
            async with aclosing(self._chunks(reply, target(url))) as chunks:
                yield Response(reply.status_code, dict(reply.headers), chunks)
        finally:
            await reply.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _open(
        self, url: str, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> httpx2.Response:
        sized = (*headers, ("content-length", str(len(body))))
        while True:
            request = self._client.build_request("POST", url, headers=sized, content=_parts(body))
            try:
                return await self._client.send(request, stream=True)
            except httpx2.TransportError as error:
                doubtful = isinstance(root(error), SSLCertVerificationError)
                more = next(self._trusts, None) if doubtful else None
                if more is None:
                    raise self._problem(error, target(url)) from None
            await self._client.aclose()
            self._client = self._again(more)

    async def _chunks(self, reply: httpx2.Response, to: Target) -> AsyncGenerator[bytes]:
        patience, raw = self._timeouts.first_byte, reply.aiter_raw()
        while True:
            try:
                with anyio.fail_after(patience):
                    chunk = await anext(raw, None)
            except TimeoutError:
                raise silent(patience) from None
            except httpx2.TransportError as error:
                raise self._problem(error, to) from None
            if chunk is None:
                return
            patience = self._timeouts.idle
            yield chunk

    def _problem(self, error: httpx2.TransportError, to: Target) -> Problem:
        match error:
            case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
                return late(self._proxy or to, self._timeouts.connect)
            case httpx2.WriteTimeout():
                return deaf()
            case httpx2.TimeoutException():
                return silent(self._timeouts.first_byte)
            case httpx2.ProxyError():
                return Problem("network", f"the proxy refused the request: {error}", retry=False)
            case httpx2.ConnectError() if self._proxy and not isinstance(root(error), SSLError):
                return _without_proxy(self._proxy, error)
            case httpx2.ConnectError():
                return unreachable(to, error)
            case _:
                return mute() if MUTE in str(error) else broken(error)


async def _parts(body: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(body), PART):
        yield body[at : at + PART]


def _without_proxy(proxy: Target, error: httpx2.ConnectError) -> Problem:
    problem = unreachable(proxy, error)
    what = f"{problem.message} (the proxy set in your environment)"
    return Problem(problem.kind, what, retry=problem.retry)


def _address(proxy: str) -> Target:
    try:
        return target(proxy)
    except ValueError as error:
        raise UserError("Cannot use the proxy", why=str(error), fix=FIX) from None


def _client(limits: Timeouts, proxy: str, trusted: SSLContext) -> httpx2.AsyncClient:
    waits = httpx2.Timeout(
        connect=limits.connect, read=limits.first_byte, write=limits.idle, pool=limits.connect
    )
    kept = httpx2.Limits(keepalive_expiry=limits.keep)
    try:
        return httpx2.AsyncClient(
            proxy=proxy or None, trust_env=False, verify=trusted, timeout=waits, limits=kept
        )
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise UserError(
            f"Cannot use the proxy {target(proxy).name}",
            why=str(error).partition(". ")[0],
            fix=FIX,
        ) from None
