"""L1: the room that each tool result has, and the preview of one that is too large for it.

The room of a result follows from the reply that asked for it: from what was free then, and from
what else it asked for. So it is known before any call runs, and the same whichever ends first.

Model sees: head and tail of a large result, what is missing, and where to read it.
Tokens: at most the room of each result; pages of files keep to theirs and are never stored.
Cache: never moves the prefix; only results that were not sent yet are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from travois.context.layers import MIN_RESULT_TOKENS, NO_CAP, ContextLayers
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Result
from travois.core.tokens import (
    TOKENS_PER_RESULT,
    context_tokens,
    estimate_tokens,
    fact_tokens,
    token_ratio,
)
from travois.core.view import View

FREE_ROOM_SHARE = 0.5
"""The share of the free room that the results of one reply may take."""
AMPLE_ROOM_SHARE = 0.15
"""They may take this share of all room if it is free, and where clearing or a compaction can make
room before the next request even if it is not: a file that is cut has to be read page by page."""
MIN_PAGE_TOKENS = 2_000
"""They may take this much even if that leads to a compaction, unless the window is too small."""
PAGE_SHARE = 0.75
"""The share of all room, free or not, that such a page may take."""
HEAD_SHARE = 2 / 3
"""The share of what is shown of a stored result that is its beginning."""
FIRST_GUESS_CHARS_PER_TOKEN = 4
"""A text is cut to so many characters for a token first, and then until it fits."""
MAX_CHARS_PER_TOKEN = 8
"""No token stands for more characters than this, however little a run of one of them counts."""
MAX_TIDY_CHARS = 1_000
"""The most characters that a cut may give up to fall between two lines."""


class ResultRoom(msgspec.Struct, frozen=True):
    """The token limits of a call's result: by its tool, and by what is free."""

    cap: int
    share: int

    @property
    def tokens(self) -> int:
        """The smaller limit, without what is put around a result."""
        return max(MIN_RESULT_TOKENS // 2, min(self.cap, self.share) - TOKENS_PER_RESULT)


class WindowLimits(msgspec.Struct, frozen=True):
    """The largest size of a conversation, and how much of it the head leaves."""

    most: int
    """The size that it may reach, with room kept for the reply."""
    room: int
    """The tokens between the head and the compaction threshold."""
    grows: bool = False
    """True if room is made before the next request when there is too little."""


class OversizeResult(msgspec.Struct, frozen=True):
    """A result to store: its call, its full text, and how many tokens of it to show."""

    call: str
    text: str
    tokens: int


class ClippedText(msgspec.Struct, frozen=True):
    """The two ends of a text, and how much is missing between them."""

    head: str
    tail: str
    characters: int
    lines: int
    """The number of lines that are not shown even in part."""

    @property
    def next_line(self) -> int:
        """The number of the first line that is not shown to its end."""
        return self.head.count("\n") + 1


def compute_results_room(view: View, layers: ContextLayers, *, window: WindowLimits) -> int:
    """Return how many estimated tokens all tool results of the last reply may take together."""
    before = msgspec.structs.replace(view, items=view.items[: view.replied + 1])
    free = window.most - context_tokens(before)
    ample = AMPLE_ROOM_SHARE * window.room
    ample = ample if window.grows else min(free, ample)
    wanted = max(FREE_ROOM_SHARE * free, ample, min(MIN_PAGE_TOKENS, PAGE_SHARE * window.room))
    return max(MIN_RESULT_TOKENS, min(layers.reply, int(wanted / token_ratio(before))))


def share_results_room(
    asked: Collection[Call], layers: ContextLayers, *, room: int
) -> dict[str, ResultRoom]:
    """Divide the room among tool results: large ones share what small ones leave."""
    caps = {call.id: layers.result_cap(call.name) for call in asked}
    left, shares = room, dict[str, ResultRoom]()
    for number, (id, cap) in enumerate(sorted(caps.items(), key=lambda one: one[1])):
        share = max(MIN_RESULT_TOKENS, left // (len(caps) - number))
        shares[id] = ResultRoom(cap, share)
        left -= min(cap, share)
    return shares


def calls_of_last_reply(view: View) -> tuple[Call, ...]:
    """Return the tool calls of the last reply, answered or not."""
    reply = view.items[view.replied].fact if view.replied >= 0 else None
    return extract_calls(reply.content) if isinstance(reply, Assistant) else ()


def find_oversize_results(
    view: View, layers: ContextLayers, *, room: int, bounded: Mapping[str, bool]
) -> Iterator[OversizeResult]:
    """Yield the unsent tool results that are too large, alone or, largest first, together.

    `bounded` names the calls whose results keep to their room: pages, which are never stored
    (true), and others, which are stored if something made them longer than all room (false).
    """
    names = {call.id: call.name for call in calls_of_last_reply(view)}
    unseen = [item.fact for item in view.items[view.seen :] if isinstance(item.fact, Result)]
    sizes = {result.call: fact_tokens(result) for result in unseen}
    whole = [r for r in unseen if not bounded.get(r.call) and _is_text_result(r)]
    over = sum(sizes.values()) - room
    for result in sorted(whole, key=lambda result: -sizes[result.call]):
        size, own = sizes[result.call], min(layers.result_cap(names.get(result.call, "")), room)
        if result.call in bounded:
            most = room
        else:
            most = max(
                min(own, size - over),
                min(own, layers.shown, room // len(unseen)),
                MIN_RESULT_TOKENS,
            )
        if size > most:
            over -= size - most
            yield OversizeResult(result.call, extract_text(result.content), most)


def _is_text_result(result: Result) -> bool:
    return all(isinstance(block, Text) for block in result.content)


def estimate_text_tokens(text: str) -> int:
    """Estimate a tool result's tokens, limiting how many characters one token can cover."""
    return max(estimate_tokens(text), len(text) // MAX_CHARS_PER_TOKEN)


def count_fitting_parts(count: int, size: Callable[[int], int], *, tokens: int) -> int:
    """Return about how many of `count` parts of a tool result fit in so many tokens.

    `size` grows with its argument. Few sizes are measured, so the answer may be 2% too low.
    """
    low, high, least, most = 0, count, 0, size(count)
    if most <= tokens:
        return count
    while high - low > 1 + low // 50:
        guess = low + int((high - low) * (tokens - least) / (most - least))
        guess = min(max(guess, low + 1 + (high - low) // 64), high - 1)
        found = size(guess)
        if found <= tokens:
            low, least = guess, found
        else:
            high, most = guess, found
    return low


def clip_text(text: str, tokens: int, *, head: float = HEAD_SHARE) -> ClippedText:
    """Clip a tool result that is too long to its two ends, at line breaks if possible."""
    return clip_ends(text, text, tokens, head=head, total=len(text), lines=count_lines(text))


def clip_ends(
    front: str,
    back: str,
    tokens: int,
    *,
    head: float,
    total: int,
    lines: int,
    chars: int = NO_CAP,
) -> ClippedText:
    """Clip a tool result of which only the beginning and the end are available."""

    def ends(room: int) -> tuple[str, str]:
        first = front[: int(room * head)]
        return _tidy_head(first), _tidy_tail(back[max(0, len(back) + len(first) - room) :])

    room = count_fitting_parts(
        min(tokens * FIRST_GUESS_CHARS_PER_TOKEN, total - 1, chars),
        lambda room: sum(map(estimate_text_tokens, ends(room))),
        tokens=tokens,
    )
    first, last = ends(room)
    seen = count_lines(first) + count_lines(last)
    return ClippedText(first, last, total - len(first) - len(last), max(0, lines - seen))


def count_lines(text: str) -> int:
    """Return how many lines a tool result has; an unfinished last one counts."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _tidy_head(text: str) -> str:
    cut = text.rfind("\n") + 1
    return text[:cut] if cut > max(0, len(text) - MAX_TIDY_CHARS) else text


def _tidy_tail(text: str) -> str:
    return text[text.find("\n", 0, MAX_TIDY_CHARS) + 1 :]


def describe_omission(
    clipped: ClippedText, *, total: int, lines: int, unit: str = "characters"
) -> str:
    """Describe how much of a clipped tool result is missing between its two ends."""
    size = f"{clipped.characters:,} of {total:,} {unit}"
    if not clipped.lines:
        return f"{size} are left out here"
    return f"{clipped.lines:,} of {lines:,} lines ({size}) are left out here"


def render_preview(text: str, *, path: str, tokens: int, nonce: str) -> str:
    """Render a large tool result's preview: its two ends, and what is missing between them.

    The nonce is unknown to the author of the text, so the text cannot fake our marker.
    """
    mark = f"stored {nonce}: " if nonce else ""
    marker = tokens - estimate_tokens(path) - TOKENS_PER_RESULT - 80
    clipped = clip_text(text, max(MIN_RESULT_TOKENS // 4, marker))
    missing = describe_omission(clipped, total=len(text), lines=count_lines(text))
    onward = f"All of it is in {path}; continue with Read offset={clipped.next_line}, or use Grep."
    head = clipped.head if clipped.head.endswith("\n") else f"{clipped.head}\n"
    return f"{head}[{mark}{missing}. {onward}]\n{clipped.tail}"
