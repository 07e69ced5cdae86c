"""Token counts: the provider's own, and an estimate for what came after it (T1-T5).

The estimate is linear in counts of byte shapes, with runs of one character apart. Letters, digits,
signs, indentation and lines were fitted on the real usage of recorded sessions; what these contain
too little of (runs, rules, other alphabets, numbers between spaces) was set by public vocabularies.
`python -m bench tokens` fits again and states the error by source and by kind of content
(docs/decisions/0028). How much more or less a model counts is learned from its replies as one
ratio.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Text, extract_calls
from travois.core.facts import Assistant, Epoch, Result, User
from travois.core.models import ApiProtocol, ModelCard
from travois.core.view import View, ViewItem

BYTES_PER_TOKEN = 3.03
"""For bodies of which only the size is known: 14% mean error, half of it in JSON's own marks."""
SHAPE_WEIGHTS = {
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
TOKENS_PER_MIX = 0.42
"""Tokens per digit beside a letter: hashes, base64."""
TOKENS_PER_NUMBER = 0.28
"""Tokens per space beside a digit: it belongs to no number."""
TOKENS_PER_LINE = 1.70
"""Extra tokens per line end; blank lines after it belong to it."""
ALL_WEIGHTS = (*SHAPE_WEIGHTS.values(), TOKENS_PER_MIX, TOKENS_PER_NUMBER, TOKENS_PER_LINE, 1.0)
LINE_END = re.compile(rb"n[n t]*")
TOKENS_PER_RUN = 0.60
"""Extra tokens per run of sixteen or more equal bytes."""
RATES_BY_BYTES = {
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
MAX_CACHED_CHARS = 1 << 18
"""Texts of up to this length are weighed once while they are in use."""
TOKENS_PER_CALL = 36
TOKENS_PER_RESULT = 35
"""Tokens that a provider adds to a call and to its result; fitted as their sum."""
TOKENS_PER_MEDIA = 2_000
FAMILY_RATIOS = ((re.compile(r"claude-[a-z]+-5\b"), 1.27), (re.compile(r"gpt|codex|\bo\d"), 0.78))
"""Tokens that the newest Claude and OpenAI models count per estimated token (recorded usage)."""
MAX_RATIO_STEPS = 16
PRIOR_TOKENS = 4_000
"""The weight of the family's ratio, in estimated tokens, against measured replies."""
PLAUSIBLE_RATIOS = (0.5, 2.5)
"""A step outside this range tells of an edited history, not of a tokenizer."""
REPLY_RESERVE_TOKENS = 20_000
COMPACTION_BUFFER_TOKENS = 13_000
LARGE_WINDOW_TOKENS = 128_000
"""Windows from here on can afford the whole buffer; size is checked before each request anyway."""
WARNING_MARGIN_TOKENS = 20_000
STOP_MARGIN_TOKENS = 3_000


def _classify_byte(byte: int) -> str:
    """Return a byte's class for estimating tokens: its sign in `SHAPE_WEIGHTS`, or a free one."""
    if byte >= 0x80:
        return next(sign for least, sign in LEAD_BYTES if byte >= least)
    sign = chr(byte)
    if sign.isalnum():
        return "0" if sign.isdigit() else "a" if sign.islower() else "A"
    return {"\n": "n", "\r": "n", " ": " ", "\t": "t"}.get(sign, "p")


LEAD_BYTES = (
    *((0xF0, "e"), (0xE0, "x"), (0xD8, "r"), (0xD2, "g")),
    *((0xD0, "x"), (0xC4, "g"), (0xC0, "x"), (0x80, "y")),  # Cyrillic and accents cost no more
)
SHAPE_TABLE = "".join(map(_classify_byte, range(256))).encode()
RUN_PATTERN = re.compile(rb"\0" * 15 + rb"\0*")
"""Equal neighbours. Spelt out, since `re` looks for a literal five times as fast."""
LONG_SHAPES = (b"p" * 16, b"0" * 16, b"A" * 16)
"""Without one of these there is no run to speak of, which is quickly seen."""
SPACE_TABLE = bytes(sign == ord(" ") for sign in range(256))
MIXED_PAIRS = (ord("a") ^ ord("0"), ord("A") ^ ord("0"))
NUMBER_PAIR = ord(" ") ^ ord("0")
ASCII_SHAPES = tuple(shape for shape in SHAPE_WEIGHTS if shape not in b"ygre")
"""The shapes that ASCII has."""
RUN_RATES = {sign: rate for signs, rate in RATES_BY_BYTES.items() for sign in signs}


def count_shapes(text: str) -> tuple[float, ...]:
    """Count byte shapes of `SHAPE_WEIGHTS` for a token estimate; last, the tokens of runs."""
    data = text.encode(errors="surrogatepass")
    shaped = data.translate(SHAPE_TABLE)
    counts, present = (
        dict.fromkeys(SHAPE_WEIGHTS, 0.0),
        ASCII_SHAPES if text.isascii() else tuple(SHAPE_WEIGHTS),
    )
    counts.update(zip(present, map(shaped.count, present), strict=True))
    tokens = 0.0
    for byte, length in _find_runs(data) if any(map(shaped.__contains__, LONG_SHAPES)) else ():
        tokens += TOKENS_PER_RUN + length * RUN_RATES[byte]
        shape = SHAPE_TABLE[byte : byte + 1]
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
    neighbours = _xor_neighbours(shaped).to_bytes(len(data), "little")
    mixed = sum(map(neighbours.count, MIXED_PAIRS))
    lines = len(LINE_END.findall(shaped))
    return (*counts.values(), mixed, neighbours.count(NUMBER_PAIR), lines, tokens)


def _find_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield bytes repeated sixteen times or more with the run's length, to estimate tokens."""
    spaces = int.from_bytes(data.translate(SPACE_TABLE), "little")
    equal = (_xor_neighbours(data) | spaces).to_bytes(len(data), "little")
    for found in RUN_PATTERN.finditer(equal):
        if (byte := data[found.start()]) in RUN_RATES:
            yield byte, min(found.end() + 1, len(data)) - found.start()


def _xor_neighbours(data: bytes) -> int:
    """Return each byte xor the next, to find runs for the token estimate: equal ones give 0."""
    number = int.from_bytes(data, "little")
    return number ^ number >> 8


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text; at least one unless it is empty."""
    return _weigh_text(text) if len(text) <= MAX_CACHED_CHARS else _weigh_text.__wrapped__(text)


@lru_cache(512)
def _weigh_text(text: str) -> int:
    weighed = zip(ALL_WEIGHTS, count_shapes(text), strict=True)
    return max(round(sum(weight * count for weight, count in weighed)), 1 if text else 0)


def block_tokens(block: AnyBlock) -> int:
    """Estimate the tokens of a content block."""
    match block:
        case Text():
            return estimate_tokens(block.text)
        case Media():
            return TOKENS_PER_MEDIA
        case Call():
            return estimate_tokens(block.name + block.args) + TOKENS_PER_CALL
        case Opaque():
            return estimate_tokens(block.raw)


def fact_tokens(fact: User | Assistant | Result) -> int:
    """Estimate the tokens of a message."""
    wrapped = TOKENS_PER_RESULT if isinstance(fact, Result) else 0
    return wrapped + sum(block_tokens(block) for block in fact.content)


def head_tokens(epoch: Epoch) -> int:
    """Estimate the tokens of the frozen request head."""
    tools = sum(estimate_tokens(t.name + t.description + t.schema) for t in epoch.tools)
    return estimate_tokens(epoch.system) + tools


def context_tokens(view: View) -> int:
    """Return the tokens in use: the last reply's count plus an estimate of what followed."""
    if view.omitted:
        return round(view.omitted_chars / BYTES_PER_TOKEN)
    last = view.items[view.counted].fact if view.counted >= 0 else None
    if isinstance(last, Assistant) and last.usage.context:
        return last.usage.context + _scale_tokens(view, _sum_tokens(view.items[view.counted + 1 :]))
    head = head_tokens(view.epoch) if view.epoch else 0
    return _scale_tokens(view, head + _sum_tokens(view.items) - _cleared_tokens(view))


def token_ratio(view: View) -> float:
    """Return the tokens that the current model counts for one estimated token.

    It starts at the family's ratio and moves towards what the last replies measured.
    """
    usual = family_ratio(view.epoch.model.id) if view.epoch else 1.0
    measured, estimated = usual * PRIOR_TOKENS, float(PRIOR_TOKENS)
    for counted, guessed in _measure_steps(view):
        if PLAUSIBLE_RATIOS[0] * guessed <= counted <= PLAUSIBLE_RATIOS[1] * guessed:
            measured, estimated = measured + counted, estimated + guessed
    return measured / estimated


def family_ratio(model: str) -> float:
    """Return the usual ratio of counted to estimated tokens for models with this name."""
    return next((usual for name, usual in FAMILY_RATIOS if name.search(model)), 1.0)


def _measure_steps(view: View) -> Iterator[tuple[int, int]]:
    """Yield the counted and estimated token growth between the model's last replies."""
    later, steps = -1, 0
    for index in range(len(view.items) - 1, -1, -1):
        item = view.items[index]
        if item.seq < view.since or steps == MAX_RATIO_STEPS:
            return
        if not isinstance(item.fact, Assistant):
            continue
        after = view.items[later].fact if later >= 0 else None
        if isinstance(after, Assistant) and _has_token_count(item.fact) and _has_token_count(after):
            steps += 1
            grown = after.usage.prompt - item.fact.usage.context
            yield grown, _sum_tokens(view.items[index + 1 : later])
        later = index


def _has_token_count(reply: Assistant) -> bool:
    return reply.usage.context > 0 and not reply.usage.estimated


def _sum_tokens(items: list[ViewItem]) -> int:
    return sum(fact_tokens(item.fact) for item in items)


def _cleared_tokens(view: View) -> int:
    """Estimate the tokens that the provider clears, less the texts shown instead."""
    if not view.cleared:
        return 0
    gone = (
        i.fact for i in view.items if isinstance(i.fact, Result) and i.fact.call in view.cleared
    )
    results = sum(max(0, fact_tokens(fact) - 2 * TOKENS_PER_RESULT) for fact in gone)
    replies = (i.fact for i in view.items if isinstance(i.fact, Assistant))
    made = (
        c for reply in replies for c in extract_calls(reply.content) if c.id in view.cleared_inputs
    )
    return results + sum(estimate_tokens(call.args) for call in made)


def _scale_tokens(view: View, tokens: int) -> int:
    return round(tokens * token_ratio(view)) if tokens else 0


def format_tokens(tokens: int) -> str:
    """Format a token count: 940, 7.7k, 48k."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 10_000 else f"{round(tokens / 1_000):,}k"


def effective_window(model: ModelCard) -> int:
    """Return the tokens that a conversation may fill, with room for the reply."""
    return model.window - min(model.output, REPLY_RESERVE_TOKENS, model.window // 4)


def compact_threshold(model: ModelCard) -> int:
    """Return the token count at which auto-compaction starts."""
    if model.window >= LARGE_WINDOW_TOKENS:
        return effective_window(model) - COMPACTION_BUFFER_TOKENS
    return min(effective_window(model), stop_threshold(model)) - model.window // 32


def warn_threshold(model: ModelCard) -> int:
    """Return the token count at which the user is warned."""
    return compact_threshold(model) - min(WARNING_MARGIN_TOKENS, model.window // 6)


def stop_threshold(model: ModelCard) -> int:
    """Return the token count beyond which nothing is sent."""
    return model.window - min(STOP_MARGIN_TOKENS, model.window // 20)


# What one request may hold: tokens, bytes and media, each with its own limit.


MAX_BODY_BYTES: dict[ApiProtocol, int] = {
    "anthropic": 32 << 20,
    "chat": 50 << 20,
    "responses": 50 << 20,
    "gemini": 20 << 20,
    "ollama": 50 << 20,
}
"""The largest body that a provider takes, by protocol."""
BODY_MARGIN_BYTES = 1 << 20
MAX_MEDIA_COUNT = 100
MAX_MEDIA_BYTES = 20 << 20
BASE64_GROWTH = 4 / 3
"""Media travel as base64."""
JSON_GROWTH = 1.1
"""Text travels as JSON: quotes, line ends and backslashes grow."""


class RequestSize(msgspec.Struct, frozen=True):
    """The size of a request in each measure that a provider limits."""

    tokens: int = 0
    bytes: int = 0
    media: int = 0
    media_bytes: int = 0

    def __sub__(self, other: RequestSize) -> RequestSize:
        return RequestSize(
            tokens=self.tokens - other.tokens,
            bytes=self.bytes - other.bytes,
            media=self.media - other.media,
            media_bytes=self.media_bytes - other.media_bytes,
        )

    @property
    def shortages(self) -> tuple[str, ...]:
        """The measures in which the size is negative."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) < 0)


def max_request_size(model: ModelCard) -> RequestSize:
    """Return the largest request that this model accepts: tokens, bytes, images."""
    media = MAX_MEDIA_COUNT if model.images else 0
    return RequestSize(
        stop_threshold(model),
        MAX_BODY_BYTES[model.protocol] - BODY_MARGIN_BYTES,
        media,
        MAX_MEDIA_BYTES,
    )


def measure_request(view: View) -> RequestSize:
    """Measure the next request in each limited size: tokens, bytes, images."""
    epoch, blocks = view.epoch, [b for item in view.items for b in item.fact.content]
    media = [block for block in blocks if isinstance(block, Media)]
    head = [epoch.system, *(t.description + t.schema for t in epoch.tools)] if epoch else []
    size = sum(map(_block_bytes, blocks)) + sum(
        int(_utf8_length(text) * JSON_GROWTH) for text in head
    )
    travelling = sum(int(block.size * BASE64_GROWTH) for block in media)
    return RequestSize(context_tokens(view), size, len(media), travelling)


def free_request_room(view: View) -> RequestSize:
    """Return how many tokens, bytes and images the next request has left; may be negative."""
    assert view.epoch is not None
    return max_request_size(view.epoch.model) - measure_request(view)


def _block_bytes(block: AnyBlock) -> int:
    """Estimate the bytes that a content block takes in a request."""
    match block:
        case Text():
            return int(_utf8_length(block.text) * JSON_GROWTH)
        case Media():
            return int(block.size * BASE64_GROWTH)
        case Call():
            return _utf8_length(block.args)
        case Opaque():
            return _utf8_length(block.raw)


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
