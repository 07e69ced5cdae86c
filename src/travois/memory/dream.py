"""What a night does to memories by rule: doubles become one, dates stay true, the newer word holds.

Model sees: nothing of this module; what changes is in the index at the next start.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from travois.memory.dates import dated
from travois.memory.memory import Change, Drop, Evidence, Memory, Put, Scope
from travois.memory.signals import names
from travois.memory.similarity import ALIKE, HELD, content, covered, denies, likeness

RANK = {"tool": 0, "model": 1, "user": 2}
"""How much an author's words weigh: nobody's may take the place of a person's but that person's."""
NUMBER = re.compile(r"\w*\d[\w.:/-]*")

Memories = Mapping[str, Memory]
"""Memories by what they are called among all: scope and name."""


class Step(msgspec.Struct, frozen=True):
    """One thing that a night does, and why."""

    why: str
    put: tuple[Memory, ...] = ()
    drop: tuple[str, ...] = ()
    held: bool = False
    """Whether a person is to decide on it."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """It alone, as changes."""
        gone = (name.partition("/") for name in self.drop)
        drops = (Drop(name, cast("Scope", scope), self.why) for scope, _, name in gone)
        return (*map(Put, self.put), *drops)

    @property
    def names(self) -> tuple[str, ...]:
        """All memories that it touches."""
        return (*map(key, self.put), *self.drop)

    def make(self, memories: dict[str, Memory]) -> None:
        """Do it to these memories."""
        for name in self.drop:
            memories.pop(name, None)
        memories.update(keyed(self.put))


def key(memory: Memory) -> str:
    """What a memory is called among those of all scopes."""
    return f"{memory.scope}/{memory.name}"


def named(change: Change) -> str:
    """The memory that a change is about."""
    return key(change.memory) if isinstance(change, Put) else f"{change.scope}/{change.name}"


def keyed(memories: Iterable[Memory]) -> dict[str, Memory]:
    """The memories by what they are called."""
    return {key(memory): memory for memory in memories}


def text(memory: Memory) -> str:
    """All that a memory says."""
    return f"{memory.description}\n{memory.body}"


def exact(text: str) -> frozenset[str]:
    """What a text names or counts: either just right or wrong."""
    numbers = (found.rstrip(".:/-").casefold() for found in NUMBER.findall(text))
    return frozenset((*names(text), *numbers))


def said(memory: Memory) -> float:
    """When its newest words were said, as far as that is known."""
    return max((e.at for e in memory.evidence), default=0.0) or memory.modified or memory.created


def ruled(memories: Memories, without: Collection[str] = ()) -> list[Step]:
    """All that rules do but what is not wanted; each step begins where the one before it ended."""
    steps: list[Step] = []
    state = dict(memories)
    for step in _steps(state):
        if step.why not in without:
            step.make(state)
            steps.append(step)
    return steps


def changes(before: Memories, after: Memories, *, why: str) -> tuple[Change, ...]:
    """What makes the one out of the other."""
    put = [Put(memory) for name, memory in after.items() if before.get(name) != memory]
    gone = [memory for name, memory in before.items() if name not in after]
    return (*put, *(Drop(memory.name, memory.scope, why) for memory in gone))


def joined(kept: Memory, *others: Memory) -> Memory:
    """One memory that rests on all that these rest on; its words stay as they are."""
    every = (kept, *others)
    evidence = dict.fromkeys(e for memory in every for e in memory.evidence)
    anchors = {a.path: a for memory in reversed(every) for a in memory.anchors}
    return replace(
        kept,
        created=min((m.created for m in every if m.created), default=kept.created),
        verified=max(m.verified for m in every),
        evidence=tuple(sorted(evidence, key=_when)),
        anchors=tuple(anchors.values()),
    )


def double(one: Memory, other: Memory) -> bool:
    """Whether the other says all that this one says, in words that weigh as much."""
    if one.scope != other.scope or RANK[one.author] > RANK[other.author]:
        return False
    if _plain(one) == _plain(other):
        return True
    whole, part = text(other), text(one)
    return (
        (one.type == other.type or content(part) == content(whole))
        and denies(part) == denies(whole)
        and exact(part) <= exact(whole)
        and len(content(part)) > 1
        and covered(part, content(whole)) >= HELD
    )


def opposed(older: Memory, newer: Memory) -> bool:
    """Whether a person's newer words say the contrary of an older memory, as far as words tell."""
    if newer.author != "user" or older.scope != newer.scope or said(older) >= said(newer):
        return False
    one, other = text(older), text(newer)
    return (
        denies(one) != denies(other)
        and len(content(one) & content(other)) > 1
        and likeness(one, other) >= ALIKE
    )


def _steps(state: dict[str, Memory]) -> Iterator[Step]:
    """Every step that a rule knows; `state` is what the steps so far have made."""
    for one, other in _near(state):
        if step := _settled(state.get(one), state.get(other)):
            yield step
    for memory in tuple(state.values()):
        exact = dated(memory)
        if exact != memory:
            yield Step(f"{key(memory)}: its dates stay true", put=(exact,))


def _settled(one: Memory | None, other: Memory | None) -> Step | None:
    """What becomes of two that say the same or the contrary; pinned ones stay what they are."""
    if one is None or other is None:
        return None
    for gone, kept in sorted(((one, other), (other, one)), key=lambda pair: -pair[0].created):
        if not gone.pinned and double(gone, kept):
            put = () if kept.pinned else (joined(kept, gone),)
            return Step(f"{key(gone)} says what {key(kept)} says", put, (key(gone),))
        if not gone.pinned and opposed(gone, kept):
            why = f"{key(gone)} no longer holds: the user has since said {key(kept)}"
            return Step(why, drop=(key(gone),))
    return None


def _near(memories: Memories) -> Iterator[tuple[str, str]]:
    """All pairs that share most of the words of the shorter one, each once.

    One of that one's rarest words is then also in the other, so only these are looked up.
    """
    words = {name: content(text(memory)) for name, memory in memories.items()}
    often = Counter(word for some in words.values() for word in some)
    by_word: dict[str, list[str]] = defaultdict(list)
    for name, some in words.items():
        for word in some:
            by_word[word].append(name)
    for name, some in words.items():
        rarest = sorted(some, key=lambda word: (often[word], word))
        few = rarest[: int(len(some) * (1 - ALIKE)) + 1]
        for other in {other for word in few for other in by_word[word]}:
            size = (len(some), name)
            longer = (len(words[other]), other)
            if size < longer and len(some & words[other]) >= ALIKE * len(some):
                yield name, other


def _plain(memory: Memory) -> str:
    return " ".join((memory.body or memory.description).casefold().split())


def _when(evidence: Evidence) -> float:
    return evidence.at
