"""Model requests through a proxy, sent by httpx2 (HTTP and HTTPS proxies; SOCKS with its extra)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from ssl import SSLCertVerificationError, SSLContext, SSLError

import anyio
import httpx2

from travois.core.errors import UserError
from travois.providers.http.client import SEND_CHUNK_BYTES, HttpResponse, Timeouts
from travois.providers.http.tls import (
    ConnectionTarget,
    connect_timeout_error,
    connection_lost_error,
    create_tls_contexts,
    find_root_cause,
    no_answer_error,
    parse_target,
    send_timeout_error,
    silent_server_error,
    unreachable_error,
)
from travois.providers.replies import ApiError

NO_RESPONSE_MESSAGE = "without sending a response"
"""How httpx2 says that the server hung up before it said anything."""

PROXY_FIX = "Set HTTPS_PROXY to an address like http://host:3128."


class ProxyTransport:
    """The transport behind a proxy; without one it works like `DirectTransport`."""

    def __init__(
        self,
        timeouts: Timeouts | None = None,
        *,
        proxy: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._proxy = _parse_proxy_target(proxy) if proxy else None
        self._trusts = create_tls_contexts(env or {})
        self._client = _create_proxy_client(self._timeouts, proxy, next(self._trusts))
        self._again = partial(_create_proxy_client, self._timeouts, proxy)

    @asynccontextmanager
    async def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncGenerator[HttpResponse]:
        """Send a request; the response lives as long as the block. Raises `ApiError`."""
        reply = await self._open_response(url, headers, body)
        reply.request.extensions["timeout"]["read"] = None  # now `_read_proxy_chunks` is the clock
        try:
            async with aclosing(self._read_proxy_chunks(reply, parse_target(url))) as chunks:
                yield HttpResponse(reply.status_code, dict(reply.headers), chunks)
        finally:
            await reply.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _open_response(
        self, url: str, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> httpx2.Response:
        sized = (*headers, ("content-length", str(len(body))))
        while True:
            request = self._client.build_request(
                "POST", url, headers=sized, content=_split_body(body)
            )
            try:
                return await self._client.send(request, stream=True)
            except httpx2.TransportError as error:
                doubtful = isinstance(find_root_cause(error), SSLCertVerificationError)
                more = next(self._trusts, None) if doubtful else None
                if more is None:
                    raise self._translate_httpx_error(error, parse_target(url)) from None
            await self._client.aclose()
            self._client = self._again(more)

    async def _read_proxy_chunks(
        self, reply: httpx2.Response, to: ConnectionTarget
    ) -> AsyncGenerator[bytes]:
        patience, raw = self._timeouts.first_byte, reply.aiter_raw()
        while True:
            try:
                with anyio.fail_after(patience):
                    chunk = await anext(raw, None)
            except TimeoutError:
                raise silent_server_error(patience) from None
            except httpx2.TransportError as error:
                raise self._translate_httpx_error(error, to) from None
            if chunk is None:
                return
            patience = self._timeouts.idle
            yield chunk

    def _translate_httpx_error(
        self, error: httpx2.TransportError, to: ConnectionTarget
    ) -> ApiError:
        match error:
            case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
                return connect_timeout_error(self._proxy or to, self._timeouts.connect)
            case httpx2.WriteTimeout():
                return send_timeout_error()
            case httpx2.TimeoutException():
                return silent_server_error(self._timeouts.first_byte)
            case httpx2.ProxyError():
                return ApiError("network", f"the proxy refused the request: {error}", retry=False)
            case httpx2.ConnectError() if self._proxy and not isinstance(
                find_root_cause(error), SSLError
            ):
                return _proxy_unreachable_error(self._proxy, error)
            case httpx2.ConnectError():
                return unreachable_error(to, error)
            case _:
                return (
                    no_answer_error()
                    if NO_RESPONSE_MESSAGE in str(error)
                    else connection_lost_error(error)
                )


async def _split_body(body: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(body), SEND_CHUNK_BYTES):
        yield body[at : at + SEND_CHUNK_BYTES]


def _proxy_unreachable_error(proxy: ConnectionTarget, error: httpx2.ConnectError) -> ApiError:
    """Return the error for a proxy that cannot be reached."""
    problem = unreachable_error(proxy, error)
    what = f"{problem.message} (the proxy set in your environment)"
    return ApiError(problem.kind, what, retry=problem.retry)


def _parse_proxy_target(proxy: str) -> ConnectionTarget:
    """Parse the address of a proxy; raise `UserError` if it is invalid."""
    try:
        return parse_target(proxy)
    except ValueError as error:
        raise UserError("Cannot use the proxy", why=str(error), fix=PROXY_FIX) from None


def _create_proxy_client(limits: Timeouts, proxy: str, trusted: SSLContext) -> httpx2.AsyncClient:
    """Create the httpx2 client that sends model requests through a proxy."""
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
            f"Cannot use the proxy {parse_target(proxy).name}",
            why=str(error).partition(". ")[0],
            fix=PROXY_FIX,
        ) from None
