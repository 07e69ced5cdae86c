"""Model requests as parts that are serialised once, so that a prefix stays byte-identical."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol, assert_never

import msgspec
from msgspec.structs import replace

from travois.core.content import AnyBlock, Call, Media, Opaque, Text, extract_calls
from travois.core.facts import Assistant
from travois.core.json import encode_utf8
from travois.core.models import Effort, ModelCard
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
    """Return the tool call that the result at this index answers."""
    replies = (i.fact for i in reversed(items[:index]) if isinstance(i.fact, Assistant))
    made = (call for reply in replies for call in extract_calls(reply.content))
    return next((call for call in made if call.id == id), Call(id, "", "{}"))


class PrefixBreak(AssertionError):
    """A request that does not extend the last one, though no fact moved the prefix."""


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


EFFORT_LEVELS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
EFFORT_BY_THINKING_TOKENS: tuple[tuple[int, Effort], ...] = (
    (8_000, "low"),
    (16_000, "medium"),
    (32_000, "high"),
)
"""Below how many tokens of thinking, where somebody counts in these, which effort is meant."""
EFFORT_FIELD_NAMES = (
    "effort",
    "outputconfig",
    "reasoning",
    "think",
    "thinkingconfig",
    "thinkinglevel",
)
"""The names of the effort field in servers' error messages."""


def is_effort_field(field: str) -> bool:
    """Return whether a request field that the provider rejected is the reasoning effort."""
    bare = field.rpartition(".")[2].lower().replace("_", "").replace(" ", "")
    return bare.removeprefix("reasoning") in ("", *EFFORT_FIELD_NAMES) and bool(bare)


def effort_for_thinking_tokens(tokens: int) -> Effort:
    """Return the request's effort nearest to a thinking budget in tokens."""
    for most, level in EFFORT_BY_THINKING_TOKENS:
        if tokens < most:
            return level
    return "max"


def encode_closing_options(model: ModelCard) -> bytes:
    """Encode the end of a request body: the effort and the model's extra members."""
    return encode_effort(model) + (b"," + encode_utf8(model.params) if model.params else b"")


def encode_effort(model: ModelCard) -> bytes:
    """Encode a request's effort member, after a comma; empty if none was chosen."""
    if not model.effort:
        return b""
    most = "high" if model.effort in ("xhigh", "max") else model.effort
    match model.protocol:
        case "anthropic":
            return b',"output_config":{"effort":"%s"}' % model.effort.encode()
        case "responses":
            level = "xhigh" if model.effort == "max" else model.effort
            return b',"reasoning":{"effort":"%s"}' % level.encode()
        case "chat":
            return b',"reasoning_effort":"%s"' % most.encode()
        case "gemini":
            return b',"thinkingConfig":{"thinkingLevel":"%s"}' % most.encode()
        case "ollama":
            return b',"think":"%s"' % most.encode()
        case _:
            assert_never(model.protocol)


# A request that asks for a shorter reply than its model could give.


OUTPUT_LIMIT_MEMBER = re.compile(
    rb'("(?:max_(?:completion_|output_)?tokens|maxOutputTokens|num_predict)":)(\d+)'
)
"""The reply limit in a body: it stands before any text of the conversation."""


def limit_reply_tokens(request: Request, output: int) -> Request:
    """Return the request with its reply limited to so many tokens; 0 leaves it unchanged.

    The limit is not part of what a provider caches.
    """
    if not output:
        return request
    said = blake2b(f"{request.digest} {output}".encode(), digest_size=16)
    body = OUTPUT_LIMIT_MEMBER.sub(rb"\g<1>%d" % output, request.body, count=1)
    return replace(request, body=body, digest=said.hexdigest())


# Names that any provider takes, and words where a provider wants some and there are none.


ECHOED_CALL_MEMBER = "extra_content"
"""The member of a call that Google's chat endpoint wants back, and no other may see."""
PROTOCOL_CALL_MEMBERS = frozenset((ECHOED_CALL_MEMBER, "gemini", "responses"))
"""Members of a call that only the protocol that made it may see."""
NO_OUTPUT_TEXT = "(no output)"
EMPTY_MESSAGE_TEXT = "(empty message)"
CONTINUE_TEXT = "(continue)"
STARTED_EARLIER_TEXT = "(This conversation began earlier.)"


def text_of_block(block: AnyBlock) -> str:
    """Return a block's text for a request; another provider's summary replaces the history."""
    if isinstance(block, Opaque):
        return block.text if block.kind in ("compaction", "text") else ""
    return block.text if isinstance(block, Text) else ""


def make_legal_call_id(
    id: str, *, legal: str = r"[A-Za-z0-9_-]{1,64}", start: str = "toolu_"
) -> str:
    """Return a tool call ID that the provider accepts: its own, or one derived from it."""
    if re.fullmatch(legal, id):
        return id
    return start + blake2b(encode_utf8(id), digest_size=12).hexdigest()


def make_legal_tool_name(name: str) -> str:
    """Return a tool's name for a request, with characters that are not allowed replaced."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


# Images and documents as a provider takes them, or a line of text where it does not.


IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
PDF_TYPE = "application/pdf"
NOT_SHOWN_REASON = "this model cannot be shown it"


def encode_base64(media: Media, fetch: Callable[[str], bytes]) -> bytes | None:
    """Encode media for a request as base64; None if the bytes are missing or empty."""
    try:
        return b2a_base64(fetch(media.blob), newline=False) or None
    except KeyError:
        return None


def media_or_placeholder(
    media: Media, fetch: Callable[[str], bytes], *, taken: bool = True
) -> bytes | str:
    """Return media for a request as base64, or a placeholder if it cannot be sent."""
    if not taken:
        return media_placeholder(media, NOT_SHOWN_REASON)
    return encode_base64(media, fetch) or media_placeholder(media, "its bytes are lost")


def media_placeholder(media: Media, why: str) -> str:
    """Return the placeholder line in a request for media that is not sent."""
    name = f" {media.name}" if media.name else ""
    return f"[{media.kind}{name}, {media.mime}, {media.size} bytes: {why}]"
