"""The folders of all scopes with their history: the one place from which memories are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, assert_never

from msgspec.structs import replace

from travois.core.errors import Fault
from travois.memory.folder import LINK, Folder
from travois.memory.history import History, Touched, Transaction, Write
from travois.memory.index import INDEX, PINNED
from travois.memory.memory import Change, Drop, Memory, Put, Scope
from travois.memory.text import LONGEST_NAME, NAME, changes, parse, render, tidy
from travois.permissions import secrets
from travois.ports.memory import MOVED, Applied

By = Literal["agent", "person"]
"""Whose change it is: a person may touch what is pinned."""
OUTSIDE = "edited outside"
SHOWN = 100
"""How many lines a diff may have."""
LONGEST = 16_000
"""How many characters a memory may have."""


class Unfit(Exception):
    """Why a change is not made."""


class Archive:
    """What lies in the folders, and what became of it."""

    def __init__(self, history: History, folders: Mapping[Scope, Folder]) -> None:
        self.past = history
        self.folders = folders

    def read(self) -> tuple[Memory, ...]:
        """Every memory that can be read, as it is on the disk at the moment."""
        self.past.settle()
        for folder in self.folders.values():
            folder.read()
        return tuple(one for folder in self.folders.values() for one in folder.memories())

    def make(
        self,
        wanted: Sequence[Change],
        *,
        why: str,
        session: str = "",
        by: By,
        based: Sequence[Memory] | None = None,
    ) -> Applied:
        """Make changes in one step; those that are unfit are left out and told.

        Changes that are `based` on memories as they were are made all together or not at all.
        """
        with self.past.locked():
            self.take_in()
            writes, refused = dict[tuple[str, str], Write](), list[str]()
            for change in wanted:
                try:
                    self._plan(change, writes, by=by)
                except (Unfit, OSError) as error:
                    refused.append(f"{_named(change)}: {error}")
            refused += [f"{one.name}: {MOVED}" for one in based or () if not self._holds(one)]
            if not writes or (based is not None and refused):
                return Applied("", "", tuple(refused))
            made = self.past.commit(tuple(writes.values()), why=why, session=session)
        return Applied(made.id, self.diff(made), tuple(refused))

    def _holds(self, memory: Memory) -> bool:
        """Whether a memory is as it was, as far as was just read."""
        folder = self.folders.get(memory.scope)
        return folder is not None and memory in folder.memories()

    def take_in(self) -> Transaction | None:
        """Make known what people and other programs did to the files since."""
        found = [one for folder in self.folders.values() for one in self._strange(folder)]
        return self.past.record(found, why=OUTSIDE) if found else None

    def _strange(self, folder: Folder) -> Iterator[Touched]:
        """The files that are not as the history knows them, with their bytes kept."""
        seen = folder.read()
        known = {file: name for (key, file), name in self.past.known.items() if key == folder.key}
        for file in sorted({*seen, *known}):
            before, after = known.get(file, ""), seen[file].digest if file in seen else ""
            if before == after or (file in seen and not after):
                continue
            data = folder.bytes(file)
            yield Touched(
                folder.key, file, before, "" if data is None else self.past.blobs.put(data)
            )

    def history(self) -> list[Transaction]:
        """What was changed in these folders, the latest first."""
        self.past.settle()
        keys = {folder.key for folder in self.folders.values()}
        made = reversed(self.past.transactions())
        return [one for one in made if not keys.isdisjoint(file.folder for file in one.files)]

    def undo(self, id: str) -> Applied:
        """Put back what was there before some changes: the latest of ours if none is named."""
        with self.past.locked():
            self.take_in()
            meant = self._meant(id)
            keyed = {folder.key: folder for folder in self.folders.values()}
            writes: list[Write] = []
            for one in meant.files:
                folder = keyed.get(one.folder) or self.past.locate(one.folder)
                found = self.past.current(folder, one.file)
                if found not in (one.before, one.after):
                    raise self._changed(meant, one)
                if found != one.before:
                    writes.append(Write(folder, one.file, self._bytes(one.before)))
            made = self.past.commit(writes, why=f"undo: {meant.why}", undoes=meant.id)
        return Applied(made.id, self.diff(made))

    def diff(self, made: Transaction) -> str:
        """What became of the memories, for the eye."""
        shown = (
            changes(before, after)
            for one in made.files
            for before, after in ((self._memory(one, one.before), self._memory(one, one.after)),)
            if before or after
        )
        lines = "\n".join(filter(None, shown)).split("\n")
        more = [f"… {len(lines) - SHOWN} lines more"] if len(lines) > SHOWN else []
        return "\n".join((*lines[:SHOWN], *more))

    def _plan(self, change: Change, writes: dict[tuple[str, str], Write], *, by: By) -> None:
        match change:
            case Put(memory):
                self._plan_put(memory, writes, by=by)
            case Drop(name, scope):
                folder = self._folder(scope)
                file = self._file(folder, name)
                if _pinned(file) and by == "agent":
                    raise Unfit("it is pinned, and only a person may change it")
                if self._planned(folder, file, writes) is None:
                    raise Unfit("there is none of that name")
                writes[folder.key, file] = Write(folder, file, None)
            case _:
                assert_never(change)

    def _plan_put(self, memory: Memory, writes: dict[tuple[str, str], Write], *, by: By) -> None:
        folder = self._folder(memory.scope)
        file = self._file(folder, memory.name)
        if by == "agent" and (memory.pinned or _pinned(file)):
            raise Unfit("it is pinned, and only a person may change it")
        data = self._planned(folder, file, writes)
        text = "" if data is None else data.decode("utf-8-sig", errors="replace")
        before = parse(memory.name, text, scope=memory.scope).memory if text else None
        memory = tidy(self._stamped(memory, before))
        _check(memory)
        after = render(memory, text)
        if parse(memory.name, after, scope=memory.scope, pinned=memory.pinned).memory != memory:
            raise Unfit("its file could not be read again; make its evidence shorter")
        place = f"{PINNED}/{memory.name}.md" if memory.pinned else f"{memory.name}.md"
        if place != file and data is not None:
            writes[folder.key, file] = Write(folder, file, None)
        elif before and replace(memory, modified=before.modified, pinned=False) == before:
            return
        writes[folder.key, place] = Write(folder, place, after.encode())

    def _stamped(self, memory: Memory, before: Memory | None) -> Memory:
        """With its times: those that it has, unless they are those of what it replaces."""
        now, old = self.past.clock(), before or memory
        fresh = memory.modified and (before is None or memory.modified != before.modified)
        return replace(
            memory,
            created=old.created or memory.created or now,
            modified=memory.modified if fresh else now,
            verified=memory.verified or now,
        )

    def _folder(self, scope: Scope) -> Folder:
        if scope in self.folders:
            return self.folders[scope]
        raise Unfit(f"there is no {scope} memory here")

    def _file(self, folder: Folder, name: str) -> str:
        """Where a memory of this name lies, or is to lie."""
        stems = {file: PurePosixPath(file).stem for file in list(folder.seen)}
        for file, stem in stems.items():
            if stem == name:
                return file
        for stem in stems.values():
            if stem.casefold() == name.casefold():
                raise Unfit(f"there is {stem}, which differs in case only; use that name")
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or f"{name}.md" == INDEX.lower():
            raise Unfit(f"a name is up to {LONGEST_NAME} letters and digits in words joined by -")
        return f"{name}.md"

    def _planned(
        self, folder: Folder, file: str, writes: Mapping[tuple[str, str], Write]
    ) -> bytes | None:
        """What a file will have once the changes so far are made. Raises OSError."""
        if (planned := writes.get((folder.key, file))) is not None:
            return planned.data
        if _pinned(file) and (folder.path / PINNED).is_symlink():
            raise OSError(LINK)
        return folder.bytes(file)

    def _memory(self, touched: Touched, name: str) -> Memory | None:
        data = self._bytes(name) if name else None
        if data is None:
            return None
        path = PurePosixPath(touched.file)
        text = data.decode("utf-8-sig", errors="replace")
        return parse(path.stem, text, pinned=_pinned(touched.file)).memory

    def _bytes(self, name: str) -> bytes | None:
        try:
            return self.past.blobs.get(name) if name else None
        except KeyError:
            fix = "The file itself is untouched."
            raise Fault(
                "What was there before is lost", why="its bytes are damaged", fix=fix
            ) from None

    def _meant(self, id: str) -> Transaction:
        made = self.history()
        for one in made:
            if one.id == id or not (id or one.undone or one.undoes or one.why == OUTSIDE):
                if one.undone:
                    raise Fault(f"{one.id} was undone already")
                return one
        fix = "`travois memory history` lists what can be undone."
        raise Fault(f"There is no change {id}" if id else "There is nothing to undo", fix=fix)

    def _changed(self, meant: Transaction, one: Touched) -> Fault:
        """Why something cannot be undone: a file is no longer as it was left."""
        later = [
            f"{each.id} ({each.why})"
            for each in self.history()
            if each.at >= meant.at and each.id != meant.id
            if any((file.folder, file.file) == (one.folder, one.file) for file in each.files)
        ]
        by = f" by {', '.join(later[:3])}" if later else ""
        fix = "Undo that first, or change the file by hand."
        return Fault(
            f"{meant.id} cannot be undone", why=f"{one.file} was changed since{by}", fix=fix
        )


def _check(memory: Memory) -> None:
    """Raise the reason why a memory is not to be kept."""
    said = "\n".join((memory.description, memory.body, *(one.words for one in memory.evidence)))
    if found := secrets.find(said):
        raise Unfit(f"it holds what looks like a secret ({found[0].kind})")
    if len(memory.body) > LONGEST:
        raise Unfit(f"it has {len(memory.body):,} characters, more than {LONGEST:,}; split it")


def _pinned(file: str) -> bool:
    return file.startswith(f"{PINNED}/")


def _named(change: Change) -> str:
    name = change.memory.name if isinstance(change, Put) else change.name
    return name[:LONGEST_NAME]
