"""Content-addressed storage of bytes, and atomic file replacement."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from travois.core.errors import UserError
from travois.files.openat import make_folders as make_folders

# Writing to disk so that a reader finds the old bytes or the new ones, never half of them.


DISK_FULL_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT))
ACCESS_ERRORS = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR))


def replace_file(path: Path, data: bytes, *, sync: Literal["now", "whenever"] = "now") -> None:
    """Replace a session file's content atomically. Raises OSError.

    The bytes are on the disk itself when this returns, unless it does not matter when (a cache).
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if sync == "now":
                file.flush()
                os.fsync(fd)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Flush a session folder's names to disk; file systems that cannot do so are skipped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def make_storage_error(what: str, error: OSError, *, path: Path) -> UserError:
    """Convert an operating system error in session storage to one that the user can fix."""
    if error.errno in DISK_FULL_ERRORS:
        return UserError(
            what, why="the disk is full", fix=f"Free some space for {path} and try again."
        )
    if error.errno in ACCESS_ERRORS:
        fix = f"Make {path} writable, or set TRAVOIS_HOME to a folder that is."
        return UserError(what, why=f"{path}: {_os_error_reason(error)}", fix=fix)
    return UserError(what, why=f"{path}: {_os_error_reason(error)}")


def _os_error_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def folder_size(folder: Path) -> int:
    """Return the number of bytes in a session's folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


HEX_DIGITS = frozenset("0123456789abcdef")


class BlobStore:
    """A folder of content-addressed bytes, shared by all sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Store these bytes and return their name, once they are on the disk itself."""
        name = hash_blob(data)
        path = self._blob_path(name)
        try:
            if not self._is_stored(path, len(data)):
                make_folders(path.parent)
                replace_file(path, data)
        except OSError as error:
            raise make_storage_error(
                "Content could not be saved", error, path=self._folder
            ) from error
        return name

    def get(self, name: str) -> bytes:
        """Return the bytes of a name. Raises KeyError if they are missing or damaged."""
        if len(name) != 64 or not HEX_DIGITS.issuperset(name):
            raise KeyError(name)
        try:
            data = self._blob_path(name).read_bytes()
        except OSError as error:
            raise KeyError(name) from error
        if hash_blob(data) != name:
            raise KeyError(f"{name} is damaged")
        return data

    def _blob_path(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]

    @staticmethod
    def _is_stored(path: Path, size: int) -> bool:
        """Return whether they are stored already; asking counts as use, for garbage collection."""
        try:
            os.utime(path)
            return path.stat().st_size == size
        except FileNotFoundError:
            return False


def hash_blob(data: bytes) -> str:
    """Return the digest that names these bytes in the blob store."""
    return blake2b(data, digest_size=32).hexdigest()
