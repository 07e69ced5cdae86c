"""Runs in the network of a session: opens sockets there and passes them out.

A socket belongs to the network that it was made in, whoever holds it. Only the standard library is
to be had here, and only its quickest parts.
"""

from __future__ import annotations

import _socket
import sys


def main() -> None:
    """Answer each byte on standard input, a socket family, by a socket; end with the input."""
    line = _socket.socket(fileno=0)
    while asked := line.recv(1):
        made = _socket.socket(asked[0], _socket.SOCK_STREAM)
        rights = made.fileno().to_bytes(4, sys.byteorder)
        line.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        made.close()


if __name__ == "__main__":
    main()
