"""A helper program that mounts throw-away overlay layers over folders, then becomes the command.

The layers are in a mount namespace that only the program and its children can see. Only the fastest
parts of the standard library are imported here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NEWNS, NEWUSER = 0x00020000, 0x10000000
REC, PRIVATE = 0x4000, 0x40000


def main() -> None:
    """`launch.py LAYERS FOLDER... -- PROGRAM WORD...`."""
    layers, *words = sys.argv[1:]
    cut = words.index("--")
    folders, argv = words[:cut], words[cut + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _part(libc)
        for number, folder in enumerate(folders):
            _cover(libc, folder, f"{layers}/{number}")
        # Python ignores these signals, and exec keeps that: the command must get the defaults.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(os.getcwd())  # by path, to the mount over our current folder
        os.execvp(argv[0], argv)  # noqa: S606 - to become it is the point
    except OSError as error:
        sys.exit(f"cannot create a copy to try this in: {error.strerror}")


def _part(libc: ctypes.CDLL) -> None:
    """Unshare the mount namespace; without the right to, inside a new user namespace."""
    user, group = os.geteuid(), os.getegid()
    try:
        _done(libc.unshare(NEWNS))
    except PermissionError:
        _done(libc.unshare(NEWNS | NEWUSER))
        _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
    _done(libc.mount(b"none", b"/", None, REC | PRIVATE, None))


def _cover(libc: ctypes.CDLL, folder: str, layer: str) -> None:
    # By descriptor, since a path may contain the characters that separate options.
    paths = (folder, f"{layer}/upper", f"{layer}/work")
    lower, upper, work = (f"/proc/self/fd/{os.open(path, os.O_PATH)}" for path in paths)
    options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
    _done(libc.mount(b"overlay", os.fsencode(folder), b"overlay", 0, options.encode()))


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)


def _done(failed: int) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
