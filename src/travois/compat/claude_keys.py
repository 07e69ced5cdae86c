"""Claude Code's settings keys: their equivalents in Travois, and the unsupported ones."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from travois.core.json import as_list, as_object
from travois.settings.schema import Json

CLAUDE_KEY_ALIASES = {
    "sandbox.failIfUnavailable": "sandbox.required",
    "fallbackModel": "fallbackModels",
    "autoCompactEnabled": "context.autoCompact",
    "autoCompactWindow": "context.window",
    "promptCacheTtl": "context.cacheTtl",
    "autoMemoryEnabled": "memory.enabled",
    "autoMemoryDirectory": "memory.directory",
    "autoDreamEnabled": "memory.dream.enabled",
    "editorMode": "tui.vim",
    "theme": "tui.theme",
    "sandbox.network.strictAllowlist": "sandbox.network.mode",
    "sandbox.credentials": "sandbox.filesystem.denyRead",
}
UNMATCHABLE_SERVER = "{}"
"""In a list of servers: one that no server is, so that an empty list lets none through."""
CHARS_PER_TOKEN = 4
"""The approximate number of characters of a token."""
UNSUPPORTED_KEYS = {
    "autoMode": "auto mode follows permission rules and the sandbox; add deny or ask rules",
    "advisorModel": "Travois has no advisor model",
    "fastMode": "fast mode belongs to one provider",
    "fileSuggestion": "Travois completes file names itself",
    "askUserQuestionTimeout": "questions wait until they are answered",
    "forceLoginMethod": "API keys come from environment variables or apiKeyHelper",
    "awsAuthRefresh": "AWS credentials come from environment variables",
    "allowManagedHooksOnly": "disableAllHooks turns other hooks off",
    "allowManagedPermissionRulesOnly": "rules from all sources apply, and deny always wins",
    "sandbox.filesystem.disabled": "the sandbox is either on or off as a whole: sandbox.enabled",
    "sandbox.network.httpProxyPort": "the sandbox runs its own proxy",
    "sandbox.network.socksProxyPort": "the sandbox runs its own proxy",
    "sandbox.network.tlsTerminate": "TLS connections are allowed or blocked, never decrypted",
    "sandbox.network.allowUnixSockets": "sandboxed commands cannot reach Unix sockets",
    "sandbox.network.allowAllUnixSockets": "sandboxed commands cannot reach Unix sockets",
    "worktree.sparsePaths": "a worktree always contains all files",
    "worktree.baseRef": "a worktree always starts from the last commit",
    "bashOutputMaxChars": "context.resultTokens limits it; the full output is saved to a file",
    "subagentPromptCacheTtl": "promptCacheTtl also applies to subagents",
}
"""What people rely on elsewhere and cannot here, each with the reason."""


def translate_claude_keys(values: Json) -> Json:
    """Translate Claude Code's settings keys to ours."""
    found: Json = {}
    for theirs, value in values.items():
        key, meant = (
            CLAUDE_KEY_ALIASES.get(theirs, theirs),
            VALUE_TRANSLATORS.get(theirs, _return_unchanged)(value),
        )
        held = as_list(found.get(key))
        found[key] = [*held, *as_list(meant)] if held else meant
    return found


def explain_unsupported_key(key: str) -> str:
    """Explain why a Claude Code setting has no effect; empty if nobody relies on it."""
    return next(
        (why for name, why in UNSUPPORTED_KEYS.items() if f"{key}.".startswith(f"{name}.")), ""
    )


def _return_unchanged(value: object) -> object:
    return value


def _wrap_in_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _encode_server_list(value: object) -> object:
    """Encode Claude Code's MCP server lists as texts, as our list settings require."""
    texts = [
        one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in as_list(value)
    ]
    return texts or [UNMATCHABLE_SERVER]


def _translate_theme(value: object) -> object:
    return next((word for word in ("dark", "light") if word in str(value)), "auto")


def _credential_paths(value: object) -> object:
    """Return the paths in a table of credential files of Claude Code's sandbox settings."""
    return [
        as_object(one)["path"]
        for one in as_list(as_object(value).get("files"))
        if "path" in as_object(one)
    ]


VALUE_TRANSLATORS: dict[str, Callable[[object], object]] = {
    "fallbackModel": _wrap_in_list,
    "allowedMcpServers": _encode_server_list,
    "deniedMcpServers": _encode_server_list,
    "editorMode": lambda value: value == "vim",
    "theme": _translate_theme,
    "sandbox.network.strictAllowlist": lambda value: "listed" if value is True else "",
    "sandbox.credentials": _credential_paths,
}
