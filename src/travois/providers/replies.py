"""What comes back from a model: deltas for the eye, then one reply, or a problem."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.content import AnyBlock, Call
from travois.core.facts import Assistant, Stop
from travois.core.models import Usage
from travois.core.tokens import BYTES_PER_TOKEN, block_tokens
from travois.core.view import View
from travois.providers.web_search import Hit


class Began(msgspec.Struct, frozen=True):
    """The reply has begun; `usage` is what the provider knows so far."""

    id: str
    model: str
    usage: Usage = Usage()


BlockKind = Literal["text", "thinking", "call", "other"]


class BlockBegan(msgspec.Struct, frozen=True):
    """Block `index` of the reply has begun; `id` and `name` are a call's."""

    index: int
    kind: BlockKind
    id: str = ""
    name: str = ""


class Grew(msgspec.Struct, frozen=True):
    """Block `index` grew by this text (for a call: by this piece of its arguments)."""

    index: int
    kind: BlockKind
    text: str


class BlockEnded(msgspec.Struct, frozen=True):
    """Block `index` is whole."""

    index: int


StreamDelta = Began | BlockBegan | Grew | BlockEnded


class Reply(msgspec.Struct, frozen=True):
    """One whole reply; half a reply is never made into one of these."""

    content: tuple[AnyBlock, ...]
    stop: Stop
    usage: Usage
    id: str = ""
    model: str = ""
    detail: str = ""
    """Why it stopped, in the provider's words, where it said more than a stop reason."""
    request: str = ""
    """What the provider calls the request, for its own support."""
    left_out: int = 0
    """How many old results the provider says that it did not show to the model."""
    hits: tuple[Hit, ...] = ()
    """What the provider's own search of the web found, or the words cite."""


ProblemKind = Literal[
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

TRANSIENT: frozenset[ProblemKind] = frozenset(
    ("rate", "overloaded", "server", "network", "timeout", "garbled")
)


class Problem(Exception):
    """Why a request brought no reply, in words and in kind."""

    def __init__(
        self,
        kind: ProblemKind,
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
        self.kind: ProblemKind = kind
        self.message = message
        self.status = status
        self.wait = wait
        """Seconds the server asked us to wait."""
        self.retry = kind in TRANSIENT if retry is None else retry
        self.tokens = tokens
        self.limit = limit
        self.field = field
        self.request = request
        self.refused = refused
        """Whether nobody listens at an address of this machine."""


def as_fact(view: View, reply: Reply) -> Assistant:
    """The reply as a fact, without calls that were cut or refused: those never run."""
    content, detail, stop = reply.content, reply.detail, reply.stop
    if stop in ("length", "window") and content and isinstance(content[-1], Call):
        content, detail = content[:-1], "call"
    if stop == "refusal":
        content = tuple(block for block in content if not isinstance(block, Call))
    if stop == "pause" and not content:
        stop = "end"  # nothing to go on from: the same request would pause for ever
    return Assistant(
        content=_unique(view, content),
        stop=stop,
        usage=reply.usage,
        model=reply.model,
        id=reply.id,
        request=reply.request,
        detail=detail,
    )


def _unique(view: View, content: tuple[AnyBlock, ...]) -> tuple[AnyBlock, ...]:
    """The same blocks, with call ids that this session has not used yet.

    Local servers number the calls of each reply from nought; providers refuse repeated ids.
    """
    used: set[str] = set()
    return tuple(_renamed(block, view.ids, used) for block in content)


def _renamed(block: AnyBlock, taken: set[str], used: set[str]) -> AnyBlock:
    if not isinstance(block, Call):
        return block
    id, number = block.id or "call_0", len(taken)
    while id in taken or id in used:
        number += 1
        id = f"{block.id or 'call'}_{number}"
    used.add(id)
    return block if id == block.id else replace(block, id=id)


# Counts of tokens, where servers give them and where they do not.


def guess(content: tuple[AnyBlock, ...], *, size: int) -> Usage:
    """An estimate for a reply to a request of so many bytes; nothing if the size is not known."""
    if not size:
        return Usage(estimated=True)
    return Usage(
        input=round(size / BYTES_PER_TOKEN),
        output=sum(block_tokens(block) for block in content),
        estimated=True,
    )
