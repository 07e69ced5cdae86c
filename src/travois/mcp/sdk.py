"""The MCP SDK behind small helpers: import, error classification, and listing with limits."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, cast

import anyio
import msgspec

from travois.core.display_text import escape_invisible
from travois.mcp.tools import Offer, Prompt

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp import Client

PAGES = 50
"""Maximum pages requested of one list."""
MANY = 2_000
"""Maximum tools of one server."""
WORDS = 300
ABSENT = "the MCP SDK is not installed: pip install 'travois[mcp]'"


def loaded() -> str:
    """Import the SDK; returns why that fails, or an empty text."""
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return ABSENT
    logger = logging.getLogger("mcp")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return ""


def failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that a server or its transport can make the SDK raise."""
    import httpx2
    from mcp.client.auth import OAuthFlowError
    from mcp.shared.exceptions import MCPError

    ways = (OSError, RuntimeError, ValueError, RecursionError, TimeoutError)
    streams = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return (MCPError, OAuthFlowError, httpx2.HTTPError, *ways, *streams)


def cause(error: BaseException) -> BaseException:
    """Return the first thing that went wrong."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return cause(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


def worded(error: BaseException) -> str:
    """Return the first thing that went wrong, on one line."""
    first = cause(error)
    return escape_invisible(" ".join((str(first) or type(first).__name__).split()))[:WORDS]


def closed(error: BaseException) -> bool:
    """Return whether the way to the server is gone, and not only one answer."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    first = cause(error)
    if isinstance(first, MCPError):
        return first.error.code == CONNECTION_CLOSED
    return isinstance(first, anyio.ClosedResourceError | anyio.BrokenResourceError)


def doubtful(error: BaseException) -> bool:
    """Return whether what failed so may have been done all the same."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import INTERNAL_ERROR, PARSE_ERROR

    first = cause(error)
    return not isinstance(first, MCPError) or first.error.code in (INTERNAL_ERROR, PARSE_ERROR)


def unreached(error: BaseException) -> bool:
    """Return whether a tool call never reached a server.

    That a request after it found nobody, as one for changes does, says nothing of the call.
    """
    import httpx2

    found = cause(error)
    if not isinstance(found, httpx2.ConnectError | httpx2.ConnectTimeout):
        return False
    try:
        return b'"tools/call"' in found.request.content
    except (RuntimeError, httpx2.RequestNotRead):  # it belongs to no request, or to none of ours
        return False


def json(value: BaseModel) -> str:
    """Return a value of the SDK as it goes over the wire."""
    return value.model_dump_json(by_alias=True, exclude_none=True)


async def offers(client: Client) -> tuple[Offer, ...]:
    """Return all tools, page by page, as the server tells of them."""
    found: list[Offer] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        for tool in page.tools:
            schema = msgspec.Raw(msgspec.json.encode(tool.input_schema))
            meta = msgspec.Raw(msgspec.json.encode(tool.meta))
            found.append(Offer(tool.name, tool.description or "", schema, meta))
        cursor = page.next_cursor
        if cursor is None or len(found) > MANY:
            break
    return tuple(found[:MANY])


async def prompts(client: Client) -> tuple[Prompt, ...]:
    """Return the texts that a server has ready."""
    listed = (await client.list_prompts()).prompts[:MANY]
    return tuple(
        Prompt(one.name, one.description or "", tuple(a.name for a in one.arguments or ()))
        for one in listed
    )


async def held(client: Client) -> tuple[str, ...]:
    """Return the addresses of what a server has to read; those that a person can type."""
    try:
        listed = (await client.list_resources()).resources[:MANY]
    except failures():
        return ()
    uris = (str(one.uri) for one in listed)
    return tuple(uri for uri in uris if uri == escape_invisible(uri) and not re.search(r"\s", uri))
