"""What opencode keeps for a person, as a plan for our home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from travois.compat import config_files
from travois.compat import config_files as neighbours
from travois.compat import opencode as opencode_agents
from travois.compat.foreign_agent import OPENCODE
from travois.compat.sessions.format import inner
from travois.core.errors import Fault
from travois.files import front_matter as front
from travois.files.front_matter import Front
from travois.importing import plan as shelves
from travois.importing.plan import Luggage
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json

TAKEN = (
    *("$schema", "model", "instructions", "compaction", "permission", "mcp", "agent"),
    *("command", "provider"),
)
WHY = {
    "small_model": "Travois chooses one of the same provider",
    "plugin": "its plugins are programs for opencode",
    "theme": "`tui.theme` is dark or light",
}


def plan(luggage: Luggage, environ: Mapping[str, str]) -> None:
    """All of it but sessions."""
    if (folder := OPENCODE.home(environ)) is None:
        return
    for name in OPENCODE.settings[:2]:
        if (folder / name).is_file():
            _settings(luggage, folder / name)
    for place in (folder / name for name in OPENCODE.agents):
        for path in sorted(place.rglob("*.md")):
            name = str(path.relative_to(place)).removesuffix(".md").replace("/", "-")
            _agent(luggage, opencode_agents.adapted(front.read(plain_text(str(path))), name), name)
    for _, told in opencode_agents.tabled(str(folder)):
        _agent(luggage, told, str(told.values["name"]))
    for name in OPENCODE.commands:
        shelves.files(luggage, "commands", folder / name, where="commands")
    shelves.skills(luggage, folder / "skills")
    shelves.instructions(luggage, "opencode", folder / OPENCODE.instructions, folder=folder)


def _settings(luggage: Luggage, path: Path) -> None:
    try:
        tree = neighbours.loose(plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise Fault(f"{path} cannot be understood", why=str(error)) from None
    layer = neighbours.opencode(
        {key: value for key, value in tree.items() if key != "permission"},
        str(path),
        level="user",
        base=str(path.parent),
    )
    for key, value in layer.values.items():
        luggage.setting("settings", key, value, fate="translated")
    if "permission" in tree:
        luggage.setting("permissions", "permission", tree["permission"])
    shelves.servers(luggage, tree, "mcp")
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


def _agent(luggage: Luggage, told: Front | None, name: str) -> None:
    if told is None:
        luggage.leave("agents", name, "it is switched off there")
        return
    if not told.body.strip() or "description" not in told.values:
        luggage.leave("agents", name, "it has no prompt or no description of its own")
        return
    lines = [f"{key}: {_spelt(value)}" for key, value in told.values.items()]
    data = "\n".join(("---", *lines, "---", told.body, "")).encode()
    luggage.file("agents", f"agents/{name}.md", data, fate="translated")


def _spelt(value: front.Value) -> str:
    """A value as front matter has it, in one line."""
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())
