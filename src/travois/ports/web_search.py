"""The port of web search."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from travois.providers.web_search import SearchHit


class SearchQuery(msgspec.Struct, frozen=True):
    """A web search query, with the hosts to include or exclude."""

    query: str
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


class SearchResults(msgspec.Struct, frozen=True):
    """Search results, and a model's summary of them."""

    hits: tuple[SearchHit, ...]
    said: str = ""


WebSearch = Callable[[SearchQuery], Awaitable[SearchResults]]
"""Raises OSError, in words."""
