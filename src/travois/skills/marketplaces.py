"""Where plugins are offered: folders that list several, and those that Claude Code installed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from travois.permissions.paths import inside
from travois.prompt.instruction_files import exactly, plain_text
from travois.settings.schema import Json
from travois.settings.validate import is_list, is_tree

LISTS = (".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json", "marketplace.json")


class Offer(msgspec.Struct, frozen=True):
    """A folder that may be a plugin, and what a list says of it."""

    folder: str
    entry: Json = {}


def offered(folder: str) -> Iterator[Offer]:
    """The plugins of this folder that a list in it names; raises ValueError if it is flawed."""
    path = next(filter(os.path.isfile, (os.path.join(folder, name) for name in LISTS)), "")
    for entry in _entries(path) if path else ():
        if isinstance(source := entry.get("source"), str):
            yield Offer(os.path.join(folder, source), entry)


def installed(
    folder: Path | None, wanted: Iterable[str], root: str
) -> tuple[list[Offer], list[str]]:
    """The plugins that Claude Code keeps in a folder, by `name@marketplace`; and notices."""
    found, notices = list[Offer](), list[str]()
    for id in wanted if folder is not None else ():
        assert folder is not None
        listed = folder / "installed_plugins.json"
        try:
            copies = table(listed).get("plugins") if listed.is_file() else None
            copy = _fitting(copies.get(id) if is_tree(copies) else None, root)
            if not copy:
                raise ValueError("it is enabled, but Claude Code has not installed it here")
            found.append(Offer(copy, _described(folder, id)))
        except (OSError, ValueError) as error:
            notices.append(f"plugin {id} is left out: {error}")
    return found, notices


def table(path: Path | str) -> Json:
    """The JSON object of a file; raises ValueError if it is none."""
    try:
        tree: object = msgspec.json.decode(plain_text(os.path.realpath(path), opener=exactly))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not is_tree(tree):
        raise ValueError(f"{path} is not a JSON object")
    return tree


def _fitting(copies: object, root: str) -> str:
    """The folder of a copy that is for all projects, or for this one."""
    for copy in copies if is_list(copies) else [copies]:
        if is_tree(copy) and isinstance(path := copy.get("installPath"), str):
            project = copy.get("projectPath")
            if not isinstance(project, str) or inside(root, project):
                return path
    return ""


def _described(folder: Path, id: str) -> Json:
    """What its marketplace says of a plugin; nothing if that is not there."""
    name, _, market = id.partition("@")
    known = folder / "known_marketplaces.json"
    place = table(known).get(market) if known.is_file() else None
    at = str(place.get("installLocation")) if is_tree(place) else ""
    offers = offered(at) if at else ()
    return next((offer.entry for offer in offers if offer.entry.get("name") == name), Json())


def _entries(path: str) -> Iterator[Json]:
    listed = table(path).get("plugins")
    yield from (entry for entry in (listed if is_list(listed) else ()) if is_tree(entry))
