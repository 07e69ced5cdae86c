"""Rate limits of providers: read from headers, shared by all agents, told to other programs."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from travois.providers.rate_limits import RateLimiter, RateLimits, parse_rate_limits

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "found", "pause"),
    [
        ({}, RateLimits(), 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, RateLimits(retry_after=0.25), 0.25),
        ({"retry-after": "12"}, RateLimits(retry_after=12.0), 12.0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:50Z",
                "anthropic-ratelimit-input-tokens-remaining": "4000",
                "anthropic-ratelimit-output-tokens-remaining": "900",
                "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:14:20Z",
            },
            RateLimits(0, 30.0, 4000, 900, 60.0),
            30.0,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "7",
                "x-ratelimit-reset-requests": "20ms",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1m6.5s",
            },
            RateLimits(7, 0.02, 0, None, 66.5),
            66.5,
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-input-tokens-limit": "30000",
                "anthropic-ratelimit-output-tokens-limit": "8000",
            },
            RateLimits(requests_limit=50, input_tokens_limit=30_000, output_tokens_limit=8_000),
            0.0,
        ),
        (
            {"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "90000"},
            RateLimits(requests_limit=60, input_tokens_limit=90_000),
            0.0,
        ),
        ({"retry-after": "soon", "x-ratelimit-remaining-requests": "-"}, RateLimits(), 0.0),
    ],
)
def test_headers_of_providers_are_read(
    headers: dict[str, str], found: RateLimits, pause: float
) -> None:
    assert parse_rate_limits(headers, now=NOW) == found
    assert found.pause == pause


def test_what_one_agent_is_told_holds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def main() -> None:
        limiter = RateLimiter("http://house", "opus")
        clock = [100.0]

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            clock[0] += seconds

        monkeypatch.setattr(anyio, "current_time", lambda: clock[0])
        monkeypatch.setattr(anyio, "sleep", sleep)
        await limiter.wait_for_turn()
        limiter.record_response(429, {"retry-after": "5"}, now=NOW)
        await limiter.wait_for_turn()
        few = {"x-ratelimit-remaining-requests": "2", "x-ratelimit-reset-requests": "9s"}
        limiter.record_response(200, few, now=NOW)
        for _ in range(3):  # two are left, the third waits for more
            await limiter.wait_for_turn()
        limiter.record_response(429, {"retry-after": "86400"}, now=NOW)
        await limiter.wait_for_turn()

    anyio.run(main)
    assert slept == [5.0, 9.0, 60.0]  # nobody waits for a day for what another was told


def test_other_programs_follow_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "limits.jsonl"
    monkeypatch.setenv("TRAVOIS_RATE_LIMITS_FILE", str(file))

    async def main() -> None:
        limiter = RateLimiter("http://house", "opus")
        limiter.record_response(200, {}, now=NOW)
        limiter.record_response(200, {"x-ratelimit-remaining-requests": "3"}, now=NOW)
        limiter.record_response(429, {}, now=NOW)

    anyio.run(main)
    same = {"at": NOW, "url": "http://house", "model": "opus"}
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {**same, "status": 200, "limits": {"requests_left": 3}},
        {**same, "status": 429, "limits": {}},
    ]
