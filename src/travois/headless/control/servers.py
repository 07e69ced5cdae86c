"""Control requests that list, toggle, add and remove MCP servers.

The head of the request does not change, which keeps the prompt cache: calls to a removed server are
refused, and added tools are announced at the end. Only in a session that started without servers
does the first one change the head, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import Json, JsonObject
from travois.compose import mcp
from travois.compose.session import load_workspace
from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.core.json import as_object
from travois.headless.control.driven_session import DrivenSession
from travois.headless.control.mcp import HostMcpServer
from travois.headless.control.messages import ControlRequest
from travois.mcp.tools import McpServerConfig as Configured

if TYPE_CHECKING:
    from travois.mcp.connection import McpConnection


ADDED_SERVER_TIMEOUT = 10.0
"""Seconds the client waits for servers that it added."""
NO_SERVERS_AT_START = "this session started without MCP servers: try again between turns"
NAME_TAKEN = "an MCP server with this name already exists"
HOST_SERVER_TOO_LATE = "SDK servers must be named when the session starts"


async def answer_mcp_status(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the status of all MCP servers."""
    mcp_servers = driven.session.runtime.mcp_servers
    waiting: list[Json] = [
        {"name": name, "status": "pending", "error": "approve it with `travois mcp approve`"}
        for name in mcp_servers.waiting
    ]
    own = [server.full_status() for server in driven.servers.values()]
    return {"mcpServers": [*own, *(_connection_json(link) for link in mcp_servers.links), *waiting]}


def _connection_json(link: McpConnection) -> JsonObject:
    """Describe a configured MCP server and its tools to the client."""
    server = link.server
    told: JsonObject = {
        "name": server.name,
        "status": mcp.server_status(link),
        "scope": server.level,
        "config": _server_config(server),
    }
    if link.state == "failed":
        return told | {"error": link.failure_reason}
    tools: list[Json] = [
        {"name": one.name, "description": one.description or ""} for one in link.offers
    ]
    return {**told, "serverInfo": dict(link.info), "tools": tools}


def _server_config(server: Configured) -> JsonObject:
    """Return an MCP server's command or URL, without its environment and headers (secrets)."""
    if server.argv:
        return {"type": "stdio", "command": server.argv[0], "args": list(server.argv[1:])}
    return {"type": server.kind, "url": server.url}


async def answer_reconnect(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Reconnect an MCP server for a control request."""
    server = _find_driven_server(driven, request.server_name)
    await (server.connect() if isinstance(server, HostMcpServer) else server.reconnect())
    ready, why = _connection_state(server)
    if not ready:
        raise UserError(f"{request.server_name} cannot be reached", why=why)
    return {}


def _connection_state(server: HostMcpServer | McpConnection) -> tuple[bool, str]:
    """Return whether an MCP server is connected, and its error."""
    if isinstance(server, HostMcpServer):
        return server.status == "connected", server.error
    return server.state == "ready", server.failure_reason


async def answer_toggle(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Enable or disable an MCP server for a control request; disabled, it refuses calls."""
    server = _find_driven_server(driven, request.server_name)
    if isinstance(server, HostMcpServer):
        server.status = "connected" if request.enabled else "disabled"
    else:
        server.on = request.enabled
    return {}


def _find_driven_server(driven: DrivenSession, name: str) -> HostMcpServer | McpConnection:
    """Find an MCP server by name for a control request; raise `UserError` if there is none."""
    links = {link.server.name: link for link in driven.session.runtime.mcp_servers.links}
    found = driven.servers.get(name) or links.get(name)
    if found is None:
        raise UserError(f"There is no MCP server {name!r}")
    return found


async def answer_mcp_message(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Handle a notification of an SDK server; its tools stay as they were at the start."""
    _find_driven_server(driven, request.speaker)
    if as_object(request.message).get("method") == "notifications/tools/list_changed":
        told = f"the tools of {request.speaker} changed; the next session has them"
        write_stderr(f"travois: {told}\n")
    return {}


async def answer_set_servers(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Replace all MCP servers added by control requests; those from the start stay."""
    wanted = request.servers or {}
    removed = [name for name in driven.added if name not in wanted]
    for name in removed:
        _remove_server(driven, name)
    there = {*driven.added, *driven.servers}
    fresh = {name: tree for name, tree in wanted.items() if name not in there}
    errors = {name: why for name in fresh if (why := _reason_not_to_add(driven, name, fresh[name]))}
    asked = {name: tree for name, tree in fresh.items() if name not in errors}
    links = _start_servers(driven, asked, errors) if asked else ()
    with anyio.move_on_after(ADDED_SERVER_TIMEOUT):
        for link in links:
            await link.wait_until_started()
    errors |= {link.server.name: link.failure_reason for link in links if link.state == "failed"}
    added: list[Json] = [link.server.name for link in links]
    return {"added": added, "removed": list[Json](removed), "errors": dict[str, Json](errors)}


def _reason_not_to_add(driven: DrivenSession, name: str, tree: object) -> str:
    """Return why an MCP server cannot be added by the client; empty if it can."""
    mcp_servers = driven.session.runtime.mcp_servers
    if as_object(tree).get("type") == "sdk":
        return HOST_SERVER_TOO_LATE
    # The first server adds the MCP tools to the head, which must not change within a turn.
    if mcp_servers.tools is None and driven.session.running:
        return NO_SERVERS_AT_START
    return NAME_TAKEN if name in (link.server.name for link in mcp_servers.links) else ""


def _start_servers(
    driven: DrivenSession, trees: JsonObject, errors: dict[str, str]
) -> Iterable[McpConnection]:
    """Start the client's MCP servers in the background; record why others cannot be used."""
    runtime = driven.session.runtime
    assert runtime.agent.runtime.background is not None
    place, loaded = load_workspace(driven.options)
    given = msgspec.json.encode({"mcpServers": trees}).decode()
    listed = mcp.find_configured_servers(
        place, loaded, replace(driven.options, mcp=(given,), strict_mcp=True)
    )
    if runtime.mcp_servers.tools is None and listed.servers:
        begun = mcp.add_mcp_to_session(runtime.agent, place, loaded)
        runtime.mcp_servers = replace(
            begun, waiting=runtime.mcp_servers.waiting, notices=runtime.mcp_servers.notices
        )
    made = mcp.add_mcp_servers(runtime.mcp_servers, listed.servers) if listed.servers else ()
    for link in made:
        scope = driven.added[link.server.name] = anyio.CancelScope()
        runtime.agent.runtime.background(partial(_keep_connection, link, scope))
    runtime.mcp_servers = replace(runtime.mcp_servers, links=(*runtime.mcp_servers.links, *made))
    names = {link.server.name for link in made}
    lost = [name for name in trees if name not in names]
    errors |= {name: "; ".join(listed.notices) or "invalid configuration" for name in lost}
    return made


async def _keep_connection(link: McpConnection, scope: anyio.CancelScope) -> None:
    with scope:
        await link.keep_alive()


def _remove_server(driven: DrivenSession, name: str) -> None:
    """Stop an MCP server for a control request; the model is told that its tools are gone."""
    runtime = driven.session.runtime
    driven.added.pop(name).cancel()
    for link in runtime.mcp_servers.links:
        link.on = link.on and link.server.name != name
    left = tuple(link for link in runtime.mcp_servers.links if link.server.name != name)
    runtime.mcp_servers = replace(runtime.mcp_servers, links=left)
