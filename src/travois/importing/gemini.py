"""Import plan for Gemini CLI: settings, permission rules, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat import hooks
from travois.compat.config_files import loose
from travois.compat.foreign_agent import GEMINI
from travois.compat.sessions.format import inner
from travois.core.errors import UserError
from travois.importing.plan import Luggage, files, instructions, skills
from travois.importing.sessions import TOOLS
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json
from travois.settings.validate import is_json_array, is_settings_tree

LISTS = {
    ("tools", "allowed"): "allow",
    ("allowedTools",): "allow",
    ("tools", "exclude"): "deny",
    ("excludeTools",): "deny",
}
TAKEN = (
    *("mcpServers", "model", "allowedTools", "excludeTools", "tools", "hooks", "hooksConfig"),
    "$schema",
)
WRITES = {"Write": "Edit"}
"""Rules call all changes of files by one name."""


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """Plan the import from Gemini CLI, except for sessions."""
    if (folder := GEMINI.home(environ)) is None:
        return
    if (folder / "settings.json").is_file():
        _settings(luggage, folder / "settings.json")
    files(luggage, "commands", folder / "commands", where="commands", ends=".toml")
    skills(luggage, folder / "skills")
    instructions(luggage, "gemini", folder / GEMINI.instructions, folder=folder)
    if (folder / "oauth_creds.json").exists():
        luggage.leave("settings", "oauth_creds.json", "logins are not imported; set GEMINI_API_KEY")


def _settings(luggage: Luggage, path: Path) -> None:
    try:
        tree = loose(plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    model = tree.get("model")
    name = model.get("name") if is_settings_tree(model) else model
    if isinstance(name, str):
        luggage.setting("settings", "model", f"gemini/{name}", fate="translated")
    for name, server in inner(tree, "mcpServers").items():
        if is_settings_tree(server):
            _server(luggage, name, server)
    for keys, effect in LISTS.items():
        _rules(luggage, tree, keys, effect)
    _hooks(luggage, tree)
    for key in (key for key in tree if key not in TAKEN):
        luggage.leave("settings", key)
    for key in inner(tree, "tools"):
        if ("tools", key) not in LISTS:
            luggage.leave("settings", f"tools.{key}")


def _server(luggage: Luggage, name: str, tree: Json) -> None:
    """Plan an MCP server; a bare `url` means the SSE transport."""
    events = "url" in tree and "httpUrl" not in tree and "type" not in tree
    trusted = tree.get("trust") is True
    kept = {key: value for key, value in tree.items() if key != "trust"}
    told = {**kept, "type": "sse"} if events else kept
    luggage.server(name, told, fate="translated" if events or trusted else "kept")


def _hooks(luggage: Luggage, tree: Json) -> None:
    for event, groups in hooks.gemini(tree).items():
        if is_json_array(groups):
            luggage.hooks(event, groups, why="they receive Gemini CLI's payloads")


def _rules(luggage: Luggage, tree: Json, keys: tuple[str, ...], effect: str) -> None:
    listed = inner(tree, *keys[:-1]).get(keys[-1])
    texts = [str(one) for one in listed] if is_json_array(listed) else []
    kept: list[object] = []
    for text in texts:
        spelt = list(_rule(text))
        kept += spelt
        if not spelt:
            luggage.leave("permissions", f"{'.'.join(keys)}: {text}")
    luggage.setting("permissions", f"permissions.{effect}", kept, fate="translated")


def _rule(text: str) -> Iterator[str]:
    """Translate a rule, as in `run_shell_command(git status)`."""
    name, _, what = text.partition("(")
    ours = TOOLS.get(name.strip(), ("", ()))[0]
    what = what.removesuffix(")").strip()
    if ours and not what:
        yield WRITES.get(ours, ours)
    elif ours == "Bash":
        yield f"Bash({what}:*)"
