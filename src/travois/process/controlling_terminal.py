"""A helper program that makes standard input the controlling terminal, then becomes the command.

Only the fastest parts of the standard library are imported here.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios


def main() -> None:
    """Make standard input the controlling terminal and run a program: `PROGRAM WORD...`."""
    if os.getsid(0) != os.getpid():  # bwrap runs a process of its own before the program
        os.setsid()
    try:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    except OSError as error:
        # Without it the program works, but Ctrl-C does not reach it as a signal.
        sys.stderr.write(f"travois: no controlling terminal: {error.strerror}\n")
    # Python ignores these signals, and exec keeps that: the command must get the defaults.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - to become it is the point


if __name__ == "__main__":
    main()
