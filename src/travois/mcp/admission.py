"""What settings say of servers of tools: which may be used, and which were agreed to."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from travois.core.json import rows, string, table
from travois.settings.schema import Json, Settings

if TYPE_CHECKING:
    from travois.mcp.lenders import Server

PROJECT = ".mcp.json"
"""The file of a workspace whose servers a user may agree to, or not want, by name."""


class Admission(msgspec.Struct, frozen=True):
    """Servers by name or by what they are, and those of `.mcp.json` by name alone."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    everything: bool = False
    """Whether the user agreed to all servers of `.mcp.json` files."""

    def settled(self, name: str, origin: str) -> bool:
        """Whether nobody need be asked about a server of a workspace."""
        agreed = self.everything or name in self.agreed
        return self.off(name, origin) or (_listed(origin) and agreed)

    def off(self, name: str, origin: str) -> bool:
        """Whether the user does not want a server of a workspace."""
        return _listed(origin) and name in self.unwanted

    def refusal(self, server: Server) -> str:
        """Why a server may not be used; empty if it may."""
        if any(_means(text, server) for text in self.denied):
            return "deniedMcpServers has it"
        if self.allowed and not any(_means(text, server) for text in self._fitting(server)):
            return "allowedMcpServers does not have it"
        return ""

    def _fitting(self, server: Server) -> tuple[str, ...]:
        """What counts for such a server: a list that says what servers are goes before names."""
        key = "serverCommand" if server.argv else "serverUrl"
        return tuple(text for text in self.allowed if key in _entry(text)) or self.allowed


def admission(settings: Settings) -> Admission:
    """What these settings say."""
    return Admission(
        settings.allowed_mcp_servers,
        settings.denied_mcp_servers,
        settings.disabled_mcpjson_servers,
        agreed=settings.enabled_mcpjson_servers,
        everything=settings.enable_all_project_mcp_servers,
    )


def _listed(origin: str) -> bool:
    return os.path.basename(origin) == PROJECT


def _entry(text: str) -> Json:
    try:
        return table(msgspec.json.decode(text)) if text.startswith("{") else {"serverName": text}
    except msgspec.DecodeError:
        return {}


def _means(text: str, server: Server) -> bool:
    entry = _entry(text)
    url = string(entry.get("serverUrl"))
    return (
        entry.get("serverName") == server.name
        or (bool(server.argv) and tuple(rows(entry.get("serverCommand"))) == server.argv)
        or bool(url and server.url and fnmatchcase(server.url, url))
    )
