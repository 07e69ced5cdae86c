"""Tokens that anyone can count in their head: four bytes each, or as many as `{{tok:n}}` says."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from travois_lab.objects import Json, is_list, is_object

DIRECTIVE = re.compile(rb"\{\{tok:(\d+)\}\}")
IMAGE = 1500


def tokens(text: str) -> int:
    """How many tokens a text is: directives count what they say, the rest four bytes a token."""
    return byte_tokens(text.encode(errors="surrogatepass"))


def byte_tokens(text: bytes) -> int:
    """How many tokens an encoded text is."""
    if b"{{tok:" not in text:
        return -(-len(text) // 4)
    said = sum(int(n) for n in DIRECTIVE.findall(text))
    return said - (-len(DIRECTIVE.sub(b"", text)) // 4)


def compact(value: object) -> str:
    """The shortest JSON text of a value."""
    return msgspec.json.encode(value).decode()


def tool_tokens(tool: Json) -> int:
    """A tool definition: its name and description, and its schema."""
    schema = tool.get("input_schema")
    if schema is None:
        known = ("cache_control", "defer_loading")
        schema = {k: v for k, v in tool.items() if k not in ("name", "description", *known)}
    named = str(tool.get("name") or "") + str(tool.get("description") or "")
    return tokens(named) + tokens(compact(schema))


def content_tokens(content: object) -> int:
    """The content of a message or result: a text, or blocks."""
    if isinstance(content, str):
        return tokens(content)
    blocks: list[Any] = content if is_list(content) else []
    return sum(block_tokens(block) for block in blocks if is_object(block))


def block_tokens(block: Json) -> int:
    """One content block."""
    match block.get("type"):
        case "text":
            return tokens(str(block.get("text") or ""))
        case "thinking":
            return tokens(str(block.get("thinking") or block.get("signature") or ""))
        case "redacted_thinking":
            return tokens(str(block.get("data") or ""))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            return tokens(str(block.get("name") or "")) + tokens(compact(block.get("input", {})))
        case "tool_result" | "compaction":
            return content_tokens(block.get("content"))
        case "image" | "document":
            return int(block.get("_tok", IMAGE))
        case _:
            return _other(block)


def _other(block: Json) -> int:
    tool = block.get("tool", {})
    if is_object(tool) and "definition" in tool:
        return tool_tokens(tool["definition"])
    return tokens(compact(block))
