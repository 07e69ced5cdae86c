"""A request as a row of pieces, each serialised once and never again."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Piece(NamedTuple):
    """One cacheable unit of a request, in cache order, as its final bytes.

    For Anthropic a piece is one content block (or tool, or system block); for chat completions it
    is one message. `markable` says whether the provider takes a cache marker on it.
    """

    role: str
    data: bytes
    markable: bool = True


class Request(msgspec.Struct, frozen=True):
    """One request, ready to leave: everything but where it goes and with which key."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    pieces: int
    chain: str
    """The digest of all pieces in order: request n is a prefix of request n+1 iff chains agree."""
    digest: str
    """The digest of the whole body, markers included."""


class PrefixBreak(AssertionError):
    """A request does not begin with the one before it, though nothing moved the prefix."""
