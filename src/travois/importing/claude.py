"""Import plan for Claude Code: settings, permissions, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from travois.compat.claude import adapted
from travois.compat.foreign_agent import CLAUDE
from travois.compat.sessions.format import inner
from travois.importing.plan import NOWHERE, Luggage, files, instructions, servers, skills, tree_of
from travois.permissions import rules
from travois.permissions.rules import READ_TOOLS, RULE_EFFECTS
from travois.prompt.instruction_files import plain_text
from travois.prompt.instruction_text import scope
from travois.prompt.style_files import FOLDER
from travois.settings.validate import (
    SettingsLayer,
    as_text_list,
    is_json_array,
    parse_settings,
    validate_layer,
)

UNTAKEN = {
    "keybindings.json": "key bindings cannot be configured in Travois",
    "plugins": "plugins stay where they are; those enabled in Claude Code also run here",
    ".credentials.json": "logins are not imported; set an API key",
}
OWN = ("ANTHROPIC_", "CLAUDE_", "DISABLE_", "MAX_THINKING")
"""How variables begin that are meant for that agent itself."""
ANCHORED = ("Edit", *READ_TOOLS)


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """Plan the import from Claude Code, except for memories and sessions."""
    if (folder := CLAUDE.home(environ)) is None:
        return
    if (folder / "settings.json").is_file():
        _settings(luggage, folder / "settings.json")
    _servers(luggage, (folder if environ.get(CLAUDE.variable) else folder.parent) / ".claude.json")
    files(luggage, "agents", folder / "agents", where="agents")
    files(luggage, "commands", folder / "commands", where="commands")
    files(luggage, "styles", folder / FOLDER, where=FOLDER)
    skills(luggage, folder / "skills")
    instructions(luggage, "claude", folder / CLAUDE.instructions, folder=folder)
    for path in sorted((folder / "rules").rglob("*.md")):
        if scope(plain_text(str(path))):
            luggage.leave(
                "instructions", path.name, f"rules for specific files apply only in {folder}"
            )
        else:
            instructions(luggage, "claude", path, folder=folder)
    for name, why in UNTAKEN.items():
        if (folder / name).exists():
            luggage.leave("settings", name, why)


def _settings(luggage: Luggage, path: Path) -> None:
    layer = parse_settings(
        path.read_bytes(), where=str(path), level="user", foreign=True, base=str(path.parent)
    )
    held = validate_layer(adapted(layer))
    for key, value in layer.values.items():
        if key.startswith("permissions."):
            continue
        if key.startswith("env."):
            _variable(luggage, key.removeprefix("env."), str(held.values.get(key, value)))
        elif key in held.values:
            luggage.setting("settings", key, held.values[key])
        else:
            luggage.leave("settings", key)
    for key in (key for key in layer.values if key.startswith("permissions.")):
        _permission(luggage, key, layer, held)
    for event, groups in layer.hooks.items():
        if is_json_array(groups):
            text = str(groups)
            why = f"its scripts stay in {path.parent}" if ".claude" in text else ""
            luggage.hooks(event, groups, why=why)


def _variable(luggage: Luggage, name: str, value: str) -> None:
    if name.startswith(OWN):
        luggage.leave("settings", f"env.{name}", "only Claude Code uses it")
    else:
        luggage.variable(name, value)


def _permission(luggage: Luggage, key: str, layer: SettingsLayer, held: SettingsLayer) -> None:
    """Plan one list of permission rules, or the default mode; invalid rules are skipped."""
    if key not in held.values:
        notices = (one for one in held.notices if key in one)
        luggage.leave("permissions", key, next(notices, NOWHERE))
        return
    effect = next((one for one in RULE_EFFECTS if key == f"permissions.{one}"), "")
    if not effect:
        luggage.setting("permissions", key, held.values[key])
        return
    kept = as_text_list(held.values[key])
    for text in as_text_list(layer.values[key]):
        if text not in kept:
            why = next((one for one in held.notices if text in one), NOWHERE)
            luggage.leave(
                "permissions", f"{key}: {text}", why.rpartition(": ")[2].partition(";")[0]
            )
    spelt = [_anchored(text, layer.base) for text in kept]
    fate = "kept" if spelt == list(kept) else "translated"
    luggage.setting("permissions", key, spelt, fate=fate)


def _anchored(text: str, base: str) -> str:
    """Rewrite a rule for our file: `/path` is relative to the folder the rule lies in."""
    rule = rules.parse_permission_rule(text, "deny")
    near = rule.what.startswith("/") and not rule.what.startswith("//")
    return f"{rule.tool}(/{base}{rule.what})" if near and rule.tool in ANCHORED else text


def _servers(luggage: Luggage, path: Path) -> None:
    tree = tree_of(path)
    servers(luggage, tree, "mcpServers")
    for place in inner(tree, "projects"):
        for name in inner(tree, "projects", place, "mcpServers"):
            luggage.leave(
                "mcp", name, f"it applies only in {place}; Travois reads it from {path} there"
            )
