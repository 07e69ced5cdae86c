"""What one request may hold: tokens, bytes and media, each with its own limit."""

from __future__ import annotations

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Text
from travois.core.models import Model, Protocol
from travois.core.tokens import context_tokens, stop_at
from travois.core.view import View

BYTES: dict[Protocol, int] = {
    "anthropic": 32 << 20,
    "chat": 50 << 20,
    "responses": 50 << 20,
    "gemini": 20 << 20,
    "ollama": 50 << 20,
}
"""The largest body that a provider takes, by protocol."""
MARGIN = 1 << 20
MEDIA = 100
MEDIA_BYTES = 20 << 20
AS_TEXT = 4 / 3
"""Media travel as base64."""
ESCAPED = 1.1
"""Text travels as JSON: quotes, line ends and backslashes grow."""


class Budget(msgspec.Struct, frozen=True):
    """An amount of each of the things that a request is limited in."""

    tokens: int = 0
    bytes: int = 0
    media: int = 0
    media_bytes: int = 0

    def __sub__(self, other: Budget) -> Budget:
        return Budget(
            tokens=self.tokens - other.tokens,
            bytes=self.bytes - other.bytes,
            media=self.media - other.media,
            media_bytes=self.media_bytes - other.media_bytes,
        )

    @property
    def short(self) -> tuple[str, ...]:
        """What there is too little of."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) < 0)


def allowed(model: Model) -> Budget:
    """What a request to this model may hold."""
    media = MEDIA if model.images else 0
    return Budget(stop_at(model), BYTES[model.protocol] - MARGIN, media, MEDIA_BYTES)


def used(view: View) -> Budget:
    """What the next request would hold."""
    epoch, blocks = view.epoch, [b for item in view.items for b in item.fact.content]
    media = [block for block in blocks if isinstance(block, Media)]
    head = [epoch.system, *(t.description + t.schema for t in epoch.tools)] if epoch else []
    size = sum(map(_bytes, blocks)) + sum(int(_length(text) * ESCAPED) for text in head)
    travelling = sum(int(block.size * AS_TEXT) for block in media)
    return Budget(context_tokens(view), size, len(media), travelling)


def room(view: View) -> Budget:
    """What the next request could still take in; below zero where it holds too much."""
    assert view.epoch is not None
    return allowed(view.epoch.model) - used(view)


def _bytes(block: AnyBlock) -> int:
    match block:
        case Text():
            return int(_length(block.text) * ESCAPED)
        case Media():
            return int(block.size * AS_TEXT)
        case Call():
            return _length(block.args)
        case Opaque():
            return _length(block.raw)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
