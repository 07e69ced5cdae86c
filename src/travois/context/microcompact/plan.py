"""L2: microcompaction plans; old results that can be fetched again shrink to one line each.

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

from travois.context.compaction.cut import Cut, is_summary, is_whole
from travois.context.layers import Layers
from travois.context.ledger.extractors import FAMILIES, Act, Kind, decoded, kind_of
from travois.core.content import Call, Opaque, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import block_tokens, estimate_tokens, fact_tokens
from travois.core.view import THINKING_KINDS, View, ViewItem, has_thinking, shorten_arguments

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
    """The conditions that clearing depends on besides the view."""

    cold: bool = False
    """True if a pause is reason enough: the provider's cache is gone."""
    early: bool = False
    """True if only a half-full window makes it a reason: then more of the newest stays."""
    server: bool = False
    """True if the provider can clear."""
    size: int = 0
    warn: int = 0
    limit: int = 0
    """The window in use, where the user is warned, and where compaction starts."""
    read: float = 0.1
    write: float = 1.25
    """Prices of cached and of written tokens, for one of plain input."""


class Clearing(msgspec.Struct, frozen=True):
    """A plan: the results to clear, who clears them, and how many tokens that frees."""

    calls: tuple[str, ...]
    where: Literal["local", "server"]
    freed: int
    inputs: tuple[str, ...] = ()
    """Calls whose long arguments give way."""


def clearing(view: View, layers: Layers, *, now: Now) -> Clearing | None:
    """Plan what to clear before the next request; None if nothing should be."""
    bound = has_thinking(view)
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
    """Return the last entry whose thinking can go as a later turn has some; 0 if there is none."""
    facts = [item.fact for item in view.items]
    last = max((i for i, fact in enumerate(facts) if _thoughts(fact)), default=0)
    while last > 0 and not isinstance(facts[last - 1], User):
        last -= 1
    gone = sum(map(_thought_tokens, facts[:last]))
    return view.items[last - 1].seq if gone >= least else 0


def _thoughts(fact: User | Assistant | Result) -> list[Opaque]:
    blocks = fact.content if isinstance(fact, Assistant) else ()
    return [b for b in blocks if isinstance(b, Opaque) and b.kind in THINKING_KINDS]


def _thought_tokens(fact: User | Assistant | Result) -> int:
    """Estimate the tokens of a reply's thinking: its text may be hidden, but it is paid for."""
    thoughts = _thoughts(fact)
    if not thoughts or not isinstance(fact, Assistant):
        return 0
    others = sum(block_tokens(block) for block in fact.content if block not in thoughts)
    return max(sum(estimate_tokens(b.raw) for b in thoughts), fact.usage.output - others)


def _old(view: View, layers: Layers, now: Now) -> list[ViewItem]:
    """Return the results that may be cleared at this moment."""
    if now.cold:
        held = min(layers.pressed_tokens, now.limit // 4) if now.early else 0
        return oldest_results(view, kept=max(1, layers.kept), protected=held)
    if not layers.pressure or not now.warn <= now.size < now.limit:
        return []
    return oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)


def clearable(name: str) -> bool:
    """Return whether a tool of this name can be called again for the same result."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain in CLEARABLE and not name.startswith("mcp__")


def pays(view: View, found: Clearing, *, now: Now) -> bool:
    """Return whether rewriting the cache after the first cleared result pays off in time.

    A session is assumed to last as long again as it has lasted; the compaction that would come
    without this frees more, so nothing is gained beyond it.
    """
    replies = sum(isinstance(item.fact, Assistant) for item in view.items)
    growth = max(1.0, now.size / max(1, replies))
    left = min(replies, (now.limit - now.size) / growth)
    tail = _after(view.items, {*found.calls, *found.inputs}) - found.freed
    return left >= (now.write - now.read) * tail / (now.read * found.freed)


def _after(items: Sequence[ViewItem], gone: set[str]) -> int:
    """Return the tokens from the first result of these calls on."""
    results = [isinstance(item.fact, Result) and item.fact.call in gone for item in items]
    return sum(fact_tokens(item.fact) for item in items[results.index(True) :])


def oldest_results(view: View, *, kept: int, protected: int) -> list[ViewItem]:
    """Return the results that were sent, without the newest ones and so many tokens."""
    results = [item for item in view.items[: view.seen] if isinstance(item.fact, Result)]
    end, size = max(0, len(results) - kept), 0
    size = sum(fact_tokens(item.fact) for item in results[end:])
    while end > 0 and size < protected:
        end -= 1
        size += fact_tokens(results[end].fact)
    return results[:end]


def choose_local(view: View, old: Sequence[ViewItem]) -> Clearing:
    """Plan to clear the large results of tools that can be called again."""
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


def _written(view: View, old: Sequence[ViewItem]) -> tuple[tuple[str, ...], int]:
    """Return the calls with long arguments whose results are old, and what clearing them frees."""
    done = {item.fact.call for item in old if isinstance(item.fact, Result)}
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    made = [call for reply in replies for call in extract_calls(reply.content) if call.id in done]
    sizes = {
        call.id: size - estimate_tokens(shorten_arguments(call.args, ""))
        for call in made
        if kind_of(call.name, {}) in WRITERS and (size := estimate_tokens(call.args)) >= LONG
    }
    sizes = {call: size - LINE for call, size in sizes.items() if size > LINE}
    return tuple(sizes), sum(sizes.values())


def choose_server(view: View, old: Sequence[ViewItem], layers: Layers) -> Clearing:
    """Plan to clear all calls of such tools up to a point: a provider accepts no other set."""
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


def _call(item: ViewItem) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""


def _named(view: View) -> Iterator[tuple[str, str]]:
    for item in view.items:
        if isinstance(item.fact, Assistant):
            yield from ((call.id, call.name) for call in extract_calls(item.fact.content))


# L2.6: where the prefix moves anyway, old calls fold into a line each that keeps the outcome.


FOLDED = "Earlier steps of this conversation are folded here."
OPENING = (
    f"{FOLDED} What the user and you said stands word for word (further lines indented), each of "
    "your calls as one line with its outcome. The newest messages follow unchanged. The calls with "
    "their results can be read in these files, oldest first:"
)
SNIPPED = "(The {count} oldest steps are left out here; they are in the files above.)"
LISTED = 12
"""The number of files with a line of their own."""
USER = "The user: "
OUTCOME = 120
"""The characters shown of an outcome."""
SUBJECT = 100
REMARK = 1_200
"""The characters shown of a harness note."""


class Line(msgspec.Struct, frozen=True):
    """A step of the folded part."""

    text: str
    lasting: bool = False
    """True for the user's words, which are never dropped."""


def middle(view: View, *, tail: int) -> Cut | None:
    """Return the foldable part between first words and newest tokens; None if it is small."""
    items = view.items
    begins = (i for i, one in enumerate(items) if isinstance(one.fact, Assistant) or is_folded(one))
    start = next(begins, len(items))
    end, size = len(items), 0
    while end > start and size < tail:
        end -= 1
        size += fact_tokens(items[end].fact)
    while end > start and not is_whole(items, end):
        end -= 1
    gone = tuple(items[start:end])
    if not any(isinstance(item.fact, Result) for item in gone):
        return None
    return Cut(gone, (*items[:start], *items[end:]))


def folded(items: Sequence[ViewItem], paths: Sequence[str], *, budget: int, snip: bool) -> str:
    """Return the text that replaces these items; empty if it would exceed its budget."""
    lines = list(_lines(items))
    head = "\n".join((OPENING, *(f"- {line}" for line in _listed(paths))))
    sizes = [estimate_tokens(f"{line.text}\n") for line in lines]
    over = estimate_tokens(head) + sum(sizes) - budget
    if over > 0 and not snip:
        return ""
    gone: set[int] = set()
    for number, line in enumerate(lines):
        if over <= 0:
            break
        if not line.lasting:
            gone.add(number)
            over -= sizes[number]
    if over > 0:
        return ""
    told = (SNIPPED.format(count=len(gone)),) if gone else ()
    kept = (line.text for number, line in enumerate(lines) if number not in gone)
    return "\n".join((head, "", *told, *kept))


def _listed(paths: Sequence[str]) -> Iterator[str]:
    """Yield the newest paths, and the older ones as a range."""
    older, newer = paths[:-LISTED], paths[-LISTED:]
    if older:
        yield f"{older[0]} to {older[-1]} ({len(older)} files)"
    yield from newer


def is_folded(item: ViewItem) -> bool:
    """Return whether an item is the text of an earlier folding."""
    fact = item.fact
    return (
        isinstance(fact, User)
        and fact.origin == "note"
        and extract_text(fact.content).startswith(FOLDED)
    )


def _lines(items: Sequence[ViewItem]) -> Iterator[Line]:
    results = {item.fact.call: item.fact for item in items if isinstance(item.fact, Result)}
    for item in items:
        fact = item.fact
        match fact:
            case User():
                yield from _said(item)
            case Assistant():
                if said := extract_text(fact.content).strip():
                    yield Line(_indented(f"You: {said}"))
                for call in extract_calls(fact.content):
                    yield Line(f"- {_did(call)}: {_outcome(call, results.get(call.id))}")
            case Result():
                pass


def _said(item: ViewItem) -> Iterator[Line]:
    """Yield lines for a message to the model; for an earlier folding, its own lines."""
    assert isinstance(item.fact, User)
    text = extract_text(item.fact.content).strip()
    if is_folded(item):
        yield from _unfolded(text.partition("\n\n")[2])
    elif item.fact.origin == "human" or is_summary(item):
        yield Line(_indented(f"{USER}{text}"), lasting=True)
    else:
        yield Line(_indented(f"[{item.fact.origin}] {_short(text, REMARK)}"))


def _unfolded(text: str) -> Iterator[Line]:
    """Yield the steps of an earlier folding: an indented line belongs to the one before it."""
    for step in re.split(r"\n(?!  |\n)", text):
        if not step.startswith("("):
            yield Line(step, lasting=step.startswith(USER))


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _did(call: Call) -> str:
    """Describe a call: the tool, and its file, command or pattern."""
    args = decoded(call.args)
    act = Act(0, kind_of(call.name, args), call.name, args, "")
    other = act.arg("pattern", "query", "url", "description", "prompt", "name")
    subject = act.path or act.command or other
    return f"{call.name} {_short(' '.join(subject.split()), SUBJECT)}".strip()


def _outcome(call: Call, result: Result | None) -> str:
    """Describe the result of a call in one line."""
    if result is None:
        return "no result"
    lines = [line.strip() for line in extract_text(result.content).splitlines() if line.strip()]
    if not lines:
        return "failed without output" if result.error else "done without output"
    kind = kind_of(call.name, decoded(call.args))
    if result.error:
        return f"failed: {_short(lines[-1] if kind == 'shell' else lines[0], OUTCOME)}"
    if kind == "read":
        return f"{len(lines)} lines"
    if kind == "shell":
        more = f" ({len(lines)} lines)" if len(lines) > 1 else ""
        return f"{_short(lines[-1], OUTCOME)}{more}"
    return _short(lines[0], OUTCOME)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
