"""The slash command /mcp: choose, show, reconnect, enable and disable MCP servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from travois.compose import mcp
from travois.core.errors import UserError
from travois.settings.validate import find_nearest_word
from travois.terminal import escape_controls, format_table
from travois.tui.slash import CommandHost, SlashCommand

if TYPE_CHECKING:
    from travois.mcp.connection import McpConnection


NO_SERVERS = "No MCP servers. Add one with `travois mcp add`."
MCP_WORDS = {
    "list": "all servers as a table",
    "show": "its tools and prompts",
    "reconnect": "connect again",
    "disable": "refuse its tools in this session",
    "enable": "allow its tools again",
}


async def _run_mcp_command(host: CommandHost, typed: str) -> str:
    """Run /mcp: choose, list, show, reconnect, enable or disable MCP servers."""
    if not typed and host.can_choose and _list_names(host):
        typed = await _pick_server_action(host)
        if not typed:
            return ""
    word, _, name = (typed or "list").partition(" ")
    if word == "list":
        return _list_servers(host)
    if word not in MCP_WORDS:
        raise UserError(f"Unknown subcommand: /mcp {word}", fix=f"Use {', '.join(MCP_WORDS)}.")
    if name.strip() in host.session.runtime.mcp_servers.waiting:
        return f"{name.strip()} waits for approval: `travois mcp approve` allows it."
    return await _act_on_server(_find_server(host, name.strip()), word)


async def _pick_server_action(host: CommandHost) -> str:
    """Let the user choose a server and what to do with it, as typed after /mcp; or nothing."""
    rows = mcp.list_server_rows(host.session.runtime.mcp_servers)
    links = _find_links(host)
    offers = [
        (name, _describe_row(links.get(name), tools, where)) for name, _, tools, where in rows
    ]
    picked = await host.pick_option("Which MCP server?", [*offers, ("list", MCP_WORDS["list"])])
    if picked is None or picked == len(rows):
        return "" if picked is None else "list"
    name = rows[picked][0]
    if name not in links:
        return f"show {name}"
    words = ("show", "reconnect", "disable") if links[name].on else ("show", "enable")
    action = await host.pick_option(name, [(word, MCP_WORDS[word]) for word in words])
    return "" if action is None else f"{words[action]} {name}"


def _describe_row(link: McpConnection | None, tools: str, where: str) -> str:
    """Describe a server beside its name: its state, tools, and origin or fault."""
    state = "needs approval" if link is None else mcp.server_status(link)
    count = "" if tools in ("", "0") else _count_tools(int(tools))
    parts = (state, count, where)
    return " · ".join(part for part in parts if part)


def _count_tools(count: int) -> str:
    return f"{count} tool{'' if count == 1 else 's'}"


async def _act_on_server(link: McpConnection, word: str) -> str:
    """Show, reconnect, enable or disable a server; return what came of it."""
    name = link.server.name
    if word == "show":
        return "\n".join(_describe_server(link))
    if word == "reconnect" and not link.on:
        raise UserError(f"{name} is disabled", fix=f"Enable it first: /mcp enable {name}")
    if word != "reconnect":
        link.on = word == "enable"
        return f"{name} is {'enabled' if link.on else 'disabled, until this session ends'}."
    await link.reconnect()
    if link.state != "ready":
        why = escape_controls(link.failure_reason, lines="show")
        raise UserError(f"{name} cannot be reached", why=why)
    return f"{name} is connected: {_count_tools(len(link.offers))}."


def _describe_server(link: McpConnection) -> Iterable[str]:
    """Yield a server's state, origin, tools and prompts."""
    server = link.server
    yield f"{server.name}: {mcp.server_status(link)} ({server.origin})"
    if link.failure_reason and link.state == "failed":
        yield f"  {escape_controls(link.failure_reason, lines='show')}"
    if link.offers:
        rows = [(one.name, _first_line(one.description or "")) for one in link.offers]
        yield format_table([("TOOL", "FOR"), *rows])
    else:
        yield "No tools."
    if link.prompts:
        yield "Prompts: " + ", ".join(f"/mcp__{server.key}__{one.name}" for one in link.prompts)


def _first_line(text: str) -> str:
    return escape_controls(text.strip().partition("\n")[0], lines="show")


def _list_servers(host: CommandHost) -> str:
    """List all MCP servers and their prompts as a table."""
    mcp_servers = host.session.runtime.mcp_servers
    rows = [
        tuple(escape_controls(cell, lines="show") for cell in row)
        for row in mcp.list_server_rows(mcp_servers)
    ]
    if not rows:
        return NO_SERVERS
    said = format_table([("SERVER", "STATE", "TOOLS", "WHERE"), *rows])
    prompts = sorted(f"/{name}" for name in mcp.list_mcp_prompts(mcp_servers))
    return f"{said}\n\nPrompts: {', '.join(prompts)}" if prompts else said


def _find_links(host: CommandHost) -> dict[str, McpConnection]:
    return {link.server.name: link for link in host.session.runtime.mcp_servers.links}


def _list_names(host: CommandHost) -> tuple[str, ...]:
    return (*_find_links(host), *host.session.runtime.mcp_servers.waiting)


def _find_server(host: CommandHost, name: str) -> McpConnection:
    """Find a configured server; raise `UserError` if there is none of this name."""
    links = _find_links(host)
    if name in links:
        return links[name]
    near = find_nearest_word(name, links)
    fix = f"Did you mean {near}?" if near else "/mcp list shows all servers."
    raise UserError(f"There is no MCP server {name!r}", fix=fix)


MCP_COMMAND = SlashCommand(
    "/mcp [WORD NAME]",
    "choose an MCP server; show, reconnect, enable, disable",
    _run_mcp_command,
    lambda desk: tuple(MCP_WORDS),
    when="ever",
)
