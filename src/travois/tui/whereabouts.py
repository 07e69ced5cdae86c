"""What git's own files say of a folder; git itself is not asked, so that nobody waits for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from travois.compose.worktree import FOLDER
from travois.settings.schema import Json

ORIGIN = re.compile(r'\[remote "origin"\][^\[]*?\burl\s*=\s*(\S+)')
ADDRESS = re.compile(r"(?:\w+://)?(?:[^@/]+@)?([^:/]+)(?::\d+)?[:/](.+)/([^/]+?)(?:\.git)?/?")


def repository(folder: str) -> Json:
    """The repository that a folder belongs to, and which of its worktrees it is, if one."""
    for place in (Path(folder), *Path(folder).parents):
        git = place / ".git"
        if git.exists():
            return _told(git)
    return {}


def _told(git: Path) -> Json:
    apart: Json = {}
    try:
        if git.is_file():
            git = Path(git.parent, git.read_text("utf-8").removeprefix("gitdir:").strip())
            if git.parent.name == "worktrees":
                apart, git = {"git_worktree": git.name}, git.parent.parent
        found = ORIGIN.search((git / "config").read_text("utf-8", errors="replace"))
    except OSError:
        return apart
    named = ADDRESS.fullmatch(found[1]) if found else None
    if named is None:
        return apart
    return {**apart, "repo": {"host": named[1], "owner": named[2], "name": named[3]}}


def worktree(folder: str, branch: str) -> Json:
    """The worktree of ours that a folder is in; nothing if it is in none."""
    above, inside, below = folder.partition(f"/{FOLDER}/")
    if not inside:
        return {}
    name = below.partition("/")[0]
    path = os.path.join(above, FOLDER, name)
    told = {"name": name, "path": path, "branch": branch, "original_cwd": above}
    return {"worktree": told}
