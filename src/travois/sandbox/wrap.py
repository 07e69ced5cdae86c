"""Wrapping a program's command line so that it starts inside a sandbox."""

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
from travois.sandbox import bwrap, landlock, seccomp
from travois.sandbox.guard.guard import (
    CommandGuard,
    GuardJournal,
    choose_git_rule,
    find_guarded_paths,
    find_repository_roots,
)
from travois.sandbox.hidden_files import cache_real_paths, real_path
from travois.sandbox.probe import SandboxSupport, find_bundled_bwrap
from travois.sandbox.rulesets import LandlockRulesets

if TYPE_CHECKING:
    from travois.sandbox.loopback import NetworkNamespace, SessionNetwork
    from travois.sandbox.network import CommandProxy, NetworkProxy

NO_SANDBOX_MESSAGE = "no sandbox is available here; run `travois doctor` to see why"
FATAL_SIGNALS = (2, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31)
"""Signals that bwrap reports as exit code 128 + number; programs rarely exit with these by
choice."""


class SandboxUnavailable(OSError):
    """The sandbox could not be built; nothing was started."""


class SandboxedCommand(msgspec.Struct, frozen=True):
    """A command line, with its descriptors and environment, that starts a program in a sandbox."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    fds: tuple[int, ...] = ()
    confine: Callable[[], None] | None = None
    """Called in the thread that starts the program, and in no other."""
    report: int = -1
    """The read end of bwrap's status pipe; -1 without bwrap."""
    door: CommandProxy | None = None
    """The proxy to the hosts that the program may reach."""
    guard: CommandGuard | None = None
    """Checks the protected files that the program can write, once it has ended."""
    network: NetworkNamespace | None = None
    """The session's network, if the program is started in it."""


class BwrapReport(msgspec.Struct, frozen=True):
    """The status that bwrap reported."""

    inner: int
    """The pid, in our namespace, of the first process inside; 0 if there was none."""
    ran: bool
    """Whether the program itself was started."""

    def exit_status(self, code: int) -> int:
        """Return the program's exit status, given that of bwrap."""
        return 128 - code if code - 128 in FATAL_SIGNALS else code


class SandboxSetup(msgspec.Struct, frozen=True):
    """The machine's support, the network and the cleanup that building a sandbox needs."""

    support: SandboxSupport | None
    network: Callable[[], NetworkProxy] | None
    theirs: ExitStack
    """Closed once the program is started."""
    after: ExitStack
    """Closed once the program and everything it started are gone."""
    journal: Callable[[], GuardJournal] | None = None
    """Opens the journal in which guards save protected files."""
    mark: str = ""
    """The mark in the environment of the program and everything it starts."""
    loopback: SessionNetwork | None = None
    """The network shared by programs without the machine's; None if each gets its own."""
    rulesets: LandlockRulesets = msgspec.field(default_factory=LandlockRulesets)
    """The Landlock rulesets of the session."""


def build_sandboxed_command(
    argv: tuple[str, ...], cwd: str, *, profile: SandboxProfile, setup: SandboxSetup
) -> SandboxedCommand:
    """Build the command that starts one program in its sandbox. Raises `SandboxUnavailable`."""
    support = setup.support
    if support is None or support.kind == "none":
        raise SandboxUnavailable(errno.ENOTSUP, NO_SANDBOX_MESSAGE)
    if profile.profile == "try":
        raise SandboxUnavailable(errno.ENOTSUP, "no copy was created to try this in")
    try:
        with cache_real_paths():
            if support.kind == "full":
                return _build_bwrap_command(argv, cwd, profile=profile, setup=setup)
            confine = landlock.build_confinement(profile, setup.rulesets)
            guard = _open_command_guard(profile, setup, held=False)
    except OSError as error:
        raise SandboxUnavailable(error.errno, error.strerror) from error
    return SandboxedCommand(argv, cwd, {"TMPDIR": profile.temp}, confine=confine, guard=guard)


def _with_mounted_pins(profile: SandboxProfile) -> SandboxProfile:
    """Return the sandbox profile with mounts for files that neither git nor others may write."""
    there = (path for path in profile.git_written if os.path.lexists(path))
    return replace(
        profile, pinned=(*profile.pinned, *(p for p in there if choose_git_rule(p) == "exact"))
    )


def _open_command_guard(
    profile: SandboxProfile, setup: SandboxSetup, *, held: bool
) -> CommandGuard | None:
    """Open the guard for protected files that no sandbox mount covers; None if there are none."""
    if profile.profile == "look" or setup.journal is None:
        return None
    found, roots = find_guarded_paths(profile, held=held), find_repository_roots(profile)
    if not found and not roots:
        return None
    journal = setup.journal()
    within = (*profile.folders, *profile.writable, profile.temp)
    if not _lies_in_any(journal.folder, profile.hidden):
        refuse_workspace_program(os.path.join(journal.folder, "runs"), within)
    return journal.open_guard(found, mark=setup.mark, roots=roots, unasked=profile.unasked)


def _lies_in_any(path: str, folders: Iterable[str]) -> bool:
    place = f"{real_path(path)}/"
    return any(place.startswith(real_path(folder).rstrip("/") + "/") for folder in folders)


def _build_bwrap_command(
    argv: tuple[str, ...], cwd: str, *, profile: SandboxProfile, setup: SandboxSetup
) -> SandboxedCommand:
    """Build the bwrap command line, with its pipes, filter, network and proxy."""
    assert setup.support is not None
    refuse_workspace_program(
        setup.support.bwrap, (*profile.folders, *profile.writable, profile.temp)
    )
    guarded, profile = (
        _with_mounted_pins(profile),
        bwrap.resolve_pins(_with_mounted_pins(profile), setup.after),
    )
    door = _open_command_proxy(profile, setup)
    report, told = os.pipe()
    setup.after.callback(os.close, report)
    setup.theirs.callback(os.close, told)
    os.set_blocking(report, False)
    filtered = _open_memory_file(_choose_seccomp_filter(profile), setup)
    shared = _open_session_network(profile, setup)
    net = "session" if shared else "own"
    words = bwrap.build_bwrap_args(profile, cwd=cwd, known=setup.support.options, net=net)
    words += ("--json-status-fd", str(told))
    listed = _open_memory_file(
        b"\0".join(map(os.fsencode, [*words, "--seccomp", str(filtered)])), setup
    )
    start = (setup.support.bwrap, "--args", str(listed), "--")
    fds = (told, filtered, listed)
    guard = _open_command_guard(guarded, setup, held=True)
    sandboxed = SandboxedCommand(
        (*start, *argv), "/", {}, fds, report=report, guard=guard, network=shared
    )
    if door is None:
        return sandboxed
    argv, fds = (*start, *door.argv(argv)), (*fds, door.fd)
    return replace(sandboxed, argv=argv, fds=fds, env=door.environ, door=door)


def _choose_seccomp_filter(profile: SandboxProfile) -> bytes:
    """Choose the seccomp filter; in a read-only sandbox, sockets fail with EROFS like writes."""
    kinds = seccomp.socket_families(profile.network, own_net=True, profile=profile.profile)
    return _compile_seccomp_filter(kinds, errno.EROFS if profile.profile == "look" else errno.EPERM)


@lru_cache(maxsize=8)
def _compile_seccomp_filter(kinds: tuple[int, ...], refusal: int) -> bytes:
    return seccomp.build_seccomp_filter(kinds, refusal=refusal)


def _open_session_network(profile: SandboxProfile, setup: SandboxSetup) -> NetworkNamespace | None:
    """Open the session's network for a sandboxed program that may not use the machine's."""
    assert setup.support is not None
    if profile.network == "on" or setup.loopback is None or not setup.support.shares_loopback:
        return None
    return setup.loopback.open(setup.support.bwrap)


def _open_command_proxy(profile: SandboxProfile, setup: SandboxSetup) -> CommandProxy | None:
    """Open the proxy to the hosts that the sandbox allows, if its profile lists any."""
    if profile.network != "listed" or setup.network is None:
        return None
    door = setup.network().open(profile.hosts, profile.barred)
    setup.theirs.callback(door.close_inner_end)
    setup.after.callback(door.close)
    return door


def refuse_workspace_program(program: str, folders: tuple[str, ...]) -> None:
    """Raise OSError for a sandbox program such as bwrap that commands could overwrite.

    A workspace must not choose the program that sandboxes it. The bundled bwrap may lie in one, in
    its virtual environment: there it is pinned.
    """
    if program == find_bundled_bwrap():
        return
    if _lies_in_any(program, folders):
        raise OSError(errno.EPERM, f"{program} is in a folder that programs can write to; not used")


def read_bwrap_report(fd: int) -> BwrapReport:
    """Read what bwrap has reported about the sandboxed program."""
    told = b""
    with suppress(BlockingIOError):
        told = os.read(fd, 4096)
    documents = [msgspec.json.decode(line, type=dict[str, int]) for line in told.splitlines()]
    merged = {key: value for document in documents for key, value in document.items()}
    return BwrapReport(merged.get("child-pid", 0), "exit-code" in merged)


def _open_memory_file(data: bytes, setup: SandboxSetup) -> int:
    """Return a descriptor of an anonymous file for bwrap with these bytes."""
    fd = os.memfd_create("cage", os.MFD_CLOEXEC)
    setup.theirs.callback(os.close, fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
