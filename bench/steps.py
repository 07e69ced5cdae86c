"""A recorded session as steps: what was said, what the model replied, and what its calls brought."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.billing import tokens
from travois.core.content import AnyBlock, Call, Opaque, Text, extract_calls, extract_text
from travois.core.facts import MessageOrigin, User
from travois.ports.tool import ToolOutcome

ORIGINS: dict[str, MessageOrigin] = {"human": "human", "task": "task"}
BEGINS = "(The recorded session begins here.)"


class Step(msgspec.Struct):
    """One recorded reply: what was said before it, and what its calls brought."""

    index: int
    """Which recorded message it is."""
    time: float
    said: tuple[User, ...]
    content: tuple[AnyBlock, ...]
    results: dict[str, ToolOutcome] = {}

    @property
    def sizes(self) -> list[int]:
        """The tokens of the reply's blocks and of what its calls brought."""
        given = [extract_text(outcome.content) for outcome in self.results.values()]
        return [tokens(text) for text in (*map(shown, self.content), *given)]


def script(messages: Sequence[dict[str, Any]], *, thinking: bool = False) -> list[Step]:
    """The recorded messages as steps, without thinking unless it is asked for."""
    steps: list[Step] = []
    waiting: list[User] = []
    thought: tuple[AnyBlock, ...] = ()
    used: dict[str, int] = {}
    for index, message in enumerate(messages):
        rename(message["content"], used)
        if message["role"] == "assistant":
            content = (*thought, *_blocks(message["content"], thinking=thinking))
            spoken = any(not isinstance(block, Opaque) for block in content)
            thought = () if spoken else content  # it belongs to the reply that follows
            if steps and spoken and not waiting and not extract_calls(steps[-1].content):
                steps[-1].content += content
            elif spoken:
                said = tuple(waiting) or (() if steps else (User((Text(BEGINS),), origin="note"),))
                steps.append(Step(index, message["t"], said, content))
                waiting = []
            continue
        for block in message["content"]:
            if block["type"] == "tool_result":
                text = (Text(str(block["content"])),)
                outcome = ToolOutcome(text, error=bool(block.get("is_error")))
                steps[-1].results[block["tool_use_id"]] = outcome
            elif block["type"] == "text" and block["text"].strip():
                origin = ORIGINS.get(message["origin"], "note")
                waiting.append(User((Text(block["text"]),), origin=origin))
    return steps


def rename(blocks: list[dict[str, Any]], used: dict[str, int]) -> None:
    """Some recorded agents used an id again for a later call; ours would have renamed it."""
    for block in blocks:
        if block["type"] == "tool_use":
            used[block["id"]] = used.get(block["id"], -1) + 1
        for key in ("id", "tool_use_id"):
            if used.get(block.get(key, ""), 0):
                block[key] += f"_{used[block[key]]}"


def _blocks(blocks: list[dict[str, Any]], *, thinking: bool) -> list[AnyBlock]:
    found: list[AnyBlock] = []
    for block in blocks:
        if block["type"] == "thinking" and thinking and block["thinking"].strip():
            found.append(_thought(block["thinking"]))
        elif block["type"] == "text" and block["text"].strip():
            found.append(Text(block["text"]))
        elif block["type"] == "tool_use":
            args = block["input"] if isinstance(block["input"], dict) else {"input": block["input"]}
            found.append(Call(block["id"], block["name"], json.dumps(args, ensure_ascii=False)))
    return found


def _thought(text: str) -> Opaque:
    raw = {"type": "thinking", "thinking": text, "signature": "recorded"}
    return Opaque("anthropic", "thinking", json.dumps(raw, ensure_ascii=False), text)


def shown(block: AnyBlock) -> str:
    """What a block of a reply shows of itself."""
    if isinstance(block, Opaque):
        return block.text
    return f"{block.name} {block.args}" if isinstance(block, Call) else extract_text((block,))
