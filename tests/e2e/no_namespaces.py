"""Run a program as an ordinary container does: it can open no namespace and mount nothing.

`python no_namespaces.py PROGRAM ARGS...`. There `bwrap` is found and cannot work, and Landlock can.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

LOAD, SAME, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NAMESPACES = 0x7E020000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
FLAGS = 16
COLUMN = ("x86_64", "aarch64").index(os.uname().machine)
REFUSED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
}
CLONE, CLONE3 = (56, 220), (435, 435)


def steps() -> list[tuple[int, int, int, int]]:
    """The filter: Docker's, as far as namespaces and mounts are concerned."""
    refuse = (RETURN, 0, 0, ERROR | errno.EPERM)
    found = [(LOAD, 0, 0, 0)]
    for numbers in REFUSED.values():
        found += [(SAME, 0, 1, numbers[COLUMN]), refuse]
    # Its flags are behind a pointer, so that it is said not to exist and `clone` is used.
    found += [(SAME, 0, 1, CLONE3[COLUMN]), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    found += [(SAME, 0, 3, CLONE[COLUMN]), (LOAD, 0, 0, FLAGS)]
    found += [(ANY_BIT, 0, 1, NAMESPACES), refuse]
    return [*found, (RETURN, 0, 0, ALLOW)]


class Program(ctypes.Structure):
    """A filter as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    found = steps()
    program = Program(len(found), b"".join(struct.pack("<HBBI", *step) for step in found))
    for words in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*words):
            raise OSError(ctypes.get_errno(), "the filter cannot be set")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
