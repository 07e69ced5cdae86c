"""Turning a program's command line into one that starts it inside a sandbox."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.permissions.sandbox_profile import SandboxProfile
from travois.sandbox import bwrap, landlock
from travois.sandbox.guard.guard import Guard, Journal, repository_roots, rule_of, watches
from travois.sandbox.hidden_files import real_path, remember_folders
from travois.sandbox.probe import Walls, bundled_bwrap

if TYPE_CHECKING:
    from travois.sandbox.loopback import Loopback, Namespace
    from travois.sandbox.network import Door, Network

NONE = "no sandbox is available here; run `travois doctor` to see why"
KILLERS = (2, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31)
"""Signals that bwrap reports as exit code 128 + number; programs rarely exit with these by
choice."""


class Unfenced(OSError):
    """No sandbox could be built; nothing was started."""


class Fence(msgspec.Struct, frozen=True):
    """A command line, with its descriptors and environment, that starts a program in a sandbox."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    fds: tuple[int, ...] = ()
    confine: Callable[[], None] | None = None
    """Called in the thread that starts the program, and in no other."""
    report: int = -1
    """The read end of bwrap's status pipe; -1 without bwrap."""
    door: Door | None = None
    """The proxy to the hosts that the program may reach."""
    guard: Guard | None = None
    """Checks the protected files that the program can write, once it has ended."""
    network: Namespace | None = None
    """The session's network, if the program is started in it."""


class Report(msgspec.Struct, frozen=True):
    """The status that bwrap reported."""

    inner: int
    """The pid, in our namespace, of the first process inside; 0 if there was none."""
    ran: bool
    """Whether the program itself was started."""

    def status(self, code: int) -> int:
        """Return the program's exit status, given that of bwrap."""
        return 128 - code if code - 128 in KILLERS else code


class Ground(msgspec.Struct, frozen=True):
    """The machine's support, the network and the cleanup that building a sandbox needs."""

    walls: Walls | None
    network: Callable[[], Network] | None
    theirs: ExitStack
    """Closed once the program is started."""
    after: ExitStack
    """Closed once the program and everything it started are gone."""
    journal: Callable[[], Journal] | None = None
    """Opens the journal in which guards save protected files."""
    mark: str = ""
    """The mark in the environment of the program and everything it starts."""
    loopback: Loopback | None = None
    """The network shared by programs without the machine's; None if each gets its own."""


def enclose(argv: tuple[str, ...], cwd: str, *, cage: SandboxProfile, ground: Ground) -> Fence:
    """Build the command that starts one program in its sandbox. Raises `SandboxUnavailable`."""
    walls = ground.walls
    if walls is None or walls.kind == "none":
        raise Unfenced(errno.ENOTSUP, NONE)
    if cage.profile == "try":
        raise Unfenced(errno.ENOTSUP, "no copy was created to try this in")
    try:
        with remember_folders():
            if walls.kind == "full":
                return _walled(argv, cwd, cage=cage, ground=ground)
            confine = landlock.confinement(cage, ground.theirs)
            guard = _guard(cage, ground, held=False)
    except OSError as error:
        raise Unfenced(error.errno, error.strerror) from error
    return Fence(argv, cwd, {"TMPDIR": cage.temp}, confine=confine, guard=guard)


def _held(cage: SandboxProfile) -> SandboxProfile:
    """Return the profile with mounts for files that neither git nor anybody else may write."""
    there = (path for path in cage.git_written if os.path.lexists(path))
    return replace(cage, pinned=(*cage.pinned, *(p for p in there if rule_of(p) == "exact")))


def _guard(cage: SandboxProfile, ground: Ground, *, held: bool) -> Guard | None:
    """Open the guard for the protected files that no mount holds; None if there are none."""
    if cage.profile == "look" or ground.journal is None:
        return None
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


def _walled(argv: tuple[str, ...], cwd: str, *, cage: SandboxProfile, ground: Ground) -> Fence:
    """Build the bwrap command line, with its pipes, filter, network and proxy."""
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


def _filter(cage: SandboxProfile) -> bytes:
    """Choose the system call filter: a read-only command gets EROFS for a socket as for a write."""
    kinds = landlock.socket_families(cage.network, own_net=True, profile=cage.profile)
    return _compiled(kinds, errno.EROFS if cage.profile == "look" else errno.EPERM)


@lru_cache(maxsize=8)
def _compiled(kinds: tuple[int, ...], refusal: int) -> bytes:
    return landlock.program(kinds, refusal=refusal)


def _shared(cage: SandboxProfile, ground: Ground) -> Namespace | None:
    """Open the session's network for a program that may not use the machine's."""
    assert ground.walls is not None
    if cage.network == "on" or ground.loopback is None or not ground.walls.shares_loopback:
        return None
    return ground.loopback.open(ground.walls.bwrap)


def _door(cage: SandboxProfile, ground: Ground) -> Door | None:
    """Open the proxy to the allowed hosts, if the profile has a list."""
    if cage.network != "listed" or ground.network is None:
        return None
    door = ground.network().open(cage.hosts, cage.barred)
    ground.theirs.callback(door.passed)
    ground.after.callback(door.close)
    return door


def refuse_own(program: str, folders: tuple[str, ...]) -> None:
    """Raise OSError for a sandbox program that lies where commands can write.

    A workspace must not choose the program that sandboxes it. The bundled bwrap may lie in one, in
    its virtual environment: there it is pinned.
    """
    if program == bundled_bwrap():
        return
    if _is_inside(program, folders):
        raise OSError(errno.EPERM, f"{program} is in a folder that programs can write to; not used")


def read_report(fd: int) -> Report:
    """Read what bwrap has reported up to its end."""
    told = b""
    with suppress(BlockingIOError):
        told = os.read(fd, 4096)
    documents = [msgspec.json.decode(line, type=dict[str, int]) for line in told.splitlines()]
    merged = {key: value for document in documents for key, value in document.items()}
    return Report(merged.get("child-pid", 0), "exit-code" in merged)


def _file(data: bytes, ground: Ground) -> int:
    """Return a descriptor of an anonymous file with these bytes."""
    fd = os.memfd_create("cage", os.MFD_CLOEXEC)
    ground.theirs.callback(os.close, fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
