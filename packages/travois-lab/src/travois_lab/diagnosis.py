"""Cache diagnostics: why a request could not reuse the prefix of the one it names."""

from __future__ import annotations

from travois_lab.exchange import Exchange
from travois_lab.objects import Json
from travois_lab.positions import Tier

LIFE = 3600.0
OTHERS = ("thinking", "tool_choice", "output_config")


def diagnose(old: Exchange | None, new: Exchange) -> Json | None:
    """The provider's diagnosis; None where nothing diverged."""
    if old is None or new.at - old.at >= LIFE:
        return {"cache_miss_reason": {"type": "previous_message_not_found"}}
    before, after = old.json, new.json
    if old.model != new.model or before.get("speed") != after.get("speed"):
        return _missed("model_changed", old, 0)
    tiers: tuple[Tier, ...] = ("tools", "system", "messages")
    for tier in tiers:
        was, now = _tier(old, tier), _tier(new, tier)
        same = now[: len(was)] if tier == "messages" else now
        if was != same:
            return _missed(f"{tier}_changed", old, _shared(old, new))
    if any(before.get(field) != after.get(field) for field in OTHERS):
        return {"cache_miss_reason": {"type": "unavailable"}}
    return None


def _tier(exchange: Exchange, tier: Tier) -> list[bytes]:
    pairs = zip(exchange.row, exchange.kin.digests, strict=True)
    return [digest for position, digest in pairs if position.tier == tier]


def _shared(old: Exchange, new: Exchange) -> int:
    pairs = zip(old.kin.digests, new.kin.digests, strict=False)
    for i, (was, now) in enumerate(pairs):
        if was != now:
            return i
    return min(len(old.row), len(new.row))


def _missed(kind: str, old: Exchange, shared: int) -> Json:
    lost = sum(position.tokens for position in old.row[shared:])
    return {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": lost}}
