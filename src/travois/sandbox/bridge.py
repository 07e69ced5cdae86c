"""Runs inside a cage: hands a door of its network to the proxy outside, then becomes the command.

The command learns of the door by variables, in which this fills in the port: the network may be
shared with other commands, so no number is free for certain.

A listening socket belongs to the network that it was made in, whoever holds it: the proxy accepts
outside what knocks inside. So nothing of ours stays inside, and the command's end is its own.
Only the standard library is to be had here, and only its quickest parts.
"""

from __future__ import annotations

import _socket
import os
import signal
import sys

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""How programs learn of a proxy: its address, whose port is 0 until this knows it."""


def main() -> None:
    """`bridge.py FD PROGRAM WORD...`: FD leads to the proxy."""
    fd, *argv = sys.argv[1:]
    outside, listener = _socket.socket(fileno=int(fd)), _socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    os.environ.update({name: f"{os.environ[name][:-1]}{port}" for name in VARIABLES})
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
