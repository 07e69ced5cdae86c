"""Real paths, each folder looked up once while a sandbox is built.

The places of one sandbox share most of their folders: looked up one by one, their links cost more
than everything else that Python does to build it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Known(threading.local):
    paths: dict[str, str] | None = None


_KNOWN = _Known()


@contextmanager
def remember_folders() -> Generator[None]:
    """Look up each folder once in this thread until the block ends.

    Nothing is remembered from one command to the next, which may have made other links.
    """
    earlier = _KNOWN.paths
    _KNOWN.paths = {} if earlier is None else earlier
    try:
        yield
    finally:
        _KNOWN.paths = earlier


def real_path(path: str) -> str:
    """Return a path without links, exactly as `os.path.realpath` does."""
    known = _KNOWN.paths
    if known is None or not path.startswith("/") or os.path.normpath(path) != path:
        return os.path.realpath(path)
    return _resolve(path, known)


def _resolve(path: str, known: dict[str, str]) -> str:
    if path in ("/", "//"):
        return path
    if path not in known:
        folder, _, name = path.rpartition("/")
        found = os.path.join(_resolve(folder or "/", known), name)
        known[path] = os.path.realpath(found) if os.path.islink(found) else found
    return known[path]
