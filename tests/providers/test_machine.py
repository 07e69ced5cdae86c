"""Kernel and encoder together, through whatever a session can go through."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.providers.judges import Witness, results_follow_calls_in_order, spine
from tests.providers.stories import Author, Story, fetch, sendable
from travois.core.content import Text
from travois.core.facts import Cleared, Failed, Offloaded, Result, User
from travois.core.view import View, project_view
from travois.providers.encoder import RequestEncoder

CHANCE = st.randoms(use_true_random=False)


def results(view: View) -> dict[str, Result]:
    """Every result that there is, shown or still held back."""
    items = [*view.items, *(item for item in view.open.values() if item is not None)]
    return {item.fact.call: item.fact for item in items if isinstance(item.fact, Result)}


class Conversations(RuleBasedStateMachine):
    """One session and its forks, as any loop may drive them."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.author = Author(Random(0))
        self.witness = Witness()

    @initialize(chance=CHANCE)
    def begin(self, chance: Random) -> None:
        self.author.chance = chance
        self.story.append(self.author.epoch())

    @precondition(lambda self: self.story.view.epoch is None)
    @rule()
    def epoch_after_rewinding_to_nothing(self) -> None:
        self.story.append(self.author.epoch())

    @rule()
    def somebody_speaks(self) -> None:
        self.story.append(self.author.user())

    @precondition(lambda self: self.story.view.open)
    @rule()
    def some_call_finishes(self) -> None:
        result = self.author.result(self.story.view)
        assert result is not None
        self.story.append(result)

    @rule()
    def what_is_shown_changes(self) -> None:
        fact, before = self.author.change(self.story.view), results(self.story.view)
        if fact is None:
            return
        seen = self.story.view.items[: self.story.view.seen]
        sent = {item.fact.call for item in seen if isinstance(item.fact, Result)}
        self.story.append(fact)
        after = results(self.story.view)
        changed = {call for call in after if after[call] != before.get(call, after[call])}
        match fact:
            case Offloaded():
                assert changed <= {fact.call} - sent
            case Cleared(where="local"):
                assert changed <= set(fact.calls)
            case _:
                assert not changed

    @rule()
    def the_head_changes(self) -> None:
        self.story.append(self.author.epoch())

    @rule()
    def the_user_rewinds(self) -> None:
        self.story.append(self.author.rewind(self.story))
        self.witness.rewound()

    @precondition(lambda self: sendable(self.story.view))
    @rule()
    def the_model_replies(self) -> None:
        self.story.sent(self.witness.request(self.story)).append(self.author.reply())

    @precondition(lambda self: sendable(self.story.view))
    @rule()
    def a_request_fails(self) -> None:
        self.story.sent(self.witness.request(self.story)).append(Failed("server", "no"))

    @precondition(lambda self: sendable(self.story.view))
    @rule()
    def a_request_is_measured_and_not_sent(self) -> None:
        self.witness.request(self.story)
        self.witness.rewound()

    @precondition(lambda self: sendable(self.story.view))
    @rule()
    def a_fork_begins_with_its_parent(self) -> None:
        request = self.witness.request(self.story)
        fork = self.story.sent(request).fork()
        fork.append(User((Text("Summarise."),), origin="note"))
        made = RequestEncoder(fetch).build_request(fork.view)
        added = spine(made).removeprefix(spine(request))
        assert spine(made) == spine(request) + added
        assert added.endswith(b'"Summarise."}')
        assert made.pieces == request.pieces + (2 if b"(noted)" in added else 1)

    @invariant()
    def the_view_is_the_projection_of_the_log(self) -> None:
        assert self.story.view == project_view(self.story.entries)

    @invariant()
    def results_stand_in_the_order_asked(self) -> None:
        if sendable(self.story.view):
            body = RequestEncoder(fetch).build_request(self.story.view).body
            assert results_follow_calls_in_order(body)


TestConversations = Conversations.TestCase
TestConversations.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
