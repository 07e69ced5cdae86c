"""Import plan for Claude Code: settings, permissions, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from travois.compat.claude import adapt_claude_layer
from travois.compat.foreign_agent import CLAUDE
from travois.compat.sessions.format import object_at
from travois.importing.plan import (
    NO_EQUIVALENT,
    ImportPlan,
    plan_files,
    plan_instructions,
    plan_servers,
    plan_skills,
    read_json_object,
)
from travois.permissions import rules
from travois.permissions.rules import READ_TOOLS, RULE_EFFECTS
from travois.prompt.instruction_files import read_plain_text
from travois.prompt.instruction_text import parse_scope_patterns
from travois.prompt.output_styles import STYLES_FOLDER
from travois.settings.validate import (
    SettingsLayer,
    as_text_list,
    is_json_array,
    parse_settings,
    validate_layer,
)

NOT_IMPORTED_FILES = {
    "keybindings.json": "key bindings cannot be configured in Travois",
    "plugins": "plugins stay where they are; those enabled in Claude Code also run here",
    ".credentials.json": "logins are not imported; set an API key",
}
CLAUDE_ONLY_VARIABLES = ("ANTHROPIC_", "CLAUDE_", "DISABLE_", "MAX_THINKING")
"""How variables begin that are meant for that agent itself."""
PATH_RULE_TOOLS = ("Edit", *READ_TOOLS)


def plan_claude_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from Claude Code, except for memories and sessions."""
    if (folder := CLAUDE.find_home(environ)) is None:
        return
    if (folder / "settings.json").is_file():
        _plan_claude_settings(luggage, folder / "settings.json")
    _plan_claude_servers(
        luggage, (folder if environ.get(CLAUDE.variable) else folder.parent) / ".claude.json"
    )
    plan_files(luggage, "agents", folder / "agents", where="agents")
    plan_files(luggage, "commands", folder / "commands", where="commands")
    plan_files(luggage, "styles", folder / STYLES_FOLDER, where=STYLES_FOLDER)
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "claude", folder / CLAUDE.instructions, folder=folder)
    for path in sorted((folder / "rules").rglob("*.md")):
        if parse_scope_patterns(read_plain_text(str(path))):
            luggage.skip(
                "instructions", path.name, f"rules for specific files apply only in {folder}"
            )
        else:
            plan_instructions(luggage, "claude", path, folder=folder)
    for name, why in NOT_IMPORTED_FILES.items():
        if (folder / name).exists():
            luggage.skip("settings", name, why)


def _plan_claude_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of Claude Code's settings: values, variables, permissions and hooks."""
    layer = parse_settings(
        path.read_bytes(), where=str(path), level="user", foreign=True, base=str(path.parent)
    )
    held = validate_layer(adapt_claude_layer(layer))
    for key, value in layer.values.items():
        if key.startswith("permissions."):
            continue
        if key.startswith("env."):
            _plan_claude_variable(
                luggage, key.removeprefix("env."), str(held.values.get(key, value))
            )
        elif key in held.values:
            luggage.add_setting("settings", key, held.values[key])
        else:
            luggage.skip("settings", key)
    for key in (key for key in layer.values if key.startswith("permissions.")):
        _plan_claude_permission(luggage, key, layer, held)
    for event, groups in layer.hooks.items():
        if is_json_array(groups):
            text = str(groups)
            why = f"its scripts stay in {path.parent}" if ".claude" in text else ""
            luggage.add_hooks(event, groups, why=why)


def _plan_claude_variable(luggage: ImportPlan, name: str, value: str) -> None:
    """Plan the import of an environment variable in Claude Code's settings."""
    if name.startswith(CLAUDE_ONLY_VARIABLES):
        luggage.skip("settings", f"env.{name}", "only Claude Code uses it")
    else:
        luggage.add_variable(name, value)


def _plan_claude_permission(
    luggage: ImportPlan, key: str, layer: SettingsLayer, held: SettingsLayer
) -> None:
    """Plan one list of permission rules, or the default mode; invalid rules are skipped."""
    if key not in held.values:
        notices = (one for one in held.notices if key in one)
        luggage.skip("permissions", key, next(notices, NO_EQUIVALENT))
        return
    effect = next((one for one in RULE_EFFECTS if key == f"permissions.{one}"), "")
    if not effect:
        luggage.add_setting("permissions", key, held.values[key])
        return
    kept = as_text_list(held.values[key])
    for text in as_text_list(layer.values[key]):
        if text not in kept:
            why = next((one for one in held.notices if text in one), NO_EQUIVALENT)
            luggage.skip("permissions", f"{key}: {text}", why.rpartition(": ")[2].partition(";")[0])
    spelt = [_anchor_path_rule(text, layer.base) for text in kept]
    fate = "kept" if spelt == list(kept) else "translated"
    luggage.add_setting("permissions", key, spelt, fate=fate)


def _anchor_path_rule(text: str, base: str) -> str:
    """Rewrite a rule for our file: `/path` is relative to the folder the rule lies in."""
    rule = rules.parse_permission_rule(text, "deny")
    near = rule.what.startswith("/") and not rule.what.startswith("//")
    return f"{rule.tool}(/{base}{rule.what})" if near and rule.tool in PATH_RULE_TOOLS else text


def _plan_claude_servers(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of the MCP servers in Claude Code's settings."""
    tree = read_json_object(path)
    plan_servers(luggage, tree, "mcpServers")
    for place in object_at(tree, "projects"):
        for name in object_at(tree, "projects", place, "mcpServers"):
            luggage.skip(
                "mcp", name, f"it applies only in {place}; Travois reads it from {path} there"
            )
