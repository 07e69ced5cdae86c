"""The inbox: memory changes that wait for the user's approval, one file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from travois.core.errors import UserError
from travois.memory.folder import Folder
from travois.memory.history import Archive
from travois.memory.memory import Change, Drop, Proposal, Put, Scope
from travois.prompt.instruction_files import plain_bytes

WAITING = "inbox"
REJECTED = "rejected"


class Inbox:
    """The proposals of all scopes. The same one is never there twice."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def put(self, changes: Sequence[Change], *, why: str) -> tuple[str, ...]:
        """Add changes, except those rejected before; return the ids of the added ones."""
        ids: list[str] = []
        with self._archive.past.locked():
            for change in changes:
                id, folder = _id(change), self._folder(change)
                if (
                    _scope(change) not in self._archive.folders
                    or (folder.path / REJECTED / f"{id}.json").exists()
                ):
                    continue
                ids.append(id)
                if not (folder.path / WAITING / f"{id}.json").exists():
                    paper = Proposal(id, change, why, self._archive.past.clock())
                    folder.write(f"{WAITING}/{id}.json", msgspec.json.encode(paper))
        return tuple(ids)

    def all(self) -> list[Proposal]:
        """Return the readable proposals, oldest first."""
        found = [paper for path in self._papers() if (paper := _read(path))]
        return sorted(found, key=lambda paper: (paper.at, paper.id))

    def get(self, id: str) -> Proposal:
        """Return the proposal with this id or unique id prefix."""
        found = [paper for paper in self.all() if id and paper.id.startswith(id)]
        if len(found) == 1:
            return found[0]
        fix = "Run `travois memory inbox` to list the proposals."
        raise UserError(
            f"{'Several proposals match' if found else 'No proposal matches'} {id!r}", fix=fix
        )

    def close(self, proposal: Proposal, *, word: Literal["accepted", "rejected"]) -> None:
        """Remove a proposal; a rejected one is remembered, so that it does not come back."""
        with self._archive.past.locked():
            folder = self._folder(proposal.change)
            if word == "rejected":
                folder.write(f"{REJECTED}/{proposal.id}.json", msgspec.json.encode(proposal))
            folder.write(f"{WAITING}/{proposal.id}.json", None)

    def _folder(self, change: Change) -> Folder:
        """Return the folder for a proposal: that of the team is kept outside of the repository."""
        return self._archive.folders["user" if _scope(change) == "user" else "project"]

    def _papers(self) -> Iterator[Path]:
        for scope in ("project", "user"):
            place = self._archive.folders[scope].path / WAITING
            if place.is_dir() and not place.is_symlink():
                yield from place.glob("[!.]*.json")


def _read(path: Path) -> Proposal | None:
    try:
        return msgspec.json.decode(plain_bytes(str(path)), type=Proposal)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _id(change: Change) -> str:
    """Return an id that is the same for changes that look the same to a person."""
    match change:
        case Put(memory):
            said = ("put", memory.scope, memory.name, memory.description, memory.body)
        case Drop(name, scope):
            said = ("drop", scope, name)
        case _:
            assert_never(change)
    return sha256("\0".join(said).encode(errors="replace")).hexdigest()[:8]


def _scope(change: Change) -> Scope:
    return change.memory.scope if isinstance(change, Put) else change.scope
