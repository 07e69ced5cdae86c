"""MCP servers of a session: configured, connected, and announced to the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import Json
from travois.compose.open_session import Workspace
from travois.compose.options import Options
from travois.compose.permissions import compose_permissions
from travois.context.switch_model import switch_to_model
from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import Changed, User
from travois.core.models import ModelCard as Card
from travois.core.view import awaits_model
from travois.engine.agent import Agent, AgentTools, World
from travois.engine.tool_definitions import build_tool_specs
from travois.lazy_imports import lazy_imports
from travois.mcp import config
from travois.mcp.announce import AnnouncedServer, announce_servers
from travois.mcp.config import always_on_tool_share, build_mcp_policy
from travois.permissions.decide import Permissions
from travois.permissions.rules import PermissionRule, is_tool_denied
from travois.ports.tool import AnyTool, ToolError
from travois.ports.world import UserWarned
from travois.process.local_processes import LocalProcesses
from travois.sandbox.policy import SandboxPolicy
from travois.sessions.session import Session
from travois.settings.schema import LoadedSettings
from travois.settings.sources import SettingsPlaces, parse_setting_sources
from travois.tools.tool_search import create_own_tool_search

if TYPE_CHECKING:
    from travois.mcp.connection import McpConnection, McpHost
    from travois.mcp.tools import McpPrompt, McpServer, McpServerConfig, McpTools

with lazy_imports():
    from travois.mcp import always_on, connection
    from travois.mcp import tools as mcp_tools
    from travois.sandbox import policy


RESOURCES_TOOL = "ListMcpResources"
LOGIN_COMMAND = "travois mcp login"
NEW_SERVERS_NOTICE = (
    "MCP servers were added since this session began; the next session can use them"
)


class McpServers(msgspec.Struct, frozen=True):
    """The MCP servers of a session."""

    tools: McpTools | None = None
    links: tuple[McpConnection, ...] = ()
    waiting: tuple[str, ...] = ()
    """Servers of the workspace that the user has not agreed to."""
    notices: tuple[str, ...] = ()
    around: McpHost | None = None

    def head_tools(self, loaded: LoadedSettings, own: Iterable[AnyTool] = ()) -> dict[str, AnyTool]:
        """Return the tools in the head for all servers, and for our own rare tools."""
        if self.tools is None:
            head = create_own_tool_search(own)
        else:
            self.tools.own = tuple(tool for tool in own if tool.deferred)
            head = (*self.tools.head_tools, *self.tools.standing)
        return {tool.name: tool for tool in head if not is_tool_denied(loaded.rules, tool.name)}


def find_configured_servers(
    workspace: Workspace, loaded: LoadedSettings, options: Options
) -> config.McpServerDiscovery:
    """Find the MCP servers that are configured here."""
    where = SettingsPlaces(workspace.home, workspace.project.root, workspace.cwd, loaded.root)
    return config.find_mcp_servers(
        where,
        os.environ,
        levels=parse_setting_sources(options.sources),
        given=options.mcp,
        only="given" if options.strict_mcp or options.bare else "all",
        plugins=loaded.plugins,
        admission=build_mcp_policy(loaded.settings),
    )


async def compose_mcp(
    workspace: Workspace,
    loaded: LoadedSettings,
    options: Options,
    *,
    world: World,
    session: Session,
    card: Card,
    bounds: SandboxPolicy | None = None,
    report_start: Callable[[str], None] = lambda text: None,
) -> McpServers:
    """Compose a session's MCP servers; most start only when needed."""
    listed = find_configured_servers(workspace, loaded, options)
    left = tuple(entry.name for entry in listed.waiting)
    if not _has_mcp_tools(session) and (not listed.servers or session.view.epoch is not None):
        fresh = (NEW_SERVERS_NOTICE,) if listed.servers else ()
        return McpServers(waiting=left, notices=(*listed.notices, *fresh))
    around = compose_mcp_host(workspace, loaded, world, session, bounds=bounds)
    made = connection.create_connections(listed.servers, around)
    room = int(card.window * always_on_tool_share(os.environ))
    heard = await always_on.load_always_on_tools(made, around, room=room, report_start=report_start)
    return McpServers(_build_mcp_tools(made, loaded), made, left, (*listed.notices, *heard), around)


def compose_mcp_host(
    workspace: Workspace,
    loaded: LoadedSettings,
    world: World,
    session: Session,
    *,
    bounds: SandboxPolicy | None = None,
) -> connection.McpHost:
    """Compose the parts that all MCP servers of a session share."""
    assert isinstance(world.processes, LocalProcesses)
    folder = workspace.home.path / "mcp"
    rights = compose_permissions(loaded, workspace.cwd, own=workspace.home.folders)
    return connection.McpHost(
        world.processes,
        rights.folders,
        logs=folder / "logs",
        tokens=folder / "tokens",
        environ=os.environ,
        sandbox=lambda shown: (
            policy.build_program_profile(bounds, rights, shown=shown) if bounds else None
        ),
        sandboxed=loaded.settings.sandbox.mcp_servers,
        complain=lambda text: session.emit(UserWarned(text)),
    )


def _build_mcp_tools(made: tuple[McpConnection, ...], loaded: LoadedSettings) -> mcp_tools.McpTools:
    """Build the tools of MCP servers, without those that permission rules deny."""
    return mcp_tools.McpTools(made, hidden=lambda name: is_tool_denied(loaded.rules, name))


def add_mcp_to_session(agent: Agent, workspace: Workspace, loaded: LoadedSettings) -> McpServers:
    """Add MCP servers to a session that started without any; its request head changes."""
    around = compose_mcp_host(
        workspace, loaded, agent.world, agent.session, bounds=agent.permissions.sandbox
    )
    mcp_servers = McpServers(_build_mcp_tools((), loaded), around=around)
    head, tools = (
        agent.session.view.epoch,
        mcp_servers.head_tools(loaded, agent.tools.by_name.values()),
    )
    assert head is not None
    known = {spec.name for spec in head.tools}
    added = build_tool_specs(tuple(tool for name, tool in tools.items() if name not in known))
    both = tuple(sorted((*head.tools, *added), key=lambda spec: spec.name))
    switch_to_model(agent, replace(head, tools=both, why="asked for", unbind=False))
    every = replace(agent.tools, by_name={**agent.tools.by_name, **tools})
    agent.use_tools(compose_mcp_tools(every, mcp_servers, agent.session))
    agent.permissions.guard = allow_server_tools(agent.permissions.guard, mcp_servers)
    pin_definitions(agent.session, mcp_servers)
    return mcp_servers


def add_mcp_servers(
    mcp_servers: McpServers, servers: tuple[McpServerConfig, ...]
) -> tuple[McpConnection, ...]:
    """Connect more MCP servers; nothing is started yet."""
    assert mcp_servers.tools is not None and mcp_servers.around is not None
    made = connection.create_connections(servers, mcp_servers.around)
    mcp_servers.tools.servers |= {link.server.name: link for link in made}
    return made


def _has_mcp_tools(session: Session) -> bool:
    """Return whether a resumed session's request head has the MCP tools."""
    epoch = session.view.epoch
    return epoch is not None and any(tool.name == RESOURCES_TOOL for tool in epoch.tools)


def compose_mcp_tools(tools: AgentTools, mcp_servers: McpServers, session: Session) -> AgentTools:
    """Compose an agent's tools with those of MCP servers."""
    if mcp_servers.tools is None:
        return tools
    mcp_tools = mcp_servers.tools
    mcp_tools.warn = lambda text: session.emit(UserWarned(text))
    return replace(
        tools,
        find_mcp_tool=mcp_tools.find_tool,
        announce_mcp=partial(_announce_servers, mcp_tools),
        restate_mcp=partial(_restate_servers, mcp_tools),
    )


def allow_server_tools(rights: Permissions, mcp_servers: McpServers) -> Permissions:
    """Add rules that allow the MCP tools named in the user's own files."""
    return replace(rights, rules=(*rights.rules, *_list_allow_rules(mcp_servers.links)))


def _list_allow_rules(links: tuple[McpConnection, ...]) -> Iterable[PermissionRule]:
    """Yield allow rules for the MCP tools of servers with a unique name."""
    keys = [link.server.key for link in links]
    for server in (link.server for link in links if keys.count(link.server.key) == 1):
        for tool in server.free:
            yield PermissionRule(f"mcp__{server.key}__{tool}", "", "allow", server.origin)


def pin_definitions(session: Session, mcp_servers: McpServers) -> None:
    """Pin the MCP tool definitions that the head contains."""
    if mcp_servers.tools is None:
        return
    head = {spec.name for spec in session.view.epoch.tools} if session.view.epoch else set[str]()
    shown = [tool for name, tool in mcp_servers.tools.all_tools().items() if name in head]
    for server in sorted({tool.server for tool in shown}):
        pins = {tool.name: tool.digest for tool in shown if tool.server == server}
        if mcp_tools.PIN_PREFIX + server not in session.state:
            kept = msgspec.json.encode(AnnouncedServer(tools=pins)).decode()
            session.append(Changed(mcp_tools.PIN_PREFIX + server, kept))


def _announce_servers(servers_tools: McpTools, agent: Agent) -> None:
    """Announce MCP server changes to the model before the next prompt, if there are any."""
    session = agent.session
    for server_link in servers_tools.servers.values():
        server_link.set_folders(agent.permissions.guard.folders)
    if not agent.turn.inbox and not awaits_model(session.view):
        return
    here = mcp_tools.describe_server_states(servers_tools.servers.values())
    known = {name: mcp_tools.read_announced(session.state, name) for name in here}
    note, after = announce_servers(here, tuple(servers_tools.all_tools().values()), known)
    for server, what in after.items():
        session.append(
            Changed(f"{mcp_tools.PIN_PREFIX}{server}", msgspec.json.encode(what).decode())
        )
    if note:
        agent.turn.inbox.appendleft(User((Text(note),), origin="note"))


def _restate_servers(servers_tools: McpTools) -> tuple[Text, ...]:
    """Build the note that announces all MCP servers and their tools again."""
    note, _ = announce_servers(
        mcp_tools.describe_server_states(servers_tools.servers.values()),
        tuple(servers_tools.all_tools().values()),
        dict[str, AnnouncedServer](),
    )
    return (Text(note),) if note else ()


# --- what people and programs are told -----------------------------------------------------------


def list_server_statuses(mcp_servers: McpServers) -> list[Json]:
    """Return the status of each MCP server, in Claude Code's words."""
    found: list[Json] = [
        {"name": link.server.name, "status": server_status(link), "source": link.server.level}
        for link in mcp_servers.links
    ]
    return [*found, *({"name": name, "status": "needs-approval"} for name in mcp_servers.waiting)]


def server_status(link: McpConnection) -> str:
    """Return an MCP server's status, in Claude Code's words."""
    if not link.on:
        return "disabled"
    if link.state == "failed" and LOGIN_COMMAND in link.failure_reason:
        return "needs-auth"
    return {"ready": "connected", "starting": "pending", "failed": "failed"}[link.state]


def list_server_rows(mcp_servers: McpServers) -> list[tuple[str, str, str, str]]:
    """Return each MCP server with its state, tools and origin."""
    found = [
        (
            link.server.name,
            link.state,
            str(len(link.offers)),
            link.failure_reason or link.server.origin,
        )
        for link in mcp_servers.links
    ]
    return found + [
        (name, "waits", "", "`travois mcp approve` allows it") for name in mcp_servers.waiting
    ]


def list_resource_uris(mcp_servers: McpServers) -> list[str]:
    """Return the MCP servers' resources, as a prompt mentions them."""
    return [f"{link.server.name}:{uri}" for link in mcp_servers.links for uri in link.held]


def list_mcp_prompts(mcp_servers: McpServers) -> dict[str, tuple[McpServer, McpPrompt]]:
    """Return the MCP servers' prompts, by slash command name."""
    return {
        f"mcp__{link.server.key}__{prompt.name}": (link, prompt)
        for link in mcp_servers.links
        for prompt in link.prompts
    }


async def expand_mcp_prompt(mcp_servers: McpServers, name: str, typed: str) -> str:
    """Return the text of an MCP server's prompt; raises `UserError` if there is none."""
    servers = mcp_servers.tools.servers.values() if mcp_servers.tools else ()
    for server_link in servers:
        if name.startswith(f"mcp__{server_link.server.key}__"):
            await server_link.wait_until_started()
    known = list_mcp_prompts(mcp_servers).get(name)
    if known is None:
        raise UserError(f"No MCP server has a prompt {name}", fix="/mcp lists the servers.", code=1)
    server_link, prompt = known
    words = typed.split(maxsplit=max(0, len(prompt.fields) - 1)) if prompt.fields else []
    try:
        return await server_link.get_prompt(
            prompt.name, dict(zip(prompt.fields, words, strict=False))
        )
    except ToolError as refusal:
        raise UserError(f"/{name} failed", why=str(refusal), code=1) from None
