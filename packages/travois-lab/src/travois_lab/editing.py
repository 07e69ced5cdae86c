"""Context editing on the server: what is taken out of a request before the model reads it."""

from __future__ import annotations

from typing import Any

import msgspec

from travois_lab.objects import Json, inner, is_object, listed, objects
from travois_lab.positions import as_blocks, positions
from travois_lab.profiles import Profile
from travois_lab.refusal import Refusal
from travois_lab.tokens import block_tokens, content_tokens

CLEARED = "[cleared]"
CLEAR_TOOLS = "clear_tool_uses_20250919"
CLEAR_THINKING = "clear_thinking_20251015"
COMPACT = "compact_20260112"
KEEP = 3
TRIGGER = 100_000
COMPACT_TRIGGER = 150_000
COMPACT_LEAST = 50_000


class Edited(msgspec.Struct, frozen=True):
    """A request after its edits, and what they did."""

    body: Json
    applied: tuple[Json, ...] = ()
    compact: Json | None = None
    """The compaction edit whose trigger was reached."""


def size(body: Json) -> int:
    """The tokens of a prompt."""
    return sum(position.tokens for position in positions(body))


def check_edits(body: Json) -> None:
    """Refuse edits that the API would refuse."""
    edits = objects(inner(body, "context_management"), "edits")
    for i, edit in enumerate(edits):
        where, kind = f"context_management.edits.{i}", edit.get("type")
        if kind not in (CLEAR_TOOLS, CLEAR_THINKING, COMPACT):
            raise Refusal(f"{where}: Input tag {kind!r} found using 'type' is not expected")
        if kind == CLEAR_THINKING and i > 0:
            raise Refusal(f"{where}: `{CLEAR_THINKING}` must be the first edit in the list")
        least = inner(edit, "trigger").get("value", COMPACT_TRIGGER)
        if kind == COMPACT and least < COMPACT_LEAST:
            raise Refusal(
                f"{where}.trigger.value: Input should be greater than or equal to {COMPACT_LEAST}"
            )


def edit(body: Json, profile: Profile) -> Edited:
    """Apply the edits of a request, from scratch as on every request."""
    body = after_compaction(body)
    if not profile.keeps_thinking:
        body = _strip_thinking(body)
    applied: list[Json] = []
    compact: Json | None = None
    for wanted in objects(inner(body, "context_management"), "edits"):
        match wanted.get("type"):
            case "clear_tool_uses_20250919":
                body, done = _clear_tools(body, wanted)
            case "clear_thinking_20251015":
                body, done = _clear_thinking(body, wanted)
            case _:
                done = None
                if size(body) > inner(wanted, "trigger").get("value", COMPACT_TRIGGER):
                    compact = wanted
        applied += [done] if done else []
    return Edited(body, tuple(applied), compact)


def after_compaction(body: Json) -> Json:
    """The request from its last compaction block on: the server ignores what stands before it."""
    messages: list[Json] = listed(body, "messages")
    for i in range(len(messages) - 1, -1, -1):
        blocks = as_blocks(messages[i].get("content"))
        for j in range(len(blocks) - 1, -1, -1):
            if blocks[j].get("type") == "compaction" and blocks[j].get("content") is not None:
                first = {**messages[i], "content": blocks[j:]}
                return {**body, "messages": [first, *messages[i + 1 :]]}
    return body


# --- tool uses ------------------------------------------------------------------------------------


def _clear_tools(body: Json, wanted: Json) -> tuple[Json, Json | None]:
    uses = [
        block
        for message in listed(body, "messages")
        for block in as_blocks(message.get("content"))
        if block.get("type") == "tool_use"
    ]
    if not _triggered(body, wanted, len(uses)):
        return body, None
    keep = int(inner(wanted, "keep").get("value", KEEP))
    excluded = listed(wanted, "exclude_tools")
    old = uses[: len(uses) - keep] if keep else uses
    gone = {str(use.get("id")): use for use in old if use.get("name") not in excluded}
    inputs = wanted.get("clear_tool_inputs")
    cleared = [_cleared(message, gone, inputs) for message in listed(body, "messages")]
    saved = sum(tokens for _, tokens in cleared)
    least = int(inner(wanted, "clear_at_least").get("value", 0))
    if not gone or saved < least:
        return body, None
    done = {"type": CLEAR_TOOLS, "cleared_tool_uses": len(gone), "cleared_input_tokens": saved}
    return {**body, "messages": [message for message, _ in cleared]}, done


def _triggered(body: Json, wanted: Json, uses: int) -> bool:
    trigger = inner(wanted, "trigger")
    value = int(trigger.get("value", TRIGGER))
    return (uses if trigger.get("type") == "tool_uses" else size(body)) > value


def _cleared(message: Json, gone: dict[str, Json], inputs: Any) -> tuple[Json, int]:
    """A message without the results of these calls, and the tokens that this saved."""
    saved, blocks = 0, list[Json]()
    for block in as_blocks(message.get("content")):
        changed: Json = block
        if block.get("type") == "tool_result" and block.get("tool_use_id") in gone:
            changed = {**block, "content": CLEARED}
        elif block.get("type") == "tool_use" and block.get("id") in gone and _wanted(block, inputs):
            changed = {**block, "input": {}}
        saved += block_tokens(block) - block_tokens(changed) if changed is not block else 0
        blocks.append(changed)
    return {**message, "content": blocks}, saved


def _wanted(block: Json, inputs: Any) -> bool:
    return inputs is True or (isinstance(inputs, list) and block.get("name") in inputs)


# --- thinking -------------------------------------------------------------------------------------


def _clear_thinking(body: Json, wanted: Json) -> tuple[Json, Json | None]:
    keep: Any = wanted.get("keep", {"type": "thinking_turns", "value": 1})
    if keep == "all" or (is_object(keep) and keep.get("type") == "all"):
        return body, None
    count = int(keep.get("value", 1)) if is_object(keep) else 1
    turns = [i for i, message in enumerate(listed(body, "messages")) if _thoughts(message)]
    gone = set(turns[:-count])
    if not gone:
        return body, None
    messages: list[Json] = listed(body, "messages")
    saved = sum(content_tokens(_thoughts(messages[i])) for i in gone)
    kept = [_thoughtless(m) if i in gone else m for i, m in enumerate(messages)]
    done = {"type": CLEAR_THINKING, "cleared_thinking_turns": len(gone)}
    return {**body, "messages": kept}, {**done, "cleared_input_tokens": saved}


def _is_thought(block: Json) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking")


def _thoughts(message: Json) -> list[Json]:
    return [block for block in as_blocks(message.get("content")) if _is_thought(block)]


def _thoughtless(message: Json) -> Json:
    blocks = as_blocks(message.get("content"))
    return {**message, "content": [block for block in blocks if not _is_thought(block)]}


def _strip_thinking(body: Json) -> Json:
    """Older models see only the thinking of the turn they are in."""
    messages: list[Json] = listed(body, "messages")
    spoken = [i for i, message in enumerate(messages) if _is_said(message)]
    last = spoken[-1] if spoken else -1
    kept = [_thoughtless(m) if i < last else m for i, m in enumerate(messages)]
    return {**body, "messages": kept}


def _is_said(message: Json) -> bool:
    """Whether a person speaks here, rather than a tool."""
    blocks = as_blocks(message.get("content"))
    return message.get("role") == "user" and not any(
        block.get("type") == "tool_result" for block in blocks
    )
