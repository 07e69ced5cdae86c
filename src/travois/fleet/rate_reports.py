"""What a run's responses say about the rate limits of its provider key, as levels of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from travois.providers.rate_limits import RateLimitReport, RateLimits

MINUTE = 60.0


class BucketLevel(msgspec.Struct, frozen=True):
    """What is left of a limit, and how fast it comes back."""

    kind: str
    left: float
    most: float
    per_second: float


class RateReports:
    """The rate limits that a run appends to a file, as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        self._read = 0

    def read_levels(self) -> tuple[BucketLevel, ...]:
        """Return the levels that the last new response tells; none if there is no new one."""
        lines = self._read_new_bytes().splitlines()
        if not lines:
            return ()
        try:
            report = msgspec.json.decode(lines[-1], type=RateLimitReport)
        except msgspec.DecodeError:
            return ()
        return tuple(_list_levels(report.limits))

    def _read_new_bytes(self) -> bytes:
        """Return the whole lines that were added since the last time."""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            return whole
        return b""


def _list_levels(limits: RateLimits) -> Iterator[BucketLevel]:
    """Yield the level of each bucket of a provider key whose size is known."""
    for kind, left, most, reset in (
        ("requests", limits.requests_left, limits.requests_limit, limits.requests_reset),
        ("input tokens", limits.input_tokens_left, limits.input_tokens_limit, limits.tokens_reset),
        ("output tokens", limits.output_tokens_left, limits.output_tokens_limit, None),
    ):
        if left is None or not most:
            continue
        # A reset is the time at which the whole limit is back; without one, it is per minute.
        rate = (most - left) / reset if reset and left < most else most / MINUTE
        yield BucketLevel(kind, left, most, rate)
