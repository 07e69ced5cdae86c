"""Bytes kept once, under the name of their content."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from travois.sessions import disk

HEX = frozenset("0123456789abcdef")


class Blobs:
    """A folder of content-addressed bytes, shared by all sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Keep these bytes; returns their name. On the disk itself before this returns."""
        name = digest(data)
        path = self._path(name)
        try:
            if not self._there(path, len(data)):
                disk.make_folders(path.parent)
                disk.replace(path, data)
        except OSError as error:
            raise disk.fault("Some bytes could not be kept", error, path=self._folder) from error
        return name

    def get(self, name: str) -> bytes:
        """The bytes of that name. Raises KeyError if they are missing or not what they were."""
        if len(name) != 64 or not HEX.issuperset(name):
            raise KeyError(name)
        try:
            data = self._path(name).read_bytes()
        except OSError as error:
            raise KeyError(name) from error
        if digest(data) != name:
            raise KeyError(f"{name} is damaged")
        return data

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]

    @staticmethod
    def _there(path: Path, size: int) -> bool:
        """Whether they are kept already; being asked for counts as use (see `sweep`)."""
        try:
            os.utime(path)
            return path.stat().st_size == size
        except FileNotFoundError:
            return False


def digest(data: bytes) -> str:
    """The name of some bytes."""
    return blake2b(data, digest_size=32).hexdigest()
