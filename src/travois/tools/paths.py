"""Paths in tool arguments: resolving, displaying, and helpful errors for missing files."""

from __future__ import annotations

import os

from travois.permissions.access import Access
from travois.ports.tool import CallLocation, ToolError
from travois.ports.world import Env, FileStat

FEW = 10
MANY = 5_000


def absolute(path: str, cwd: str) -> str:
    """Return the path without `~`, dots and doubled slashes; links are not followed.

    What is judged is what is opened: `link/..` means the folder that holds the link.
    """
    if "\0" in path:
        shown = plain(path)
        raise ToolError(f"{shown} contains a NUL character; remove it from the path.")
    full = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    return "/" + full.lstrip("/")


def reads(path: str, here: CallLocation) -> tuple[Access, ...]:
    """Return the access of a call that reads one file."""
    _check_path(path)
    return (Access("read", absolute(path, here.cwd)),)


def writes(path: str, here: CallLocation) -> tuple[Access, ...]:
    """Return the access of a call that changes one file."""
    _check_path(path)
    return (Access("write", absolute(path, here.cwd)),)


def _check_path(path: str) -> None:
    """Raise for a path that no file can have."""
    if "\0" in path:
        raise ToolError(f"{plain(path)} is not a valid path: it contains a NUL character")


def short(path: str, env: Env) -> str:
    """Return the path as a person would write it: from the workspace on, where it is inside."""
    inside = path.startswith(env.root.rstrip("/") + "/")
    return plain(os.path.relpath(path, env.root) if inside else path)


def plain(path: str) -> str:
    """Return the path with escapes for what would not be seen, or would play tricks on a screen."""
    if path.isprintable():
        return path
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


async def existing(path: str, env: Env) -> FileStat:
    """Return the stat of a file; refuse folders, devices and missing files."""
    stat = await env.files.stat(path)
    if stat is None:
        raise ToolError(await _missing(path, env))
    if stat.kind == "folder":
        raise ToolError(await _folder(path, env))
    if stat.kind == "other":
        raise ToolError(f"{short(path, env)} is a device, pipe or socket, not a file.")
    return stat


def linked(stat: FileStat | None) -> str:
    """Return a remark on where a link leads; empty if it is none."""
    return f" (a link to {plain(stat.link)})" if stat and stat.link and not stat.private else ""


async def _missing(path: str, env: Env) -> str:
    folder, name = os.path.split(path)
    stat = await env.files.stat(folder)
    if stat is None or stat.kind != "folder":
        return f"{short(path, env)} does not exist, nor does the folder {plain(folder)}."
    similar = _similar(name, await env.files.list_names(folder, limit=MANY))
    near = [short(os.path.join(folder, other), env) for other in similar]
    hint = f" Did you mean {' or '.join(near)}?" if near else f" Relative paths start at {env.cwd}."
    return f"{short(path, env)} does not exist.{hint}"


def _similar(name: str, names: list[str]) -> list[str]:
    from difflib import get_close_matches

    lowered = {other.lower(): other for other in names}
    close = get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    stem = name.lower().partition(".")[0]
    same = [other for other in lowered if other.partition(".")[0] == stem and other not in close]
    return [lowered[other] for other in (*close, *same)][:3]


async def _folder(path: str, env: Env) -> str:
    names = await env.files.list_names(path, limit=MANY)
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    inside = f" It contains {plain(', '.join(names[:FEW]))}{more}." if names else " It is empty."
    return f"{short(path, env)} is a folder; list it with Glob or Bash ls.{inside}"
