"""A cage as mounts and namespaces: what `bwrap` is told to build.

Mounts go from the top of the tree down, so that what lies deeper wins. The whole disk is there and
read-only; some places are covered, and the workspace is laid over that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

from travois.host.cage.standin import occupied
from travois.policy.cage import Cage

NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--new-session", "--die-with-parent", "--cap-drop", "ALL"),
)
OPTIONAL = ("--disable-userns",)
"""Since 0.8. Without it, only the filter keeps programs from opening namespaces of their own."""
DISK = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
RUN = ("/run", "/var/run")
SYSTEM = ("/run/current-system", "/run/booted-system")
"""Where some systems keep all of their programs."""
ANSWERS = "/etc/resolv.conf"

Way = Literal["temp", "empty", "write", "show", "hold", "pin", "hide"]
"""What becomes of a path. The first four are there whatever lies above; the others only change
what could be seen, so below a covered place there is nothing to do."""
COVERS = ("temp", "empty", "hide")


def arguments(cage: Cage, *, cwd: str, known: Iterable[str] = OPTIONAL) -> list[str]:
    """What to tell bwrap, but for the filter and the program.

    What is pinned and missing should have a stand-in; else what it would stand in is pinned.
    `known` are those of the optional words that this bwrap knows.
    """
    net = [] if cage.network == "on" else ["--unshare-net"]
    temp = ["--setenv", "TMPDIR", "/tmp"]  # noqa: S108 - a private folder stands there
    return [*NAMESPACES, *known, *net, *DISK, *mounts(cage), *temp, "--chdir", cwd]


def mounts(cage: Cage) -> list[str]:
    """The mounts that make the disk what this cage shows of it."""
    ways = _ways(cage)
    built: dict[str, Way] = {}
    words: list[str] = []
    last: list[str] = []
    for path in sorted(ways, key=lambda path: path.count("/")):
        way = ways[path]
        above = next((built[one] for one in _parents(path) if one in built), "write")
        if way in ("hold", "pin", "hide") and above in COVERS:
            continue
        built[path] = way
        words += _mount(path, way, cage.temp)
        if way == "hide" and os.path.isdir(path):
            last += ("--remount-ro", path)
    return words + last


def pins(cage: Cage) -> Iterator[str]:
    """The real paths of what is pinned and would else be writable."""
    roots = [] if cage.profile == "look" else _real((*cage.folders, *cage.writable))
    for path in _real(cage.pinned):
        if any(path.startswith(root + "/") for root in roots):
            yield path


def gap(path: str) -> str:
    """The first part of a path that is not there or only stood in for; empty if all of it is."""
    parts = [*reversed([path, *_parents(path)])]
    return next((part for part in parts if not os.path.lexists(part) or occupied(part)), "")


def _ways(cage: Cage) -> dict[str, Way]:
    """What becomes of which path; of two wishes for one path the later one holds."""
    open_: Way = "show" if cage.profile == "look" else "write"
    more = () if cage.profile == "look" else cage.writable
    roots = [path for path in _real((*cage.folders, *more)) if os.path.exists(path)]
    ways: dict[str, Way] = dict.fromkeys(_real(("/tmp", "/var/tmp")), "temp")  # noqa: S108
    ways |= {path: "empty" for path in _real(RUN) if os.path.isdir(path)}
    shown = (*SYSTEM, *((ANSWERS,) if cage.network == "on" else ()))
    ways |= {path: "show" for path in _real(shown) if path.startswith("/run/")}
    ways |= dict.fromkeys(roots, open_)
    kept = {_standing(gap(path) or path) for path in pins(cage)}
    for path in kept:
        between = (one for one in _parents(path) if one not in ways and _within(one, roots))
        ways |= dict.fromkeys(between, "hold")
    ways |= dict.fromkeys(kept, "pin")
    ways |= dict.fromkeys((*_sockets(roots), *_real(cage.hidden)), "hide")
    return {path: way for path, way in ways.items() if os.path.exists(path) or way == "temp"}


def _standing(path: str) -> str:
    """The path, or the nearest above it that is there."""
    return path if os.path.exists(path) else _standing(os.path.dirname(path))


def _mount(path: str, way: Way, temp: str) -> tuple[str, ...]:
    match way:
        case "temp":
            return ("--bind", temp, path)
        case "empty":
            return ("--tmpfs", path)
        case "write" | "hold":
            return ("--bind", path, path)
        case "show" | "pin":
            return ("--ro-bind", path, path)
        case "hide":
            folder = os.path.isdir(path)
            return ("--tmpfs", path) if folder else ("--ro-bind", "/dev/null", path)


def _sockets(roots: list[str]) -> Iterator[str]:
    """Sockets of others: on a read-only mount they could still be talked to."""
    with suppress(OSError), open("/proc/net/unix", "rb") as table:
        rows = (line.split(None, 7) for line in table.read().splitlines())
        named = {os.fsdecode(row[7]) for row in rows if len(row) == 8 and row[7].startswith(b"/")}
        yield from sorted(path for path in named if not _within(path, roots))


def _real(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(os.path.realpath, paths)))


def _within(path: str, roots: Iterable[str]) -> bool:
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)


def _parents(path: str) -> Iterator[str]:
    """From the nearest up."""
    while (path := os.path.dirname(path)) != "/":
        yield path
