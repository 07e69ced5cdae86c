"""Where a reply is cut: at a stop sequence, or at the number of tokens it may have."""

from __future__ import annotations

import msgspec

from travois_lab.message import CALLS
from travois_lab.objects import Json, listed
from travois_lab.talk import Reply
from travois_lab.tokens import block_tokens, compact, tokens


def limited(reply: Reply, body: Json) -> tuple[Reply, str | None]:
    """The reply as far as the request lets it go, and the stop sequence that ended it.

    A reply whose script says how it stops is left as it is.
    """
    if reply.stop:
        return reply, None
    sequences = [str(sequence) for sequence in listed(body, "stop_sequences")]
    reply, hit = _stopped(reply, sequences)
    limit = body.get("max_tokens")
    return (_shortened(reply, limit), hit) if isinstance(limit, int) else (reply, hit)


def _stopped(reply: Reply, sequences: list[str]) -> tuple[Reply, str | None]:
    for i, block in enumerate(reply.blocks):
        text = str(block.get("text", ""))
        found = [(text.find(s), s) for s in sequences if s and s in text]
        if found:
            at, sequence = min(found)
            kept = (*reply.blocks[:i], *_text(block, text[:at]))
            replaced = msgspec.structs.replace(reply, blocks=kept, stop="stop_sequence")
            return replaced, sequence
    return reply, None


def _text(block: Json, words: str) -> tuple[Json, ...]:
    return ({**block, "text": words},) if words else ()


def said_tokens(block: Json) -> int:
    """The tokens of a block as the model said it: a call's arguments count as their text."""
    if block.get("type") in CALLS:
        args = str(block.get("args", compact(block.get("input", {}))))
        return tokens(str(block.get("name", ""))) + tokens(args)
    return block_tokens(block)


def _shortened(reply: Reply, left: int) -> Reply:
    kept: list[Json] = []
    for block in reply.blocks:
        size = said_tokens(block)
        if size > left:
            kept += _cut(block, left)
            return msgspec.structs.replace(reply, blocks=tuple(kept), stop="max_tokens")
        left -= size
        kept.append(block)
    return reply


def _cut(block: Json, left: int) -> list[Json]:
    """The beginning of a block that fits; nothing where nothing does."""
    match block.get("type"):
        case "text" | "thinking" as kind:
            words = _clip(str(block.get(kind, "")), left)
            return [{**block, kind: words}] if words else []
        case "tool_use":
            args = str(block.get("args", compact(block.get("input", {}))))
            rest = max(0, left - tokens(str(block.get("name", ""))))
            return [{**block, "args": _clip(args, rest)}] if rest else []
        case _:
            return []


def _clip(words: str, count: int) -> str:
    return words.encode(errors="surrogatepass")[: count * 4].decode(errors="ignore")
