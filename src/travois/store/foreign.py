"""Settings that users of other agents have already: where they lie, and what of them holds here."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from travois.store.reading import Layer, known
from travois.store.settings import ModeName

HONOURED = (
    "permissions.",
    "env.",
    "sandbox.",
    "context.",
    "memory.",
    "statusLine.",
    "model",
    "disableAllHooks",
    "claudeMdExcludes",
    "outputStyle",
    "instructions",
    "providers.",
)
HOOKED = frozenset(("allowedHttpHookUrls", "httpHookAllowedEnvVars"))
MODE = "permissions.defaultMode"


def user(environ: Mapping[str, str]) -> Path | None:
    """The user's settings for the other agent; None if this environment has no place for them."""
    if folder := environ.get("CLAUDE_CONFIG_DIR"):
        return Path(folder).expanduser().absolute() / "settings.json"
    person = environ.get("HOME", "")
    return Path(person, ".claude", "settings.json") if person.startswith("/") else None


def managed(etc: Path) -> Iterator[Path]:
    """What the machine's administrator wrote for it, weakest first."""
    mac = sys.platform == "darwin"
    folder = Path("/Library/Application Support/ClaudeCode") if mac else etc / "claude-code"
    yield folder / "managed-settings.json"
    yield from sorted((folder / "managed-settings.d").glob("*.json"))


def adapted(layer: Layer) -> Layer:
    """What holds here; the many keys that mean nothing to us are no mistakes."""
    if not layer.foreign:
        return layer
    values = {key: _text(key, value) for key, value in layer.values.items() if _honoured(key)}
    mode = values.get(MODE, "default")
    if mode in ModeName.__args__:
        return replace(layer, values=values)
    del values[MODE]
    notice = f"{layer.at(MODE)} is ignored: there is no mode {mode!r} here"
    return replace(layer, values=values, notices=(*layer.notices, notice))


def _honoured(key: str) -> bool:
    group = key in ("permissions", "sandbox", "env")
    return known(key) and (group or key.startswith(HONOURED) or key in HOOKED)


def _text(key: str, value: object) -> object:
    """The other agent takes numbers for the values of variables, too."""
    plain = key.startswith("env.") and isinstance(value, int | float)
    return (
        str(value).lower() if isinstance(value, bool) and plain else str(value) if plain else value
    )
