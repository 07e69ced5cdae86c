"""The MCP SDK: importing it, and telling its errors apart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import anyio

from travois.core.display_text import escape_invisible
from travois.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from pydantic import BaseModel


with lazy_imports():
    import httpx2
    import mcp_types
    from mcp.client import auth
    from mcp.shared import exceptions

    from travois.files import installation


MAX_ERROR_CHARS = 300


def load_sdk() -> str:
    """Import the MCP SDK; return why that fails, empty if it does not."""
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return f"the MCP SDK is not installed: {installation.extra_command('mcp')}"
    logger = logging.getLogger("mcp")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return ""


def sdk_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that an MCP server or its transport can raise in the SDK."""
    ways = (OSError, RuntimeError, ValueError, RecursionError, TimeoutError)
    streams = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return (exceptions.MCPError, auth.OAuthFlowError, httpx2.HTTPError, *ways, *streams)


def find_root_cause(error: BaseException) -> BaseException:
    """Return the error that caused a failure of the MCP SDK."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return find_root_cause(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


def describe_error(error: BaseException) -> str:
    """Describe an MCP failure's root cause on one line."""
    first = find_root_cause(error)
    return escape_invisible(" ".join((str(first) or type(first).__name__).split()))[
        :MAX_ERROR_CHARS
    ]


def is_connection_closed(error: BaseException) -> bool:
    """Return whether an error means that the connection to the MCP server is closed."""
    first = find_root_cause(error)
    if isinstance(first, exceptions.MCPError):
        return first.error.code == mcp_types.CONNECTION_CLOSED
    return isinstance(first, anyio.ClosedResourceError | anyio.BrokenResourceError)


def may_have_run(error: BaseException) -> bool:
    """Return whether a failed MCP request may have taken effect anyway."""
    first = find_root_cause(error)
    return not isinstance(first, exceptions.MCPError) or first.error.code in (
        mcp_types.INTERNAL_ERROR,
        mcp_types.PARSE_ERROR,
    )


def is_undelivered_call(error: BaseException) -> bool:
    """Return whether an MCP tool call never reached its server.

    If a later request, such as one for changes, finds nobody, that says nothing about the call.
    """
    found = find_root_cause(error)
    if not isinstance(found, httpx2.ConnectError | httpx2.ConnectTimeout):
        return False
    try:
        return b'"tools/call"' in found.request.content
    except (RuntimeError, httpx2.RequestNotRead):  # it belongs to no request, or to none of ours
        return False


def to_wire_json(value: BaseModel) -> str:
    """Return an MCP SDK value as the JSON that is sent."""
    return value.model_dump_json(by_alias=True, exclude_none=True)
