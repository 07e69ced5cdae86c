"""The partial sandbox for machines without namespaces: Landlock rules and a seccomp filter.

Landlock rules only allow, and apply to everything below a path. So a hidden path is left out by
allowing its siblings one by one (`rulesets`), and no new file can be created next to it. For pinned
files, which are at the top of every workspace and in `.git`, that would be too strict: they can be
written, and `guard` restores them afterwards.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING

from travois.permissions.sandbox_profile import SandboxProfile
from travois.sandbox.rulesets import LandlockRulesets, call_kernel, load_libc, raise_on_error
from travois.sandbox.seccomp import build_seccomp_filter, socket_families

if TYPE_CHECKING:
    from subprocess import Popen


# System calls without a Python wrapper.


PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 22, 28, 38
SECCOMP_MODE_FILTER = 2
SECUREBITS_NO_ROOT = 0b11
"""Securebits: user 0 has no capabilities, irrevocably."""
LANDLOCK_RESTRICT = 446
CLONE_NEWNET = 0x40000000


def enter_empty_network() -> None:
    """Move the calling thread, and everything it starts, into a new, empty network namespace."""
    raise_on_error(load_libc().unshare(CLONE_NEWNET))


def confine_thread(ruleset: int, program: bytes) -> None:
    """Confine the calling thread, and all that it starts, by Landlock and seccomp for good."""

    class SockFprog(ctypes.Structure):
        """A seccomp program as the kernel takes it (`struct sock_fprog`)."""

        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    # Without this the kernel accepts neither rules nor filters from an unprivileged user.
    _set_process_option(PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        _set_process_option(PR_SET_SECUREBITS, SECUREBITS_NO_ROOT)
    call_kernel(LANDLOCK_RESTRICT, ruleset, 0)
    steps = SockFprog(len(program) // 8, program)
    _set_process_option(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(steps))


def _set_process_option(*args: object) -> None:
    raise_on_error(load_libc().prctl(*args, *(0,) * (5 - len(args))))


MIN_LANDLOCK_ABI = 3
"""The first version that can forbid truncating files."""
BRIEF_PARTIAL_LIMIT = "Protected files are restored after a command, not blocked while it runs."
PARTIAL_LIMITS = (
    "Protected files (.git/hooks, .git/config, .travois, .claude, .vscode and the like) can change "
    "while a command runs; they are checked and restored after it and all its children have ended.",
    "Until then, programs outside the sandbox (your editor, your own git) see the changed files.",
    "Your own changes to protected files while a command runs are undone too; a copy is kept.",
    "If a rule hides a file in the workspace, commands cannot create files in the same folder.",
    "Allowed-host lists do not work: a command with such a list has no network access. Unix "
    "sockets do not work either.",
    "Without network access, commands cannot open TCP sockets, not even to reach a server that an "
    "earlier command started on this machine.",
    "A command that is allowed to write can change modes, times and attributes (chmod, touch, "
    "setfattr) of your files outside the workspace, but not their contents. Read-only commands "
    "cannot do so, not even in the workspace or TMPDIR.",
    "A command that guesses the path of a hidden file can learn that it exists and its size, but "
    "not its contents. Hidden folders cannot be listed, and neither can /.",
    "The machine's own /tmp is readable. Tool chain caches in your home folder are read-only.",
    "System V shared memory, semaphores and queues do not work in the sandbox.",
)
"""Protections of the full sandbox that this one lacks, in sentences for the user."""


def build_confinement(profile: SandboxProfile, rulesets: LandlockRulesets) -> Callable[[], None]:
    """Build the function that confines its calling thread, and all it starts, by Landlock.

    No code of ours runs between fork and exec, where it would run in a copy of a process without
    its other threads. Instead a thread confines itself and then starts the program normally.
    """
    ruleset = rulesets.find(profile)
    # Landlock knows files; sockets, other processes and file attributes need the system call
    # filter.
    filtered = _compile_landlock_filter(
        socket_families(profile.network, own_net=False), read_only=profile.profile == "look"
    )
    return lambda: confine_thread(ruleset, filtered)


@lru_cache(maxsize=8)
def _compile_landlock_filter(families: tuple[int, ...], *, read_only: bool) -> bytes:
    return build_seccomp_filter(families, alone=False, read_only=read_only)


def start_confined(confine: Callable[[], None], start: Callable[[], Popen[bytes]]) -> Popen[bytes]:
    """Start a program from a thread that confines itself with Landlock and then ends."""
    outcome: list[Popen[bytes] | OSError | ValueError] = []

    def confine_and_start() -> None:
        try:
            confine()
            outcome.append(start())
        except (OSError, ValueError) as error:
            outcome.append(error)

    thread = Thread(target=confine_and_start, name="travois-confined")
    thread.start()
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]
