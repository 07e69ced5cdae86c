"""Wake-up signals between processes: a socket that makes a mailbox's owner look for mail.

It is a socket in the mailbox's own folder and nothing is said through it but a password, so it
opens no port, and even a stranger who rings brings about nothing but a look into the box.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex
from struct import calcsize, unpack

import anyio
from anyio.abc import SocketAttribute, SocketStream

SOCKET_NAME = "bell"
TOKEN_FILE = "bell.token"
WAKEUP_TIMEOUT_SECONDS = 2.0
"""Seconds that either side waits for the other."""
ACKNOWLEDGEMENT = b"heard\n"
PEER_GONE_ERRORS = (OSError, anyio.EndOfStream, anyio.BrokenResourceError)
"""Errors raised when the other side is gone."""


async def listen_for_wakeups(folder: Path, rung: Callable[[], None]) -> None:
    """Accept wake-ups until cancelled; does nothing where no socket can be created."""
    token = token_hex(16).encode() + b"\n"
    with suppress(OSError), _short_folder_path(folder) as at:
        _write_token(folder / TOKEN_FILE, token)
        async with await anyio.create_unix_listener(f"{at}/{SOCKET_NAME}", mode=0o600) as listener:
            try:
                await listener.serve(lambda stream: _handle_wakeup(stream, token, rung=rung))
            finally:
                (folder / SOCKET_NAME).unlink(missing_ok=True)
                (folder / TOKEN_FILE).unlink(missing_ok=True)


async def send_wakeup(folder: Path) -> bool:
    """Wake the owner of a mailbox; returns whether anybody answered."""
    with suppress(*PEER_GONE_ERRORS), _short_folder_path(folder) as at:
        token = (folder / TOKEN_FILE).read_bytes()
        with anyio.move_on_after(WAKEUP_TIMEOUT_SECONDS):
            async with await anyio.connect_unix(f"{at}/{SOCKET_NAME}") as stream:
                await stream.send(token)
                return await stream.receive(len(ACKNOWLEDGEMENT)) == ACKNOWLEDGEMENT
    return False


async def _handle_wakeup(stream: SocketStream, token: bytes, *, rung: Callable[[], None]) -> None:
    """Answer a wake-up from another process of ours that knows the token."""
    async with stream:
        with suppress(*PEER_GONE_ERRORS), anyio.move_on_after(WAKEUP_TIMEOUT_SECONDS):
            if _is_own_process(stream) and compare_digest(
                await _receive_line(stream, len(token)), token
            ):
                rung()
                await stream.send(ACKNOWLEDGEMENT)


async def _receive_line(stream: SocketStream, size: int) -> bytes:
    """Receive a line of limited length from a wake-up connection."""
    text = b""
    while len(text) < size and not text.endswith(b"\n"):
        text += await stream.receive(size - len(text))
    return text


def _is_own_process(stream: SocketStream) -> bool:
    """Return whether the sender of a wake-up runs as the same user, where the system tells."""
    asked = getattr(socket, "SO_PEERCRED", None)
    if asked is None:
        return True
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no database is near
    _, user, _ = unpack("3i", raw.getsockopt(socket.SOL_SOCKET, asked, calcsize("3i")))
    return user == os.getuid()


def _write_token(path: Path, token: bytes) -> None:
    """Write the wake-up token to a file that only its owner can read."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(token)


@contextmanager
def _short_folder_path(folder: Path) -> Generator[str]:
    """Return a short path to a folder, since socket names are limited to about 100 bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{fd}"
        yield short if os.path.isdir(short) else str(folder)
    finally:
        os.close(fd)
