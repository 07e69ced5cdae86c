"""The XDG folders of Travois: settings, state and caches apart; what lay together is moved once.

Travois kept everything in the state folder. Settings and caches move to their own folders when a
process first finds them there, each by one rename. A link stays behind for older versions, which
may be running. A step that was interrupted is completed by the next process.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EXDEV
from pathlib import Path

import msgspec

from travois.lazy_imports import lazy_imports
from travois.sessions import blobs

with lazy_imports():
    import fcntl
    import shutil

CONFIG_NAMES = frozenset(
    (
        *("settings.json", "mcp.json", "keys.json", "AGENTS.md", "AGENTS.override.md"),
        *("instructions", "agents", "skills", "commands", "output-styles", "plugins", "themes"),
    )
)
"""What a person writes."""
CACHE_NAMES = frozenset(("index", "walls.json", "roster.json"))
"""What can be deleted at any time."""
QUIETLY_MOVED = frozenset(("walls.json", "roster.json"))
"""Caches that an older version writes anew whenever it runs."""
LINK_PREFIX = ".linking-"
"""Marks a move that has begun, and becomes the link that it leaves behind."""
COPY_PREFIX = ".moving-"
REPLACED_FOLDER = "replaced"
"""Where something is kept that was in the new place of what is moved."""
NOTE_FILE = "moved.txt"
"""What was moved, until a session has told it."""
OUR_LINK = "/./"
"""Part of the target of each link left behind, which a link of the user's own does not have."""


class XdgFolders(msgspec.Struct, frozen=True):
    """The folders for settings, state and caches."""

    config: Path
    state: Path
    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which another process finds the same folders."""
        return {
            "TRAVOIS_HOME": "",
            "XDG_CONFIG_HOME": str(self.config.parent),
            "XDG_STATE_HOME": str(self.state.parent),
            "XDG_CACHE_HOME": str(self.cache.parent),
        }

    def goal(self, name: str) -> Path:
        """Return where a setting or cache in the state folder belongs."""
        return (self.cache if name in CACHE_NAMES else self.config) / name


def find_xdg_folder(environ: Mapping[str, str], variable: str, usual: str) -> Path | None:
    """Return an XDG folder of Travois; None without a home."""
    chosen, person = environ.get(variable, ""), environ.get("HOME", "")
    if chosen.startswith("/"):  # a relative one is to be ignored, says its specification
        return Path(chosen, "travois")
    return Path(person, usual, "travois") if person.startswith("/") else None


def move_to_xdg_folders(folders: XdgFolders) -> bool:
    """Move settings and caches out of the state folder; return False if they have to stay there."""
    if not any(_list_unmoved(folders)):
        return True
    try:
        with _lock_folder(folders.state):
            moved = {name: _move_entry(folders, name) for name in tuple(_list_unmoved(folders))}
            if moved.keys() - QUIETLY_MOVED:
                note = _describe_moves(folders, moved)
                blobs.replace_file(folders.state / NOTE_FILE, note.encode(errors="replace"))
    except OSError:
        return False
    return True


def take_move_note(state: Path) -> str:
    """Return what was moved, for the first session that asks; empty if nothing was."""
    note = state / NOTE_FILE
    try:
        told = note.read_text("utf-8")
        note.unlink()  # fails for all but one of several sessions
    except (OSError, ValueError):
        return ""
    return told


def _list_unmoved(folders: XdgFolders) -> Iterator[str]:
    """Yield the names in the state folder whose move is due or was interrupted."""
    names = set[str]()
    with suppress(OSError), os.scandir(folders.state) as entries:
        names = {entry.name.removeprefix(LINK_PREFIX) for entry in entries}
    for name in sorted(names & (CONFIG_NAMES | CACHE_NAMES)):
        if not _is_our_link(folders.state / name):
            yield name


def _is_our_link(path: Path) -> bool:
    return os.path.islink(path) and OUR_LINK in os.readlink(path)


def _move_entry(folders: XdgFolders, name: str) -> Path | None:
    """Move one entry of the state folder; return where what was in its new place is kept."""
    goal, old, link = (
        folders.goal(name),
        folders.state / name,
        folders.state / f"{LINK_PREFIX}{name}",
    )
    blobs.make_folders(goal.parent)
    if not os.path.islink(link):
        link.symlink_to(f"{goal.parent}{OUR_LINK}{name}")
    aside = None
    if os.path.lexists(old):
        # The state folder was always out of reach for commands, and the new place was not.
        aside = _clear_place(goal)
        _put_in_place(old, goal)
    if os.path.lexists(goal):
        os.replace(link, old)
    else:
        link.unlink()
    return aside


def _clear_place(goal: Path) -> Path | None:
    """Make room for what is moved; return where what was there is kept. A cache is deleted."""
    if not os.path.lexists(goal):
        return None
    if goal.name in CACHE_NAMES:
        _delete_entry(goal)
        return None
    return _set_aside(goal)


def _put_in_place(old: Path, goal: Path) -> None:
    """Put an entry in its new place: by a rename or, on another file system, as a whole copy."""
    if os.path.islink(old):  # to where they collect such files, perhaps by a relative path
        goal.symlink_to(os.path.realpath(old))
        old.unlink()
        return
    try:
        os.rename(old, goal)
    except OSError as error:
        if error.errno != EXDEV:
            raise
        _copy_entry(old, goal)


def _copy_entry(old: Path, goal: Path) -> None:
    """Copy an entry to another file system and set the old one aside; a cache is dropped."""
    if goal.name in CACHE_NAMES:
        _delete_entry(old)
        return
    draft = goal.with_name(f"{COPY_PREFIX}{goal.name}")
    if os.path.lexists(draft):
        _delete_entry(draft)
    if old.is_dir():
        shutil.copytree(old, draft, symlinks=True)
    else:
        shutil.copy2(old, draft)
    os.sync()
    os.rename(draft, goal)
    _set_aside(old)


def _set_aside(path: Path) -> Path:
    """Rename an entry to a free name; nothing that a person wrote is deleted."""
    kept = path.parent / REPLACED_FOLDER
    blobs.make_folders(kept)
    number = 1
    while os.path.lexists(free := kept / f"{path.name}.{number}"):
        number += 1
    os.rename(path, free)
    return free


def _delete_entry(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _describe_moves(folders: XdgFolders, moved: Mapping[str, Path | None]) -> str:
    """Say in one line what was moved where, and what it replaced."""
    places = dict.fromkeys(str(folders.goal(name).parent) for name in moved)
    told = f"{', '.join(moved)} moved from {folders.state} to {' and '.join(places)}"
    aside = ", ".join(str(path) for path in moved.values() if path is not None)
    return f"{told}; what was there is kept as {aside}" if aside else told


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
    """Hold a lock on a folder, which needs no file in it."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
