"""MCP servers whose tools are always loaded, with cached definitions for a fast start.

A head is fixed before a server has started. So it has the definitions of the last session; if they
no longer hold, the model is told as of any change of a tool. Nobody waits for tools that only ask
to be always loaded themselves: they are, from the second session on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from travois.core.tokens import estimate_tokens
from travois.mcp.connection import McpConnection, McpHost, read_cached_offers
from travois.mcp.tools import McpServerConfig, McpToolOffer, collect_mcp_tools

FIRST_START_SECONDS = 10.0
"""Seconds that a session waits for a server with no cached tools."""


async def load_always_on_tools(
    links: Sequence[McpConnection],
    host: McpHost,
    *,
    room: int,
    report_start: Callable[[str], None] = lambda text: None,
) -> tuple[str, ...]:
    """Load the MCP tools that belong in the request head, and return notices for the user.

    `room` is how many tokens all tools may take, if some are to be loaded only where they fit.
    `report_start` is called with what the session waits for.
    """
    notices: list[str] = []

    async def load_offers(link: McpConnection) -> None:
        link.offers = read_cached_offers(link.server, host.tool_cache_folder)
        if link.offers or link.server.standing == "some":
            return
        report_start(f"Starting the MCP server {link.server.name}")
        link.offers = await _fetch_offers(link.server, host)
        if not link.offers:
            why = "did not list its tools in time, so they are not always loaded in this session"
            notices.append(f"server {link.server.name} {why}")

    async with anyio.create_task_group() as group:
        for link in links:
            group.start_soon(load_offers, link)
    size = sum(
        estimate_tokens(t.name + t.description + t.schema)
        for t in collect_mcp_tools(links).values()
    )
    for link in links:
        whole = link.server.standing == "all" or (
            link.server.standing == "fitting" and size <= room
        )
        link.offers = tuple(offer for offer in link.offers if whole or offer.is_always_loaded)
    return tuple(notices)


async def _fetch_offers(server: McpServerConfig, host: McpHost) -> tuple[McpToolOffer, ...]:
    """Start an MCP server only to fetch its tool list."""
    link = McpConnection(server, host)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        with anyio.move_on_after(FIRST_START_SECONDS):
            await link.wait_until_started()
        group.cancel_scope.cancel()
    return link.offers
