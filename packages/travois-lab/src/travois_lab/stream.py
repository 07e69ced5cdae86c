"""Streams as rows of named events, before they are bytes on a wire."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois_lab.http import Cut, Pause, Step
from travois_lab.objects import Json
from travois_lab.talk import Pace


class Event(msgspec.Struct, frozen=True):
    """One event of a stream: its name for the fault rules, and its bytes on the wire."""

    name: str
    raw: bytes


Item = Event | Pause | Cut


def sse(name: str, value: Json) -> Event:
    """A named server-sent event."""
    return Event(name, b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value)))


def chunk(name: str, value: object) -> Event:
    """A server-sent event without a name on the wire."""
    return Event(name, b"data: %b\n\n" % msgspec.json.encode(value))


def line(name: str, value: object) -> Event:
    """One line of newline-delimited JSON."""
    return Event(name, msgspec.json.encode(value) + b"\n")


def cut(words: str, pace: Pace) -> list[str]:
    """A text in the pieces in which it is streamed."""
    step = pace.step
    return [words[i : i + step] for i in range(0, len(words), step)]


def paced(events: list[Event], pace: Pace) -> list[Item]:
    """Events with the waits between them."""
    if not pace.delay_ms:
        return list(events)
    wait = Pause(pace.delay_ms / 1000)
    return [item for event in events for item in (event, wait)]


def steps(items: Iterable[Item]) -> tuple[Step, ...]:
    """What to send: events between two pauses leave as one chunk."""
    done: list[Step] = []
    held: list[bytes] = []
    for item in items:
        if isinstance(item, Event):
            held.append(item.raw)
            continue
        if held:
            done.append(b"".join(held))
            held = []
        done.append(item)
    return (*done, b"".join(held)) if held else tuple(done)
