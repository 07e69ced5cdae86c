"""A helper program that enters a user and a network namespace, then becomes the command.

It replaces `nsenter` where that is missing. Only the standard library is imported here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def main() -> None:
    """Enter network namespaces and run a program: `enter.py USER NETWORK PROGRAM WORD...`."""
    user, network, *argv = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        # Both are opened first: from inside the user namespace our parent's files are not ours.
        for fd in [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (user, network)]:
            if libc.setns(fd, 0):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        # Python ignores these signals, and exec keeps that: the command must get the defaults.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execv(argv[0], argv)  # noqa: S606 - to become it is the point
    except OSError as error:
        sys.exit(f"cannot enter the session's network: {error.strerror}")


if __name__ == "__main__":
    main()
