from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.providers.http.sse import SseDecoder, SseEvent

STREAM = (
    '\ufeffevent: message_start\ndata: {"a":"ünï 𝄞"}\n\n'
    ": a comment\n\n"
    "id: 7\nretry: 10\nevent:ping\ndata:{}\n\n"
    "data: one\ndata:\ndata: three\n\n"
    "data\n\n"
    "event: named but empty\n\n"
    "data: last\n\n"
).encode()
EVENTS = [
    SseEvent("message_start", '{"a":"ünï 𝄞"}'.encode()),
    SseEvent("ping", b"{}"),
    SseEvent("", b"one\n\nthree"),
    SseEvent("", b""),
    SseEvent("", b"last"),
]


def parse(*chunks: bytes) -> list[SseEvent]:
    frames = SseDecoder()
    found = [event for chunk in chunks for event in frames.feed(chunk)]
    return found + frames.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_gives_the_same_events(end: bytes):
    assert parse(STREAM.replace(b"\n", end)) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_in_two_portions_cut_anywhere_gives_the_same_events(end: bytes):
    stream = STREAM.replace(b"\n", end)
    for cut in range(len(stream) + 1):
        assert parse(stream[:cut], stream[cut:]) == EVENTS, cut


@given(st.lists(st.integers(1, 9), min_size=1), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_portions_of_any_size_give_the_same_events(sizes: list[int], end: bytes):
    stream, chunks, at = STREAM.replace(b"\n", end), list[bytes](), 0
    while at < len(stream):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(stream[at : at + size])
        at += size
    assert parse(*chunks) == EVENTS


def test_a_last_event_without_its_empty_line_is_given_at_the_end():
    assert parse(b"data: [DONE]") == [SseEvent("", b"[DONE]")]
    assert parse(b"data: a\n") == [SseEvent("", b"a")]
    assert parse(b"data: a\n\n") == [SseEvent("", b"a")]


def test_an_event_of_many_megabytes_arrives_in_small_portions():
    body = b"x" * (8 << 20)
    stream = b"data: " + body + b"\n\n"
    chunks = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]
    assert parse(*chunks) == [SseEvent("", body)]
