"""Faults: each does to the bytes what its name says, to the requests that its rule names."""

from __future__ import annotations

import gzip
import http.client
import socket

import msgspec
import pytest

import travois_lab as lab
from tests.lab.client import OPUS, Client, Json, block, user
from travois_lab.http import Cut, Pause, Request
from travois_lab.routes import answer
from travois_lab.world import Options, World

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
SCRIPT = [{"say": "déjà vu", "repeat": True}]


def body(**fields: object) -> bytes:
    ask = {"model": OPUS, "max_tokens": 9, "messages": [user(block(5))], "stream": True}
    return msgspec.json.encode({**ask, **fields})


def steps(do: object, **match: object) -> tuple[object, ...]:
    options = msgspec.convert({"faults": [{"match": match, "do": do}]}, Options)
    world = World(SCRIPT, options)
    return answer(world, Request("POST", "/v1/messages", {}, HEADERS, body())).steps


def sent(do: object, **match: object) -> bytes:
    return b"".join(step for step in steps(do, **match) if isinstance(step, bytes))


def names(raw: bytes) -> list[str]:
    lines = raw.decode().splitlines()
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


WHOLE = [
    "message_start",
    "ping",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        ("truncate", WHOLE[:3]),
        ({"omit": {"event": "ping"}}, [*WHOLE[:1], *WHOLE[2:]]),
        ({"duplicate": {"event": "message_start"}}, [WHOLE[0], *WHOLE]),
        ("reorder", [*WHOLE[:3], WHOLE[4], WHOLE[3], *WHOLE[5:]]),
        ("unknown_event", [*WHOLE[:3], "lab_unknown", *WHOLE[3:]]),
        ({"ping_flood": {"n": 3}}, [*WHOLE[:3], *["ping"] * 3, *WHOLE[3:]]),
        ({"sse_error": {"type": "api_error"}}, [*WHOLE[:3], "error"]),
        ("no_done", WHOLE[:-1]),
    ],
    ids=str,
)
def test_what_becomes_of_the_events(do: object, expected: list[str]) -> None:
    assert names(sent(do, after={"events": 3})) == expected


def test_f5_an_error_event_names_its_type() -> None:
    raw = sent({"sse_error": {"type": "overloaded_error", "message": "busy"}}, after={"events": 4})
    last = msgspec.json.decode(raw.rpartition(b"data: ")[2])
    assert last["error"] == {"type": "overloaded_error", "message": "busy"}


def test_f7_a_stream_can_end_without_its_last_event() -> None:
    assert names(sent("no_done"))[-1] == "message_delta"


def test_a_cut_after_so_many_bytes_is_exact() -> None:
    row = steps("disconnect", after={"bytes": 100})
    assert (len(row[0]), row[1]) == (100, Cut("close"))


def test_a_reset_is_not_a_polite_end() -> None:
    assert steps("reset", after={"events": 2})[-1] == Cut("reset")


def test_f18_a_stall_waits_in_the_middle() -> None:
    head, wait, tail = steps({"stall": {"s": 30}}, after={"events": 2})
    assert (names(head), wait, names(tail)) == (WHOLE[:2], Pause(30.0), WHOLE[2:])


def test_a_wait_before_the_fault() -> None:
    assert steps("truncate", after={"events": 1, "ms": 20})[-1] == Pause(0.02)


def test_a_drip_comes_in_pieces_of_its_size() -> None:
    row = [step for step in steps({"drip": {"bytes": 10, "ms": 1}}) if isinstance(step, bytes)]
    assert {len(step) for step in row[:-1]} == {10} and names(b"".join(row)) == WHOLE


def test_utf8_is_split_within_a_character() -> None:
    pieces = [step for step in steps("split_utf8") if isinstance(step, bytes)]
    broken = [piece for piece in pieces if piece.decode(errors="ignore").encode() != piece]
    assert broken and "déjà vu" in b"".join(pieces).decode()


def test_line_ends_can_be_crlf() -> None:
    raw = sent("crlf")
    assert raw.count(b"\r\n") == raw.count(b"\n") > 0


def test_a_broken_event_is_not_json() -> None:
    raw = sent("bad_json_event", after={"events": 2})
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(lines[2])
    assert len(lines) == len(WHOLE)


def test_a_giant_event_is_as_large_as_asked() -> None:
    assert len(sent({"giant_event": {"bytes": 1_000_000}})) > 1_000_000


@pytest.mark.parametrize(
    ("match", "hit"),
    [
        ({"n": 2}, [2]),
        ({"n": [1, 3]}, [1, 3]),
        ({"every": 2}, [2, 4]),
        ({"times": 2}, [1, 2]),
        ({"model": "claude-opus-5-5"}, [1, 2, 3, 4]),
        ({"model": "other"}, []),
        ({"path": "/chat"}, []),
        ({"p": 0.0}, []),
    ],
    ids=str,
)
def test_which_requests_a_rule_befalls(match: Json, hit: list[int]) -> None:
    lab = Client(faults=[{"match": match, "do": {"http": {"status": 503}}}])
    statuses = [lab.ask([user(block(5))]).status for _ in range(4)]
    assert [i + 1 for i, status in enumerate(statuses) if status == 503] == hit


def test_f3_f4_an_http_fault_has_the_headers_it_was_given() -> None:
    fault = {"status": 503, "headers": {"x-should-retry": "false"}, "message": "stop"}
    lab = Client(faults=[{"do": {"http": fault}}])
    lab.ask([user(block(5))])
    assert (lab.status, lab.headers["x-should-retry"], lab.error()) == (503, "false", "stop")


def test_f15_a_proxy_s_page_is_html() -> None:
    lab = Client(faults=[{"do": "html_413"}])
    exchange = lab.ask([user(block(5))])
    assert (exchange.status, lab.raw.startswith(b"<html>")) == (413, True)


def fetch(api: lab.Api, raw: bytes) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=120)
    try:
        connection.request("POST", "/v1/messages", raw, HEADERS)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_a_compressed_answer_is_whole() -> None:
    with lab.server(SCRIPT, faults=[{"do": "gzip_response"}]) as api:
        response, raw = fetch(api, body(stream=False))
    assert response.headers["content-encoding"] == "gzip"
    assert msgspec.json.decode(gzip.decompress(raw))["content"][0]["text"] == "déjà vu"


@pytest.mark.parametrize("do", ["wrong_content_length", "disconnect"])
def test_a_body_shorter_than_claimed_is_noticed_by_the_client(do: str) -> None:
    rule = {"match": {"after": {"bytes": 20}}, "do": do}
    with lab.server(SCRIPT, faults=[rule]) as api, pytest.raises(http.client.IncompleteRead):
        fetch(api, body(stream=False))


def test_a_reset_reaches_the_client_as_one() -> None:
    gone = (ConnectionResetError, http.client.IncompleteRead)
    with lab.server(SCRIPT, faults=[{"do": "reset"}]) as api, pytest.raises(gone):
        fetch(api, body())


def test_the_lab_survives_clients_that_leave() -> None:
    with lab.server(SCRIPT) as api:
        for piece in (
            b"",
            b"POST /v1/mess",
            b"nonsense\r\n\r\n",
            b"POST /v1/messages HTTP/1.1\r\n",
        ):
            with socket.create_connection(("127.0.0.1", api.port)) as client:
                client.sendall(piece)
        response, _ = fetch(api, body())
        assert response.status == 200
