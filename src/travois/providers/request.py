"""A request as a row of pieces, each serialised once and never again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from travois.core.content import Call, calls
from travois.core.facts import Assistant
from travois.core.view import Item

Headers = tuple[tuple[str, str], ...]


class Piece(NamedTuple):
    """One cacheable unit of a request, in cache order, as its final bytes.

    For Anthropic a piece is one content block (or tool, or system block); for chat completions it
    is one message. `markable` says whether the provider takes a cache marker on it.
    """

    role: str
    data: bytes
    markable: bool = False


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


def asked(items: Sequence[Item], index: int, id: str) -> Call:
    """The call that the result at this place answers."""
    replies = (i.fact for i in reversed(items[:index]) if isinstance(i.fact, Assistant))
    made = (call for reply in replies for call in calls(reply.content))
    return next((call for call in made if call.id == id), Call(id, "", "{}"))


class PrefixBreak(AssertionError):
    """A request does not begin with the one before it, though nothing moved the prefix."""


class Head(msgspec.Struct, frozen=True):
    """What stands before and after the messages in every request of an epoch."""

    path: str
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[Piece, ...]
    """The tools, then the system text."""
    opening: bytes
    closing: bytes
    marker: bytes = b""
    """What goes before the closing brace of a marked piece; empty where markers are not taken."""
    role: str = ""
    """Whose message the opening already ends with, if any."""


class Dialect(Protocol):
    """How one protocol says a view, for one epoch."""

    head: Head
    close: bytes
    """What ends the last message."""

    def pieces(self, items: Sequence[Item], index: int, *, before: str) -> Iterable[Piece]:
        """Item `index` as pieces; `before` is the role of the piece before them.

        Only what stands before the item may matter, or that it is the last of its batch.
        """
        ...

    def glue(self, before: str, role: str) -> bytes:
        """What stands between a piece and the one before it."""
        ...
