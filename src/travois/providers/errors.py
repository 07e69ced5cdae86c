"""Parsing of provider errors (429, 529, overflow, billing …) into an `ApiError` and its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from travois.core.json import as_list, as_object, as_string, encode_utf8
from travois.core.models import ApiProtocol
from travois.providers.replies import ApiError, ApiErrorKind

# The ways in which servers say no.


KIND_BY_STATUS: dict[int, ApiErrorKind] = {
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

KIND_BY_ERROR_NAME: dict[str, ApiErrorKind] = {
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
"""The kinds by a server's own name, in `error_code`, `code` or `type`."""

OVERFLOW_PATTERN = (
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
NOT_OVERFLOW_PATTERN = (
    r"policy_blocked|dlp_request_denied|string_above_max_length"
    r"|string too long\. expected a string with maximum length"
)

OVERFLOW_SIZE_PATTERNS = (
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
"""The patterns of the numbers in an overflow message."""

MESSAGE_PATTERNS: tuple[tuple[str, ApiErrorKind], ...] = (
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

SPENT_QUOTA_PATTERN = r"spend|usage limit|billing|credit|current quota"


MAX_MESSAGE_CHARS = 600
MESSAGE_STATUSES = frozenset((0, 400, 404, 413, 422, 500))
"""Statuses whose words say more than they do; 0 is an error inside a stream."""
WRONG_ADDRESS_STATUSES = frozenset((404, 405, 501))
"""The statuses of a web server that is asked for a model."""
HTML_PATTERN = r"<html|<!doctype|<head|<body"
DECISIVE_NAMED_KINDS: frozenset[ApiErrorKind] = frozenset(
    ("quota", "billing", "overloaded", "auth", "large")
)
"""Names that say more than the status beside them."""


def parse_error_response(
    status: int,
    headers: Mapping[str, str],
    *,
    body: bytes,
    protocol: ApiProtocol,
    now: float,
) -> ApiError:
    """Parse an HTTP error response; `now` is for a `retry-after` that is a date."""
    lower = {name.lower(): value for name, value in headers.items()}
    told = _parse_error_body(body)
    asked = _retry_after_seconds(lower, now=now)
    wait = told.wait if asked is None else asked
    kind, found = _classify_error(status, told, protocol=protocol, waits=wait is not None)
    return ApiError(
        kind,
        _error_message(status, told, body),
        status=status,
        wait=wait,
        retry={"true": True, "false": False}.get(lower.get("x-should-retry", "")),
        tokens=found.tokens,
        limit=found.limit,
        field=found.field or told.field or ("url" if _is_web_page(status, body) else ""),
        request=lower.get("request-id") or lower.get("x-request-id") or told.request,
    )


def _error_message(status: int, told: _ErrorBody, body: bytes) -> str:
    """Return a provider's error message, with a hint if a web page came instead."""
    said = told.message or f"The server returned {status} without an error message."
    if not _is_web_page(status, body):
        return said
    return f"{said} ({status}, a web page; check the base URL)"


def _is_web_page(status: int, body: bytes) -> bool:
    """Return whether an error response is a web page, which means a wrong base URL."""
    return status in WRONG_ADDRESS_STATUSES and bool(
        re.search(HTML_PATTERN.encode(), body[:2000], re.IGNORECASE)
    )


def parse_stream_error(error: object, *, protocol: ApiProtocol) -> ApiError:
    """Parse an error that arrives inside a stream."""
    told = _parse_error_object({"error": error})
    kind, found = _classify_error(told.status, told, protocol=protocol, waits=False)
    return ApiError(
        kind,
        told.message or "The server ended the stream without an error message.",
        status=told.status,
        wait=told.wait,
        tokens=found.tokens,
        limit=found.limit,
        field=found.field or told.field,
        request=told.request,
    )


class _ErrorBody(msgspec.Struct, frozen=True):
    """The fields of an error body, whichever provider wrote it."""

    message: str = ""
    names: tuple[str, ...] = ()
    field: str = ""
    request: str = ""
    status: int = 0
    wait: float | None = None
    empty: bool = False


class _ErrorNumbers(msgspec.Struct, frozen=True):
    tokens: int = 0
    limit: int = 0
    field: str = ""


def _parse_error_body(body: bytes) -> _ErrorBody:
    """Parse the body of an error response: a JSON object, or else plain text."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
        return _ErrorBody(message=_shorten_error_text(text), empty=not text.strip())
    first = next(iter(as_list(parsed)), parsed)
    return _parse_error_object(as_object(first) or {"error": first})


def _parse_error_object(body: dict[str, Any]) -> _ErrorBody:
    """Parse an error object in the shapes that different providers use."""
    error = as_object(body.get("error", body)) or {"message": body.get("error")}
    details, code = error.get("details"), error.get("code")
    detail = body.get("detail", error.get("detail"))
    refused = as_object(next(iter(as_list(detail)), None))
    names = (as_object(details).get("error_code"), code, error.get("type"), refused.get("type"))
    words = (_openrouter_message(error), error.get("message"), refused.get("msg"), detail)
    return _ErrorBody(
        message=_shorten_error_text(next((str(said) for said in words if said), "")),
        names=tuple(name for name in names if isinstance(name, str)),
        field=_field_name_of_error(error.get("param"), refused.get("loc")),
        request=as_string(body.get("request_id")),
        status=code if isinstance(code, int) and 100 <= code < 600 else 0,
        wait=_google_retry_delay(details),
    )


def _classify_error(
    status: int, told: _ErrorBody, *, protocol: ApiProtocol, waits: bool
) -> tuple[ApiErrorKind, _ErrorNumbers]:
    """Decide the kind of an error from its body, its names and its status, in this order."""
    if told.empty and protocol == "chat" and status in (400, 413):
        return "overflow", _ErrorNumbers()
    named: ApiErrorKind | None = next(
        (KIND_BY_ERROR_NAME[name] for name in told.names if name in KIND_BY_ERROR_NAME), None
    )
    if named == "overflow" or _is_overflow(status, told):
        return "overflow", _find_overflow_sizes(told.message)
    worded = _match_message(told.message) if status in MESSAGE_STATUSES else None
    if worded is not None:
        return worded
    kind = named if named in DECISIVE_NAMED_KINDS else _kind_of_status(status, named)
    if kind == "rate" and not waits and re.search(SPENT_QUOTA_PATTERN, told.message, re.IGNORECASE):
        kind = "quota"
    return kind, _ErrorNumbers()


def _kind_of_status(status: int, named: ApiErrorKind | None) -> ApiErrorKind:
    """Return the kind of a status; inside a stream there is none, so the name decides."""
    return KIND_BY_STATUS.get(status) or named or ("invalid" if 400 <= status < 500 else "server")


def _is_overflow(status: int, told: _ErrorBody) -> bool:
    """Return whether an error means that the prompt does not fit the context window."""
    text = " ".join((told.message, *told.names)).lower()
    if status not in MESSAGE_STATUSES or re.search(NOT_OVERFLOW_PATTERN, text):
        return False
    return bool(re.search(OVERFLOW_PATTERN, text))


def _match_message(message: str) -> tuple[ApiErrorKind, _ErrorNumbers] | None:
    """Find the kind of an error by known patterns of its message."""
    for pattern, kind in MESSAGE_PATTERNS:
        match = re.search(pattern, message, re.IGNORECASE | re.DOTALL)
        if match is not None:
            found = _numbers_of_match(match)
            return _remaining_output(found) if kind == "output" else (kind, found)
    return None


def _remaining_output(found: _ErrorNumbers) -> tuple[ApiErrorKind, _ErrorNumbers]:
    """Return the output that still fits, where prompt and output share a limit."""
    room = found.limit - found.tokens
    return ("output", _ErrorNumbers(limit=room)) if room > 0 else ("overflow", found)


def _find_overflow_sizes(message: str) -> _ErrorNumbers:
    """Find the prompt size and the limit in the message of a context overflow."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", message)
    for pattern in OVERFLOW_SIZE_PATTERNS:
        match = re.search(pattern, plain, re.IGNORECASE | re.DOTALL)
        if match is not None:
            return _numbers_of_match(match)
    return _ErrorNumbers()


def _numbers_of_match(match: re.Match[str]) -> _ErrorNumbers:
    """Return the token counts and the field that an error message pattern captured."""
    groups = match.groupdict()
    return _ErrorNumbers(
        tokens=int(groups.get("tokens") or 0),
        limit=int(groups.get("limit") or 0),
        field=groups.get("field") or "",
    )


def _openrouter_message(error: dict[str, Any]) -> str:
    """Return the message that OpenRouter wraps around the provider's own error."""
    inner = as_string(as_object(error.get("metadata")).get("raw"))
    return _parse_error_body(encode_utf8(inner)).message if inner else ""


def _field_name_of_error(param: object, loc: object) -> str:
    return ".".join(str(part) for part in as_list(loc) if part != "body") or as_string(param)


def _google_retry_delay(details: object) -> float | None:
    """Return the delay that Google puts in a detail: `"retryDelay": "34s"`."""
    delays = (as_string(as_object(detail).get("retryDelay")) for detail in as_list(details))
    return next((_parse_seconds(delay[:-1]) for delay in delays if delay.endswith("s")), None)


def _retry_after_seconds(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds to wait that a response's `retry-after` headers ask for."""
    millis = _parse_seconds(headers.get("retry-after-ms", ""))
    if millis is not None:
        return millis / 1000
    after = headers.get("retry-after", "")
    seconds = _parse_seconds(after)
    return seconds if seconds is not None else _seconds_until(after, now=now)


def _parse_seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text) else None


def _seconds_until(date: str, *, now: float) -> float | None:
    """Return the seconds until an HTTP date; None if it is invalid."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _shorten_error_text(text: str) -> str:
    """Shorten an error text, or a web page, to a few readable lines."""
    if re.search(HTML_PATTERN, text[:2000], re.IGNORECASE):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = title[1] if title else re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text)
    short = " ".join(text.split())
    return short if len(short) <= MAX_MESSAGE_CHARS else short[: MAX_MESSAGE_CHARS - 1] + "…"
