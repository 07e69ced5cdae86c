"""Settings of Claude Code: managed files, and the keys that apply in Travois."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from travois.compat.claude_keys import explain_unsupported_key
from travois.core.models import Effort
from travois.settings.schema import ModeName
from travois.settings.validate import SettingsLayer, is_known_key

SUPPORTED_CLAUDE_KEYS = (
    "permissions.",
    "env.",
    "sandbox.",
    "context.",
    "memory.",
    "statusLine.",
    "model",
    "effortLevel",
    "maxMcpOutputTokens",
    "disableAllHooks",
    *("claudeMd", "claudeMdExcludes"),
    "outputStyle",
    "instructions",
    "providers.",
    "enabledPlugins.",
    "pluginConfigs.",
    "agent",
    *("skillOverrides.", "skillListing", "disableSkillShellExecution"),
    *("fallbackModels", "availableModels", "deniedModels", "apiKeyHelper", "otelHeadersHelper"),
    *("language", "attribution.", "tui.", "worktree.", "companyAnnouncements", "plansDirectory"),
    *("cleanupPeriodDays", "fileCheckpointingEnabled", "disabledMcpjsonServers"),
    *("allowedMcpServers", "deniedMcpServers", "maxDepth", "maxEffortLevel"),
    "maxOutputTokens",
)
MCP_CONSENT_KEYS = frozenset(("enableAllProjectMcpServers", "enabledMcpjsonServers"))
"""What a user's own file may agree to; in a workspace, trust is asked for instead."""
HTTP_HOOK_KEYS = frozenset(("allowedHttpHookUrls", "httpHookAllowedEnvVars"))
CHECKED_CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "permissions.defaultMode": ("mode", ModeName.__args__),
    "effortLevel": ("effort", Effort.__args__),
}
"""Settings of which the other agent may know more than we do."""


def managed_claude_settings(etc: Path) -> Iterator[Path]:
    """Yield the administrator's settings files of Claude Code, weakest first."""
    mac = sys.platform == "darwin"
    folder = Path("/Library/Application Support/ClaudeCode") if mac else etc / "claude-code"
    yield folder / "managed-settings.json"
    yield from sorted((folder / "managed-settings.d").glob("*.json"))


def adapt_claude_layer(layer: SettingsLayer) -> SettingsLayer:
    """Keep Claude Code settings that apply here; report those whose absence would mislead."""
    if not layer.foreign:
        return layer
    agreed = MCP_CONSENT_KEYS if layer.is_from_user else frozenset[str]()
    fine = {key for key in layer.values if _is_supported_key(key) or key in agreed}
    values = {
        key: _stringify_env_value(key, value) for key, value in layer.values.items() if key in fine
    }
    left = (
        (key, explain_unsupported_key(key))
        for key, said in layer.values.items()
        if said and key not in fine
    )
    notices = [
        *layer.notices,
        *(f"{layer.locate_key(key)} has no effect: {w}" for key, w in left if w),
    ]
    for key, (what, known_here) in CHECKED_CHOICES.items():
        if key in values and values[key] not in known_here:
            why = f"unknown {what} {values.pop(key)!r}"
            notices.append(f"{layer.locate_key(key)} is ignored: {why}")
    return replace(layer, values=values, notices=tuple(notices))


def _is_supported_key(key: str) -> bool:
    """Return whether a Claude Code setting applies in Travois."""
    group = key in ("permissions", "sandbox", "env")
    return is_known_key(key) and (
        group or key.startswith(SUPPORTED_CLAUDE_KEYS) or key in HTTP_HOOK_KEYS
    )


def _stringify_env_value(key: str, value: object) -> object:
    """Convert values of environment variables to text: Claude Code also takes numbers."""
    plain = key.startswith("env.") and isinstance(value, int | float)
    return (
        str(value).lower() if isinstance(value, bool) and plain else str(value) if plain else value
    )
