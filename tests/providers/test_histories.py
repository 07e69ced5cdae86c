"""Many random histories, each request of each judged by strict validators."""

from __future__ import annotations

from random import Random

import pytest

from tests.providers.judges import Witness, faults, results_follow_calls_in_order
from tests.providers.stories import Author, Story, fetch, sendable
from tests.sampling import first
from travois.core.content import Text
from travois.core.facts import Result, Rewound, User
from travois.core.view import awaits_model, open_calls, project_view
from travois.providers.encoder import RequestEncoder

HISTORIES = 10_000
STEPS = 18


def tell(seed: int) -> tuple[Story, Witness]:
    """One history; everything that it sends is seen by a witness."""
    author, story, witness = Author(Random(seed)), Story(), Witness()
    for _ in range(STEPS):
        if sendable(story.view) and author.chance.random() < 0.6:
            story.sent(witness.request(story))
            author.answer(story)
            continue
        author.step(story)
        if isinstance(story.entries[-1].fact, Rewound):
            witness.rewound()
    return story, witness


@pytest.mark.slow
@pytest.mark.parametrize("share", first(2, range(4)))
def test_no_request_of_ten_thousand_histories_is_invalid(share: int):
    sent = 0
    for seed in range(share, HISTORIES, 4):
        story, witness = tell(seed)
        sent += witness.sent
        if sendable(story.view):
            body = witness.request(story).body
            assert results_follow_calls_in_order(body), seed
            assert body == RequestEncoder(fetch).build_request(project_view(story.entries)).body, (
                seed
            )
    assert sent > HISTORIES


@pytest.mark.parametrize("seed", first(150, range(300)))
def test_a_log_that_lost_lines_is_sendable_after_one_repair(seed: int):
    story, _ = tell(seed)
    chance = Random(seed)
    head, *rest = story.entries
    damaged = Story([head, *(entry for entry in rest if chance.random() > 0.15)])
    assert damaged.view.epoch is not None
    for call in open_calls(damaged.view):
        damaged.append(Result(call.id, (Text("stopped"),), error=True))
    if not awaits_model(damaged.view):
        damaged.append(User((Text("go on"),)))
    damaged.view.sent = None
    request = RequestEncoder(fetch).build_request(damaged.view)
    assert faults(damaged.view.epoch.model, request) == []
