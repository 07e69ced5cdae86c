"""Compaction on demand: the provider summarises, signs it, and takes it back as history."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from travois_lab.binding import Chain
from travois_lab.objects import Json, inner, is_object, listed
from travois_lab.positions import as_blocks
from travois_lab.refusal import Refusal, coded
from travois_lab.seal import seal, unseal

REFERENCES = 100
"""How many tool references one compacted range may hold."""
INCOMPATIBLE = ("context_management", "stop_sequences", "thread")


def check_request(body: Json) -> None:
    """Refuse what cannot be compacted, or not together with what else is asked."""
    for field in INCOMPATIBLE:
        if body.get(field):
            raise Refusal(f"{field}: not supported together with `compaction`")
    if inner(body, "tool_choice").get("type") in ("any", "tool"):
        raise Refusal("tool_choice: a forced choice is not supported together with `compaction`")
    if "format" in inner(body, "output_config"):
        raise Refusal("output_config.format: not supported together with `compaction`")
    messages: list[Json] = listed(body, "messages")
    blocks = [block for message in messages for block in as_blocks(message.get("content"))]
    asked = {block.get("id") for block in blocks if block.get("type") == "tool_use"}
    answered = {block.get("tool_use_id") for block in blocks}
    if asked - answered:
        raise coded("messages: the last turn is not complete", "compaction_incomplete_turn")
    if all(block.get("type") == "compaction" for block in blocks):
        raise coded("messages: there is nothing to summarize", "compaction_nothing_to_summarize")
    references = sum(_references(block) for block in blocks)
    if references > REFERENCES:
        said = f"messages: {references} tool references > {REFERENCES}"
        raise coded(said, "compaction_too_many_tool_references")


def _references(block: Json) -> int:
    inside = as_blocks(block.get("content")) if block.get("type") == "tool_result" else [block]
    return sum(part.get("type") == "tool_reference" for part in inside)


def compacted(summary: str, body: Json, chain: Chain) -> Json:
    """The signed block that stands for the whole conversation so far."""
    changes = _tool_changes(body)
    sealed = {
        "chain": chain.name,
        "role": chain.role,
        "content": _digest(summary),
        "tool_changes": _digest(changes),
    }
    return {
        "type": "compaction",
        "content": summary,
        "encrypted_content": None,
        "signature": seal(sealed, seed=chain.seed),
        "tool_changes": changes,
    }


def _tool_changes(body: Json) -> list[Json]:
    blocks = [b for m in listed(body, "messages") for b in as_blocks(m.get("content"))]
    return [b for b in blocks if b.get("type") in ("tool_addition", "tool_removal")]


def _digest(value: object) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def check_blocks(body: Json, *, seed: int) -> None:
    """Refuse signed compaction blocks that are not where and what they were."""
    found = [
        (i, message, block)
        for i, message in enumerate(listed(body, "messages"))
        for block in as_blocks(message.get("content"))
        if block.get("type") == "compaction" and block.get("signature")
    ]
    if len(found) > 1:
        raise coded("messages: keep only the newest compaction block", "compaction_block_ambiguous")
    for i, message, block in found:
        alone = len(as_blocks(message.get("content"))) == 1
        if i != 0 or not alone or message.get("role") != "assistant":
            said = f"messages.{i}: a compaction block is the first message, an assistant's, alone"
            raise coded(said, "compaction_block_misplaced")
        _check_seal(block, unseal(block.get("signature"), seed=seed))


def _check_seal(block: Json, sealed: Any) -> None:
    where = "messages.0.content.0"
    if not is_object(sealed) or "chain" not in sealed:
        raise coded(f"{where}: invalid signature", "compaction_signature_invalid")
    if sealed["content"] != _digest(block.get("content")):
        raise coded(f"{where}: the summary was changed", "compaction_content_mismatch")
    if "tool_changes" in block and sealed["tool_changes"] != _digest(block["tool_changes"]):
        raise coded(f"{where}: tool_changes was changed", "compaction_tool_changes_mismatch")
