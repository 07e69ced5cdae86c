"""What requests cost under the rules of the fidelity probe: a prefix cache with a short life."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from travois_lab.editing import edit
from travois_lab.profiles import Profile

CHARS = 2.75
"""Characters per token, measured on recorded calls."""
HEAD = 20_000
"""The tokens of system text and tools."""
TTL = 300.0
READ, WRITE, OUTPUT = 0.1, 1.25, 5.0
EDITING = b'"context_management"'
"""What a request has that tells the provider to leave out old results."""


def tokens(text: str) -> int:
    """The size of a block on the bill."""
    return int(len(text) / CHARS) + 1


class Seen(msgspec.Struct, frozen=True):
    """A request as the model sees it: the head, and the text of each block."""

    head: bytes
    texts: tuple[str, ...]
    left_out: int = 0
    """How many results the provider left out, as it was told to."""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"")
    content: str | list[_Block] = ""


class _Message(msgspec.Struct):
    content: list[_Block]


class _Body(msgspec.Struct):
    messages: list[_Message]
    system: msgspec.Raw = msgspec.Raw(b"")
    tools: msgspec.Raw = msgspec.Raw(b"")


_DECODER = msgspec.json.Decoder(_Body)


def seen(body: bytes) -> Seen:
    """What a request shows to the model, cache markers left aside."""
    body, gone = edited(body) if EDITING in body else (body, 0)
    found = _DECODER.decode(body)
    texts = tuple(_text(block) for message in found.messages for block in message.content)
    return Seen(bytes(found.system) + bytes(found.tools), texts, gone)


def edited(body: bytes) -> tuple[bytes, int]:
    """A request after what it tells the provider to leave out, and how many results that were."""
    done = edit(json.loads(body), Profile("recorded"))
    gone = sum(int(one.get("cleared_tool_uses", 0)) for one in done.applied)
    # Written as the recorded arguments are, so that only what is left out differs from before.
    return json.dumps(done.body, ensure_ascii=False).encode(errors="surrogatepass"), gone


def _text(block: _Block) -> str:
    match block.type:
        case "tool_use":
            return f"{block.name} {bytes(block.input).decode()}"
        case "tool_result" if isinstance(block.content, str):
            return block.content
        case "tool_result":
            return "\n".join(map(_text, block.content))
        case "thinking":
            return block.thinking
        case _:
            return block.text


class Bill:
    """The sum over the requests of one session."""

    def __init__(self, window: int) -> None:
        self.calls = self.read = self.write = self.breaks = self.over = self.largest = 0
        self.asides = 0
        self.extra = 0.0
        self._window = window
        self._last: Seen | None = None
        self._at = self._size = 0.0

    @property
    def billed(self) -> float:
        return self.read * READ + self.write * WRITE + self.extra

    def charge(self, request: Seen, *, at: float) -> tuple[int, int]:
        """Bill one request; returns what it read from the cache, and the rest."""
        sizes = [tokens(text) for text in request.texts]
        total, hit = HEAD + sum(sizes), 0
        warm = self._last is not None and at - self._at <= TTL
        if warm and self._last is not None and self._last.head == request.head:
            hit = HEAD + sum(sizes[: _common(self._last.texts, request.texts)])
        self.calls += 1
        self.read += hit
        self.write += total - hit
        self.breaks += warm and hit < 0.5 * self._size
        self.over += total > self._window
        self.largest = max(self.largest, total)
        self._last, self._at, self._size = request, at, total
        return hit, total - hit

    def aside(self, request: Seen, *, output: int) -> int:
        """Bill a request beside the conversation, which reads its cache."""
        total = HEAD + sum(map(tokens, request.texts))
        self.asides += 1
        self.extra += total * READ + output * OUTPUT
        return total


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many texts from the start are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
