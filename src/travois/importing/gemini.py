"""Import plan for Gemini CLI: settings, permission rules, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat import hooks
from travois.compat.config_files import parse_jsonc
from travois.compat.foreign_agent import GEMINI
from travois.compat.sessions.format import object_at
from travois.core.errors import UserError
from travois.importing.plan import ImportPlan, plan_files, plan_instructions, plan_skills
from travois.importing.sessions import FOREIGN_TOOLS
from travois.prompt.instruction_files import read_plain_text
from travois.settings.schema import Json
from travois.settings.validate import is_json_array, is_settings_tree

GEMINI_TOOL_LISTS = {
    ("tools", "allowed"): "allow",
    ("allowedTools",): "allow",
    ("tools", "exclude"): "deny",
    ("excludeTools",): "deny",
}
IMPORTED_GEMINI_KEYS = (
    *("mcpServers", "model", "allowedTools", "excludeTools", "tools", "hooks", "hooksConfig"),
    "$schema",
)
RULE_TOOL_NAMES = {"Write": "Edit"}
"""Rules call all changes of files by one name."""


def plan_gemini_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from Gemini CLI, except for sessions."""
    if (folder := GEMINI.find_home(environ)) is None:
        return
    if (folder / "settings.json").is_file():
        _plan_gemini_settings(luggage, folder / "settings.json")
    plan_files(luggage, "commands", folder / "commands", where="commands", ends=".toml")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "gemini", folder / GEMINI.instructions, folder=folder)
    if (folder / "oauth_creds.json").exists():
        luggage.skip("settings", "oauth_creds.json", "logins are not imported; set GEMINI_API_KEY")


def _plan_gemini_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of a Gemini CLI settings file: model, MCP servers, permissions and hooks."""
    try:
        tree = parse_jsonc(read_plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    model = tree.get("model")
    name = model.get("name") if is_settings_tree(model) else model
    if isinstance(name, str):
        luggage.add_setting("settings", "model", f"gemini/{name}", fate="translated")
    for name, server in object_at(tree, "mcpServers").items():
        if is_settings_tree(server):
            _plan_gemini_server(luggage, name, server)
    for keys, effect in GEMINI_TOOL_LISTS.items():
        _plan_gemini_rules(luggage, tree, keys, effect)
    _plan_gemini_hooks(luggage, tree)
    for key in (key for key in tree if key not in IMPORTED_GEMINI_KEYS):
        luggage.skip("settings", key)
    for key in object_at(tree, "tools"):
        if ("tools", key) not in GEMINI_TOOL_LISTS:
            luggage.skip("settings", f"tools.{key}")


def _plan_gemini_server(luggage: ImportPlan, name: str, tree: Json) -> None:
    """Plan an MCP server; a bare `url` means the SSE transport."""
    events = "url" in tree and "httpUrl" not in tree and "type" not in tree
    trusted = tree.get("trust") is True
    kept = {key: value for key, value in tree.items() if key != "trust"}
    told = {**kept, "type": "sse"} if events else kept
    luggage.add_server(name, told, fate="translated" if events or trusted else "kept")


def _plan_gemini_hooks(luggage: ImportPlan, tree: Json) -> None:
    """Plan the import of the hooks in Gemini CLI's settings."""
    for event, groups in hooks.parse_gemini_hooks(tree).items():
        if is_json_array(groups):
            luggage.add_hooks(event, groups, why="they receive Gemini CLI's payloads")


def _plan_gemini_rules(luggage: ImportPlan, tree: Json, keys: tuple[str, ...], effect: str) -> None:
    """Plan the import of one tool list of Gemini CLI's settings as permission rules."""
    listed = object_at(tree, *keys[:-1]).get(keys[-1])
    texts = [str(one) for one in listed] if is_json_array(listed) else []
    kept: list[object] = []
    for text in texts:
        spelt = list(_translate_gemini_rule(text))
        kept += spelt
        if not spelt:
            luggage.skip("permissions", f"{'.'.join(keys)}: {text}")
    luggage.add_setting("permissions", f"permissions.{effect}", kept, fate="translated")


def _translate_gemini_rule(text: str) -> Iterator[str]:
    """Translate a rule, as in `run_shell_command(git status)`."""
    name, _, what = text.partition("(")
    ours = FOREIGN_TOOLS.get(name.strip(), ("", ()))[0]
    what = what.removesuffix(")").strip()
    if ours and not what:
        yield RULE_TOOL_NAMES.get(ours, ours)
    elif ours == "Bash":
        yield f"Bash({what}:*)"
