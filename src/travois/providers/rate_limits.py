"""The rate limits of providers, and waiting for them: one limiter for all agents.

Several agents of a process ask the same model. When one is told to wait, or that no request is
left, the others wait, too, instead of running into the limit one after another. Other programs can
follow along in the file that `TRAVOIS_RATE_LIMITS_FILE` names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

import anyio
import msgspec

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports

with lazy_imports():
    import datetime

LIMITS_FILE_VARIABLE = "TRAVOIS_RATE_LIMITS_FILE"
"""A file that gets a JSON line with each response's rate limits."""
MAX_SHARED_WAIT_SECONDS = 60.0
"""The most that a request waits for what another one was told: then it asks for itself."""
RATE_LIMIT_STATUSES = (429, 529)
DURATION = compile_lazily(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")


class RateLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rate limits of a response; None where it says nothing. Resets are in seconds."""

    requests_left: int | None = None
    requests_reset: float | None = None
    input_tokens_left: int | None = None
    output_tokens_left: int | None = None
    tokens_reset: float | None = None
    retry_after: float | None = None
    requests_limit: int | None = None
    input_tokens_limit: int | None = None
    output_tokens_limit: int | None = None

    @property
    def pause(self) -> float:
        """The seconds until another request makes sense; 0 if it does at once."""
        waits = [self.retry_after or 0.0]
        waits += [self.requests_reset or 0.0] if self.requests_left == 0 else []
        spent = 0 in (self.input_tokens_left, self.output_tokens_left)
        return max(*waits, self.tokens_reset or 0.0) if spent else max(waits)


class RateLimitReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line for other programs."""

    at: float
    url: str
    model: str
    status: int
    limits: RateLimits


def parse_rate_limits(headers: Mapping[str, str], *, now: float) -> RateLimits:
    """Parse the headers of Anthropic, OpenAI and those that speak like them."""
    anthropic, openai = "anthropic-ratelimit-", "x-ratelimit-"
    tokens = f"{anthropic}input-tokens-reset", f"{anthropic}tokens-reset", f"{openai}reset-tokens"
    return RateLimits(
        requests_left=_first_count(
            headers, f"{anthropic}requests-remaining", f"{openai}remaining-requests"
        ),
        requests_reset=_first_wait(
            headers, f"{anthropic}requests-reset", f"{openai}reset-requests", now=now
        ),
        input_tokens_left=_first_count(
            headers,
            f"{anthropic}input-tokens-remaining",
            f"{anthropic}tokens-remaining",
            f"{openai}remaining-tokens",
        ),
        output_tokens_left=_first_count(headers, f"{anthropic}output-tokens-remaining"),
        tokens_reset=_first_wait(headers, *tokens, now=now),
        retry_after=_parse_wait(f"{headers.get('retry-after-ms', '')}ms", now)
        or _first_wait(headers, "retry-after", now=now),
        requests_limit=_first_count(
            headers, f"{anthropic}requests-limit", f"{openai}limit-requests"
        ),
        input_tokens_limit=_first_count(
            headers,
            f"{anthropic}input-tokens-limit",
            f"{anthropic}tokens-limit",
            f"{openai}limit-tokens",
        ),
        output_tokens_limit=_first_count(headers, f"{anthropic}output-tokens-limit"),
    )


class RateLimiter:
    """The rate limits of one model at one address, for all agents of this process."""

    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._model = model
        self._until = 0.0
        """Before this time of the event loop, no request is sent."""
        self._left: int | None = None
        self._reset = 0.0

    async def wait_for_turn(self) -> None:
        """Wait until a request may be sent, and count it."""
        if self._left == 0:
            self._until = max(self._until, self._reset)
        if (rest := self._until - anyio.current_time()) > 0:
            await anyio.sleep(rest)
        if self._left:
            self._left -= 1
        elif self._left == 0:  # the time is over: the next response says how many there are
            self._left = None

    def record_response(self, status: int, headers: Mapping[str, str], *, now: float) -> None:
        """Take account of what a response says."""
        limits, here = parse_rate_limits(headers, now=now), anyio.current_time()
        if limits == RateLimits() and status not in RATE_LIMIT_STATUSES:
            return
        self._left = limits.requests_left
        self._reset = here + min(limits.requests_reset or 0.0, MAX_SHARED_WAIT_SECONDS)
        if status in RATE_LIMIT_STATUSES:
            self._until = max(self._until, here + min(limits.pause, MAX_SHARED_WAIT_SECONDS))
        self._report(RateLimitReport(now, self._url, self._model, status, limits))

    def _report(self, report: RateLimitReport) -> None:
        """Append a line for other programs; a file that cannot be written costs only that."""
        if not (path := os.environ.get(LIMITS_FILE_VARIABLE)):
            return
        with suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(fd, msgspec.json.encode(report) + b"\n")
            finally:
                os.close(fd)


def _first_count(headers: Mapping[str, str], *names: str) -> int | None:
    found = (headers.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdecimal()), None)


def _first_wait(headers: Mapping[str, str], *names: str, now: float) -> float | None:
    found = (_parse_wait(headers.get(name, ""), now) for name in names)
    return next((seconds for seconds in found if seconds is not None), None)


def _parse_wait(text: str, now: float) -> float | None:
    """Return the seconds of "12", "1m30.5s" or "20ms", or until an RFC 3339 time."""
    with suppress(ValueError):
        return max(0.0, float(text))
    if text and (parts := DURATION.fullmatch(text)):
        hours, minutes, seconds, millis = (float(part or 0) for part in parts.groups())
        return hours * 3600 + minutes * 60 + seconds + millis / 1000
    with suppress(ValueError):
        return max(0.0, datetime.datetime.fromisoformat(text).timestamp() - now)
    return None
