"""A model behind HTTP: one reply or one problem, whatever the server does."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import msgspec
import pytest

from tests.providers.raw import Peer, Server, answer, chunks, serve
from travois import __version__
from travois.core.content import Text
from travois.core.models import ApiProtocol, ModelCard, Usage
from travois.providers.catalog import ModelEndpoint
from travois.providers.client import MAX_ERROR_BYTES, HttpModel
from travois.providers.http.client import DirectTransport, Timeouts, Transport
from travois.providers.http.proxy import ProxyTransport
from travois.providers.replies import ApiError, Reply, ReplyBegan, StreamDelta
from travois.providers.request import Request

Make = Callable[[Timeouts], Transport]
Talk = Callable[[Peer], None]
CALM = Timeouts(connect=10.0, first_byte=10.0, idle=10.0)
REQUEST = Request(
    path="/v1/messages",
    headers=(("content-type", "application/json"), ("anthropic-version", "2026-10-21")),
    body=b'{"model":"m"}',
    pieces=1,
    chain="",
    digest="",
)


@pytest.fixture(params=[DirectTransport, ProxyTransport], ids=["direct", "proxied"])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


def event(name: str, **members: object) -> bytes:
    body = msgspec.json.encode({"type": name, **members})
    return b"event: " + name.encode() + b"\ndata: " + body + b"\n\n"


START = event(
    "message_start",
    message={"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 7, "output_tokens": 1}},
)
WORDS = (
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Grüße"}),
    event("content_block_stop", index=0),
)
CALL = (
    event(
        "content_block_start",
        index=1,
        content_block={"type": "tool_use", "id": "t1", "name": "Bash", "input": {}},
    ),
    event(
        "content_block_delta",
        index=1,
        delta={"type": "input_json_delta", "partial_json": '{"command":"rm -rf x'},
    ),
)
END = (
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
    event("message_stop"),
)
WHOLE = (START, *WORDS, *END)
SAID = Reply((Text("Grüße"),), stop="end", usage=Usage(input=7, output=3), id="msg_1", model="m-1")
REPLY = msgspec.structs.replace(SAID, request="req_7")
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_7\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


class Outcome(msgspec.Struct):
    """What came of one request: deltas, and a reply or a problem."""

    deltas: list[StreamDelta]
    reply: Reply | None = None
    problem: ApiError | None = None

    @property
    def told(self) -> tuple[str, str, int, bool, str]:
        assert self.problem is not None
        p = self.problem
        return p.kind, p.message, p.status, p.retry, p.request


async def hear(model: HttpModel) -> Outcome:
    outcome = Outcome([])
    try:
        async with model.stream(REQUEST) as stream:
            async for said in stream:
                if isinstance(said, Reply):
                    outcome.reply = said
                else:
                    outcome.deltas.append(said)
    except ApiError as problem:
        outcome.problem = problem
    return outcome


def model(
    server: Server,
    transport: Transport,
    *,
    protocol: ApiProtocol = "anthropic",
    silence: float = 60.0,
) -> HttpModel:
    card = ModelCard(provider="p", id="m", protocol=protocol)
    where = ModelEndpoint(server.url, (("x-api-key", "k"),), "KEY")
    return HttpModel(card, where, transport, silence=silence)


def ask(
    make: Make,
    talk: Talk,
    *,
    limits: Timeouts = CALM,
    protocol: ApiProtocol = "anthropic",
    silence: float = 60.0,
) -> Outcome:
    async def main(server: Server) -> Outcome:
        transport = make(limits)
        outcome = await hear(model(server, transport, protocol=protocol, silence=silence))
        await transport.aclose()
        return outcome

    with serve(talk) as server:
        return anyio.run(main, server)


def saying(*parts: bytes, then: Callable[[Peer], None] | None = None) -> Talk:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(*parts)
        if then:
            then(peer)

    return talk


# --- good replies ---------------------------------------------------------------------------------


def test_a_stream_becomes_deltas_and_then_one_reply(make: Make) -> None:
    outcome = ask(make, saying(HEAD, *map(chunks, WHOLE), b"0\r\n\r\n"))
    assert outcome.reply == REPLY
    assert outcome.deltas[0] == ReplyBegan("msg_1", "m-1", Usage(input=7, output=1))
    assert outcome.problem is None


def test_a_stream_cut_into_single_bytes_is_the_same_reply(make: Make) -> None:
    body = b"".join(WHOLE)
    parts = (chunks(body[n : n + 1]) for n in range(len(body)))
    assert ask(make, saying(HEAD + b"".join(parts) + b"0\r\n\r\n")).reply == REPLY


def test_the_second_request_takes_the_connection_of_the_first(make: Make) -> None:
    said = HEAD + chunks(*WHOLE) + b"0\r\n\r\n"

    def talk(peer: Peer) -> None:
        while peer.request():
            peer.say(said)

    async def main(server: Server) -> list[Reply | None]:
        transport = make(CALM)
        replies = [(await hear(model(server, transport))).reply for _ in range(3)]
        await transport.aclose()
        return replies

    with serve(talk) as server:
        assert (anyio.run(main, server), server.connections) == ([REPLY] * 3, 1)


def test_what_is_sent_asks_for_plain_bytes_and_says_who_we_are(make: Make) -> None:
    with serve(saying(HEAD, chunks(*WHOLE), b"0\r\n\r\n")) as server:

        async def main() -> None:
            transport = make(CALM)
            await hear(model(server, transport))
            await transport.aclose()

        anyio.run(main)
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().lower().split("\r\n")
    assert (first, body) == ("post /v1/messages http/1.1", REQUEST.body)
    sent = [line for line in lines if not line.startswith(("accept:", "connection:"))]
    assert sorted(sent) == [
        "accept-encoding: identity",
        "anthropic-version: 2026-10-21",
        f"content-length: {len(REQUEST.body)}",
        "content-type: application/json",
        f"host: 127.0.0.1:{server.port}",
        f"user-agent: travois/{__version__}",
        "x-api-key: k",
    ]


def test_a_gateway_that_does_not_stream_is_understood(make: Make) -> None:
    message = {
        "id": "msg_1",
        "model": "m-1",
        "content": [{"type": "text", "text": "Grüße"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    body = msgspec.json.encode(message)
    assert ask(make, saying(answer(body, "content-type: application/json"))).reply == SAID


def reset_later(peer: Peer) -> None:
    threading.Event().wait(0.2)
    peer.reset()


BREAKS: dict[str, Talk] = {
    "the connection breaks": saying(HEAD, chunks(*WHOLE)),
    "the server resets": saying(HEAD, chunks(*WHOLE), then=reset_later),
    "the end of the body is garbage": saying(HEAD, chunks(*WHOLE), b"zzz\r\n"),
    "the server falls silent": saying(HEAD, chunks(*WHOLE), then=Peer.stay),
}


@pytest.mark.parametrize("case", BREAKS)
def test_a_whole_reply_counts_whatever_happens_then(make: Make, case: str) -> None:
    assert ask(make, BREAKS[case], limits=CALM).reply == REPLY


# --- half replies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("events", range(len(WHOLE)))
@pytest.mark.parametrize("ending", ["cut", "ended"])
def test_a_stream_that_ends_early_is_a_problem_and_no_reply(
    make: Make, events: int, ending: str
) -> None:
    last = b"0\r\n\r\n" if ending == "ended" else b""
    outcome = ask(make, saying(HEAD, *(chunks(said) for said in WHOLE[:events]), last))
    assert outcome.reply is None
    kind, _, status, retry, request = outcome.told
    assert (kind, status, retry, request) == (
        "garbled" if ending == "ended" else "network",
        0,
        True,
        "req_7",
    )


def test_half_a_tool_call_never_becomes_a_reply(make: Make) -> None:
    outcome = ask(make, saying(HEAD, chunks(START, *WORDS, *CALL), b"0\r\n\r\n"))
    assert outcome.reply is None
    assert outcome.told[0] == "garbled"


def test_an_error_inside_the_stream_is_the_problem_with_the_request_id(make: Make) -> None:
    error = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    outcome = ask(make, saying(HEAD, chunks(START, *WORDS, error), b"0\r\n\r\n"))
    assert outcome.reply is None
    assert outcome.told == ("overloaded", "Overloaded", 0, True, "req_7")


def test_silence_between_events_is_a_timeout(make: Make) -> None:
    talk = saying(HEAD, chunks(START), then=Peer.stay)
    outcome = ask(make, talk, limits=Timeouts(first_byte=10.0, idle=0.1))
    assert outcome.told == ("timeout", "no data from the server for 0.1 s", 0, True, "req_7")


def test_signs_of_life_alone_are_not_enough_for_ever(make: Make) -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(HEAD, chunks(START))
        while True:
            peer.say(chunks(b": still here\n\n", event("ping")))
            threading.Event().wait(0.01)

    told = "the server sent no part of a reply for 0.1 s"
    assert ask(make, talk, silence=0.1).told == ("timeout", told, 0, True, "req_7")


# --- refusals -------------------------------------------------------------------------------------

RATE = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}'


def test_any_other_status_is_a_problem_with_all_that_the_server_told(make: Make) -> None:
    headers = (
        "content-type: application/json",
        "retry-after: 7",
        "request-id: req_9",
        "anthropic-ratelimit-requests-remaining: 0",
    )
    outcome = ask(make, saying(answer(RATE, *headers, status="429 Too Many Requests")))
    assert outcome.told == ("rate", "Slow down", 429, True, "req_9")
    assert outcome.problem is not None and outcome.problem.wait == 7.0


def test_the_request_id_of_other_providers_counts_too(make: Make) -> None:
    outcome = ask(make, saying(answer(RATE, "x-request-id: abc", status="429 Slow")))
    assert outcome.told[-1] == "abc"


def test_a_web_page_instead_of_an_error_is_made_readable(make: Make) -> None:
    page = b"<html><head><title>413 Request Entity Too Large</title></head><body>x</body></html>"
    outcome = ask(make, saying(answer(page, "content-type: text/html", status="413 Too Large")))
    assert outcome.told == ("large", "413 Request Entity Too Large", 413, False, "")


def test_a_web_page_instead_of_a_reply_asks_for_the_base_url(make: Make) -> None:
    outcome = ask(make, saying(answer(b"<html>hello", "content-type: text/html; charset=x")))
    told = "the server returned a web page; check the base URL"
    assert outcome.told == ("garbled", told, 0, False, "")


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_a_redirect_says_where_to_and_is_not_tried_again(make: Make, status: str) -> None:
    outcome = ask(make, saying(answer(b"", "location: https://new.test/v1", status=status)))
    told = "the server redirects to https://new.test/v1: set the base URL to that address"
    assert outcome.told == ("invalid", told, int(status[:3]), False, "")


def test_a_packed_reply_is_refused_in_words(make: Make) -> None:
    packed = answer(gzip.compress(b"".join(WHOLE)), "content-encoding: gzip")
    told = "the server sent an unrequested content encoding: gzip"
    assert ask(make, saying(packed)).told == ("garbled", told, 0, False, "")


def test_a_packed_error_keeps_its_status_and_shows_no_garbage(make: Make) -> None:
    packed = answer(gzip.compress(RATE), "content-encoding: gzip", status="529 Busy")
    assert ask(make, saying(packed)).told == (
        "overloaded",
        "(a body encoded with gzip)",
        529,
        True,
        "",
    )


ENDLESS = b"HTTP/1.1 500 Oops\r\nrequest-id: req_5\r\ncontent-length: 99999999\r\n\r\n"


def test_an_error_without_end_is_read_only_so_far(make: Make) -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(ENDLESS)
        while True:
            peer.say(b"x" * (MAX_ERROR_BYTES // 4))

    kind, message, status, _, request = ask(make, talk).told
    assert (kind, len(message), status, request) == ("server", 600, 500, "req_5")


@pytest.mark.parametrize("part", [b"", b"half an expl"])
@pytest.mark.parametrize("ending", ["stall", "cut"])
def test_an_error_whose_body_does_not_come_is_told_by_its_status(
    make: Make, part: bytes, ending: str
) -> None:
    talk = saying(ENDLESS, part, then=Peer.stay if ending == "stall" else None)
    words = part.decode() or "(the connection closed before the error message arrived)"
    outcome = ask(make, talk, limits=Timeouts(first_byte=0.1, idle=0.1), protocol="chat")
    assert outcome.told == ("server", words, 500, True, "req_5")


def test_a_server_that_is_not_there_is_a_network_problem(make: Make) -> None:
    with serve(Peer.stay) as server:
        pass
    outcome = anyio.run(hear, model(server, make(CALM)))
    told = f"no server is listening on 127.0.0.1:{server.port} (connection refused). Start it."
    assert outcome.told == ("network", told, 0, False, "")


# --- leaving early --------------------------------------------------------------------------------


def test_leaving_the_block_hangs_up(make: Make) -> None:
    async def main(server: Server) -> bool:
        transport = make(CALM)
        async with model(server, transport).stream(REQUEST) as stream:
            async for _ in stream:
                break
        gone = await anyio.to_thread.run_sync(server.deserted)
        await transport.aclose()
        return gone

    with serve(saying(HEAD, chunks(START), then=Peer.stay)) as server:
        assert anyio.run(main, server)


def test_several_requests_of_one_model_do_not_mix(make: Make) -> None:
    together = threading.Barrier(3)

    def talk(peer: Peer) -> None:
        peer.request()
        together.wait(300)
        for said in WHOLE:
            peer.say((HEAD if said is START else b"") + chunks(said))
            threading.Event().wait(0.002)
        peer.say(b"0\r\n\r\n")

    async def main(server: Server) -> list[Reply | None]:
        transport, replies = make(CALM), []
        shared = model(server, transport)

        async def one() -> None:
            replies.append((await hear(shared)).reply)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one)
        await transport.aclose()
        return replies

    with serve(talk) as server:
        assert anyio.run(main, server) == [REPLY] * 3
