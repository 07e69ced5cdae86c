"""Decoding server-sent events and JSON lines from bytes that arrive in chunks of any size."""

from __future__ import annotations

from typing import NamedTuple, Protocol

BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event: its name (empty if it has none) and its data."""

    name: str
    data: bytes


class StreamFraming(Protocol):
    """A decoder that cuts a byte stream into events."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete."""
        ...

    def finish(self) -> list[SseEvent]:
        """Return the events that the end of the stream completes."""
        ...


class JsonLinesDecoder:
    """A decoder of JSON lines: one event for each line that is not blank."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the lines that these bytes complete."""
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [SseEvent("", line) for line in lines if line.strip()]

    def finish(self) -> list[SseEvent]:
        """Return the last line, if nothing ended it."""
        return self.feed(b"\n")


class SseDecoder:
    """A decoder of server-sent events; lines end with LF, CRLF or CR."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._after_cr = False
        self._first = True
        self._name = ""
        self._lines: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        events: list[SseEvent] = []
        lines = chunk.splitlines()
        whole = chunk.endswith((b"\r", b"\n"))
        rest = b"" if whole else lines.pop()
        for line in lines:
            self._take_line(line, events)
        if rest:
            self._partial.append(rest)
        return events

    def finish(self) -> list[SseEvent]:
        """Return the event that the end of the stream cut from its empty line, if any."""
        events: list[SseEvent] = []
        if self._partial:
            self._take_line(b"", events)
        self._take_line(b"", events)
        return events

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._partial:
            line = b"".join((*self._partial, line))
            self._partial.clear()
        if self._first:
            line, self._first = line.removeprefix(BOM), False
        if line:
            self._parse_field(line)
            return
        if self._lines:
            events.append(SseEvent(self._name, b"\n".join(self._lines)))
            self._lines = []
        self._name = ""

    def _parse_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._lines.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
