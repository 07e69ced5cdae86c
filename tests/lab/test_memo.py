"""The lab's memory of what it read: without it every answer is the same, only later."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.client import Client, Json, assistant, told, use, user
from travois_lab.memo import Memo

IDS = st.sampled_from(["t1", "t2", "t3"])
RESULTS = IDS.map(lambda id: {"type": "tool_result", "tool_use_id": id, "content": "r"})
USERS = st.lists(st.sampled_from("ab").map(told) | RESULTS, min_size=1, max_size=3)
REPLIES = st.lists(st.sampled_from("xy").map(told) | IDS.map(use), min_size=1, max_size=3)
MESSAGE = (
    USERS.map(lambda blocks: user(*blocks))
    | REPLIES.map(lambda blocks: assistant(*blocks))
    | st.just({"role": "system", "content": "s"})
)
STEP = st.tuples(st.integers(0, 3), st.lists(MESSAGE, min_size=1, max_size=3))
CALLED = [assistant(use("t1")), user({"type": "tool_result", "tool_use_id": "t1", "content": "r"})]


def grown(steps: list[tuple[int, list[Json]]]) -> list[list[Json]]:
    """Histories that grow, and at times lose their end first."""
    history: list[Json] = [user(told("a")), *CALLED]
    rows = [history]
    for lost, news in steps:
        history = [*history[: max(1, len(history) - lost)], *news]
        rows.append(history)
    return rows


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=6))
def test_a_lab_that_remembers_answers_like_one_that_forgets(
    steps: list[tuple[int, list[Json]]],
) -> None:
    keen, forgetful = Client("lab-echo"), Client("lab-echo")
    for history in grown(steps):
        forgetful.world.memo = Memo()
        for lab in (keen, forgetful):
            lab.ask(history)
        first, second = keen.world.ledger[-1], forgetful.world.ledger[-1]
        assert (first.status, first.invalid, first.usage) == (
            second.status,
            second.invalid,
            second.usage,
        )


def test_a_call_id_used_again_much_later_is_still_found() -> None:
    lab = Client("lab-echo")
    history = [user(told("a")), *CALLED]
    lab.ask(history)
    assert lab.status == 200
    lab.ask([*history, *CALLED])
    assert lab.status == 400 and "ids must be unique" in lab.error()


def test_the_history_is_judged_once() -> None:
    lab = Client("lab-echo")
    history = [user(told("a")), assistant(told("b")), user(told("c"))]
    lab.ask(history)
    known = lab.world.memo.messages
    lab.ask([*history, assistant(told("d")), user(told("e"))])
    assert (lab.status, len(known)) == (200, 5)
