"""The token accountant: what we estimate, what the provider counts, and the ratio between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.told import EPOCH, histories, reply, result, seen, user
from travois.core.content import Call, Media, Opaque, Text
from travois.core.facts import AnyFact, Compacted, Epoch, Restored, Rewound, User
from travois.core.models import ModelCard, Usage
from travois.core.tokens import (
    MAX_CACHED_CHARS,
    PLAUSIBLE_RATIOS,
    SHAPE_WEIGHTS,
    TOKENS_PER_CALL,
    TOKENS_PER_LINE,
    TOKENS_PER_MEDIA,
    TOKENS_PER_MIX,
    TOKENS_PER_NUMBER,
    TOKENS_PER_RESULT,
    TOKENS_PER_RUN,
    RequestSize,
    _weigh_text,
    block_tokens,
    compact_threshold,
    context_tokens,
    estimate_tokens,
    fact_tokens,
    family_ratio,
    free_request_room,
    head_tokens,
    max_request_size,
    measure_request,
    stop_threshold,
    token_ratio,
    warn_threshold,
)
from travois.core.view import View, project_view

TEXT = "x" * 400
"""A hundred tokens."""
SEAM = 25
"""What two halves of a run may cost more than the whole: fifteen digits or signs each."""
KNOWN_WORDS = ["window", "the", "parse", "Result", "of", "tokens", "x", "estimate_tokens", "README"]
runs = st.builds(
    "".join,
    st.lists(
        st.tuples(st.sampled_from(".-=#0AxX\n \t─|'"), st.integers(1, 60)).map(
            lambda run: run[0] * run[1]
        ),
        max_size=8,
    ),
)
texts = (
    st.text(st.characters(codec=None), max_size=200)
    | runs
    | st.sampled_from(
        ["def f(x):\n    return x + 1\n", "a1B2c3", "\ud800", "這是", "😀", "\r\n", "  ", " "]
    )
)


def steps(count: int, *, times: float, tokens: int = 2000) -> list[AnyFact]:
    """A session whose provider counts `times` as much as we estimate, reply after reply."""
    facts: list[AnyFact] = [EPOCH, user("go")]
    context = 1_000
    for number in range(count):
        usage = Usage(input=context, output=50)
        facts += [reply("", f"c{number}", usage=usage), result(f"c{number}", "x" * 4 * tokens)]
        context += 50 + round(times * (tokens + TOKENS_PER_RESULT))
    return facts


def test_each_shape_of_a_byte_weighs_what_it_weighs() -> None:
    for shape, text in {b"a": "q", b"A": "QX", b"0": "71", b"t": "\t"}.items():
        assert estimate_tokens(text * 1000) == round(1000 * len(text) * SHAPE_WEIGHTS[shape])
    assert estimate_tokens("{}" * 1000) == round(
        2000 * SHAPE_WEIGHTS[b"p"] + 500 * SHAPE_WEIGHTS[b"pppp"]
    )
    assert estimate_tokens("q\n" * 1000) == round(
        1000 * (SHAPE_WEIGHTS[b"a"] + SHAPE_WEIGHTS[b"n"] + TOKENS_PER_LINE)
    )
    assert estimate_tokens("q  " * 1000) == round(
        1000 * (SHAPE_WEIGHTS[b"a"] + SHAPE_WEIGHTS[b"  "])
    )
    assert estimate_tokens("é" * 1000) == round(1000 * SHAPE_WEIGHTS[b"y"])
    assert estimate_tokens("α" * 1000) == round(1000 * (SHAPE_WEIGHTS[b"y"] + SHAPE_WEIGHTS[b"g"]))
    assert estimate_tokens("😀" * 1000) == round(
        1000 * (3 * SHAPE_WEIGHTS[b"y"] + SHAPE_WEIGHTS[b"e"])
    )
    mixed = 1000 * (SHAPE_WEIGHTS[b"a"] + SHAPE_WEIGHTS[b"0"]) + 1999 * TOKENS_PER_MIX
    assert estimate_tokens("a1" * 1000) == round(mixed)
    assert estimate_tokens("1 " * 1000) == round(
        1000 * SHAPE_WEIGHTS[b"0"] + 1999 * TOKENS_PER_NUMBER
    )


def test_a_run_costs_little_wherever_it_stands() -> None:
    words = estimate_tokens("word " * 200)
    for run in ("-" * 80, "." * 400, "=" * 16, "\n" * 50, " " * 300, "=-" * 40, "─" * 60):
        for text in (f"{run}{'word ' * 200}", f"{'word ' * 100}{run}{'word ' * 100}"):
            assert words <= estimate_tokens(text) <= words + 10
    assert estimate_tokens("." * 80) == round(TOKENS_PER_RUN + 80 * 0.02)


def test_a_single_space_belongs_to_the_word_after_it() -> None:
    assert estimate_tokens("word word") == estimate_tokens("wordword")


def test_a_lone_surrogate_is_counted_like_the_three_bytes_it_would_be() -> None:
    assert estimate_tokens("\ud800" * 100) == estimate_tokens("這" * 100)


@given(texts, texts)
def test_the_parts_are_as_much_as_the_whole_but_for_rounding_and_the_seam(
    one: str, other: str
) -> None:
    """A run that is whole only in the whole costs less than its parts: one run at each seam."""
    whole = estimate_tokens(one + other)
    assert -SEAM <= whole - estimate_tokens(one) - estimate_tokens(other) <= 2
    assert whole >= max(estimate_tokens(one), estimate_tokens(other)) - SEAM


@given(texts)
def test_a_text_has_hardly_more_tokens_than_bytes(text: str) -> None:
    """No vocabulary has tokens of less than a byte; lines of one digit are dearest here."""
    assert estimate_tokens(text) <= 1.26 * len(text.encode(errors="surrogatepass")) + 2


@given(st.lists(st.sampled_from(KNOWN_WORDS), min_size=20, max_size=400))
def test_words_are_never_next_to_nothing(words: list[str]) -> None:
    text = " ".join(words)
    assert estimate_tokens(text) >= len(text) / 8


@given(texts)
def test_nothing_but_nothing_is_no_tokens(text: str) -> None:
    assert (estimate_tokens(text) == 0) == (text == "")


def test_remembering_a_weight_changes_nothing_but_time() -> None:
    for text in ("word\n" * 10, "word\n" * MAX_CACHED_CHARS):
        first = estimate_tokens(text)
        _weigh_text.cache_clear()
        assert estimate_tokens(text) == first == round(text.count("\n") * (4 * 0.25 + 1.78))


def test_each_kind_of_block_is_counted() -> None:
    assert estimate_tokens(TEXT) == 100
    assert block_tokens(Text(TEXT)) == 100
    assert block_tokens(Media("image", "image/png", "b", 10**9)) == TOKENS_PER_MEDIA
    assert block_tokens(Call("id", "x" * 4, "x" * 396)) == 100 + TOKENS_PER_CALL
    assert block_tokens(Opaque("anthropic", "thinking", TEXT, "short")) == 100
    assert fact_tokens(user(TEXT)) == 100
    assert fact_tokens(result("a", TEXT)) == 100 + TOKENS_PER_RESULT


def test_without_a_count_of_the_providers_everything_is_estimated() -> None:
    assert context_tokens(seen(EPOCH, user(TEXT), reply(TEXT))) == head_tokens(EPOCH) + 200
    assert context_tokens(View()) == 0


def test_the_providers_own_count_stands_and_only_the_rest_is_estimated() -> None:
    usage = Usage(input=10, read=100, write=20, write_1h=5, output=40)
    facts = (EPOCH, user("x" * 9999), reply("", "a", usage=usage))
    assert context_tokens(seen(*facts)) == 175
    assert context_tokens(seen(*facts, result("a", TEXT))) == 175 + 100 + TOKENS_PER_RESULT


@pytest.mark.parametrize("times", [0.6, 1.0, 1.4, 2.2])
def test_what_a_model_counts_more_or_less_is_learned_from_its_replies(times: float) -> None:
    view = seen(*steps(12, times=times))
    assert token_ratio(view) == pytest.approx(times, rel=0.15)
    assert abs(token_ratio(view) - times) <= abs(token_ratio(seen(*steps(3, times=times))) - times)


def test_what_was_learned_serves_the_whole_view_after_a_compaction() -> None:
    facts = steps(12, times=1.5)
    view = seen(*facts, Compacted(2, 3, (Text(TEXT),), "model"))
    assert view.counted == -1
    estimated = head_tokens(EPOCH) + sum(fact_tokens(item.fact) for item in view.items)
    assert context_tokens(view) == round(estimated * token_ratio(view))
    assert token_ratio(view) > 1.3


def test_a_history_that_was_edited_between_two_replies_teaches_nothing() -> None:
    facts = steps(8, times=1.0)
    odd = [
        Usage(input=100, output=5),
        Usage(input=90_000, output=5),
        Usage(input=900_000, estimated=True),
        Usage(),
    ]
    for usage in odd:
        view = seen(*facts, user("on"), reply("ok", usage=usage), user("and on"))
        assert token_ratio(view) == pytest.approx(token_ratio(seen(*facts)), abs=0.02)


def test_another_model_counts_in_its_own_way() -> None:
    facts = steps(12, times=0.6)
    other = replace(EPOCH, model=ModelCard("lab", "claude-opus-5", "anthropic"))
    view = seen(*facts, other)
    assert token_ratio(view) == family_ratio("claude-opus-5") == 1.27
    whole = head_tokens(other) + sum(fact_tokens(item.fact) for item in view.items)
    assert context_tokens(view) == round(1.27 * whole)
    assert token_ratio(seen(*facts, replace(EPOCH, why="the same model"))) == token_ratio(
        seen(*facts)
    )


@pytest.mark.parametrize(
    ("model", "usual"),
    [
        ("claude-opus-4-5-20251101", 1.0),
        ("claude-sonnet-5", 1.27),
        ("claude-opus-5-5", 1.27),
        ("gpt-5.2-codex", 0.78),
        ("o3", 0.78),
        ("qwen3-coder", 1.0),
    ],
)
def test_the_ratio_of_a_family(model: str, usual: float) -> None:
    assert family_ratio(model) == usual


@given(histories())
def test_a_view_that_grew_counts_like_one_that_is_projected_anew(log: list) -> None:
    view = View()
    for number, entry in enumerate(log, 1):
        if isinstance(entry.fact, Rewound | Restored):
            view = project_view(log[:number])
        else:
            view.add(entry)
    again = project_view(log)
    assert (token_ratio(view), context_tokens(view)) == (token_ratio(again), context_tokens(again))
    assert PLAUSIBLE_RATIOS[0] <= token_ratio(view) <= PLAUSIBLE_RATIOS[1]


@given(st.integers(4_000, 2_000_000), st.integers(1, 200_000))
def test_every_window_has_room_to_work_in(window: int, output: int) -> None:
    model = ModelCard("lab", "m", "chat", window=window, output=output)
    assert (
        0.3 * window
        < warn_threshold(model)
        < compact_threshold(model)
        < stop_threshold(model)
        < window
    )


def test_a_request_is_limited_in_tokens_bytes_and_media() -> None:
    image = Media("image", "image/png", "b", 3 << 20)
    view = seen(EPOCH, User((image, image, Text("ü" * 1000))))
    held = measure_request(view)
    assert (held.media, held.media_bytes) == (2, 8 << 20)
    assert held.bytes == pytest.approx((8 << 20) + 2200, abs=100)
    assert held.tokens == context_tokens(view)
    assert free_request_room(view) == max_request_size(EPOCH.model) - held
    assert free_request_room(view).shortages == ()


def test_what_there_is_too_much_of_is_named() -> None:
    assert RequestSize(tokens=-1, media_bytes=-1).shortages == ("tokens", "media_bytes")
    image = Media("image", "image/png", "b", 100)
    assert free_request_room(seen(EPOCH, User((image,) * 101))).shortages == ("tokens", "media")
    blind: Epoch = replace(EPOCH, model=replace(EPOCH.model, images=False))
    assert free_request_room(seen(blind, User((image,)))).shortages == ("media",)
    assert free_request_room(seen(EPOCH, user("x" * (33 << 20)))).shortages == ("tokens", "bytes")
