"""Counting tokens: the provider's own count, and an estimate for what came after it (T1-T5).

The estimate is linear in counts of byte shapes, with runs of one character apart. Letters, digits,
signs, indentation and lines were fitted on the real usage of recorded sessions; what these hold too
little of (runs, rules, other alphabets, numbers between spaces) was set by public vocabularies.
`python -m bench tokens` fits again and states the error by source and by kind of content
(docs/decisions/0028). What a model counts more or less is learned from its replies as one ratio.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Text, calls
from travois.core.facts import Assistant, Epoch, Result, User
from travois.core.models import Model, Protocol
from travois.core.view import Item, View

BYTES_PER_TOKEN = 3.03
"""For bodies of which only the size is known: 14% mean error, half of it in JSON's own marks."""
WEIGHTS = {
    b"a": 0.25,  # lower case
    b"A": 0.47,  # upper case
    b"0": 0.73,  # digits
    b"p": 0.64,  # all other visible ASCII
    b"y": 0.42,  # bytes of a character after its first
    b"g": 0.42,  # first bytes of Greek, Hebrew and other small alphabets
    b"r": 0.28,  # first bytes of Arabic
    b"e": 0.80,  # first bytes of emoji
    b"n": 0.08,  # line ends, however many in a row
    b"t": 0.08,  # tabs
    b"  ": 0.24,  # indentation; a single space belongs to the word after it
    b"aA": 0.42,  # names
    b"pppp": -1.10,  # signs that stand together are often one token
    b" " * 16: -1.65,  # and so is deep indentation
}
PER_MIX = 0.42
"""Tokens per digit beside a letter: hashes, base64."""
PER_NUMBER = 0.28
"""Tokens per space beside a digit: it belongs to no number."""
PER_LINE = 1.70
"""Extra tokens per line end; blank lines after it belong to it."""
ALL_WEIGHTS = (*WEIGHTS.values(), PER_MIX, PER_NUMBER, PER_LINE, 1.0)
LINE_END = re.compile(rb"n[n t]*")
PER_RUN = 0.60
"""Extra tokens per run of sixteen or more equal bytes."""
RATES = {
    b".-=_*#~+/%": 0.02,  # rules and progress
    b"!:;<>@^'": 0.12,
    b"$()?\\": 0.20,
    b'[]{}&|,`"': 0.40,
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ": 0.30,
}
"""Tokens per byte of a run: long ones are single entries of every vocabulary."""
ASCII_RULES = {b"=-=-=-=-": 0.08, b"+-+-+-+-": 0.08}
DRAWN_RULES = {
    sign.encode() * 4: rate
    for sign, rate in {"─": 0.04, "━": 0.12, "═": 0.06, "—": 0.04, "█": 0.08}.items()
}
"""Other repetitions that vocabularies hold, and their tokens per byte."""
REMEMBERED = 1 << 18
"""Texts of up to this length are weighed once while they are in use."""
PER_CALL = 36
PER_RESULT = 35
"""Tokens that a provider adds to a call and to its result; fitted as their sum."""
PER_MEDIA = 2_000
FAMILIES = ((re.compile(r"claude-[a-z]+-5\b"), 1.27), (re.compile(r"gpt|codex|\bo\d"), 0.78))
"""Tokens that the newest Claude and OpenAI models count per estimated token (recorded usage)."""
STEPS = 16
PRIOR = 4_000
"""The weight of the family's ratio, in estimated tokens, against measured replies."""
BELIEVED = (0.5, 2.5)
"""A step outside this range tells of an edited history, not of a tokenizer."""
RESERVE = 20_000
BUFFER = 13_000
LARGE = 128_000
"""Windows from here on can afford the whole buffer; size is checked before each request anyway."""
WARNING = 20_000
STOP = 3_000


def _shape(byte: int) -> str:
    """Return the class of a byte: its sign in `SHAPE_WEIGHTS`, or one that is free by itself."""
    if byte >= 0x80:
        return next(sign for least, sign in LEADS if byte >= least)
    sign = chr(byte)
    if sign.isalnum():
        return "0" if sign.isdigit() else "a" if sign.islower() else "A"
    return {"\n": "n", "\r": "n", " ": " ", "\t": "t"}.get(sign, "p")


LEADS = (
    *((0xF0, "e"), (0xE0, "x"), (0xD8, "r"), (0xD2, "g")),
    *((0xD0, "x"), (0xC4, "g"), (0xC0, "x"), (0x80, "y")),  # Cyrillic and accents cost no more
)
SHAPES = "".join(map(_shape, range(256))).encode()
RUN = re.compile(rb"\0" * 15 + rb"\0*")
"""Equal neighbours. Spelt out, since `re` looks for a literal five times as fast."""
LONG = (b"p" * 16, b"0" * 16, b"A" * 16)
"""Without one of these there is no run to speak of, which is quickly seen."""
SPACES = bytes(sign == ord(" ") for sign in range(256))
MIXED = (ord("a") ^ ord("0"), ord("A") ^ ord("0"))
NUMBER = ord(" ") ^ ord("0")
PLAIN = tuple(shape for shape in WEIGHTS if shape not in b"ygre")
"""The shapes that ASCII has."""
RATE = {sign: rate for signs, rate in RATES.items() for sign in signs}


def shapes(text: str) -> tuple[float, ...]:
    """Count shapes of `SHAPE_WEIGHTS`, mixes and lines outside runs; last, the runs' tokens."""
    data = text.encode(errors="surrogatepass")
    shaped = data.translate(SHAPES)
    counts, present = dict.fromkeys(WEIGHTS, 0.0), PLAIN if text.isascii() else tuple(WEIGHTS)
    counts.update(zip(present, map(shaped.count, present), strict=True))
    tokens = 0.0
    for byte, length in _runs(data) if any(map(shaped.__contains__, LONG)) else ():
        tokens += PER_RUN + length * RATE[byte]
        shape = SHAPES[byte : byte + 1]
        counts[shape] -= length
        if shape == b"p":
            counts[b"pppp"] -= length // 4
    for rule, rate in ASCII_RULES.items():
        if found := data.count(rule):
            tokens += found * len(rule) * rate
            counts[b"p"] -= found * len(rule)
            counts[b"pppp"] -= found * len(rule) // 4
    for rule, rate in DRAWN_RULES.items() if b"xyy" * 4 in shaped else ():
        found = data.count(rule)
        tokens += found * len(rule) * rate
        counts[b"y"] -= found * len(rule) * 2 / 3
    neighbours = _differences(shaped).to_bytes(len(data), "little")
    mixed = sum(map(neighbours.count, MIXED))
    lines = len(LINE_END.findall(shaped))
    return (*counts.values(), mixed, neighbours.count(NUMBER), lines, tokens)


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield each byte of `RATES_BY_BYTES` in a run of sixteen or more, and the run's length."""
    spaces = int.from_bytes(data.translate(SPACES), "little")
    equal = (_differences(data) | spaces).to_bytes(len(data), "little")
    for found in RUN.finditer(equal):
        if (byte := data[found.start()]) in RATE:
            yield byte, min(found.end() + 1, len(data)) - found.start()


def _differences(data: bytes) -> int:
    """Return each byte xor the next, all at once: equal neighbours give zero."""
    number = int.from_bytes(data, "little")
    return number ^ number >> 8


def estimate(text: str) -> int:
    """Estimate the tokens of a text; at least one unless it is empty."""
    return _weigh(text) if len(text) <= REMEMBERED else _weigh.__wrapped__(text)


@lru_cache(512)
def _weigh(text: str) -> int:
    weighed = zip(ALL_WEIGHTS, shapes(text), strict=True)
    return max(round(sum(weight * count for weight, count in weighed)), 1 if text else 0)


def block_tokens(block: AnyBlock) -> int:
    """Estimate the tokens of a block."""
    match block:
        case Text():
            return estimate(block.text)
        case Media():
            return PER_MEDIA
        case Call():
            return estimate(block.name + block.args) + PER_CALL
        case Opaque():
            return estimate(block.raw)


def fact_tokens(fact: User | Assistant | Result) -> int:
    """Estimate the tokens of a message."""
    wrapped = PER_RESULT if isinstance(fact, Result) else 0
    return wrapped + sum(block_tokens(block) for block in fact.content)


def head_tokens(epoch: Epoch) -> int:
    """Estimate the tokens of the frozen head."""
    tools = sum(estimate(t.name + t.description + t.schema) for t in epoch.tools)
    return estimate(epoch.system) + tools


def context_tokens(view: View) -> int:
    """Return the used window: the last reply's usage plus an estimate of what followed."""
    if view.omitted:
        return round(view.omitted_chars / BYTES_PER_TOKEN)
    last = view.items[view.counted].fact if view.counted >= 0 else None
    if isinstance(last, Assistant) and last.usage.context:
        return last.usage.context + _scaled(view, _sum(view.items[view.counted + 1 :]))
    head = head_tokens(view.epoch) if view.epoch else 0
    return _scaled(view, head + _sum(view.items) - _left_out(view))


def ratio(view: View) -> float:
    """Return the tokens that the current model counts for one estimated token.

    It begins at the family's ratio and is drawn to what the last replies measured.
    """
    usual = family(view.epoch.model.id) if view.epoch else 1.0
    measured, estimated = usual * PRIOR, float(PRIOR)
    for counted, guessed in _steps(view):
        if BELIEVED[0] * guessed <= counted <= BELIEVED[1] * guessed:
            measured, estimated = measured + counted, estimated + guessed
    return measured / estimated


def family(model: str) -> float:
    """Return the usual ratio of models with this name."""
    return next((usual for name, usual in FAMILIES if name.search(model)), 1.0)


def _steps(view: View) -> Iterator[tuple[int, int]]:
    """Yield the counted and the estimated growth between the current model's last replies."""
    later, steps = -1, 0
    for index in range(len(view.items) - 1, -1, -1):
        item = view.items[index]
        if item.seq < view.since or steps == STEPS:
            return
        if not isinstance(item.fact, Assistant):
            continue
        after = view.items[later].fact if later >= 0 else None
        if isinstance(after, Assistant) and _counts(item.fact) and _counts(after):
            steps += 1
            grown = after.usage.prompt - item.fact.usage.context
            yield grown, _sum(view.items[index + 1 : later])
        later = index


def _counts(reply: Assistant) -> bool:
    return reply.usage.context > 0 and not reply.usage.estimated


def _sum(items: list[Item]) -> int:
    return sum(fact_tokens(item.fact) for item in items)


def _left_out(view: View) -> int:
    """Estimate the tokens that the provider clears, less the texts shown instead."""
    if not view.cleared:
        return 0
    gone = (
        i.fact for i in view.items if isinstance(i.fact, Result) and i.fact.call in view.cleared
    )
    results = sum(max(0, fact_tokens(fact) - 2 * PER_RESULT) for fact in gone)
    replies = (i.fact for i in view.items if isinstance(i.fact, Assistant))
    made = (c for reply in replies for c in calls(reply.content) if c.id in view.cleared_inputs)
    return results + sum(estimate(call.args) for call in made)


def _scaled(view: View, tokens: int) -> int:
    return round(tokens * ratio(view)) if tokens else 0


def in_thousands(tokens: int) -> str:
    """Write a number of tokens for people: 940, 7.7k, 48k."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 10_000 else f"{round(tokens / 1_000):,}k"


def effective_window(model: Model) -> int:
    """Return the window that a conversation may fill, with room for the reply."""
    return model.window - min(model.output, RESERVE, model.window // 4)


def compact_at(model: Model) -> int:
    """Return the size at which automatic compaction starts."""
    if model.window >= LARGE:
        return effective_window(model) - BUFFER
    return min(effective_window(model), stop_at(model)) - model.window // 32


def warn_at(model: Model) -> int:
    """Return the size at which the user is warned."""
    return compact_at(model) - min(WARNING, model.window // 6)


def stop_at(model: Model) -> int:
    """Return the size beyond which nothing is sent."""
    return model.window - min(STOP, model.window // 20)


# What one request may hold: tokens, bytes and media, each with its own limit.


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
    """The size of a request in each measure that a provider limits."""

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
        """The measures in which the size is negative."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) < 0)


def allowed(model: Model) -> Budget:
    """Return the largest request that this model takes."""
    media = MEDIA if model.images else 0
    return Budget(stop_at(model), BYTES[model.protocol] - MARGIN, media, MEDIA_BYTES)


def used(view: View) -> Budget:
    """Measure the next request."""
    epoch, blocks = view.epoch, [b for item in view.items for b in item.fact.content]
    media = [block for block in blocks if isinstance(block, Media)]
    head = [epoch.system, *(t.description + t.schema for t in epoch.tools)] if epoch else []
    size = sum(map(_bytes, blocks)) + sum(int(_length(text) * ESCAPED) for text in head)
    travelling = sum(int(block.size * AS_TEXT) for block in media)
    return Budget(context_tokens(view), size, len(media), travelling)


def room(view: View) -> Budget:
    """Return the room left in the next request; negative where it holds too much."""
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
