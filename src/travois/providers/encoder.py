"""Encoding a view as a model request, at a cost that depends only on what is new."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from operator import is_
from typing import assert_never

from travois.core.facts import Epoch
from travois.core.legality import find_send_blocker
from travois.core.models import CONTEXT_EDITING_BETA
from travois.core.view import View, ViewItem
from travois.lazy_imports import lazy_imports
from travois.providers.anthropic import add_beta_header, encode_context_edits
from travois.providers.request import PrefixBreak, ProtocolEncoder, Request, RequestPart

with lazy_imports():
    from travois.providers import anthropic, gemini, ollama, openai_chat, openai_responses


DIGEST_BYTES = 16
LARGE_BLOCK_BYTES = 31 << 20


class RequestEncoder:
    """An encoder of views as requests that caches the encoded prefix of the last one."""

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._fetch = fetch
        self._tape: EncodedPrefix | None = None
        _reserve_large_heap_block()

    def fork(self) -> RequestEncoder:
        """Return an encoder without a cached prefix, for a branch of the conversation."""
        return RequestEncoder(self._fetch)

    def build_request(self, view: View) -> Request:
        """Build the request for a view; raises `PrefixBreak` if it does not extend the last one."""
        assert view.epoch is not None and not find_send_blocker(view), find_send_blocker(view)
        tape = self._tape
        # Only facts that move the prefix (a compaction, a cleared result, another model) make it
        # anew. Encoding the whole view each time would cost time that grows with the conversation.
        if tape is None or not tape.is_prefix_of(view):
            tape = EncodedPrefix(
                _create_protocol_encoder(view.epoch, self._fetch), moves=view.moves
            )
        tape.extend(view.items, branch=view.branch)
        _check_prefix_unchanged(view, tape, before=self._tape)
        self._tape = tape
        return tape.assemble_request(view.anchor, edits=encode_context_edits(view))


class EncodedPrefix:
    """The encoded parts of one prefix, joined as they are sent, with a digest after each."""

    def __init__(self, dialect: ProtocolEncoder, *, moves: int) -> None:
        self._dialect = dialect
        self._moves = moves
        self._items: list[ViewItem] = []
        self._data = bytearray()
        self._ends = array("Q")
        self._marks = array("q")
        self._chains = bytearray(DIGEST_BYTES)
        self._role = dialect.head.role
        self._branch = 0
        self._said = _digest_outside_parts(dialect)
        for piece in dialect.head.pieces:
            self._append_part(piece)

    def __len__(self) -> int:
        return len(self._ends)

    def is_prefix_of(self, view: View) -> bool:
        """Return whether this is a prefix of that view, comparing only items not yet sent."""
        count = len(self._items)
        if view.moves != self._moves or count > len(view.items):
            return False
        # Identity is enough: a view keeps the items that it has shown, and items are never
        # changed.
        known = max(0, min(view.seen, count) - 1)
        return all(map(is_, self._items[known:], view.items[known:count]))

    def extend(self, items: list[ViewItem], *, branch: int = 0) -> None:
        """Serialise new items; `branch` is the item up to which forks share the prefix."""
        for index in range(len(self._items), len(items)):
            if items[index].seq == branch:
                self._branch = len(self)
            pieces = list(self._dialect.encode_item(items, index, before=self._role))
            for piece in pieces:
                self._data += self._dialect.encode_separator(self._role, piece.role)
                self._data += piece.data
                self._role = piece.role
                self._append_part(piece)
            self._items.append(items[index])

    def prefix_digest(self, pieces: int) -> str:
        """Return the digest of the first parts; empty if there are fewer."""
        return self._chains[pieces * DIGEST_BYTES : (pieces + 1) * DIGEST_BYTES].hex()

    def assemble_request(self, anchor: int, *, edits: bytes = b"") -> Request:
        """Assemble the request, with cache markers on the newest part and where the cache ends.

        `edits` are further members of the body, which are no pieces: they change no prefix.
        """
        count, head = len(self), self._dialect.head
        # The newest part is marked to be written; the anchor, where the last request ended, to be
        # read: the provider looks back only some 20 blocks from a marker. The branch is where
        # forks diverge.
        marks = {self._last_markable_part(place) for place in (count, anchor, self._branch)}
        spots = sorted(marks - {-1}) if head.marker else []
        said = f"{self._said}{self.prefix_digest(count)}{spots}".encode() + edits
        return Request(
            path=head.path,
            headers=add_beta_header(head.headers, CONTEXT_EDITING_BETA) if edits else head.headers,
            body=self._join_body(spots, head.closing[:-1] + edits + b"}"),
            pieces=count,
            chain=self.prefix_digest(count),
            digest=blake2b(said, digest_size=DIGEST_BYTES).hexdigest(),
        )

    def _join_body(self, spots: list[int], closing: bytes) -> bytes:
        head, data, start = self._dialect.head, memoryview(self._data), 0
        parts: list[bytes | memoryview] = [head.opening]
        for spot in spots:
            end = self._ends[spot] - 1
            parts += (data[start:end], head.marker)
            start = end
        parts += (data[start:], self._dialect.close, closing)
        return b"".join(parts)

    def _append_part(self, piece: RequestPart) -> None:
        # Each digest covers all parts before it, so that one comparison proves a whole prefix.
        link = blake2b(self._chains[-DIGEST_BYTES:], digest_size=DIGEST_BYTES)
        link.update(piece.role.encode() + b"\0")
        link.update(piece.data)
        self._chains += link.digest()
        self._marks.append(len(self) if piece.markable else self._last_markable_part(len(self)))
        self._ends.append(len(self._data))

    def _last_markable_part(self, pieces: int) -> int:
        """Return the last of the first parts that takes a cache marker; -1 if none does."""
        return self._marks[pieces - 1] if 0 < pieces <= len(self._marks) else -1


@cache
def _reserve_large_heap_block() -> None:
    """Free a large heap block first, so that growing request bodies reuse it instead of mmap.

    glibc maps a block that is larger than any freed before afresh, and all its pages fault in,
    which costs 3 ms for 5 MB. Once it has freed a larger one, which was never touched, it takes
    them from the heap.
    """
    bytes(LARGE_BLOCK_BYTES)


def _create_protocol_encoder(epoch: Epoch, fetch: Callable[[str], bytes]) -> ProtocolEncoder:
    """Create the request encoder for the protocol of the epoch's model."""
    protocol = epoch.model.protocol
    match protocol:
        case "anthropic":
            return anthropic.AnthropicEncoder(epoch, fetch)
        case "chat":
            return openai_chat.ChatEncoder(epoch, fetch)
        case "responses":
            return openai_responses.ResponsesEncoder(epoch, fetch)
        case "gemini":
            return gemini.GeminiEncoder(epoch, fetch)
        case "ollama":
            return ollama.OllamaEncoder(epoch, fetch)
        case _:
            assert_never(protocol)


def _digest_outside_parts(dialect: ProtocolEncoder) -> str:
    """Return the digest of a request without its parts and cache markers."""
    head = dialect.head
    parts = (repr((head.path, head.headers)).encode(), head.opening, head.closing, head.marker)
    said = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        said.update(b"%d:" % len(part) + part)
    return said.hexdigest()


def _check_prefix_unchanged(
    view: View, tape: EncodedPrefix, *, before: EncodedPrefix | None
) -> None:
    """Refuse a request that does not extend the last one, unless a fact moved the prefix."""
    sent = view.sent
    if (
        sent is None
        or view.sent_moves != view.moves
        or tape.prefix_digest(sent.pieces) == sent.chain
    ):
        return
    # Sending it anyway would be paid silently: the provider would read everything again.
    counts = range(1, min(sent.pieces, len(before)) + 1) if before else range(0)
    first = next(
        (n for n in counts if before and before.prefix_digest(n) != tape.prefix_digest(n)), 0
    )
    where = f"first at piece {first - 1}" if first else "somewhere"
    raise PrefixBreak(f"the {sent.pieces} pieces of the last request differ {where}")
