"""The guards of the programs of one session, each closed when all that it started is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from travois.permissions.sandbox_profile import Cage
from travois.ports.world import Command

if TYPE_CHECKING:
    from travois.process.job import Child
    from travois.sandbox.guard.guard import Journal


class Guarding:
    """Which programs are guarded, and what is to be told of it.

    Without a folder for the journal there is one until we close: then nothing survives a kill.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._own = ""
        self._journal: Journal | None = None
        self._children: list[Child] = []
        self._told: list[str] = []

    def journal(self) -> Journal:
        """Where guards keep what protected files were."""
        if self._journal is None:
            from travois.sandbox.guard.guard import Journal

            self._journal = Journal(self._folder or self._temporary())
        return self._journal

    def _temporary(self) -> str:
        from tempfile import mkdtemp

        self._own = mkdtemp(prefix="travois-guards-")
        return self._own

    @property
    def is_open(self) -> bool:
        """Whether a program runs, of this or another session, that could change protected files."""
        known = self._journal is not None or bool(self._folder)
        return known and self.journal().is_open()

    async def prepare(self, cage: Cage | None) -> None:
        """Find the repositories that a command could change, without holding up anybody."""
        if cage is None or cage.profile == "look":
            return
        from travois.sandbox.guard.guard import repository_roots

        journal, roots = self.journal(), repository_roots(cage)
        await anyio.to_thread.run_sync(journal.find_repositories, roots)

    def hold_instructions(self, command: Command) -> Command:
        """Make protected files of the project read-only for a program that may run for hours.

        What changes them meanwhile is then somebody else, and their changes stay.
        """
        cage = command.cage
        if cage is None or cage.unasked is None:
            return command
        from travois.sandbox.guard.guard import repository_roots
        from travois.sandbox.guard.instructions import find_held

        held = find_held(self.journal().list_protected(repository_roots(cage)))
        unasked = replace(cage.unasked, held=held)
        return replace(command, cage=replace(cage, pinned=(*cage.pinned, *held), unasked=unasked))

    async def review(self, child: Child) -> None:
        """Find the repositories that there are now that a program has ended."""
        if child.guard is not None:
            await anyio.to_thread.run_sync(child.guard.refresh)

    def watch(self, child: Child) -> None:
        """Check the protected files of a program that was started, when it is over."""
        if child.guard is not None:
            self._children.append(child)

    def settle(self, is_over: Callable[[Child], bool], *, running: bool = False) -> None:
        """Check the files of programs that have ended; close the guards of those all gone.

        With `running`, also look at programs that go on: a server in the background may plant a
        file and never end. Those that ended come first, since what they were allowed to change
        is then known.
        """
        for child in [child for child in self._children if child.status is not None]:
            assert child.guard is not None
            if is_over(child):
                self._children.remove(child)
                self._told += child.guard.close()
            else:
                self._told += child.guard.check()
        for child in [child for child in self._children if running and child.status is None]:
            assert child.guard is not None
            self._told += child.guard.check()

    def recover(self) -> None:
        """Check what processes that were killed had guarded."""
        if self._folder and os.path.isdir(self._folder):
            self.journal().recover()

    def accept(self, path: str, data: bytes | None = None) -> None:
        """Take a change of ours to a protected file for how it is to be."""
        if self.is_open:
            self.journal().accept(path, data)

    def notices(self) -> tuple[str, ...]:
        """What there is to tell; each is told once."""
        if self._journal is not None:
            self._told += self._journal.notices
            self._journal.notices.clear()
        told, self._told = tuple(dict.fromkeys(self._told)), []
        return told

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.stop_watching()
        if self._own:
            from shutil import rmtree

            with suppress(OSError):
                rmtree(self._own)
            self._own, self._journal = "", None
