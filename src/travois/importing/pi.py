"""Import plan for pi: model, MCP servers, commands, skills, instructions."""

from __future__ import annotations

from collections.abc import Mapping

from travois.compat.foreign_agent import PI
from travois.importing.plan import (
    ImportPlan,
    plan_files,
    plan_instructions,
    plan_servers,
    plan_skills,
    read_json_object,
)

IMPORTED_PI_KEYS = ("defaultModel", "defaultProvider")


def plan_pi_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from pi, except for sessions."""
    if (folder := PI.find_home(environ)) is None:
        return
    settings = read_json_object(folder / "settings.json")
    provider, model = settings.get("defaultProvider"), settings.get("defaultModel")
    if isinstance(provider, str) and isinstance(model, str):
        luggage.add_setting("settings", "model", f"{provider}/{model}", fate="translated")
    for key in (key for key in settings if key not in IMPORTED_PI_KEYS):
        luggage.skip("settings", key)
    plan_servers(luggage, read_json_object(folder.parent / "mcp.json"), "mcpServers")
    plan_files(luggage, "commands", folder / "prompts", where="commands")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "pi", folder / PI.instructions, folder=folder)
    for name in ("auth.json", "extensions"):
        if (folder / name).exists():
            luggage.skip("settings", name, "pi's logins and extensions are not imported")
