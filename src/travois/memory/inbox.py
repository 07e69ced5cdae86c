"""The inbox: memory changes that wait for the user's approval, one file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from travois.core.errors import UserError
from travois.memory.folder import MemoryFolder
from travois.memory.history import MemoryArchive
from travois.memory.memory import DropMemory, MemoryChange, MemoryProposal, MemoryScope, PutMemory
from travois.prompt.instruction_files import read_plain_bytes

WAITING_FOLDER = "inbox"
REJECTED_FOLDER = "rejected"


class ProposalInbox:
    """The proposals of all scopes. The same one is never there twice."""

    def __init__(self, archive: MemoryArchive) -> None:
        self._archive = archive

    def add(self, changes: Sequence[MemoryChange], *, why: str) -> tuple[str, ...]:
        """Add changes, except those rejected before; return the ids of the added ones."""
        ids: list[str] = []
        with self._archive.past.lock():
            for change in changes:
                id, folder = _compute_proposal_id(change), self._choose_folder(change)
                if (
                    _get_change_scope(change) not in self._archive.folders
                    or (folder.path / REJECTED_FOLDER / f"{id}.json").exists()
                ):
                    continue
                ids.append(id)
                if not (folder.path / WAITING_FOLDER / f"{id}.json").exists():
                    paper = MemoryProposal(id, change, why, self._archive.past.clock())
                    folder.write(f"{WAITING_FOLDER}/{id}.json", msgspec.json.encode(paper))
        return tuple(ids)

    def list_proposals(self) -> list[MemoryProposal]:
        """Return the readable proposals, oldest first."""
        found = [paper for path in self._list_files() if (paper := _read_proposal(path))]
        return sorted(found, key=lambda paper: (paper.at, paper.id))

    def get(self, id: str) -> MemoryProposal:
        """Return the proposal with this id or unique id prefix."""
        found = [paper for paper in self.list_proposals() if id and paper.id.startswith(id)]
        if len(found) == 1:
            return found[0]
        fix = "Run `travois memory inbox` to list the proposals."
        raise UserError(
            f"{'Several proposals match' if found else 'No proposal matches'} {id!r}", fix=fix
        )

    def close(self, proposal: MemoryProposal, *, word: Literal["accepted", "rejected"]) -> None:
        """Remove a proposal; a rejected one is remembered, so that it does not come back."""
        with self._archive.past.lock():
            folder = self._choose_folder(proposal.change)
            if word == "rejected":
                folder.write(f"{REJECTED_FOLDER}/{proposal.id}.json", msgspec.json.encode(proposal))
            folder.write(f"{WAITING_FOLDER}/{proposal.id}.json", None)

    def _choose_folder(self, change: MemoryChange) -> MemoryFolder:
        """Return the folder for a proposal: that of the team is kept outside of the repository."""
        return self._archive.folders["user" if _get_change_scope(change) == "user" else "project"]

    def _list_files(self) -> Iterator[Path]:
        for scope in ("project", "user"):
            place = self._archive.folders[scope].path / WAITING_FOLDER
            if place.is_dir() and not place.is_symlink():
                yield from place.glob("[!.]*.json")


def _read_proposal(path: Path) -> MemoryProposal | None:
    """Read a memory change that waits for approval; None if it is invalid."""
    try:
        return msgspec.json.decode(read_plain_bytes(str(path)), type=MemoryProposal)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _compute_proposal_id(change: MemoryChange) -> str:
    """Return an id that is the same for changes that look the same to a person."""
    match change:
        case PutMemory(memory):
            said = ("put", memory.scope, memory.name, memory.description, memory.body)
        case DropMemory(name, scope):
            said = ("drop", scope, name)
        case _:
            assert_never(change)
    return sha256("\0".join(said).encode(errors="replace")).hexdigest()[:8]


def _get_change_scope(change: MemoryChange) -> MemoryScope:
    return change.memory.scope if isinstance(change, PutMemory) else change.scope
