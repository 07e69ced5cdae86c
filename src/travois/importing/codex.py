"""Import plan for Codex: settings, permission rules, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tomllib import TOMLDecodeError, loads

import msgspec

from travois.compat import config_files, hooks
from travois.compat.foreign_agent import CODEX
from travois.compat.sessions.format import object_at
from travois.core.errors import UserError
from travois.importing.plan import (
    ImportPlan,
    plan_files,
    plan_instructions,
    plan_servers,
    plan_skills,
    read_json_object,
)
from travois.prompt.instruction_files import read_plain_text
from travois.settings.schema import Json
from travois.settings.validate import SettingsLayer, is_json_array, nest_keys

IMPORTED_CODEX_KEYS = (
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
CODEX_SKIP_REASONS = {
    "projects": "trust covers a folder's content: run `travois trust` there",
    "agents": "Travois reads roles where they are",
    "notify": "use a Stop or Notification hook",
}


def plan_codex_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from Codex, except for memories and sessions."""
    if (folder := CODEX.find_home(environ)) is None:
        return
    if (folder / "config.toml").is_file():
        _plan_codex_settings(luggage, folder / "config.toml")
    _plan_codex_hooks(luggage, read_json_object(folder / "hooks.json"))
    for path in sorted((folder / "rules").glob("*.rules")):
        _plan_codex_rules(luggage, path)
    plan_files(luggage, "commands", folder / "prompts", where="commands")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "codex", folder / CODEX.instructions, folder=folder)
    if (folder / "auth.json").exists():
        luggage.skip("settings", "auth.json", "logins are not imported; set an API key")


def _plan_codex_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of Codex's `config.toml`: settings, profiles, MCP servers and hooks."""
    try:
        tree: Json = loads(read_plain_text(str(path)))
    except (OSError, TOMLDecodeError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    _plan_codex_layer(luggage, config_files.parse_codex_config(tree, str(path), level="user"))
    plan_servers(luggage, tree, "mcp_servers")
    for one in config_files.read_codex_providers(tree):
        if one.why:
            luggage.skip("settings", f"model_providers.{one.name}", one.why)
    for name in object_at(tree, "profiles"):
        profile = {**tree, **object_at(tree, "profiles", name)}
        layer = config_files.parse_codex_config(profile, str(path), level="run")
        data = msgspec.json.format(msgspec.json.encode(nest_keys(layer.values)), indent=2)
        luggage.add_file("settings", f"profiles/{name}.json", data + b"\n", fate="translated")
    _plan_codex_hooks(luggage, tree)
    for key in (key for key in tree if key not in IMPORTED_CODEX_KEYS):
        luggage.skip(
            "settings",
            key,
            **({"why": CODEX_SKIP_REASONS[key]} if key in CODEX_SKIP_REASONS else {}),
        )


def _plan_codex_layer(luggage: ImportPlan, layer: SettingsLayer) -> None:
    """Plan the import of Codex settings that were translated to ours."""
    for key, value in layer.values.items():
        part = "permissions" if key.startswith(("permissions.", "sandbox.")) else "settings"
        luggage.add_setting(part, key, value, fate="translated")
    for notice in layer.notices:
        _, _, why = notice.partition(": ")
        if why.startswith("danger"):
            luggage.skip("permissions", "sandbox_mode", why)


def _plan_codex_rules(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of a Codex command rules file as permission rules."""
    try:
        found, odd = config_files.parse_codex_prefix_rules(read_plain_text(str(path)))
    except (OSError, ValueError) as error:
        luggage.skip("permissions", path.name, str(error))
        return
    for effect, listed in found.items():
        value: list[object] = [*listed]
        luggage.add_setting("permissions", f"permissions.{effect}", value, fate="translated")
    for one in odd:
        luggage.skip("permissions", path.name, one)


def _plan_codex_hooks(luggage: ImportPlan, tree: Json) -> None:
    """Plan the import of the hooks in Codex's settings."""
    for event, groups in hooks.parse_codex_hooks(tree).items():
        if is_json_array(groups):
            luggage.add_hooks(event, groups)
