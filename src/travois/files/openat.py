"""Opening exactly the path that permissions approved, without following links on the way.

Each part of the path is opened in the folder before it, so what is renamed or replaced meanwhile
leads nowhere else. An approved path has no links; one that has some was changed since.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

FOLDER_OPEN_FLAGS = (
    getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)
MAX_PATH_BYTES = 4095
"""The maximum number of bytes of a path, also when it is opened part by part."""
PATH_CHANGED_MESSAGE = "the path changed while it was being opened, or its links form a loop"


class OpenedPath(msgspec.Struct, frozen=True):
    """A name in an open folder; `path` is only for words."""

    folder: int
    name: str
    path: str

    def sibling(self, name: str) -> OpenedPath:
        """Return another name in the same opened folder."""
        return OpenedPath(self.folder, name, os.path.join(os.path.dirname(self.path), name))

    def open(self, flags: int, mode: int = 0o600) -> int:
        """Open the name in its folder and return the descriptor; a link is an error."""
        try:
            return os.open(
                self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.folder
            )
        except OSError as error:
            raise _explain_os_error(error, self) from error

    def stat(self) -> os.stat_result:
        """Return the stat of the name; a link is an error."""
        try:
            found = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except OSError as error:
            raise _explain_os_error(error, self) from error
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, PATH_CHANGED_MESSAGE, self.path)
        return found


@contextmanager
def open_parent(path: str, *, missing: Literal["fail", "make"] = "fail") -> Generator[OpenedPath]:
    """Open the parent folder of an absolute path without following links; may create it."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    if "/../" in f"{path}/":
        raise OSError(errno.EINVAL, "a path with .. was never checked", path)
    *folders, name = [part for part in path.split("/") if part] or ["."]
    found = OpenedPath(os.open("/", FOLDER_OPEN_FLAGS), name, path)
    try:
        for part in folders:
            inner = _open_folder(OpenedPath(found.folder, part, path), missing=missing)
            os.close(found.folder)
            found = OpenedPath(inner, name, path)
        yield found
    finally:
        os.close(found.folder)


def _open_folder(opened: OpenedPath, *, missing: Literal["fail", "make"]) -> int:
    """Open a folder without following a link; create it if that is wanted."""
    try:
        return opened.open(FOLDER_OPEN_FLAGS)
    except FileNotFoundError:
        if missing == "fail":
            raise
    with suppress(FileExistsError):
        os.mkdir(opened.name, dir_fd=opened.folder)
    return opened.open(FOLDER_OPEN_FLAGS)


def _explain_os_error(error: OSError, opened: OpenedPath) -> OSError:
    """Return an OSError with the whole path; if a link is in the way, it says so."""
    if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(opened)):
        return OSError(errno.ELOOP, PATH_CHANGED_MESSAGE, opened.path)
    return OSError(error.errno, error.strerror, opened.path)


def _is_link(opened: OpenedPath) -> bool:
    found = os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False)
    return stat.S_ISLNK(found.st_mode)


# Folders for what we keep: for their owner only, whatever the umask.


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, for their owner only. Raises OSError.

    `Path.mkdir` makes the parents as open as the umask lets it.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folders(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
