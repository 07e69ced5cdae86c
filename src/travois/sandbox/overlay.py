"""An attempt: a command that ran in a copy, what it changed there, and keeping or dropping that."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence

from anyio import to_thread
from msgspec.structs import replace

from travois.permissions.protected_paths import makes_repository, protected
from travois.ports.world import Change, Completed
from travois.sandbox.keeping import apply, check
from travois.sandbox.layers import Layers, Mark
from travois.sandbox.profile import Cage


def inner(cage: Cage, layers: Layers) -> Cage:
    """The cage for the copy: only what has a layer may be written.

    Pins that are missing need nothing to stand for them in the real folders: what is made in their
    place is not kept.
    """
    writable = tuple(path for path in cage.writable if os.path.realpath(path) in layers.folders)
    pinned = tuple(path for path in cage.pinned if os.path.lexists(path))
    changes = {"writable": writable, "pinned": pinned, "git_written": (), "lifted": ()}
    return replace(cage, profile="work", **changes)


class Overlay:
    """What a command did to a copy of the workspace, until it is kept or dropped."""

    def __init__(self, completed: Completed, cage: Cage, layers: Layers) -> None:
        self.completed = completed
        self._cage = cage
        self._layers = layers
        self._marks = tuple(layers.marks())
        self.changes = tuple(_told(mark for mark in self._marks if not mark.same))

    async def read(self, path: str) -> bytes:
        """The bytes that a path has in the copy."""
        mark = next(mark for mark in self._marks if mark.path == path and mark.after)
        return await to_thread.run_sync(_content, mark)

    async def keep(self, *, named: Collection[str] = ()) -> tuple[Change, ...]:
        """Make it real, then drop the copy; returns what was not kept.

        What is pinned or has a protected name is kept only if it, or a folder above it, is named.
        Raises `Stale`, with nothing kept, if the real files changed since the attempt began.
        """
        held = self._held(named)
        wanted = [mark for mark in self._marks if mark.path not in held]
        await to_thread.run_sync(self._make_real, wanted)
        await self.drop()
        return tuple(change for change in self.changes if change.path in held)

    async def drop(self) -> None:
        """Forget the copy; nothing of it stays."""
        await to_thread.run_sync(self._layers.remove)

    def _make_real(self, marks: Sequence[Mark]) -> None:
        check([mark for mark in marks if not mark.same], self._layers.since)
        apply(marks)

    def _held(self, named: Collection[str]) -> set[str]:
        """What is not to be kept, with the folders that could not go while it stays."""
        guarded = (m.path for m in self._marks if not m.same and self._guarded(m.path))
        held = {path for path in guarded if not any(_at(path, name) for name in named)}
        above = {one for path in held for one in _parents(path)}
        return held | {m.path for m in self._marks if m.after is None and m.path in above}

    def _guarded(self, path: str) -> bool:
        folder = next(one for one in self._layers.folders if _at(path, one))
        inside = os.path.relpath(path, folder)
        pinned = any(_at(path, os.path.realpath(pin)) for pin in self._cage.pinned)
        return pinned or bool(protected(inside)) or makes_repository(inside)


def _told(marks: Iterable[Mark]) -> Iterator[Change]:
    """The changes as people see them: what went and came under another name is one change."""
    found = list(marks)
    pairs = dict(_renamed(found))
    old = {mark.path for mark in pairs.values()}
    for mark in found:
        size = mark.after.st_size if mark.after and not mark.folder else 0
        if mark.after is None:
            if mark.path not in old:
                yield Change(mark.path, "deleted", 0)
        elif mark.path in pairs:
            yield Change(mark.path, "renamed", size, was=pairs[mark.path].path)
        else:
            yield Change(mark.path, "changed" if mark.before else "added", size)


def _renamed(marks: Sequence[Mark]) -> Iterator[tuple[str, Mark]]:
    """Files that came, with those of the same content that went."""
    from filecmp import cmp

    went: dict[int, list[Mark]] = {}
    for mark in marks:
        if mark.after is None and mark.before and stat.S_ISREG(mark.before.st_mode):
            went.setdefault(mark.before.st_size, []).append(mark)
    for mark in marks:
        if mark.before or not mark.after or not stat.S_ISREG(mark.after.st_mode):
            continue
        for old in went.get(mark.after.st_size, ()) if mark.after.st_size else ():
            if cmp(old.path, mark.source, shallow=False):
                went[mark.after.st_size].remove(old)
                yield mark.path, old
                break


def _content(mark: Mark) -> bytes:
    """The bytes of a file; those of a link are where it leads, and nobody goes there."""
    assert mark.after is not None
    if stat.S_ISLNK(mark.after.st_mode):
        return os.fsencode(os.readlink(mark.source))
    if not stat.S_ISREG(mark.after.st_mode):
        return b""
    with open(mark.source, "rb") as file:
        return file.read()


def _at(path: str, place: str) -> bool:
    """Whether a path is a place or below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _parents(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != "/":
        yield path
