"""One request, one reply: what is tried again, what is mended, and what is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.fakes import Naps, agent, begun, facts, play, small
from travois.core.content import Opaque, Text
from travois.core.facts import Assistant, Ended, Epoch, Failed, Sent, User
from travois.core.models import Usage
from travois.engine.agent import Agent, RetryPolicy, retry_delay
from travois.engine.retry import SHRINKABLE_PROBLEMS
from travois.ports.world import RequestRetrying, UserWarned
from travois.providers.replies import RETRYABLE_KINDS, ApiError, ApiErrorKind, Reply
from travois.testing import call, say

KINDS: tuple[ApiErrorKind, ...] = get_args(ApiErrorKind)
PATIENCE = RetryPolicy(attempts=3, first=0.5, longest=60.0)


def failed(one: Agent) -> list[tuple[str, int, float]]:
    return [(fact.kind, fact.attempt, fact.wait) for fact in facts(one, Failed)]


def thoughtful(text: str = "ok") -> Reply:
    raw = '{"type":"thinking","thinking":"","signature":"s"}'
    return Reply((Opaque("anthropic", "thinking", raw), Text(text)), stop="end", usage=Usage())


@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_by_itself_is_tried_again_and_the_rest_is_not(
    tmp_path: Path, kind: ApiErrorKind
) -> None:
    nap = Naps()
    one = agent(tmp_path, ApiError(kind, "oh"), say("ok"), sleep=nap, chance=lambda: 0.0)
    if kind in RETRYABLE_KINDS:
        assert play(one) == "end"
        assert (failed(one), nap.slept) == ([(kind, 1, 0.5)], [0.5])
    else:
        assert play(one) == "failed"
        told = [one for one in failed(one) if one[0] == kind]
        wait = (
            0.0 if kind in SHRINKABLE_PROBLEMS else -1.0
        )  # a smaller request was thought of, in vain
        assert (told, nap.slept) == ([(kind, 1, wait)], [])
        assert facts(one, Ended) == [Ended("failed", f"{kind}: oh")]


@pytest.mark.parametrize(
    ("problem", "attempt", "chance", "expected"),
    [
        (ApiError("rate", "x"), 1, 0.0, 0.5),
        (ApiError("rate", "x"), 2, 0.0, 1.0),
        (ApiError("rate", "x"), 9, 0.0, 60.0),
        (ApiError("rate", "x"), 9, 1.0, 45.0),
        (ApiError("rate", "x"), 999, 0.0, 60.0),
        (ApiError("rate", "x"), 1000, 0.0, None),
        (ApiError("rate", "x", wait=7.0), 1, 0.0, 7.0),
        (ApiError("rate", "x", wait=7.0), 1, 1.0, 7.1),
        (ApiError("rate", "x", wait=0.0), 1, 0.0, 0.0),
        (ApiError("rate", "x", wait=-5.0), 1, 0.0, 0.0),
        (ApiError("rate", "x", wait=1e9), 1, 0.0, 60.0),
        (ApiError("rate", "x", wait=float("inf")), 1, 0.0, 60.0),
        (ApiError("rate", "x", wait=float("nan")), 1, 0.0, 0.0),
        (ApiError("rate", "x", retry=False), 1, 0.0, None),
        (ApiError("rate", "x", retry=False, wait=1.0), 1, 0.0, None),
        (ApiError("invalid", "x"), 1, 0.0, None),
        (ApiError("invalid", "x", retry=True), 1, 0.0, 0.5),
        (ApiError("auth", "x", wait=1.0), 1, 0.0, None),
    ],
)
def test_how_long_to_wait(
    problem: ApiError, attempt: int, chance: float, expected: float | None
) -> None:
    patience = RetryPolicy(attempts=1000, first=0.5, longest=60.0)
    found = retry_delay(problem, attempt, patience=patience, chance=chance)
    assert found == (None if expected is None else pytest.approx(expected))


def test_patience_ends(tmp_path: Path) -> None:
    nap = Naps()
    problem = ApiError("overloaded", "busy", status=529, request="req_1")
    one = agent(tmp_path, problem, sleep=nap, chance=lambda: 0.0, patience=PATIENCE)
    assert play(one) == "failed"
    assert facts(one, Failed) == [
        Failed("overloaded", "busy", 529, 1, 0.5, "req_1"),
        Failed("overloaded", "busy", 529, 2, 1.0, "req_1"),
        Failed("overloaded", "busy", 529, 3, -1.0, "req_1"),
    ]
    assert nap.slept == [0.5, 1.0]
    assert facts(one, Ended) == [Ended("failed", "overloaded: busy")]


def test_after_a_failed_turn_the_next_prompt_is_sent(tmp_path: Path) -> None:
    one = agent(tmp_path, ApiError("auth", "no key"), say("ok"))
    assert play(one) == "failed"
    assert play(one, "again") == "end"
    assert [len(fact.content) for fact in facts(one, User)] == [1, 1]


def test_each_request_starts_with_fresh_patience(tmp_path: Path) -> None:
    busy = ApiError("overloaded", "busy")
    lines = busy, busy, call("Look", path="a"), busy, busy, say("ok")
    one = agent(tmp_path, *lines, tools=[small("Look")], patience=PATIENCE)
    assert play(one) == "end"
    assert [fact.attempt for fact in facts(one, Failed)] == [1, 2, 1, 2]


def test_a_retry_is_shown_before_it_is_waited_for(tmp_path: Path) -> None:
    import anyio

    from tests.engine.fakes import prompt
    from travois.engine.loop import run_turn

    problem = ApiError("rate", "slow down", status=429, wait=3.0)
    one = prompt(agent(tmp_path, problem, say("ok"), chance=lambda: 0.0, patience=PATIENCE))

    async def main() -> list[object]:
        with one.session.watch() as events:
            await run_turn(one)
            return [events.receive_nowait() for _ in range(events.statistics().current_buffer_used)]

    seen = [event for event in anyio.run(main) if isinstance(event, RequestRetrying)]
    assert seen == [RequestRetrying("rate", "slow down", 429, 1, 3, 3.0)]


@pytest.mark.parametrize(
    ("field", "quirk"),
    [
        ("stream_options", "no-stream-options"),
        ("max_completion_tokens", "max-tokens"),
        ("cache_control", "no-cache-markers"),
    ],
)
def test_a_field_that_a_server_does_not_know_is_left_out_from_then_on(
    tmp_path: Path, field: str, quirk: str
) -> None:
    problem = ApiError("field", f"unknown field {field}", field=field)
    one = agent(tmp_path, problem, say("ok"), say("ok"), session=begun((), "chat"))
    assert play(one) == "end"
    assert play(one) == "end"
    assert [fact.model.quirks for fact in facts(one, Epoch)] == [(), (quirk,)]
    assert failed(one) == [("field", 1, 0.0)]


def test_a_beta_that_a_server_does_not_know_is_dropped_alone(tmp_path: Path) -> None:
    session = begun((), "anthropic", betas=("a", "b", "c"))
    lines = ApiError("beta", "no b", field="b"), ApiError("beta", "no a", field="a"), say("ok")
    one = agent(tmp_path, *lines, session=session)
    assert play(one) == "end"
    assert facts(one, Epoch)[-1].model.betas == ("c",)
    assert facts(one, Epoch)[-1].why == "no a"


def test_an_output_limit_is_learned(tmp_path: Path) -> None:
    one = agent(tmp_path, ApiError("output", "at most 8192", limit=8192), say("ok"))
    assert play(one) == "end"
    assert one.session.view.epoch is not None
    assert one.session.view.epoch.model.output == 8192


@pytest.mark.parametrize("limit", [0, -1, 32_000, 99_000])
def test_an_output_limit_that_helps_nothing_is_not_tried(tmp_path: Path, limit: int) -> None:
    one = agent(tmp_path, ApiError("output", "no", limit=limit), say("ok"))
    assert play(one) == "failed"
    assert len(facts(one, Epoch)) == 1


@pytest.mark.parametrize("kind", ["bound", "thinking"])
def test_thinking_that_is_refused_is_let_go_each_time_there_is_some(
    tmp_path: Path, kind: ApiErrorKind
) -> None:
    refused = ApiError(kind, "bound to a different conversation")
    lines = thoughtful(), refused, thoughtful(), refused, say("ok")
    one = agent(tmp_path, *lines)
    assert [play(one) for _ in range(3)] == ["end"] * 3
    assert [fact.unbind for fact in facts(one, Epoch)] == [False, True, True]
    kept = [i.fact.content for i in one.session.view.items if isinstance(i.fact, Assistant)]
    assert kept == [(Text("ok"),)] * 3


def test_where_there_is_no_thinking_letting_go_of_it_is_not_tried(tmp_path: Path) -> None:
    one = agent(tmp_path, say("ok"), ApiError("bound", "bound to a different conversation"))
    assert play(one) == "end"
    assert play(one) == "failed"
    assert len(facts(one, Epoch)) == 1
    assert len(facts(one, Sent)) == 4  # the history was told as a note, twice, in vain


def test_a_remedy_after_thinking_was_let_go_does_not_let_go_of_newer_thinking(
    tmp_path: Path,
) -> None:
    lines = (
        thoughtful(),
        ApiError("bound", "bound"),
        thoughtful(),
        ApiError("field", "no", field="cache_control"),
        say("ok"),
    )
    one = agent(tmp_path, *lines)
    assert [play(one) for _ in range(3)] == ["end"] * 3
    kept = [i.fact.content for i in one.session.view.items if isinstance(i.fact, Assistant)]
    assert [len(content) for content in kept] == [1, 2, 1]


def test_a_remedy_that_does_not_help_is_not_tried_twice(tmp_path: Path) -> None:
    limits = iter(range(30_000, 0, -1))
    one = agent(tmp_path, lambda request: ApiError("output", "too many", limit=next(limits)))
    assert play(one) == "failed"
    assert len(facts(one, Sent)) == 2


def test_a_stream_that_ends_without_a_reply_is_tried_again(tmp_path: Path) -> None:
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    class Mute:
        @asynccontextmanager
        async def stream(self, request: object) -> AsyncIterator[Any]:
            async def nothing() -> AsyncIterator[Any]:
                for event in ():
                    yield event

            yield nothing()

    one = agent(tmp_path, model=Mute(), patience=PATIENCE)  # type: ignore[arg-type]
    assert play(one) == "failed"
    assert [fact.kind for fact in facts(one, Failed)] == ["garbled"] * 3


def test_what_was_sent_is_recorded_before_the_reply(tmp_path: Path) -> None:
    one = agent(tmp_path, say("ok"))
    play(one)
    (request,) = one.model.requests  # type: ignore[attr-defined]
    (sent,) = facts(one, Sent)
    assert (sent.pieces, sent.chain, sent.digest) == (
        request.pieces,
        request.chain,
        request.digest,
    )
    assert (sent.size, sent.tokens > 0) == (len(request.body), True)


problems = st.builds(
    ApiError,
    st.sampled_from(KINDS),
    st.just("oh"),
    wait=st.none() | st.floats(),
    retry=st.none() | st.booleans(),
    limit=st.integers(-1, 40_000),
    field=st.sampled_from(["", "a", "b", "cache_control", "stream_options", "x"]),
)


@given(st.lists(problems, min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_row_of_problems_makes_a_turn_go_on_for_ever(row: list[ApiError]) -> None:
    session = begun((), "anthropic", betas=("a", "b"))
    session.append(User((Text("hi"),)))
    session.append(Assistant(thoughtful().content, "end"))
    one = agent(Path("/w"), *row, session=session, patience=PATIENCE)
    assert play(one) == "failed"
    remedies = 3 + 2 + 6 + 2  # latches, betas, an output limit per field, thinking once a kind
    assert len(facts(one, Sent)) <= PATIENCE.attempts + remedies
    waits = [fact.wait for fact in facts(one, Failed)]
    assert all(wait == -1.0 or 0.0 <= wait <= 61.0 for wait in waits)


def test_a_broken_prefix_is_owned_up_to_and_the_session_goes_on(tmp_path: Path) -> None:
    one = agent(tmp_path, say("ok"))
    one.session.append(User((Text("before"),)))
    one.session.append(Sent(pieces=2, chain="of another version", digest="", size=1))
    with one.session.watch() as events:
        assert play(one) == "end"
        told = [events.receive_nowait() for _ in range(events.statistics().current_buffer_used)]
    assert [event for event in told if isinstance(event, UserWarned)] != []
    assert facts(one, Epoch)[-1].why.startswith("prefix break")
    assert facts(one, Epoch)[-1].unbind


@pytest.mark.parametrize("field", ["cache_control", "system.0.cache_control"])
def test_a_refused_field_is_left_out_wherever_it_stood(tmp_path: Path, field: str) -> None:
    one = agent(tmp_path, ApiError("field", "no", field=field), say("ok"))
    assert play(one) == "end"
    assert "no-cache-markers" in facts(one, Epoch)[-1].model.quirks
