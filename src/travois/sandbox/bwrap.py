"""The full sandbox as mounts and namespaces: building the arguments of `bwrap`.

Mounts go from the top of the tree down, so that deeper ones win. The whole disk is visible
read-only; some places are hidden, and the workspace is mounted over that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from shutil import move
from tempfile import mkdtemp
from typing import Literal

from msgspec.structs import replace

from travois.permissions.paths import is_inside
from travois.permissions.sandbox_profile import TMP_FOLDERS, SandboxProfile
from travois.sandbox.hidden_files import find_own_below_tmp, real_path

# Restoring a protected link, which no mount can hold.


def restore_link(path: str, target: str, *, temp: str) -> None:
    """Restore a protected link that a command replaced; the replacement moves into `temp`."""
    with suppress(OSError):
        if os.readlink(path) == target:
            return
    if os.path.lexists(path):
        move(path, mkdtemp(prefix="replaced-", dir=temp))
    os.symlink(target, path)


NAMESPACE_ARGS = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--new-session", "--die-with-parent", "--cap-drop", "ALL"),
)
OPTIONAL_ARGS = ("--disable-userns",)
"""Arguments since bwrap 0.8. Without them, only the filter keeps programs from opening
namespaces."""
ROOT_MOUNT_ARGS = (
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--remount-ro",
    "/proc",
)
"""The whole disk, read-only. For user 0, a writable /proc is a way to change the kernel."""
RUN_FOLDERS = ("/run", "/var/run")
RUN_SYSTEM_LINKS = ("/run/current-system", "/run/booted-system")
"""The folders in /run where some systems keep all of their programs."""
RESOLV_CONF = "/etc/resolv.conf"
TMP_OVERLAY_ARG = "--tmp-overlay"
"""The argument since bwrap 0.11, not on every disk, for a folder whose changes are dropped."""
FEATURE_SETS = ((*OPTIONAL_ARGS, TMP_OVERLAY_ARG), OPTIONAL_ARGS, ())
"""The sets of optional arguments that a bwrap may know, the best first."""
HOME_CACHE_BYTES = str(512 * 1024 * 1024)
"""The bytes that a program may write to the `.cache` of a hidden home, which is in memory."""

MountKind = Literal[
    "temp", "empty", "write", "show", "copy", "scratch", "home", "hold", "pin", "hide", "own"
]
"""The effect of a mount on a path.

The last three only change what could be seen, so they are not needed below a covered place; a home
and shown paths exist whatever lies above them.
"""
COVERING_KINDS = ("temp", "empty", "hide", "own", "home", "scratch")
HIDDEN_KINDS = ("hide", "own", "home")
READABLE_KINDS = ("", "show", "copy")
"""The kinds below which a shown path is readable already."""


def build_bwrap_args(
    profile: SandboxProfile,
    *,
    cwd: str,
    known: Iterable[str] = OPTIONAL_ARGS,
    net: Literal["own", "session"] = "own",
) -> list[str]:
    """Build the bwrap arguments, without the seccomp filter and the program.

    Pinned paths should come from `resolve_pins`; missing ones are not protected. `known` are the
    optional arguments of this bwrap. A program without the machine's network gets one of its own,
    unless bwrap is started in that of the session.
    """
    options = [word for word in known if word in OPTIONAL_ARGS]
    alone = profile.network != "on" and net == "own"
    temp = ["--setenv", "TMPDIR", "/tmp"]  # noqa: S108 - a private folder stands there
    unshared = ["--unshare-net"] if alone else []
    built = build_mounts(profile, known=known)
    return [*NAMESPACE_ARGS, *options, *unshared, *ROOT_MOUNT_ARGS, *built, *temp, "--chdir", cwd]


def build_mounts(profile: SandboxProfile, *, known: Iterable[str] = ()) -> list[str]:
    """Build the bwrap mounts that make the disk look as this sandbox profile demands."""
    words_known = frozenset(known)
    ways = _plan_mounts(profile, copies=TMP_OVERLAY_ARG in words_known)
    built: dict[str, MountKind] = {}
    words: list[str] = []
    # bwrap mounts in this order: an outer path that came later would hide the inner ones.
    for path in sorted(ways, key=lambda path: path.count("/")):
        way = ways[path]
        over = next((one for one in _iterate_parents(path) if one in built), "")
        above = built[over] if over else ""
        if _is_done_by_parent(way, above) or not _needs_mount(path, way):
            continue
        if above in HIDDEN_KINDS:
            words += _make_folders_between(path, over)
        if way == "scratch" and OPTIONAL_ARGS[0] in words_known:
            words += ("--size", HOME_CACHE_BYTES)
        built[path] = way
        words += _build_mount_args(path, way, profile.temp)
    return [*words, *_build_home_link(profile, built)]


def _build_home_link(profile: SandboxProfile, built: dict[str, MountKind]) -> tuple[str, ...]:
    """Return the link that names a hidden home in the environment, if it is hidden as well."""
    name = os.path.normpath(os.environ.get("HOME", ""))
    parent = os.path.dirname(name)
    if name == profile.home or real_path(name) != profile.home or not os.path.isabs(name):
        return ()
    above = next((built[one] for one in _iterate_parents(name) if one in built), "")
    hidden = above in HIDDEN_KINDS and real_path(parent) == parent
    return ("--symlink", profile.home, name) if hidden else ()


def _is_done_by_parent(way: MountKind, above: str) -> bool:
    """Return whether a bwrap mount above a path already gives it the wanted effect."""
    if way in ("hold", "pin", "hide", "own"):
        return above in COVERING_KINDS
    return way == "show" and above in READABLE_KINDS


def _needs_mount(path: str, way: MountKind) -> bool:
    """Return whether a path needs a bwrap mount.

    An empty folder, or one that the user cannot use anyway, has nothing to hide.
    """
    if way in ("temp", "home", "scratch"):
        return True
    if way == "hide" and not os.path.isdir(path):
        return _can_use_file(path)
    if way == "hide":
        try:
            with os.scandir(path) as entries:
                return any(True for _ in entries)
        except OSError:
            return os.access(path, os.X_OK)
    return os.path.exists(path)


def _can_use_file(path: str) -> bool:
    """Return whether the user could use a file; only then does the sandbox need to hide it.

    An owner can change the mode. A socket that cannot be written cannot be connected to.
    """
    if os.access(path, os.R_OK) or os.access(path, os.W_OK):
        return True
    try:
        return os.lstat(path).st_uid == os.getuid()
    except OSError:
        return False


def _make_folders_between(path: str, over: str) -> Iterator[str]:
    """Yield the mounts for folders between a hidden place and a path shown inside it."""
    for folder in reversed([one for one in _iterate_parents(path) if one.startswith(f"{over}/")]):
        yield from ("--perms", "0555", "--dir", folder)


def resolve_pins(profile: SandboxProfile, after: ExitStack) -> SandboxProfile:
    """Return the sandbox profile with its pinned paths as existing real paths.

    Missing ones are left out: nothing can be mounted on them without a trace, so they are checked
    when the command is over. A mount cannot protect a link: it is restored then.
    """
    roots = [] if profile.profile == "look" else _real_paths((*profile.folders, *profile.writable))
    pinned: dict[str, None] = {}
    for path in dict.fromkeys((*profile.pinned, *_real_paths(profile.pinned))):
        root = next((root for root in roots if path.startswith(root + "/")), "")
        if not root:
            continue
        if link := _find_first_link(path, root):
            after.callback(restore_link, link, os.readlink(link), temp=profile.temp)
        elif os.path.lexists(path):
            pinned[path] = None
    return replace(profile, pinned=tuple(pinned))


def _find_first_link(path: str, root: str) -> str:
    """Return the first component of a pinned path that is a link; empty if none is."""
    parts = [path, *(one for one in _iterate_parents(path) if one.startswith(root + "/"))]
    return next((part for part in reversed(parts) if os.path.islink(part)), "")


def _plan_mounts(profile: SandboxProfile, *, copies: bool = False) -> dict[str, MountKind]:
    """Plan the kind of bwrap mount for each path; of two for one path the later one wins."""
    open_: MountKind = "show" if profile.profile == "look" else "write"
    more = () if profile.profile == "look" else profile.writable
    roots = [path for path in _real_paths((*profile.folders, *more)) if os.path.exists(path)]
    ways: dict[str, MountKind] = dict.fromkeys(_real_paths(TMP_FOLDERS), "temp")
    ways |= {path: "empty" for path in _real_paths(RUN_FOLDERS) if os.path.isdir(path)}
    shown = (*RUN_SYSTEM_LINKS, *((RESOLV_CONF,) if profile.network == "on" else ()))
    ways |= {path: "show" for path in _real_paths(shown) if path.startswith("/run/")}
    # Below /tmp a link would lead nowhere: what it leads to is shown under its own name, too.
    below = [path for path in profile.shown if _is_below_roots(path, TMP_FOLDERS)]
    below += [path for path in find_own_below_tmp() if not _is_below_roots(path, roots)]
    shown = _existing_with_targets(profile.shown)
    ways |= dict.fromkeys((*shown, *below), "show")
    ways |= dict.fromkeys(roots, open_)
    hidden = _real_paths(filter(os.path.lexists, profile.hidden))
    own = [path for path in _real_paths(profile.own) if _is_below_roots(path, roots)]
    for path in (*profile.pinned, *own):
        between = (
            one for one in _iterate_parents(path) if one not in ways and _is_below_roots(one, roots)
        )
        ways |= dict.fromkeys(between, "hold")
    ways |= dict.fromkeys(profile.pinned, "pin")
    ways |= dict.fromkeys((*_find_sockets_to_hide(profile, roots), *hidden), "hide")
    # What would hide an empty folder is left out: it could be filled, where it can be written.
    ways |= dict.fromkeys(own, "own")
    if profile.home in hidden and not any(is_inside(profile.home, root) for root in TMP_FOLDERS):
        ways |= {profile.home: "home", os.path.join(profile.home, ".cache"): "scratch"}
    ways |= {
        path: "copy" if copies and _can_overlay_cache(path, profile.home) else "show"
        for path in _existing_with_targets(profile.caches)
    }
    ways |= dict.fromkeys(shown, "show")
    return ways


def _existing_with_targets(paths: Iterable[str]) -> list[str]:
    """Return the paths to mount that exist, each with its link target."""
    there = list(filter(os.path.exists, paths))
    return list(dict.fromkeys((*there, *map(real_path, there))))


def _can_overlay_cache(path: str, home: str) -> bool:
    """Return whether a cache can get a throw-away overlay mount: only on the home's disk."""
    try:
        return os.path.isdir(path) and os.stat(path).st_dev == os.stat(home).st_dev
    except OSError:
        return False


def _build_mount_args(path: str, way: MountKind, temp: str) -> tuple[str, ...]:
    """Return the bwrap arguments of one mount."""
    match way:
        case "temp":
            return ("--bind", temp, path)
        case "empty":
            return ("--tmpfs", path)
        case "write" | "hold":
            return ("--bind", path, path)
        case "show" | "pin":
            return ("--ro-bind", path, path)
        case "copy":
            return ("--overlay-src", path, TMP_OVERLAY_ARG, path)
        case "scratch":
            return ("--perms", "0700", "--tmpfs", path)
        case "home":
            return ("--perms", "0555", "--tmpfs", path)
        case "hide" | "own":
            return (
                _build_empty_folder_args(path)
                if os.path.isdir(path)
                else ("--ro-bind", "/dev/null", path)
            )


def _build_empty_folder_args(path: str) -> tuple[str, ...]:
    """Build the bwrap arguments that hide a folder behind an empty, unwritable one.

    A program that changes its mode fills only memory that goes with the program.
    """
    return ("--perms", "0555", "--tmpfs", path)


def list_unix_sockets() -> tuple[str, ...]:
    """List the Unix sockets that have a path on this disk, for the sandbox to hide."""
    with suppress(OSError), open("/proc/net/unix", "rb") as table:
        rows = (line.split(None, 7) for line in table.read().splitlines())
        named = {os.fsdecode(row[7]) for row in rows if len(row) == 8 and row[7].startswith(b"/")}
        return tuple(sorted(named))
    return ()


def _find_sockets_to_hide(profile: SandboxProfile, roots: list[str]) -> Iterator[str]:
    """Yield other programs' Unix sockets: even on a read-only mount they accept connections."""
    found = list_unix_sockets() if profile.sockets is None else profile.sockets
    outside = (path for path in found if not _is_below_roots(path, roots))
    yield from (path for path in outside if all(map(_can_enter_folder, _iterate_parents(path))))


def _can_enter_folder(folder: str) -> bool:
    """Return whether the user can enter a folder without special rights: the sandbox has none."""
    try:
        found = os.stat(folder)
    except OSError:
        return False
    return found.st_uid == os.getuid() or bool(found.st_mode & 0o011)


def _real_paths(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(real_path, paths)))


def _is_below_roots(path: str, roots: Iterable[str]) -> bool:
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)


def _iterate_parents(path: str) -> Iterator[str]:
    """Yield the folders above a path, from the nearest up."""
    while (path := os.path.dirname(path)) != "/":
        yield path
