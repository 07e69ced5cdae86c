"""Automatic prompt caching, as OpenAI and its kind do it: any prefix seen lately is cheap."""

from __future__ import annotations

from hashlib import blake2b

from travois.core.models import Usage
from travois_lab.positions import Position

MINIMUM = 1024
LIFE = 1800.0


class PrefixCache:
    """The prefixes seen within the last half hour."""

    def __init__(self) -> None:
        self.expires: dict[bytes, float] = {}

    def use(self, row: list[Position], *, salt: str, now: float, life: float = LIFE) -> Usage:
        """How much of this prompt was seen before; remembers all of it."""
        name, total, read = blake2b(salt.encode(), digest_size=16).digest(), 0, 0
        for position in row:
            name = blake2b(name + position.digest, digest_size=16).digest()
            total += position.tokens
            if self.expires.get(name, -1.0) > now and total >= MINIMUM:
                read = total
            self.expires[name] = now + life
        written = total - read if total >= MINIMUM else 0
        return Usage(input=total - read - written, read=read, write=written)
