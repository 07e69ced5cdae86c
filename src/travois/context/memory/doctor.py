"""What is wrong with memories: stale, doubled, contradicted, of no use, or not fit to be kept.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from travois.context.memory.likeness import content, denies, same
from travois.context.memory.memory import Memory
from travois.context.memory.text import WIDTH
from travois.context.memory.wording import names

Kind = Literal[
    "stale", "contradictory", "duplicate", "unused", "secret", "too long", "without evidence"
]
IDLE = 60 * 86_400.0
"""How long a memory may go without being recalled, in seconds."""
LONG = 4_000
COMMON = 40
"""A word that more memories have than this tells nothing of two that share it."""


class Finding(msgspec.Struct, frozen=True):
    """Something that a person may want to mend."""

    kind: Kind
    memory: Memory
    what: str
    other: Memory | None = None


class Health(msgspec.Struct, frozen=True):
    """What is known of memories besides their text."""

    now: float
    stale: Callable[[Memory], Sequence[str]]
    secret: Callable[[str], str]
    """The kind of secret that a text holds; empty if none."""
    recalled: Mapping[str, tuple[int, float]] = {}
    """How often and when last, by scope and name."""


def examine(memories: Sequence[Memory], health: Health) -> list[Finding]:
    """All that is wrong, memory by memory, and then pair by pair."""
    alone = [finding for memory in memories for finding in _alone(memory, health)]
    return [*alone, *_pairs(memories)]


def _alone(memory: Memory, health: Health) -> Iterator[Finding]:
    if changed := health.stale(memory):
        yield Finding("stale", memory, f"changed since: {', '.join(changed)}")
    said = "\n".join((memory.description, memory.body, *(one.words for one in memory.evidence)))
    if kind := health.secret(said):
        yield Finding("secret", memory, f"it holds what looks like a secret ({kind})")
    if len(memory.body) > LONG:
        yield Finding("too long", memory, f"it has {len(memory.body):,} characters")
    if not memory.evidence and not memory.pinned:
        yield Finding("without evidence", memory, "nothing tells whose words it rests on")
    count, last = health.recalled.get(f"{memory.scope}/{memory.name}", (0, 0.0))
    if health.now - max(last, memory.created, memory.modified) > IDLE:
        days = int((health.now - last) / 86_400)
        what = f"last recalled {days} days ago" if count else "it was never recalled"
        yield Finding("unused", memory, what)


def _pairs(memories: Sequence[Memory]) -> Iterator[Finding]:
    """Those that say the same as another one, or the contrary."""
    texts = [_text(memory) for memory in memories]
    for one, other in _near([content(text) for text in texts]):
        first, second = memories[one], memories[other]
        if why := _contrary(texts[one], texts[other]):
            yield Finding("contradictory", first, why, second)
        elif same(texts[one], texts[other]):
            yield Finding("duplicate", first, "it says the same", second)


def _near(about: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """Pairs that share what is rare enough to tell, and at least half of the shorter one."""
    by_word: dict[str, list[int]] = defaultdict(list)
    for number, words in enumerate(about):
        for word in words:
            by_word[word].append(number)
    shared = Counter(
        pair
        for holders in by_word.values()
        if len(holders) <= COMMON
        for pair in combinations(holders, 2)
    )
    for one, other in sorted(shared):
        if len(about[one] & about[other]) * 2 >= min(len(about[one]), len(about[other])):
            yield one, other


def _contrary(one: str, other: str) -> str:
    """Why two texts about the same cannot both be true; empty if they can."""
    a, b = content(one), content(other)
    if len(a & b) < 2 or len(a ^ b) > len(a & b) + 2:
        return ""
    if denies(one) != denies(other) and len(a ^ b) <= len(a & b):
        return "one says it, the other denies it"
    mine, theirs = set(names(one)) - set(names(other)), set(names(other)) - set(names(one))
    if mine and theirs and len(a - b) == len(b - a) == 1:
        return f"{', '.join(sorted(mine))} here, {', '.join(sorted(theirs))} there"
    return ""


def _text(memory: Memory) -> str:
    whole = memory.description.endswith("…") or len(memory.description) >= WIDTH
    return memory.body if whole and memory.body else f"{memory.description}\n{memory.body}"
