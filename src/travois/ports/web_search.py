"""A search of the web as a value: what is wanted, and what was found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from travois.providers.web_search import Hit


class Wanted(msgspec.Struct, frozen=True):
    """What to look for, and on which hosts only or never."""

    query: str
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """The pages, and what a model says that it read there."""

    hits: tuple[Hit, ...]
    said: str = ""


Search = Callable[[Wanted], Awaitable[Found]]
"""Raises OSError, in words."""
