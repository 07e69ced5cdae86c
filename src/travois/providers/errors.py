"""Provider errors: parsing 429, 529, overflow, billing … into an `ApiError` of some kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import msgspec.toml

from travois.core.json import as_list, as_object, as_string, encode_utf8
from travois.core.models import ApiProtocol
from travois.lazy_imports import lazy_imports
from travois.providers.replies import ApiError, ApiErrorKind

with lazy_imports():
    from email import utils as email_dates


class MessagePattern(msgspec.Struct, frozen=True):
    """A pattern of error messages, and the kind of error that they mean."""

    kind: ApiErrorKind
    pattern: str


class OverflowPatterns(msgspec.Struct, frozen=True):
    """The patterns of messages that mean that a prompt does not fit the context window."""

    patterns: tuple[str, ...]
    excluded: tuple[str, ...]
    sizes: tuple[str, ...]

    def match(self, text: str) -> bool:
        """Return whether a text in lower case means an overflow."""
        if re.search("|".join(self.excluded), text):
            return False
        return bool(re.search("|".join(self.patterns), text))


class ErrorTables(msgspec.Struct, frozen=True):
    """The patterns of provider errors in errors.toml."""

    statuses: dict[str, ApiErrorKind]
    names: dict[str, ApiErrorKind]
    overflow: OverflowPatterns
    messages: tuple[MessagePattern, ...]


@cache
def load_error_tables() -> ErrorTables:
    """Load the provider error patterns from errors.toml, on the first failed request."""
    return msgspec.toml.decode(
        Path(__file__).with_name("errors.toml").read_bytes(), type=ErrorTables
    )


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
    """Parse a provider's HTTP error into an `ApiError`; `now` is for a `retry-after` date."""
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
    """Return a provider's error message, or a hint if a web page came instead."""
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
    """Parse a provider's error that arrives inside a stream."""
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
    """Parse the body of a provider's error: a JSON object, or else plain text."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
        return _ErrorBody(message=_shorten_error_text(text), empty=not text.strip())
    first = next(iter(as_list(parsed)), parsed)
    return _parse_error_object(as_object(first) or {"error": first})


def _parse_error_object(body: dict[str, Any]) -> _ErrorBody:
    """Parse a provider's error object in any of the known shapes."""
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
    """Classify a provider error by its body, its names and its status, in this order."""
    if told.empty and protocol == "chat" and status in (400, 413):
        return "overflow", _ErrorNumbers()
    kinds = load_error_tables().names
    named: ApiErrorKind | None = next((kinds[name] for name in told.names if name in kinds), None)
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
    """Return the error kind of an HTTP status; inside a stream, that of the error's name."""
    return (
        load_error_tables().statuses.get(str(status))
        or named
        or ("invalid" if 400 <= status < 500 else "server")
    )


def _is_overflow(status: int, told: _ErrorBody) -> bool:
    """Return whether a provider error means that the prompt exceeds the context window."""
    text = " ".join((told.message, *told.names)).lower()
    return status in MESSAGE_STATUSES and load_error_tables().overflow.match(text)


def _match_message(message: str) -> tuple[ApiErrorKind, _ErrorNumbers] | None:
    """Return a provider error's kind by known patterns of its message."""
    for known in load_error_tables().messages:
        match = re.search(known.pattern, message, re.IGNORECASE | re.DOTALL)
        if match is not None:
            found = _numbers_of_match(match)
            return _remaining_output(found) if known.kind == "output" else (known.kind, found)
    return None


def _remaining_output(found: _ErrorNumbers) -> tuple[ApiErrorKind, _ErrorNumbers]:
    """Return the output that still fits, from an error where prompt and output share a limit."""
    room = found.limit - found.tokens
    return ("output", _ErrorNumbers(limit=room)) if room > 0 else ("overflow", found)


def _find_overflow_sizes(message: str) -> _ErrorNumbers:
    """Find the prompt size and the limit in a context overflow's error message."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", message)
    for pattern in load_error_tables().overflow.sizes:
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
    """Return the wait in seconds that an error response's `retry-after` headers ask for."""
    millis = _parse_seconds(headers.get("retry-after-ms", ""))
    if millis is not None:
        return millis / 1000
    after = headers.get("retry-after", "")
    seconds = _parse_seconds(after)
    return seconds if seconds is not None else _seconds_until(after, now=now)


def _parse_seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text) else None


def _seconds_until(date: str, *, now: float) -> float | None:
    """Return the seconds until a `retry-after` date; None if it is invalid."""
    try:
        return max(0.0, email_dates.parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _shorten_error_text(text: str) -> str:
    """Shorten a provider's error text, or a web page, to a few readable lines."""
    if re.search(HTML_PATTERN, text[:2000], re.IGNORECASE):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = title[1] if title else re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text)
    short = " ".join(text.split())
    return short if len(short) <= MAX_MESSAGE_CHARS else short[: MAX_MESSAGE_CHARS - 1] + "…"
