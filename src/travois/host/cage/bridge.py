"""Runs inside a cage: hands a door of its network to the proxy outside, then becomes the command.

A listening socket belongs to the network that it was made in, whoever holds it: the proxy accepts
outside what knocks inside. So nothing of ours stays inside, and the command's end is its own.
Only the standard library is to be had here, and only its quickest parts.
"""

from __future__ import annotations

import os
import sys

PORT = 3128
"""Free for certain: nobody else lives in that network yet."""


def main() -> None:
    """`bridge.py FD PROGRAM WORD...`: FD leads to the proxy."""
    import _socket
    import signal

    fd, *argv = sys.argv[1:]
    outside, listener = _socket.socket(fileno=int(fd)), _socket.socket()
    listener.bind(("127.0.0.1", PORT))
    listener.listen(128)
    rights = listener.fileno().to_bytes(4, sys.byteorder)
    outside.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    outside.close()
    # Python ignores these; what comes after it should not.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - to become it is the point
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
