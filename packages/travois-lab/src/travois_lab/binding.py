"""Thinking is bound to everything before it: how the bond is made, and how it is checked.

Each thinking block is signed with the name of the history before it (its record) and of the
thinking block before it. The record is a chain over the canonical form of every block, so that a
signed compaction can carry the chain over the history that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal

import msgspec

from travois_lab.objects import Json, inner, is_list, is_object, listed
from travois_lab.positions import as_blocks
from travois_lab.refusal import Refusal
from travois_lab.seal import seal, unseal

THINKING = ("thinking", "redacted_thinking")
Behaviour = Literal["error", "drop_block", "allow"]
MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)
BOUND = (
    "`thinking` block is bound to a different conversation: the system prompt, the tools or a "
    "message before it is not what it was when the block was created."
)


class Bond(msgspec.Struct, frozen=True):
    """What a signature says of its block."""

    model: str
    rank: int
    record: str
    before: str
    """The digest of the thinking block before it."""
    text: str
    """The digest of its text as sent; empty where none was sent."""
    organization: str = "org_lab"


class Chain:
    """The name of a history, block by block."""

    def __init__(self, body: Json, *, seed: int, loose: frozenset[str] = frozenset()) -> None:
        self.seed = seed
        self.loose = loose
        """Calls whose arguments were not JSON: what a client makes of them is its own affair."""
        self.tools = {str(tool.get("name")): _bare(tool) for tool in listed(body, "tools")}
        plain = {
            str(tool.get("name")): _bare(tool)
            for tool in listed(body, "tools")
            if not tool.get("defer_loading")
        }
        system = [str(block.get("text", "")).strip() for block in as_blocks(body.get("system"))]
        self.name = _digest([plain, system])
        self.role = ""
        self.before = ""

    def add(self, role: str, block: Json) -> None:
        """Take one more block into the name; thinking leaves no trace in it."""
        if block.get("type") == "compaction":
            self._compacted(block)
            return
        plain = self._canonical(block)
        if plain is None:
            return
        turn = role if role != self.role else ""
        self.role = role
        self.name = _digest([self.name, turn, plain])

    def _compacted(self, block: Json) -> None:
        sealed = unseal(block.get("signature"), seed=self.seed)
        if is_object(sealed) and "chain" in sealed:
            self.name, self.role = str(sealed["chain"]), str(sealed.get("role", ""))

    def _canonical(self, block: Json) -> Any:
        match block.get("type"):
            case "thinking" | "redacted_thinking":
                return None
            case "text":
                return str(block.get("text", "")).strip() or None
            case "tool_use":
                loose = block.get("id") in self.loose
                args = None if loose else _plain(block.get("input"))
                return ["tool_use", block.get("id"), block.get("name"), args]
            case "tool_result":
                inside = [self._canonical(part) for part in as_blocks(block.get("content"))]
                kept = [part for part in inside if part is not None]
                return ["tool_result", block.get("tool_use_id"), kept, bool(block.get("is_error"))]
            case "tool_reference":
                name = str(block.get("tool_name") or block.get("name"))
                return ["tool_reference", name, self.tools.get(name)]
            case "tool_addition":
                name = str(inner(block, "tool").get("name"))
                return [_plain(_bare(block)), self.tools.get(name)]
            case _:
                return _plain(_bare(block))


def _bare(block: Json) -> Json:
    return {k: v for k, v in block.items() if k != "cache_control" and v is not None}


def _plain(value: Any) -> Any:
    """Numbers that are whole are integers."""
    if is_object(value):
        return {k: _plain(v) for k, v in value.items()}
    if is_list(value):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _digest(value: object) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def _name(block: Json) -> str:
    """What a thinking block is called by the one after it."""
    return _digest(block.get("signature") or block.get("data"))


class Bound(msgspec.Struct, frozen=True):
    """What the check left of a request."""

    body: Json
    chain: Chain
    transformed: tuple[Json, ...] = ()


def sign(chain: Chain, block: Json, *, model: str, rank: int, organization: str) -> Json:
    """A thinking block of a reply, bound to the history before it."""
    text = str(block.get("thinking", ""))
    shown = _digest(text) if text else ""
    bond = Bond(model, rank, chain.name, chain.before, shown, organization)
    signature = seal(msgspec.to_builtins(bond), seed=chain.seed)
    if block.get("type") == "redacted_thinking":
        signed = {"type": "redacted_thinking", "data": signature}
    else:
        signed = {"type": "thinking", "thinking": text, "signature": signature}
    chain.before = _name(signed)
    return signed


class Reader(msgspec.Struct, frozen=True):
    """Who reads the thinking of a request, and how strictly."""

    rank: int
    behaviour: Behaviour
    organization: str


def bind(body: Json, chain: Chain, reader: Reader) -> Bound:
    """Check all thinking of a request; drop what may not be read, refuse what was tampered with."""
    messages: list[Json] = listed(body, "messages")
    latest = max((i for i, m in enumerate(messages) if m.get("role") == "assistant"), default=-1)
    dropped: dict[tuple[int, int], Json] = {}
    allowed: list[Json] = []
    for i, j, role, block in _walk(messages):
        if block.get("type") not in THINKING:
            chain.add(role, block)
            continue
        path = f"messages.{i}.content.{j}"
        bond = _bond(block, path, chain.seed)
        if i == latest and bond.text and bond.text != _digest(block.get("thinking")):
            raise Refusal(f"{path}: {MODIFIED}")
        reason = _mismatch(bond, chain, reader)
        if reason == "prefix_binding_mismatch" and reader.behaviour == "error":
            raise Refusal(f"{path}: {BOUND}")
        if reason and (reason != "prefix_binding_mismatch" or reader.behaviour == "drop_block"):
            dropped[i, j] = {"type": "thinking_dropped", "path": path, "reason": reason}
            continue
        if reason:
            allowed.append({"type": "thinking_mismatch_allowed", "path": path, "reason": reason})
        chain.before = _name(block)
    kept = _without(messages, set(dropped)) if dropped else messages
    transformed = (*dropped.values(), *allowed)
    return Bound({**body, "messages": kept}, chain, transformed)


def _walk(messages: list[Json]) -> Iterator[tuple[int, int, str, Json]]:
    for i, message in enumerate(messages):
        role = str(message.get("role"))
        for j, block in enumerate(as_blocks(message.get("content"))):
            yield i, j, role, block


def _bond(block: Json, path: str, seed: int) -> Bond:
    sealed = unseal(block.get("signature") or block.get("data"), seed=seed)
    try:
        return msgspec.convert(sealed, Bond)
    except msgspec.ValidationError:
        raise Refusal(f"{path}: Invalid `signature` in `thinking` block") from None


def _mismatch(bond: Bond, chain: Chain, reader: Reader) -> str:
    if bond.organization != reader.organization:
        return "organization_binding_mismatch"
    if bond.rank > reader.rank:
        return "model_binding_mismatch"
    follows = not chain.before or bond.before == chain.before
    return "" if follows and bond.record == chain.name else "prefix_binding_mismatch"


def _without(messages: list[Json], gone: set[tuple[int, int]]) -> list[Json]:
    kept: list[Json] = []
    for i, message in enumerate(messages):
        blocks = as_blocks(message.get("content"))
        left = [block for j, block in enumerate(blocks) if (i, j) not in gone]
        if left or not blocks:
            kept.append({**message, "content": left})
    return kept
