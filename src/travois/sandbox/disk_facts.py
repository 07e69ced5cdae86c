"""The paths and ports of this machine that the user could use without a sandbox."""

from __future__ import annotations

import os
import stat
from typing import Literal

TCP_LISTEN_STATE = "0A"


class LocalDisk:
    """This machine's disk and ports, looked up at the moment of the question."""

    @property
    def is_root(self) -> bool:
        """True if the user is root, whom file permissions do not bind."""
        return os.geteuid() == 0

    def resolve(self, path: str) -> str:
        """Resolve the links of a path."""
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path

    def can_access(self, path: str, need: Literal["read", "write"]) -> bool:
        """Return whether permissions let the user read a path; or change, create or remove it."""
        there, above = _nearest_existing(path), _nearest_existing(os.path.dirname(path))
        if need == "read":
            return there == path and os.access(path, os.R_OK)
        return os.access(there, os.W_OK) or os.access(above, os.W_OK | os.X_OK)

    def needs_root(self, path: str) -> bool:
        """Return whether the user may open a path only because root bypasses permissions."""
        if not self.is_root:
            return False
        folders = [path]
        while folders[-1] not in ("/", ""):
            folders.append(os.path.dirname(folders[-1]))
        return any(_denies_plain_root(folder) for folder in folders)

    def is_read_only(self, path: str) -> bool:
        """Return whether a path is on a disk that is mounted read-only."""
        try:
            return bool(os.statvfs(_nearest_existing(path)).f_flag & os.ST_RDONLY)
        except OSError:
            return False

    def is_program(self, path: str) -> bool:
        """Return whether a path is an executable file."""
        return os.path.isfile(path) and os.access(path, os.X_OK)

    def has_listener(self, port: int) -> bool:
        """Return whether a program of this machine listens on the port."""
        wanted = f":{port:04X}"
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                with open(table) as file:
                    rows = [line.split() for line in file]
            except OSError:
                continue
            if any(row[1].endswith(wanted) and row[3] == TCP_LISTEN_STATE for row in rows[1:]):
                return True
        return False


def _nearest_existing(path: str) -> str:
    """Return a path, or its nearest existing parent, to look up access without a sandbox."""
    while not os.path.lexists(path) and path not in ("/", ""):
        path = os.path.dirname(path)
    return path or "/"


def _denies_plain_root(path: str) -> bool:
    """Return whether root without capabilities could not enter or open a path."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    if found.st_uid == 0:
        bits = found.st_mode >> 6
    else:
        bits = found.st_mode >> (3 if found.st_gid == 0 else 0)
    need = 0o1 if stat.S_ISDIR(found.st_mode) else 0o4
    return not bits & need
