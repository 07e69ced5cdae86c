"""The ways in which servers say no."""

from __future__ import annotations

from travois.providers.replies import ProblemKind

BY_STATUS: dict[int, ProblemKind] = {
    401: "auth",
    402: "billing",
    403: "forbidden",
    404: "missing",
    408: "timeout",
    409: "server",
    413: "large",
    425: "server",
    429: "rate",
    501: "missing",
    504: "timeout",
    529: "overloaded",
}

BY_NAME: dict[str, ProblemKind] = {
    "authentication_error": "auth",
    "invalid_api_key": "auth",
    "billing_error": "billing",
    "billing_not_active": "billing",
    "permission_error": "forbidden",
    "not_found_error": "missing",
    "model_not_found": "missing",
    "conflict_error": "server",
    "request_too_large": "large",
    "rate_limit_error": "rate",
    "rate_limit_exceeded": "rate",
    "ramp_limit_exceeded": "rate",
    "enforced_spend_limit_reached": "quota",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "api_error": "server",
    "server_error": "server",
    "internal_server_error": "server",
    "timeout_error": "timeout",
    "overloaded_error": "overloaded",
    "compaction_unavailable": "overloaded",
    "invalid_request_error": "invalid",
    "invalid_prompt": "invalid",
    "misalignment_policy_violation": "invalid",
    "invalid_encrypted_content": "thinking",
    "context_length_exceeded": "overflow",
    "exceed_context_size_error": "overflow",
    "extra_forbidden": "field",
    "unknown_parameter": "field",
    "unsupported_parameter": "field",
}
"""What a server calls it, as `error_code`, `code` or `type`."""

OVERFLOW = (
    r"prompt is too long|input is too long|maximum context length|context_length_exceeded"
    r"|exceeds the context window|contextwindowexceedederror|longer than the maximum model length"
    r"|longer than the model's context length|exceeds the available context size"
    r"|exceeds the maximum number of tokens allowed|exceeded model token limit"
    r"|input token length too long|input tokens exceed the configured limit"
    r"|maximum context limit|maximum prompt length|prompt exceeds max length"
    r"|tokens in request more than max tokens allowed|range of input length should be"
    r"|context window exceeds limit|but model only supports up to"
    r"|reduce the length of the messages|`inputs` tokens \+ `max_new_tokens` must be"
    r"|context exceeds your deployment|greater than the context length|too large for model with"
    r"|exceeds the limit of \d+|current length is .{0,40} while limit is"
    r"|maximum input length is .{0,40} tokens|model_context_window_exceeded"
)
NOT_OVERFLOW = (
    r"policy_blocked|dlp_request_denied|string_above_max_length"
    r"|string too long\. expected a string with maximum length"
)

SIZES = (
    r"(?P<tokens>\d+) tokens > (?P<limit>\d+) maximum",
    r"maximum context length (?:is|of) (?P<limit>\d+)(?:.*?(?:requested|contains?|has|resulted in)"
    r"(?: about| at least)? (?P<tokens>\d+))?",
    r"token count \(?(?P<tokens>\d+)\)? exceeds the maximum number of tokens allowed"
    r" \(?(?P<limit>\d+)",
    r"token count of (?P<tokens>\d+) exceeds the limit of (?P<limit>\d+)",
    r"maximum prompt length is (?P<limit>\d+) but the request contains (?P<tokens>\d+)",
    r"range of input length should be \[\d+, ?(?P<limit>\d+)",
    r"with (?P<limit>\d+) maximum context length",
)
"""Where an overflow names its numbers."""

WORDS: tuple[tuple[str, ProblemKind], ...] = (
    (r"max_tokens: \d+ > (?P<limit>\d+), which is the maximum allowed", "output"),
    (r"`?max_tokens`? exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<limit>\d+)", "output"),
    (r"bound to a different conversation", "bound"),
    (r"`?thinking`? .{0,80}cannot be modified|cannot be modified", "thinking"),
    (r"reasoning_content.{0,40} must be passed back", "thinking"),
    (r"invalid `?signature`? in `?thinking`? block", "thinking"),
    (r"encrypted content .{0,80}could not be (?:verified|decrypted)", "thinking"),
    (r"thought[_ ]signature", "thinking"),
    (r"`tool_use` ids were found without `tool_result`", "pairing"),
    (r"unexpected `tool_use_id` found in `tool_result`", "pairing"),
    (r"`tool_use` ids must be unique", "pairing"),
    (r"tool_calls' must be followed by tool messages", "pairing"),
    (r"role 'tool' must be a response to a preceding message with 'tool_calls'", "pairing"),
    (r"no tool (?:output|call) found for function call", "pairing"),
    (r"was provided without its required following item", "pairing"),
    (r"number of function response parts", "pairing"),
    (r"unexpected value\(s\) `(?P<field>[^`]+)` for the `anthropic-beta` header", "beta"),
    (r"(?P<field>[\w.\[\]-]+): extra inputs are not permitted", "field"),
    (r"extra inputs are not permitted", "field"),
    (r"un(?:known|supported|recognized) (?:request )?(?:parameter|argument)\w*(?: supplied)?:"
     r" ['\"`]?(?P<field>[\w.\[\]-]+)", "field"),
    (r"unknown name \"(?P<field>\w+)\"", "field"),
    (r"\"(?P<field>thinking)\.type\.[^\"]*\" is not supported for this model", "field"),
    (r"does not support the (?P<field>effort) parameter", "field"),
    (r"(?P<field>[\w.]*effort)['\"`]?(?: parameter)?:? .{0,80}(?:not support|should be)", "field"),
    (r"does not support (?P<field>think)ing", "field"),
    (r"(?P<field>thinking[_ ]?level) .{0,40}not supported", "field"),
    (r"does not support the (?P<field>clear_\w+) context management strategy", "field"),
    (r"(?P<field>tool_choice): type .{0,40} not supported for this model", "field"),
    (r"image exceeds|image dimensions exceed|could not process image", "media"),
    (r"could not process pdf|pdf pages may be provided|does not support image input", "media"),
    (r"credit balance is too low", "billing"),
    (r"model .{0,80}does not exist|model .{0,80}not found", "missing"),
)  # fmt: skip
"""Refusals of a request that are told only by their words."""

SPENT = r"spend|usage limit|billing|credit|current quota"
