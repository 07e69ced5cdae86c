"""Model requests through a proxy, by httpx2 (HTTP, HTTPS and SOCKS proxies, corporate trust)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2

from travois.host.http import Response, Timeouts
from travois.wire.replies import Problem


class Proxied:
    """The transport for everybody behind a proxy; the environment says which."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        limits = timeouts or Timeouts()
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(
                connect=limits.connect, read=limits.idle, write=limits.idle, pool=limits.connect
            )
        )

    @asynccontextmanager
    async def post(
        self, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncGenerator[Response]:
        """Send; the response lives as long as the block. Raises `Problem`."""
        try:
            async with self._client.stream("POST", url, headers=headers, content=body) as reply:
                yield Response(reply.status_code, dict(reply.headers), reply.aiter_raw())
        except httpx2.TimeoutException as error:
            raise Problem("timeout", f"the server was silent: {type(error).__name__}") from None
        except httpx2.TransportError as error:
            raise Problem("network", f"the connection broke: {error}") from None

    async def aclose(self) -> None:
        """Hang up everywhere."""
        await self._client.aclose()
