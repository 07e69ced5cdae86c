"""What comes with a workspace: it may tighten at once; anything else only by the user's trust."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec

from travois.permissions.paths import inside
from travois.settings.guarding import Permissions
from travois.settings.schema import Json
from travois.settings.trust import digest
from travois.settings.validate import PROJECT_DIR, UNITED, Layer, is_list, words

STRICT = ("plan", "dont-ask", "default", "accept-edits", "auto", "bypass")
"""Modes, the strictest first."""
TIGHT = frozenset(
    (
        "permissions.deny",
        "permissions.ask",
        "permissions.examples",
        "instructions",
        "permissions.disableBypassPermissionsMode",
        "permissions.disableAutoMode",
        "deniedModels",
        "deniedMcpServers",
        "disabledMcpjsonServers",
        "sandbox.network.deniedDomains",
        "sandbox.filesystem.denyWrite",
        "sandbox.filesystem.denyRead",
        "sandbox.hiddenToolChains",
    )
)
SAFE: Json = {
    "permissions.blockReadsOutsideWorkingDirectories": True,
    "permissions.blockWritesOutsideWorkingDirectories": True,
    "permissions.denyInsteadOfPrompting": True,
    "sandbox.enabled": True,
    "sandbox.required": True,
    "sandbox.hooks": True,
    "sandbox.mcpServers": True,
    "sandbox.lookFirst": False,
    "sandbox.allowUnsandboxedCommands": False,
    "sandbox.network.mode": "off",
}
LIMITS = frozenset(
    (
        "maxTurns",
        "maxBudgetUsd",
        "maxTokens",
        "maxSeconds",
        "maxDepth",
        "maxAgents",
        "maxOutputTokens",
    )
)
NEVER = frozenset(
    (
        *(*LIMITS, *SAFE, "envPassthrough", "disableAllHooks", "httpHookAllowedEnvVars"),
        *("claudeMd", "agentProgressSeconds"),
        *("cleanupPeriodDays", "fileCheckpointingEnabled", "allowedMcpServers"),
        *("enableAllProjectMcpServers", "enabledMcpjsonServers"),
    )
)
STEERING = (
    r"(?is)env\.(.*_proxy|.*_base_url|anthropic_.*|openai_.*|claude_.*|travois_.*)"
    r"|(providers|models|webSearch|browser|telemetry|otelHeadersHelper)(\..*)?"
    r"|apiKeyHelper|(modelOverrides|modelPricing)(\..*)?"
)
"""What says where requests go, with whose key, or what we ourselves do."""
SCRIPTS = (".sh", ".bash", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua")
RUN = "statusLine.command"
RUNNERS = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
}
"""Programs that run what a file in the workspace says, and the files."""
COMMANDS = re.compile(r"[^\s'\"=;|&()<>{},\\]+")


class Sifted(msgspec.Struct):
    """A workspace's layer: what of it holds, what it wants, and what no trust would give."""

    values: Json
    hooks: Json
    wanted: list[str]
    never: list[str]


def sift(layer: Layer, held: Json, *, agreed: frozenset[str], places: tuple[str, ...]) -> Sifted:
    """Part what a workspace may say from what it may not; `held` is what the user's files say."""
    found = Sifted({}, {}, [], [])
    for key, value in layer.values.items():
        if _mode(key, value) == "bypass":
            found.never.append(key)
        elif tightens(key, value, held.get(key)):
            found.values[key] = value
        elif key in NEVER or re.fullmatch(STEERING, key):
            found.never.append(key)
        elif key in UNITED:
            found.values[key] = [w for w in words(value) if _wish(found, f"{key}: {w}", agreed)]
        elif _wish(found, _setting(key, value, places), agreed):
            found.values[key] = value
    for event, group in _groups(layer.hooks):
        if _wish(found, _told(event, group, places), agreed):
            kept = found.hooks.get(event, [])
            found.hooks[event] = [*(kept if is_list(kept) else ()), group]
    return found


def tightens(key: str, value: object, held: object) -> bool:
    """Whether a value gives no right that was not there before."""
    if key in TIGHT or value == held or (key.startswith("enabledPlugins.") and not value):
        return True
    if mode := _mode(key, value):
        return STRICT.index(mode) <= STRICT.index(_mode(key, held) or "default")
    if key in LIMITS and isinstance(value, int | float) and isinstance(held, int | float):
        return 0 < value < (held or float("inf"))
    return key in SAFE and value == SAFE[key]


def scripts(hooks: Json, places: tuple[str, ...]) -> Iterator[str]:
    """The programs of a workspace that hooks name: to change one is to change the hook."""
    text = PROJECT_DIR.sub("./", msgspec.json.encode(hooks).decode())
    for word in COMMANDS.findall(text):
        for place in places:
            path = os.path.realpath(os.path.join(place, word))
            if inside(path, place) and os.path.isfile(path) and _runs(path):
                yield path
        for name in RUNNERS.get(word, ()):
            yield from filter(os.path.isfile, (os.path.join(place, name) for place in places))


def _runs(path: str) -> bool:
    """Whether a file is a program, and not one that a program writes to."""
    return path.endswith(SCRIPTS) or os.access(path, os.X_OK)


def _wish(found: Sifted, text: str, agreed: frozenset[str]) -> bool:
    found.wanted.append(text)
    return digest(text) in agreed


def _mode(key: str, value: object) -> str:
    """The mode that a value of this key names; empty for other keys."""
    if key != "permissions.defaultMode":
        return ""
    return msgspec.convert({"defaultMode": value}, Permissions).mode


def _groups(hooks: Json) -> Iterator[tuple[str, object]]:
    for event, groups in hooks.items():
        yield from ((event, group) for group in (groups if is_list(groups) else (groups,)))


def _told(event: str, group: object, places: tuple[str, ...]) -> str:
    """A group of hooks as it is written, with the digests of the files that it runs."""
    return f"hook {event}: {msgspec.json.encode(group).decode()}{programs({event: group}, places)}"


def listens(origin: str, hooks: Json, places: tuple[str, ...]) -> str:
    """What a file of a skill or an agent asks for that brings hooks."""
    path, text = os.path.relpath(origin, places[0]), msgspec.json.encode(hooks).decode()
    return f"hooks: {path} listens with {text}{programs(hooks, places)}"


def _setting(key: str, value: object, places: tuple[str, ...]) -> str:
    """A setting as it is written; one that runs a program with the digests of its files."""
    files = programs({key: value}, places) if key == RUN else ""
    return f"{key}: {msgspec.json.encode(value).decode()}{files}"


def programs(named: Json, places: tuple[str, ...]) -> str:
    """The programs of a workspace that something names, each with the digest of what it is."""
    files = dict.fromkeys(scripts(named, places))
    return "".join(f" [{os.path.relpath(path, places[0])} is {_content(path)}]" for path in files)


def _content(path: str) -> str:
    from hashlib import file_digest

    try:
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"
