"""Import plan for opencode: settings, permissions, agents, commands, MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from travois.compat import config_files, opencode
from travois.compat.foreign_agent import OPENCODE
from travois.compat.sessions.format import inner
from travois.core.errors import UserError
from travois.files import front_matter
from travois.files.front_matter import FrontMatter
from travois.importing.plan import Luggage, files, instructions, servers, skills
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json

TAKEN = (
    *("$schema", "model", "instructions", "compaction", "permission", "mcp", "agent"),
    *("command", "provider"),
)
WHY = {
    "small_model": "Travois picks a small model of the same provider",
    "plugin": "opencode plugins do not run in Travois",
    "theme": "set `tui.theme` to dark or light",
}


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """Plan the import from opencode, except for sessions."""
    if (folder := OPENCODE.home(environ)) is None:
        return
    for name in OPENCODE.settings[:2]:
        if (folder / name).is_file():
            _settings(luggage, folder / name)
    for place in (folder / name for name in OPENCODE.agents):
        for path in sorted(place.rglob("*.md")):
            name = str(path.relative_to(place)).removesuffix(".md").replace("/", "-")
            _agent(
                luggage,
                opencode.adapted(front_matter.parse_front_matter(plain_text(str(path))), name),
                name,
            )
    for _, told in opencode.tabled(str(folder)):
        _agent(luggage, told, str(told.values["name"]))
    for name in OPENCODE.commands:
        files(luggage, "commands", folder / name, where="commands")
    skills(luggage, folder / "skills")
    instructions(luggage, "opencode", folder / OPENCODE.instructions, folder=folder)


def _settings(luggage: Luggage, path: Path) -> None:
    try:
        tree = config_files.loose(plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    layer = config_files.opencode(
        {key: value for key, value in tree.items() if key != "permission"},
        str(path),
        level="user",
        base=str(path.parent),
    )
    for key, value in layer.values.items():
        luggage.setting("settings", key, value, fate="translated")
    if "permission" in tree:
        luggage.setting("permissions", "permission", tree["permission"])
    servers(luggage, tree, "mcp")
    for one in config_files.opencode_providers(tree):
        if one.why:
            luggage.leave("settings", f"provider.{one.name}", one.why)
    for name in inner(tree, "agent"):
        if inner(tree, "agent", name).get("disable") is True:
            _agent(luggage, None, name)
    for name in inner(tree, "command"):
        _command(luggage, name, inner(tree, "command", name))
    for key in (key for key in tree if key not in TAKEN):
        luggage.leave("settings", key, **({"why": WHY[key]} if key in WHY else {}))


def _command(luggage: Luggage, name: str, said: Json) -> None:
    body, about = said.get("template"), str(said.get("description") or "")
    if isinstance(body, str):
        head = f"---\ndescription: {about}\n---\n" if about and "\n" not in about else ""
        data = f"{head}{body}\n".encode()
        luggage.file("commands", f"commands/{name}.md", data, fate="translated")


def _agent(luggage: Luggage, told: FrontMatter | None, name: str) -> None:
    if told is None:
        luggage.leave("agents", name, "it is disabled in opencode")
        return
    if not told.body.strip() or "description" not in told.values:
        luggage.leave("agents", name, "it has no prompt or no description")
        return
    lines = [f"{key}: {_spelt(value)}" for key, value in told.values.items()]
    data = "\n".join(("---", *lines, "---", told.body, "")).encode()
    luggage.file("agents", f"agents/{name}.md", data, fate="translated")


def _spelt(value: front_matter.FrontMatterValue) -> str:
    """Format a front matter value in one line."""
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())
