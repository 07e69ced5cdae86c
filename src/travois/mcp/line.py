"""Talking with a server that is a program: a message on each line, and nothing without bounds."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from travois.files.openat import make_folders
from travois.permissions.secrets import Secrets
from travois.process.talk import Talk

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

LONGEST = 10 << 20
"""How many bytes one message may have."""
VALUES = 150_000
"""How many values one message may hold: each takes many times the room that its text does."""
STRING = re.compile(rb'"(?>[^"\\]++|\\.)*+"', re.DOTALL)
"""A string of JSON; without going back, which would take more memory than the message."""
LOGGED = 1 << 20
"""How many bytes of what one run of a server says on standard error are kept."""


class Overlong(Exception):
    """A server does not stop to speak: it is not heard any further."""


@asynccontextmanager
async def streams(
    start: Callable[[], Talk], *, ended: anyio.Event
) -> AsyncGenerator[TransportStreams]:
    """A program as the SDK wants it; `ended` is set when it says no more."""
    from mcp.shared.message import SessionMessage

    bring, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, take = anyio.create_memory_object_stream[SessionMessage](0)
    talk = start()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, talk, bring, ended)
            group.start_soon(_say, talk, take, ended)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        for stream in (bring, read, write, take):
            stream.close()
        with anyio.CancelScope(shield=True):
            await talk.aclose()


async def _hear(
    talk: Talk, bring: MemoryObjectSendStream[SessionMessage | Exception], ended: anyio.Event
) -> None:
    """Pass messages on; what is none is noise, and no reason to stop."""
    try:
        async with aclosing(_messages(talk)) as messages:
            async for message in messages:
                await bring.send(message)
    except (OSError, Overlong, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        ended.set()
        bring.close()


def _message(line: bytes) -> SessionMessage | None:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _messages(talk: Talk) -> AsyncGenerator[SessionMessage]:
    rest = bytearray()
    while data := await talk.receive():
        first, *more = data.split(b"\n")
        rest += first
        for part in more:
            _refuse_many_values(bytes(rest))
            if (message := _message(bytes(rest))) is not None:
                yield message
            rest = bytearray(part)
        if len(rest) > LONGEST:
            raise Overlong


def _refuse_many_values(line: bytes) -> None:
    """Raise `Overlong` if a message would take far more memory than its text does."""
    if _count_values(line, 0, len(line)) <= VALUES:
        return
    count = at = 0
    for string in STRING.finditer(line):
        count += _count_values(line, at, string.start())
        at = string.end()
        if count > VALUES:
            raise Overlong
    if count + _count_values(line, at, len(line)) > VALUES:
        raise Overlong


def _count_values(text: bytes, start: int, end: int) -> int:
    return sum(text.count(sign, start, end) for sign in (b",", b"[", b"{"))


async def _say(
    talk: Talk, take: MemoryObjectReceiveStream[SessionMessage], ended: anyio.Event
) -> None:
    try:
        async for each in take:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await talk.send(f"{text}\n".encode(errors="replace"))
    except OSError:
        ended.set()


class Journal:
    """What a server says on standard error: the file of its last runs, without our secrets."""

    def __init__(self, path: Path, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        self._left = LOGGED

    def add(self, data: bytes) -> None:
        """Write more, up to a limit; a disk that is full is no reason to stop."""
        text = self._secrets.redacted_bytes(data)[: self._left]
        self._left -= len(text)
        if not text:
            return
        try:
            make_folders(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > LOGGED:
                self._path.replace(self._path.with_suffix(".old.log"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
        except OSError:
            return
        with open(file, "ab", buffering=0) as log:
            log.write(text)
