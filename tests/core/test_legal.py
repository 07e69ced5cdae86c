"""Which facts may follow which; every rule has a case that it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.core.told import EPOCH, entries, histories, reply, result, seen, user
from travois.core.content import Text
from travois.core.facts import (
    AnyFact,
    Cleared,
    Compacted,
    Ended,
    Entry,
    Noted,
    Offloaded,
    Opened,
    Rewound,
    Sent,
)
from travois.core.legality import find_send_blocker, find_violation
from travois.core.view import View, project_view

GO = (EPOCH, user("go"))
ASKED = (*GO, reply("", "a", "b"))
HALF = (*ASKED, result("b"))
DONE = (*HALF, result("a"))
SENT = Sent(1, "c", "d", 9)
SPAN = (Text("s"),)

REFUSED = {
    "a reply before the first epoch": ((), reply("x"), "a reply before the first epoch"),
    "a reply while calls are open": (HALF, reply("x"), "a reply while calls are open: ['a', 'b']"),
    "an id that was used before": (DONE, reply("", "b"), "call ids used twice: ['b']"),
    "an id twice in one reply": (GO, reply("", "x", "x"), "call ids used twice: ['x', 'x']"),
    "an id that was rewound": ((*DONE, Rewound(2)), reply("", "a"), "call ids used twice: ['a']"),
    "a result of no call": (ASKED, result("z"), "no open call z"),
    "a second result": (HALF, result("b"), "no open call b"),
    "a late result": (DONE, result("a"), "no open call a"),
    "a request without a head": ((user("go"),), SENT, "no epoch"),
    "a request with calls open": (HALF, SENT, "calls without a result: ['a', 'b']"),
    "a request with nothing said": ((EPOCH,), SENT, "the last word is the model's"),
    "a request after the last word": ((*GO, reply("x")), SENT, "the last word is the model's"),
    "a preview of no result": (
        ASKED,
        Offloaded("a", "blob", "p"),
        "the result of a is not there or was already seen",
    ),
    "a preview of what was seen": (
        (*DONE, SENT),
        Offloaded("a", "blob", "p"),
        "the result of a is not there or was already seen",
    ),
    "a clear of unknown calls": (DONE, Cleared(("a", "z"), "t"), "no such calls: ['z']"),
    "a span that begins nowhere": (
        DONE,
        Compacted(99, 5, SPAN, "model"),
        "the span's ends are not in the view",
    ),
    "a span that ends nowhere": (
        DONE,
        Compacted(2, 99, SPAN, "model"),
        "the span's ends are not in the view",
    ),
    "a span that ends before it begins": (
        DONE,
        Compacted(5, 2, SPAN, "model"),
        "the span ends before it begins",
    ),
    "a span that splits a call from its result": (
        DONE,
        Compacted(2, 3, SPAN, "model"),
        "the span splits calls: ['a', 'b']",
    ),
    "a span that ends between results, as shown": (
        DONE,
        Compacted(2, 5, SPAN, "model"),
        "the span splits calls: ['b']",
    ),
    "a rewind to nothing": (DONE, Rewound(0), "nothing stands before the first entry"),
}
ALLOWED: dict[str, tuple[tuple[AnyFact, ...], AnyFact]] = {
    "a reply": (GO, reply("x")),
    "a result of an open call": (HALF, result("a")),
    "a request when the next word is the model's": (DONE, SENT),
    "a request after a pause": ((*GO, reply("x", stop="pause")), SENT),
    "a preview of a result that is held": (HALF, Offloaded("b", "blob", "p")),
    "a preview of a result that was not sent": (DONE, Offloaded("a", "blob", "p")),
    "a clear of known calls": (DONE, Cleared(("a", "b"), "t")),
    "a span of whole calls": (DONE, Compacted(2, 4, SPAN, "model")),
    "a span of one message": (DONE, Compacted(2, 2, SPAN, "model")),
    "a rewind": (DONE, Rewound(1)),
    "anything for audit": ((), Opened("s", "/", "p", "0")),
    "a note": (HALF, Noted("n", "x")),
    "an end": (HALF, Ended("end")),
    "words at any time": (HALF, user("x")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    before, fact, why = REFUSED[name]
    assert find_violation(seen(*before), fact) == why


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str) -> None:
    before, fact = ALLOWED[name]
    assert find_violation(seen(*before), fact) == ""


def test_an_empty_view_has_nothing_to_send() -> None:
    assert find_send_blocker(View()) == "no epoch"


@given(histories())
@settings(max_examples=60, deadline=None)
def test_offloading_never_changes_what_the_model_has_seen(log: list[Entry]) -> None:
    view = project_view(log)
    before = list(view.items[: view.seen])
    for call in sorted(view.ids):
        fact = Offloaded(call, "blob", "short")
        if not find_violation(view, fact):
            view.add(entries(fact)[0])
    assert view.items[: view.seen] == before
