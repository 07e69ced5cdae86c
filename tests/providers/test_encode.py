from __future__ import annotations

import msgspec
import pytest

from tests.providers import canon
from tests.providers.stories import TOOLS, Story, fetch
from travois.core.content import Call, Media, Text
from travois.core.facts import (
    Assistant,
    Cleared,
    Compacted,
    Epoch,
    Offloaded,
    Result,
    Rewound,
    User,
)
from travois.core.models import ModelCard
from travois.providers.encoder import RequestEncoder
from travois.providers.request import PrefixBreak, Request

MODELS = (
    ModelCard("a", "claude", "anthropic"),
    ModelCard("o", "gpt", "chat"),
    ModelCard("o", "gpt", "responses"),
    ModelCard("g", "gemini", "gemini"),
    ModelCard("l", "qwen", "ollama"),
)
MORE = User((Text("more"),))


@pytest.fixture(params=MODELS, ids=lambda model: model.protocol)
def story(request: pytest.FixtureRequest) -> Story:
    """A session that has sent one request and has had its answer."""
    story = Story().append(Epoch(request.param, "Be brief.", TOOLS), canon.HELLO)
    return story.sent(cold(story)).append(canon.ASKED, canon.GIVEN)


def cold(story: Story) -> Request:
    return RequestEncoder(fetch).build_request(story.view)


def test_nothing_leaves_while_a_call_is_open(story: Story):
    story.append(Assistant((Call("c", "Read", "{}"),), stop="calls"))
    with pytest.raises(AssertionError, match="calls without a result"):
        cold(story)


def test_nothing_leaves_when_the_last_word_is_the_models(story: Story):
    story.append(Assistant((Text("Done."),), stop="end"))
    with pytest.raises(AssertionError, match="the last word is the model's"):
        cold(story)


def test_a_request_that_betrays_the_one_before_is_refused(story: Story):
    story.view.items[0] = msgspec.structs.replace(story.view.items[0], fact=MORE)
    with pytest.raises(PrefixBreak, match="differ somewhere"):
        cold(story)


def test_a_broken_prefix_is_named_where_it_is_known(story: Story):
    encoder = RequestEncoder(fetch)
    first = encoder.build_request(story.view)
    story.sent(first)
    item = story.view.items[-1]
    story.view.items[-1] = msgspec.structs.replace(item, fact=Result("toolu_1", ()))
    with pytest.raises(PrefixBreak, match=f"first at piece {first.pieces - 1}"):
        encoder.build_request(story.view)


def test_a_request_shorter_than_the_one_before_is_refused(story: Story):
    story.append(MORE).sent(cold(story))
    del story.view.items[-1]
    with pytest.raises(PrefixBreak, match="differ somewhere"):
        cold(story)


def test_a_fact_that_moves_the_prefix_excuses_it(story: Story):
    encoder = RequestEncoder(fetch)
    before = encoder.build_request(story.view)
    story.sent(before).append(Compacted(2, 5, (Text("We looked."),), by="model"), MORE)
    after = encoder.build_request(story.view)
    assert after == cold(story)
    assert after.pieces < before.pieces


def test_clearing_a_result_that_was_sent_long_ago_is_seen(story: Story):
    encoder = RequestEncoder(fetch)
    for _ in range(3):
        story.append(MORE).sent(encoder.build_request(story.view))
    story.append(Cleared(("toolu_1",), "[cleared]"), MORE)
    assert encoder.build_request(story.view) == cold(story)


def test_a_model_switch_is_seen(story: Story):
    encoder = RequestEncoder(fetch)
    story.sent(encoder.build_request(story.view)).append(Epoch(MODELS[0], "Be kind."))
    assert encoder.build_request(story.view) == cold(story)


def test_measuring_before_offloading_leaves_no_trace(story: Story):
    encoder = RequestEncoder(fetch)
    encoder.build_request(story.view)
    story.append(Offloaded("toolu_1", "blob", "short"))
    assert encoder.build_request(story.view) == cold(story)


def test_one_encoder_may_serve_a_rewound_session(story: Story):
    encoder = RequestEncoder(fetch)
    story.sent(encoder.build_request(story.view)).append(Assistant((Text("A."),), stop="end"), MORE)
    encoder.build_request(story.view)
    story.append(Rewound(5), User((Text("instead"),)))
    assert encoder.build_request(story.view) == cold(story)


def test_one_encoder_may_serve_two_sessions_in_turn(story: Story):
    other = Story().append(*(entry.fact for entry in story.entries[:2]), MORE)
    encoder = RequestEncoder(fetch)
    for each in (story, other, story):
        assert encoder.build_request(each.view) == cold(each)


def test_a_failing_blob_store_leaves_the_encoder_as_it_was(story: Story):
    failures = [OSError("png")]

    def once_broken(blob: str) -> bytes:
        if failures:
            raise failures.pop()
        return fetch(blob)

    encoder = RequestEncoder(once_broken)
    encoder.build_request(story.view)
    story.append(User((Text("see"), Media("image", "image/png", "png", 8))))
    with pytest.raises(OSError, match="png"):
        encoder.build_request(story.view)
    assert encoder.build_request(story.view) == cold(story)


def test_the_digest_tells_every_difference_in_the_body():
    heads = [
        Epoch(model, system, tools)
        for model in (
            *MODELS,
            ModelCard("a", "claude", "anthropic", output=1),
            ModelCard("a", "claude", "anthropic", cache_ttl="1h"),
            ModelCard("a", "claude", "anthropic", params='"speed":"fast"'),
            ModelCard("a", "claude", "anthropic", quirks=("no-cache-markers",)),
        )
        for system in ("", "Be brief.")
        for tools in ((), TOOLS)
    ]
    said = [(canon.HELLO,), (canon.HELLO, MORE), (MORE,), canon.ONE_CALL]
    requests = [cold(Story().append(head, *facts)) for head in heads for facts in said]
    bodies = {request.body for request in requests}
    assert len(bodies) == len(requests)
    assert len({request.digest for request in requests}) == len(requests)


def test_where_the_markers_stand_is_part_of_the_digest():
    story = Story().append(Epoch(MODELS[0], ""), *canon.ONE_CALL)
    one = cold(story)
    story.view.anchor = 1
    other = cold(story)
    assert (one.chain, one.pieces) == (other.chain, other.pieces)
    assert (one.body != other.body) and (one.digest != other.digest)


def test_the_cost_of_a_request_does_not_grow_with_what_was_sent_before(story: Story):
    looked: list[str] = []
    encoder = RequestEncoder(lambda blob: looked.append(blob) or fetch(blob))
    picture = User((Media("image", "image/png", "png", 8),))
    for turn in range(1, 6):
        story.append(picture)
        story.sent(encoder.build_request(story.view)).append(Assistant((Text("ok"),), stop="end"))
        assert len(looked) == turn
