"""The task list of a team: one file, changed by one member process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from travois.core.errors import UserError
from travois.core.tasks import TaskList, read_stored, store_tasks
from travois.sessions import blobs

TASKS_FILE = "tasks.json"
TASKS_LOCK_FILE = "tasks.lock"


class TeamTaskFile:
    """The file with the list, in the folder of the team's mail.

    A reader finds the old list or the new one, never half of it, so reading takes no lock.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / TASKS_FILE, folder / TASKS_LOCK_FILE

    def read(self) -> str:
        """Return the stored list; empty if there is none yet. Raises `UserError`."""
        try:
            value = self._path.read_text("utf-8")
            read_stored(value)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise blobs.make_storage_error(
                "The team's task list cannot be read", error, path=self._path
            ) from error
        except (ValueError, msgspec.MsgspecError) as error:
            fix = f"Repair or delete {self._path}; each member's log has the list it last saw."
            raise UserError("The team's task list is damaged", why=str(error), fix=fix) from error
        return value

    def change(self, edit: Callable[[TaskList], TaskList]) -> str:
        """Apply an edit while no other process can; returns the new list. Raises `UserError`."""
        try:
            with self._lock_file():
                value = store_tasks(edit(read_stored(self.read())))
                blobs.replace_file(self._path, value.encode())
        except OSError as error:
            what = "The team's task list cannot be written"
            raise blobs.make_storage_error(what, error, path=self._path) from error
        return value

    @contextmanager
    def _lock_file(self) -> Generator[None]:
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
