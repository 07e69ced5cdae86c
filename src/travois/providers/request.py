"""Model requests as parts that are serialised once, so that a prefix stays byte-identical."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from travois.core.content import Call, extract_calls
from travois.core.facts import Assistant
from travois.core.view import ViewItem

Headers = tuple[tuple[str, str], ...]


class RequestPart(NamedTuple):
    """A cacheable part of a request, in cache order, as its final bytes.

    For Anthropic a piece is one content block (or tool, or system block); for chat completions it
    is one message. `markable` says whether the provider takes a cache marker on it.
    """

    role: str
    data: bytes
    markable: bool = False


class Request(msgspec.Struct, frozen=True):
    """A request ready to send, except for the base URL and the API key."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    pieces: int
    chain: str
    """The digest of all pieces in order: request n is a prefix of request n+1 iff chains agree."""
    digest: str
    """The digest of the whole body, markers included."""


def find_call_of_result(items: Sequence[ViewItem], index: int, id: str) -> Call:
    """Find the call that the result at this index answers."""
    replies = (i.fact for i in reversed(items[:index]) if isinstance(i.fact, Assistant))
    made = (call for reply in replies for call in extract_calls(reply.content))
    return next((call for call in made if call.id == id), Call(id, "", "{}"))


class PrefixBreak(AssertionError):
    """A request that does not extend the one before it, though nothing moved the prefix."""


class RequestHead(msgspec.Struct, frozen=True):
    """Everything before and after the messages, shared by all requests of an epoch."""

    path: str
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[RequestPart, ...]
    """The tools, then the system text."""
    opening: bytes
    closing: bytes
    marker: bytes = b""
    """The cache marker, before the closing brace of a part; empty if there are no markers."""
    role: str = ""
    """The role of the message that the opening already ends with, if any."""


class ProtocolEncoder(Protocol):
    """An encoder of views for one provider format and one epoch."""

    head: RequestHead
    close: bytes
    """The bytes that end the last message."""

    def encode_item(
        self, items: Sequence[ViewItem], index: int, *, before: str
    ) -> Iterable[RequestPart]:
        """Encode item `index` as parts; `before` is the role of the part before them.

        Only what stands before the item may matter, or that it is the last of its batch.
        """
        ...

    def encode_separator(self, before: str, role: str) -> bytes:
        """Return the bytes between a part and the one before it."""
        ...
