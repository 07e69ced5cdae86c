"""Language servers of a session: those that are installed and trusted, in the sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.compose.permissions import compose_permissions
from travois.lazy_imports import lazy_imports
from travois.lsp.discovery import (
    LanguageServerConfig,
    describe_project_server,
    find_language_servers,
)
from travois.permissions.rules import ToolUse, is_tool_denied
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.tool import AnyTool
from travois.ports.world import Command, UserWarned
from travois.process.local_processes import LocalProcesses
from travois.sandbox.hidden_files import find_named_folders
from travois.sandbox.policy import SandboxPolicy
from travois.sessions.home import TravoisHome
from travois.sessions.session import Session
from travois.settings import trust
from travois.settings.schema import LoadedSettings

if TYPE_CHECKING:
    from travois.lsp.servers import LanguageServers
    from travois.process.job import StdioConnection

with lazy_imports():
    from travois.lsp import servers as lsp_servers
    from travois.lsp import tool as lsp_tool
    from travois.sandbox import policy

NO_SANDBOX_REASON = "there is no sandbox for it"
NOT_TRUSTED_REASON = "this folder brings it along: `travois trust` allows it"


class FoundServer(msgspec.Struct, frozen=True):
    """A language server that is installed, and why it may not be used; empty if it may."""

    config: LanguageServerConfig
    refused: str = ""


def find_usable_servers(
    loaded: LoadedSettings, home: TravoisHome, *, root: str, is_sandboxed: bool
) -> tuple[FoundServer, ...]:
    """Find the language servers for a folder; of two for the same name, the first usable one.

    A server reads code that nobody has looked at, and most run parts of it. So each needs the
    sandbox, unless the user works without one in a folder that they trust; and the program of a
    project also needs that the user agreed to it.
    """
    agreed = trust.list_agreed_digests(home, loaded.root)
    unwalled = not loaded.settings.sandbox.enabled and loaded.trust == "trusted"
    found = dict[str, FoundServer]()
    for config in find_language_servers(loaded.settings.lsp, os.environ, root=root):
        refused = "" if is_sandboxed or unwalled else NO_SANDBOX_REASON
        if config.origin == "project":
            line = describe_project_server(config, root)
            refused = NO_SANDBOX_REASON if not is_sandboxed else refused
            refused = refused if trust.digest_request(line) in agreed else NOT_TRUSTED_REASON
        if config.name not in found or (found[config.name].refused and not refused):
            found[config.name] = FoundServer(config, refused)
    return tuple(found.values())


def compose_language_servers(
    loaded: LoadedSettings,
    home: TravoisHome,
    processes: LocalProcesses,
    *,
    root: str,
    bounds: SandboxPolicy | None,
    session: Session,
) -> LanguageServers | None:
    """Compose a session's language servers, which start when needed; None if there are none."""
    found = find_usable_servers(loaded, home, root=root, is_sandboxed=bounds is not None)
    configs = tuple(server.config for server in found if not server.refused)
    if not configs:
        return None
    asked = loaded.settings.lsp

    def start_server(
        config: LanguageServerConfig, folder: str, log: Callable[[bytes], None]
    ) -> StdioConnection:
        profile = None
        if bounds is not None:
            profile = _language_server_profile(loaded, home, bounds, config=config, folder=folder)
        return processes.connect_stdio(Command(config.argv, folder, sandbox=profile), log=log)

    return lsp_servers.LanguageServers(
        configs,
        start=start_server,
        report=lambda text: session.emit(UserWarned(text)),
        edit_seconds=asked.edit_seconds,
        request_seconds=asked.request_seconds,
    )


def _language_server_profile(
    loaded: LoadedSettings,
    home: TravoisHome,
    bounds: SandboxPolicy,
    *,
    config: LanguageServerConfig,
    folder: str,
) -> SandboxProfile:
    """Return the sandbox of a language server: it reads the workspace, and changes nothing."""
    rights = compose_permissions(loaded, folder, own=home.folders)
    use = ToolUse("", (), folder)
    profile = policy.build_sandbox_profile(bounds, rights, use, profile="look")
    assert profile is not None, "a given profile always has a sandbox"
    apart = find_named_folders(*config.argv)
    return replace(profile, shown=(*profile.shown, *apart), network="off", hosts=())


def compose_lsp_tools(
    servers: LanguageServers | None, loaded: LoadedSettings, chosen: tuple[str, ...] | None
) -> tuple[AnyTool, ...]:
    """Return the tools of language servers, where there is a server."""
    if servers is None or is_tool_denied(loaded.rules, "LSP"):
        return ()
    tools = lsp_tool.create_lsp_tools(servers)
    return tools if chosen is None or "LSP" in chosen else ()
