"""The HTTP and SOCKS proxy through which a sandboxed command reaches only its allowed hosts.

A name is looked up once, its addresses are judged, and the connection goes to an address that was
judged: a second lookup could answer differently. Each command has a proxy of its own, so that its
list applies to it alone and a refusal is known to be its own. Other commands of the session share
the network in which the proxy listens, so a client needs the proxy's password.
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

from travois.permissions.hosts import rule_allows_url, rule_mentions_url
from travois.providers.http.client import Tcp, dial
from travois.providers.http.fetch import Lookup, lookup, public
from travois.sandbox import bridge

if TYPE_CHECKING:
    from concurrent.futures import Future


# Requests of sandboxed programs to the proxy: by CONNECT, plain HTTP, or SOCKS5.


HEAD = 64 * 1024
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*(?!\d+\Z|0x[0-9a-f]*\Z){LABEL}")
"""A name of letters, digits and hyphens; one that ends in a number would be an address."""
PLACE = re.compile(rb"(.*?)(?::(\d{1,5}))?", re.DOTALL)
OURS = (b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade")
"""Headers about one connection; those that begin with `proxy-` are too."""
DONE = {"denied": (b"\2", b"403 Forbidden"), "failed": (b"\4", b"502 Bad Gateway")}
USER = "travois"
"""The user name that goes with the proxy's password; clients require one."""
UNKNOWN = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="travois"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
SOCKS_END = b"\0\1\0\0\0\0\0\0"


class Asked(msgspec.Struct, frozen=True):
    """A client's request to reach a host, with the bytes to send to it and to answer the client."""

    style: Literal["http", "socks"]
    host: bytes
    port: int
    first: bytes = b""
    granted: bytes = b""

    def no(self, why: Literal["denied", "failed"], words: str) -> bytes:
        """Render a refusal in the protocol of the request."""
        code, status = DONE[why]
        if self.style == "socks":
            return b"\5" + code + SOCKS_END
        text = f"{words}\n".encode()
        size = str(len(text)).encode()
        kind = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
        return b"HTTP/1.1 %b\r\n%bContent-Length: %b\r\n\r\n%b" % (status, kind, size, text)


def canonical(name: str) -> str:
    """Return a host name, or a rule for hosts, in the letters by which it is looked up."""
    import idna

    labels = name.lower().removesuffix(".").split(".")
    try:
        return ".".join(p if p.isascii() else idna.encode(p, uts46=True).decode() for p in labels)
    except idna.IDNAError:
        return ""


def plain(host: bytes) -> str:
    """Return a valid host name; empty for an address or a name with other characters."""
    name = canonical(host.decode("utf-8", "replace"))
    return name if HOST.fullmatch(name) else ""


async def heard(inlet: BufferedByteReceiveStream, client: Tcp, *, password: str = "") -> Asked:
    """Read the client's request. Raises ValueError if it is unsupported or lacks the password."""
    first = await inlet.receive_exactly(1)
    if first == b"\5":
        return await _socks(inlet, client, password)
    head = first + await inlet.receive_until(b"\r\n\r\n", HEAD)
    line, *headers = head.split(b"\r\n")
    if password and not any(_proves(header, password) for header in headers):
        await client.send(UNKNOWN)
        raise ValueError("wrong proxy password")
    method, _, rest = line.partition(b" ")
    target, _, version = rest.rpartition(b" ")
    if method == b"CONNECT":
        host, port = _place(target, 443)
        return Asked("http", host, port, granted=b"HTTP/1.1 200 Connection established\r\n\r\n")
    if not target.lower().startswith(b"http://"):
        raise ValueError("neither CONNECT nor http://")
    authority, path = re.fullmatch(rb"([^/?#]*)(.*)", target[7:], re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess] - it matches everything
    host, port = _place(authority, 80)
    path = path if path.startswith(b"/") else b"/" + path
    kept = [line for line in headers if line and not _hop(line)]
    lines = [b"%b %b %b" % (method, path, version), b"Host: " + authority, *kept]
    return Asked("http", host, port, b"\r\n".join([*lines, b"Connection: close", b"", b""]))


def _proves(header: bytes, password: str) -> bool:
    """Return whether a header contains the password, as basic authentication."""
    name, _, value = header.partition(b":")
    told = value.strip().removeprefix(b"Basic ").strip()
    right = b64encode(f"{USER}:{password}".encode())
    return name.strip().lower() == b"proxy-authorization" and compare_digest(told, right)


def _hop(line: bytes) -> bool:
    name = line.partition(b":")[0].strip().lower()
    return name in OURS or name.startswith(b"proxy-")


def _place(text: bytes, port: int) -> tuple[bytes, int]:
    found = PLACE.fullmatch(text)
    assert found is not None
    return found[1], int(found[2] or port)


async def _socks(inlet: BufferedByteReceiveStream, client: Tcp, password: str) -> Asked:
    """Read a SOCKS5 request: with user name and password, or without where the proxy has none."""
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
        await client.send(b"\5\7" + SOCKS_END)
        raise ValueError("only CONNECT is supported")
    name = host if kind == 3 else _literal(host)
    number = int.from_bytes(port, "big")
    return Asked("socks", name, number, granted=b"\5\0" + SOCKS_END)


async def _check_socks_password(
    inlet: BufferedByteReceiveStream, client: Tcp, password: str
) -> None:
    """Answer the client's user name and password. Raises ValueError if they are wrong."""
    _, size = await inlet.receive_exactly(2)
    user = await inlet.receive_exactly(size)
    told = await inlet.receive_exactly((await inlet.receive_exactly(1))[0])
    right = compare_digest(user + b":" + told, f"{USER}:{password}".encode())
    await client.send(b"\1\0" if right else b"\1\1")
    if not right:
        raise ValueError("wrong proxy password")


def _literal(address: bytes) -> bytes:
    return str(ip_address(address)).encode()


PATIENCE = 20.0
"""Seconds for a client to send its request, and for a host to accept the connection."""
ROOM = 64
"""The most connections of one command at a time; the others wait."""
REMEMBERED = 50
DIRECT = {
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""Variables that make programs reach servers of the session without the proxy."""
METADATA = ("168.63.129.16",)
"""Public addresses that answer only the machines of one cloud, with data about themselves."""


def reachable(address: str) -> bool:
    """Return whether a command may connect to this address at all."""
    return public(address) and address not in METADATA


class Door:
    """The proxy of one command, with its allowed hosts; `fd` is passed into the sandbox."""

    def __init__(self, hosts: tuple[str, ...], barred: tuple[str, ...] = ()) -> None:
        self.hosts = tuple(f"domain:{canonical(host)}" for host in hosts)
        self.barred = tuple(f"domain:{canonical(host)}" for host in barred)
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
        address = f"http://{USER}:{self.password}@127.0.0.1:0"
        return {**dict.fromkeys(bridge.VARIABLES, address), **DIRECT}

    def argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command with the bridge before it."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", bridge.__file__, str(self.fd), *command)

    def passed(self) -> None:
        """Close our copy of the inner end, once it was passed on."""
        self._inside.close()

    def close(self) -> None:
        """Stop the proxy of this command."""
        self._inside.close()
        if self.task is not None:
            self.task.cancel()

    def refuse(self, words: str) -> None:
        """Record a refusal."""
        if words not in self.refused and len(self.refused) < REMEMBERED:
            self.refused += (words,)


class Network:
    """The thread, with an event loop of its own, that serves the proxies of all commands."""

    def __init__(
        self, *, addresses: Lookup = lookup, judge: Callable[[str], bool] = reachable
    ) -> None:
        self._addresses = addresses
        self._judge = judge
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._doors: list[Door] = []

    def open(self, hosts: tuple[str, ...], barred: tuple[str, ...] = ()) -> Door:
        """Open a proxy for one command."""
        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal(name="travois-network"))
        door = Door(hosts, barred)
        door.task = self._portal.start_task_soon(self._attend, door)
        self._doors = [other for other in self._doors if other.task and not other.task.done()]
        self._doors.append(door)
        return door

    def close(self) -> None:
        """Stop all proxies and end the thread."""
        for door in self._doors:
            door.close()
        self._stack.close()
        self._portal = None

    async def _attend(self, door: Door) -> None:
        """Take the listening socket that comes out of the sandbox, and serve its clients."""
        with door.outside:
            await anyio.wait_readable(door.outside)
            _, fds, _, _ = socket.recv_fds(door.outside, 1, 1)
        if not fds:
            return
        with socket.socket(fileno=fds[0]) as listener:
            reach = partial(self._reach, door)
            await attend(listener, reach, refuse=door.refuse, password=door.password)

    async def _reach(self, door: Door, asked: Asked) -> Tcp:
        """Connect to the host; raises PermissionError if it may not be reached."""
        host = plain(asked.host)
        if not host:
            shown = ascii(asked.host[:100])[2:-1]
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
            found = await self._addresses(host, asked.port)
        except (OSError, UnicodeError):
            raise OSError(f"host {host} not found") from None
        if not any(map(self._judge, found)):
            raise PermissionError(f"{host} is in a private network, which commands may not reach")
        # Only judged addresses are dialled, never the name: a second lookup could differ.
        return await dialled(host, filter(self._judge, found), asked.port)


Reach = Callable[[Asked], Awaitable[Tcp]]
"""Connects to a host; raises PermissionError if it may not be reached, else OSError."""


async def attend(
    listener: socket.socket, reach: Reach, *, refuse: Callable[[str], None], password: str = ""
) -> None:
    """Accept clients and connect each to the host that it asks for."""
    room = anyio.Semaphore(ROOM)
    listener.setblocking(False)
    serve = partial(_serve, reach=reach, refuse=refuse, password=password)
    async with anyio.create_task_group() as group:
        while True:
            await room.acquire()
            group.start_soon(_meet, await _knocked(listener), serve, room)


async def _meet(
    client: Tcp, serve: Callable[[Tcp], Awaitable[None]], room: anyio.Semaphore
) -> None:
    """Serve one client, whatever it sends, and free its place."""
    lost = (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead)
    odd = (anyio.DelimiterNotFound, ValueError, TimeoutError)
    try:
        async with client:
            with suppress(*lost, *odd):
                await serve(client)
    finally:
        room.release()


async def _serve(
    client: Tcp, *, reach: Reach, refuse: Callable[[str], None], password: str
) -> None:
    """Read one request, then forward bytes both ways until either side ends."""
    inlet = BufferedByteReceiveStream(client)
    with anyio.fail_after(PATIENCE):
        asked = await heard(inlet, client, password=password)
    try:
        server = await reach(asked)
    except PermissionError as error:
        refuse(str(error))
        await client.send(asked.no("denied", str(error)))
        return
    except OSError as error:
        await client.send(asked.no("failed", str(error)))
        return
    async with server:
        await (server.send(asked.first) if asked.first else client.send(asked.granted))
        async with anyio.create_task_group() as group:
            group.start_soon(_pump, inlet, server, group.cancel_scope)
            await _pump(server, client, group.cancel_scope)
            group.cancel_scope.cancel()  # a client that keeps its side open would block the end


async def dialled(host: str, addresses: Iterable[str], port: int) -> Tcp:
    """Connect to the first of these addresses that answers."""
    for address in addresses:
        with suppress(OSError), anyio.fail_after(PATIENCE):
            return await dial(address, port)
    raise OSError(f"{host} does not answer on port {port}")


async def _knocked(listener: socket.socket) -> Tcp:
    while True:
        await anyio.wait_readable(listener)
        try:
            return Tcp(listener.accept()[0])
        except OSError:  # the client is gone, or we have too many open files: retry
            await anyio.sleep(0.01)


async def _pump(source: ByteReceiveStream, sink: Tcp, scope: anyio.CancelScope) -> None:
    """Forward bytes and the end of the stream; an error ends both directions."""
    try:
        while True:
            await sink.send(await source.receive())
    except anyio.EndOfStream:
        with suppress(OSError):
            await sink.send_eof()
    except anyio.BrokenResourceError:
        scope.cancel()
