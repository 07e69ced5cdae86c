"""Runs in a sandbox, before a program with a terminal: makes that terminal control it.

Only the standard library is to be had here, and only its quickest parts.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios


def main() -> None:
    """`terminal.py PROGRAM WORD...`."""
    if os.getsid(0) != os.getpid():  # bwrap puts its own first process before the program
        os.setsid()
    try:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    except OSError as error:
        # Without it the program works, but Ctrl-C does not reach it as a signal.
        sys.stderr.write(f"travois: no controlling terminal: {error.strerror}\n")
    # Python ignores these; what comes after it should not.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - to become it is the point


if __name__ == "__main__":
    main()
