"""What the Messages API refuses, in its words; and what it answers besides."""

from __future__ import annotations

import pytest

from tests.lab.client import CC, OPUS, Client, Json, assistant, block, use, user

HI = [user(block(5))]
TOOL: Json = {"name": "f", "description": "F.", "input_schema": {"type": "object"}}
FORCED = {"type": "tool", "name": "f"}
REFUSED: list[tuple[str, Json, int, str]] = [
    ("unknown field", {"colour": 1}, 400, "colour: Extra inputs are not permitted"),
    ("unknown model", {"model": "claude-9"}, 404, "model: claude-9"),
    ("sampling", {"temperature": 1.0}, 400, "temperature: Extra inputs are not permitted"),
    (
        "unknown beta",
        {"headers": {"anthropic_beta": "made-up-2026-01-01"}},
        400,
        "Unexpected value(s) `made-up-2026-01-01` for the `anthropic-beta` header",
    ),
    ("no beta", {"compaction": {"type": "summarize"}}, 400, "compaction: Extra inputs"),
    ("no version", {"headers": {"anthropic_version": ""}}, 400, "anthropic-version: header"),
    ("no key", {"headers": {"x_api_key": ""}}, 401, "x-api-key header is required"),
    (
        "output",
        {"max_tokens": 128_001},
        400,
        "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens",
    ),
    ("forced", {"tool_choice": FORCED, "tools": [TOOL]}, 400, 'type "tool" and "any" are not'),
    ("thinking", {"thinking": {"type": "disabled"}}, 400, '"thinking.type.disabled" is not'),
    ("effort", {"output_config": {"effort": "huge"}}, 400, "output_config.effort: Input should"),
    (
        "budget",
        {"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 1000}},
        400,
        "greater than or equal to 1024",
    ),
    (
        "quiet effort",
        {
            "model": "claude-opus-5",
            "thinking": {"type": "disabled"},
            "output_config": {"effort": "max"},
        },
        400,
        'output_config.effort: "max" is not supported',
    ),
    (
        "system role",
        {"model": "claude-sonnet-5", "messages": [*HI, {"role": "system", "content": "x"}]},
        400,
        "role 'system' is not supported on this model",
    ),
    ("prefill", {"messages": [*HI, assistant(block(5))]}, 400, "assistant message prefill"),
    ("orphan", {"messages": [*HI, assistant(use("t")), *HI]}, 400, "without `tool_result` blocks"),
    ("P6 stream", {"max_tokens": 0, "stream": True}, 400, "streaming"),
    (
        "P6 forced",
        {"max_tokens": 0, "model": "claude-opus-5", "tool_choice": FORCED, "tools": [TOOL]},
        400,
        "a forced tool_choice",
    ),
    (
        "P6 format",
        {"max_tokens": 0, "output_config": {"format": {"type": "json_schema", "schema": {}}}},
        400,
        "output_config.format",
    ),
    (
        "P6 compaction",
        {
            "max_tokens": 0,
            "compaction": {"type": "summarize"},
            "headers": {"anthropic_beta": "compact-2026-09-04"},
        },
        400,
        "compaction",
    ),
    (
        "clear_at marker",
        {
            "messages": [
                *HI,
                {"role": "system", "clear_at": "next_user_message", "content": [block(5, CC)]},
            ],
            "headers": {"anthropic_beta": "mid-conversation-system-clear-at-2026-08-21"},
        },
        400,
        "cache_control cannot be set together with clear_at",
    ),
]


@pytest.mark.parametrize(
    ("id", "change", "status", "said"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_what_is_refused(id: str, change: Json, status: int, said: str) -> None:
    lab = Client()
    lab.ask(**{"messages": HI, **change})
    assert (lab.status, said in lab.error()) == (status, True), lab.body


def test_an_error_has_the_provider_s_shape() -> None:
    lab = Client()
    lab.ask(HI, model="claude-9")
    id = lab.headers["request-id"]
    error = {"type": "not_found_error", "message": "model: claude-9"}
    assert lab.body == {"type": "error", "error": error, "request_id": id}


def test_a_lenient_lab_lets_unknown_fields_pass() -> None:
    lab = Client(strict=False)
    lab.ask(HI, colour=1)
    assert lab.status == 200


def test_a_lenient_lab_lets_unknown_betas_pass() -> None:
    lab = Client(strict=False)
    lab.ask(HI, headers={"anthropic_beta": "made-up-2026-01-01"})
    assert lab.status == 200


def test_what_the_vendor_s_own_programs_send_is_known_to_the_api() -> None:
    lab = Client()
    exchange = lab.ask(
        HI,
        model="claude-haiku-4-5-20251001",
        headers={"anthropic_beta": "claude-code-20250219,effort-2025-11-24"},
    )
    assert (lab.status, exchange.betas[0]) == (200, "claude-code-20250219")


def test_the_older_version_takes_sampling_parameters() -> None:
    lab = Client()
    lab.ask(HI, temperature=1.0, headers={"anthropic_version": "2023-06-01"})
    assert lab.status == 200


def test_only_listed_keys_are_let_in() -> None:
    lab = Client(keys=["good"])
    lab.ask(HI)
    assert (lab.status, lab.body["error"]["type"]) == (401, "authentication_error")
    lab.ask(HI, headers={"x_api_key": "", "authorization": "Bearer good"})
    assert lab.status == 200


def test_a_body_of_more_than_32_megabytes_is_refused() -> None:
    lab = Client()
    lab.ask([user({"type": "text", "text": "x" * (32 * 1024 * 1024)})])
    assert (lab.status, lab.body["error"]["type"]) == (413, "request_too_large")


def test_an_old_model_takes_a_prefill() -> None:
    lab = Client()
    lab.ask([*HI, assistant(block(5))], model="claude-haiku-4-5")
    assert lab.status == 200


# --- system messages and tools in mid-conversation ------------------------------------------------

CLEAR_AT = {"anthropic_beta": "mid-conversation-system-clear-at-2026-08-21"}
INLINE = {"anthropic_beta": "inline-tools-2026-09-15"}


def test_a_system_message_leaves_the_cached_prefix_alone() -> None:
    lab = Client()
    head = [user(block(1000, CC))]
    lab.ask(head)
    exchange = lab.ask([*head, {"role": "system", "content": "Be brief."}])
    assert (lab.status, exchange.usage.read) == (200, 1000)


def test_a_reminder_with_clear_at_costs_tokens_for_one_turn_only() -> None:
    lab = Client()
    reminder = {"role": "system", "clear_at": "next_user_message", "content": "{{tok:70}}"}
    first = lab.ask([*HI, reminder], headers=CLEAR_AT)
    later = [*HI, reminder, assistant(block(3)), user(block(5))]
    second = lab.ask(later, headers=CLEAR_AT)
    assert (first.usage.prompt, second.usage.prompt) == (75, 13)


def changes(*blocks: Json) -> list[Json]:
    return [*HI, {"role": "system", "content": list(blocks)}]


def addition(name: str) -> Json:
    tool = {"type": "tool_definition", "definition": {**TOOL, "name": name}}
    return {"type": "tool_addition", "tool": tool}


def removal(name: str) -> Json:
    return {"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}}


def test_tools_come_and_go_in_mid_conversation() -> None:
    lab = Client("lab-tool-loop:1")
    lab.ask(HI, tools=[TOOL])
    lab.ask(changes(addition("g"), removal("f")), tools=[TOOL], headers=INLINE)
    assert [e.reply[0]["name"] for e in lab.world.ledger] == ["f", "g"]


def test_a_deferred_tool_is_on_offer_once_it_is_referred_to() -> None:
    lab = Client("lab-parallel:1")
    late = {**TOOL, "name": "late", "defer_loading": True}
    found = {"type": "tool_reference", "tool_name": "late"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [found]}
    history = [*HI, assistant(use("t", "f")), user(result), assistant(block(2)), user(block(3))]
    lab.ask(
        [*HI, {"role": "system", "content": [removal("f")]}], tools=[TOOL, late], headers=INLINE
    )
    assert lab.body["content"][0]["type"] == "text"
    lab.ask(
        [*history, {"role": "system", "content": [removal("f")]}],
        tools=[TOOL, late],
        headers=INLINE,
    )
    assert lab.body["content"][0]["name"] == "late"


@pytest.mark.parametrize(
    ("blocks", "code"),
    [
        ((removal("nobody"),), "tool_reference_unresolved"),
        ((addition("g"), addition("g")), "tool_name_conflict"),
    ],
)
def test_bad_changes_of_tools_have_codes(blocks: tuple[Json, ...], code: str) -> None:
    lab = Client()
    lab.ask(changes(*blocks), tools=[TOOL], headers=INLINE)
    assert (lab.status, lab.body["error"]["details"]["error_code"]) == (400, code)


# --- rate limits, diagnostics, threads ------------------------------------------------------------


def test_f2_a_rate_limit_says_when_to_come_back() -> None:
    lab = Client(rates={"requests": 2})
    statuses = []
    for _ in range(3):
        lab.ask(HI)
        statuses.append(lab.status)
    assert (statuses, lab.headers["retry-after"]) == ([200, 200, 429], "30")
    assert lab.headers["anthropic-ratelimit-requests-remaining"] == "0"
    lab.world.clock.advance(30)
    lab.ask(HI)
    assert lab.status == 200


def test_cache_reads_do_not_count_towards_the_input_limit() -> None:
    lab = Client(rates={"input_tokens": 1200})
    lab.ask([user(block(1000, CC))])
    lab.ask([user(block(1000, CC))])
    assert lab.headers["anthropic-ratelimit-input-tokens-remaining"] == "200"


DIAGNOSED: list[tuple[Json, str | None]] = [
    ({}, None),
    ({"model": "claude-opus-5"}, "model_changed"),
    ({"tools": [{**TOOL, "description": "Other."}]}, "tools_changed"),
    ({"system": "other"}, "system_changed"),
    ({"messages": [user(block(1001)), assistant(block(2)), user(block(3))]}, "messages_changed"),
    ({"tool_choice": {"type": "none"}}, "unavailable"),
]


@pytest.mark.parametrize(("change", "kind"), DIAGNOSED, ids=[str(row[1]) for row in DIAGNOSED])
def test_diagnostics_name_what_changed(change: Json, kind: str | None) -> None:
    lab = Client()
    base: Json = {"tools": [TOOL], "system": "s", "diagnostics": {"previous_message_id": None}}
    lab.ask([user(block(1000))], **base)
    assert lab.body["diagnostics"] is None
    base["diagnostics"] = {"previous_message_id": lab.body["id"]}
    history = [user(block(1000)), assistant(block(2)), user(block(3))]
    lab.ask(**{"messages": history, **base, **change})
    found = lab.body["diagnostics"]
    assert (found["cache_miss_reason"]["type"] if found else None) == kind


def test_diagnostics_forget_after_an_hour() -> None:
    lab = Client()
    lab.ask(HI, diagnostics={"previous_message_id": None})
    lab.world.clock.advance(3600)
    lab.ask(HI, diagnostics={"previous_message_id": lab.body["id"]})
    reason = lab.body["diagnostics"]["cache_miss_reason"]
    assert reason == {"type": "previous_message_not_found"}


THREAD = {"anthropic_beta": "message-threads-2026-08-12"}


def thread() -> tuple[Client, Json]:
    lab = Client("lab-echo")
    lab.ask([user(block(7))], system="s", thread={"type": "create"}, headers=THREAD)
    assert lab.status == 200
    return lab, {"type": "continue", "previous_message_id": lab.body["id"]}


def test_a_thread_continues_with_the_news_alone() -> None:
    lab, go_on = thread()
    exchange = lab.ask(HI, thread=go_on, headers=THREAD)
    assert (lab.status, exchange.usage.prompt) == (200, 1 + 7 + 7 + 5)


def test_f20_a_thread_that_cannot_go_on_has_a_code() -> None:
    lab, go_on = thread()
    seen = []
    for fields, wait in (
        ({"thread": go_on, "tool_choice": {"type": "none"}}, 0),
        ({"thread": go_on, "system": "s"}, 0),
        ({"thread": go_on}, 0),
        ({"thread": go_on}, 0),
        ({"thread": go_on}, 300),
    ):
        lab.world.clock.advance(wait)
        lab.ask(HI, **fields, headers=THREAD)
        details = lab.body.get("error", {}).get("details", {})
        seen.append((lab.status, details.get("error_code")))
    assert seen == [
        (400, "thread_fingerprint_mismatch"),
        (400, "thread_unsupported_request"),
        (200, None),
        (400, "thread_already_continued"),
        (404, "thread_not_found"),
    ]


def test_models_are_listed_in_the_shape_of_whoever_is_asked() -> None:
    from travois_lab.http import Request
    from travois_lab.routes import answer

    lab = Client()
    ours = answer(lab.world, Request("GET", "/v1/models", {}, {"anthropic-version": "x"}))
    theirs = answer(lab.world, Request("GET", "/v1/models"))
    assert OPUS.encode() in ours.steps[0] and b'"has_more"' in ours.steps[0]
    assert b'"object":"list"' in theirs.steps[0]
