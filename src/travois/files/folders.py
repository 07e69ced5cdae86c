"""Folders for what we keep: for their owner only, whatever the umask."""

from __future__ import annotations

from pathlib import Path


def make_folders(path: Path) -> None:
    """Make a folder and those around it that are missing, for their owner only. Raises OSError.

    `Path.mkdir` makes the ones around it as open as the umask lets it.
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
