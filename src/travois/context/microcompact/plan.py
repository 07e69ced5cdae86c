"""L2: old results that can be had again are shown as one line each.

Model sees: in place of a cleared result, where its text can be read.
Tokens: about 40 for each cleared result; where the provider clears, about 40 in one note.
Cache: moves the prefix, so only when the cache is gone anyway or the change pays for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.context.layers import Layers
from travois.context.ledger.extractors import FAMILIES, Kind, kind_of
from travois.core.content import Opaque, Text, calls
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import block_tokens, estimate, fact_tokens
from travois.core.view import THINKING, Item, View, short_input, thinks

KINDS: tuple[Kind, ...] = ("shell", "read", "edit", "write", "delete", "patch")
SEARCHES = (
    "grep glob ls list search findfiles websearch webfetch fetch bashoutput recall "
    "gitstatus gitdiff gitlog gitshow gitblame"
)
CLEARABLE = frozenset(" ".join((*(FAMILIES[kind] for kind in KINDS), SEARCHES)).split()) - {
    "notebookedit"
}
"""Tools whose results can be had again, by the last part of their name in small letters."""
SMALL = 300
"""A result below this costs less than the line that would take its place is worth."""
WRITERS: tuple[Kind, ...] = ("edit", "write", "patch")
"""Tools whose arguments are what is long, not their results."""
LONG = 400
"""The tokens from which on arguments are worth clearing."""
THOUGHT = 500
"""Thinking of fewer tokens is not worth clearing."""
LINE = 40
"""The tokens of what takes the place of a result."""


class Now(msgspec.Struct, frozen=True):
    """What clearing depends on besides the view."""

    cold: bool = False
    """Whether a pause is reason enough: the provider's cache is gone."""
    early: bool = False
    """Whether it is one only because the window is half full: then more of the newest stays."""
    server: bool = False
    """Whether the provider can clear."""
    size: int = 0
    warn: int = 0
    limit: int = 0
    """The window in use, where the user is warned, and where compaction starts."""
    read: float = 0.1
    write: float = 1.25
    """Prices of cached and of written tokens, for one of plain input."""


class Clearing(msgspec.Struct, frozen=True):
    """Results that give way, who clears them, and how many tokens that frees."""

    calls: tuple[str, ...]
    where: Literal["local", "server"]
    freed: int
    inputs: tuple[str, ...] = ()
    """Calls whose long arguments give way."""


def clearing(view: View, layers: Layers, *, now: Now) -> Clearing | None:
    """What to clear before the next request; none if nothing should be."""
    bound = thinks(view)
    if bound and not now.server:
        return None
    old = _old(view, layers, now)
    if not old:
        return None
    found = choose_server(view, old, layers) if bound else choose_local(view, old)
    if not bound and layers.inputs:
        written, freed = _written(view, old)
        found = replace(found, inputs=written, freed=found.freed + freed)
    if now.cold:
        return found if found.freed >= layers.cleared else None
    enough = found.freed >= layers.pressed_cleared
    return found if enough and pays(view, found, now=now) else None


def old_thinking(view: View, *, least: int = THOUGHT) -> int:
    """The last entry whose thinking can go, because a later turn has some; nought if none is."""
    facts = [item.fact for item in view.items]
    last = max((i for i, fact in enumerate(facts) if _thoughts(fact)), default=0)
    while last > 0 and not isinstance(facts[last - 1], User):
        last -= 1
    gone = sum(map(_thought_tokens, facts[:last]))
    return view.items[last - 1].seq if gone >= least else 0


def _thoughts(fact: User | Assistant | Result) -> list[Opaque]:
    blocks = fact.content if isinstance(fact, Assistant) else ()
    return [b for b in blocks if isinstance(b, Opaque) and b.kind in THINKING]


def _thought_tokens(fact: User | Assistant | Result) -> int:
    """About how many tokens the thinking of a reply is: its text may not be told, but is paid."""
    thoughts = _thoughts(fact)
    if not thoughts or not isinstance(fact, Assistant):
        return 0
    others = sum(block_tokens(block) for block in fact.content if block not in thoughts)
    return max(sum(estimate(b.raw) for b in thoughts), fact.usage.output - others)


def _old(view: View, layers: Layers, now: Now) -> list[Item]:
    """The results that may give way at this moment."""
    if now.cold:
        held = min(layers.pressed_tokens, now.limit // 4) if now.early else 0
        return oldest_results(view, kept=max(1, layers.kept), protected=held)
    if not layers.pressure or not now.warn <= now.size < now.limit:
        return []
    return oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)


def clearable(name: str) -> bool:
    """Whether what a tool of this name brought can be had again."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain in CLEARABLE and not name.startswith("mcp__")


def pays(view: View, found: Clearing, *, now: Now) -> bool:
    """Whether writing all after the first cleared result anew is won back before it moves anyway.

    A session is taken to last as long again as it has lasted; but the compaction that would come
    without this frees more, so nothing is won beyond it.
    """
    replies = sum(isinstance(item.fact, Assistant) for item in view.items)
    growth = max(1.0, now.size / max(1, replies))
    left = min(replies, (now.limit - now.size) / growth)
    tail = _after(view.items, {*found.calls, *found.inputs}) - found.freed
    return left >= (now.write - now.read) * tail / (now.read * found.freed)


def _after(items: Sequence[Item], gone: set[str]) -> int:
    """The tokens from the first result of these calls on."""
    results = [isinstance(item.fact, Result) and item.fact.call in gone for item in items]
    return sum(fact_tokens(item.fact) for item in items[results.index(True) :])


def oldest_results(view: View, *, kept: int, protected: int) -> list[Item]:
    """The results that were sent, without the newest of them and so many tokens."""
    results = [item for item in view.items[: view.seen] if isinstance(item.fact, Result)]
    end, size = max(0, len(results) - kept), 0
    size = sum(fact_tokens(item.fact) for item in results[end:])
    while end > 0 and size < protected:
        end -= 1
        size += fact_tokens(results[end].fact)
    return results[:end]


def choose_local(view: View, old: Sequence[Item]) -> Clearing:
    """The large ones of tools that can be asked again."""
    names = dict(_named(view))
    sizes = {
        fact.call: size
        for item in old
        if isinstance(fact := item.fact, Result)
        and clearable(names.get(fact.call, ""))
        and all(isinstance(block, Text) for block in fact.content)
        and (size := fact_tokens(fact)) >= SMALL
    }
    return Clearing(tuple(sizes), "local", sum(sizes.values()) - LINE * len(sizes))


def _written(view: View, old: Sequence[Item]) -> tuple[tuple[str, ...], int]:
    """The calls with long arguments whose results are old, and what that frees."""
    done = {item.fact.call for item in old if isinstance(item.fact, Result)}
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    made = [call for reply in replies for call in calls(reply.content) if call.id in done]
    sizes = {
        call.id: size - estimate(short_input(call.args, ""))
        for call in made
        if kind_of(call.name, {}) in WRITERS and (size := estimate(call.args)) >= LONG
    }
    sizes = {call: size - LINE for call, size in sizes.items() if size > LINE}
    return tuple(sizes), sum(sizes.values())


def choose_server(view: View, old: Sequence[Item], layers: Layers) -> Clearing:
    """All calls of such tools up to a point: a provider can be told of no other set."""
    names = dict(_named(view))
    sizes = {
        fact.call: fact_tokens(fact)
        for item in old
        if isinstance(fact := item.fact, Result) and clearable(names.get(fact.call, ""))
    }
    freed = sum(max(0, size - LINE) for call, size in sizes.items() if call not in view.cleared)
    if not layers.inputs:
        return Clearing(tuple(sizes), "server", freed)
    written, more = _written(view, [item for item in old if _call(item) not in view.cleared_inputs])
    inputs = tuple(call for call in written if call in sizes)
    return Clearing(tuple(sizes), "server", freed + more, inputs)


def _call(item: Item) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""


def _named(view: View) -> Iterator[tuple[str, str]]:
    for item in view.items:
        if isinstance(item.fact, Assistant):
            yield from ((call.id, call.name) for call in calls(item.fact.content))
