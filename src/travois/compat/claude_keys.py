"""Keys of other agents' settings: what each of them means here, and which cannot be honoured."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from travois.core.json import rows, table
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
"""How many characters a token has, about."""
WITHOUT = {
    "autoMode": "mode auto goes by rules and the sandbox here; write permissions.deny or ask",
    "advisorModel": "no second model is asked for advice here",
    "fastMode": "it is a tariff of one provider",
    "fileSuggestion": "Travois itself completes the names of files",
    "askUserQuestionTimeout": "a question waits until it is answered",
    "forceLoginMethod": "keys come from variables or from apiKeyHelper",
    "awsAuthRefresh": "credentials come from variables",
    "allowManagedHooksOnly": "hooks of others are left out by disableAllHooks",
    "allowManagedPermissionRulesOnly": "rules of all places count, and a deny is final",
    "sandbox.filesystem.disabled": "walls stand or fall together: sandbox.enabled",
    "sandbox.network.httpProxyPort": "the sandbox has a proxy of its own",
    "sandbox.network.socksProxyPort": "the sandbox has a proxy of its own",
    "sandbox.network.tlsTerminate": "encrypted connections are let through or not, never opened",
    "sandbox.network.allowUnixSockets": "commands reach no sockets of this machine",
    "sandbox.network.allowAllUnixSockets": "commands reach no sockets of this machine",
    "worktree.sparsePaths": "a worktree has all files",
    "worktree.baseRef": "a worktree begins with the last commit",
    "bashOutputMaxChars": "10,000 characters are shown, and all of it is in a file",
    "subagentPromptCacheTtl": "promptCacheTtl is for agents, too",
}
"""What people rely on elsewhere and cannot here, each with the reason."""


def translated(values: Json) -> Json:
    """Settings under our keys, whoever's keys they were written with."""
    found: Json = {}
    for theirs, value in values.items():
        key, meant = ALIASES.get(theirs, theirs), MEANINGS.get(theirs, _same)(value)
        held = rows(found.get(key))
        found[key] = [*held, *rows(meant)] if held else meant
    return found


def unlike(key: str) -> str:
    """Why a key of another agent does nothing here; empty if that misleads nobody."""
    return next((why for name, why in WITHOUT.items() if f"{key}.".startswith(f"{name}.")), "")


def _same(value: object) -> object:
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _servers(value: object) -> object:
    """Servers as texts, since lists of settings hold texts."""
    texts = [
        one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in rows(value)
    ]
    return texts or [NOBODY]


def _theme(value: object) -> object:
    return next((word for word in ("dark", "light") if word in str(value)), "auto")


def _secret(value: object) -> object:
    """The files of a table of credentials; a variable with a secret reaches no command anyway."""
    return [table(one)["path"] for one in rows(table(value).get("files")) if "path" in table(one)]


MEANINGS: dict[str, Callable[[object], object]] = {
    "fallbackModel": _listed,
    "allowedMcpServers": _servers,
    "deniedMcpServers": _servers,
    "editorMode": lambda value: value == "vim",
    "theme": _theme,
    "sandbox.network.strictAllowlist": lambda value: "listed" if value is True else "",
    "sandbox.credentials": _secret,
}
