"""The prompt cache of the Messages API: what is written, what is read, and for how long."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from travois.core.models import Usage
from travois_lab.objects import Json, inner, listed
from travois_lab.positions import Position, as_blocks
from travois_lab.profiles import Profile
from travois_lab.refusal import Refusal

MARKERS = 4
LOOK_BACK = 20
LIVES = {"5m": 300.0, "1h": 3600.0}
RUNS = ("tool_use", "tool_result")


class Stored(msgspec.Struct):
    """One entry: the prefix up to some position, alive for a while after its last use."""

    tokens: int
    life: float
    expires: float
    available: float


class Hit(msgspec.Struct, frozen=True):
    """What the cache did for a request: the position read up to, and the tokens of each kind."""

    read_to: int
    usage: Usage
    hashes: tuple[bytes, ...] = ()
    written: tuple[int, ...] = ()


class Cache:
    """All entries of all workspaces; `capacity` bounds how many, least recently used first out."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.entries: dict[bytes, Stored] = {}

    def live(self, name: bytes, now: float) -> bool:
        """Whether an entry can be read: its writer has begun to answer, and it still lives."""
        entry = self.entries.get(name)
        return entry is not None and entry.available <= now < entry.expires

    def use(
        self, row: list[Position], hashes: tuple[bytes, ...], *, low: int, now: float, start: float
    ) -> Hit:
        """Read the longest known prefix, write what is marked beyond it, and count both."""
        marked = [i for i, position in enumerate(row) if position.ttl]
        sums = _sums(row)
        read_to = self._read(row, hashes, marked=marked, now=now)
        written = tuple(i for i in marked if i > read_to and sums[i] >= low)
        self._refresh(hashes[: read_to + 1], now)
        for i in written:
            self._write(hashes[i], sums[i], LIVES[row[i].ttl], now=now, start=start)
        self._evict()
        return Hit(read_to, _usage(row, sums, read_to, written), hashes, written)

    def _read(
        self, row: list[Position], hashes: tuple[bytes, ...], *, marked: list[int], now: float
    ) -> int:
        found = -1
        for marker in reversed(marked):
            j, steps = marker, 0
            while j > found and steps < LOOK_BACK:
                if self.live(hashes[j], now):
                    found = max(found, j)
                    break
                j, steps = _previous(row, j), steps + 1
        return found

    def _refresh(self, hashes: tuple[bytes, ...], now: float) -> None:
        for name in hashes:
            if self.live(name, now):
                entry = self.entries.pop(name)
                entry.expires = now + entry.life
                self.entries[name] = entry

    def _write(self, name: bytes, tokens: int, life: float, *, now: float, start: float) -> None:
        old = self.entries.pop(name, None)
        if old is not None and now < old.expires:
            start = min(old.available, start)
        self.entries[name] = Stored(tokens, life, now + life, start)

    def _evict(self) -> None:
        while self.capacity is not None and len(self.entries) > self.capacity:
            del self.entries[next(iter(self.entries))]


def _previous(row: list[Position], j: int) -> int:
    kind = row[j].kind
    j -= 1
    while kind in RUNS and j >= 0 and row[j].kind == kind:
        j -= 1
    return j


def _sums(row: list[Position]) -> list[int]:
    total, sums = 0, list[int]()
    for position in row:
        total += position.tokens
        sums.append(total)
    return sums


def _usage(row: list[Position], sums: list[int], read_to: int, written: tuple[int, ...]) -> Usage:
    read = sums[read_to] if read_to >= 0 else 0
    whole = max((sums[i] for i in written), default=read)
    hour = max((sums[i] for i in written if row[i].ttl == "1h"), default=read)
    total = sums[-1] if sums else 0
    return Usage(input=total - whole, read=read, write=whole - hour, write_1h=hour - read)


def chain(
    row: list[Position], body: Json, *, profile: Profile, workspace: str
) -> tuple[bytes, ...]:
    """The name of the prefix that ends at each position."""
    salts = _salts(body, profile)
    before, tier, names = blake2b(workspace.encode(), digest_size=16).digest(), "", list[bytes]()
    for position in row:
        mixed = blake2b(before, digest_size=16)
        if position.tier != tier:
            tier = position.tier
            mixed.update(salts[tier])
        mixed.update(position.digest)
        before = mixed.digest()
        names.append(before)
    return tuple(names)


def _salts(body: Json, profile: Profile) -> dict[str, bytes]:
    """What besides the text of each tier decides whether a prefix is the same."""
    model: list[object] = [profile.id]
    thought = _thought(body, profile)
    if profile.thinking_salt == "tools":
        model.append(thought)
    tools: list[Json] = listed(body, "tools")
    search = any(str(tool.get("type", "")).startswith("web_search") for tool in tools)
    rich = [b for m in listed(body, "messages") for b in as_blocks(m.get("content")) if _rich(b)]
    cited = any(inner(block, "citations").get("enabled") for block in rich if _is_doc(block))
    system = [*model, body.get("speed") or "standard", search, cited]
    choice = body.get("tool_choice") or {"type": "auto"}
    pictured = any(_pictured(block) for block in rich)
    messages = [*system, choice, pictured, thought]
    rows = {"tools": model, "system": system, "messages": messages}
    return {tier: msgspec.json.encode(row) for tier, row in rows.items()}


def _thought(body: Json, profile: Profile) -> list[object]:
    thinking = inner(body, "thinking")
    effort = inner(body, "output_config").get("effort") or profile.effort
    kind = thinking.get("type") or profile.thinking_default
    return [kind, thinking.get("budget_tokens"), effort]


def _rich(block: Json) -> bool:
    """Whether an image or a document may be in it."""
    kind = block.get("type")
    return kind in ("image", "document") or (
        kind == "tool_result" and not isinstance(block.get("content"), str)
    )


def _is_doc(block: Json) -> bool:
    return block.get("type") == "document"


def _pictured(block: Json) -> bool:
    if block.get("type") == "image":
        return True
    return block.get("type") == "tool_result" and any(map(_pictured, listed(block, "content")))


def place_markers(row: list[Position], body: Json) -> list[Position]:
    """The positions with the automatic marker set; refuses what the API refuses of markers."""
    automatic = body.get("cache_control")
    if automatic:
        row = _automatic(row, str(automatic.get("ttl") or "5m"))
    marked = [position for position in row if position.ttl]
    if len(marked) > MARKERS:
        raise Refusal(
            f"A maximum of {MARKERS} blocks with cache_control may be provided. "
            f"Found {len(marked)}."
        )
    for position in marked:
        _check(position)
    _check_order(marked)
    return row


def _automatic(row: list[Position], ttl: str) -> list[Position]:
    last = max((i for i, position in enumerate(row) if position.markable), default=-1)
    if last < 0:
        return row
    if row[last].ttl and row[last].ttl != ttl:
        raise Refusal(
            f"cache_control: the last block already has a marker with ttl {row[last].ttl!r}, "
            f"which differs from the automatic {ttl!r}"
        )
    return [*row[:last], msgspec.structs.replace(row[last], ttl=ttl), *row[last + 1 :]]


def _check(position: Position) -> None:
    if position.ttl not in LIVES:
        raise Refusal(f"{position.path}.cache_control.ttl: Input should be '5m' or '1h'")
    if not position.markable:
        what = "empty text blocks" if position.kind == "text" else f"{position.kind} blocks"
        raise Refusal(f"{position.path}: cache_control cannot be set for {what}")


def _check_order(marked: list[Position]) -> None:
    short = False
    for position in marked:
        if short and position.ttl == "1h":
            raise Refusal(
                f"{position.path}.cache_control.ttl: a ttl='1h' cache_control block must not come "
                "after a ttl='5m' cache_control block. Note that blocks are processed in the "
                "following order: `tools`, `system`, `messages`."
            )
        short = short or position.ttl == "5m"
