"""What our processes left in folders when they were killed while they replaced a file."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress

from travois.host.beneath import Spot, spot

DRAFT = re.compile(r"\.travois-(\d+)-[0-9a-f]{12}")
OLD = 600.0
"""A younger draft may be of a process that cannot be seen from here, as in another container."""


def sweep(folder: str) -> None:
    """Remove drafts of ours in a folder whose writers are dead."""
    with suppress(OSError), spot(os.path.join(folder, ".")) as place:
        fd = Spot(place.folder, ".", folder).open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(fd):
                found = DRAFT.fullmatch(name)
                with suppress(FileNotFoundError):
                    if found and _abandoned(place.beside(name), writer=int(found[1])):
                        os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)


def _abandoned(draft: Spot, *, writer: int) -> bool:
    found = draft.stat()
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return ours and time.time() - found.st_mtime > OLD and not _alive(writer)


def _alive(writer: int) -> bool:
    try:
        os.kill(writer, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
