"""A program to start, made into one that starts it behind walls."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.permissions.sandbox_profile import Cage
from travois.sandbox.hidden_files import real_path, remember_folders
from travois.sandbox.probe import Walls, bundled_bwrap

if TYPE_CHECKING:
    from travois.sandbox.guard.guard import Guard, Journal
    from travois.sandbox.loopback import Loopback, Namespace
    from travois.sandbox.network import Door, Network

NONE = "there is no sandbox here; `travois doctor` says why"
KILLERS = (2, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31)
"""Signals that bwrap tells as 128 and their number; programs exit with few of these by choice."""


class Unfenced(OSError):
    """There can be no walls; nothing was started."""


class Fence(msgspec.Struct, frozen=True):
    """How to start a program so that it is behind walls from its first moment."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    fds: tuple[int, ...] = ()
    confine: Callable[[], None] | None = None
    """To be called in the thread that starts the program, and in no other."""
    report: int = -1
    """Where bwrap tells how it went; -1 where there is no bwrap."""
    door: Door | None = None
    """The program's way out to the hosts on its list."""
    guard: Guard | None = None
    """What checks the protected files that the program can write, once it is over."""
    network: Namespace | None = None
    """The network of the session, if the program is to be started in it."""


class Report(msgspec.Struct, frozen=True):
    """What bwrap told."""

    inner: int
    """The first process of the namespace, by our numbers; 0 if there was none."""
    ran: bool
    """Whether the program itself was started."""

    def status(self, code: int) -> int:
        """The exit status of the program, by that of bwrap."""
        return 128 - code if code - 128 in KILLERS else code


class Ground(msgspec.Struct, frozen=True):
    """What walls stand on: what this machine can do, the way out, and what is to be tidied up."""

    walls: Walls | None
    network: Callable[[], Network] | None
    theirs: ExitStack
    """To be closed once the program is started."""
    after: ExitStack
    """To be closed once the program and all that it started are gone."""
    journal: Callable[[], Journal] | None = None
    """Where guards keep what protected files were."""
    mark: str = ""
    """What the program and all that it starts are known by."""
    loopback: Loopback | None = None
    """The network that programs without the machine's share; None if each has its own."""


def enclose(argv: tuple[str, ...], cwd: str, *, cage: Cage, ground: Ground) -> Fence:
    """The fence for one program. Raises `Unfenced` if there can be none."""
    from travois.sandbox import landlock

    walls = ground.walls
    if walls is None or walls.kind == "none":
        raise Unfenced(errno.ENOTSUP, NONE)
    if cage.profile == "try":
        raise Unfenced(errno.ENOTSUP, "a copy to try it in was not made")
    try:
        with remember_folders():
            if walls.kind == "full":
                return _walled(argv, cwd, cage=cage, ground=ground)
            confine = landlock.confinement(cage, ground.theirs)
            guard = _guard(cage, ground, held=False)
    except OSError as error:
        raise Unfenced(error.errno, error.strerror) from error
    return Fence(argv, cwd, {"TMPDIR": cage.temp}, confine=confine, guard=guard)


def _held(cage: Cage) -> Cage:
    """The cage with mounts for all that nobody may write, although git may make what is missing."""
    from travois.sandbox.guard.guard import rule_of

    there = (path for path in cage.git_written if os.path.lexists(path))
    return replace(cage, pinned=(*cage.pinned, *(p for p in there if rule_of(p) == "exact")))


def _guard(cage: Cage, ground: Ground, *, held: bool) -> Guard | None:
    """What checks the protected files that no mount holds; none where there are none."""
    if cage.profile == "look" or ground.journal is None:
        return None
    from travois.sandbox.guard.guard import repository_roots, watches

    found, roots = watches(cage, held=held), repository_roots(cage)
    if not found and not roots:
        return None
    journal = ground.journal()
    within = (*cage.folders, *cage.writable, cage.temp)
    if not _is_inside(journal.folder, cage.hidden):
        refuse_own(os.path.join(journal.folder, "runs"), within)
    return journal.open(found, mark=ground.mark, roots=roots, unasked=cage.unasked)


def _is_inside(path: str, folders: Iterable[str]) -> bool:
    place = f"{real_path(path)}/"
    return any(place.startswith(real_path(folder).rstrip("/") + "/") for folder in folders)


def _walled(argv: tuple[str, ...], cwd: str, *, cage: Cage, ground: Ground) -> Fence:
    from travois.sandbox import bwrap

    assert ground.walls is not None
    refuse_own(ground.walls.bwrap, (*cage.folders, *cage.writable, cage.temp))
    guarded, cage = _held(cage), bwrap.settle(_held(cage), ground.after)
    door = _door(cage, ground)
    report, told = os.pipe()
    ground.after.callback(os.close, report)
    ground.theirs.callback(os.close, told)
    os.set_blocking(report, False)
    filtered = _file(_filter(cage), ground)
    shared = _shared(cage, ground)
    net = "session" if shared else "own"
    words = bwrap.arguments(cage, cwd=cwd, known=ground.walls.options, net=net)
    words += ("--json-status-fd", str(told))
    listed = _file(b"\0".join(map(os.fsencode, [*words, "--seccomp", str(filtered)])), ground)
    start = (ground.walls.bwrap, "--args", str(listed), "--")
    fds = (told, filtered, listed)
    guard = _guard(guarded, ground, held=True)
    fence = Fence((*start, *argv), "/", {}, fds, report=report, guard=guard, network=shared)
    if door is None:
        return fence
    argv, fds = (*start, *door.argv(argv)), (*fds, door.fd)
    return replace(fence, argv=argv, fds=fds, env=door.environ, door=door)


def _filter(cage: Cage) -> bytes:
    """The filter on system calls; what only looks is refused a socket as it is refused a write."""
    from travois.sandbox import landlock as seccomp

    kinds = seccomp.socket_families(cage.network, own_net=True, profile=cage.profile)
    return _compiled(kinds, errno.EROFS if cage.profile == "look" else errno.EPERM)


@lru_cache(maxsize=8)
def _compiled(kinds: tuple[int, ...], refusal: int) -> bytes:
    from travois.sandbox import landlock as seccomp

    return seccomp.program(kinds, refusal=refusal)


def _shared(cage: Cage, ground: Ground) -> Namespace | None:
    """The network of the session, for a program that may not use the machine's."""
    assert ground.walls is not None
    if cage.network == "on" or ground.loopback is None or not ground.walls.shares_loopback:
        return None
    return ground.loopback.open(ground.walls.bwrap)


def _door(cage: Cage, ground: Ground) -> Door | None:
    """The way out to the hosts on a list, where there is one."""
    if cage.network != "listed" or ground.network is None:
        return None
    door = ground.network().open(cage.hosts, cage.barred)
    ground.theirs.callback(door.passed)
    ground.after.callback(door.close)
    return door


def refuse_own(program: str, folders: tuple[str, ...]) -> None:
    """A workspace does not choose what builds the walls around it.

    The bundled bwrap may lie in one, in its virtual environment: there it is pinned.
    """
    if program == bundled_bwrap():
        return
    if _is_inside(program, folders):
        raise OSError(errno.EPERM, f"{program} lies where programs can write; it is not used")


def read_report(fd: int) -> Report:
    """What bwrap told by the time of its end."""
    told = b""
    with suppress(BlockingIOError):
        told = os.read(fd, 4096)
    documents = [msgspec.json.decode(line, type=dict[str, int]) for line in told.splitlines()]
    merged = {key: value for document in documents for key, value in document.items()}
    return Report(merged.get("child-pid", 0), "exit-code" in merged)


def _file(data: bytes, ground: Ground) -> int:
    """A descriptor that reads as these bytes."""
    fd = os.memfd_create("cage", os.MFD_CLOEXEC)
    ground.theirs.callback(os.close, fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
