"""What agents keep alike: files of commands and the like, texts on how to work, servers."""

from __future__ import annotations

import os
from pathlib import Path

from travois.compat.sessions.format import inner
from travois.importing.plan import LARGEST, MOST, Luggage, Part
from travois.permissions.paths import inside
from travois.prompt.instruction_files import HOPS, plain_text
from travois.prompt.instruction_text import imports
from travois.settings.schema import Json
from travois.settings.validate import is_tree

SKILL = "SKILL.md"


def files(luggage: Luggage, part: Part, folder: Path, *, where: str, ends: str = ".md") -> None:
    """All files of a folder, and of those in it, under the names that they have."""
    found = sorted(path for path in folder.rglob(f"*{ends}") if path.is_file())
    for path in found[:MOST]:
        if path.stat().st_size > LARGEST:
            luggage.leave(part, path.name, f"it is too large; copy {path} yourself")
        else:
            luggage.file(part, f"{where}/{path.relative_to(folder)}", path.read_bytes())


def skills(luggage: Luggage, folder: Path) -> None:
    """All skills of a folder, each with what lies beside it."""
    for path in sorted(folder.glob(f"*/{SKILL}")):
        if not path.parent.name.startswith("."):
            luggage.folder("skills", path.parent, f"skills/{path.parent.name}")


def instructions(luggage: Luggage, agent: str, path: Path, *, folder: Path, hops: int = 0) -> None:
    """A text that says how to work, and those beside it that it imports."""
    if not path.is_file():
        return
    name = str(path.relative_to(folder))
    try:
        text = plain_text(str(path))
    except OSError as error:
        luggage.leave("instructions", name, str(error))
        return
    near = [one for one in imports(text) if _beside(path.parent / one, folder)]
    if text.strip():
        luggage.instructions(agent, name, text, base=path.parent, imported=hops > 0, near=near)
    for one in near if hops < HOPS else ():
        found = Path(os.path.normpath(path.parent / one))
        instructions(luggage, agent, found, folder=folder, hops=hops + 1)


def _beside(path: Path, folder: Path) -> bool:
    """Whether a file lies in the folder that is left behind."""
    return path.is_file() and inside(os.path.normpath(path), str(folder))


def servers(luggage: Luggage, tree: Json, key: str) -> None:
    """The servers of tools that settings name."""
    for name, server in inner(tree, key).items():
        if is_tree(server):
            luggage.server(name, server)
