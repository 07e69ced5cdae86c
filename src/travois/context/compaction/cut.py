"""L4: the places where a conversation can be cut, and the texts that open a summary.

Model sees: one document in place of the older part, and where each dropped span can be read.
Tokens: at most `Layers.ledger + code + contents`, and what the model or the disk adds.
Cache: moves the prefix, once for each compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from travois.core.content import extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import fact_tokens
from travois.core.view import View, ViewItem

MIN_TEXT_MESSAGES = 5
"""The fewest messages with words that stay where notes replace what came before."""
CompactionTrigger = Literal["auto", "cold", "manual", "overflow", "switch"]
SUMMARY_MARK = "Earlier parts of this conversation were set aside to keep it within the window."
CONTINUE_INSTRUCTION = (
    "Go on with the work where it stands: do not greet, recap or ask whether to go on, and do not "
    "redo what is listed as done. Anything that was set aside can be read again in the files named "
    "below, or found with Recall."
)
SUMMARY_OPENING = (
    f"{SUMMARY_MARK} The summary below stands in their place; the newest messages come after it "
    f"unchanged. {CONTINUE_INSTRUCTION}"
)
LATER_PART_OPENING = (
    f"{SUMMARY_MARK} They stood here, after the messages above, which are unchanged; the summary "
    f"below stands in their place. {CONTINUE_INSTRUCTION}"
)
"""The opening where the later part is replaced and what stands before it stays."""
UNATTENDED_INSTRUCTION = (
    "Nobody is there to answer questions: take the next step at once, settle open points by the "
    "request and the rules below, and stop only when the work is done or cannot continue."
)

SUBAGENT_OPENING = (
    f"{SUMMARY_MARK} You are a sub-agent. Your task stands below, and nothing else is your task. "
    "The summary below stands in their place; the newest messages come after it unchanged. Go "
    "on with your task where it stands: do not greet, recap or ask whether to go on, and do not "
    "redo what is listed as done. Your last message is your report to the agent that started you. "
    "Anything that was set aside can be read again in the files named below, or found with Recall."
)
FORK_OPENING = (
    f"{SUBAGENT_OPENING} You are a fork: what was said before your task was said to the agent that "
    "you are a copy of. It tells you what is known, not what to do."
)


class ConversationCut(msgspec.Struct, frozen=True):
    """A cut of a conversation: the items to replace and those that stay."""

    dropped: tuple[ViewItem, ...]
    kept: tuple[ViewItem, ...]

    @property
    def fresh_items(self) -> tuple[ViewItem, ...]:
        """The items replaced for the first time: an earlier summary is rewritten, not kept."""
        return tuple(item for item in self.dropped if not is_summary(item))

    @property
    def first_seq(self) -> int:
        """The entry number of the first item to replace."""
        return self.dropped[0].seq

    @property
    def last_seq(self) -> int:
        """The entry number of the last item to replace."""
        return self.dropped[-1].seq


def cut_keeping_tail(view: View, *, tail: int) -> ConversationCut | None:
    """Cut a conversation to keep about `tail` newest tokens; None if nothing would go."""
    items = view.items
    size, index = 0, len(items)
    limit = _find_unanswered_start(items)
    while index > 0 and (index > limit or size < tail):
        index -= 1
        size += fact_tokens(items[index].fact)
    if size > tail and index < limit:
        index += 1
    while 0 < index < limit and not is_clean_cut(items, index):
        index += 1
    if index <= 0 or (index == 1 and is_summary(items[0])):
        return None
    return ConversationCut(tuple(items[:index]), tuple(items[index:]))


def cut_after_entry(view: View, seq: int, *, least: int, most: int) -> ConversationCut | None:
    """Cut a conversation after an entry; keep more if fewer than `least` tokens would stay.

    None if that keeps more than `most`: the summary at hand would then not cover all that is
    replaced.
    """
    items = view.items
    first = next((i for i, item in enumerate(items) if item.seq > seq), len(items))
    index = min(first, _find_unanswered_start(items))
    while index > 0 and not is_clean_cut(items, index):
        index -= 1
    size = sum(fact_tokens(item.fact) for item in items[index:])
    texts = sum(map(_has_text, items[index:]))
    if size > most:
        return None
    while index > 1 and (size < least or texts < MIN_TEXT_MESSAGES):
        before = index - 1
        while before > 0 and not is_clean_cut(items, before):
            before -= 1
        more = sum(fact_tokens(item.fact) for item in items[before:index])
        if is_summary(items[before]) or before == 0 or size + more > most:
            break
        texts += sum(map(_has_text, items[before:index]))
        index, size = before, size + more
    if index <= 0 or (index == 1 and is_summary(items[0])):
        return None
    return ConversationCut(tuple(items[:index]), tuple(items[index:]))


def _has_text(item: ViewItem) -> bool:
    """Return whether an item is a message with text, to choose where to cut the conversation."""
    return not isinstance(item.fact, Result) and bool(extract_text(item.fact.content).strip())


def cut_up_to_entry(view: View, seq: int) -> ConversationCut | None:
    """Cut everything up to an entry, keeping tool calls and their results together."""
    items = view.items
    index = next((i for i, item in enumerate(items) if item.seq > seq), len(items))
    while index > 0 and not is_clean_cut(items, index):
        index -= 1
    return ConversationCut(tuple(items[:index]), tuple(items[index:])) if index > 0 else None


def cut_from_entry(view: View, seq: int) -> ConversationCut | None:
    """Cut everything from an entry on; what stands before it stays, and so does its cache."""
    items = view.items
    index = next((i for i, item in enumerate(items) if item.seq >= seq), len(items))
    while index < len(items) and not is_clean_cut(items, index):
        index += 1
    return (
        ConversationCut(tuple(items[index:]), tuple(items[:index])) if index < len(items) else None
    )


def _find_unanswered_start(items: Sequence[ViewItem]) -> int:
    """Return the first item without an answer, which a cut must keep: a prompt or tool results."""
    index = len(items)
    while index > 0 and isinstance(items[index - 1].fact, User):
        index -= 1
    while index > 0 and isinstance(items[index - 1].fact, Result):
        index -= 1
    if 0 < index < len(items) and isinstance(items[index].fact, Result):
        index -= 1
    return max(index, 0)


def is_clean_cut(items: Sequence[ViewItem], index: int) -> bool:
    """Return whether a cut before this item separates no tool call from its result."""
    if index >= len(items):
        return True
    if isinstance(items[index].fact, Result):
        return False
    before = items[index - 1].fact if index else None
    return not (isinstance(before, Assistant) and extract_calls(before.content))


def is_summary(item: ViewItem) -> bool:
    """Return whether an item is the summary of an earlier compaction."""
    fact = item.fact
    return isinstance(fact, User) and fact.origin == "note" and SUMMARY_MARK in str(fact.content)
