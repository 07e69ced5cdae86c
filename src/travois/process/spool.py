"""All of an output that is too large to be held in memory, in a file, without our secrets."""

from __future__ import annotations

import os

from travois.permissions.secrets import Secrets

MOST = 1 << 30
"""How many bytes of one output are written at most; a program that writes more is ended."""


class Spool:
    """A file that grows with an output; it exists only once there is something to write."""

    def __init__(self, path: str, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        self._held = max((len(value.encode()) for _, value in secrets.values), default=1) - 1
        self._rest = b""
        self._fd = -1
        self._size = 0
        self._failed = False
        self.is_full = False
        """Whether there was more than may be written; the file then has the first part."""

    def add(self, data: bytes) -> None:
        """Write more, up to the limit; where the disk says no, there is no file in the end."""
        if self._failed or self.is_full:
            return
        text = self._secrets.redacted_bytes(self._rest + data)
        cut = max(0, len(text) - self._held)
        self._rest = text[cut:]
        self._write(text[:cut])

    def finish(self) -> str:
        """Where the whole output is; empty if it is nowhere."""
        if self._fd >= 0 and not self._failed and not self.is_full:
            self._write(self._rest)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return "" if self._failed or not self._size else self._path

    def _write(self, data: bytes) -> None:
        self.is_full = len(data) > MOST - self._size
        data = data[: MOST - self._size]
        self._size += len(data)
        try:
            if self._fd < 0:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._failed, self.is_full = True, False
            if self._fd >= 0:  # a full disk has better uses for the room
                os.unlink(self._path)
