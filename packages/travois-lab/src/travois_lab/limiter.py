"""Rate limits: buckets of requests and tokens that fill up again by the minute."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec

from travois.core.models import Usage
from travois_lab.refusal import Refusal

EPOCH = 1_767_225_600
KINDS = ("requests", "input_tokens", "output_tokens")


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of each kind a minute allows; nothing is limited where it says nothing."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Limiter:
    """The buckets of one organisation."""

    def __init__(self, rates: Rates) -> None:
        given = {kind: getattr(rates, kind) for kind in KINDS}
        self.limits: dict[str, int] = {k: v for k, v in given.items() if v is not None}
        self.levels: dict[str, float] = {k: float(v) for k, v in self.limits.items()}
        self.at = 0.0

    def admit(self, now: float) -> None:
        """Take one request; refuses it when any bucket is empty."""
        self._fill(now)
        for kind, limit in self.limits.items():
            least = 1.0 if kind == "requests" else 0.0
            if self.levels[kind] < least or (least == 0.0 and self.levels[kind] <= 0):
                wait = max(1, math.ceil((max(least, 1.0) - self.levels[kind]) * 60 / limit))
                raise Refusal(
                    f"This request would exceed your organization's rate limit of {limit} "
                    f"{kind.replace('_', ' ')} per minute.",
                    status=429,
                    headers=(("retry-after", str(wait)), *self.headers(now)),
                )
        if "requests" in self.levels:
            self.levels["requests"] -= 1

    def settle(self, usage: Usage) -> None:
        """Charge the tokens of a request; what was read from cache is free."""
        spent = {"input_tokens": usage.prompt - usage.read, "output_tokens": usage.output}
        for kind, tokens in spent.items():
            if kind in self.levels:
                self.levels[kind] -= tokens

    def headers(self, now: float) -> tuple[tuple[str, str], ...]:
        """The limits as the provider tells them."""
        rows: list[tuple[str, str]] = []
        for kind, limit in self.limits.items():
            name = f"anthropic-ratelimit-{kind.replace('_', '-')}"
            missing = (limit - self.levels[kind]) * 60 / limit
            full = datetime.fromtimestamp(int(EPOCH + now + missing), UTC)
            rows.append((f"{name}-limit", str(limit)))
            rows.append((f"{name}-remaining", str(max(0, int(self.levels[kind])))))
            rows.append((f"{name}-reset", full.strftime("%Y-%m-%dT%H:%M:%SZ")))
        return tuple(rows)

    def _fill(self, now: float) -> None:
        for kind, limit in self.limits.items():
            grown = self.levels[kind] + (now - self.at) * limit / 60
            self.levels[kind] = min(float(limit), grown)
        self.at = now
