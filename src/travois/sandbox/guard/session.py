"""The guards of one session's programs, each closed when everything its program started is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from travois.lazy_imports import lazy_imports
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command

if TYPE_CHECKING:
    from travois.process.job import ChildProcess
    from travois.sandbox.guard.guard import GuardJournal

with lazy_imports():
    import shutil
    import tempfile

    from travois.sandbox.guard import guard, instructions


class SessionGuards:
    """The guarded programs of a session, and the notices about their protected files.

    Without a folder for the journal there is a temporary one until we close: then nothing survives
    a kill.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._own = ""
        self._journal: GuardJournal | None = None
        self._children: list[ChildProcess] = []
        self._told: list[str] = []

    def open_journal(self) -> guard.GuardJournal:
        """Open the journal in which guards save protected files."""
        if self._journal is None:
            self._journal = guard.GuardJournal(self._folder or self._make_temporary_folder())
        return self._journal

    def _make_temporary_folder(self) -> str:
        self._own = tempfile.mkdtemp(prefix="travois-guards-")
        return self._own

    @property
    def is_open(self) -> bool:
        """True if a running program, of this or another session, could change protected files."""
        known = self._journal is not None or bool(self._folder)
        return known and self.open_journal().is_open()

    async def prepare(self, profile: SandboxProfile | None) -> None:
        """Find the repositories that a command could change, without blocking the event loop."""
        if profile is None or profile.profile == "look":
            return
        journal, roots = self.open_journal(), guard.find_repository_roots(profile)
        await anyio.to_thread.run_sync(journal.find_repositories, roots)

    def pin_project_files(self, command: Command) -> Command:
        """Make protected project files read-only for a program that may run for hours.

        If they change meanwhile, the user or another program did it, so those changes stay.
        """
        profile = command.sandbox
        if profile is None or profile.unasked is None:
            return command
        held = instructions.find_mountable_files(
            self.open_journal().list_protected_files(guard.find_repository_roots(profile))
        )
        unasked = replace(profile.unasked, held=held)
        return replace(
            command, sandbox=replace(profile, pinned=(*profile.pinned, *held), unasked=unasked)
        )

    async def refresh_repositories(self, child: ChildProcess) -> None:
        """Find the repositories that exist after a program has ended."""
        if child.guard is not None:
            await anyio.to_thread.run_sync(child.guard.refresh_repositories)

    def watch_child(self, child: ChildProcess) -> None:
        """Check the protected files of a started program once it has ended."""
        if child.guard is not None:
            self._children.append(child)

    def check_children(
        self, is_over: Callable[[ChildProcess], bool], *, running: bool = False
    ) -> None:
        """Check the protected files of ended programs; close the guards of those that are all gone.

        With `running`, also check programs that go on: a server in the background may plant a file
        and never end. Those that ended come first, since what they were allowed to change is then
        known.
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
        """Check the files that killed processes had guarded."""
        if self._folder and os.path.isdir(self._folder):
            self.open_journal().recover()

    def accept_change(self, path: str, data: bytes | None = None) -> None:
        """Accept our own change to a protected file as its state to keep."""
        if self.is_open:
            self.open_journal().accept_change(path, data)

    def take_notices(self) -> tuple[str, ...]:
        """Return the pending notices, each once."""
        if self._journal is not None:
            self._told += self._journal.notices
            self._journal.notices.clear()
        told, self._told = tuple(dict.fromkeys(self._told)), []
        return told

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.stop_watching()
        if self._own:
            with suppress(OSError):
                shutil.rmtree(self._own)
            self._own, self._journal = "", None
