"""L2, microcompaction plans: old results that can be fetched again shrink to one line each.

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

from travois.context.compaction.cut import ConversationCut, is_clean_cut, is_summary
from travois.context.layers import ContextLayers
from travois.context.ledger.extractors import (
    TOOL_FAMILIES,
    ActionKind,
    ToolAction,
    classify_tool,
    decode_arguments,
)
from travois.core.content import Call, Opaque, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import block_tokens, estimate_tokens, fact_tokens
from travois.core.view import THINKING_KINDS, View, ViewItem, has_thinking, shorten_arguments

CLEARABLE_KINDS: tuple[ActionKind, ...] = ("shell", "read", "edit", "write", "delete", "patch")
SEARCH_TOOLS = (
    "grep glob ls list search findfiles websearch webfetch fetch bashoutput recall "
    "gitstatus gitdiff gitlog gitshow gitblame"
)
CLEARABLE_TOOLS = frozenset(
    " ".join((*(TOOL_FAMILIES[kind] for kind in CLEARABLE_KINDS), SEARCH_TOOLS)).split()
) - {"notebookedit"}
"""Tools whose results can be had again, by the last part of their name in small letters."""
MIN_CLEARED_TOKENS = 300
"""A result below this costs less than the line that would take its place is worth."""
INPUT_CLEARED_KINDS: tuple[ActionKind, ...] = ("edit", "write", "patch")
"""Tools whose arguments are what is long, not their results."""
MIN_INPUT_TOKENS = 400
"""The tokens from which on arguments are worth clearing."""
MIN_THINKING_TOKENS = 500
"""Thinking of fewer tokens is not worth clearing."""
CLEARED_LINE_TOKENS = 40
"""The tokens of what takes the place of a result."""


class ClearingConditions(msgspec.Struct, frozen=True):
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


class ClearingPlan(msgspec.Struct, frozen=True):
    """A plan: the results to clear, who clears them, and how many tokens that frees."""

    calls: tuple[str, ...]
    where: Literal["local", "server"]
    freed: int
    inputs: tuple[str, ...] = ()
    """Calls whose long arguments give way."""


def plan_clearing(
    view: View, layers: ContextLayers, *, now: ClearingConditions
) -> ClearingPlan | None:
    """Plan which old tool results to clear before the next request; None if none."""
    bound = has_thinking(view)
    if bound and not now.server:
        return None
    old = _clearable_results(view, layers, now)
    if not old:
        return None
    found = plan_server_clearing(view, old, layers) if bound else plan_local_clearing(view, old)
    if not bound and layers.inputs:
        written, freed = _long_inputs(view, old)
        found = replace(found, inputs=written, freed=found.freed + freed)
    if now.cold:
        return found if found.freed >= layers.cleared else None
    enough = found.freed >= layers.pressed_cleared
    return found if enough and clearing_pays(view, found, now=now) else None


def find_old_thinking(view: View, *, least: int = MIN_THINKING_TOKENS) -> int:
    """Return the last entry whose thinking can be cleared, as a later turn has some; else 0."""
    facts = [item.fact for item in view.items]
    last = max((i for i, fact in enumerate(facts) if _thinking_blocks(fact)), default=0)
    while last > 0 and not isinstance(facts[last - 1], User):
        last -= 1
    gone = sum(map(_count_thinking_tokens, facts[:last]))
    return view.items[last - 1].seq if gone >= least else 0


def _thinking_blocks(fact: User | Assistant | Result) -> list[Opaque]:
    blocks = fact.content if isinstance(fact, Assistant) else ()
    return [b for b in blocks if isinstance(b, Opaque) and b.kind in THINKING_KINDS]


def _count_thinking_tokens(fact: User | Assistant | Result) -> int:
    """Estimate the tokens of a reply's thinking, which is billed even if hidden."""
    thoughts = _thinking_blocks(fact)
    if not thoughts or not isinstance(fact, Assistant):
        return 0
    others = sum(block_tokens(block) for block in fact.content if block not in thoughts)
    return max(sum(estimate_tokens(b.raw) for b in thoughts), fact.usage.output - others)


def _clearable_results(
    view: View, layers: ContextLayers, now: ClearingConditions
) -> list[ViewItem]:
    """Return the tool results that may be cleared now."""
    if now.cold:
        held = min(layers.pressed_tokens, now.limit // 4) if now.early else 0
        return list_oldest_results(view, kept=max(1, layers.kept), protected=held)
    if not layers.pressure or not now.warn <= now.size < now.limit:
        return []
    return list_oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)


def is_clearable_tool(name: str) -> bool:
    """Return whether a tool of this name can be called again for the same result."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain in CLEARABLE_TOOLS and not name.startswith("mcp__")


def clearing_pays(view: View, plan: ClearingPlan, *, now: ClearingConditions) -> bool:
    """Return whether rewriting the cache after the first cleared result pays off in time.

    A session is assumed to last as long again as it has lasted; the compaction that would otherwise
    follow frees more, so no gain counts beyond it.
    """
    replies = sum(isinstance(item.fact, Assistant) for item in view.items)
    growth = max(1.0, now.size / max(1, replies))
    left = min(replies, (now.limit - now.size) / growth)
    tail = _tokens_after(view.items, {*plan.calls, *plan.inputs}) - plan.freed
    return left >= (now.write - now.read) * tail / (now.read * plan.freed)


def _tokens_after(items: Sequence[ViewItem], gone: set[str]) -> int:
    """Return the tokens from the first cleared result on, which the cache must rewrite."""
    results = [isinstance(item.fact, Result) and item.fact.call in gone for item in items]
    return sum(fact_tokens(item.fact) for item in items[results.index(True) :])


def list_oldest_results(view: View, *, kept: int, protected: int) -> list[ViewItem]:
    """Return the sent tool results without the newest ones and so many tokens."""
    results = [item for item in view.items[: view.seen] if isinstance(item.fact, Result)]
    end, size = max(0, len(results) - kept), 0
    size = sum(fact_tokens(item.fact) for item in results[end:])
    while end > 0 and size < protected:
        end -= 1
        size += fact_tokens(results[end].fact)
    return results[:end]


def plan_local_clearing(view: View, old: Sequence[ViewItem]) -> ClearingPlan:
    """Plan to clear the large results of tools that can be called again."""
    names = dict(_pair_calls_with_tools(view))
    sizes = {
        fact.call: size
        for item in old
        if isinstance(fact := item.fact, Result)
        and is_clearable_tool(names.get(fact.call, ""))
        and all(isinstance(block, Text) for block in fact.content)
        and (size := fact_tokens(fact)) >= MIN_CLEARED_TOKENS
    }
    return ClearingPlan(
        tuple(sizes), "local", sum(sizes.values()) - CLEARED_LINE_TOKENS * len(sizes)
    )


def _long_inputs(view: View, old: Sequence[ViewItem]) -> tuple[tuple[str, ...], int]:
    """Return old calls with long arguments, and what clearing them frees."""
    done = {item.fact.call for item in old if isinstance(item.fact, Result)}
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    made = [call for reply in replies for call in extract_calls(reply.content) if call.id in done]
    sizes = {
        call.id: size - estimate_tokens(shorten_arguments(call.args, ""))
        for call in made
        if classify_tool(call.name, {}) in INPUT_CLEARED_KINDS
        and (size := estimate_tokens(call.args)) >= MIN_INPUT_TOKENS
    }
    sizes = {
        call: size - CLEARED_LINE_TOKENS
        for call, size in sizes.items()
        if size > CLEARED_LINE_TOKENS
    }
    return tuple(sizes), sum(sizes.values())


def plan_server_clearing(
    view: View, old: Sequence[ViewItem], layers: ContextLayers
) -> ClearingPlan:
    """Plan to let the provider clear all such calls up to a point, the only set it accepts."""
    names = dict(_pair_calls_with_tools(view))
    sizes = {
        fact.call: fact_tokens(fact)
        for item in old
        if isinstance(fact := item.fact, Result) and is_clearable_tool(names.get(fact.call, ""))
    }
    freed = sum(
        max(0, size - CLEARED_LINE_TOKENS)
        for call, size in sizes.items()
        if call not in view.cleared
    )
    if not layers.inputs:
        return ClearingPlan(tuple(sizes), "server", freed)
    written, more = _long_inputs(
        view, [item for item in old if _call_id_of(item) not in view.cleared_inputs]
    )
    inputs = tuple(call for call in written if call in sizes)
    return ClearingPlan(tuple(sizes), "server", freed + more, inputs)


def _call_id_of(item: ViewItem) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""


def _pair_calls_with_tools(view: View) -> Iterator[tuple[str, str]]:
    """Yield each tool call's ID and tool name, to plan clearing."""
    for item in view.items:
        if isinstance(item.fact, Assistant):
            yield from ((call.id, call.name) for call in extract_calls(item.fact.content))


# L2.6: where the prefix moves anyway, old calls fold into a line each that keeps the outcome.


FOLDED_MARK = "Earlier steps of this conversation are folded here."
FOLDED_OPENING = (
    f"{FOLDED_MARK} What the user and you said stands word for word (further lines indented), "
    "each of your calls as one line with its outcome. The newest messages follow unchanged. "
    "The calls with their results can be read in these files, oldest first:"
)
SNIPPED_NOTE = "(The {count} oldest steps are left out here; they are in the files above.)"
MAX_LISTED_FILES = 12
"""The number of files with a line of their own."""
USER_PREFIX = "The user: "
MAX_OUTCOME_CHARS = 120
"""The characters shown of an outcome."""
MAX_SUBJECT_CHARS = 100
MAX_NOTE_CHARS = 1_200
"""The characters shown of a harness note."""


class FoldedLine(msgspec.Struct, frozen=True):
    """One step in the folded part of a conversation."""

    text: str
    lasting: bool = False
    """True for the user's words, which are never dropped."""


def find_foldable_part(view: View, *, tail: int) -> ConversationCut | None:
    """Return the part of a conversation that can be folded; None if it is too small."""
    items = view.items
    begins = (i for i, one in enumerate(items) if isinstance(one.fact, Assistant) or is_folded(one))
    start = next(begins, len(items))
    end, size = len(items), 0
    while end > start and size < tail:
        end -= 1
        size += fact_tokens(items[end].fact)
    while end > start and not is_clean_cut(items, end):
        end -= 1
    gone = tuple(items[start:end])
    if not any(isinstance(item.fact, Result) for item in gone):
        return None
    return ConversationCut(gone, (*items[:start], *items[end:]))


def fold_items(items: Sequence[ViewItem], paths: Sequence[str], *, budget: int, snip: bool) -> str:
    """Return the folded text of these items; empty if it would exceed its budget."""
    lines = list(_fold_lines(items))
    head = "\n".join((FOLDED_OPENING, *(f"- {line}" for line in _list_paths(paths))))
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
    told = (SNIPPED_NOTE.format(count=len(gone)),) if gone else ()
    kept = (line.text for number, line in enumerate(lines) if number not in gone)
    return "\n".join((head, "", *told, *kept))


def _list_paths(paths: Sequence[str]) -> Iterator[str]:
    """Yield the newest folded paths, and the older ones as a range."""
    older, newer = paths[:-MAX_LISTED_FILES], paths[-MAX_LISTED_FILES:]
    if older:
        yield f"{older[0]} to {older[-1]} ({len(older)} files)"
    yield from newer


def is_folded(item: ViewItem) -> bool:
    """Return whether an item is the text of an earlier folding."""
    fact = item.fact
    return (
        isinstance(fact, User)
        and fact.origin == "note"
        and extract_text(fact.content).startswith(FOLDED_MARK)
    )


def _fold_lines(items: Sequence[ViewItem]) -> Iterator[FoldedLine]:
    """Yield one line for each message and tool call of a folded part of the conversation."""
    results = {item.fact.call: item.fact for item in items if isinstance(item.fact, Result)}
    for item in items:
        fact = item.fact
        match fact:
            case User():
                yield from _fold_user_item(item)
            case Assistant():
                if said := extract_text(fact.content).strip():
                    yield FoldedLine(_indent_lines(f"You: {said}"))
                for call in extract_calls(fact.content):
                    outcome = _summarise_result(call, results.get(call.id))
                    yield FoldedLine(f"- {_summarise_call(call)}: {outcome}")
            case Result():
                pass


def _fold_user_item(item: ViewItem) -> Iterator[FoldedLine]:
    """Yield the folded lines of a user message; an earlier folding keeps its own lines."""
    assert isinstance(item.fact, User)
    text = extract_text(item.fact.content).strip()
    if is_folded(item):
        yield from _split_folded_text(text.partition("\n\n")[2])
    elif item.fact.origin == "human" or is_summary(item):
        yield FoldedLine(_indent_lines(f"{USER_PREFIX}{text}"), lasting=True)
    else:
        yield FoldedLine(
            _indent_lines(f"[{item.fact.origin}] {_shorten_text(text, MAX_NOTE_CHARS)}")
        )


def _split_folded_text(text: str) -> Iterator[FoldedLine]:
    """Yield the steps of an earlier folding: an indented line belongs to the one before it."""
    for step in re.split(r"\n(?!  |\n)", text):
        if not step.startswith("("):
            yield FoldedLine(step, lasting=step.startswith(USER_PREFIX))


def _indent_lines(text: str) -> str:
    return text.replace("\n", "\n  ")


def _summarise_call(call: Call) -> str:
    """Describe a folded tool call: the tool, and its file, command or pattern."""
    args = decode_arguments(call.args)
    act = ToolAction(0, classify_tool(call.name, args), call.name, args, "")
    other = act.arg("pattern", "query", "url", "description", "prompt", "name")
    subject = act.path or act.command or other
    return f"{call.name} {_shorten_text(' '.join(subject.split()), MAX_SUBJECT_CHARS)}".strip()


def _summarise_result(call: Call, result: Result | None) -> str:
    """Describe a folded tool result in one line."""
    if result is None:
        return "no result"
    lines = [line.strip() for line in extract_text(result.content).splitlines() if line.strip()]
    if not lines:
        return "failed without output" if result.error else "done without output"
    kind = classify_tool(call.name, decode_arguments(call.args))
    if result.error:
        told = lines[-1] if kind == "shell" else lines[0]
        return f"failed: {_shorten_text(told, MAX_OUTCOME_CHARS)}"
    if kind == "read":
        return f"{len(lines)} lines"
    if kind == "shell":
        more = f" ({len(lines)} lines)" if len(lines) > 1 else ""
        return f"{_shorten_text(lines[-1], MAX_OUTCOME_CHARS)}{more}"
    return _shorten_text(lines[0], MAX_OUTCOME_CHARS)


def _shorten_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
