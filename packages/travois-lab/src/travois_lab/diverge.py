"""Where a request stops being the continuation of the one before it, and what that throws away."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from travois_lab.exchange import Exchange
from travois_lab.objects import is_list, is_object

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
    row = new.row if new.kin.shared < len(new.row) else old.row
    where = row[new.kin.shared].path
    path, was, now = leaf(found(old.json, where), found(new.json, where), where)
    at = _first_difference(was, now)
    return Divergence(kind, path, at, _excerpt(was, at), _excerpt(now, at), lost, parent=old.n)


def found(body: Any, path: str) -> Any:
    """The value at a path such as `messages[3].content[0]`; a text is its own first block."""
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        if name:
            body = body.get(name) if is_object(body) else None
        elif isinstance(body, str):
            body = {"type": "text", "text": body}
        else:
            body = body[int(index)] if is_list(body) and int(index) < len(body) else None
    return body


def leaf(old: Any, new: Any, path: str) -> tuple[str, bytes, bytes]:
    """The innermost value that differs: its path, and what it was and is."""
    if is_object(old) and is_object(new):
        for key in [*old, *(key for key in new if key not in old)]:
            if key != "cache_control" and old.get(key) != new.get(key):
                return leaf(old.get(key), new.get(key), f"{path}.{key}")
    if is_list(old) and is_list(new):
        for i, (was, now) in enumerate(zip(old, new, strict=False)):
            if was != now:
                return leaf(was, now, f"{path}[{i}]")
    return path, _bytes(old), _bytes(new)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return b"" if value is None else msgspec.json.encode(value)


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
