"""Fetching web pages with httpx2, never from a private network unless that is allowed.

A name is looked up once, its addresses are checked, and the connection goes to a checked address: a
second lookup could answer differently.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from socket import SOCK_STREAM
from typing import TYPE_CHECKING, Literal
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread
import msgspec

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.ports.world import WebPage
from travois.providers.catalog import is_local_url
from travois.providers.http.tls import (
    ConnectionTarget,
    connection_lost_error,
    create_full_tls_context,
    parse_target,
    unreachable_error,
)
from travois.providers.http.transport import find_proxy
from travois.version import __version__

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

with lazy_imports():
    import httpx2


MAX_REDIRECTS = 5
FETCH_CONNECT_TIMEOUT = 10.0
FETCH_HEADERS = {
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5",
    "user-agent": f"travois/{__version__}",
}


class WebRequest(msgspec.Struct, frozen=True):
    """The headers and body of a web request; one with a body, which is JSON, is a POST."""

    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers, including the body's content type."""
        kind = {"content-type": "application/json"} if self.body else {}
        return {**kind, **dict(self.headers)}


AddressLookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, best first. Raises OSError."""


async def look_up_addresses(host: str, port: int) -> Sequence[str]:
    """Look up the addresses of a web page's host with the system resolver."""
    found = await anyio.getaddrinfo(host, port, type=SOCK_STREAM)
    return tuple(dict.fromkeys(place[0] for *_, place in found))


class HttpxWeb:
    """The web as this machine reaches it; errors are OSError with readable messages."""

    def __init__(
        self,
        *,
        allow_private: Literal["yes", "no"] = "no",
        env: Mapping[str, str] | None = None,
        addresses: AddressLookup = look_up_addresses,
    ) -> None:
        self._private = allow_private
        self._env = os.environ if env is None else env
        self._addresses = addresses
        self._tls: SSLContext | None = None

    async def fetch(self, url: str, *, limit: int, timeout: float) -> WebPage:
        """Get a page, following redirects on the same host only.

        A redirect to another host is the page: its status, and the URL that it points to.
        """
        return await self.send(url, WebRequest(), limit=limit, timeout=timeout)

    async def send(self, url: str, message: WebRequest, *, limit: int, timeout: float) -> WebPage:
        """Send a request with headers or a body; redirects are handled as in `fetch`."""
        try:
            with anyio.fail_after(timeout):
                return await self._follow_redirects(_prefer_https(url), limit, message)
        except TimeoutError:
            raise TimeoutError(f"no complete response within {timeout:g} s") from None

    async def _follow_redirects(self, url: str, limit: int, message: WebRequest) -> WebPage:
        for _ in range(MAX_REDIRECTS):
            page = await self._fetch_once(url, limit, message)
            if (
                not 300 <= page.status < 400
                or parse_target(page.url).host != parse_target(url).host
            ):
                return page
            url = page.url
        raise OSError(f"it redirects more than {MAX_REDIRECTS} times")

    async def _fetch_once(self, url: str, limit: int, message: WebRequest) -> WebPage:
        to, proxy = parse_target(url), self._proxy_for(url)
        addresses = await self._addresses_to_dial(to, proxy)
        problem = OSError(f"cannot resolve host {to.host}")
        async with await self._create_web_client(proxy) as client:
            for address in addresses:
                try:
                    return await _exchange_page(client, url, message, address=address, limit=limit)
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    problem = OSError(unreachable_error(to, error).message)
                except httpx2.HTTPError as error:
                    raise OSError(connection_lost_error(error).message) from None
        raise problem

    async def _addresses_to_dial(self, to: ConnectionTarget, proxy: str) -> Sequence[str]:
        """Return the addresses that may be dialled; a proxy resolves the name itself."""
        try:
            found = await self._addresses(to.host, to.port)
        except (OSError, UnicodeError):
            if proxy:
                return (to.host,)
            raise OSError(f"cannot resolve host {to.host}") from None
        allowed = [a for a in found if self._private == "yes" or is_public_address(a)]
        if found and not allowed:
            raise OSError(f"{to.host} is on a private network ({found[0]}), which is not allowed")
        return (to.host,) if proxy else allowed

    def _proxy_for(self, url: str) -> str:
        return find_proxy(url, self._env)

    async def _create_web_client(self, proxy: str) -> httpx2.AsyncClient:
        try:
            self._tls = self._tls or await anyio.to_thread.run_sync(
                create_full_tls_context, self._env
            )
        except UserError as fault:
            raise OSError(str(fault)) from None
        return httpx2.AsyncClient(
            proxy=proxy or None,
            trust_env=False,
            verify=self._tls,
            timeout=httpx2.Timeout(None, connect=FETCH_CONNECT_TIMEOUT),
            headers=FETCH_HEADERS,
        )


async def _exchange_page(
    client: httpx2.AsyncClient, url: str, message: WebRequest, *, address: str, limit: int
) -> WebPage:
    """Fetch a web page from one address, under the host name of its URL."""
    parts = urlsplit(url)
    async with client.stream(
        "POST" if message.body else "GET",
        httpx2.URL(url).copy_with(host=address),
        headers={"host": parts.netloc, **message.all_headers},
        content=message.body or None,
        extensions={"sni_hostname": parts.hostname or ""},
    ) as reply:
        status = reply.status_code
        if 300 <= status < 400 and "location" in reply.headers:
            return WebPage(_prefer_https(urljoin(url, reply.headers["location"])), status, "", b"")
        body = bytearray()
        async for chunk in reply.aiter_bytes():
            body += chunk
            if len(body) > limit:
                break
        mime = reply.headers.get("content-type", "")
        return WebPage(url, status, mime, bytes(body[:limit]), truncated=len(body) > limit)


def is_public_address(address: str) -> bool:
    """Return whether a web server's address is public, even if embedded in another."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        teredo = ip.teredo[1] if ip.teredo else None
        translated = ip in IPv6Network("64:ff9b::/96") and IPv4Address(int(ip) & 0xFFFFFFFF)
        wrapped = ip.ipv4_mapped or ip.sixtofour or teredo or translated
        if not wrapped and ip not in IPv6Network("2000::/3"):
            return False
        ip = wrapped or ip
    return ip.is_global and not ip.is_multicast


def _prefer_https(url: str) -> str:
    """Return a web page's URL with https, unless it names a port or this machine."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.port is not None or is_local_url(url):
        return url
    return parts._replace(scheme="https").geturl()
