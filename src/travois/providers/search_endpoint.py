"""Web search through the user's own endpoint: SearXNG, Brave, Tavily, or any JSON API.

Requests go out the same way as page fetches, but the endpoint may be on this machine or in a
private network, since the user named it. A redirect to another host is not followed, so that the
key stays here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.core.json import as_list, as_object, as_string
from travois.permissions.hosts import rule_mentions_url
from travois.ports.world import SearchQuery, SearchResults
from travois.providers.http.fetch import HttpxWeb, WebRequest
from travois.providers.web_search import SearchHit

SEARCH_RESULT_COUNT = 10
MAX_SEARCH_BYTES = 2 * 1024 * 1024
SEARCH_TIMEOUT = 20.0
SEARCH_FIX = "See docs/web.md for the webSearch settings."


class SearchEndpoint(msgspec.Struct, frozen=True):
    """The search endpoint: its URL, its key, and the paths of the results in its answer."""

    url: str = ""
    path: str = ""
    """The path appended to a URL that has no place for the query."""
    key_env: str = ""
    header: str = ""
    body: str = ""
    results: str = "results"
    title: str = "title"
    link: str = "url"
    text: str = "content"
    date: str = "date"


SEARCH_KINDS = {
    "json": SearchEndpoint(),
    "searxng": SearchEndpoint(path="/search?q={query}&format=json", date="publishedDate"),
    "brave": SearchEndpoint(
        url="https://api.search.brave.com",
        path="/res/v1/web/search?q={query}&count={count}",
        key_env="BRAVE_API_KEY",
        header="X-Subscription-Token: {key}",
        results="web.results",
        text="description",
        date="age",
    ),
    "tavily": SearchEndpoint(
        url="https://api.tavily.com",
        path="/search",
        key_env="TAVILY_API_KEY",
        header="Authorization: Bearer {key}",
        body='{"query":"{query}","max_results":{count}}',
        date="published_date",
    ),
}


class EndpointSearch:
    """A web search that asks an endpoint."""

    def __init__(self, at: SearchEndpoint, env: Mapping[str, str]) -> None:
        self._at = at
        self._env = env
        self._web = HttpxWeb(allow_private="yes", env=env)

    async def search(self, wanted: SearchQuery) -> SearchResults:
        """Search for pages; raises OSError."""
        at, query = self._at, _build_search_query(wanted)
        key = self._env.get(at.key_env, "").strip() if at.key_env else ""
        if at.key_env and not key:
            raise OSError(f"no API key for web search: {at.key_env} is not set")
        url = _fill_query(at.url, quote(query, safe=""))
        name, _, value = at.header.replace("{key}", key).partition(":")
        headers = ((name.strip(), value.strip()),) if at.header else ()
        body = _fill_query(at.body, msgspec.json.encode(query).decode()[1:-1]).encode()
        page = await self._web.send(
            url, WebRequest(headers, body), limit=MAX_SEARCH_BYTES, timeout=SEARCH_TIMEOUT
        )
        if page.status != 200 or page.truncated:
            odd = "too much data" if page.truncated else f"status {page.status}"
            raise OSError(f"the search endpoint returned {odd}")
        return SearchResults(
            tuple(
                hit for hit in _parse_search_hits(at, page.body) if _is_on_wanted_host(hit, wanted)
            )
        )


def resolve_search_endpoint(kind: str, given: Mapping[str, object]) -> SearchEndpoint:
    """Resolve the web search endpoint in the settings; raises `UserError` if it is invalid."""
    usual = SEARCH_KINDS[kind]
    said = {name: value for name, value in given.items() if value and hasattr(usual, name)}
    at = msgspec.convert({**msgspec.structs.asdict(usual), **said}, SearchEndpoint)
    url = at.url if "{query}" in at.url or not at.path else at.url.rstrip("/") + at.path
    if not re.fullmatch(r"https?://[!-~]+", url):
        what = f"webSearch.url is not a valid URL: {url!r}" if url else "webSearch.url is not set"
        raise UserError(what, fix=SEARCH_FIX)
    if "{query}" not in url + at.body:
        raise UserError("webSearch has no {query} in its url or body", fix=SEARCH_FIX)
    return replace(at, url=url)


def _build_search_query(query: SearchQuery) -> str:
    """Build the search endpoint's query with its hosts, in the syntax of search engines."""
    only = " OR ".join(f"site:{host}" for host in query.only)
    never = (f"-site:{host}" for host in query.never)
    return " ".join(filter(None, (query.query, only, *never)))


def _fill_query(text: str, query: str) -> str:
    return text.replace("{count}", str(SEARCH_RESULT_COUNT)).replace("{query}", query)


def _parse_search_hits(at: SearchEndpoint, body: bytes) -> list[SearchHit]:
    """Parse the results in a search endpoint's answer."""
    try:
        found = _value_at_path(msgspec.json.decode(body), at.results)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise OSError("the search endpoint returned invalid JSON") from None
    if found is None:
        raise OSError(f"the search endpoint returned no list at {at.results!r}")
    shown = (at.link, at.title, at.text, at.date)
    hits = [
        SearchHit(*(as_string(_value_at_path(row, name)) for name in shown))
        for row in as_list(found)
    ]
    return [hit for hit in hits if re.match("https?://", hit.url)]


def _value_at_path(value: object, path: str) -> object:
    """Return the value at a dotted path of the search endpoint's answer, as in `web.results`."""
    for name in path.split("."):
        value = as_object(value).get(name)
    return value


def _is_on_wanted_host(hit: SearchHit, query: SearchQuery) -> bool:
    among = any(rule_mentions_url(f"domain:{host}", hit.url) for host in query.only)
    return among or not query.only
