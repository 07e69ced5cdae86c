"""The HTTP and SOCKS proxy through which a sandboxed command reaches only its allowed hosts.

A name is looked up once, its addresses are checked, and the connection goes to a checked address: a
second lookup could answer differently. Each command has a proxy of its own, so that its list
applies to it alone and a refusal is known to be its own. Other commands of the session share the
network in which the proxy listens, so a client needs the proxy's password.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from hmac import compare_digest
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec
from anyio.abc import ByteReceiveStream
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

from travois.lazy_imports import lazy_imports
from travois.permissions.hosts import rule_allows_url, rule_mentions_url
from travois.providers.http.client import TcpStream, open_tcp
from travois.providers.http.fetch import AddressLookup, is_public_address, look_up_addresses
from travois.sandbox import bridge

if TYPE_CHECKING:
    from concurrent.futures import Future

with lazy_imports():
    import idna


# Requests of sandboxed programs to the proxy: by CONNECT, plain HTTP, or SOCKS5.


MAX_HEAD_BYTES = 64 * 1024
HOST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{HOST_LABEL}\.)*(?!\d+\Z|0x[0-9a-f]*\Z){HOST_LABEL}")
"""A name of letters, digits and hyphens; one that ends in a number would be an address."""
HOST_AND_PORT = re.compile(rb"(.*?)(?::(\d{1,5}))?", re.DOTALL)
HOP_BY_HOP_HEADERS = (b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade")
"""Headers about one connection; those that begin with `proxy-` are too."""
REFUSAL_CODES = {"denied": (b"\2", b"403 Forbidden"), "failed": (b"\4", b"502 Bad Gateway")}
PROXY_USER = "travois"
"""The user name that goes with the proxy's password; clients require one."""
AUTH_REQUIRED_REPLY = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="travois"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
SOCKS_REPLY_TAIL = b"\0\1\0\0\0\0\0\0"


class ProxyRequest(msgspec.Struct, frozen=True):
    """A client's request to reach a host, with the bytes to send to it and to answer the client."""

    style: Literal["http", "socks"]
    host: bytes
    port: int
    first: bytes = b""
    granted: bytes = b""

    def render_refusal(self, why: Literal["denied", "failed"], words: str) -> bytes:
        """Render a refusal in the protocol of the request."""
        code, status = REFUSAL_CODES[why]
        if self.style == "socks":
            return b"\5" + code + SOCKS_REPLY_TAIL
        text = f"{words}\n".encode()
        size = str(len(text)).encode()
        kind = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
        return b"HTTP/1.1 %b\r\n%bContent-Length: %b\r\n\r\n%b" % (status, kind, size, text)


def normalise_host(name: str) -> str:
    """Normalise a host name, or an allowed-host rule of the proxy, as it is looked up."""
    labels = name.lower().removesuffix(".").split(".")
    try:
        return ".".join(p if p.isascii() else idna.encode(p, uts46=True).decode() for p in labels)
    except idna.IDNAError:
        return ""


def parse_host_name(host: bytes) -> str:
    """Return a valid host name from a proxy request; empty for an address or other characters."""
    name = normalise_host(host.decode("utf-8", "replace"))
    return name if HOST_NAME.fullmatch(name) else ""


async def read_proxy_request(
    inlet: BufferedByteReceiveStream, client: TcpStream, *, password: str = ""
) -> ProxyRequest:
    """Read a proxy client's request. Raises ValueError if unsupported or without the password."""
    first = await inlet.receive_exactly(1)
    if first == b"\5":
        return await _read_socks_request(inlet, client, password)
    head = first + await inlet.receive_until(b"\r\n\r\n", MAX_HEAD_BYTES)
    line, *headers = head.split(b"\r\n")
    if password and not any(_has_password(header, password) for header in headers):
        await client.send(AUTH_REQUIRED_REPLY)
        raise ValueError("wrong proxy password")
    method, _, rest = line.partition(b" ")
    target, _, version = rest.rpartition(b" ")
    if method == b"CONNECT":
        host, port = _split_host_port(target, 443)
        return ProxyRequest(
            "http", host, port, granted=b"HTTP/1.1 200 Connection established\r\n\r\n"
        )
    if not target.lower().startswith(b"http://"):
        raise ValueError("neither CONNECT nor http://")
    authority, path = re.fullmatch(rb"([^/?#]*)(.*)", target[7:], re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess] - it matches everything
    host, port = _split_host_port(authority, 80)
    path = path if path.startswith(b"/") else b"/" + path
    kept = [line for line in headers if line and not _is_hop_header(line)]
    lines = [b"%b %b %b" % (method, path, version), b"Host: " + authority, *kept]
    return ProxyRequest("http", host, port, b"\r\n".join([*lines, b"Connection: close", b"", b""]))


def _has_password(header: bytes, password: str) -> bool:
    """Return whether a proxy header contains the password, as basic authentication."""
    name, _, value = header.partition(b":")
    told = value.strip().removeprefix(b"Basic ").strip()
    right = b64encode(f"{PROXY_USER}:{password}".encode())
    return name.strip().lower() == b"proxy-authorization" and compare_digest(told, right)


def _is_hop_header(line: bytes) -> bool:
    name = line.partition(b":")[0].strip().lower()
    return name in HOP_BY_HOP_HEADERS or name.startswith(b"proxy-")


def _split_host_port(text: bytes, port: int) -> tuple[bytes, int]:
    """Split a validated `host:port` of a proxy request; use the default port if none is given."""
    found = HOST_AND_PORT.fullmatch(text)
    assert found is not None
    return found[1], int(found[2] or port)


async def _read_socks_request(
    inlet: BufferedByteReceiveStream, client: TcpStream, password: str
) -> ProxyRequest:
    """Read a SOCKS5 proxy request, with user name and password if the proxy has one."""
    count = await inlet.receive_exactly(1)
    way = b"\2" if password else b"\0"
    if way not in await inlet.receive_exactly(count[0]):
        await client.send(b"\5\xff")
        raise ValueError("no common authentication method")
    await client.send(b"\5" + way)
    if password:
        await _check_socks_password(inlet, client, password)
    _, command, _, kind = await inlet.receive_exactly(4)
    size = {1: 4, 4: 16}.get(kind) or (await inlet.receive_exactly(1))[0]
    host, port = await inlet.receive_exactly(size), await inlet.receive_exactly(2)
    if command != 1 or kind not in (1, 3, 4):
        await client.send(b"\5\7" + SOCKS_REPLY_TAIL)
        raise ValueError("only CONNECT is supported")
    name = host if kind == 3 else _format_address(host)
    number = int.from_bytes(port, "big")
    return ProxyRequest("socks", name, number, granted=b"\5\0" + SOCKS_REPLY_TAIL)


async def _check_socks_password(
    inlet: BufferedByteReceiveStream, client: TcpStream, password: str
) -> None:
    """Check a SOCKS5 client's user name and password. Raises ValueError if they are wrong."""
    _, size = await inlet.receive_exactly(2)
    user = await inlet.receive_exactly(size)
    told = await inlet.receive_exactly((await inlet.receive_exactly(1))[0])
    right = compare_digest(user + b":" + told, f"{PROXY_USER}:{password}".encode())
    await client.send(b"\1\0" if right else b"\1\1")
    if not right:
        raise ValueError("wrong proxy password")


def _format_address(address: bytes) -> bytes:
    return str(ip_address(address)).encode()


PROXY_TIMEOUT_SECONDS = 20.0
"""Seconds for a client to send its request, and for a host to accept the connection."""
MAX_CONNECTIONS = 64
"""The most connections of one command at a time; the others wait."""
MAX_REFUSALS = 50
NO_PROXY_VARIABLES = {
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""Variables that make programs reach servers of the session without the proxy."""
METADATA_ADDRESSES = ("168.63.129.16",)
"""Public addresses that answer only the machines of one cloud, with data about themselves."""


def is_reachable_address(address: str) -> bool:
    """Return whether the proxy may connect a sandboxed command to this address at all."""
    return is_public_address(address) and address not in METADATA_ADDRESSES


class CommandProxy:
    """The proxy of one command, with its allowed hosts; `fd` is passed into the sandbox."""

    def __init__(self, hosts: tuple[str, ...], barred: tuple[str, ...] = ()) -> None:
        self.hosts = tuple(f"domain:{normalise_host(host)}" for host in hosts)
        self.barred = tuple(f"domain:{normalise_host(host)}" for host in barred)
        self.password = os.urandom(16).hex()
        self.outside, self._inside = socket.socketpair()
        self.outside.setblocking(False)
        self.refused: tuple[str, ...] = ()
        """Messages about the hosts that the command was refused."""
        self.task: Future[None] | None = None

    @property
    def fd(self) -> int:
        """The descriptor that the bridge in the sandbox needs."""
        return self._inside.fileno()

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which the command finds the proxy; the bridge fills in the port."""
        address = f"http://{PROXY_USER}:{self.password}@127.0.0.1:0"
        return {**dict.fromkeys(bridge.PROXY_VARIABLES, address), **NO_PROXY_VARIABLES}

    def argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command with the bridge before it."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", bridge.__file__, str(self.fd), *command)

    def close_inner_end(self) -> None:
        """Close our copy of the inner end after passing it on."""
        self._inside.close()

    def close(self) -> None:
        """Stop the proxy of this command."""
        self._inside.close()
        if self.task is not None:
            self.task.cancel()

    def add_refusal(self, words: str) -> None:
        """Record a refusal."""
        if words not in self.refused and len(self.refused) < MAX_REFUSALS:
            self.refused += (words,)


class NetworkProxy:
    """The thread, with an event loop of its own, that serves the proxies of all commands."""

    def __init__(
        self,
        *,
        addresses: AddressLookup = look_up_addresses,
        judge: Callable[[str], bool] = is_reachable_address,
    ) -> None:
        self._addresses = addresses
        self._judge = judge
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._doors: list[CommandProxy] = []

    def open(self, hosts: tuple[str, ...], barred: tuple[str, ...] = ()) -> CommandProxy:
        """Open a proxy for one command."""
        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal(name="travois-network"))
        door = CommandProxy(hosts, barred)
        door.task = self._portal.start_task_soon(self._serve_command, door)
        self._doors = [other for other in self._doors if other.task and not other.task.done()]
        self._doors.append(door)
        return door

    def close(self) -> None:
        """Stop all proxies and end the thread."""
        for door in self._doors:
            door.close()
        self._stack.close()
        self._portal = None

    async def _serve_command(self, door: CommandProxy) -> None:
        """Take the listening socket that comes out of the sandbox, and serve its clients."""
        with door.outside:
            await anyio.wait_readable(door.outside)
            _, fds, _, _ = socket.recv_fds(door.outside, 1, 1)
        if not fds:
            return
        with socket.socket(fileno=fds[0]) as listener:
            reach = partial(self._connect_if_allowed, door)
            await serve_proxy(listener, reach, refuse=door.add_refusal, password=door.password)

    async def _connect_if_allowed(self, door: CommandProxy, request: ProxyRequest) -> TcpStream:
        """Connect to the host; raises PermissionError if it is not allowed."""
        host = parse_host_name(request.host)
        if not host:
            shown = ascii(request.host[:100])[2:-1]
            raise PermissionError(
                f"{shown} is not a host name; commands can reach hosts only by name"
            )
        if any(rule_mentions_url(rule, f"https://{host}") for rule in door.barred):
            raise PermissionError(f"{host} is on the list of blocked hosts")
        if not any(rule_allows_url(rule, f"https://{host}") for rule in door.hosts):
            raise PermissionError(
                f"{host} is not on the list of allowed hosts; the user can add it"
            )
        try:
            found = await self._addresses(host, request.port)
        except (OSError, UnicodeError):
            raise OSError(f"host {host} not found") from None
        if not any(map(self._judge, found)):
            raise PermissionError(f"{host} is in a private network, which commands may not reach")
        # Only judged addresses are dialled, never the name: a second lookup could differ.
        return await dial_first(host, filter(self._judge, found), request.port)


ConnectHost = Callable[[ProxyRequest], Awaitable[TcpStream]]
"""Connects to a host; raises PermissionError if it may not be reached, else OSError."""


async def serve_proxy(
    listener: socket.socket,
    reach: ConnectHost,
    *,
    refuse: Callable[[str], None],
    password: str = "",
) -> None:
    """Accept a sandboxed command's clients and connect each to the host it asks for."""
    room = anyio.Semaphore(MAX_CONNECTIONS)
    listener.setblocking(False)
    serve = partial(_forward_request, reach=reach, refuse=refuse, password=password)
    async with anyio.create_task_group() as group:
        while True:
            await room.acquire()
            group.start_soon(_handle_client, await _accept_client(listener), serve, room)


async def _handle_client(
    client: TcpStream, serve: Callable[[TcpStream], Awaitable[None]], room: anyio.Semaphore
) -> None:
    """Serve one proxy client, whatever it sends, and free its place."""
    lost = (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead)
    odd = (anyio.DelimiterNotFound, ValueError, TimeoutError)
    try:
        async with client:
            with suppress(*lost, *odd):
                await serve(client)
    finally:
        room.release()


async def _forward_request(
    client: TcpStream, *, reach: ConnectHost, refuse: Callable[[str], None], password: str
) -> None:
    """Read one proxy request, then forward bytes both ways until either side ends."""
    inlet = BufferedByteReceiveStream(client)
    with anyio.fail_after(PROXY_TIMEOUT_SECONDS):
        asked = await read_proxy_request(inlet, client, password=password)
    try:
        server = await reach(asked)
    except PermissionError as error:
        refuse(str(error))
        await client.send(asked.render_refusal("denied", str(error)))
        return
    except OSError as error:
        await client.send(asked.render_refusal("failed", str(error)))
        return
    async with server:
        await (server.send(asked.first) if asked.first else client.send(asked.granted))
        async with anyio.create_task_group() as group:
            group.start_soon(_forward_bytes, inlet, server, group.cancel_scope)
            await _forward_bytes(server, client, group.cancel_scope)
            group.cancel_scope.cancel()  # a client that keeps its side open would block the end


async def dial_first(host: str, addresses: Iterable[str], port: int) -> TcpStream:
    """Connect the proxy to the first of a host's addresses that answers."""
    for address in addresses:
        with suppress(OSError), anyio.fail_after(PROXY_TIMEOUT_SECONDS):
            return await open_tcp(address, port)
    raise OSError(f"{host} does not answer on port {port}")


async def _accept_client(listener: socket.socket) -> TcpStream:
    """Accept the next client of the sandbox's network proxy, retrying after errors."""
    while True:
        await anyio.wait_readable(listener)
        try:
            return TcpStream(listener.accept()[0])
        except OSError:  # the client is gone, or we have too many open files: retry
            await anyio.sleep(0.01)


async def _forward_bytes(
    source: ByteReceiveStream, sink: TcpStream, scope: anyio.CancelScope
) -> None:
    """Forward bytes from one proxy connection to the other; an error ends both directions."""
    try:
        while True:
            await sink.send(await source.receive())
    except anyio.EndOfStream:
        with suppress(OSError):
            await sink.send_eof()
    except anyio.BrokenResourceError:
        scope.cancel()
