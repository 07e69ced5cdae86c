"""Servers whose tools stand in the head: what they said last is kept, so that no start waits twice.

A head is fixed before a server has started. So it has the definitions of the last session; if they
are no longer true, that is told as any change of a tool is.
"""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from travois.host.mcp.kept import kept
from travois.host.mcp.link import Link, Surroundings
from travois.tools.foreign import Offer
from travois.tools.lenders import Server

FIRST = 10.0
"""How many seconds a session waits for a server that it never heard of."""


async def stand(links: Iterable[Link], around: Surroundings) -> tuple[str, ...]:
    """Let servers lend at once what they always lend; returns what the user should know."""
    notices: list[str] = []

    async def one(link: Link) -> None:
        link.offers = kept(link.server, around.lent) or await _heard(link.server, around)
        if not link.offers:
            why = "lent nothing in time, so its tools do not stand in the head of this session"
            notices.append(f"server {link.server.name} {why}")

    async with anyio.create_task_group() as group:
        for link in links:
            if link.server.always:
                group.start_soon(one, link)
    return tuple(notices)


async def _heard(server: Server, around: Surroundings) -> tuple[Offer, ...]:
    """Start it only to be told what it lends."""
    link = Link(server, around)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        with anyio.move_on_after(FIRST):
            await link.settled()
        group.cancel_scope.cancel()
    return link.offers
