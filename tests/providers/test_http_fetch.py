"""The web port, against servers whose every byte is under our control."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Sequence

import anyio
import pytest

from tests.providers.raw import CERTIFICATE, Peer, Talk, answer, certified, chunks, serve
from travois.ports.world import WebPage
from travois.providers.http.fetch import HttpxWeb, is_public_address

OPEN = HttpxWeb(allow_private="yes", env={})
TEXT = "content-type: text/plain; charset=utf-8"


def fetch(
    url: str, *, web: HttpxWeb = OPEN, limit: int = 1_000_000, timeout: float = 20.0
) -> WebPage:
    async def main() -> WebPage:
        return await web.fetch(url, limit=limit, timeout=timeout)

    return anyio.run(main)


def failure(url: str, *, web: HttpxWeb = OPEN, timeout: float = 20.0) -> str:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the words are what is tested
        fetch(url, web=web, timeout=timeout)
    return str(raised.value)


def say(*parts: bytes) -> Talk:
    """A server that answers everything with these bytes."""

    def talk(peer: Peer) -> None:
        if peer.request():
            peer.say(*parts)

    return talk


def test_a_page_comes_with_its_type_and_final_address():
    with serve(say(answer(b"hello", TEXT))) as server:
        page = fetch(f"{server.url}/a?b=c")
    assert page == WebPage(f"{server.url}/a?b=c", 200, "text/plain; charset=utf-8", b"hello")
    head = server.requests[0].decode().lower().split("\r\n")
    assert head[0] == "get /a?b=c http/1.1"
    assert f"host: 127.0.0.1:{server.port}" in head
    assert any(line.startswith("user-agent: travois/") for line in head)
    assert not any(line.startswith(("cookie", "authorization", "referer")) for line in head)


def test_an_error_status_is_a_page():
    with serve(say(answer(b"no", TEXT, status="404 Not Found"))) as server:
        page = fetch(server.url)
    assert (page.status, page.body) == (404, b"no")


def test_a_packed_page_is_unpacked():
    packed = gzip.compress(b"hello " * 1000)
    with serve(say(answer(packed, TEXT, "content-encoding: gzip"))) as server:
        assert fetch(server.url).body == b"hello " * 1000


def test_a_page_is_cut_at_the_limit_and_says_so():
    with serve(say(answer(b"x" * 1001, TEXT))) as server:
        page = fetch(server.url, limit=1000)
        assert (page.body, page.truncated) == (b"x" * 1000, True)
        page = fetch(server.url, limit=1001)
        assert (page.body, page.truncated) == (b"x" * 1001, False)


def test_a_page_that_unpacks_without_end_is_cut_at_the_limit():
    bomb = gzip.compress(b"\0" * 50_000_000)
    with serve(say(answer(bomb, TEXT, "content-encoding: gzip"))) as server:
        page = fetch(server.url, limit=5_000_000)
    assert (len(page.body), page.truncated) == (5_000_000, True)


def test_a_stream_without_end_is_cut_at_the_limit():
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                peer.say(chunks(b"y" * 10_000))
        except OSError:
            return

    with serve(talk) as server:
        page = fetch(server.url, limit=100_000)
    assert (page.body, page.truncated) == (b"y" * 100_000, True)


# --- redirects ------------------------------------------------------------------------------------


def moved(where: str) -> bytes:
    return answer(b"", f"location: {where}", status="302 Found")


def test_a_redirect_on_the_same_host_is_followed():
    def talk(peer: Peer) -> None:
        request = peer.request()
        if request:
            peer.say(answer(b"here", TEXT) if b"GET /there" in request else moved("/there?x=1"))

    with serve(talk) as server:
        assert fetch(server.url) == WebPage(
            f"{server.url}/there?x=1", 200, "text/plain; charset=utf-8", b"here"
        )


def test_a_redirect_to_another_host_is_told_and_not_followed():
    with serve(say(answer(b"secret", TEXT))) as other:
        where = f"http://localhost:{other.port}/x"
        with serve(say(moved(where))) as server:
            assert fetch(server.url) == WebPage(where, 302, "", b"")
        assert other.requests == []


def test_a_redirect_to_plain_http_elsewhere_is_told_over_tls():
    with serve(say(moved("http://example.org/x"))) as server:
        assert fetch(server.url).url == "https://example.org/x"


def test_redirects_in_a_circle_end():
    with serve(say(moved("/again"))) as server:
        assert failure(server.url) == "it redirects more than 5 times"
        assert len(server.requests) == 5


# --- where it may go ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
    ],
)
def test_this_machine_is_not_fetched_from_under_any_name(host: str):
    with serve(say(answer(b"secret"))) as server:
        words = failure(f"http://{host}:{server.port}/", web=HttpxWeb(env={}))
        assert "is on a private network" in words or "there is no host" in words
        assert server.connections == 0


@pytest.mark.parametrize(
    ("address", "open_to_all"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("64:ff9b::5db8:d822", True),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("127.8.8.8", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("198.51.100.7", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::1", False),
        ("2001:0:4136:e378:8000:63bf:f5ff:fffe", False),
        ("2001:db8::1", False),
    ],
)
def test_which_addresses_are_public(address: str, open_to_all: bool):
    assert is_public_address(address) is open_to_all


class Fickle:
    """A name server whose second answer differs from its first."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return (self.answers.pop(0),)


def test_the_address_that_was_judged_is_the_one_that_is_dialled():
    fickle = Fickle("127.0.0.1", "192.0.2.1")
    web = HttpxWeb(allow_private="yes", env={}, addresses=fickle)
    with serve(say(answer(b"hello"))) as server:
        page = fetch(f"http://name.example:{server.port}/", web=web)
        assert (page.url, page.body) == (f"http://name.example:{server.port}/", b"hello")
        assert b"host: name.example:%d" % server.port in server.requests[0].lower()
    assert fickle.answers == ["192.0.2.1"]


def test_private_addresses_of_a_public_name_are_refused():
    web = HttpxWeb(env={}, addresses=Fickle("10.0.0.7"))
    assert failure("https://name.example/", web=web) == (
        "name.example is on a private network (10.0.0.7), which is not allowed"
    )


def test_the_next_address_is_tried_when_one_does_not_answer():
    async def both(host: str, port: int) -> Sequence[str]:
        return ("::1", "127.0.0.1")

    with serve(say(answer(b"hello"))) as server:
        web = HttpxWeb(allow_private="yes", env={}, addresses=both)
        assert fetch(f"http://name.example:{server.port}/", web=web).body == b"hello"


def test_tls_is_checked_against_the_name_and_not_the_address():
    async def here(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1",)

    trusting = {"SSL_CERT_FILE": str(CERTIFICATE)}
    with serve(say(answer(b"hello")), tls=certified()) as server:
        web = HttpxWeb(allow_private="yes", env=trusting, addresses=here)
        assert fetch(f"https://api.example.test:{server.port}/", web=web).body == b"hello"
        words = failure(f"https://other.example:{server.port}/", web=web)
        assert words.startswith("the certificate of other.example is not trusted")


def test_behind_a_proxy_the_proxy_gets_the_name():
    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name here")

    with serve(say(answer(b"by proxy"))) as server:
        env = {"HTTP_PROXY": server.url}
        web = HttpxWeb(env=env, addresses=nowhere)
        assert fetch("http://name.example:8080/x", web=web).body == b"by proxy"
        assert server.requests[0].startswith(b"GET http://name.example:8080/x HTTP/1.1\r\n")


def test_a_proxy_is_not_asked_for_private_addresses():
    with serve(say(answer(b"by proxy"))) as server:
        web = HttpxWeb(env={"HTTP_PROXY": server.url}, addresses=Fickle("10.0.0.7"))
        assert "is on a private network" in failure("http://name.example:8080/", web=web)
        assert server.connections == 0


# --- what can go wrong ----------------------------------------------------------------------------


def test_what_goes_wrong_is_said_in_words():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert failure(f"http://127.0.0.1:{port}/") == (
        f"no server is listening on 127.0.0.1:{port} (connection refused)"
    )
    with serve(say(b"nonsense\r\n\r\n")) as server:
        assert failure(server.url).startswith("the connection was lost: ")
    with serve(say(answer(b"not gzip", "content-encoding: gzip"))) as server:
        assert failure(server.url).startswith("the connection was lost: ")


def test_a_name_that_does_not_exist_is_said_to_be_none():
    assert failure("https://no-such-host.invalid/") == "cannot resolve host no-such-host.invalid"


def test_a_server_that_never_ends_its_answer_is_given_up():
    def talk(peer: Peer) -> None:
        peer.request()
        peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        peer.stay()

    with serve(talk) as server:
        assert failure(server.url, timeout=0.3) == "no complete response within 0.3 s"
        assert server.deserted()
