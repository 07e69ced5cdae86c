"""Checkouts of one repository, found by links that hold in both directions.

A `.git` file names a git folder, and anybody can write such a file. The git folder names its
checkout too: only whoever may write to that folder can make both agree.
"""

from __future__ import annotations

import os

from travois.permissions.git_config import parse_git_config  # few checkouts are submodules
from travois.permissions.paths import is_inside

MAX_PATH_FILE_BYTES = 4096
"""The number of bytes read from a file that holds one path."""
MAX_CONFIG_BYTES = 1 << 16
MIN_FOLDER_DEPTH = 2
"""The minimum depth of a folder that can be offered as a whole."""


def shared_git_folder(checkout: str) -> str:
    """Return the git folder of a checkout; empty unless that folder also names the checkout."""
    git = os.path.join(checkout, ".git")
    if os.path.islink(git):
        return ""  # anybody can make one that leads to the git folder of somebody else
    if os.path.isdir(git):
        return git if os.path.isfile(os.path.join(git, "HEAD")) else ""
    own = _follow_git_file(git)
    if not own or not os.path.isfile(os.path.join(own, "HEAD")):
        return ""
    return _worktree_git_folder(own, checkout) or _submodule_git_folder(own, checkout)


def find_sibling_checkout(path: str, root: str, *, home: str) -> str:
    """Return the other checkout of the repository around `root` that holds a path; empty if none.

    Never one that holds the home: it would show all of that.
    """
    other, own = _find_checkout_around(path), _find_checkout_around(root)
    if not other or not own or other == own or is_inside(home, other):
        return ""
    shared = shared_git_folder(own)
    same = bool(shared) and os.path.realpath(shared) == os.path.realpath(shared_git_folder(other))
    return other if same else ""


def folder_to_offer(path: str, *, home: str) -> str:
    """Return what may be offered to be read with a path: its checkout, or else its folder.

    Empty for what would be too much: a folder at the top of the disk, or one that holds the home.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    top = _find_checkout_around(folder)
    folder = top if top and not is_inside(home, top) else folder
    return "" if is_inside(home, folder) or folder.count("/") < MIN_FOLDER_DEPTH else folder


def _find_checkout_around(path: str) -> str:
    """Return the folder at or above a path that has a `.git`; empty if none has."""
    while path not in ("/", ""):
        if os.path.lexists(os.path.join(path, ".git")):
            return path
        path = os.path.dirname(path)
    return ""


def _worktree_git_folder(own: str, checkout: str) -> str:
    """Return the shared git folder of a worktree if it knows this checkout; else empty."""
    told = _read_path_file(os.path.join(own, "commondir"))
    common = os.path.realpath(os.path.join(own, told))
    registered = bool(told) and os.path.dirname(own) == os.path.join(common, "worktrees")
    return common if registered and _checkout_named_by(own) == os.path.realpath(checkout) else ""


def _submodule_git_folder(own: str, checkout: str) -> str:
    """Return the git folder of a submodule if that folder's settings name the checkout."""
    if os.path.lexists(os.path.join(own, "commondir")):
        return ""
    files = (os.path.join(own, name) for name in ("config", "config.worktree"))
    settings = (
        one for file in files for one in parse_git_config(_read_start(file, MAX_CONFIG_BYTES))
    )
    places = [one.value for one in settings if one.key == "core.worktree" and one.value]
    named = os.path.realpath(os.path.join(own, places[-1])) if places else ""
    return own if named == os.path.realpath(checkout) else ""


def _checkout_named_by(own: str) -> str:
    """Return the checkout that a git worktree's own git folder names; empty if none."""
    told = _read_path_file(os.path.join(own, "gitdir"))
    file = os.path.join(own, told)
    return os.path.realpath(os.path.dirname(file)) if os.path.basename(file) == ".git" else ""


def _follow_git_file(file: str) -> str:
    """Return the git folder that a `.git` file names, with links followed; empty if none."""
    kind, _, told = _read_path_file(file).partition(":")
    if kind != "gitdir" or not told.strip() or os.path.islink(file):
        return ""
    return os.path.realpath(os.path.join(os.path.dirname(file), told.strip()))


def _read_path_file(path: str) -> str:
    return os.fsdecode(_read_start(path, MAX_PATH_FILE_BYTES)).strip()


def _read_start(path: str, most: int) -> bytes:
    """Read the start of a git file without blocking on a pipe; empty if it is unreadable."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            return file.read(most)
    except (OSError, ValueError):
        return b""


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe in its place would have no end."""
    return os.open(path, flags | os.O_NONBLOCK)
