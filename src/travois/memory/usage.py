"""How often memories were recalled. Deleting the file loses nothing but that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from travois.memory.memory import Memory
from travois.sessions import disk

Used = tuple[int, float]
"""How often, and when last."""


class Stats(msgspec.Struct, frozen=True):
    """What there is, counted."""

    total: int
    types: dict[str, int]
    authors: dict[str, int]
    scopes: dict[str, int]
    pinned: int
    recalled: dict[str, Used]
    """By scope and name, of those that ever were."""
    never: tuple[str, ...]
    waiting: int = 0
    """How many are not yet found by meaning."""


def key(memory: Memory) -> str:
    """What a memory is called among those of all scopes."""
    return f"{memory.scope}/{memory.name}"


def read(path: Path) -> dict[str, Used]:
    """The file; empty if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Used])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def count(path: Path, memories: Iterable[Memory], *, now: float) -> None:
    """Add one use to each. Raises OSError."""
    found = read(path)
    for memory in memories:
        found[key(memory)] = (found.get(key(memory), (0, 0.0))[0] + 1, now)
    disk.make_folders(path.parent)
    disk.replace(path, msgspec.json.encode(found), sync="whenever")


def stats(memories: Sequence[Memory], used: dict[str, Used], *, waiting: int) -> Stats:
    """What there is, and what of it is of use."""
    keys = [key(memory) for memory in memories]
    return Stats(
        len(memories),
        dict(Counter(memory.type for memory in memories)),
        dict(Counter(memory.author for memory in memories)),
        dict(Counter(memory.scope for memory in memories)),
        sum(memory.pinned for memory in memories),
        {each: used[each] for each in keys if each in used},
        tuple(each for each in keys if each not in used),
        waiting,
    )
