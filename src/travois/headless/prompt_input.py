"""Prompts of headless runs: arguments, standard input or JSON lines."""

from __future__ import annotations

import os
import stat
import sys
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from select import select

import anyio
import msgspec

from travois.core.content import Media, Text, TextOrMedia
from travois.core.errors import UserError
from travois.headless.control.messages import InputLine
from travois.ports.world import Blobs

MAX_STDIN_BYTES = 10_000_000
"""Bytes accepted from standard input."""
PIPE_TIMEOUT = 3.0
"""Seconds to wait for a silent pipe if there is also a prompt argument."""


class MediaSource(msgspec.Struct):
    """The bytes of an image or document."""

    type: str = ""
    media_type: str = ""
    data: str = ""


class InputPart(msgspec.Struct):
    """A content block of an input message."""

    type: str
    text: str = ""
    source: MediaSource = msgspec.field(default_factory=MediaSource)


class InputMessage(msgspec.Struct):
    """The message of an input line."""

    content: str | list[InputPart] = ""


class UnreadableLine(msgspec.Struct):
    """A line that cannot be parsed, and the request id if it has one."""

    why: str
    request_id: str = ""


class LineRequestId(msgspec.Struct):
    """The request id of a malformed line."""

    request_id: str = ""


EMPTY_LINE = InputLine("user")
"""A message without content."""


def read_text_prompt(words: str, *, optional: bool = False) -> tuple[Text, ...]:
    """Return the prompt: piped text, then the argument, which alone may hold commands."""
    piped = _read_piped(waiting=not words and not optional)
    parts = tuple(Text(part) for part in (piped.strip("\n"), words) if part.strip())
    if not parts and not optional:
        raise UserError(
            "There is nothing to do",
            why="no prompt was given and standard input is empty",
            fix='For example: travois -p "explain this repository"',
        )
    return parts


def _read_piped(*, waiting: bool) -> str:
    """Read a piped prompt; do not wait for a terminal or a pipe without a writer."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    fd = sys.stdin.fileno()
    if stat.S_ISCHR(os.fstat(fd).st_mode) or not (waiting or _wait_for_pipe(fd)):
        return ""
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise UserError(
            "Standard input is too long",
            why=f"more than {MAX_STDIN_BYTES // 1_000_000} MB",
            fix="Put it in a file and name the file in the prompt.",
        )
    return data.decode("utf-8", "replace")


def _wait_for_pipe(fd: int) -> bool:
    """Wait for a prompt's pipe to become readable; warn and continue if it stays silent."""
    if select([fd], [], [], PIPE_TIMEOUT)[0]:
        return True
    sys.stderr.write(
        f"travois: no data on standard input for {PIPE_TIMEOUT:g} s; continuing without it\n"
    )
    return False


async def read_json_lines() -> AsyncGenerator[InputLine | UnreadableLine]:
    """Yield the JSON lines of prompts on standard input."""
    number = 0
    async with aclosing(read_raw_lines()) as found:
        async for line in found:
            number += 1
            if line.strip():
                yield _parse_line(line, number)


async def read_raw_lines() -> AsyncGenerator[bytes]:
    """Yield the raw lines of prompts on standard input, including empty ones."""
    pending, fd = b"", sys.stdin.fileno()
    while True:
        with suppress(PermissionError):  # a file is not waited for: it is always ready
            await anyio.wait_readable(fd)
        chunk = os.read(fd, 1 << 16)
        whole, _, pending = (pending + chunk).rpartition(b"\n")
        if not chunk:
            whole, pending = pending, b""
        for line in whole.split(b"\n"):
            yield line
        if not chunk:
            return


def parse_message_content(line: InputLine, blobs: Blobs) -> tuple[TextOrMedia, ...]:
    """Parse an input message into content blocks."""
    try:
        said = msgspec.json.decode(line.message, type=InputMessage).content
    except msgspec.DecodeError as error:
        raise UserError("Invalid input message", why=str(error)) from None
    if isinstance(said, str):
        return (Text(said),) if said else ()
    return tuple(_content_part(part, blobs) for part in said)


def _content_part(part: InputPart, blobs: Blobs) -> TextOrMedia:
    """Convert a content block of a JSON input message to text or stored media."""
    if part.type == "text":
        return Text(part.text)
    if part.type in ("image", "document") and part.source.type == "base64":
        data = b64decode(part.source.data)
        kind = "image" if part.type == "image" else "document"
        return Media(kind, part.source.media_type, blobs.put(data), len(data))
    raise UserError(
        f"An input message has an unsupported block: {part.type!r}",
        fix="Send text, or an image or document with a base64 source.",
    )


def _parse_line(data: bytes, number: int) -> InputLine | UnreadableLine:
    """Parse a line of prompt input; keep its request ID if it is malformed."""
    try:
        return msgspec.json.decode(data.decode(), type=InputLine)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"Line {number} of standard input is not a message: {error}"
    try:
        return UnreadableLine(why, msgspec.json.decode(data, type=LineRequestId).request_id)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return UnreadableLine(why)
