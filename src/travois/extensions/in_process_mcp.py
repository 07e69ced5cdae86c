"""MCP servers that live in the same process, as the MCP SDK makes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.mcp.sdk_errors import describe_error, load_sdk, sdk_errors, to_wire_json
from travois.mcp.tools import McpCallResult, McpToolOffer, wrap_mcp_tools
from travois.ports.tool import AnyTool, ToolError

with lazy_imports():
    import mcp


@asynccontextmanager
async def connect_in_process(name: str, server: Any) -> AsyncGenerator[tuple[AnyTool, ...]]:
    """Connect to a server object of the MCP SDK; yield its tools, which work inside the block."""
    if missing := load_sdk():
        raise UserError(f"The MCP server {name} cannot be used", why=missing)
    async with mcp.Client(server) as client:

        async def call(tool: str, args: dict[str, Any]) -> McpCallResult:
            try:
                result = await client.call_tool(tool, args)
            except sdk_errors() as error:
                raise ToolError(f"{name} failed: {describe_error(error)}") from None
            return msgspec.json.decode(to_wire_json(result), type=McpCallResult)

        listed = await client.list_tools()
        offers = [msgspec.json.decode(to_wire_json(one), type=McpToolOffer) for one in listed.tools]
        yield wrap_mcp_tools(name, offers, call)
