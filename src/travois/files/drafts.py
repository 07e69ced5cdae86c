"""What our processes left in folders when they were killed while they replaced a file."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress

from travois.files.openat import Spot, spot

DRAFT = re.compile(r"\.travois-(\d+)-[0-9a-f]{12}")
OLD = 600.0
"""A younger draft may be of a process that cannot be seen from here, as in another container."""


def sweep(folder: str) -> None:
    """Remove drafts of ours in a folder whose writers are dead."""
    with suppress(OSError), spot(os.path.join(folder, ".")) as place:
        for draft in _drafts(place):
            with suppress(FileNotFoundError):
                _drop(draft)


def _drafts(place: Spot) -> list[Spot]:
    fd = place.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [place.beside(name) for name in os.listdir(fd) if DRAFT.fullmatch(name)]
    finally:
        os.close(fd)


def _drop(draft: Spot) -> None:
    """Remove one if it is ours, old, and of a process that is no more."""
    found = draft.stat()
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if ours and time.time() - found.st_mtime > OLD and not _alive(int(draft.name.split("-")[1])):
        os.unlink(draft.name, dir_fd=draft.folder)


def _alive(writer: int) -> bool:
    try:
        os.kill(writer, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
