"""What agents keep alike: files of commands and the like, texts on how to work, servers."""

from __future__ import annotations

from pathlib import Path

from travois.store.importing.plan import LARGEST, MOST, Draft, Part
from travois.store.instructions import plain_text
from travois.store.reading import is_tree
from travois.store.recorded.spoken import inner
from travois.store.settings import Json

SKILL = "SKILL.md"


def files(draft: Draft, part: Part, folder: Path, *, where: str, ends: str = ".md") -> None:
    """All files of a folder, and of those in it, under the names that they have."""
    found = sorted(path for path in folder.rglob(f"*{ends}") if path.is_file())
    for path in found[:MOST]:
        if path.stat().st_size > LARGEST:
            draft.leave(part, path.name, f"it is too large; copy {path} yourself")
        else:
            draft.file(part, f"{where}/{path.relative_to(folder)}", path.read_bytes())


def skills(draft: Draft, folder: Path) -> None:
    """All skills of a folder, each with what lies beside it."""
    for path in sorted(folder.glob(f"*/{SKILL}")):
        if not path.parent.name.startswith("."):
            draft.folder("skills", path.parent, f"skills/{path.parent.name}")


def instructions(draft: Draft, agent: str, path: Path) -> None:
    """A text that says how to work."""
    if not path.is_file():
        return
    try:
        text = plain_text(str(path))
    except OSError as error:
        draft.leave("instructions", path.name, str(error))
        return
    if text.strip():
        draft.instructions(agent, path.name, text, base=path.parent)


def servers(draft: Draft, tree: Json, key: str) -> None:
    """The servers of tools that settings name."""
    for name, server in inner(tree, key).items():
        if is_tree(server):
            draft.server(name, server)
