"""The memories of this project, this user and this team, as folders on disk."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.memory import foreign_memories
from travois.memory.folder import FolderFlaw, MemoryFolder
from travois.memory.history import MemoryArchive, MemoryHistory, MemoryTransaction
from travois.memory.index import INDEX_FILE
from travois.memory.memory import (
    AppliedChanges,
    DropMemory,
    FileAnchor,
    Memory,
    MemoryChange,
    MemoryConsent,
    MemoryProposal,
    MemoryScope,
    PutMemory,
)
from travois.memory.paths import project_folder_key
from travois.memory.search import MemorySearch
from travois.memory.signals import extract_names
from travois.memory.text import make_slug, tidy_memory
from travois.prompt.instruction_files import read_plain_bytes
from travois.sessions import blobs
from travois.sessions.home import Project, TravoisHome
from travois.settings import trust

if TYPE_CHECKING:
    from travois.search.index import SearchIndex


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
    """Return a memory proposal's ID, the same for changes that look alike to a person."""
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


# How often memories were recalled. Deleting the file loses nothing but that.


MIN_IDLE_RECALLS = 4
"""After how many recalls without any use a memory counts as idle."""
RecallCount = tuple[int, float]
"""The number of recalls, and the time of the last one."""


class MemoryStats(msgspec.Struct, frozen=True):
    """Counts of the memories and of their recalls."""

    total: int
    types: dict[str, int]
    authors: dict[str, int]
    scopes: dict[str, int]
    pinned: int
    recalled: dict[str, RecallCount]
    """Recalls by scope and name; memories without any are left out."""
    never: tuple[str, ...]
    waiting: int = 0
    """The number of memories without an embedding."""
    used: dict[str, RecallCount] = {}
    """Sessions in which the model used a recalled memory, by scope and name."""

    @property
    def idle(self) -> tuple[str, ...]:
        """Memories that were shown several times and never used."""
        return tuple(
            key
            for key, (times, _) in self.recalled.items()
            if times >= MIN_IDLE_RECALLS and key not in self.used
        )


def usage_key(memory: Memory) -> str:
    """Return the key under which a memory's recalls are counted."""
    return f"{memory.scope}/{memory.name}"


def read_recall_counts(path: Path) -> dict[str, RecallCount]:
    """Read the recall counts; empty if the file is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, RecallCount])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def add_recalls(path: Path, memories: Iterable[Memory], *, now: float) -> None:
    """Count one recall for each memory in the store. Raises OSError."""
    found = read_recall_counts(path)
    for memory in memories:
        found[usage_key(memory)] = (found.get(usage_key(memory), (0, 0.0))[0] + 1, now)
    blobs.make_folders(path.parent)
    blobs.replace_file(path, msgspec.json.encode(found), sync="whenever")


def count_memories(
    memories: Sequence[Memory],
    recalled: dict[str, RecallCount],
    *,
    used: dict[str, RecallCount],
    waiting: int,
) -> MemoryStats:
    """Count memories by type, author, scope and recalls."""
    keys = [usage_key(memory) for memory in memories]
    return MemoryStats(
        len(memories),
        dict(Counter(memory.type for memory in memories)),
        dict(Counter(memory.author for memory in memories)),
        dict(Counter(memory.scope for memory in memories)),
        sum(memory.pinned for memory in memories),
        {each: recalled[each] for each in keys if each in recalled},
        tuple(each for each in keys if each not in recalled),
        waiting,
        {each: used[each] for each in keys if each in used},
    )


def open_memories(
    home: TravoisHome,
    project: Project,
    *,
    consent: Mapping[MemoryScope, MemoryConsent],
    index: SearchIndex | None,
    trusted: bool,
    directory: str = "",
    wrote: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> FolderMemoryStore:
    """Open the store of memories that apply in a project, without creating any folder.

    `wrote` is called with each changed file of the team's, because those lie in the workspace.
    """
    root = home.path / "memory"
    key = project_folder_key(home, project)
    own = Path(directory).expanduser().absolute() if directory else root / key
    folders: dict[MemoryScope, MemoryFolder] = {
        "project": MemoryFolder(str(own) if directory else key, own, scope="project"),
        "user": MemoryFolder("user", root / "user", scope="user"),
    }
    link = root / key / "team"
    if trusted and link.is_dir() and os.path.realpath(link) == os.readlink(link):
        folders["team"] = MemoryFolder(f"{key}/team", link, scope="team", wrote=wrote)
    archive = MemoryArchive(MemoryHistory(root, clock=clock), folders)
    return FolderMemoryStore(archive, consent=consent, root=project.root, index=index)


class FolderMemoryStore:
    """The memory store on disk, with one folder for each scope."""

    def __init__(
        self,
        archive: MemoryArchive,
        *,
        consent: Mapping[MemoryScope, MemoryConsent],
        root: str,
        index: SearchIndex | None = None,
    ) -> None:
        self._archive = archive
        self._consent = consent
        self._root = root
        self._finder = MemorySearch(archive, index)
        self._usage = archive.past.root / ".history" / "usage.json"
        self._uses = self._usage.with_name("uses.json")
        self._used_here: frozenset[str] = frozenset()
        self._inbox = ProposalInbox(archive)

    def read_all(self) -> tuple[Memory, ...]:
        """Return every readable memory as it is on disk."""
        return self._archive.read_all()

    def get(self, name: str, scope: MemoryScope | None = None) -> Memory:
        """Return the memory of this name from the nearest scope."""
        known = [one for one in self.read_all() if scope in (None, one.scope)]
        for memory in known:
            if memory.name == name:
                return memory
        near = get_close_matches(name, {one.name for one in known}, n=3, cutoff=0.5)
        fix = f"Did you mean {', '.join(near)}?" if near else "Run `travois memory` to list them."
        raise UserError(f"There is no memory {name!r}", fix=fix)

    def consent(self, scope: MemoryScope) -> MemoryConsent:
        """Return what happens to a proposal in this scope; `off` where it has no folder."""
        return self._consent.get(scope, "off") if scope in self._archive.folders else "off"

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Return the memories most relevant to a text, best first; irrelevant ones are left out."""
        return self._finder.search(text, limit=limit)

    def index(self) -> str:
        """Return the index of each folder that has memories, under its path."""
        self._archive.past.recover()
        heads = ((one.path, one.first_page()) for one in self._archive.folders.values())
        return "\n".join(f"{path / INDEX_FILE}:\n{text}" for path, text in heads if text)

    def folders(self) -> dict[MemoryScope, Path]:
        """Return the folder of each scope."""
        return {scope: folder.path for scope, folder in self._archive.folders.items()}

    def apply(
        self,
        changes: Sequence[MemoryChange],
        *,
        why: str,
        session: str = "",
        based: Sequence[Memory] | None = None,
    ) -> AppliedChanges:
        """Apply changes in one recorded step; pinned memories and secrets are refused.

        Changes that are `based` on memories are made only if these are still the same, and then
        all of them or none.
        """
        off = [change for change in changes if self.consent(_find_change_scope(change)) == "off"]
        rest = [change for change in changes if change not in off]
        done = self._archive.apply(rest, why=why, session=session, by="agent", based=based)
        barred = tuple(
            f"memory is off for the {_find_change_scope(change)} scope" for change in off
        )
        return replace(done, refused=(*barred, *done.refused))

    def add(self, memory: Memory) -> AppliedChanges:
        """Keep a memory in the user's own words; only these may be pinned."""
        return self._apply_as_person(PutMemory(memory), why="added by hand")

    def forget(self, name: str, scope: MemoryScope | None = None) -> AppliedChanges:
        """Delete a memory at the user's request, pinned or not."""
        return self._apply_as_person(DropMemory(name, self.get(name, scope).scope), why="forgotten")

    def record_edits(self) -> AppliedChanges:
        """Record in the history and the index what people changed in the files."""
        archive = self._archive
        with archive.past.lock():
            made = archive.record_outside_edits()
            for folder in archive.folders.values():
                if folder.path.is_dir():
                    folder.reindex()
        return AppliedChanges(made.id, archive.diff(made)) if made else AppliedChanges("", "")

    def history(self, limit: int = 20) -> list[MemoryTransaction]:
        """Return the latest transactions in these folders."""
        return self._archive.history()[:limit]

    def undo(self, id: str = "") -> AppliedChanges:
        """Restore the state before a transaction; by default the latest of ours."""
        return self._archive.undo(id)

    def propose(self, changes: Sequence[MemoryChange], *, why: str) -> tuple[str, ...]:
        """Add changes to the inbox, except those rejected before; return their ids."""
        return self._inbox.add(changes, why=why)

    def inbox(self) -> list[MemoryProposal]:
        """Return the proposals that wait for the user, oldest first."""
        return self._inbox.list_proposals()

    def accept(self, id: str) -> AppliedChanges:
        """Apply a proposal."""
        meant = self._inbox.get(id)
        done = self._apply_as_person(meant.change, why="accepted")
        self._inbox.close(meant, word="accepted")
        return done

    def reject(self, id: str) -> None:
        """Reject a proposal, so that it is never made again."""
        self._inbox.close(self._inbox.get(id), word="rejected")

    def find_stale_files(self, memory: Memory) -> tuple[str, ...]:
        """Return the files that a memory refers to and that have changed."""
        return tuple(one.path for one in memory.anchors if self._hash_file(one.path) != one.sha256)

    def anchor(self, path: str) -> FileAnchor | None:
        """Return a file as it is now; None if it cannot be read."""
        found = self._hash_file(path)
        return FileAnchor(path, found) if found else None

    def reverify(self, memory: Memory) -> Memory | None:
        """Renew a memory whose files changed if everything that it names is still in them."""
        if not self.find_stale_files(memory):
            return memory
        texts = [self._read_file(one.path) or b"" for one in memory.anchors]
        there = b"\n".join(texts).decode(errors="replace").casefold()
        said = "\n".join((memory.body, *(one.words for one in memory.evidence)))
        paths = "\n".join(one.path for one in memory.anchors).casefold()
        cited = [name for name in extract_names(said) if name not in paths]
        if not cited or not all(texts) or not all(name in there for name in cited):
            return None
        anchors = tuple(FileAnchor(one.path, self._hash_file(one.path)) for one in memory.anchors)
        renewed = replace(memory, anchors=anchors, verified=self._archive.past.clock())
        by = "person" if memory.pinned else "agent"
        done = self._archive.apply((PutMemory(renewed),), why="verified", by=by)
        return tidy_memory(renewed) if done.id else None

    def _read_file(self, path: str) -> bytes | None:
        try:
            return read_plain_bytes(os.path.join(self._root, path))
        except OSError:
            return None

    def _hash_file(self, path: str) -> str:
        data = self._read_file(path)
        return "" if data is None else sha256(data).hexdigest()

    def find_flaws(self) -> list[FolderFlaw]:
        """Return the problems of the memory folders, with a fix for each."""
        self.read_all()
        return [flaw for folder in self._archive.folders.values() for flaw in folder.find_flaws()]

    def count_recalls(self, names: Iterable[str]) -> None:
        """Count a recall for each of these memories; failures are ignored."""
        wanted = frozenset(names)
        found = [one for one in self.read_all() if one.name in wanted]
        with suppress(UserError), self._archive.past.lock():
            add_recalls(self._usage, found, now=self._archive.past.clock())

    def count_uses(self, names: Iterable[str]) -> None:
        """Count a use for each of these memories, once a session; failures are ignored."""
        fresh = frozenset(names) - self._used_here
        self._used_here |= fresh
        found = [one for one in self.read_all() if one.name in fresh] if fresh else ()
        if found:
            with suppress(UserError), self._archive.past.lock():
                add_recalls(self._uses, found, now=self._archive.past.clock())

    def put_idle_last(self, memories: Sequence[Memory]) -> tuple[Memory, ...]:
        """Put those that were never used or refer to changed files behind the others."""
        idle = frozenset(self.stats().idle)
        return tuple(
            sorted(
                memories, key=lambda one: usage_key(one) in idle or bool(self.find_stale_files(one))
            )
        )

    def stats(self) -> MemoryStats:
        """Count the memories and their recalls."""
        return count_memories(
            self.read_all(),
            read_recall_counts(self._usage),
            used=read_recall_counts(self._uses),
            waiting=self.count_unembedded(),
        )

    def count_unembedded(self) -> int:
        """Return how many memories have no embedding yet."""
        return self._finder.count_unembedded()

    def embed_more(self, limit: int) -> int:
        """Embed up to `limit` more memories; return how many were embedded."""
        return self._finder.embed_more(limit)

    def import_from(
        self,
        source: str,
        *,
        scope: MemoryScope | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> AppliedChanges:
        """Import the memories of `claude` or `codex`, or those in a folder or file."""
        place = foreign_memories.find_source(source, environ, trust.trust_root(self._root))
        there = place and place.absolute()
        if there is None or not there.exists():
            fix = "Name a folder, a file or an agent (claude, codex)."
            raise UserError(
                f"There are no memories of {source}", why=f"{there} does not exist", fix=fix
            )
        scope = scope or ("user" if source == "codex" else "project")
        known = {one.name: one for one in self.read_all() if one.scope == scope}
        try:
            found = [
                _rename_if_taken(one, known, source)
                for one in foreign_memories.read_foreign_memories(
                    there, scope=scope, label=Path(source).stem
                )
            ]
        except OSError as error:
            why = error.strerror or str(error)
            raise UserError(f"The memories in {there} cannot be read", why=why) from error
        return self._archive.apply(
            [PutMemory(one) for one in found], why=f"imported from {source}", by="agent"
        )

    def _apply_as_person(self, change: MemoryChange, *, why: str) -> AppliedChanges:
        """Apply a change that the user made; raise UserError if it is refused."""
        done = self._archive.apply((change,), why=why, by="person")
        if done.refused:
            raise UserError("The memory was not changed", why="; ".join(done.refused))
        return done


def share_with_team(home: TravoisHome, project: Project) -> Path:
    """Create the folder of the team's memories in a repository, and enable it for the user."""
    folder = Path(os.path.realpath(project.root), ".travois", "memory")
    link = home.path / "memory" / project_folder_key(home, project) / "team"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.realpath(folder) != str(folder):
            raise UserError(
                f"{folder} cannot be shared", why="a symbolic link leads out of the repository"
            )
        blobs.make_folders(link.parent)
        if link.is_symlink():
            link.unlink()
        link.symlink_to(folder)
    except OSError as error:
        raise blobs.make_storage_error("Memory cannot be shared", error, path=folder) from error
    return folder


def _rename_if_taken(memory: Memory, known: Mapping[str, Memory], source: str) -> Memory:
    """Return the memory under a new name if another memory has its name."""
    there = known.get(memory.name)
    if there is None or there.body == memory.body:
        return memory
    return replace(memory, name=make_slug(f"{memory.name[:40]} {Path(source).name[-19:]}"))


def _find_change_scope(change: MemoryChange) -> MemoryScope:
    return change.memory.scope if isinstance(change, PutMemory) else change.scope
