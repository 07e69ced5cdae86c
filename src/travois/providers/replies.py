"""Model replies: stream deltas, the finished reply, and `ApiError` for failed requests."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.content import AnyBlock, Call
from travois.core.facts import Assistant, StopReason
from travois.core.models import Usage
from travois.core.tokens import BYTES_PER_TOKEN, block_tokens
from travois.core.view import View
from travois.providers.web_search import SearchHit


class ReplyBegan(msgspec.Struct, frozen=True):
    """The start of a reply; `usage` is what the provider knows so far."""

    id: str
    model: str
    usage: Usage = Usage()


BlockKind = Literal["text", "thinking", "call", "other"]


class BlockBegan(msgspec.Struct, frozen=True):
    """The start of block `index`; `id` and `name` belong to a tool call."""

    index: int
    kind: BlockKind
    id: str = ""
    name: str = ""


class Grew(msgspec.Struct, frozen=True):
    """Text added to block `index`; for a tool call, a piece of its arguments."""

    index: int
    kind: BlockKind
    text: str


class BlockEnded(msgspec.Struct, frozen=True):
    """The end of block `index`."""

    index: int


StreamDelta = ReplyBegan | BlockBegan | Grew | BlockEnded


class Reply(msgspec.Struct, frozen=True):
    """A complete model reply; a partial one is never stored as this."""

    content: tuple[AnyBlock, ...]
    stop: StopReason
    usage: Usage
    id: str = ""
    model: str = ""
    detail: str = ""
    """Why it stopped, in the provider's words, where it said more than a stop reason."""
    request: str = ""
    """The provider's request id, for its support."""
    left_out: int = 0
    """The number of old tool results that the provider reports as cleared."""
    hits: tuple[SearchHit, ...] = ()
    """The hits of the provider's own web search, and the pages that the text cites."""


ApiErrorKind = Literal[
    "overflow",  # the prompt is too long; `limit` and `tokens` where the provider told
    "output",  # max_tokens is beyond what the model allows; `limit` where told
    "rate",  # too many requests for now
    "quota",  # no money or no plan: waiting does not help
    "overloaded",
    "server",
    "network",  # could not connect, or the connection broke
    "timeout",  # connect, first byte or silence between events
    "garbled",  # the stream ended early or made no sense
    "auth",
    "billing",
    "forbidden",
    "missing",  # no such model
    "large",  # the body is too big in bytes
    "bound",  # a thinking block is bound to another history
    "thinking",  # thinking blocks were changed
    "pairing",  # tool calls and results do not match
    "field",  # the server does not know `field`
    "beta",  # the server does not know the beta `field`
    "media",  # an image or document was refused
    "invalid",  # any other refusal of the request
]

RETRYABLE_KINDS: frozenset[ApiErrorKind] = frozenset(
    ("rate", "overloaded", "server", "network", "timeout", "garbled")
)


class ApiError(Exception):
    """A failed model request: its kind, its message, and whether to retry."""

    def __init__(
        self,
        kind: ApiErrorKind,
        message: str,
        *,
        status: int = 0,
        wait: float | None = None,
        retry: bool | None = None,
        tokens: int = 0,
        limit: int = 0,
        field: str = "",
        request: str = "",
        refused: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ApiErrorKind = kind
        self.message = message
        self.status = status
        self.wait = wait
        """Seconds the server asked us to wait."""
        self.retry = kind in RETRYABLE_KINDS if retry is None else retry
        self.tokens = tokens
        self.limit = limit
        self.field = field
        self.request = request
        self.refused = refused
        """Whether nobody listens at an address of this machine."""


def build_assistant_fact(view: View, reply: Reply) -> Assistant:
    """Build the log fact of a model reply, without calls that were cut off or refused."""
    content, detail, stop = reply.content, reply.detail, reply.stop
    if stop in ("length", "window") and content and isinstance(content[-1], Call):
        content, detail = content[:-1], "call"
    if stop == "refusal":
        content = tuple(block for block in content if not isinstance(block, Call))
    if stop == "pause" and not content:
        stop = "end"  # nothing to go on from: the same request would pause for ever
    return Assistant(
        content=_make_call_ids_unique(view, content),
        stop=stop,
        usage=reply.usage,
        model=reply.model,
        id=reply.id,
        request=reply.request,
        detail=detail,
    )


def _make_call_ids_unique(view: View, content: tuple[AnyBlock, ...]) -> tuple[AnyBlock, ...]:
    """Make the tool call IDs of a model reply unique within the session.

    Local servers number the calls of each reply from zero; providers refuse repeated IDs.
    """
    used: set[str] = set()
    return tuple(_rename_call(block, view.ids, used) for block in content)


def _rename_call(block: AnyBlock, taken: set[str], used: set[str]) -> AnyBlock:
    """Give a reply's tool call another ID if its own is missing or used in the session."""
    if not isinstance(block, Call):
        return block
    id, number = block.id or "call_0", len(taken)
    while id in taken or id in used:
        number += 1
        id = f"{block.id or 'call'}_{number}"
    used.add(id)
    return block if id == block.id else replace(block, id=id)


# Counts of tokens, where servers give them and where they do not.


def estimate_reply_usage(content: tuple[AnyBlock, ...], *, size: int) -> Usage:
    """Estimate a reply's token usage from the request's bytes; zero if those are unknown."""
    if not size:
        return Usage(estimated=True)
    return Usage(
        input=round(size / BYTES_PER_TOKEN),
        output=sum(block_tokens(block) for block in content),
        estimated=True,
    )
