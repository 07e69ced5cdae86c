"""Claude Code's settings keys: their equivalents in Travois, and the unsupported ones."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from travois.core.json import as_list, as_object
from travois.settings.schema import Json

ALIASES = {
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
NOBODY = "{}"
"""In a list of servers: one that no server is, so that an empty list lets none through."""
LETTERS = 4
"""The approximate number of characters of a token."""
WITHOUT = {
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
    "bashOutputMaxChars": "10,000 characters are shown; the full output is saved to a file",
    "subagentPromptCacheTtl": "promptCacheTtl also applies to subagents",
}
"""What people rely on elsewhere and cannot here, each with the reason."""


def translated(values: Json) -> Json:
    """Translate settings to our keys."""
    found: Json = {}
    for theirs, value in values.items():
        key, meant = ALIASES.get(theirs, theirs), MEANINGS.get(theirs, _same)(value)
        held = as_list(found.get(key))
        found[key] = [*held, *as_list(meant)] if held else meant
    return found


def unlike(key: str) -> str:
    """Explain why a key has no effect; empty if nobody relies on it."""
    return next((why for name, why in WITHOUT.items() if f"{key}.".startswith(f"{name}.")), "")


def _same(value: object) -> object:
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _servers(value: object) -> object:
    """Encode server entries as texts, since lists of settings hold texts."""
    texts = [
        one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in as_list(value)
    ]
    return texts or [NOBODY]


def _theme(value: object) -> object:
    return next((word for word in ("dark", "light") if word in str(value)), "auto")


def _secret(value: object) -> object:
    """The files of a table of credentials; a variable with a secret reaches no command anyway."""
    return [
        as_object(one)["path"]
        for one in as_list(as_object(value).get("files"))
        if "path" in as_object(one)
    ]


MEANINGS: dict[str, Callable[[object], object]] = {
    "fallbackModel": _listed,
    "allowedMcpServers": _servers,
    "deniedMcpServers": _servers,
    "editorMode": lambda value: value == "vim",
    "theme": _theme,
    "sandbox.network.strictAllowlist": lambda value: "listed" if value is True else "",
    "sandbox.credentials": _secret,
}
