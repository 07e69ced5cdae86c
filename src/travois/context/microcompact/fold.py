"""L2.6, folding: where the prefix moves anyway, old calls become a line each.

Model sees: in place of old calls and results, one line each in one message.
Tokens: at most about 60 for each call; what the user and the model said stays.
Cache: moves the prefix, so only where a compaction would move it anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from travois.context.compaction.cut import ConversationCut, is_clean_cut, is_summary
from travois.context.ledger.extractors import ToolAction, classify_tool, decode_arguments
from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import estimate_tokens, fact_tokens
from travois.core.view import View, ViewItem

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
