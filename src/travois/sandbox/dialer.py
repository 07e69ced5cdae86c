"""A helper program inside the session's network that opens sockets there and passes them out.

A socket belongs to the network namespace that it was created in, whatever process holds it. Only
the fastest parts of the standard library are imported here.
"""

from __future__ import annotations

import _socket
import sys


def main() -> None:
    """Answer each byte on standard input, a socket family, with a new socket; exit at its end."""
    line = _socket.socket(fileno=0)
    while asked := line.recv(1):
        made = _socket.socket(asked[0], _socket.SOCK_STREAM)
        rights = made.fileno().to_bytes(4, sys.byteorder)
        line.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        made.close()


if __name__ == "__main__":
    main()
