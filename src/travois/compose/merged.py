"""What a folder comes to besides settings, from the files of all agents at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from travois.compose.open_session import Place
from travois.compose.options import Options
from travois.settings.schema import Loaded


class Told(msgspec.Struct, frozen=True):
    """One thing that counts, in a line, and the file that brings it."""

    value: str
    origin: str


Found = Iterator[tuple[str, Told]]


def parts(place: Place, loaded: Loaded) -> dict[str, Told]:
    """All of it by key, as in `skills.deploy`."""
    return {
        f"{part}.{name}": told for part, find in PARTS.items() for name, told in find(place, loaded)
    }


def _instructions(place: Place, loaded: Loaded) -> Found:
    from travois.compose import permissions as rights
    from travois.compose.instructions import library

    guard = rights.guard(loaded, place.cwd, own=str(place.home.path))
    files = library(place, loaded, guard, sources="").standing().files
    yield from ((str(at), Told(one.kind, one.path)) for at, one in enumerate(files, 1))


def _agents(place: Place, loaded: Loaded) -> Found:
    from travois.compose.session import agents_here

    for kind in agents_here(place, loaded, Options())[0]:
        yield kind.name, Told(kind.description, kind.origin)


def _commands(place: Place, loaded: Loaded) -> Found:
    from travois.skills.command_files import commands

    found, _ = commands(place.home, place.project.root, place.cwd, plugins=loaded.plugins)
    yield from ((name, Told(one.description, one.origin)) for name, one in found.items())


def _skills(place: Place, loaded: Loaded) -> Found:
    from travois.compose.skills import skills
    from travois.skills.skill_files import FILE

    for skill in skills(place, loaded, Options()).standing().skills:
        if skill.origin.endswith(FILE):
            yield skill.name, Told(skill.description, skill.origin)


def _styles(place: Place, loaded: Loaded) -> Found:
    from travois.compose.skills import places
    from travois.prompt.style_files import styles

    for style in styles(places(place, loaded, Options()))[0].values():
        yield style.name, Told(style.description, style.origin)


def _servers(place: Place, loaded: Loaded) -> Found:
    from travois.compose import mcp as lending

    found = lending.found(place, loaded, Options())
    for one in found.servers:
        yield one.name, Told(one.url or " ".join(one.argv), one.origin)
    for entry in found.waiting:
        yield entry.name, Told("waits for your word: travois trust", entry.origin)


def _rules(_: Place, loaded: Loaded) -> Found:
    for at, rule in enumerate(loaded.rules, 1):
        others = ", ".join(other.text for other in rule.unless)
        but = f" but for {others}" if others else ""
        yield str(at), Told(f"{rule.effect} {rule.text}{but}", rule.origin)


PARTS: dict[str, Callable[[Place, Loaded], Found]] = {
    "instructions": _instructions,
    "agents": _agents,
    "commands": _commands,
    "skills": _skills,
    "outputStyles": _styles,
    "mcpServers": _servers,
    "rules": _rules,
}
