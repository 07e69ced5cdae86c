"""Import plan for Codex: settings, permission rules, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tomllib import TOMLDecodeError, loads

import msgspec

from travois.compat import config_files, hooks, prefix_rules
from travois.compat.foreign_agent import CODEX
from travois.compat.sessions.format import inner
from travois.core.errors import UserError
from travois.importing.plan import Luggage, files, instructions, servers, skills, tree_of
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json
from travois.settings.validate import SettingsLayer, is_json_array, nest_keys

TAKEN = (
    *config_files.CODEX_KEYS,
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
    "projects": "trust covers a folder's content: run `travois trust` there",
    "agents": "Travois reads roles where they are",
    "notify": "use a Stop or Notification hook",
}


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """Plan the import from Codex, except for memories and sessions."""
    if (folder := CODEX.home(environ)) is None:
        return
    if (folder / "config.toml").is_file():
        _settings(luggage, folder / "config.toml")
    _hooks(luggage, tree_of(folder / "hooks.json"))
    for path in sorted((folder / "rules").glob("*.rules")):
        _rules(luggage, path)
    files(luggage, "commands", folder / "prompts", where="commands")
    skills(luggage, folder / "skills")
    instructions(luggage, "codex", folder / CODEX.instructions, folder=folder)
    if (folder / "auth.json").exists():
        luggage.leave("settings", "auth.json", "logins are not imported; set an API key")


def _settings(luggage: Luggage, path: Path) -> None:
    try:
        tree: Json = loads(plain_text(str(path)))
    except (OSError, TOMLDecodeError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    _said(luggage, config_files.codex(tree, str(path), level="user"))
    servers(luggage, tree, "mcp_servers")
    for one in config_files.codex_providers(tree):
        if one.why:
            luggage.leave("settings", f"model_providers.{one.name}", one.why)
    for name in inner(tree, "profiles"):
        profile = {**tree, **inner(tree, "profiles", name)}
        layer = config_files.codex(profile, str(path), level="run")
        data = msgspec.json.format(msgspec.json.encode(nest_keys(layer.values)), indent=2)
        luggage.file("settings", f"profiles/{name}.json", data + b"\n", fate="translated")
    _hooks(luggage, tree)
    for key in (key for key in tree if key not in TAKEN):
        luggage.leave("settings", key, **({"why": WHY[key]} if key in WHY else {}))


def _said(luggage: Luggage, layer: SettingsLayer) -> None:
    for key, value in layer.values.items():
        part = "permissions" if key.startswith(("permissions.", "sandbox.")) else "settings"
        luggage.setting(part, key, value, fate="translated")
    for notice in layer.notices:
        _, _, why = notice.partition(": ")
        if why.startswith("danger"):
            luggage.leave("permissions", "sandbox_mode", why)


def _rules(luggage: Luggage, path: Path) -> None:
    try:
        found, odd = prefix_rules.prefixes(plain_text(str(path)))
    except (OSError, ValueError) as error:
        luggage.leave("permissions", path.name, str(error))
        return
    for effect, listed in found.items():
        value: list[object] = [*listed]
        luggage.setting("permissions", f"permissions.{effect}", value, fate="translated")
    for one in odd:
        luggage.leave("permissions", path.name, one)


def _hooks(luggage: Luggage, tree: Json) -> None:
    for event, groups in hooks.codex(tree).items():
        if is_json_array(groups):
            luggage.hooks(event, groups)
