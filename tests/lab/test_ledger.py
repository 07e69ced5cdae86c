"""The ledger: what it says of a session, what it holds against it, and the control plane."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.client import CC, OPUS, Client, Json, assistant, block, use, user
from travois_lab.http import Request
from travois_lab.report import broken, ledger_json, render, summary
from travois_lab.routes import answer

A, B, C = block(1000, say="aaaa"), block(50, say="bbbb"), block(40, say="cccc")


def session(*requests: list[Json], **fields: object) -> Client:
    lab = Client()
    for messages in requests:
        lab.ask(messages, **fields)
    return lab


def kinds(lab: Client) -> list[str]:
    return [lab.world.ledger.divergence(e.n).kind for e in lab.world.ledger]


GROWN = [user(A), assistant(B), user(C)]


def test_a_growing_history_is_append_only() -> None:
    lab = session([user(A)], GROWN, [*GROWN, assistant(B), user(C)])
    lab.world.ledger.append_only()
    assert kinds(lab) == ["first", "appended", "appended"]


def test_an_edit_that_sends_the_rest_again_is_named_to_the_byte() -> None:
    changed = block(1000, say="aaXa")
    lab = session(GROWN, [user(changed), assistant(B), user(C)])
    found = lab.world.ledger.divergence(2)
    assert (found.kind, found.path, found.byte, found.lost) == (
        "edited",
        "messages[0].content[0].text",
        len("aa"),
        90,
    )
    with pytest.raises(AssertionError, match=r"request 2: messages\[0\].content\[0\].text changed"):
        lab.world.ledger.append_only()
    lab.world.ledger.append_only(allowed=1)


def test_another_system_prompt_breaks_the_prefix_before_the_messages() -> None:
    lab = session(GROWN, system="one")
    lab.ask([*GROWN, assistant(B), user(C)], system="two")
    found = lab.world.ledger.divergence(2)
    assert (found.kind, found.path) == ("edited", "system[0].text")


def test_tools_in_another_order_are_found_though_nothing_is_shared() -> None:
    tools = [{"name": n, "description": n, "input_schema": {"type": "object"}} for n in "ab"]
    lab = session(GROWN, tools=tools)
    lab.ask(GROWN, tools=tools[::-1])
    assert (kinds(lab)[1], lab.world.ledger.divergence(2).path) == ("edited", "tools[0].name")


def test_a_rewind_is_no_edit() -> None:
    lab = session(GROWN, [user(A), assistant(B), user(block(9, say="else"))])
    lab.world.ledger.append_only()
    assert kinds(lab) == ["first", "branched"]


def test_a_summary_with_the_tail_kept_is_a_shrunk_history() -> None:
    lab = session(
        [*GROWN, assistant(B), user(C)], [user(block(5, say="sum")), assistant(B), user(C)]
    )
    assert kinds(lab)[1] == "shrunk"


def test_another_conversation_is_a_first_request() -> None:
    lab = session(GROWN, [user(block(7, say="other"))])
    assert kinds(lab) == ["first", "first"]


def test_moving_markers_changes_nothing() -> None:
    marked = [user({**A, "cache_control": CC})]
    lab = session(marked, [user(A), assistant(B), user({**C, "cache_control": CC})])
    assert kinds(lab) == ["first", "appended"]


def test_the_hit_ratio_and_the_cost_add_up() -> None:
    head = [user(block(1000, CC, "x"))]
    lab = session(head, head)
    ledger = lab.world.ledger
    assert ledger.cache_hit_ratio() == 0.5
    assert ledger.cost() == sum(e.cost for e in ledger) > 0


def test_orphans_and_invalid_requests_are_held_against_it() -> None:
    lab = session([user(A), assistant(use("t1")), user(B)])
    for check in (lab.world.ledger.no_orphans, lab.world.ledger.no_invalid):
        with pytest.raises(AssertionError, match="request 1: messages"):
            check()
    lab.world.ledger.no_beta("compact-2026-09-04")


def test_the_report_has_a_line_for_each_request_and_names_what_broke() -> None:
    lab = session(GROWN, [user(block(1000, say="aaXa")), assistant(B), user(C)])
    rows, totals = ledger_json(lab.world.ledger), summary(lab.world.ledger)
    lines = list(render(rows, totals))
    assert [line.split()[:3] for line in lines[1:3]] == [["1", "200", OPUS], ["2", "200", OPUS]]
    assert lines[-1].startswith("! request 2: messages[0].content[0].text changed at byte 2")
    assert broken(rows[:1]) == []


# --- control plane --------------------------------------------------------------------------------


def get(lab: Client, path: str, **query: str) -> Json:
    response = answer(lab.world, Request("GET", path, query))
    return msgspec.json.decode(response.steps[0])


def test_a_running_lab_can_be_looked_into() -> None:
    lab = session([user(block(600, CC))], GROWN)
    assert get(lab, "/lab/ledger")["requests"] == 2
    shown = get(lab, "/lab/requests/1")
    assert (shown["headers"]["x-api-key"], shown["body"]["model"]) == ("(removed)", OPUS)
    (entry,) = get(lab, "/lab/cache")["entries"]
    assert (entry["tokens"], entry["expires_in"], entry["live"]) == (600, 300.0, True)
    assert get(lab, "/lab/diff", a="1", b="2") == {
        "a": 1,
        "b": 2,
        "shared": 0,
        "first_difference": "messages[0].content[0]",
    }


def test_a_running_lab_can_be_steered() -> None:
    lab = Client("lab-echo")
    assert lab.post("/lab/scenario", ["scripted"])[0] == 200
    lab.ask([user(A)])
    assert lab.body["content"][0]["text"] == "scripted"
    assert lab.post("/lab/clock", {"advance": 300})[1] == {"now": 300.0}
    lab.post("/lab/faults", [{"do": {"http": {"status": 529}}}])
    assert lab.ask([user(A)]).status == 529
    lab.post("/lab/faults", [])
    lab.post("/lab/config", {"strict": False})
    lab.post("/lab/reset", {})
    assert len(lab.world.ledger) == 0


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("/lab/scenario", [{"sya": 1}], "unknown field 'sya'"),
        ("/lab/faults", [{"do": "explode"}], "unknown fault 'explode'"),
        ("/lab/config", {"colour": 1}, "unknown field `colour`"),
        ("/lab/nothing", {}, "no POST /lab/nothing"),
    ],
)
def test_bad_orders_are_answered_with_what_is_wrong(path: str, given: object, said: str) -> None:
    status, answer_ = Client().post(path, given)
    assert status in (400, 404) and said in answer_["error"]


# --- robustness -----------------------------------------------------------------------------------

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "tools", "messages", "id", "name"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
FIELDS = ("messages", "tools", "system", "thinking", "tool_choice", "output_config", "max_tokens")
PATHS = (
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1beta/models/gemini-3:generateContent",
    "/api/chat",
)


@settings(max_examples=200, deadline=None)
@given(
    path=st.sampled_from(PATHS),
    field=st.sampled_from((*FIELDS, "input", "contents", "cache_control", "diagnostics")),
    junk=JUNK,
)
def test_no_request_however_odd_is_more_than_refused(path: str, field: str, junk: object) -> None:
    lab = Client("lab-echo")
    good: Json = {"model": OPUS, "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    status, _ = lab.post(path, {**good, field: junk})
    assert status in (200, 400)
