"""What Codex keeps for a person, as a plan for our home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tomllib import TOMLDecodeError, loads

import msgspec

from travois.compat import config_files
from travois.compat import config_files as neighbours
from travois.compat import hooks as hookfiles
from travois.compat import prefix_rules as prefixes
from travois.compat.foreign_agent import CODEX
from travois.compat.sessions.format import inner
from travois.core.errors import Fault
from travois.importing import plan as shelves
from travois.importing.plan import Luggage, tree_of
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json
from travois.settings.validate import Layer, is_list, nested

TAKEN = (
    *neighbours.CODEX_KEYS,
    "model",
    "model_reasoning_effort",
    "model_provider",
    "model_providers",
    "mcp_servers",
    "profiles",
    "hooks",
    "approval_policy",
    "sandbox_mode",
    "sandbox_workspace_write",
    "shell_environment_policy",
    "memories",
)
WHY = {
    "projects": "trust is given to what a folder says: `travois trust` there",
    "agents": "roles count where they lie",
    "notify": "a hook on Stop or Notification does this",
}


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """All of it but memories and sessions."""
    if (folder := CODEX.home(environ)) is None:
        return
    if (folder / "config.toml").is_file():
        _settings(luggage, folder / "config.toml")
    _hooks(luggage, tree_of(folder / "hooks.json"))
    for path in sorted((folder / "rules").glob("*.rules")):
        _rules(luggage, path)
    shelves.files(luggage, "commands", folder / "prompts", where="commands")
    shelves.skills(luggage, folder / "skills")
    shelves.instructions(luggage, "codex", folder / CODEX.instructions, folder=folder)
    if (folder / "auth.json").exists():
        luggage.leave("settings", "auth.json", "logins are not copied; set a key of your own")


def _settings(luggage: Luggage, path: Path) -> None:
    try:
        tree: Json = loads(plain_text(str(path)))
    except (OSError, TOMLDecodeError) as error:
        raise Fault(f"{path} cannot be understood", why=str(error)) from None
    _said(luggage, neighbours.codex(tree, str(path), level="user"))
    shelves.servers(luggage, tree, "mcp_servers")
    for one in config_files.codex_providers(tree):
        if one.why:
            luggage.leave("settings", f"model_providers.{one.name}", one.why)
    for name in inner(tree, "profiles"):
        profile = {**tree, **inner(tree, "profiles", name)}
        layer = neighbours.codex(profile, str(path), level="run")
        data = msgspec.json.format(msgspec.json.encode(nested(layer.values)), indent=2)
        luggage.file("settings", f"profiles/{name}.json", data + b"\n", fate="translated")
    _hooks(luggage, tree)
    for key in (key for key in tree if key not in TAKEN):
        luggage.leave("settings", key, **({"why": WHY[key]} if key in WHY else {}))


def _said(luggage: Luggage, layer: Layer) -> None:
    for key, value in layer.values.items():
        part = "permissions" if key.startswith(("permissions.", "sandbox.")) else "settings"
        luggage.setting(part, key, value, fate="translated")
    for notice in layer.notices:
        _, _, why = notice.partition(": ")
        if why.startswith("danger"):
            luggage.leave("permissions", "sandbox_mode", why)


def _rules(luggage: Luggage, path: Path) -> None:
    try:
        found, odd = prefixes.prefixes(plain_text(str(path)))
    except (OSError, ValueError) as error:
        luggage.leave("permissions", path.name, str(error))
        return
    for effect, listed in found.items():
        value: list[object] = [*listed]
        luggage.setting("permissions", f"permissions.{effect}", value, fate="translated")
    for one in odd:
        luggage.leave("permissions", path.name, one)


def _hooks(luggage: Luggage, tree: Json) -> None:
    for event, groups in hookfiles.codex(tree).items():
        if is_list(groups):
            luggage.hooks(event, groups)
