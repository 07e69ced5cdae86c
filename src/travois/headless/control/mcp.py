"""MCP servers in the client (SDK servers), reached through control messages.

Both kinds of the protocol work: with a handshake, or stateless with its data in each request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import msgspec

from travois.compat.claude_json import Json, JsonObject
from travois.core.errors import UserError
from travois.core.json import as_object
from travois.headless.control.messages import HostConnection, HostDeclined
from travois.mcp.tools import McpCallResult, McpToolOffer, wrap_mcp_tools
from travois.ports.tool import AnyTool, ToolError
from travois.version import __version__

HANDSHAKE_VERSION = "2025-11-25"
STATELESS_VERSION = "2026-07-28"
NO_HANDSHAKE_CODES = (-32601, -32022)
"""Error codes of servers without a handshake."""
CONNECT_SECONDS = 30.0
"""Seconds a server has to list its tools."""
MAX_TOOL_PAGES = 50
CLIENT_INFO: JsonObject = {"name": "travois", "version": __version__}
META_PREFIX = "io.modelcontextprotocol/"
STATELESS_META: JsonObject = {
    f"{META_PREFIX}protocolVersion": STATELESS_VERSION,
    f"{META_PREFIX}clientCapabilities": {},
    f"{META_PREFIX}clientInfo": CLIENT_INFO,
}


class McpErrorBody(msgspec.Struct, frozen=True):
    """The error of a JSON-RPC reply."""

    code: int = 0
    message: str = ""


class McpReply(msgspec.Struct, frozen=True):
    """A JSON-RPC reply."""

    result: msgspec.Raw = msgspec.Raw(b"{}")
    error: McpErrorBody | None = None


class McpEnvelope(msgspec.Struct, frozen=True):
    """A JSON-RPC reply inside a control response."""

    mcp_response: McpReply = McpReply()


class ToolsPage(msgspec.Struct, frozen=True, rename="camel"):
    """One page of a server's tools."""

    tools: tuple[McpToolOffer, ...] = ()
    next_cursor: str | None = None


class HostMcpError(Exception):
    """An error returned by a server."""

    def __init__(self, trouble: McpErrorBody) -> None:
        super().__init__(trouble.message)
        self.code = trouble.code


class HostMcpServer:
    """An MCP server in the client."""

    def __init__(self, connection: HostConnection, name: str) -> None:
        self.name = name
        self.status = "pending"
        self.error = ""
        self.info: JsonObject = {}
        self.offers: tuple[McpToolOffer, ...] = ()
        self._connection = connection
        self._count = 0
        self._meta: JsonObject = {}

    async def connect(self) -> None:
        """Connect and list the tools; a server that fails has none."""
        self.status, self.error = "failed", f"no answer within {CONNECT_SECONDS:g} s"
        try:
            with anyio.move_on_after(CONNECT_SECONDS):
                await self._initialize_server()
                self.offers = await self._list_tools()
                self.status, self.error = "connected", ""
        except (HostMcpError, HostDeclined, msgspec.DecodeError) as error:
            self.error = str(error)

    async def call_tool(self, tool: str, args: dict[str, Any]) -> McpCallResult:
        """Call one of the server's tools."""
        if self.status == "disabled":
            raise ToolError(f"The MCP server {self.name} is disabled.")
        params: JsonObject = {"name": tool, "arguments": args}
        try:
            result = await self._request("tools/call", params)
        except HostMcpError as failed:
            raise ToolError(f"The MCP server {self.name} returned an error: {failed}") from None
        if as_object(msgspec.json.decode(result)).get("resultType") == "input_required":
            raise ToolError(f"{tool} asks for more input, which is not supported here.")
        return msgspec.json.decode(result, type=McpCallResult)

    def brief_status(self) -> Json:
        """Return the name and status."""
        return {"name": self.name, "status": self.status}

    def full_status(self) -> JsonObject:
        """Return the full status (Claude Code's field names)."""
        told: JsonObject = {"name": self.name, "status": self.status, "config": {"type": "sdk"}}
        if self.status == "failed":
            return told | {"error": self.error}
        tools: list[Json] = [{"name": one.name} for one in self.offers]
        return {**told, "serverInfo": self.info, "tools": tools}

    async def _initialize_server(self) -> None:
        params: JsonObject = {
            "protocolVersion": HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": CLIENT_INFO,
        }
        try:
            hello = await self._request("initialize", params)
        except HostMcpError as failed:
            if failed.code not in NO_HANDSHAKE_CODES:
                raise
            self._meta = STATELESS_META
            hello = await self._request("server/discover", {})
        else:
            self._notify("notifications/initialized", {})
        known = as_object(as_object(msgspec.json.decode(hello)).get("serverInfo"))
        self.info = {"name": str(known.get("name", "")), "version": str(known.get("version", ""))}

    async def _list_tools(self) -> tuple[McpToolOffer, ...]:
        found: list[McpToolOffer] = []
        cursor: str | None = None
        for _ in range(MAX_TOOL_PAGES):
            params: JsonObject = {"cursor": cursor} if cursor else {}
            page = msgspec.json.decode(await self._request("tools/list", params), type=ToolsPage)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return tuple(found)

    async def _request(self, method: str, params: JsonObject) -> msgspec.Raw:
        self._count += 1
        id = self._count
        body = self._build_message(method, params) | {"id": id}
        try:
            answer = await self._connection.request("mcp_message", self._wrap_message(body))
        except anyio.get_cancelled_exc_class():
            self._notify("notifications/cancelled", {"requestId": id, "reason": "stopped"})
            raise
        reply = msgspec.json.decode(answer, type=McpEnvelope).mcp_response
        if reply.error is not None:
            raise HostMcpError(reply.error)
        return reply.result

    def _notify(self, method: str, params: JsonObject) -> None:
        self._connection.notify(
            "mcp_message", self._wrap_message(self._build_message(method, params))
        )

    def _build_message(self, method: str, params: JsonObject) -> JsonObject:
        meta: JsonObject = {"_meta": self._meta} if self._meta else {}
        return {"jsonrpc": "2.0", "method": method, "params": params | meta}

    def _wrap_message(self, message: JsonObject) -> JsonObject:
        return {"server_name": self.name, "message": message}


def find_host_servers(configs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of SDK servers in `--mcp-config` texts."""
    found: list[str] = []
    for text in configs:
        if not text.lstrip().startswith("{"):
            continue
        try:
            servers = as_object(as_object(msgspec.json.decode(text)).get("mcpServers"))
        except msgspec.DecodeError as error:
            raise UserError("--mcp-config is not JSON", why=str(error)) from None
        found += [name for name, told in servers.items() if as_object(told).get("type") == "sdk"]
    return tuple(found)


async def connect_host_servers(
    connection: HostConnection, wanted: tuple[str, ...]
) -> dict[str, HostMcpServer]:
    """Connect to all the client's MCP servers at once; failures show in their status."""
    servers = {name: HostMcpServer(connection, name) for name in dict.fromkeys(wanted)}
    async with anyio.create_task_group() as group:
        for server in servers.values():
            group.start_soon(server.connect)
    return servers


def list_host_tools(servers: Iterable[HostMcpServer]) -> tuple[AnyTool, ...]:
    """Return all tools of the client's MCP servers under unique names."""
    found: dict[str, AnyTool] = {}
    for server in servers:
        for tool in wrap_mcp_tools(server.name, server.offers, server.call_tool, taken=found):
            found[tool.name] = tool
    return tuple(found.values())
