"""An address of the user's that searches the web: SearXNG, Brave, Tavily, or anything with JSON.

It is asked through the same door as pages are fetched, but may be on this machine or in a private
network, since the user named it. A redirect to another host is not followed: the key stays here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from travois.core.errors import Fault
from travois.core.json import rows, string, table
from travois.permissions.hosts import mentions
from travois.ports.web_search import Found, Wanted
from travois.providers.http.fetch import HttpxWeb, Message
from travois.providers.web_search import Hit

COUNT = 10
LARGEST = 2 * 1024 * 1024
SECONDS = 20.0
FIX = "docs/web.md shows what webSearch needs."


class Endpoint(msgspec.Struct, frozen=True):
    """Where to ask, what with, and where in the answer the pages are."""

    url: str = ""
    path: str = ""
    """What is put behind an address that has no place for the query."""
    key_env: str = ""
    header: str = ""
    body: str = ""
    results: str = "results"
    title: str = "title"
    link: str = "url"
    text: str = "content"
    date: str = "date"


KINDS = {
    "json": Endpoint(),
    "searxng": Endpoint(path="/search?q={query}&format=json", date="publishedDate"),
    "brave": Endpoint(
        url="https://api.search.brave.com",
        path="/res/v1/web/search?q={query}&count={count}",
        key_env="BRAVE_API_KEY",
        header="X-Subscription-Token: {key}",
        results="web.results",
        text="description",
        date="age",
    ),
    "tavily": Endpoint(
        url="https://api.tavily.com",
        path="/search",
        key_env="TAVILY_API_KEY",
        header="Authorization: Bearer {key}",
        body='{"query":"{query}","max_results":{count}}',
        date="published_date",
    ),
}


class EndpointSearch:
    """Searches by asking an address."""

    def __init__(self, at: Endpoint, env: Mapping[str, str]) -> None:
        self._at = at
        self._env = env
        self._web = HttpxWeb(allow_private="yes", env=env)

    async def search(self, wanted: Wanted) -> Found:
        """The pages that the address knows; raises OSError."""
        at, query = self._at, _query(wanted)
        key = self._env.get(at.key_env, "").strip() if at.key_env else ""
        if at.key_env and not key:
            raise OSError(f"the key for the search is missing: {at.key_env} is not set")
        url = _filled(at.url, quote(query, safe=""))
        name, _, value = at.header.replace("{key}", key).partition(":")
        headers = ((name.strip(), value.strip()),) if at.header else ()
        body = _filled(at.body, msgspec.json.encode(query).decode()[1:-1]).encode()
        page = await self._web.send(url, Message(headers, body), limit=LARGEST, timeout=SECONDS)
        if page.status != 200 or page.truncated:
            odd = "too much" if page.truncated else f"status {page.status}"
            raise OSError(f"the search answered with {odd}")
        return Found(tuple(hit for hit in _hits(at, page.body) if _fits(hit, wanted)))


def endpoint(kind: str, given: Mapping[str, object]) -> Endpoint:
    """The address as settings describe it; raises `Fault` if it cannot be asked."""
    usual = KINDS[kind]
    said = {name: value for name, value in given.items() if value and hasattr(usual, name)}
    at = msgspec.convert({**msgspec.structs.asdict(usual), **said}, Endpoint)
    url = at.url if "{query}" in at.url or not at.path else at.url.rstrip("/") + at.path
    if not re.fullmatch(r"https?://[!-~]+", url):
        what = f"webSearch.url is no web address: {url!r}" if url else "webSearch.url is not set"
        raise Fault(what, fix=FIX)
    if "{query}" not in url + at.body:
        raise Fault("webSearch has no {query} in its url or body", fix=FIX)
    return replace(at, url=url)


def _query(wanted: Wanted) -> str:
    """The query with its hosts, as search engines take them."""
    only = " OR ".join(f"site:{host}" for host in wanted.only)
    never = (f"-site:{host}" for host in wanted.never)
    return " ".join(filter(None, (wanted.query, only, *never)))


def _filled(text: str, query: str) -> str:
    return text.replace("{count}", str(COUNT)).replace("{query}", query)


def _hits(at: Endpoint, body: bytes) -> list[Hit]:
    try:
        found = _at(msgspec.json.decode(body), at.results)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise OSError("the search answered with something that is not JSON") from None
    if found is None:
        raise OSError(f"the search answered without a list at {at.results!r}")
    shown = (at.link, at.title, at.text, at.date)
    hits = [Hit(*(string(_at(row, name)) for name in shown)) for row in rows(found)]
    return [hit for hit in hits if re.match("https?://", hit.url)]


def _at(value: object, path: str) -> object:
    """What stands at the end of a path of names, as in `web.results`."""
    for name in path.split("."):
        value = table(value).get(name)
    return value


def _fits(hit: Hit, wanted: Wanted) -> bool:
    among = any(mentions(f"domain:{host}", hit.url) for host in wanted.only)
    return among or not wanted.only
