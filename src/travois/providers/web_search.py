"""Web search by the model's provider: the request members, and the results in its replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from travois.core.content import AnyBlock, Opaque
from travois.core.json import as_list, as_object, as_string
from travois.core.models import ApiProtocol

MAX_SEARCHES = 5
"""The most searches of a model before it answers."""


class SearchHit(msgspec.Struct, frozen=True):
    """A page that a search found."""

    url: str
    title: str = ""
    text: str = ""
    date: str = ""


def encode_web_search_tool(
    protocol: ApiProtocol, tool: str, *, only: tuple[str, ...], never: tuple[str, ...]
) -> str:
    """Encode the request members that let a provider's model search the web."""
    asked: dict[str, object]
    match protocol:
        case "anthropic":
            limits = {"allowed_domains": only} if only else {"blocked_domains": never}
            kept = {name: hosts for name, hosts in limits.items() if hosts}
            asked = {
                "tools": [{"type": tool, "name": "web_search", "max_uses": MAX_SEARCHES, **kept}]
            }
        case "responses":
            filters = {"filters": {"allowed_domains": only}} if only else {}
            asked = {"tools": [{"type": tool, **filters}]}
        case "gemini":
            asked = {"tools": [{tool: {}}]}
        case "chat" | "ollama":
            asked = {"plugins": [{"id": tool}]}
    return msgspec.json.encode(asked).decode()[1:-1]


def merge_hits(hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
    """Merge web search results so that each page appears once, with all its texts."""
    found: dict[str, SearchHit] = {}
    for hit in hits:
        known = found.get(hit.url, hit)
        more = known.text and hit.text not in known.text
        text = f"{known.text} … {hit.text}" if more else known.text or hit.text
        found[hit.url] = SearchHit(hit.url, known.title or hit.title, text, known.date or hit.date)
    return tuple(hit for hit in found.values() if hit.url)


def collect_anthropic_hits(content: Iterable[AnyBlock]) -> Iterator[SearchHit]:
    """Collect the web search results and citations in Anthropic's reply blocks."""
    for block in content:
        if not isinstance(block, Opaque) or block.kind not in ("text", "web_search_tool_result"):
            continue
        said = as_object(msgspec.json.decode(block.raw))
        for row in map(as_object, (*as_list(said.get("content")), *as_list(said.get("citations")))):
            yield _hit_of_row(row, text=row.get("cited_text"), date=row.get("page_age"))


def collect_annotation_hits(parts: Iterable[object]) -> Iterator[SearchHit]:
    """Collect the web search citations in message annotations, in OpenAI's format."""
    for part in map(as_object, parts):
        for note in map(as_object, as_list(part.get("annotations"))):
            inside = as_object(note.get("url_citation")) or note
            yield _hit_of_row(inside, text=inside.get("content"))


def collect_grounding_hits(metadata: dict[str, Any]) -> Iterator[SearchHit]:
    """Collect the web search sources in Gemini's grounding metadata."""
    chunks = [
        as_object(as_object(row).get("web")) for row in as_list(metadata.get("groundingChunks"))
    ]
    yield from (_hit_of_row({**chunk, "url": chunk.get("uri")}) for chunk in chunks)
    for support in map(as_object, as_list(metadata.get("groundingSupports"))):
        text = as_object(support.get("segment")).get("text")
        for number in as_list(support.get("groundingChunkIndices")):
            if isinstance(number, int) and number < len(chunks):
                yield SearchHit(as_string(chunks[number].get("uri")), text=as_string(text))


def _hit_of_row(row: dict[str, Any], *, text: object = "", date: object = "") -> SearchHit:
    """Build a web search result from one row of a provider's reply."""
    return SearchHit(
        as_string(row.get("url")), as_string(row.get("title")), as_string(text), as_string(date)
    )
