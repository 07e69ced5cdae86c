"""What a session may do, put together from settings."""

from __future__ import annotations

import os

from travois.kernel.faults import Fault
from travois.policy.judge import Guard
from travois.store.layers import FLAGS
from travois.store.settings import Loaded

FOLDERS = "permissions.additionalDirectories"


def guard(loaded: Loaded, cwd: str, *, own: str, readable: tuple[str, ...] = ()) -> Guard:
    """The mode, rules and folders that these settings give a session in this folder."""
    mode = loaded.settings.permissions.mode
    folders = tuple(path for path in _folders(loaded, cwd).values() if path)
    return Guard(mode, loaded.rules, (cwd, *folders), readable=readable, own=own)


def remarks(loaded: Loaded, cwd: str = "") -> tuple[str, ...]:
    """What the user should know of folders that are not there."""
    missing = (name for name, path in _folders(loaded, cwd).items() if not path)
    return tuple(f"{loaded.origin(FOLDERS, each)}: {each} is not a folder" for each in missing)


def _folders(loaded: Loaded, cwd: str) -> dict[str, str]:
    """More folders to work in, by name; empty for those that are not there."""
    found: dict[str, str] = {}
    for name in loaded.settings.permissions.additional_directories:
        path = os.path.realpath(os.path.join(cwd, os.path.expanduser(name)))
        found[name] = path if os.path.isdir(path) else ""
        if not found[name] and loaded.origin(FOLDERS, name) == FLAGS:
            raise Fault(f"{name} is not a folder", fix="--add-dir takes folders that exist.")
    return found
