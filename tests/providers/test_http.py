"""One suite for both transports: what a server may do to us, and what we make of it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import h11
import pytest
from msgspec.structs import replace

from tests.providers.raw import CERTIFICATE, Peer, answer, certified, chunked, chunks, proxy, serve
from travois.core.errors import UserError
from travois.providers.http.client import DirectTransport, RequestHead, Timeouts, Transport
from travois.providers.http.proxy import ProxyTransport
from travois.providers.http.transport import create_transport, timeouts_for
from travois.providers.http.transport import find_proxy as chosen
from travois.providers.replies import ApiError

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CALM = Timeouts(connect=10.0, first_byte=10.0, idle=10.0)
BIG = b"x" * 3_000_000
HUGE = 20_000_000
"""More than the kernel takes off our hands at once."""
TRUSTED = {"SSL_CERT_FILE": str(CERTIFICATE)}

Make = Callable[..., Transport]
Said = tuple[int, bytes] | tuple[str, str, bool]


@pytest.fixture(params=[DirectTransport, ProxyTransport], ids=["direct", "proxied"])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


def run(
    made: Transport, url: str, *bodies: bytes, headers: tuple[tuple[str, str], ...] = ()
) -> list[Said]:
    """Post these bodies one after the other; what came of each."""

    async def main() -> list[Said]:
        said = [await attempt(made, url, body, headers) for body in bodies]
        await made.aclose()
        return said

    return anyio.run(main)


async def attempt(
    made: Transport, url: str, body: bytes, headers: tuple[tuple[str, str], ...] = ()
) -> Said:
    try:
        async with made.post(f"{url}/v1", headers=headers, body=body) as response:
            return response.status, b"".join([chunk async for chunk in response.chunks])
    except ApiError as problem:
        return problem.kind, problem.message, problem.retry


def saying(*parts: bytes) -> Callable[[Peer], None]:
    """Answer every request with these bytes, then hang up."""

    def talk(peer: Peer) -> None:
        if peer.request():
            peer.say(*parts)

    return talk


def kept(*answers: bytes) -> Callable[[Peer], None]:
    """Answer one request after the other on one connection, then wait for the client to go."""

    def talk(peer: Peer) -> None:
        for said in answers:
            if not peer.request():
                return
            peer.say(said)
        peer.stay()

    return talk


def once(make: Make, talk: Callable[[Peer], None], **waits: float) -> Said:
    limits = {"connect": 10.0, "first_byte": 10.0, "idle": 10.0, **waits}
    with serve(talk) as server:
        return run(make(Timeouts(**limits)), server.url, b"{}")[0]


# --- what is sent ---------------------------------------------------------------------------------


def test_a_request_leaves_with_its_length_and_headers_and_no_more_than_that() -> None:
    with serve(kept(answer(b"ok"))) as server:
        made = DirectTransport(CALM)
        run(made, f"{server.url}/base?x=1#part", b"{}", headers=(("x-api-key", "k"),))
        assert server.requests == [
            f"POST /base?x=1 HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n"
            "content-length: 2\r\nx-api-key: k\r\n\r\n{}".encode()
        ]


def test_a_large_body_arrives_whole(make: Make) -> None:
    with serve(kept(answer(b"ok"))) as server:
        assert run(make(CALM), server.url, BIG) == [(200, b"ok")]
        assert server.requests[0].partition(b"\r\n\r\n")[2] == BIG


def test_a_slow_upload_is_given_time_as_long_as_it_moves(make: Make) -> None:
    def talk(peer: Peer) -> None:
        peer.head()
        peer.read(HUGE, pause=0.02)
        peer.say(answer(b"ok"))

    with serve(talk) as server:
        limits = Timeouts(first_byte=10.0, idle=0.4)
        assert run(make(limits), server.url, b"x" * HUGE) == [(200, b"ok")]


def test_a_server_that_never_reads_is_a_timeout(make: Make) -> None:
    over = threading.Event()
    with serve(lambda _: over.wait() and None) as server:
        said = run(make(Timeouts(first_byte=0.2, idle=0.2)), server.url, b"x" * HUGE)
        over.set()
    assert said == [("timeout", "the server stopped reading the request", True)]


# --- what comes back ------------------------------------------------------------------------------


async def hear(made: Transport, url: str, size: int, heard: threading.Event) -> list[bytes]:
    """The chunks of an answer; the event is set with each of them."""
    seen: list[bytes] = []
    async with made.post(url, headers=(), body=b"x" * size) as response:
        async for chunk in response.chunks:
            seen.append(chunk)
            heard.set()
    await made.aclose()
    return seen


def test_chunks_come_as_they_are_sent(make: Make) -> None:
    heard = threading.Event()

    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(HEAD, chunks(b"one"))
        heard.wait(300)
        peer.say(chunks(b"two"), b"0\r\n\r\n")

    with serve(talk) as server:
        assert anyio.run(hear, make(CALM), server.url, 2, heard) == [b"one", b"two"]


ODD = {
    "a length": (answer(b"body"), b"body"),
    "no body at all": (answer(), b""),
    "an HTTP/1.0 server": (b"HTTP/1.0 200 OK\r\n\r\nbody", b"body"),
    "a body that ends with the connection": (b"HTTP/1.1 200 OK\r\n\r\nbody", b"body"),
    "letters cut in two": (chunked(b"\xc3", b"\xa4\xe2\x82", b"\xac"), "ä€".encode()),
    "chunk extensions and trailers": (
        HEAD + b"4;x=y\r\nbody\r\n0\r\nx-after: 1\r\n\r\n",
        b"body",
    ),
    "interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + answer(b"ok"),
        b"ok",
    ),
    "one chunk of 5 MB": (chunked(b"y" * 5_000_000), b"y" * 5_000_000),
    "90 KB of headers": (answer(b"ok", *(f"x-{n}: {'z' * 900}" for n in range(90))), b"ok"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_body_arrives_however_it_is_framed(make: Make, case: str) -> None:
    sent, body = ODD[case]
    assert once(make, saying(sent)) == (200, body)


def test_bytes_may_arrive_one_at_a_time(make: Make) -> None:
    whole = chunked(b"data: \xc3\xa4\n\n", b"data: 2\n\n")
    parts = [whole[n : n + 1] for n in range(len(whole))]
    assert once(make, saying(*parts)) == (200, b"data: \xc3\xa4\n\ndata: 2\n\n")


def test_headers_have_names_in_lower_case(make: Make) -> None:
    async def main(url: str) -> tuple[int, str, str]:
        made = make(CALM)
        async with made.post(url, headers=(), body=b"{}") as response:
            said = response.status, response.headers["retry-after"], response.headers["request-id"]
        await made.aclose()
        return said

    sent = answer(b"", "Retry-After: 7", "Request-Id: req_1", status="429 Too Many Requests")
    with serve(saying(sent)) as server:
        assert anyio.run(main, server.url) == (429, "7", "req_1")


def test_a_redirect_is_not_followed(make: Make) -> None:
    moved = answer(b"", "location: /elsewhere", status="307 Temporary Redirect")
    with serve(kept(moved, answer(b"followed"))) as server:
        assert run(make(CALM), server.url, b"{}") == [(307, b"")]
        assert len(server.requests) == 1


# --- connections ----------------------------------------------------------------------------------


def test_a_second_request_takes_the_same_connection(make: Make) -> None:
    with serve(kept(chunked(b"1"), answer(b"2"), answer(b"3"))) as server:
        said = run(make(CALM), server.url, b"a", b"b", b"c")
        assert (said, server.connections) == ([(200, b"1"), (200, b"2"), (200, b"3")], 1)
        assert server.deserted()


def test_a_connection_that_was_closed_meanwhile_is_replaced_without_a_word(make: Make) -> None:
    closed = threading.Event()

    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(answer(b"%d" % peer.number))
        if peer.number == 0:
            peer.sock.close()
            closed.set()

    async def main(url: str) -> list[Said]:
        made = make(CALM)
        said = [await attempt(made, url, b"a")]
        await anyio.to_thread.run_sync(closed.wait)
        said.append(await attempt(made, url, b"b"))
        await made.aclose()
        return said

    with serve(talk) as server:
        assert anyio.run(main, server.url) == [(200, b"0"), (200, b"1")]


def test_what_a_server_said_unasked_is_not_taken_for_an_answer(make: Make) -> None:
    spoken = threading.Event()

    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(answer(b"%d" % peer.number))
        threading.Event().wait(0.05)
        peer.say(answer(b"you were slow", status="408 Request Timeout"))
        spoken.set()
        peer.stay()

    async def main(url: str) -> list[Said]:
        made = make(CALM)
        said = [await attempt(made, url, b"a")]
        await anyio.to_thread.run_sync(spoken.wait)
        said.append(await attempt(made, url, b"b"))
        await made.aclose()
        return said

    with serve(talk) as server:
        assert anyio.run(main, server.url) == [(200, b"0"), (200, b"1")]


def test_a_connection_that_dies_under_the_second_request_is_replaced_once() -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(answer(b"first"))
        peer.request()

    with serve(talk) as server:
        assert run(DirectTransport(CALM), server.url, b"a", b"b") == [
            (200, b"first"),
            (200, b"first"),
        ]
        assert [r[-1:] for r in server.requests] == [b"a", b"b", b"b"]


def test_when_one_kept_connection_is_dead_the_others_are_not_tried() -> None:
    together = threading.Barrier(2)

    def talk(peer: Peer) -> None:
        peer.request()
        if peer.number < 2:
            together.wait(300)
        peer.say(answer(b"%d" % peer.number))
        peer.request()

    async def main(url: str) -> Said:
        made = DirectTransport(CALM)
        async with anyio.create_task_group() as group:
            group.start_soon(attempt, made, url, b"a")
            group.start_soon(attempt, made, url, b"b")
        said = await attempt(made, url, b"c")
        await made.aclose()
        return said

    with serve(talk) as server:
        assert anyio.run(main, server.url) == (200, b"2")
        assert sorted(r[-1:] for r in server.requests) == [b"a", b"b", b"c", b"c"]


def test_a_request_to_which_the_server_began_to_answer_is_not_sent_again() -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(answer(b"first"))
        peer.request()
        peer.say(b"HTTP/1.1 200")

    with serve(talk) as server:
        said = run(DirectTransport(CALM), server.url, b"a", b"b")
        told = "the server closed the connection mid-response: peer unexpectedly closed connection"
        assert said[1] == ("network", told, True)
        assert len(server.requests) == 2


def test_a_connection_unused_for_too_long_is_not_trusted(make: Make) -> None:
    with serve(kept(answer(b"1"), answer(b"2"))) as server:
        run(make(Timeouts(keep=0.0)), server.url, b"a", b"b")
        assert server.connections == 2


def test_a_connection_with_bytes_left_over_is_not_used_again() -> None:
    with serve(kept(answer(b"1") + answer(b"smuggled"), answer(b"2"))) as server:
        assert run(DirectTransport(CALM), server.url, b"a", b"b")[1] == (200, b"1")
        assert server.connections == 2


def test_requests_at_the_same_time_have_connections_of_their_own(make: Make) -> None:
    together = threading.Barrier(4)

    def talk(peer: Peer) -> None:
        body = peer.request()[-1:]
        together.wait(300)
        peer.say(answer(body))

    async def main(url: str) -> list[Said]:
        made, said = make(CALM), []

        async def one(body: bytes) -> None:
            said.append(await attempt(made, url, body))

        async with anyio.create_task_group() as group:
            for body in (b"a", b"b", b"c", b"d"):
                group.start_soon(one, body)
        await made.aclose()
        return sorted(said)

    with serve(talk) as server:
        assert anyio.run(main, server.url) == [(200, b"a"), (200, b"b"), (200, b"c"), (200, b"d")]


# --- what goes wrong ------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_nobody_listening_is_told_with_the_address(make: Make) -> None:
    port = free_port()
    for host in ("127.0.0.1", "localhost"):
        said = run(make(CALM), f"http://{host}:{port}", b"{}")
        told = f"no server is listening on {host}:{port} (connection refused)"
        assert said == [("network", told, False)]


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 64 + ".test"])
def test_a_host_that_does_not_exist_is_named(make: Make, host: str) -> None:
    kind, message, retry = run(make(CALM), f"http://{host}", b"{}")[0]
    assert (kind, message.partition(":")[0], retry) == (
        "network",
        f"cannot resolve host {host}",
        True,
    )


@contextmanager
def full_house() -> Iterator[int]:
    """A port whose queue is full, so that connecting to it takes for ever."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        yield port
        for sock in waiting:
            sock.close()


def test_a_connection_that_takes_too_long_is_given_up(make: Make) -> None:
    with full_house() as port:
        said = run(make(Timeouts(connect=0.1)), f"http://127.0.0.1:{port}", b"{}")
    assert said == [("timeout", f"no connection to 127.0.0.1:{port} within 0.1 s", True)]


def test_a_server_that_never_says_hello_over_tls_is_given_up(make: Make) -> None:
    with serve(Peer.stay) as server:
        said = run(make(Timeouts(connect=0.1)), f"https://127.0.0.1:{server.port}", b"{}")
    assert said == [("timeout", f"no connection to 127.0.0.1:{server.port} within 0.1 s", True)]


def stalling(*parts: bytes) -> Callable[[Peer], None]:
    """Answer with these bytes, then stay and say nothing."""

    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(*parts)
        peer.stay()

    return talk


SHORT = {"first_byte": 0.1, "idle": 0.3}
STALLS = {
    "before the head": ((), 0.1),
    "inside the head": ((b"HTTP/1.1 200 OK\r\ncontent-",), 0.1),
    "after interim answers": ((b"HTTP/1.1 100 Continue\r\n\r\n",), 0.1),
    "before the body": ((HEAD,), 0.1),
    "between two bytes of the body": ((HEAD, chunks(b"one")), 0.3),
    "inside a chunk": ((HEAD, b"5\r\nab"), 0.3),
    "before the end": ((HEAD, chunks(b"one"), b"0\r\n"), 0.3),
}


@pytest.mark.parametrize("case", STALLS)
def test_silence_is_given_up_wherever_it_begins(make: Make, case: str) -> None:
    parts, limit = STALLS[case]
    said = once(make, stalling(*parts), **SHORT)
    assert said == ("timeout", f"no data from the server for {limit:g} s", True)


CUTS = {
    "before it said anything": ((), "closed the connection without a response"),
    "inside the head": ((b"HTTP/1.1 200 OK\r\ncont",), ""),
    "inside a chunk": ((HEAD, b"5\r\nab"), ""),
    "between chunks": ((HEAD, chunks(b"one")), ""),
    "short of its length": ((answer(b"four")[:-1],), ""),
}


@pytest.mark.parametrize("case", CUTS)
@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_answer_cut_short_is_a_network_problem(make: Make, case: str, how: str) -> None:
    parts, words = CUTS[case]

    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(*parts)
        if how == "reset":
            peer.reset()

    kind, message, retry = once(make, talk)
    assert (kind, retry) == ("network", True)
    assert words in message or "reset" in message


@pytest.mark.parametrize(
    "junk", [b"SSH-2.0-OpenSSH\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28\r\n\r\n"]
)
def test_a_server_that_does_not_speak_http_is_a_network_problem(make: Make, junk: bytes) -> None:
    assert once(make, saying(junk))[0] == "network"


def test_headers_without_end_are_given_up(make: Make) -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            peer.say(b"x: %s\r\n" % (b"y" * 8000))

    assert once(make, talk)[0] == "network"


# --- answers that come early ----------------------------------------------------------------------

LARGE = answer(b'{"error":"too big"}', "connection: close", status="413 Content Too Large")


def test_an_answer_before_all_was_sent_counts_when_the_server_hangs_up() -> None:
    def talk(peer: Peer) -> None:
        peer.head()
        peer.say(LARGE)

    for _ in range(20):
        with serve(talk) as server:
            said = run(DirectTransport(CALM), server.url, b"x" * HUGE)
            assert said == [(413, b'{"error":"too big"}')]


def test_an_answer_before_all_was_sent_counts_when_the_server_reads_on(make: Make) -> None:
    def talk(peer: Peer) -> None:
        peer.head()
        peer.say(LARGE)
        peer.sock.shutdown(socket.SHUT_WR)
        peer.stay()

    with serve(talk) as server:
        assert run(make(CALM), server.url, BIG) == [(413, b'{"error":"too big"}')]


def test_an_early_answer_over_tls_counts() -> None:
    def talk(peer: Peer) -> None:
        peer.head()
        peer.say(LARGE)

    with serve(talk, tls=certified()) as server:
        said = run(DirectTransport(CALM, env=TRUSTED), f"https://localhost:{server.port}", BIG)
    assert said == [(413, b'{"error":"too big"}')]


@pytest.mark.parametrize("tls", [None, certified()], ids=["plain", "tls"])
def test_a_server_that_refuses_and_reads_no_more_is_heard_out(tls: ssl.SSLContext | None) -> None:
    over = threading.Event()

    def talk(peer: Peer) -> None:
        peer.head()
        peer.say(LARGE[:-5])
        threading.Event().wait(0.05)
        peer.say(LARGE[-5:])
        over.wait()

    with serve(talk, tls=tls) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        said = run(DirectTransport(CALM, env=TRUSTED), url, b"x" * HUGE)
        over.set()
    assert said == [(413, b'{"error":"too big"}')]


def test_an_early_good_answer_does_not_stop_the_request() -> None:
    heard = threading.Event()

    def talk(peer: Peer) -> None:
        peer.head()
        peer.say(HEAD, chunks(b"yes"))
        got = len(peer.read(HUGE))
        heard.wait(300)
        peer.say(chunks(b"%d" % got), b"0\r\n\r\n")

    with serve(talk) as server:
        assert anyio.run(hear, DirectTransport(CALM), server.url, HUGE, heard) == [
            b"yes",
            b"20000000",
        ]


# --- being cancelled ------------------------------------------------------------------------------

STAGES: dict[str, tuple[bytes, ...]] = {
    "while sending": (),
    "waiting for the head": (b"",),
    "inside the head": (b"HTTP/1.1 200 OK\r\n",),
    "waiting for the body": (HEAD,),
    "inside the body": (HEAD, chunks(b"one")),
    "before the end": (HEAD, chunks(b"one"), b"0\r\n"),
}


def stopping(stage: str, there: threading.Event) -> Callable[[Peer], None]:
    def talk(peer: Peer) -> None:
        peer.head() if stage == "while sending" else peer.request()
        peer.say(*STAGES[stage])
        there.set()
        if stage == "while sending":
            threading.Event().wait(0.05)
        peer.stay()

    return talk


async def cancelled(made: Transport, url: str, until: Callable[[], Awaitable[Any]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(attempt, made, url, BIG)
        await until()
        group.cancel_scope.cancel()


@pytest.mark.parametrize("stage", STAGES)
def test_cancelling_hangs_up_at_every_stage(make: Make, stage: str) -> None:
    there = threading.Event()

    async def main(url: str) -> bool:
        made = make(CALM)
        await cancelled(made, url, partial(anyio.to_thread.run_sync, there.wait))
        gone = await anyio.to_thread.run_sync(server.deserted)
        await made.aclose()
        return gone

    with serve(stopping(stage, there)) as server:
        assert anyio.run(main, server.url)


def test_cancelling_after_any_number_of_steps_leaks_no_connection(make: Make) -> None:
    async def steps(count: int) -> None:
        for _ in range(count):
            await anyio.lowlevel.checkpoint()

    async def main(url: str) -> bool:
        made = make(CALM)
        for count in range(60):
            await cancelled(made, url, partial(steps, count))
        await made.aclose()
        return await anyio.to_thread.run_sync(server.deserted)

    with serve(kept(chunked(*(b"part" for _ in range(50))))) as server:
        assert anyio.run(main, server.url)


def test_after_a_cancelled_request_the_next_one_works(make: Make) -> None:
    there = threading.Event()

    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(HEAD if peer.number == 0 else answer(b"ok"))
        there.set()
        peer.stay()

    async def main(url: str) -> Said:
        made = make(CALM)
        await cancelled(made, url, partial(anyio.to_thread.run_sync, there.wait))
        said = await attempt(made, url, b"{}")
        await made.aclose()
        return said

    with serve(talk) as server:
        assert anyio.run(main, server.url) == (200, b"ok")


def test_a_response_that_is_left_early_ends_its_connection(make: Make) -> None:
    async def main(url: str) -> bool:
        made = make(CALM)
        async with made.post(url, headers=(), body=b"{}") as response:
            async for _ in response.chunks:
                break
        gone = await anyio.to_thread.run_sync(server.deserted)
        await made.aclose()
        return gone

    with serve(stalling(HEAD, chunks(b"one"))) as server:
        assert anyio.run(main, server.url)


# --- TLS ------------------------------------------------------------------------------------------


def test_a_certificate_signed_by_itself_is_refused_with_what_to_do(make: Make) -> None:
    with serve(kept(answer(b"ok")), tls=certified()) as server:
        said = run(make(CALM), f"https://localhost:{server.port}", b"{}")
        assert server.requests == []
    assert said == [
        (
            "network",
            "the certificate of localhost is not trusted: self-signed certificate. If your "
            "network inspects TLS, set SSL_CERT_FILE to its certificate file.",
            False,
        )
    ]


@pytest.mark.parametrize(
    "name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"]
)
def test_a_certificate_that_the_environment_names_is_trusted(make: Make, name: str) -> None:
    asked: list[str | None] = []
    context = certified()
    context.sni_callback = lambda _socket, host, _context: asked.append(host)
    with serve(kept(answer(b"1"), answer(b"2")), tls=context) as server:
        made = make(CALM, env={name: str(CERTIFICATE)})
        said = run(made, f"https://localhost:{server.port}", b"a", b"b")
    assert (said, asked) == ([(200, b"1"), (200, b"2")], ["localhost"])


def test_a_certificate_for_another_host_is_refused(make: Make) -> None:
    with serve(kept(answer(b"ok")), tls=certified()) as server:
        said = run(make(CALM, env=TRUSTED), server.url, b"{}")
    assert said == [
        (
            "network",
            "the certificate of 127.0.0.1 is not trusted: IP address mismatch, certificate is "
            "not valid for '127.0.0.1'.",
            False,
        )
    ]


def test_tls_with_a_server_that_has_none_is_explained(make: Make) -> None:
    def talk(peer: Peer) -> None:
        peer.sock.recv(100)
        peer.say(answer(b"", status="400 Bad Request"))
        peer.stay()

    with serve(talk) as server:
        said = run(make(CALM), f"https://localhost:{server.port}", b"{}")
    assert said == [
        (
            "network",
            "TLS with localhost failed: wrong version number. Should the URL start with http://?",
            False,
        )
    ]


def test_a_server_that_hangs_up_on_tls_is_a_network_problem(make: Make) -> None:
    with serve(lambda peer: peer.sock.recv(100) and None) as server:
        assert run(make(CALM), f"https://localhost:{server.port}", b"{}")[0][0] == "network"


def test_a_tls_stream_cut_without_a_goodbye_is_a_network_problem(make: Make) -> None:
    with serve(saying(HEAD, chunks(b"one")), tls=certified()) as server:
        said = run(make(CALM, env=TRUSTED), f"https://localhost:{server.port}", b"{}")
    assert said[0][0] == "network"


@pytest.mark.parametrize("content", [None, b"no certificate at all"])
def test_a_file_without_certificates_is_a_fault_that_names_the_variable(
    make: Make, content: bytes | None, tmp_path: Any
) -> None:
    file = tmp_path / "corporate.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match="Cannot load the certificates in REQUESTS_CA_BUNDLE"):
        run(make(CALM, env={"REQUESTS_CA_BUNDLE": str(file)}), "https://localhost:1", b"{}")


def test_certificates_that_only_the_bundle_has_are_found(make: Make, tmp_path: Any) -> None:
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "0a0b0c0d.0").write_text("")
    bundle = folder / "ca-certificates.crt"
    bundle.write_bytes(CERTIFICATE.read_bytes())
    env = {"SSL_CERT_DIR": str(folder), "SSL_CERT_FILE": str(bundle)}
    with serve(kept(answer(b"ok")), tls=certified()) as server:
        said = run(make(CALM, env=env), f"https://localhost:{server.port}", b"{}")
    assert said == [(200, b"ok")]


# --- proxies --------------------------------------------------------------------------------------

API = "https://api.example.test"


def test_requests_go_through_a_proxy_and_tls_reaches_to_the_server() -> None:
    seen: list[bytes] = []
    with (
        serve(kept(answer(b"1"), answer(b"2")), tls=certified()) as server,
        serve(proxy(server.port, seen)) as middle,
    ):
        env = {"https_proxy": f"http://user:pass@127.0.0.1:{middle.port}", **TRUSTED}
        assert run(create_transport(API, env, CALM), API, b"a", b"b") == [(200, b"1"), (200, b"2")]
        assert [r[-1:] for r in server.requests] == [b"a", b"b"]
    assert [head.split(b"\r\n")[0] for head in seen] == [b"CONNECT api.example.test:443 HTTP/1.1"]
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in seen[0]


def test_plain_http_goes_through_a_proxy_too() -> None:
    seen: list[bytes] = []
    with (
        serve(kept(answer(b"ok"))) as server,
        serve(proxy(server.port, seen)) as middle,
    ):
        env = {"HTTP_PROXY": f"127.0.0.1:{middle.port}"}
        url = "http://models.example.test:8000"
        assert run(create_transport(url, env, CALM), url, b"{}") == [(200, b"ok")]
    assert seen[0].startswith(b"POST http://models.example.test:8000/v1 HTTP/1.1")


def test_a_proxy_that_refuses_is_told_and_not_asked_again() -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    with serve(proxy(0, [], refuse=refusal)) as middle:
        env = {"HTTPS_PROXY": f"http://127.0.0.1:{middle.port}"}
        said = run(create_transport(API, env, CALM), API, b"{}")
    assert said == [
        ("network", "the proxy refused the request: 407 Proxy Authentication Required", False)
    ]


def test_a_proxy_that_is_not_there_is_named_without_its_password() -> None:
    port = free_port()
    env = {"ALL_PROXY": f"http://user:secret@127.0.0.1:{port}"}
    said = run(create_transport(API, env, CALM), API, b"{}")
    told = f"no server is listening on 127.0.0.1:{port} (connection refused)"
    assert said == [("network", f"{told} (the proxy set in your environment)", False)]


def test_a_certificate_behind_a_proxy_is_checked() -> None:
    with (
        serve(kept(answer(b"ok")), tls=certified()) as server,
        serve(proxy(server.port, [])) as middle,
    ):
        env = {"HTTPS_PROXY": f"http://127.0.0.1:{middle.port}"}
        kind, message, retry = run(create_transport(API, env, CALM), API, b"{}")[0]
    assert (kind, retry) == ("network", False)
    assert message.startswith("the certificate of api.example.test is not trusted")


@pytest.mark.parametrize(
    "address", ["gopher://user:secret@127.0.0.1:70", "http://user:secret@127.0.0.1:port"]
)
def test_a_proxy_that_cannot_be_used_is_a_fault_without_the_password(address: str) -> None:
    with pytest.raises(UserError) as caught:
        create_transport(API, {"ALL_PROXY": address})
    assert "Cannot use the proxy" in caught.value.what
    assert "secret" not in str(caught.value)


PROXY = "http://proxy.test:3128"
CHOICES: list[tuple[str, dict[str, str], str]] = [
    (API, {}, ""),
    (API, {"HTTPS_PROXY": PROXY}, PROXY),
    (API, {"https_proxy": PROXY, "HTTPS_PROXY": "http://other.test"}, PROXY),
    (API, {"HTTP_PROXY": PROXY}, ""),
    ("http://api.example.test", {"HTTP_PROXY": PROXY}, PROXY),
    (API, {"ALL_PROXY": PROXY}, PROXY),
    (API, {"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
    (API, {"HTTPS_PROXY": "  "}, ""),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, ""),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "other.test, example.test"}, ""),
    (API, {"HTTPS_PROXY": PROXY, "no_proxy": ".example.test"}, ""),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "*.example.test"}, ""),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "API.EXAMPLE.TEST:443"}, ""),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example.test:8443"}, PROXY),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "ample.test"}, PROXY),
    (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": ",, host:port"}, PROXY),
    ("https://10.1.2.3", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, ""),
    ("https://11.1.2.3", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, PROXY),
    ("https://[fd00::1]", {"HTTPS_PROXY": PROXY, "NO_PROXY": "fd00::/8"}, ""),
    ("https://[fd00::1]:8443", {"HTTPS_PROXY": PROXY, "NO_PROXY": "[fd00::1]:8443"}, ""),
    ("http://localhost:8080/v1", {"ALL_PROXY": PROXY}, ""),
    ("http://127.0.0.9:8080/v1", {"ALL_PROXY": PROXY}, ""),
    ("http://[::1]:8080/v1", {"ALL_PROXY": PROXY}, ""),
]


@pytest.mark.parametrize(("url", "env", "expected"), CHOICES)
def test_the_environment_says_which_proxy(url: str, env: dict[str, str], expected: str) -> None:
    assert chosen(url, env) == expected


def test_a_server_on_this_machine_may_think_for_minutes() -> None:
    near, far, limits = "http://localhost:11434/v1", "https://api.example.test", Timeouts()
    assert timeouts_for(far, limits) == limits
    assert timeouts_for(near, limits) == Timeouts(first_byte=600.0, idle=600.0)
    asked = Timeouts(idle=90.0, is_idle_chosen=True, local=700.0)
    assert timeouts_for(near, asked) == replace(asked, first_byte=700.0)


def test_a_server_on_this_machine_is_given_its_time() -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        for part in (HEAD, chunks(b"slow"), chunks(b"ly"), b"0\r\n\r\n"):
            threading.Event().wait(0.15)
            peer.say(part)

    with serve(talk) as server:
        made = create_transport(
            server.url, {"ALL_PROXY": PROXY}, Timeouts(first_byte=0.05, local=10.0)
        )
        assert run(made, server.url, b"{}") == [(200, b"slowly")]


# The head of a request, whose plain form is written without h11.


@pytest.mark.parametrize(
    "head",
    [
        RequestHead("/v1/messages?beta=1", (("host", "a:80"), ("X-API-Key", "k e y"))),
        RequestHead("/", (("host", "a"), ("x_odd", "1"), ("empty", "")), method="GET"),
    ],
)
def test_a_request_head_has_the_bytes_that_h11_writes(head: RequestHead) -> None:
    assert head.encode() == h11.Connection(h11.CLIENT).send(head.to_event())


@pytest.mark.parametrize(
    "head",
    [
        RequestHead("/a b", (("host", "a"),)),
        RequestHead("/", (("host", "a"), ("key", "x\r\ninjected: 1"))),
        RequestHead("/", (("host", "a"), ("na me", "x"))),
        RequestHead("/", (("host", "a"), ("key", " x"))),
    ],
)
def test_a_request_head_that_could_be_misread_is_refused(head: RequestHead) -> None:
    with pytest.raises(h11.LocalProtocolError):
        head.encode()
