"""Import plan for opencode: settings, permissions, agents, commands, MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from travois.compat import agent_files, config_files
from travois.compat.foreign_agent import OPENCODE
from travois.compat.sessions.format import object_at
from travois.core.errors import UserError
from travois.files import front_matter
from travois.files.front_matter import FrontMatter
from travois.importing.plan import (
    ImportPlan,
    plan_files,
    plan_instructions,
    plan_servers,
    plan_skills,
)
from travois.prompt.instruction_files import read_plain_text
from travois.settings.schema import Json

IMPORTED_OPENCODE_KEYS = (
    *("$schema", "model", "instructions", "compaction", "permission", "mcp", "agent"),
    *("command", "provider"),
)
OPENCODE_SKIP_REASONS = {
    "small_model": "Travois picks a small model of the same provider",
    "plugin": "opencode plugins do not run in Travois",
    "theme": "set `tui.theme` to dark or light",
}


def plan_opencode_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from opencode, except for sessions."""
    if (folder := OPENCODE.find_home(environ)) is None:
        return
    for name in OPENCODE.settings[:2]:
        if (folder / name).is_file():
            _plan_opencode_settings(luggage, folder / name)
    for place in (folder / name for name in OPENCODE.agents):
        for path in sorted(place.rglob("*.md")):
            name = str(path.relative_to(place)).removesuffix(".md").replace("/", "-")
            _plan_opencode_agent(
                luggage,
                agent_files.adapt_opencode_agent(
                    front_matter.parse_front_matter(read_plain_text(str(path))), name
                ),
                name,
            )
    for _, told in agent_files.read_opencode_agents(str(folder)):
        _plan_opencode_agent(luggage, told, str(told.values["name"]))
    for name in OPENCODE.commands:
        plan_files(luggage, "commands", folder / name, where="commands")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "opencode", folder / OPENCODE.instructions, folder=folder)


def _plan_opencode_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of an opencode settings file: permissions, MCP servers and commands."""
    try:
        tree = config_files.parse_jsonc(read_plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    layer = config_files.parse_opencode_config(
        {key: value for key, value in tree.items() if key != "permission"},
        str(path),
        level="user",
        base=str(path.parent),
    )
    for key, value in layer.values.items():
        luggage.add_setting("settings", key, value, fate="translated")
    if "permission" in tree:
        luggage.add_setting("permissions", "permission", tree["permission"])
    plan_servers(luggage, tree, "mcp")
    for one in config_files.read_opencode_providers(tree):
        if one.why:
            luggage.skip("settings", f"provider.{one.name}", one.why)
    for name in object_at(tree, "agent"):
        if object_at(tree, "agent", name).get("disable") is True:
            _plan_opencode_agent(luggage, None, name)
    for name in object_at(tree, "command"):
        _plan_opencode_command(luggage, name, object_at(tree, "command", name))
    for key in (key for key in tree if key not in IMPORTED_OPENCODE_KEYS):
        luggage.skip(
            "settings",
            key,
            **({"why": OPENCODE_SKIP_REASONS[key]} if key in OPENCODE_SKIP_REASONS else {}),
        )


def _plan_opencode_command(luggage: ImportPlan, name: str, said: Json) -> None:
    """Plan the import of a custom command in opencode's settings."""
    body, about = said.get("template"), str(said.get("description") or "")
    if isinstance(body, str):
        head = f"---\ndescription: {about}\n---\n" if about and "\n" not in about else ""
        data = f"{head}{body}\n".encode()
        luggage.add_file("commands", f"commands/{name}.md", data, fate="translated")


def _plan_opencode_agent(luggage: ImportPlan, told: FrontMatter | None, name: str) -> None:
    """Plan the import of an opencode agent, or skip it if it is disabled or incomplete."""
    if told is None:
        luggage.skip("agents", name, "it is disabled in opencode")
        return
    if not told.body.strip() or "description" not in told.values:
        luggage.skip("agents", name, "it has no prompt or no description")
        return
    lines = [f"{key}: {_front_matter_line(value)}" for key, value in told.values.items()]
    data = "\n".join(("---", *lines, "---", told.body, "")).encode()
    luggage.add_file("agents", f"agents/{name}.md", data, fate="translated")


def _front_matter_line(value: front_matter.FrontMatterValue) -> str:
    """Format a front matter value in one line."""
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())
