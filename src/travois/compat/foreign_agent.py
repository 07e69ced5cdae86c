"""Other coding agents: the folders and files where each keeps its users' data.

Which agent takes precedence is decided by each feature; only the places are listed here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class ForeignAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Another agent and the places of its files; an empty name means it has none."""

    name: str
    variable: str = ""
    """The environment variable that moves its home."""
    base: str = ""
    """What stands in the place of that variable, below the person's home."""
    inner: str = ""
    """Where its home is below either of them."""
    folder: str
    """Its folder in a project."""
    settings: tuple[str, ...] = ()
    """Its files of settings and MCP servers, from a project's root."""
    servers: str = ""
    """The key of those files that holds MCP servers."""
    commands: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    instructions: str = "AGENTS.md"
    sessions: tuple[str, ...] = ()
    """Patterns of its session files, from its home."""
    resume: str = ""
    """The command that goes on with a session."""

    def find_home(self, environ: Mapping[str, str]) -> Path | None:
        """Return the folder of the user's own files; None if this environment has no place."""
        base = find_config_folder(environ, self.variable, self.base)
        return base / self.inner if base else None

    def home_paths(self, environ: Mapping[str, str], *names: str) -> list[str]:
        """Return these places in its home; none if there is no home."""
        home = self.find_home(environ)
        return [str(home / name) for name in names] if home else []

    def project_paths(self, folder: str, *names: str) -> list[str]:
        """Return these places in its folder of a project."""
        return [os.path.join(folder, self.folder, name) for name in names]


def find_config_folder(environ: Mapping[str, str], variable: str, default: str) -> Path | None:
    """Return another agent's folder: the one that a variable names, else the default."""
    if chosen := environ.get(variable):
        return Path(chosen).expanduser().absolute()
    person = environ.get("HOME", "")
    return Path(person, default) if person.startswith("/") else None


CLAUDE = ForeignAgent(
    name="claude",
    variable="CLAUDE_CONFIG_DIR",
    base=".claude",
    folder=".claude",
    settings=(".claude/settings.json",),
    commands=("commands",),
    agents=("agents",),
    instructions="CLAUDE.md",
    sessions=("projects/*/*.jsonl",),
    resume="claude --resume {id}",
)
CODEX = ForeignAgent(
    name="codex",
    variable="CODEX_HOME",
    base=".codex",
    folder=".codex",
    settings=(".codex/config.toml",),
    servers="mcp_servers",
    commands=("prompts",),
    agents=("agents",),
    sessions=("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl"),
    resume="codex resume {id}",
)
OPENCODE = ForeignAgent(
    name="opencode",
    variable="XDG_CONFIG_HOME",
    base=".config",
    inner="opencode",
    folder=".opencode",
    settings=("opencode.json", "opencode.jsonc", ".opencode/opencode.json"),
    servers="mcp",
    commands=("command", "commands"),
    agents=("agent", "agents"),
    sessions=("storage/session/*/ses_*.json",),
    resume="opencode --session {id}",
)
GEMINI = ForeignAgent(
    name="gemini",
    variable="GEMINI_CLI_HOME",
    inner=".gemini",
    folder=".gemini",
    settings=(".gemini/settings.json",),
    servers="mcpServers",
    commands=("commands",),
    instructions="GEMINI.md",
    sessions=("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
    resume="gemini --resume {id}",
)
QWEN = ForeignAgent(
    name="qwen",
    base=".qwen",
    folder=".qwen",
    settings=(".qwen/settings.json",),
    servers="mcpServers",
    commands=("commands",),
)
PI = ForeignAgent(
    name="pi",
    variable="PI_CODING_AGENT_DIR",
    base=".pi/agent",
    folder=".pi",
    settings=(".pi/mcp.json",),
    servers="mcpServers",
    commands=("prompts",),
    sessions=("sessions/*/*.jsonl",),
    resume="pi --session {id}",
)
CURSOR = ForeignAgent(
    name="cursor", folder=".cursor", settings=(".cursor/mcp.json",), servers="mcpServers"
)
