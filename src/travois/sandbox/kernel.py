"""The few calls into the kernel that Python has no names for."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 22, 28, 38
SECCOMP_MODE_FILTER = 2
NO_ROOT = 0b11
"""Securebits: being user 0 gives no capabilities, and that cannot be undone."""
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION, LANDLOCK_BENEATH = 1, 1
CLONE_NEWNET = 0x40000000


def leave_network() -> None:
    """Move the calling thread, and all that it starts, into a new and empty network."""
    _checked(_libc().unshare(CLONE_NEWNET))


def landlock_version() -> int:
    """How much of Landlock this kernel has; 0 for none."""
    try:
        return _syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    except OSError:
        return 0


def landlock_ruleset(attributes: bytes) -> int:
    """A descriptor of an empty set of rules."""
    return _syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)


def landlock_add(ruleset: int, rule: bytes) -> None:
    """Add what may be done beneath a path."""
    _syscall(LANDLOCK_ADD, ruleset, LANDLOCK_BENEATH, rule, 0)


def confine_thread(ruleset: int, program: bytes) -> None:
    """Bind the calling thread, and all that it starts, by these rules and this filter, for ever."""
    import ctypes

    class Program(ctypes.Structure):
        """A filter as the kernel takes it."""

        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        _prctl(PR_SET_SECUREBITS, NO_ROOT)
    _syscall(LANDLOCK_RESTRICT, ruleset, 0)
    steps = Program(len(program) // 8, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(steps))


@cache
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _prctl(*args: object) -> None:
    _checked(_libc().prctl(*args, *(0,) * (5 - len(args))))


def _syscall(*args: object) -> int:
    return _checked(_libc().syscall(*args))


def _checked(result: int) -> int:
    import ctypes

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
