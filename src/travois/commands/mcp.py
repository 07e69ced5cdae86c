"""`travois mcp`: list, test, add, approve and log in to MCP servers."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import msgspec

from travois.compose.mcp import find_configured_servers
from travois.compose.open_session import Workspace
from travois.compose.options import Options
from travois.compose.permissions import compose_permissions
from travois.compose.sandbox import compose_sandbox
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.mcp.config import WEBSOCKET_ERROR, WEBSOCKET_SCHEMES, McpServerDiscovery, user_mcp_file
from travois.mcp.connection import McpConnection, McpHost
from travois.mcp.login import log_in_to_server
from travois.mcp.oauth import TokenStore
from travois.mcp.tools import McpServerConfig, collect_mcp_tools
from travois.permissions.secrets import mask_text, mask_value
from travois.process.local_processes import LocalProcesses
from travois.sandbox.policy import build_program_profile
from travois.sessions import blobs
from travois.settings import trust
from travois.settings.schema import Json, LoadedSettings
from travois.terminal import (
    CommandParsers,
    add_command,
    add_json_flag,
    escape_controls,
    print_json,
    print_line,
    print_table,
    print_warning,
)

MCP_HELP = """\
examples:
  travois mcp                                   list the MCP servers of this folder
  travois mcp add time -- uvx mcp-server-time   add a local server, for all your folders
  travois mcp add docs https://example.org/mcp  add a remote server
  travois mcp test time                         start a server and list its tools
  travois mcp approve                           approve the servers of this repository

Servers are also read from .mcp.json and from the settings of other agents (docs/mcp.md).
"""
MAX_LOG_LINES = 50
"""The number of log lines to show."""


def register_mcp(commands: CommandParsers) -> None:
    """Add the `travois mcp` command and its subcommands."""
    top = add_command(
        commands, "mcp", what="list, test, add, approve and log in to MCP servers", more=MCP_HELP
    )
    top.set_defaults(run=run_mcp_list)
    below = top.add_subparsers(metavar="command", title="commands")
    listing = _add_mcp_command(below, "list", run_mcp_list, what="list MCP servers (the default)")
    show = _add_server_name(
        _add_mcp_command(
            below, "show", run_mcp_show, what="show a server and the file that defines it"
        )
    )
    test = _add_server_name(
        _add_mcp_command(below, "test", run_mcp_test, what="start a server and list its tools")
    )
    for parser in (top, listing, test):
        add_json_flag(parser)
    add_json_flag(show, "print a JSON object")
    add = _add_server_name(
        _add_mcp_command(below, "add", run_mcp_add, what="add a server: a URL, or -- and a program")
    )
    how = "[--scope project] [--env N=V] [--header N=V] [--sse] URL | -- PROGRAM …"
    add.add_argument("words", nargs=REMAINDER, metavar=how)
    _add_server_name(
        _add_mcp_command(
            below, "remove", run_mcp_remove, what="remove a server that was added here"
        )
    )
    _add_mcp_command(
        below, "approve", run_mcp_approve, what="approve the servers of this repository"
    )
    _add_server_name(
        _add_mcp_command(below, "login", run_mcp_login, what="log in to a server in your browser")
    )
    _add_server_name(
        _add_mcp_command(
            below, "logout", run_mcp_logout, what="delete the stored login of a server"
        )
    )
    _add_server_name(
        _add_mcp_command(below, "logs", run_mcp_logs, what="show the standard error of a server")
    )


def _add_mcp_command(
    commands: CommandParsers, name: str, run: Callable[[Namespace], int], *, what: str
) -> ArgumentParser:
    """Add one subcommand of `travois mcp`."""
    parser = add_command(commands, name, what=what)
    parser.set_defaults(run=run)
    return parser


def _add_server_name(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("name", metavar="NAME")
    return parser


def run_mcp_list(args: Namespace) -> int:
    """List MCP servers, also those that wait for approval."""
    _, _, listed = _find_servers_here()
    rows = [(one.name, _describe_server(one), one.level, one.origin) for one in listed.servers]
    rows += [
        (one.name, "needs approval: travois mcp approve", "project", one.origin)
        for one in listed.waiting
    ]
    shown = [tuple(escape_controls(cell, lines="show") for cell in row) for row in rows]
    heads = ("SERVER", "WHAT", "SCOPE", "FROM")
    print_table(heads, shown, none="No MCP servers.", as_json=args.json)
    for notice in listed.notices:
        tell = print_warning if args.json else print_line
        tell(escape_controls(notice, lines="show"))
    return 0


def run_mcp_show(args: Namespace) -> int:
    """Print the configuration of one MCP server."""
    server = _find_server(args.name)
    shown = {
        key: dict.fromkeys(value, "…")
        if key in ("env", "headers", "client", "machine")
        else mask_value(key, value)
        for key, value in msgspec.to_builtins(server).items()
        if value
    }
    if args.json:
        print_json(shown)
        return 0
    for key, value in shown.items():
        print_line(escape_controls(f"{key}: {value}", lines="show"))
    return 0


def run_mcp_test(args: Namespace) -> int:
    """Start an MCP server and list its tools; exit code 1 if it cannot be used."""
    return anyio.run(partial(_test_server, _find_server(args.name), as_json=args.json))


async def _test_server(server: McpServerConfig, *, as_json: bool) -> int:
    """Connect to an MCP server as a session would, and print its tools."""
    place, loaded, _ = _find_servers_here()
    stack = AsyncExitStack()
    sandbox_setup, folder = (
        compose_sandbox(loaded, place, stack, attended=True),
        place.home.path / "mcp",
    )
    processes, rights = (
        LocalProcesses(support=sandbox_setup.support),
        compose_permissions(loaded, place.cwd, own=place.home.folders),
    )
    around = McpHost(
        processes,
        (place.cwd,),
        folder / "logs",
        folder / "tokens",
        dict(os.environ),
        sandbox=lambda shown: (
            build_program_profile(sandbox_setup.bounds, rights, shown=shown)
            if sandbox_setup.bounds
            else None
        ),
        sandboxed=loaded.settings.sandbox.mcp_servers,
    )
    link = McpConnection(server, around)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        await link.wait_until_started()
        group.cancel_scope.cancel()
    await processes.aclose()
    await stack.aclose()
    if link.failure_reason:
        print_line(f"Cannot connect to {server.name}: {link.failure_reason}")
        return 1
    tools = collect_mcp_tools([link])
    rows = [
        (name, escape_controls(tool.description[:100], lines="show"))
        for name, tool in tools.items()
    ]
    heads, none = ("TOOL", "DESCRIPTION"), f"{server.name} has no tools."
    print_table(heads, rows, none=none, as_json=as_json)
    return 0


def run_mcp_add(args: Namespace) -> int:
    """Add an MCP server to the user's or the project's configuration file."""
    how, what = _parse_add_words(args.words)
    if not what:
        fix = f"travois mcp add {args.name} https://…, or travois mcp add {args.name} -- PROGRAM …"
        raise UserError("Give a URL or a program", fix=fix)
    if what[0].startswith(WEBSOCKET_SCHEMES):
        raise UserError(f"Cannot add {args.name}", why=WEBSOCKET_ERROR)
    entry: Json = {"command": what[0], "args": what[1:], "env": _parse_pairs(how.env)}
    if what[0].startswith(("http://", "https://")):
        kind = "sse" if how.sse else "http"
        entry = {"type": kind, "url": what[0], "headers": _parse_pairs(how.header)}
    path = _mcp_config_file(how.scope)
    servers = _read_mcp_config(path)
    servers[args.name] = {key: value for key, value in entry.items() if value}
    _write_mcp_config(path, servers)
    print_line(f"Added {args.name} to {path}.")
    return 0


def _parse_add_words(words: list[str]) -> tuple[Namespace, list[str]]:
    """Split the arguments of `travois mcp add` into options and the URL or program."""
    parser = ArgumentParser("travois mcp add NAME", add_help=False)
    parser.add_argument("--scope", choices=("user", "project"), default="user")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--sse", action="store_true")
    at = 0
    while words[at : at + 1] and words[at].startswith("--") and words[at] != "--":
        at += 1 if words[at] == "--sse" or "=" in words[at] else 2
    what = words[at:]
    return parser.parse_args(words[:at]), what[1:] if what[:1] == ["--"] else what


def run_mcp_remove(args: Namespace) -> int:
    """Remove an MCP server from its configuration file; exit code 1 if it is in none."""
    for path in (_mcp_config_file("user"), _mcp_config_file("project")):
        servers = _read_mcp_config(path)
        if servers.pop(args.name, None) is not None:
            _write_mcp_config(path, servers)
            print_line(f"Removed {args.name} from {path}.")
            return 0
    print_line(f"No file written by `travois mcp add` has a server {args.name}.")
    return 1


def run_mcp_approve(args: Namespace) -> int:
    """Approve the MCP servers of this repository as they are configured now."""
    place, loaded, listed = _find_servers_here()
    wanted = [text for text in loaded.wanted if text.startswith("mcp server ")]
    fresh = {entry.name for entry in listed.waiting}
    for text in wanted:
        print_line(escape_controls(text, lines="show"))
    trust.trust_folder(place.home, loaded.root, wanted, places=loaded.places)
    print_line(f"Approved {len(fresh)} servers." if fresh else "No servers need approval.")
    return 0


def run_mcp_login(args: Namespace) -> int:
    """Log in to an MCP server in the browser and store the tokens."""
    server, (place, _, _) = _find_server(args.name), _find_servers_here()
    if not server.url:
        raise UserError(f"{server.name} is a local program and needs no login")
    if server.machine is not None:
        why = "it is configured with credentials of its own (oauth.grantType)"
        raise UserError(f"{server.name} needs no login", why=why)
    why = anyio.run(log_in_to_server, server, place.home.path / "mcp" / "tokens", _say_and_flush)
    print_line(why or f"Logged in to {server.name}.")
    return 1 if why else 0


def _say_and_flush(text: str) -> None:
    """Print a line of `travois mcp` and flush it, for programs that wait for it."""
    print_line(text)
    sys.stdout.flush()


def run_mcp_logout(args: Namespace) -> int:
    """Delete the stored login of an MCP server; exit code 1 if there was none."""
    server, (place, _, _) = _find_server(args.name), _find_servers_here()
    there = TokenStore(place.home.path / "mcp" / "tokens", server).delete()
    print_line(f"Logged out of {server.name}." if there else "Not logged in.")
    return 0 if there else 1


def run_mcp_logs(args: Namespace) -> int:
    """Print the last lines that a server logged; exit code 1 if it has no log."""
    place, _, _ = _find_servers_here()
    path = place.home.path / "mcp" / "logs" / f"{McpServerConfig(args.name).key}.log"
    if not path.is_file():
        print_line(f"{args.name} has no log.")
        return 1
    for line in path.read_text("utf-8", errors="replace").splitlines()[-MAX_LOG_LINES:]:
        print_line(escape_controls(line))
    return 0


def _find_servers_here() -> tuple[Workspace, LoadedSettings, McpServerDiscovery]:
    """Find the MCP servers that are configured for the current folder."""
    options = Options(cwd=os.getcwd())
    place, loaded = load_workspace(options)
    return place, loaded, find_configured_servers(place, loaded, options)


def _find_server(name: str) -> McpServerConfig:
    """Find a usable MCP server by name; raises `UserError` if it needs approval."""
    _, _, listed = _find_servers_here()
    for one in listed.servers:
        if one.name == name:
            return one
    waits = any(entry.name == name for entry in listed.waiting)
    fix = "Approve it: travois mcp approve" if waits else "`travois mcp` lists the servers."
    raise UserError(f"{name} needs approval" if waits else f"Unknown MCP server {name}", fix=fix)


def _describe_server(server: McpServerConfig) -> str:
    return mask_text(server.url or " ".join(server.argv))


def _mcp_config_file(scope: str) -> Path:
    place, _, _ = _find_servers_here()
    return user_mcp_file(place.home) if scope == "user" else Path(place.project.root, ".mcp.json")


def _read_mcp_config(path: Path) -> Json:
    """Read the MCP servers of a configuration file; none if the file does not exist."""
    if not path.exists():
        return {}
    try:
        tree = msgspec.json.decode(path.read_bytes(), type=dict[str, Json])
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is not valid JSON", why=str(error)) from None
    return tree.get("mcpServers", {})


def _write_mcp_config(path: Path, servers: Json) -> None:
    text = msgspec.json.format(msgspec.json.encode({"mcpServers": servers}), indent=2)
    blobs.replace_file(path, text + b"\n")


def _parse_pairs(words: list[str]) -> dict[str, str]:
    parted = (word.partition("=") for word in words)
    return {name: value for name, _, value in parted}
