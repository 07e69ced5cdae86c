"""Legality of the log: which fact may follow which, so that every view can be sent."""

from __future__ import annotations

from travois.core.content import extract_calls
from travois.core.facts import (
    IMPORTED_DETAIL,
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Offloaded,
    Restored,
    Result,
    Rewound,
    Sent,
)
from travois.core.view import View, awaits_model, open_calls


def find_violation(view: View, fact: AnyFact) -> str:
    """Return why a fact may not legally follow this view in the log; empty if it may."""
    match fact:
        case Assistant():
            return _check_reply(view, fact)
        case Result():
            pending = {call.id for call in open_calls(view)}
            return "" if fact.call in pending else f"no open call {fact.call}"
        case Sent():
            return find_send_blocker(view)
        case Offloaded():
            return _check_offload(view, fact)
        case Cleared():
            unknown = [call for call in fact.calls if call not in view.ids]
            return f"no such calls: {unknown}" if unknown else ""
        case Compacted():
            return _check_compaction(view, fact)
        case Rewound():
            return "" if fact.to > 0 else "nothing stands before the first entry"
        case Restored():
            stands = fact.compaction in view.summaries
            return "" if stands else f"no summary of entry {fact.compaction} is shown"
        case _:
            return ""


def find_send_blocker(view: View) -> str:
    """Return why no legal request can be sent now; empty if one can."""
    if view.epoch is None:
        return "no epoch"
    if view.omitted:
        return "the conversation is larger than any window"
    if view.open:
        return f"calls without a result: {list(view.open)}"
    if not awaits_model(view):
        return "the last word is the model's"
    return ""


def _check_reply(view: View, fact: Assistant) -> str:
    """Return why a model's reply may not follow this view; empty if it may."""
    if view.epoch is None and fact.detail != IMPORTED_DETAIL:
        return "a reply before the first epoch"
    if view.open:
        return f"a reply while calls are open: {list(view.open)}"
    ids = [call.id for call in extract_calls(fact.content)]
    if len(set(ids)) < len(ids) or not view.ids.isdisjoint(ids):
        return f"call ids used twice: {ids}"
    return ""


def _check_offload(view: View, fact: Offloaded) -> str:
    """Return why a tool result may not be replaced by a preview; empty if it may."""
    if view.open.get(fact.call) is not None:
        return ""
    unseen = (item.fact for item in view.items[view.seen :])
    if any(isinstance(fact_, Result) and fact_.call == fact.call for fact_ in unseen):
        return ""
    return f"the result of {fact.call} is not there or was already seen"


def _check_compaction(view: View, fact: Compacted) -> str:
    """Return why these entries cannot be compacted, such as a split call; empty if they can."""
    where = {item.seq: index for index, item in enumerate(view.items)}
    if fact.first not in where or fact.last not in where:
        return "the span's ends are not in the view"
    first, last = where[fact.first], where[fact.last]
    if first > last:
        return "the span ends before it begins"
    inside = view.items[first : last + 1]
    asked = {
        c.id for i in inside if isinstance(i.fact, Assistant) for c in extract_calls(i.fact.content)
    }
    answered = {i.fact.call for i in inside if isinstance(i.fact, Result)}
    return "" if asked == answered else f"the span splits calls: {sorted(asked ^ answered)}"
