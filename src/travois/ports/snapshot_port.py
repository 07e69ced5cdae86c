"""What the engine needs of whoever takes snapshots of the workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec


class Kept(msgspec.Struct, frozen=True):
    """A snapshot that was taken, and the paths that were asked for and are not in it."""

    name: str
    uncovered: tuple[str, ...] = ()


class Keeper(Protocol):
    """Keeps what the workspace was like, so that it can be brought back."""

    def prepare(self) -> None:
        """Begin to look at the workspace in the background, if that will take a while."""
        ...

    async def keep(
        self,
        *,
        why: str,
        also: tuple[str, ...] = (),
        files: tuple[str, ...] = (),
        heed: Callable[[int], None] | None = None,
    ) -> Kept:
        """Take a snapshot of the workspace, of all that is in some paths, and of single files.

        Taking one when nothing has changed costs little and gives the last name. `heed` hears how
        many files were looked at, if it takes a while. Raises OSError if it could not be taken.
        """
        ...

    def left_out(self) -> tuple[str, ...]:
        """What in the workspace is not covered, as far as is known at once."""
        ...

    async def keep_files(self, paths: Iterable[str], *, why: str) -> tuple[str, tuple[str, ...]]:
        """Save these files alone, or that they are not there.

        Returns the snapshot's name, and the paths that it covers: a file that is not there is
        covered with the folders that it lacks. Raises OSError.
        """
        ...
