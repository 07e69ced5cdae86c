"""Landlock rulesets: the paths that programs may use, built once per profile and reused.

A ruleset identifies files by inode, not by name. So reusing one is right only while nothing moved
in the folders whose entries got rules of their own, and while every path that a profile names still
leads to the same place: that is checked before each use.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from time import time_ns

import msgspec

from travois.permissions.sandbox_profile import SandboxProfile
from travois.sandbox.hidden_files import real_path

LANDLOCK_CREATE, LANDLOCK_ADD = 444, 445
LANDLOCK_VERSION, LANDLOCK_BENEATH = 1, 1
READ_RIGHTS = 0b1101
LIST_RIGHT = 0b1000
WRITE_RIGHTS = 0b0111_0111_1011_0010
"""All rights but creating device files."""
IOCTL_DEVICE_RIGHT = 0b1000_0000_0000_0000
"""Set up a device. /dev/tty is the terminal that the harness gave a program, or none."""
FILE_RIGHTS = 0b1100_0000_0000_0111
"""Rights that apply to a file; the others apply to folders."""
ALL_RIGHTS = 0b1111_1111_1111_1111
SCOPE_FLAGS = 0b11
"""No signals to, and no abstract sockets of, processes outside."""
ALLOWED_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
MAX_RULESETS = 8
"""The profiles whose rulesets are kept."""
SETTLED_NS = 100_000_000
"""The age from which on the time of a folder shows every later change, on any clock of a disk."""

PathIdentity = tuple[int, ...]
"""What a path leads to: its disk and inode, for a listed folder also its times; empty if nothing.
"""


class LandlockPaths(msgspec.Struct, frozen=True):
    """The real paths that decide about the rules of a profile."""

    hidden: frozenset[str]
    read: tuple[str, ...]
    write: tuple[str, ...]
    temp: str


class BuiltRuleset(msgspec.Struct, frozen=True):
    """A ruleset, and how the paths were when it was built."""

    fd: int
    roots: dict[str, PathIdentity]
    listed: dict[str, PathIdentity]
    """The folders whose entries have rules of their own."""
    settled: bool
    """True if every later change of these shows in their times."""

    def is_current(self) -> bool:
        """Return whether the same rules would be built again."""
        return (
            self.settled
            and all(_identify_path(path) == known for path, known in self.roots.items())
            and all(_identify_listing(path) == known for path, known in self.listed.items())
        )


class LandlockRulesets:
    """The rulesets of a session."""

    def __init__(self) -> None:
        self._built: dict[LandlockPaths, BuiltRuleset] = {}
        self.builds = 0
        """How often one was built."""

    def find(self, profile: SandboxProfile) -> int:
        """Return the ruleset of a profile; it stays open until the next call."""
        paths = _find_landlock_paths(profile)
        known = self._built.pop(paths, None)
        if known is not None and not known.is_current():
            os.close(known.fd)
            known = None
        if known is None:
            self.builds += 1
            known = _build_ruleset(paths)
        self._built[paths] = known
        while len(self._built) > MAX_RULESETS:
            os.close(self._built.pop(next(iter(self._built))).fd)
        return known.fd

    def close(self) -> None:
        """Close all of them."""
        while self._built:
            os.close(self._built.popitem()[1].fd)


def _find_landlock_paths(profile: SandboxProfile) -> LandlockPaths:
    """Resolve the paths of a Landlock profile: links may have changed since the last command."""
    looking = profile.profile == "look"
    return LandlockPaths(
        frozenset(real_path(path) for path in profile.hidden if os.path.lexists(path)),
        tuple(map(real_path, (*profile.shown, *profile.caches, *profile.folders))),
        () if looking else (*profile.folders, *profile.writable),
        real_path(profile.temp),
    )


def _build_ruleset(paths: LandlockPaths) -> BuiltRuleset:
    version = get_landlock_version()
    # Device ioctls can be ruled since ABI 5, scopes since ABI 6; older kernels reject those bits.
    known = ALL_RIGHTS if version >= 5 else ALL_RIGHTS >> 1
    attributes = struct.pack("<QQQ", known, 0, SCOPE_FLAGS)[: 24 if version >= 6 else 8]
    began = time_ns()
    roots = {path: _identify_path(path) for path in (*paths.read, *paths.write, paths.temp)}
    listed: dict[str, PathIdentity] = {}
    rules: dict[str, int] = {}
    for path, rights in list_landlock_rules(paths, listed):
        rules[path] = rules.get(path, 0) | rights
    fd = _create_landlock_ruleset(attributes)
    try:
        for path, rights in rules.items():
            # What vanished or cannot be opened needs no right: without a rule it stays closed.
            with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                _add_path_rule(fd, path, rights & known)
    except OSError:
        os.close(fd)
        raise
    settled = all(max(found[2:], default=0) < began - SETTLED_NS for found in listed.values())
    return BuiltRuleset(fd, roots, listed, settled)


def list_landlock_rules(
    paths: LandlockPaths, listed: dict[str, PathIdentity]
) -> Iterator[tuple[str, int]]:
    """Yield each path that a Landlock ruleset allows, with its rights; note the listed folders.

    A rule applies to everything below a path. So `/`, and a hidden folder with something shown in
    it, cannot be listed by programs: a rule for it would list all names below it.
    """
    hidden = paths.hidden
    # For root, /dev contains the raw disks.
    yield from _list_beside_hidden("/", {*hidden, "/dev"}, listed)
    for path in paths.read:
        yield from _list_beside_hidden(path, hidden - {path}, listed)
    yield "/dev", LIST_RIGHT
    for name in ALLOWED_DEVICES:
        yield (
            f"/dev/{name}",
            READ_RIGHTS | WRITE_RIGHTS | (IOCTL_DEVICE_RIGHT if name == "tty" else 0),
        )
    yield paths.temp, READ_RIGHTS | WRITE_RIGHTS
    for folder in paths.write:
        yield from _list_beside_hidden(folder, hidden, listed, READ_RIGHTS | WRITE_RIGHTS)


def _list_beside_hidden(
    path: str,
    kept: Collection[str],
    listed: dict[str, PathIdentity],
    rights: int = READ_RIGHTS,
) -> Iterator[tuple[str, int]]:
    """Yield a path for Landlock to allow, or those parts of it that leave out hidden paths."""
    if path in kept:
        return
    # Landlock has no rule that takes away: what hides something is left out, and its other entries
    # get rules of their own.
    within = [one for one in kept if one.startswith(path.rstrip("/") + "/")]
    if not within:
        yield path, rights
        return
    if path != "/":
        yield path, LIST_RIGHT
    # Before it is listed: a change after that must show. The first look counts, too.
    listed.setdefault(path, _identify_listing(path))
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            # The target of a link is opened by its own path and needs a rule of its own.
            if not entry.is_symlink():
                yield from _list_beside_hidden(entry.path, within, listed, rights)


def _identify_path(path: str) -> PathIdentity:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino


def _identify_listing(path: str) -> PathIdentity:
    """Return a folder's identity, which changes whenever its entries do, to check a ruleset."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _add_path_rule(ruleset: int, path: str, rights: int) -> None:
    """Add a Landlock rule for one path; rights that only folders have are dropped for a file."""
    # O_NOFOLLOW: a path that became a link since it was listed must not open another place.
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= FILE_RIGHTS
        rule = struct.pack("<Qi", rights, fd)
        call_kernel(LANDLOCK_ADD, ruleset, LANDLOCK_BENEATH, rule, 0)
    finally:
        os.close(fd)


def get_landlock_version() -> int:
    """Return the kernel's Landlock ABI version; 0 without Landlock."""
    try:
        return call_kernel(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    except OSError:
        return 0


def _create_landlock_ruleset(attributes: bytes) -> int:
    """Create an empty ruleset and return its descriptor."""
    return call_kernel(LANDLOCK_CREATE, attributes, len(attributes), 0)


@cache
def load_libc() -> ctypes.CDLL:
    """Return this process's C library, for Landlock system calls."""
    return ctypes.CDLL(None, use_errno=True)


def call_kernel(*args: object) -> int:
    """Make a Landlock system call that Python has no function for; raises OSError."""
    return raise_on_error(load_libc().syscall(*args))


def raise_on_error(result: int) -> int:
    """Return the result of a Landlock system call; raise OSError if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
