"""Import plan for pi: model, MCP servers, commands, skills, instructions."""

from __future__ import annotations

from collections.abc import Mapping

from travois.compat.foreign_agent import PI
from travois.importing.plan import Luggage, files, instructions, servers, skills, tree_of

TAKEN = ("defaultModel", "defaultProvider")


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """Plan the import from pi, except for sessions."""
    if (folder := PI.home(environ)) is None:
        return
    settings = tree_of(folder / "settings.json")
    provider, model = settings.get("defaultProvider"), settings.get("defaultModel")
    if isinstance(provider, str) and isinstance(model, str):
        luggage.setting("settings", "model", f"{provider}/{model}", fate="translated")
    for key in (key for key in settings if key not in TAKEN):
        luggage.leave("settings", key)
    servers(luggage, tree_of(folder.parent / "mcp.json"), "mcpServers")
    files(luggage, "commands", folder / "prompts", where="commands")
    skills(luggage, folder / "skills")
    instructions(luggage, "pi", folder / PI.instructions, folder=folder)
    for name in ("auth.json", "extensions"):
        if (folder / name).exists():
            luggage.leave("settings", name, "pi's logins and extensions are not imported")
