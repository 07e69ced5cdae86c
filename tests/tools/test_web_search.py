"""An address of the user's that searches the web, as the real door asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from tests.providers.raw import Peer, Server, answer, serve
from travois.core.errors import UserError
from travois.ports.world import SearchQuery
from travois.providers.search_endpoint import EndpointSearch, resolve_search_endpoint
from travois.providers.web_search import SearchHit

PAGE = {"title": "T", "url": "https://a.org/x", "content": "words", "date": "2026"}
OTHER = {**PAGE, "url": "https://evil-a.org/x"}


@contextmanager
def desk(body: object, *headers: str, status: str = "200 OK") -> Iterator[Server]:
    def talk(peer: Peer) -> None:
        while peer.request():
            said = body if isinstance(body, bytes) else json.dumps(body).encode()
            peer.say(answer(said, *headers, status=status))

    with serve(talk) as server:
        yield server


def searched(
    kind: str, wanted: SearchQuery, *, env: dict[str, str], **given: str
) -> tuple[SearchHit, ...]:
    search = EndpointSearch(resolve_search_endpoint(kind, given), env).search
    return anyio.run(search, wanted).hits


def test_brave_is_asked_with_its_key_and_read_in_its_own_shape() -> None:
    rows = [{"title": "T", "url": "https://a.org/x", "description": "words", "age": "1 day ago"}]
    with desk({"web": {"results": rows}}) as server:
        env = {"BRAVE_API_KEY": "k1"}
        hits = searched("brave", SearchQuery("a & b", never=("b.org",)), env=env, url=server.url)
    assert hits == (SearchHit("https://a.org/x", "T", "words", "1 day ago"),)
    head = server.requests[0].split(b"\r\n")
    assert head[0] == (b"GET /res/v1/web/search?q=a%20%26%20b%20-site%3Ab.org&count=10 HTTP/1.1")
    assert b"x-subscription-token: k1" in [line.lower() for line in head]


def test_tavily_is_posted_to_and_a_query_cannot_end_its_text() -> None:
    with desk({"results": [{**PAGE, "published_date": "2026"}]}) as server:
        env = {"TAVILY_API_KEY": "k2"}
        hits = searched("tavily", SearchQuery('say "hi"'), env=env, url=server.url)
    assert hits == (SearchHit("https://a.org/x", "T", "words", "2026"),)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /search ") and b"authorization: bearer k2" in head.lower()
    assert json.loads(body) == {"query": 'say "hi"', "max_results": 10}


def test_any_address_with_json_can_be_described() -> None:
    with desk({"data": {"items": [{"name": "T", "at": {"href": "https://a.org/x"}}, 7]}}) as server:
        given = {"results": "data.items", "title": "name", "link": "at.href"}
        url = f"{server.url}/?find={{query}}&n={{count}}"
        hits = searched("json", SearchQuery("é"), env={}, url=url, **given)
    assert hits == (SearchHit("https://a.org/x", "T"),)
    assert server.requests[0].startswith(b"GET /?find=%C3%A9&n=10 ")


def test_only_pages_of_hosts_that_are_wanted_are_shown() -> None:
    with desk({"results": [PAGE, OTHER, {**PAGE, "url": "javascript:alert(1)"}]}) as server:
        hits = searched("searxng", SearchQuery("x", only=("a.org",)), env={}, url=server.url)
    assert [hit.url for hit in hits] == ["https://a.org/x"]


@pytest.mark.parametrize(
    ("body", "status", "headers", "why"),
    [
        (b"<html>", "200 OK", (), "invalid JSON"),
        ({"answer": 42}, "200 OK", (), "no list at 'results'"),
        ({}, "429 Too Many Requests", (), "status 429"),
        (b"", "302 Found", ("location: http://169.254.169.254/",), "status 302"),
        (b"[" * 3_000_000, "200 OK", (), "too much"),
    ],
)
def test_an_answer_that_is_none_is_told_in_words(
    body: object, status: str, headers: tuple[str, ...], why: str
) -> None:
    with desk(body, *headers, status=status) as server, pytest.raises(OSError, match=why):
        searched("searxng", SearchQuery("x"), env={}, url=server.url)


def test_a_missing_key_or_a_senseless_address_is_told() -> None:
    with pytest.raises(OSError, match="BRAVE_API_KEY is not set"):
        searched("brave", SearchQuery("x"), env={})
    for given, why in (
        ({}, "url is not set"),
        ({"url": "ftp://a/{query}"}, "not a valid URL"),
        ({"url": "https://a.org/"}, "no {query}"),
    ):
        with pytest.raises(UserError, match=why):
            resolve_search_endpoint("json", given)
