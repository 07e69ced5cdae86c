"""A helper program that mounts throw-away overlay layers over folders, then becomes the command.

The layers are in a mount namespace that only the program and its children can see. Only the fastest
parts of the standard library are imported here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def main() -> None:
    """Mount overlay layers and run a program: `launch.py LAYERS FOLDER... -- PROGRAM WORD...`."""
    layers, *words = sys.argv[1:]
    cut = words.index("--")
    folders, argv = words[:cut], words[cut + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _unshare_mounts(libc)
        for number, folder in enumerate(folders):
            _mount_overlay(libc, folder, f"{layers}/{number}")
        # Python ignores these signals, and exec keeps that: the command must get the defaults.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(os.getcwd())  # by path, to the mount over our current folder
        os.execvp(argv[0], argv)  # noqa: S606 - to become it is the point
    except OSError as error:
        sys.exit(f"cannot create a copy to try this in: {error.strerror}")


def _unshare_mounts(libc: ctypes.CDLL) -> None:
    """Unshare the mount namespace; without the right to, inside a new user namespace."""
    user, group = os.geteuid(), os.getegid()
    try:
        _raise_if_failed(libc.unshare(CLONE_NEWNS))
    except PermissionError:
        _raise_if_failed(libc.unshare(CLONE_NEWNS | CLONE_NEWUSER))
        _write_proc_self("setgroups", "deny")
        _write_proc_self("uid_map", f"{user} {user} 1")
        _write_proc_self("gid_map", f"{group} {group} 1")
    _raise_if_failed(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))


def _mount_overlay(libc: ctypes.CDLL, folder: str, layer: str) -> None:
    """Mount a throw-away overlay layer over a folder."""
    # By descriptor, since a path may contain the characters that separate options.
    paths = (folder, f"{layer}/upper", f"{layer}/work")
    lower, upper, work = (f"/proc/self/fd/{os.open(path, os.O_PATH)}" for path in paths)
    options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
    _raise_if_failed(libc.mount(b"overlay", os.fsencode(folder), b"overlay", 0, options.encode()))


def _write_proc_self(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)


def _raise_if_failed(failed: int) -> None:
    """Raise OSError from errno if mounting an overlay layer failed."""
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
