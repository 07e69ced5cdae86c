"""Putting back a protected link, which no mount can hold."""

from __future__ import annotations

import os
from contextlib import suppress


def relink(path: str, target: str, *, temp: str) -> None:
    """Put a link back that a program has replaced; what took its place goes into `temp`."""
    with suppress(OSError):
        if os.readlink(path) == target:
            return
    from shutil import move
    from tempfile import mkdtemp

    if os.path.lexists(path):
        move(path, mkdtemp(prefix="replaced-", dir=temp))
    os.symlink(target, path)
