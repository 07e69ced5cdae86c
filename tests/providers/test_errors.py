from __future__ import annotations

import json
from typing import Any

import pytest

from travois.core.models import ApiProtocol
from travois.providers.errors import parse_error_response, parse_stream_error
from travois.providers.replies import ApiError

NOW = 1_794_787_200.0  # 2026-11-16 00:00:00 UTC


def anthropic(status: int, kind: str, message: str, **details: Any) -> ApiError:
    error = {"type": kind, "message": message, **({"details": details} if details else {})}
    return told(status, {"type": "error", "error": error, "request_id": "req_1"})


def told(
    status: int, body: object, protocol: ApiProtocol = "anthropic", **headers: str
) -> ApiError:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_error_response(status, sent, body=data, protocol=protocol, now=NOW)


def chat(status: int, message: str, **error: Any) -> ApiError:
    return told(status, {"error": {"message": message, **error}}, "chat")


def facts(found: ApiError) -> tuple[str, bool, int, int, str]:
    return found.kind, found.retry, found.tokens, found.limit, found.field


@pytest.mark.parametrize(
    ("status", "name", "kind", "retry"),
    [
        (400, "invalid_request_error", "invalid", False),
        (401, "authentication_error", "auth", False),
        (402, "billing_error", "billing", False),
        (403, "permission_error", "forbidden", False),
        (404, "not_found_error", "missing", False),
        (408, "timeout_error", "timeout", True),
        (409, "conflict_error", "server", True),
        (413, "request_too_large", "large", False),
        (429, "rate_limit_error", "rate", True),
        (500, "api_error", "server", True),
        (502, "api_error", "server", True),
        (503, "api_error", "server", True),
        (504, "timeout_error", "timeout", True),
        (529, "overloaded_error", "overloaded", True),
        (503, "overloaded_error", "overloaded", True),
        (418, "teapot", "invalid", False),
        (520, "", "server", True),
    ],
)
def test_every_status_has_its_kind(status: int, name: str, kind: str, retry: bool):
    found = anthropic(status, name, "Words.")
    assert (found.kind, found.retry, found.status) == (kind, retry, status)
    assert (found.message, found.request) == ("Words.", "req_1")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "prompt is too long: 200001 tokens > 200000 maximum",
            ("overflow", False, 200001, 200000, ""),
        ),
        ("Input is too long for requested model.", ("overflow", False, 0, 0, "")),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            ("output", False, 0, 10000, ""),
        ),
        (
            "input length and `max_tokens` exceed context limit: 200001 + 1 > 200000",
            ("overflow", False, 200001, 200000, ""),
        ),
        (
            "max_tokens: 99999 > 64000, which is the maximum allowed number of output tokens for x",
            ("output", False, 0, 64000, ""),
        ),
        (
            "messages.1.content.0: thinking block is bound to a different conversation",
            ("bound", False, 0, 0, ""),
        ),
        (
            "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified.",
            ("thinking", False, 0, 0, ""),
        ),
        (
            "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after",
            ("pairing", False, 0, 0, ""),
        ),
        (
            "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: x",
            ("pairing", False, 0, 0, ""),
        ),
        ("messages.3: `tool_use` ids must be unique", ("pairing", False, 0, 0, "")),
        (
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            ("invalid", False, 0, 0, ""),
        ),
        (
            "Unexpected value(s) `x-2026-01-01` for the `anthropic-beta` header.",
            ("beta", False, 0, 0, "x-2026-01-01"),
        ),
        (
            "tools.0.custom.eager_input_streaming: Extra inputs are not permitted",
            ("field", False, 0, 0, "tools.0.custom.eager_input_streaming"),
        ),
        ("role 'system' is not supported on this model", ("invalid", False, 0, 0, "")),
        (
            "This model does not support assistant message prefill.",
            ("invalid", False, 0, 0, ""),
        ),
        (
            '"thinking.type.enabled" is not supported for this model.',
            ("field", False, 0, 0, "thinking"),
        ),
        (
            'tool_choice: type "tool" and "any" are not supported for this model.',
            ("field", False, 0, 0, "tool_choice"),
        ),
        ("messages.0.content.1: image exceeds 5 MB maximum", ("media", False, 0, 0, "")),
        ("image dimensions exceed max allowed size", ("media", False, 0, 0, "")),
        ("Could not process image", ("media", False, 0, 0, "")),
        ("Your credit balance is too low to use this API.", ("billing", False, 0, 0, "")),
    ],
)
def test_every_refusal_that_only_its_words_tell(message: str, expected: tuple[Any, ...]):
    assert facts(anthropic(400, "invalid_request_error", message)) == expected


@pytest.mark.parametrize(
    ("message", "tokens", "limit"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens "
         "(8000 in the messages, 1000 in the completion).", 9000, 8192),
        ("This endpoint's maximum context length is 131072 tokens. However, you requested about "
         "140000 tokens", 140000, 131072),
        ("Your input exceeds the context window of this model.", 0, 0),
        ("litellm.ContextWindowExceededError: too much", 0, 0),
        ("The prompt (total length 9000) is longer than the maximum model length of 8192.", 0, 0),
        ("The input (9000 tokens) is longer than the model's context length (8192).", 0, 0),
        ("the request exceeds the available context size, try increasing it", 0, 0),
        ("The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
         9000, 8192),
        ("Invalid request: Your request exceeded model token limit: 8192", 0, 0),
        ("Input token length too long", 0, 0),
        ("Input tokens exceed the configured limit of 8192 tokens.", 0, 0),
        ("requested tokens exceed maximum context limit", 0, 0),
        ("This model's maximum prompt length is 8192 but the request contains 9000 tokens.",
         9000, 8192),
        ("Prompt exceeds max length", 0, 0),
        ("Tokens in request more than max tokens allowed: 9000", 0, 0),
        ("<400> InvalidParameter: Range of input length should be [1, 8192]", 0, 8192),
        ("context window exceeds limit (2013)", 0, 0),
        ("9000 tokens requested but model only supports up to 8192", 0, 0),
        ("Please reduce the length of the messages or completion.", 0, 0),
        ("`inputs` tokens + `max_new_tokens` must be <= 8192", 0, 0),
        ("context exceeds your deployment limit", 0, 0),
        ("tokens to keep from the initial prompt is greater than the context length", 0, 0),
        ("Prompt contains 9000 tokens, too large for model with 8192 maximum context length",
         0, 8192),
        ("prompt token count of 9,000 exceeds the limit of 8,192", 9000, 8192),
        ("current length is 9000 while limit is 8192", 0, 0),
        ("maximum input length is 8192 tokens", 0, 0),
    ],
)  # fmt: skip
def test_every_way_of_saying_that_the_prompt_is_too_long(message: str, tokens: int, limit: int):
    assert facts(chat(400, message)) == ("overflow", False, tokens, limit, "")
    assert parse_stream_error({"message": message}, protocol="chat").kind == "overflow"


def test_an_overflow_may_be_told_by_its_code():
    assert chat(400, "no", code="context_length_exceeded").kind == "overflow"
    assert chat(400, "no", type="exceed_context_size_error").kind == "overflow"


@pytest.mark.parametrize(
    "message",
    [
        "policy_blocked: prompt is too long",
        "dlp_request_denied: maximum context length",
        "String too long. Expected a string with maximum length 64, exceeds the limit of 64",
        "string_above_max_length: exceeds the limit of 40",
    ],
)
def test_what_only_sounds_like_an_overflow_is_not_one(message: str):
    assert chat(400, message).kind == "invalid"


@pytest.mark.parametrize(
    ("status", "protocol", "kind"),
    [
        (400, "chat", "overflow"),
        (413, "chat", "overflow"),
        (400, "anthropic", "invalid"),
        (413, "anthropic", "large"),
        (500, "chat", "server"),
        (429, "chat", "rate"),
    ],
)
def test_an_empty_body_means_an_overflow_only_where_servers_do_that(
    status: int, protocol: ApiProtocol, kind: str
):
    found = told(status, b" \n", protocol)
    assert found.kind == kind
    assert found.message == f"The server returned {status} without an error message."


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_page_of_a_proxy_is_read_for_its_title(protocol: ApiProtocol):
    page = b"<!DOCTYPE html><html><head><title>413 Request Entity\nToo Large</title></head></html>"
    found = told(413, page, protocol)
    assert (found.kind, found.message) == ("large", "413 Request Entity Too Large")


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_web_page_instead_of_a_model_asks_for_the_address(status: int):
    page = b"<html><head><title>Not here</title></head></html>"
    found = parse_error_response(status, {}, body=page, protocol="anthropic", now=0)
    assert found.message == f"Not here ({status}, a web page; check the base URL)"
    assert not found.retry


def test_a_page_without_a_title_is_read_without_its_tags():
    page = b"<html><style>p{}</style><body><p>Bad</p> gateway</body></html>"
    assert told(502, page).message == "Bad gateway"


def test_a_long_message_is_cut():
    found = anthropic(400, "invalid_request_error", "word " * 1000)
    assert len(found.message) == 600
    assert found.message.endswith("…")


@pytest.mark.parametrize(
    ("message", "name", "headers", "kind", "retry"),
    [
        ("Slow down", "rate_limit_error", {}, "rate", True),
        ("You have reached your spend limit", "rate_limit_error", {}, "quota", False),
        ("Your usage limit resets soon", "rate_limit_error", {"retry_after": "7"}, "rate", True),
        ("x", "insufficient_quota", {"retry_after": "7"}, "quota", False),
        ("x", "enforced_spend_limit_reached", {}, "quota", False),
        ("x", "ramp_limit_exceeded", {}, "rate", True),
        ("You exceeded your current quota, see billing", "x", {}, "quota", False),
    ],
)
def test_a_limit_that_waiting_does_not_lift_is_a_quota(
    message: str, name: str, headers: dict[str, str], kind: str, retry: bool
):
    body = {"error": {"type": "rate_limit_error", "message": message, "code": name}}
    found = told(429, body, "chat", **headers)
    assert (found.kind, found.retry) == (kind, retry)


def test_the_details_of_an_error_say_more_than_its_type():
    found = anthropic(429, "rate_limit_error", "No.", error_code="enforced_spend_limit_reached")
    assert (found.kind, found.retry) == ("quota", False)
    found = anthropic(529, "overloaded_error", "No.", error_code="compaction_unavailable")
    assert (found.kind, found.retry) == ("overloaded", True)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Mon, 16 Nov 2026 00:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_how_long_the_server_asks_us_to_wait(headers: dict[str, str], wait: float | None):
    assert parse_error_response(429, headers, body=b"{}", protocol="chat", now=NOW).wait == wait


def test_google_says_in_the_body_how_long_to_wait():
    error = {"code": 429, "message": "Quota", "details": [{"@type": "x"}, {"retryDelay": "34s"}]}
    found = told(429, [{"error": error}], "chat")
    assert (found.kind, found.wait, found.message) == ("rate", 34.0, "Quota")


def test_the_server_has_the_last_word_on_trying_again():
    assert told(503, {}, x_should_retry="false").retry is False
    assert told(400, {}, x_should_retry="true").retry is True


def test_the_request_has_its_number_from_the_headers_first():
    assert told(500, {"request_id": "body"}, request_id="head").request == "head"
    assert told(500, {"request_id": "body"}, x_request_id="head").request == "head"
    assert told(500, {"request_id": "body"}).request == "body"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"error": {"message": "Unrecognized request argument supplied: foo"}}, "foo"),
        (
            {"error": {"message": "Unknown parameter: 'messages[1].x'.", "param": "messages[1].x"}},
            "messages[1].x",
        ),
        (
            {
                "error": {
                    "message": "Unsupported parameter: 'max_tokens' is not supported with this "
                    "model. Use 'max_completion_tokens' instead.",
                    "param": "max_tokens",
                    "code": "unsupported_parameter",
                }
            },
            "max_tokens",
        ),
        (
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "stream_options"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
            "stream_options",
        ),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_a_field_that_the_server_does_not_know_is_named(
    body: dict[str, Any], field: str, status: int
):
    found = told(status, body, "chat")
    assert (found.kind, found.field) == ("field", field)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": "plain"}, "plain"),
        ({"error": "a string"}, "a string"),
        ({"detail": "detail"}, "detail"),
        ("just a string", "just a string"),
        (b"not json", "not json"),
        (b'{"error":"\xff"}', '{"error":"\ufffd"}'),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"error":{"message":"inner"}}'},
                }
            },
            "inner",
        ),
    ],
)
def test_every_shape_of_body_is_read(body: object, message: str):
    assert told(500, body, "chat").message == message


@pytest.mark.parametrize(
    ("error", "kind", "retry"),
    [
        ({"type": "overloaded_error", "message": "x"}, "overloaded", True),
        ({"type": "api_error", "message": "x"}, "server", True),
        ({"type": "rate_limit_error", "message": "x"}, "rate", True),
        ({"type": "timeout_error", "message": "x"}, "timeout", True),
        ({"type": "authentication_error", "message": "x"}, "auth", False),
        ({"type": "billing_error", "message": "x"}, "billing", False),
        ({"type": "permission_error", "message": "x"}, "forbidden", False),
        ({"type": "not_found_error", "message": "x"}, "missing", False),
        ({"type": "request_too_large", "message": "x"}, "large", False),
        ({"type": "invalid_request_error", "message": "x"}, "invalid", False),
        (
            {
                "type": "invalid_request_error",
                "message": "prompt is too long: 2 tokens > 1 maximum",
            },
            "overflow",
            False,
        ),
        ({"code": 429, "message": "x"}, "rate", True),
        ({"code": 402, "message": "x"}, "billing", False),
        ({"code": "server_error", "message": "x"}, "server", True),
        ({"message": "x"}, "server", True),
        ("words", "server", True),
    ],
)
def test_every_error_inside_a_stream_has_its_kind(error: object, kind: str, retry: bool):
    found = parse_stream_error(error, protocol="anthropic")
    assert (found.kind, found.retry) == (kind, retry)


def test_chat_servers_say_in_their_way_that_calls_and_results_do_not_match():
    assert chat(400, "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'.").kind == "pairing"  # fmt: skip
    assert chat(400, "messages with role 'tool' must be a response to a preceding message with "
                "'tool_calls'.").kind == "pairing"  # fmt: skip
    assert chat(400, "The reasoning_content in the thinking mode must be passed back to the API."
                ).kind == "thinking"  # fmt: skip
    assert chat(404, "The model `x` does not exist").kind == "missing"
    assert chat(400, "x", code="model_not_found").kind == "missing"
