"""Paths in tool arguments: resolving, displaying, and helpful errors for missing files."""

from __future__ import annotations

import os

from travois.core.display_text import escape_path
from travois.lazy_imports import lazy_imports
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, ToolError
from travois.ports.world import Env, FileStat

with lazy_imports():
    import difflib


MAX_LISTED_NAMES = 10
MAX_FOLDER_NAMES = 5_000


def absolute_path(path: str, cwd: str) -> str:
    """Return a tool's path argument without `~`, dots and doubled slashes; links are kept.

    Permissions judge what is opened: `link/..` means the folder that contains the link.
    """
    if "\0" in path:
        shown = escape_path(path)
        raise ToolError(f"{shown} contains a NUL character; remove it from the path.")
    full = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    return "/" + full.lstrip("/")


def read_access(path: str, here: CallLocation) -> tuple[Access, ...]:
    """Return the access of a tool call that reads one file."""
    _refuse_nul_path(path)
    return (Access("read", absolute_path(path, here.cwd)),)


def write_access(path: str, here: CallLocation) -> tuple[Access, ...]:
    """Return the access of a tool call that changes one file."""
    _refuse_nul_path(path)
    return (Access("write", absolute_path(path, here.cwd)),)


def _refuse_nul_path(path: str) -> None:
    """Refuse a path argument with a NUL character, which no file can have."""
    if "\0" in path:
        raise ToolError(f"{escape_path(path)} is not a valid path: it contains a NUL character")


def display_path(path: str, env: Env) -> str:
    """Return a path as a person would write it: relative if it is inside the workspace."""
    inside = path.startswith(env.root.rstrip("/") + "/")
    return escape_path(os.path.relpath(path, env.root) if inside else path)


async def require_file(path: str, env: Env) -> FileStat:
    """Return the status of a tool's file argument; refuse folders, devices and missing files."""
    stat = await env.files.stat(path)
    if stat is None:
        raise ToolError(await _describe_missing_path(path, env))
    if stat.kind == "folder":
        raise ToolError(await _describe_folder(path, env))
    if stat.kind == "other":
        raise ToolError(f"{display_path(path, env)} is a device, pipe or socket, not a file.")
    return stat


def describe_link(stat: FileStat | None) -> str:
    """Return a remark on where a path's link leads; empty if it is none."""
    return (
        f" (a link to {escape_path(stat.link)})" if stat and stat.link and not stat.private else ""
    )


async def _describe_missing_path(path: str, env: Env) -> str:
    """Explain that a path does not exist, suggesting similar names in its folder."""
    folder, name = os.path.split(path)
    stat = await env.files.stat(folder)
    if stat is None or stat.kind != "folder":
        return (
            f"{display_path(path, env)} does not exist, nor does the folder {escape_path(folder)}."
        )
    similar = _find_similar_names(name, await env.files.list_names(folder, limit=MAX_FOLDER_NAMES))
    near = [display_path(os.path.join(folder, other), env) for other in similar]
    hint = f" Did you mean {' or '.join(near)}?" if near else f" Relative paths start at {env.cwd}."
    return f"{display_path(path, env)} does not exist.{hint}"


def _find_similar_names(name: str, names: list[str]) -> list[str]:
    """Return up to three names in a folder that resemble a missing file's."""
    lowered = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    stem = name.lower().partition(".")[0]
    same = [other for other in lowered if other.partition(".")[0] == stem and other not in close]
    return [lowered[other] for other in (*close, *same)][:3]


async def _describe_folder(path: str, env: Env) -> str:
    """Explain that a path is a folder, not a file, and list some of its entries."""
    names = await env.files.list_names(path, limit=MAX_FOLDER_NAMES)
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    inside = (
        f" It contains {escape_path(', '.join(names[:MAX_LISTED_NAMES]))}{more}."
        if names
        else " It is empty."
    )
    return f"{display_path(path, env)} is a folder; list it with Glob or Bash ls.{inside}"
