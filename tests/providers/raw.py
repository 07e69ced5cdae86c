"""Servers made of plain sockets and threads, in which every byte is under a test's control."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 180.0
CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""Signed by itself, for `localhost` and `api.example.test`; the key in it opens nothing else."""


def answer(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """A response with a length."""
    lines = (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + body


def chunked(*parts: bytes) -> bytes:
    """A response in chunks, whole."""
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks(*parts) + b"0\r\n\r\n"


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


class Peer:
    """The server's end of one connection; `number` counts connections from nought."""

    def __init__(self, sock: socket.socket, number: int, requests: list[bytes]) -> None:
        self.sock = sock
        self.number = number
        self.held = b""
        self._requests = requests

    def head(self) -> bytes:
        """The head of the next request; empty if the client hung up instead."""
        while b"\r\n\r\n" not in self.held:
            if not self._more():
                return b""
        head, _, self.held = self.held.partition(b"\r\n\r\n")
        return head

    def request(self) -> bytes:
        """The next request, head and body; empty if the client hung up instead."""
        head = self.head()
        size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if not head:
            return b""
        whole = head + b"\r\n\r\n" + self.read(int(size[1]) if size else 0)
        self._requests.append(whole)
        return whole

    def read(self, count: int, *, pause: float = 0.0) -> bytes:
        """So many bytes of a body, at leisure."""
        while len(self.held) < count:
            threading.Event().wait(pause)
            if not self._more():
                break
        body, self.held = self.held[:count], self.held[count:]
        return body

    def say(self, *parts: bytes) -> None:
        for part in parts:
            self.sock.sendall(part)

    def stay(self) -> None:
        """Say nothing more, and read what comes, until the client hangs up."""
        while self._more():
            self.held = b""

    def reset(self) -> None:
        """Hang up as rudely as TCP allows."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _more(self) -> bool:
        data = self.sock.recv(1 << 20)
        self.held += data
        return bool(data)


class Server:
    """A running server: what came, and who is still connected."""

    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.requests: list[bytes] = []
        self.connections = 0
        self.peers: set[socket.socket] = set()
        self.errors: list[Exception] = []
        self._changed = threading.Condition()

    def deserted(self) -> bool:
        """Wait until every client has hung up; false if one never does."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.peers, timeout=PATIENCE)

    def note(self, sock: socket.socket, *, here: bool) -> None:
        with self._changed:
            (self.peers.add if here else self.peers.discard)(sock)
            self._changed.notify_all()


Talk = Callable[[Peer], None]


@contextmanager
def serve(talk: Talk, *, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Let each connection run `talk` in a thread of its own, for as long as the block runs."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.settimeout(0.02)
    server = Server(listener.getsockname()[1], "https" if tls else "http")
    over = threading.Event()
    loop = threading.Thread(target=_accept, args=(listener, server, talk, tls, over))
    loop.start()
    try:
        yield server
    finally:
        over.set()
        loop.join()
        listener.close()
    assert server.errors == []


def _accept(
    listener: socket.socket,
    server: Server,
    talk: Talk,
    tls: ssl.SSLContext | None,
    over: threading.Event,
) -> None:
    threads: list[threading.Thread] = []
    while not over.is_set():
        with suppress(TimeoutError):
            sock, _ = listener.accept()
            sock.settimeout(PATIENCE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.note(sock, here=True)
            number, server.connections = server.connections, server.connections + 1
            thread = threading.Thread(target=_talk, args=(sock, number, server, talk, tls))
            thread.start()
            threads.append(thread)
    for sock in list(server.peers):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


def _talk(
    sock: socket.socket, number: int, server: Server, talk: Talk, tls: ssl.SSLContext | None
) -> None:
    shown = sock
    try:
        shown = tls.wrap_socket(sock, server_side=True) if tls else sock
        talk(Peer(shown, number, server.requests))
    except OSError:
        pass  # the client hung up, which is its right
    except Exception as error:  # noqa: BLE001 - the test's own thread shall hear of it
        server.errors.append(error)
    finally:
        shown.close()
        server.note(sock, here=False)


def certified() -> ssl.SSLContext:
    """TLS for a server, with the certificate of the tests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def proxy(port: int, seen: list[bytes], *, refuse: bytes = b"") -> Talk:
    """A CONNECT proxy to whom every host is the server at this port."""

    def talk(peer: Peer) -> None:
        seen.append(peer.head())
        if refuse:
            return peer.say(refuse)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as onward:
            if seen[-1].startswith(b"CONNECT "):
                peer.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                onward.sendall(seen[-1] + b"\r\n\r\n" + peer.held)
            back = threading.Thread(target=_pump, args=(onward, peer.sock))
            back.start()
            _pump(peer.sock, onward)
            back.join()
        return None

    return talk


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
