"""The files as one call may open them: where its paths led when they were judged.

Whoever changes a link or a folder after that only makes the call fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from travois.permissions.access import Access
from travois.permissions.decide import Guard
from travois.permissions.resolve_paths import home, real
from travois.permissions.rules import Use, matches
from travois.ports.world import Files, Stat


class JudgedFiles:
    """Files by the paths that a call spells; what it did not speak of is opened without links."""

    def __init__(
        self, files: Files, accesses: Sequence[Access], hidden: Callable[[str], bool]
    ) -> None:
        self._files = files
        self._places = _places(accesses)
        self._private = {access.spelt for access in accesses if access.tmp == "private"}
        self._hidden = hidden

    async def stat(self, path: str) -> Stat | None:
        """What the path is, and where it led."""
        place = self._places.get(path) or real(path)
        found = await self._files.stat(place)
        if found is None or place == path:
            return found
        return replace(found, link=place, private=path in self._private)

    async def names(self, folder: str, *, limit: int) -> list[str]:
        """The first names in a folder that no rule hides."""
        found = await self._files.names(self._places.get(folder, folder), limit=limit)
        return [name for name in found if not self._hidden(os.path.join(folder, name))]

    async def modified(self, paths: Sequence[str]) -> list[int]:
        """When each of these was changed last, in nanoseconds; 0 for what cannot be told."""
        return await self._files.modified([self._places.get(path, path) for path in paths])

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of the file from an offset on."""
        return await self._files.read(self._places.get(path, path), offset=offset, limit=limit)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`."""
        return await self._files.replace(self._places.get(path, path), data, expect=expect)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect`."""
        await self._files.remove(self._places.get(path, path), expect=expect)

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """One at a time for each file, whichever path leads to it."""
        return self._files.queue(self._places.get(path, path))


def _places(accesses: Sequence[Access]) -> dict[str, str]:
    """Where each path led, and the folder that holds it."""
    found = {access.spelt: access.target for access in accesses if access.spelt}
    for spelt, target in list(found.items()):
        if os.path.basename(spelt) == os.path.basename(target):
            found.setdefault(os.path.dirname(spelt), os.path.dirname(target))
    return found


def hiding(guard: Guard, tool: str, *, root: str) -> Callable[[str], bool]:
    """Which files a search by this tool must not show: reading them is denied or asked about."""
    rules = [rule for rule in guard.rules if rule.effect != "allow" and rule.what]
    use = Use(tool, (), root, home() if rules else "")

    def hidden(path: str) -> bool:
        found = replace(use, accesses=(Access("read", path),)) if rules else use
        return any(matches(rule, found) for rule in rules)

    return hidden
