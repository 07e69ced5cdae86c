"""Servers of tools, as the rest of the program sees them: what each is, and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Literal, Protocol

import msgspec

from travois.core.json import rows, table
from travois.mcp.announce import Lent, Told
from travois.mcp.foreign import LONGEST, UNSAFE, Answered, Offer, described, named
from travois.ports.world import Env

State = Literal["starting", "ready", "failed"]
Standing = Literal["some", "fitting", "all"]
PINS = "mcp:"
"""State of the session: what was told of a server, as JSON."""
BLANK = re.compile("__+")


class Server(msgspec.Struct, frozen=True):
    """A server as it is configured: a program to start, or an address."""

    name: str
    kind: Literal["stdio", "http", "sse"] = "stdio"
    origin: str = ""
    """The file that names it."""
    level: str = "user"
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    helper: str = ""
    """A command that prints more headers, each time that a connection is made."""
    client: dict[str, str] = {}
    """Who we are to it, where its owner said so beforehand."""
    port: int = 0
    """Where a login has to come back to; 0 if that does not matter."""
    standing: Standing = "some"
    """Which of its tools stand in the head: those that want to, all if there is room, or all."""
    start: float = 30.0
    """How many seconds it may take to start."""
    limit: float = 300.0
    """How many seconds a call may stay silent."""
    only: tuple[str, ...] = ()
    """The tools that are wanted; all if none is named."""
    without: tuple[str, ...] = ()
    sandbox: bool | None = None
    """Whether it runs in the sandbox; none for what the settings say of all servers."""
    free: tuple[str, ...] = ()
    """The tools that the user's own files let run unasked; a star for all."""

    @property
    def key(self) -> str:
        """Its name in those of its tools: only there do two underscores part words."""
        return BLANK.sub("_", UNSAFE.sub("_", self.name)).strip("_")[: LONGEST // 3] or "server"

    def wants(self, tool: str) -> bool:
        """Whether a tool of it is to be used."""
        return tool not in self.without and (not self.only or tool in self.only)


class Prompt(msgspec.Struct, frozen=True):
    """A text that a server has ready, and what it wants to be told for it."""

    name: str
    description: str = ""
    fields: tuple[str, ...] = ()


class Lender(Protocol):
    """One server, whatever becomes of it while the session runs."""

    @property
    def server(self) -> Server: ...

    @property
    def state(self) -> State:
        """Whether it can be asked."""
        ...

    @property
    def why(self) -> str:
        """What went wrong last."""
        ...

    @property
    def about(self) -> str:
        """What it says of itself."""
        ...

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Its tools; those of a server that is gone stay."""
        ...

    @property
    def prompts(self) -> tuple[Prompt, ...]: ...

    async def settled(self) -> None:
        """Wait until it has started, or has failed to."""
        ...

    def move(self, folders: tuple[str, ...]) -> None:
        """Let it know that the workspace is these folders, if it was not."""
        ...

    async def call(self, tool: str, args: dict[str, Any], env: Env) -> Answered:
        """Run one of its tools; raises `Refusal`."""
        ...

    async def resources(self) -> tuple[tuple[str, str], ...]:
        """The addresses of what it has, each with a word on it; raises `Refusal`."""
        ...

    async def read(self, uri: str) -> Answered:
        """One of these; raises `Refusal`."""
        ...

    async def prompt(self, name: str, args: Mapping[str, str]) -> str:
        """A text that it has ready; raises `Refusal`."""
        ...


def lent(
    lenders: Iterable[Lender], *, hidden: Callable[[str], bool] = lambda name: False
) -> dict[str, Lent]:
    """All tools of all servers by name, in an order that hangs on nothing but the names."""
    ordered, found = sorted(lenders, key=lambda one: one.server.name), dict[str, Lent]()
    for lender, key in zip(ordered, _keys(ordered), strict=True):
        offers = {offer.name: offer for offer in reversed(lender.offers)}
        for tool in sorted(offers):
            if lender.server.wants(tool):
                name = named(key, tool, taken=found)
                found[name] = _lent(name, lender.server.name, offers[tool])
    return {name: found[name] for name in sorted(found) if not hidden(name)}


def _keys(lenders: Iterable[Lender]) -> list[str]:
    """The names of servers in those of their tools, whichever of them answer."""
    keys: list[str] = []
    for lender in lenders:
        key = lender.server.key
        mark = blake2b(lender.server.name.encode(errors="replace"), digest_size=3).hexdigest()
        keys.append(f"{key}_{mark}" if key in keys else key)
    return keys


def _lent(name: str, server: str, offer: Offer) -> Lent:
    try:
        given = table(msgspec.json.decode(offer.input_schema))
    except (msgspec.DecodeError, RecursionError):
        given = {}
    needed = rows(given.get("required"))
    fields = (n if n in needed else f"{n}?" for n in table(given.get("properties")))
    schema = msgspec.json.encode({**given, "type": "object"}).decode()
    about = described(offer.description or "")
    return Lent(
        name, server, offer.name, about, schema, tuple(fields), room=offer.room, asks=offer.asks
    )


def told(state: Mapping[str, str], server: str) -> Told:
    """What the model was told of a server."""
    try:
        return msgspec.json.decode(state.get(PINS + server, "{}"), type=Told)
    except msgspec.DecodeError:
        return Told()


def states(lenders: Iterable[Lender]) -> dict[str, str]:
    """How each server does, in words."""
    return {one.server.name: _state(one) for one in lenders}


def _state(lender: Lender) -> str:
    return f"cannot be used ({lender.why})" if lender.state == "failed" else lender.state
