"""MCP servers whose tools are always loaded, with cached definitions for a fast start.

A head is fixed before a server has started. So it has the definitions of the last session; if they
are no longer true, that is told as any change of a tool is. For tools that only want to stand there
themselves nobody waits: they do so from the second session on.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from travois.core.tokens import estimate_tokens
from travois.mcp.connection import Link, Surroundings
from travois.mcp.tool_cache import kept
from travois.mcp.tools import Offer, Server, lent

FIRST = 10.0
"""Seconds that a session waits for a server with no cached tools."""


async def stand(links: Sequence[Link], around: Surroundings, *, room: int) -> tuple[str, ...]:
    """Load the tools that belong in the head, and return notices for the user.

    `room` is how many tokens all tools may take, if some are to stand there only where they fit.
    """
    notices: list[str] = []

    async def one(link: Link) -> None:
        link.offers = kept(link.server, around.lent)
        if link.offers or link.server.standing == "some":
            return
        link.offers = await _heard(link.server, around)
        if not link.offers:
            why = "did not list its tools in time, so they are not always loaded in this session"
            notices.append(f"server {link.server.name} {why}")

    async with anyio.create_task_group() as group:
        for link in links:
            group.start_soon(one, link)
    size = sum(estimate_tokens(t.name + t.description + t.schema) for t in lent(links).values())
    for link in links:
        whole = link.server.standing == "all" or (
            link.server.standing == "fitting" and size <= room
        )
        link.offers = tuple(offer for offer in link.offers if whole or offer.always)
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
