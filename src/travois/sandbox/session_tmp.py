"""The session's private /tmp for sandboxed commands; it lives as long as the session."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from travois.lazy_imports import lazy_imports
from travois.sessions.blobs import folder_size
from travois.sessions.home import SESSION_TMP_NAME, TravoisHome

with lazy_imports():
    import shutil


MAX_FORK_COPY_BYTES = 100 * 1024 * 1024
"""The most bytes that a fork copies from its parent's folder."""


def open_session_tmp(home: TravoisHome, id: str, *, folder: Path, parent: str = "") -> Path:
    """Return the folder of a session's private /tmp, created if it is missing.

    A session restored from the trash brings it along in its own folder. A fork starts with a copy
    of its parent's.
    """
    path = home.session_tmp(id)
    if path.is_dir():
        return path
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if (folder / SESSION_TMP_NAME).is_dir():
        return (folder / SESSION_TMP_NAME).rename(path)
    path.mkdir(mode=0o700)
    if parent and home.session_tmp(parent).is_dir():
        _copy_session_files(home.session_tmp(parent), path)
    return path


def close_session_tmp(path: Path) -> None:
    """Remove a session's private /tmp if it has no files; empty mount folders do not count."""
    if has_only_folders(path):
        shutil.rmtree(path, ignore_errors=True)


def has_only_folders(path: Path) -> bool:
    """Return whether a session's /tmp contains nothing but folders."""
    with suppress(OSError), os.scandir(path) as entries:
        return all(
            one.is_dir(follow_symlinks=False) and has_only_folders(Path(one.path))
            for one in entries
        )
    return False


def _copy_session_files(before: Path, path: Path) -> None:
    """Copy regular files to a fork's /tmp; sockets and pipes are useless without their programs."""
    if folder_size(before) > MAX_FORK_COPY_BYTES:
        return
    with suppress(OSError, shutil.Error):
        shutil.copytree(
            before, path, symlinks=True, dirs_exist_ok=True, ignore=_ignore_special_files
        )


def _ignore_special_files(folder: str, names: list[str]) -> set[str]:
    paths = {name: Path(folder, name) for name in names}
    return {name for name, p in paths.items() if not (p.is_symlink() or p.is_file() or p.is_dir())}
