"""Context editing: the rows of the specification's table, and compaction on demand."""

from __future__ import annotations

import pytest

from tests.lab.client import CC, OPUS, Client, Json, assistant, block, counts, result, use, user

CONTEXT = {"anthropic_beta": "context-management-2025-06-27"}
COMPACT = {"anthropic_beta": "compact-2026-01-12"}
NOW = {"anthropic_beta": "compact-2026-09-04"}
CLEAR = "clear_tool_uses_20250919"


def tokens(value: int) -> Json:
    return {"type": "input_tokens", "value": value}


def uses(value: int) -> Json:
    return {"type": "tool_uses", "value": value}


def session(count: int = 10, *, first: str = "Read") -> list[Json]:
    """Ten tool uses of 12,000 tokens each: 122,131 tokens with the system prompt."""
    history = [user(block(101))]
    for i in range(count):
        name = first if i == 0 else "Read"
        history += [assistant(use(f"t{i}", name, p=1)), user(result(f"t{i}", 12_000))]
    return history


def marked(history: list[Json]) -> list[Json]:
    *head, last = history
    *blocks, final = last["content"]
    return [*head, {**last, "content": [*blocks, {**final, "cache_control": CC}]}]


def clear(**fields: object) -> Json:
    return {"edits": [{"type": CLEAR, **fields}]}


SYSTEM = [block(2000, CC, "sys")]
ROWS: list[tuple[str, str, Json, tuple[int, int] | None, int]] = [
    ("E1", "Read", {}, (7, 83_979), 38_152),
    ("E2", "Read", {"trigger": tokens(200_000)}, None, 122_131),
    ("E3", "Read", {"trigger": uses(5), "keep": uses(4)}, (6, 71_982), 50_149),
    ("E4", "Plan", {"exclude_tools": ["Plan"]}, (6, 71_982), 50_149),
    ("E5", "Read", {"clear_at_least": tokens(90_000)}, None, 122_131),
    ("E6", "Read", {"clear_tool_inputs": True}, (7, 83_986), 38_145),
    ("E7", "Read", {"keep": uses(0)}, (10, 119_970), 2_161),
    ("=trigger", "Read", {"trigger": tokens(122_131)}, None, 122_131),
    ("some inputs", "Plan", {"clear_tool_inputs": ["Plan"]}, (7, 83_980), 38_151),
]


@pytest.mark.parametrize(("id", "first", "fields", "done", "after"), ROWS, ids=[r[0] for r in ROWS])
def test_old_tool_results_are_cleared(
    id: str, first: str, fields: Json, done: tuple[int, int] | None, after: int
) -> None:
    lab = Client()
    body = {"system": SYSTEM, "context_management": clear(**fields)}
    exchange = lab.ask(session(first=first), **body, headers=CONTEXT)
    edits = [(e["cleared_tool_uses"], e["cleared_input_tokens"]) for e in exchange.applied]
    assert (edits, exchange.usage.prompt) == ([done] if done else [], after)
    counted = {"model": OPUS, "messages": session(first=first), **body}
    _, answer = lab.post("/v1/messages/count_tokens", counted, **CONTEXT)
    original = {"original_input_tokens": 122_131}
    assert answer == {"input_tokens": after, "context_management": original}


def warmed() -> Client:
    lab = Client()
    full = lab.ask(marked(session()), system=SYSTEM)
    assert counts(full.usage) == (0, 0, 122_131, 0)
    edited = lab.ask(marked(session()), system=SYSTEM, context_management=clear(), headers=CONTEXT)
    assert counts(edited.usage) == (0, 2000, 36_152, 0)
    return lab


def test_e8_e9_clearing_rewrites_the_tail_once_and_then_it_is_warm() -> None:
    lab = warmed()
    further = [*session(), assistant(block(22)), user(block(50))]
    exchange = lab.ask(marked(further), system=SYSTEM, context_management=clear(), headers=CONTEXT)
    assert counts(exchange.usage) == (0, 38_152, 72, 0)


def grown(lab: Client, keep: list[int]) -> list[tuple[int, int]]:
    seen = []
    for i, kept in enumerate(keep):
        body = marked(session(11 + i))
        management = clear(keep=uses(kept))
        exchange = lab.ask(body, system=SYSTEM, context_management=management, headers=CONTEXT)
        seen.append((exchange.usage.read, exchange.usage.write))
    return seen


def test_e10_a_constant_keep_rewrites_the_tail_with_every_new_tool_use() -> None:
    assert grown(warmed(), [3, 3, 3]) == [(2000, 36_158), (2000, 36_164), (2000, 36_170)]


def test_e11_a_growing_keep_freezes_what_is_cleared() -> None:
    lab = warmed()
    assert grown(lab, [4, 5, 6]) == [(38_152, 12_003), (50_155, 12_003), (62_158, 12_003)]
    costs = [e.cost for e in list(lab.world.ledger)[-3:]]
    assert all(0.0696 < cost < 0.0746 for cost in costs)


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([{"type": CLEAR}, {"type": "clear_thinking_20251015"}], "must be the first edit"),
        (
            [{"type": "compact_20260112", "trigger": tokens(49_999)}],
            "greater than or equal to 50000",
        ),
        ([{"type": "clear_everything"}], "'clear_everything' found using 'type' is not expected"),
    ],
    ids=["E12", "E13", "unknown"],
)
def test_edits_that_the_api_refuses(edits: list[Json], said: str) -> None:
    lab = Client()
    both = {"anthropic_beta": "context-management-2025-06-27,compact-2026-01-12"}
    lab.ask([user(block(5))], context_management={"edits": edits}, headers=both)
    assert lab.status == 400 and said in lab.error()


def test_old_thinking_is_cleared_but_for_the_last_turns() -> None:
    lab = Client(lambda prompt, state: [{"type": "thinking", "thinking": "t" * 40}, block(3)])
    history: list[Json] = []
    for _ in range(3):
        history.append(user(block(5)))
        lab.ask(history)
        history.append(assistant(*lab.body["content"]))
    history.append(user(block(5)))
    keep = {"type": "thinking_turns", "value": 1}
    edits = [{"type": "clear_thinking_20251015", "keep": keep}]
    exchange = lab.ask(history, context_management={"edits": edits}, headers=CONTEXT)
    assert [e["cleared_thinking_turns"] for e in exchange.applied] == [2]
    edits[0]["keep"] = "all"
    assert lab.ask(history, context_management={"edits": edits}, headers=CONTEXT).applied == ()


def test_automatic_compaction_opens_the_reply_and_bills_both_iterations() -> None:
    script = [
        {"when": {"purpose": "compaction"}, "say": "the story so far"},
        {"say": "go on"},
    ]
    lab = Client(script)
    edits = [{"type": "compact_20260112", "trigger": tokens(100_000)}]
    exchange = lab.ask(
        [*session(), assistant(block(3)), user(block(20))],
        system=SYSTEM,
        context_management={"edits": edits},
        headers=COMPACT,
    )
    summary, said = lab.body["content"]
    assert (summary["type"], summary["content"]) == ("compaction", "the story so far")
    assert said["text"] == "go on"
    rows = lab.body["usage"]["iterations"]
    assert [row["type"] for row in rows] == ["compaction", "message"]
    assert rows[1]["input_tokens"] + rows[1]["cache_creation_input_tokens"] == 2000 + 4 + 20
    assert lab.body["usage"]["input_tokens"] == rows[1]["input_tokens"]
    assert exchange.usage.prompt == rows[0]["input_tokens"] + 2024


def test_compaction_can_pause_and_its_block_hides_what_stands_before_it() -> None:
    lab = Client()
    edit = {"type": "compact_20260112", "trigger": tokens(100_000), "pause_after_compaction": True}
    management = {"edits": [edit]}
    history = session()
    lab.ask(history, context_management=management, headers=COMPACT)
    assert lab.body["stop_reason"] == "compaction"
    history += [assistant(*lab.body["content"]), user(block(30))]
    exchange = lab.ask(history, context_management=management, headers=COMPACT)
    assert lab.body["stop_reason"] == "end_turn" and exchange.usage.prompt < 100


# --- compaction on demand -------------------------------------------------------------------------


def demand(lab: Client, history: list[Json], **fields: object) -> Json:
    body = {"compaction": {"type": "summarize"}, "headers": NOW, **fields}
    lab.ask(history, **body)
    return lab.body


def adopted() -> tuple[Client, Json]:
    lab = Client(["one", {"when": {"purpose": "compaction"}, "say": "sum"}, "two", "three"])
    history = [user(block(5, say="hello"))]
    lab.ask(history)
    history.append(assistant(*lab.body["content"]))
    answer = demand(lab, history)
    assert (answer["stop_reason"], len(answer["content"])) == ("compaction", 1)
    (signed,) = answer["content"]
    assert signed["content"] == "sum" and signed["signature"]
    return lab, signed


def test_a_signed_compaction_stands_for_the_history_it_replaces() -> None:
    lab, signed = adopted()
    lab.ask([assistant(signed), user(block(5))], headers=NOW)
    assert (lab.status, lab.body["content"][0]["text"]) == (200, "two")


def test_compaction_is_billed_as_an_iteration_of_its_own() -> None:
    lab, _ = adopted()
    usage = lab.body["usage"]
    assert (usage["input_tokens"], usage["iterations"][0]["type"]) == (0, "compaction")
    assert lab.world.ledger[-1].usage.prompt == usage["iterations"][0]["input_tokens"] > 0


def code(lab: Client) -> str:
    return lab.body["error"]["details"]["error_code"]


def test_compaction_error_codes_of_the_request() -> None:
    lab = Client()
    asking = [user(block(5)), assistant(use("t1"))]
    status = demand(lab, [user(block(5))], context_management={"edits": []})
    assert "context_management" in status["error"]["message"]
    references = [{"type": "tool_reference", "tool_name": "x"}] * 101
    results = {"type": "tool_result", "tool_use_id": "t1", "content": references}
    demand(lab, [*asking, user(results)])
    assert code(lab) == "compaction_too_many_tool_references"


def test_a_turn_that_waits_for_results_cannot_be_compacted() -> None:
    lab = Client()
    demand(lab, [user(block(5)), assistant(use("t1"))])
    assert (lab.status, code(lab)) == (400, "compaction_incomplete_turn")


def test_compaction_error_codes_of_the_block() -> None:
    lab, signed = adopted()
    seen = []
    for history in (
        [assistant(signed), user(block(5)), assistant(signed), user(block(5))],
        [user(block(5)), assistant(signed), user(block(6))],
        [assistant({**signed, "content": "sam"}), user(block(5))],
        [assistant({**signed, "signature": "AAAA"}), user(block(5))],
        [assistant({**signed, "tool_changes": [{"type": "tool_removal"}]}), user(block(5))],
    ):
        lab.ask(history, headers=NOW)
        seen.append((lab.status, code(lab)))
    assert seen == [
        (400, "compaction_block_ambiguous"),
        (400, "compaction_block_misplaced"),
        (400, "compaction_content_mismatch"),
        (400, "compaction_signature_invalid"),
        (400, "compaction_tool_changes_mismatch"),
    ]


def test_a_summary_alone_has_nothing_left_to_summarize() -> None:
    lab, signed = adopted()
    demand(lab, [assistant(signed)])
    assert code(lab) == "compaction_nothing_to_summarize"


def test_an_overloaded_compaction_says_so() -> None:
    fault = {"status": 529, "details": {"error_code": "compaction_unavailable"}}
    lab = Client(faults=[{"do": {"http": fault}}])
    demand(lab, [user(block(5))])
    assert (lab.status, code(lab)) == (529, "compaction_unavailable")
