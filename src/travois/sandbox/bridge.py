"""A helper program that passes a listening socket out to the proxy, then becomes the command.

The command finds the proxy through environment variables, where this program fills in the port: the
network may be shared with other commands, so no port number is certain to be free.

A listening socket belongs to the network namespace that it was created in, whatever process holds
it: the proxy outside accepts connections made inside. So none of our processes stays inside, and
the command's exit status is its own. Only the fastest parts of the standard library are imported
here.
"""

from __future__ import annotations

import _socket
import os
import signal
import sys

PROXY_VARIABLES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
)
"""Variables by which programs find a proxy; this program fills in the port, which is 0 before."""


def main() -> None:
    """Bridge a sandboxed program to the network proxy: `bridge.py FD PROGRAM WORD...`."""
    fd, *argv = sys.argv[1:]
    outside, listener = _socket.socket(fileno=int(fd)), _socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    os.environ.update({name: f"{os.environ[name][:-1]}{port}" for name in PROXY_VARIABLES})
    rights = listener.fileno().to_bytes(4, sys.byteorder)
    outside.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    outside.close()
    # Python ignores these signals, and exec keeps that: the command must get the defaults.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - to become it is the point
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
