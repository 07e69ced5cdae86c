"""A cage as mounts and namespaces: what `bwrap` is told to build.

Mounts go from the top of the tree down, so that what lies deeper wins. The whole disk is there and
read-only; some places are covered, and the workspace is laid over that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Literal

from msgspec.structs import replace

from travois.host.cage.programs import find_own_below_tmp
from travois.host.cage.standin import relink
from travois.policy.cage import TMP, Cage
from travois.policy.paths import inside

NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--new-session", "--die-with-parent", "--cap-drop", "ALL"),
)
OPTIONAL = ("--disable-userns",)
"""Since 0.8. Without it, only the filter keeps programs from opening namespaces of their own."""
DISK = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc")
"""To user 0, with or without capabilities, a writable /proc is a way to change the kernel."""
RUN = ("/run", "/var/run")
SYSTEM = ("/run/current-system", "/run/booted-system")
"""Where some systems keep all of their programs."""
ANSWERS = "/etc/resolv.conf"

Way = Literal["temp", "empty", "write", "show", "hold", "pin", "hide"]
"""What becomes of a path. The first four are there whatever lies above; the others only change
what could be seen, so below a covered place there is nothing to do."""
COVERS = ("temp", "empty", "hide")


def arguments(
    cage: Cage,
    *,
    cwd: str,
    known: Iterable[str] = OPTIONAL,
    net: Literal["own", "session"] = "own",
) -> list[str]:
    """What to tell bwrap, but for the filter and the program.

    What is pinned should be what `settle` gave; what of it is not there is not held. `known` are
    those of the optional words that this bwrap knows. A program without the machine's network gets
    one of its own, unless bwrap is started in that of the session.
    """
    alone = cage.network != "on" and net == "own"
    temp = ["--setenv", "TMPDIR", "/tmp"]  # noqa: S108 - a private folder stands there
    unshared = ["--unshare-net"] if alone else []
    return [*NAMESPACES, *known, *unshared, *DISK, *mounts(cage), *temp, "--chdir", cwd]


def mounts(cage: Cage) -> list[str]:
    """The mounts that make the disk what this cage shows of it."""
    ways = _ways(cage)
    built: dict[str, Way] = {}
    words: list[str] = []
    for path in sorted(ways, key=lambda path: path.count("/")):
        way = ways[path]
        above = next((built[one] for one in _parents(path) if one in built), "write")
        if way in ("hold", "pin", "hide") and above in COVERS:
            continue
        built[path] = way
        words += _mount(path, way, cage.temp)
    return words


def settle(cage: Cage, after: ExitStack) -> Cage:
    """The cage with what is pinned as real paths that are there.

    What is missing is left out: nothing can be mounted on it without a trace, so it is checked
    when the command is over. A link cannot be held by a mount: it is put back then.
    """
    roots = [] if cage.profile == "look" else _real((*cage.folders, *cage.writable))
    pinned: dict[str, None] = {}
    for path in dict.fromkeys((*cage.pinned, *_real(cage.pinned))):
        root = next((root for root in roots if path.startswith(root + "/")), "")
        if not root:
            continue
        if link := _link(path, root):
            after.callback(relink, link, os.readlink(link), temp=cage.temp)
        elif os.path.lexists(path):
            pinned[path] = None
    return replace(cage, pinned=tuple(pinned))


def _link(path: str, root: str) -> str:
    """The first part of a path that is a link; empty if none is."""
    parts = [path, *(one for one in _parents(path) if one.startswith(root + "/"))]
    return next((part for part in reversed(parts) if os.path.islink(part)), "")


def _ways(cage: Cage) -> dict[str, Way]:
    """What becomes of which path; of two wishes for one path the later one holds."""
    open_: Way = "show" if cage.profile == "look" else "write"
    more = () if cage.profile == "look" else cage.writable
    roots = [path for path in _real((*cage.folders, *more)) if os.path.exists(path)]
    ways: dict[str, Way] = dict.fromkeys(_real(TMP), "temp")
    ways |= {path: "empty" for path in _real(RUN) if os.path.isdir(path)}
    shown = (*SYSTEM, *((ANSWERS,) if cage.network == "on" else ()))
    ways |= {path: "show" for path in _real(shown) if path.startswith("/run/")}
    # Below /tmp a link would lead nowhere: what it leads to is shown under its own name, too.
    below = [path for path in cage.shown if any(inside(path, root) for root in TMP)]
    below += [path for path in find_own_below_tmp() if not _within(path, roots)]
    ways |= dict.fromkeys((*_real(cage.shown), *below), "show")
    ways |= dict.fromkeys(roots, open_)
    for path in cage.pinned:
        between = (one for one in _parents(path) if one not in ways and _within(one, roots))
        ways |= dict.fromkeys(between, "hold")
    ways |= dict.fromkeys(cage.pinned, "pin")
    ways |= dict.fromkeys((*_covered(cage, roots), *_real(cage.hidden)), "hide")
    ways |= dict.fromkeys(_real(cage.shown), "show")
    return {path: way for path, way in ways.items() if os.path.exists(path) or way == "temp"}


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
            return _emptied(path) if os.path.isdir(path) else ("--ro-bind", "/dev/null", path)


def _emptied(path: str) -> tuple[str, ...]:
    """An empty folder that nothing can be put into; a read-only mount would cost ten times as much.

    Whoever changes its mode fills only a piece of memory that goes with the program.
    """
    return ("--perms", "0555", "--tmpfs", path)


def sockets() -> tuple[str, ...]:
    """The sockets that have a place on this disk."""
    with suppress(OSError), open("/proc/net/unix", "rb") as table:
        rows = (line.split(None, 7) for line in table.read().splitlines())
        named = {os.fsdecode(row[7]) for row in rows if len(row) == 8 and row[7].startswith(b"/")}
        return tuple(sorted(named))
    return ()


def _covered(cage: Cage, roots: list[str]) -> Iterator[str]:
    """Sockets of others: on a read-only mount they could still be talked to."""
    found = sockets() if cage.sockets is None else cage.sockets
    outside = (path for path in found if not _within(path, roots))
    yield from (path for path in outside if all(map(_open, _parents(path))))


def _open(folder: str) -> bool:
    """Whether we could look into a folder without special rights: behind walls there are none."""
    try:
        found = os.stat(folder)
    except OSError:
        return False
    return found.st_uid == os.getuid() or bool(found.st_mode & 0o011)


def _real(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(os.path.realpath, paths)))


def _within(path: str, roots: Iterable[str]) -> bool:
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)


def _parents(path: str) -> Iterator[str]:
    """From the nearest up."""
    while (path := os.path.dirname(path)) != "/":
        yield path
