"""Servers of tools, as a host sees them, and switches, adds and removes them.

The head of the request does not change for that: what is gone refuses its calls, and what comes is
told at the tail. Only in a session that began without servers, the first one changes it, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import Json, Object
from travois.compose import mcp as lending
from travois.compose.session import prepare
from travois.core.display_text import complain
from travois.core.errors import Fault
from travois.core.json import table
from travois.headless.control.driven_session import Driven
from travois.headless.control.mcp import Server
from travois.headless.control.messages import Request
from travois.mcp.tools import Server as Configured

if TYPE_CHECKING:
    from travois.mcp.connection import Link


ADDED_SERVER_TIMEOUT = 10.0
"""How many seconds the host waits at most for servers that it has added."""
CLOSED = "this session began without servers: ask again between two turns"
TAKEN = "there is a server of that name already"
INSIDE = "a server that lives in the host has to be there from the start"


async def status(driven: Driven, request: Request) -> Object:
    """All servers, and how they do."""
    loan = driven.session.crew.loan
    waiting: list[Json] = [
        {"name": name, "status": "pending", "error": "`travois mcp approve` lets it start"}
        for name in loan.waiting
    ]
    own = [server.told() for server in driven.servers.values()]
    return {"mcpServers": [*own, *(_told(link) for link in loan.links), *waiting]}


def _told(link: Link) -> Object:
    server = link.server
    told: Object = {
        "name": server.name,
        "status": lending.status(link),
        "scope": server.level,
        "config": _config(server),
    }
    if link.state == "failed":
        return told | {"error": link.why}
    tools: list[Json] = [
        {"name": one.name, "description": one.description or ""} for one in link.offers
    ]
    return {**told, "serverInfo": dict(link.info), "tools": tools}


def _config(server: Configured) -> Object:
    """What it is; neither its environment nor its headers, which have secrets."""
    if server.argv:
        return {"type": "stdio", "command": server.argv[0], "args": list(server.argv[1:])}
    return {"type": server.kind, "url": server.url}


async def reconnect(driven: Driven, request: Request) -> Object:
    """Connect to a server anew."""
    server = _server(driven, request.server_name)
    await (server.meet() if isinstance(server, Server) else server.again())
    ready, why = _standing(server)
    if not ready:
        raise Fault(f"{request.server_name} cannot be reached", why=why)
    return {}


def _standing(server: Server | Link) -> tuple[bool, str]:
    if isinstance(server, Server):
        return server.status == "connected", server.error
    return server.state == "ready", server.why


async def toggle(driven: Driven, request: Request) -> Object:
    """A server that is off refuses its calls."""
    server = _server(driven, request.server_name)
    if isinstance(server, Server):
        server.status = "connected" if request.enabled else "disabled"
    else:
        server.on = request.enabled
    return {}


def _server(driven: Driven, name: str) -> Server | Link:
    links = {link.server.name: link for link in driven.session.crew.loan.links}
    found = driven.servers.get(name) or links.get(name)
    if found is None:
        raise Fault(f"There is no server {name!r}")
    return found


async def heard(driven: Driven, request: Request) -> Object:
    """Take note of what a server in the host says unasked; its tools stay those of the start."""
    _server(driven, request.speaker)
    if table(request.message).get("method") == "notifications/tools/list_changed":
        told = f"the tools of {request.speaker} changed; the next session has them"
        complain(f"travois: {told}\n")
    return {}


async def replaced(driven: Driven, request: Request) -> Object:
    """Have exactly these servers besides those that were there from the start."""
    wanted = request.servers or {}
    removed = [name for name in driven.added if name not in wanted]
    for name in removed:
        _remove(driven, name)
    there = {*driven.added, *driven.servers}
    fresh = {name: tree for name, tree in wanted.items() if name not in there}
    errors = {name: why for name in fresh if (why := _against(driven, name, fresh[name]))}
    asked = {name: tree for name, tree in fresh.items() if name not in errors}
    links = _added(driven, asked, errors) if asked else ()
    with anyio.move_on_after(ADDED_SERVER_TIMEOUT):
        for link in links:
            await link.settled()
    errors |= {link.server.name: link.why for link in links if link.state == "failed"}
    added: list[Json] = [link.server.name for link in links]
    return {"added": added, "removed": list[Json](removed), "errors": dict[str, Json](errors)}


def _against(driven: Driven, name: str, tree: object) -> str:
    """Why a server cannot be added; empty if it can."""
    loan = driven.session.crew.loan
    if table(tree).get("type") == "sdk":
        return INSIDE
    if loan.lending is None and driven.session.running:
        return CLOSED
    return TAKEN if name in (link.server.name for link in loan.links) else ""


def _added(driven: Driven, trees: Object, errors: dict[str, str]) -> Iterable[Link]:
    """Start servers beside the session; those that are nothing are told."""
    crew = driven.session.crew
    assert crew.agent.runtime.background is not None
    place, loaded = prepare(driven.options)
    given = msgspec.json.encode({"mcpServers": trees}).decode()
    listed = lending.found(place, loaded, replace(driven.options, mcp=(given,), strict_mcp=True))
    if crew.loan.lending is None and listed.servers:
        begun = lending.begin(crew.agent, place, loaded)
        crew.loan = replace(begun, waiting=crew.loan.waiting, notices=crew.loan.notices)
    made = lending.joined(crew.loan, listed.servers) if listed.servers else ()
    for link in made:
        scope = driven.added[link.server.name] = anyio.CancelScope()
        crew.agent.runtime.background(partial(_kept, link, scope))
    crew.loan = replace(crew.loan, links=(*crew.loan.links, *made))
    names = {link.server.name for link in made}
    lost = [name for name in trees if name not in names]
    errors |= {name: "; ".join(listed.notices) or "it cannot be used" for name in lost}
    return made


async def _kept(link: Link, scope: anyio.CancelScope) -> None:
    with scope:
        await link.keep()


def _remove(driven: Driven, name: str) -> None:
    """End a server; the model hears that it cannot be used any more."""
    crew = driven.session.crew
    driven.added.pop(name).cancel()
    for link in crew.loan.links:
        link.on = link.on and link.server.name != name
    left = tuple(link for link in crew.loan.links if link.server.name != name)
    crew.loan = replace(crew.loan, links=left)
