"""The browser's only way out: a SOCKS proxy that checks every address.

Redirects, frames, images, sockets and workers all pass through here, so nothing that a page does
leads to a private network. A name is looked up once, and the connection goes to a checked address.
Other programs on this machine that find the port gain nothing by it.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from weakref import WeakSet

import anyio
import anyio.to_thread

from travois.providers.http.client import TcpStream
from travois.providers.http.fetch import AddressLookup, look_up_addresses
from travois.sandbox.network import (
    PROXY_TIMEOUT_SECONDS,
    ProxyRequest,
    dial_first,
    is_reachable_address,
    parse_host_name,
    serve_proxy,
)

LOOPBACK_NAME = re.compile(r"(?:[a-z0-9-]+\.)*localhost|127(?:\.\d{1,3}){3}|::1")
"""Names and addresses of this machine."""
MAX_REFUSALS = 20
SessionSocket = Callable[[int], socket.socket | None]
"""A TCP socket in the network of the session's commands; none if they share none."""


class BrowserProxy:
    """A proxy that lets the browser reach the internet, and this machine while `local` says so."""

    def __init__(
        self,
        local: Callable[[], bool],
        *,
        addresses: AddressLookup = look_up_addresses,
        session: SessionSocket = lambda family: None,
    ) -> None:
        self._local = local
        self._session = session
        self._addresses = addresses
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"socks5://127.0.0.1:{self._listener.getsockname()[1]}"
        self.refused: list[str] = []
        """Whom the browser tried to reach and may not, and why, in words."""
        self._inward = WeakSet[TcpStream]()

    async def serve(self) -> None:
        """Serve connections until cancelled."""
        with self._listener:
            await serve_proxy(self._listener, self._connect, refuse=self._record_refusal)

    def close_local_connections(self) -> None:
        """Close connections to this machine: a browser would reuse them for the next page."""
        for inward in tuple(self._inward):
            inward.disconnect()

    def _record_refusal(self, words: str) -> None:
        if words not in self.refused and len(self.refused) < MAX_REFUSALS:
            self.refused.append(words)

    async def _connect(self, request: ProxyRequest) -> TcpStream:
        name = request.host.decode("latin-1").lower().strip("[]")
        if LOOPBACK_NAME.fullmatch(name):
            if not self._local():
                raise PermissionError(f"{name} is this machine, which other pages may not reach")
            inward = await self._connect_to_session(request.port)
            inward = inward or await dial_first(name, ("127.0.0.1", "::1"), request.port)
            self._inward.add(inward)
            return inward
        found = [
            address
            for address in await self._resolve_host(name, request)
            if is_reachable_address(address)
        ]
        if not found:
            raise PermissionError(f"{name} is in a private network, which is not allowed")
        return await dial_first(name, found, request.port)

    async def _connect_to_session(self, port: int) -> TcpStream | None:
        """Connect to a server that a command of the session started, if any."""
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            try:
                found = await anyio.to_thread.run_sync(self._session, family)
            except OSError:  # the machine may have no IPv6, or the session may just be over
                continue
            if found is not None and await _try_connect(found, (address, port)):
                return TcpStream(found)
        return None

    async def _resolve_host(self, name: str, request: ProxyRequest) -> tuple[str, ...]:
        with suppress(ValueError):
            return (str(ip_address(name)),)
        host = parse_host_name(request.host)
        if not host:
            raise PermissionError(f"{name[:100]!a} is not a host name")
        try:
            return tuple(await self._addresses(host, request.port))
        except (OSError, UnicodeError):
            raise OSError(f"there is no host {host}") from None


async def _try_connect(made: socket.socket, place: tuple[str, int]) -> bool:
    """Try to connect the browser proxy's socket to an address; close it and return False if not."""
    made.setblocking(False)
    code = made.connect_ex(place)
    if code == errno.EINPROGRESS:
        with anyio.move_on_after(PROXY_TIMEOUT_SECONDS):
            await anyio.wait_writable(made)
            code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        made.close()
    return not code
