"""Where a request stops being the continuation of the one before it, and what that throws away."""

from __future__ import annotations

from typing import Literal

import msgspec

from travois.lab.exchange import Exchange

Kind = Literal[
    "first",  # nothing came before it
    "appended",  # it begins with the whole of its predecessor
    "branched",  # it leaves its predecessor, and sends nothing again that stood after that point
    "edited",  # something changed, and what stood after the change was sent again
    "shrunk",  # as edited, but with less history: a compaction, most likely
]


class Divergence(msgspec.Struct, frozen=True):
    """How a request departs from its predecessor."""

    kind: Kind
    path: str = ""
    byte: int = 0
    before: str = ""
    after: str = ""
    lost: int = 0
    """Tokens after the change that were sent before and are sent again."""
    parent: int = 0

    def __str__(self) -> str:
        if not self.path:
            return self.kind
        said = f"{self.path} changed at byte {self.byte} (request {self.parent} said otherwise)"
        again = f"; {self.lost} tokens after it were sent again" if self.lost else ""
        return f"{said}: {self.before!r} became {self.after!r}{again}"


def explain(old: Exchange, new: Exchange) -> Divergence:
    """What changed between a request and its predecessor."""
    shared = new.kin.shared
    if shared >= len(old.row):
        return Divergence("appended", parent=old.n)
    known = set(old.kin.digests[shared:])
    pairs = zip(new.row[shared:], new.kin.digests[shared:], strict=True)
    again = [position for position, digest in pairs if digest in known]
    if not any(position.tier == "messages" for position in again):
        return _at(old, new, "branched", 0)
    kind: Kind = "shrunk" if len(new.row) < len(old.row) else "edited"
    return _at(old, new, kind, sum(position.tokens for position in again))


def _at(old: Exchange, new: Exchange, kind: Kind, lost: int) -> Divergence:
    shared = new.kin.shared
    before = old.row[shared].data
    after = new.row[shared].data if shared < len(new.row) else b""
    where = _path(old, new)
    before, after = _bare(before), _bare(after)
    at = _first_difference(before, after)
    return Divergence(
        kind, where, at, _excerpt(before, at), _excerpt(after, at), lost, parent=old.n
    )


def _bare(data: bytes) -> bytes:
    """What was said, without the role and kind that stand before it."""
    return data.partition(b"\0")[2].removeprefix(b"text\0")


def _path(old: Exchange, new: Exchange) -> str:
    row = new.row if new.kin.shared < len(new.row) else old.row
    return row[new.kin.shared].path


def _first_difference(before: bytes, after: bytes) -> int:
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _excerpt(data: bytes, at: int) -> str:
    return data[max(0, at - 12) : at + 28].decode(errors="replace")
