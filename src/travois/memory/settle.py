"""What becomes of a memory that may be kept, beside those that are known.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from travois.memory import signals as wording
from travois.memory.drafts import Draft
from travois.memory.memory import Author, Drop, Memory, Put, Scope
from travois.memory.scope import without_scope
from travois.memory.similarity import content, denies, likeness, same

TOPIC, OPPOSED = 0.3, 0.5
"""How like an older memory is that a later word does away with."""
WIDER = "it holds in all projects"
KEPT = 5
"""How many words a memory rests on at most: the first and the last."""


class Accepted(msgspec.Struct, frozen=True):
    """It may be kept; `drop` is what it takes the place of in another scope."""

    change: Put
    drop: Drop | None = None


class Held(msgspec.Struct, frozen=True):
    """Only a person can say whether it is to be kept."""

    change: Put
    why: str


class Refused(msgspec.Struct, frozen=True):
    """It is not kept. The reason repeats nothing of it."""

    why: str


Weighed = Accepted | Held | Refused


def settle(
    draft: Draft, memory: Memory, known: Sequence[Memory], *, sentence: str, told: Scope | None
) -> Weighed:
    """What becomes of a draft beside what is known: news, more of the same, or another opinion.

    `told` is whom a person says that it is for, if they do.
    """
    by_user = memory.author == "user"
    opposed = [old for old in known if _opposes(draft, old, sentence)]
    alike = [old for old in known if old not in opposed and _same(memory, old)]
    if alike:
        merged = _merged(alike[0], memory) if by_user else Refused("it is known already")
        return _widened(merged, alike[0]) if told == "user" else merged
    if not opposed:
        return Accepted(Put(memory))
    old = max(opposed, key=lambda one: likeness(draft.text, one.body or one.description))
    if by_user and told not in (None, old.scope) and not old.pinned:
        # An exception for one project leaves the rule for the others as it is.
        wider = told == "user" and old.scope == "project"
        return Accepted(Put(memory), Drop(old.name, old.scope, WIDER) if wider else None)
    put = replace(
        memory, name=old.name, scope=old.scope, type=old.type, created=old.created or memory.created
    )
    if old.pinned or not by_user:
        return Held(Put(put), f"{old.name} says otherwise" + (", and is pinned" * old.pinned))
    return Accepted(Put(put))


def _merged(old: Memory, memory: Memory) -> Weighed:
    if old.pinned:
        return Refused("a pinned memory says it")
    held = tuple(one for one in old.evidence if one not in memory.evidence)
    evidence = (*held[:1], *(*held[1:], *memory.evidence)[-(KEPT - 1) :])
    author: Author = "user"
    return Accepted(
        Put(
            replace(
                old,
                evidence=evidence,
                verified=memory.verified,
                modified=memory.modified,
                author=author,
            )
        )
    )


def _widened(merged: Weighed, old: Memory) -> Weighed:
    """Let what was remembered for one project hold for all, if that was said."""
    if not isinstance(merged, Accepted) or old.scope != "project":
        return merged
    memory = replace(merged.change.memory, scope="user")
    return Accepted(Put(memory), Drop(old.name, old.scope, WIDER))


def _opposes(draft: Draft, old: Memory, sentence: str) -> bool:
    """Whether both cannot hold, as far as words tell or the draft says."""
    text = old.body or old.description
    alike = likeness(draft.text, text)
    if alike == 1.0 and denies(draft.text) == denies(text):
        return False
    if draft.replaces == old.name:
        return bool(content(draft.text) & content(text))
    if denies(draft.text) != denies(text) and alike >= OPPOSED:
        return True
    return wording.turns(sentence) and alike >= TOPIC and not content(draft.text) <= content(text)


def _same(memory: Memory, old: Memory) -> bool:
    """Whether both wish for the same, whomever it is for."""
    return same(without_scope(memory.body), without_scope(old.body or old.description))
