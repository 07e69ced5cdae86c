"""Content blocks of a message: text, media, tool calls and a provider's own blocks."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

LONG_ARGUMENT_CHARS = 400
"""An argument of more characters is long."""


class Block(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag=str.lower):
    """One part of a message: immutable, and safe to share between views."""


class Text(Block, frozen=True):
    """A block of text."""

    text: str


class Media(Block, frozen=True):
    """An image or a document; its bytes are the blob of that name."""

    kind: Literal["image", "document"]
    mime: str
    blob: str
    size: int
    name: str = ""


class Call(Block, frozen=True):
    """A tool call: `args` is the model's own JSON text, valid or not, and is never rewritten.

    `extra` holds further members of the provider's block as JSON text (`"caller":{...}`), spliced
    back verbatim.
    """

    id: str
    name: str
    args: str
    extra: str = ""


class Opaque(Block, frozen=True):
    """A provider's own block (thinking, server tools, whatever comes next), kept verbatim.

    `raw` is its JSON text; only the protocol that made it sends it back. `text` is what a person
    may read of it.
    """

    protocol: str
    kind: str
    raw: str
    text: str = ""


AnyBlock = Text | Media | Call | Opaque
TextOrMedia = Text | Media
"""The blocks that tools and people may write."""


def extract_calls(content: tuple[AnyBlock, ...]) -> tuple[Call, ...]:
    """Return the tool calls among these content blocks, in order."""
    return tuple([block for block in content if isinstance(block, Call)])


def extract_text(content: tuple[AnyBlock, ...]) -> str:
    """Return the plain text of these content blocks, joined by line breaks."""
    return "\n".join(block.text for block in content if isinstance(block, Text))


def shorten_arguments(args: str, text: str) -> str:
    """Replace each long argument of a tool call by a text; leave invalid JSON unchanged."""
    try:
        value: object = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return args
    return msgspec.json.encode(_shorten_value(value, text)).decode()


def _shorten_value(value: object, text: str) -> object:
    """Replace long strings in a tool call's argument by a text, at any depth."""
    match value:
        case str():
            return text if len(value) > LONG_ARGUMENT_CHARS else value
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return {key: _shorten_value(one, text) for key, one in pairs}
        case list():
            return [_shorten_value(one, text) for one in cast("list[object]", value)]
        case _:
            return value
