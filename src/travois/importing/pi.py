"""What pi keeps for a person, as a plan for our home."""

from __future__ import annotations

from collections.abc import Mapping

from travois.compat.foreign_agent import PI
from travois.importing import plan as shelves
from travois.importing.plan import Luggage, tree_of

TAKEN = ("defaultModel", "defaultProvider")


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """All of it but sessions."""
    if (folder := PI.home(environ)) is None:
        return
    settings = tree_of(folder / "settings.json")
    provider, model = settings.get("defaultProvider"), settings.get("defaultModel")
    if isinstance(provider, str) and isinstance(model, str):
        luggage.setting("settings", "model", f"{provider}/{model}", fate="translated")
    for key in (key for key in settings if key not in TAKEN):
        luggage.leave("settings", key)
    shelves.servers(luggage, tree_of(folder.parent / "mcp.json"), "mcpServers")
    shelves.files(luggage, "commands", folder / "prompts", where="commands")
    shelves.skills(luggage, folder / "skills")
    shelves.instructions(luggage, "pi", folder / PI.instructions, folder=folder)
    for name in ("auth.json", "extensions"):
        if (folder / name).exists():
            luggage.leave("settings", name, "logins and programs for pi are not copied")
