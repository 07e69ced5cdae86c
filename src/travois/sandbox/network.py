"""The way out of a cage to the hosts on its list, and to nobody else.

A name is looked up once, its addresses are judged, and the connection goes to an address that was
judged: a second lookup could answer differently. Each command has a door of its own, so that its
list holds for it alone and a refusal is known to be its. Other commands of the session share the
network that the door is in, so only who has the door's password gets through.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteReceiveStream
from anyio.streams.buffered import BufferedByteReceiveStream

from travois.permissions.hosts import allows, mentions
from travois.providers.http.client import Tcp, dial
from travois.providers.http.fetch import Lookup, lookup, public
from travois.sandbox import bridge
from travois.sandbox.asking import USER, Asked, canonical, heard, plain

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal

PATIENCE = 20.0
"""How long a client may take to say what it wants, and a host to answer its phone."""
ROOM = 64
"""How many connections one command may have at a time; the others wait."""
REMEMBERED = 50
DIRECT = {
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""Servers of the session are reached without the proxy."""
METADATA = ("168.63.129.16",)
"""Public by its number, yet it answers only the machines of one cloud, about themselves."""


def reachable(address: str) -> bool:
    """Whether a command may talk to this address at all."""
    return public(address) and address not in METADATA


class Door:
    """The way out of one command's cage; `fd` is to be passed into it."""

    def __init__(self, hosts: tuple[str, ...], barred: tuple[str, ...] = ()) -> None:
        self.hosts = tuple(f"domain:{canonical(host)}" for host in hosts)
        self.barred = tuple(f"domain:{canonical(host)}" for host in barred)
        self.password = os.urandom(16).hex()
        self.outside, self._inside = socket.socketpair()
        self.outside.setblocking(False)
        self.refused: tuple[str, ...] = ()
        """Whom the command tried to reach and may not, and why, in words."""
        self.task: Future[None] | None = None

    @property
    def fd(self) -> int:
        """What the bridge inside needs."""
        return self._inside.fileno()

    @property
    def environ(self) -> dict[str, str]:
        """How the command learns of the door; the bridge fills in the port."""
        address = f"http://{USER}:{self.password}@127.0.0.1:0"
        return {**dict.fromkeys(bridge.VARIABLES, address), **DIRECT}

    def argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command with the bridge before it."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", bridge.__file__, str(self.fd), *command)

    def passed(self) -> None:
        """Let go of the inner end: it was passed."""
        self._inside.close()

    def close(self) -> None:
        """Nobody gets out any more."""
        self._inside.close()
        if self.task is not None:
            self.task.cancel()

    def refuse(self, words: str) -> None:
        """Remember a refusal."""
        if words not in self.refused and len(self.refused) < REMEMBERED:
            self.refused += (words,)


class Network:
    """The proxy outside: a thread with a loop of its own, for as long as there are commands."""

    def __init__(
        self, *, addresses: Lookup = lookup, judge: Callable[[str], bool] = reachable
    ) -> None:
        self._addresses = addresses
        self._judge = judge
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._doors: list[Door] = []

    def open(self, hosts: tuple[str, ...], barred: tuple[str, ...] = ()) -> Door:
        """A door for one command."""
        from anyio.from_thread import start_blocking_portal

        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal(name="travois-network"))
        door = Door(hosts, barred)
        door.task = self._portal.start_task_soon(self._attend, door)
        self._doors = [other for other in self._doors if other.task and not other.task.done()]
        self._doors.append(door)
        return door

    def close(self) -> None:
        """Close every door, and end the thread."""
        for door in self._doors:
            door.close()
        self._stack.close()
        self._portal = None

    async def _attend(self, door: Door) -> None:
        """Take the listening socket that comes out of the cage, and let in who knocks."""
        with door.outside:
            await anyio.wait_readable(door.outside)
            _, fds, _, _ = socket.recv_fds(door.outside, 1, 1)
        if not fds:
            return
        with socket.socket(fileno=fds[0]) as listener:
            reach = partial(self._reach, door)
            await attend(listener, reach, refuse=door.refuse, password=door.password)

    async def _reach(self, door: Door, asked: Asked) -> Tcp:
        """A connection to the host; raises PermissionError if it may not be reached."""
        host = plain(asked.host)
        if not host:
            shown = ascii(asked.host[:100])[2:-1]
            raise PermissionError(
                f"{shown} is not the name of a host; commands reach hosts by name"
            )
        if any(mentions(rule, f"https://{host}") for rule in door.barred):
            raise PermissionError(f"{host} is among the hosts that commands may not reach")
        if not any(allows(rule, f"https://{host}") for rule in door.hosts):
            raise PermissionError(
                f"{host} is not on the list of hosts that commands may reach; "
                "the user can put it there"
            )
        try:
            found = await self._addresses(host, asked.port)
        except (OSError, UnicodeError):
            raise OSError(f"there is no host {host}") from None
        if not any(map(self._judge, found)):
            raise PermissionError(f"{host} is in a private network, which commands may not reach")
        return await dialled(host, filter(self._judge, found), asked.port)


Reach = Callable[[Asked], Awaitable[Tcp]]
"""A connection to a host; raises PermissionError if it may not be reached, else OSError."""


async def attend(
    listener: socket.socket, reach: Reach, *, refuse: Callable[[str], None], password: str = ""
) -> None:
    """Let in who knocks, and lead each to the host that it asks for."""
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
            group.cancel_scope.cancel()  # a client that keeps its end for later would block it


async def dialled(host: str, addresses: Iterable[str], port: int) -> Tcp:
    """A connection to the first of these addresses that answers."""
    for address in addresses:
        with suppress(OSError), anyio.fail_after(PATIENCE):
            return await dial(address, port)
    raise OSError(f"{host} does not answer on port {port}")


async def _knocked(listener: socket.socket) -> Tcp:
    while True:
        await anyio.wait_readable(listener)
        try:
            return Tcp(listener.accept()[0])
        except OSError:  # gone again, or we have too many files open: it will be there later
            await anyio.sleep(0.01)


async def _pump(source: ByteReceiveStream, sink: Tcp, scope: anyio.CancelScope) -> None:
    """Pass on what comes, and the end too; whatever breaks ends both directions."""
    try:
        while True:
            await sink.send(await source.receive())
    except anyio.EndOfStream:
        with suppress(OSError):
            await sink.send_eof()
    except anyio.BrokenResourceError:
        scope.cancel()
