"""A strict judge of single content blocks of Anthropic requests."""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from collections.abc import Iterator
from typing import Any, cast

Json = dict[str, Any]


def names(words: str) -> frozenset[str]:
    """Names written as one text."""
    return frozenset(words.split())


def item(value: object) -> Json:
    """An object; anything else is judged as an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Json]:
    """The objects of a list."""
    every = cast("list[object]", value) if isinstance(value, list) else []
    return [item(one) for one in every]


NAME = r"[A-Za-z0-9_-]{1,64}"
TEXT = names("type text citations cache_control")
FIELDS = {
    "text": TEXT,
    "image": names("type source transformations cache_control"),
    "document": names("type source title context citations cache_control"),
    "tool_use": names("type id name input caller toolset_name cache_control"),
    "tool_result": names("type tool_use_id content is_error toolset_name cache_control"),
    "thinking": names("type thinking signature"),
    "redacted_thinking": names("type data"),
}
"""The members of the blocks that a client writes; those of others are the server's own affair."""

BOTH = names("text compaction container_upload mcp_tool_listing")
USER = BOTH | {"image", "document", "search_result", "tool_result"}
ASSISTANT = BOTH | names(
    "thinking redacted_thinking tool_use server_tool_use web_search_tool_result "
    "web_fetch_tool_result advisor_tool_result code_execution_tool_result "
    "bash_code_execution_tool_result text_editor_code_execution_tool_result "
    "tool_search_tool_result mcp_tool_use mcp_tool_result fallback connector_text"
)
SYSTEM = names("text tool_addition tool_removal")
ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
INSIDE = names("text image document search_result tool_reference browser_state")
IMAGES = names("image/png image/jpeg image/gif image/webp")


def is_like(value: object, pattern: str) -> bool:
    """Whether this is a string, and such a one."""
    return isinstance(value, str) and bool(re.fullmatch(pattern, value))


def unknown(where: str, found: Json, known: frozenset[str]) -> Iterator[str]:
    """A complaint for each member that the API does not know."""
    dot = f"{where}." if where else ""
    extra = (name for name in found if name not in known)
    return (f"{dot}{name}: Extra inputs are not permitted" for name in extra)


def block_faults(where: str, block: Json, *, role: str) -> Iterator[str]:
    """What is wrong with one block of a message of this role."""
    kind = str(block.get("type"))
    if kind not in ROLES[role]:
        yield f"{where}: Input tag '{kind}' is not expected in a message of role '{role}'"
        return
    yield from unknown(f"{where}.{kind}", block, FIELDS.get(kind, frozenset(block)))
    match kind:
        case "text":
            yield from text_faults(where, block, within=role)
        case "tool_use":
            yield from _call(where, block)
        case "tool_result":
            yield from _result(where, block)
        case "image" | "document":
            yield from _source(f"{where}.{kind}.source", item(block.get("source")))
        case "thinking":
            yield from _strings(where, block, ("thinking", "signature"))
        case _:
            pass


def text_faults(where: str, block: Json, *, within: str) -> Iterator[str]:
    """What is wrong with a block of text."""
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{where}.text: Input should be a valid string"
    elif not text:
        yield f"{where}: text content blocks must be non-empty"
    elif not text.strip():
        yield f"{where}: text content blocks must contain non-whitespace text"
    if within == "user" and block.get("citations"):
        yield f"{where}.citations: not permitted in a user message"


def _call(where: str, block: Json) -> Iterator[str]:
    if not is_like(block.get("id"), r"[A-Za-z0-9_-]+"):
        yield f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not is_like(block.get("name"), NAME):
        yield f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{where}.tool_use.input: Input should be a valid dictionary"


def _result(where: str, block: Json) -> Iterator[str]:
    yield from _strings(where, block, ("tool_use_id",))
    if not isinstance(block.get("content", ""), str | list):
        yield f"{where}.tool_result.content: Input should be a string or a list"
    if not isinstance(block.get("is_error", False), bool):
        yield f"{where}.tool_result.is_error: Input should be a valid boolean"
    for index, inner in enumerate(items(block.get("content"))):
        yield from _inside(f"{where}.content.{index}", inner)
        if block.get("is_error") and inner.get("type") != "text":
            yield f"{where}.tool_result: all content must be type `text` if `is_error` is true"


def _inside(where: str, block: Json) -> Iterator[str]:
    kind = str(block.get("type"))
    if kind not in INSIDE:
        yield f"{where}: Input tag '{kind}' is not expected inside a tool_result"
    elif kind in ("text", "image", "document"):
        yield from block_faults(where, block, role="user")
    if "cache_control" in block:
        yield f"{where}.cache_control: Extra inputs are not permitted"


def _source(where: str, source: Json) -> Iterator[str]:
    kind = source.get("type")
    if kind not in ("base64", "url", "file", "text", "content"):
        yield f"{where}.type: Input should be 'base64', 'url' or 'file'"
    if kind == "base64":
        if ".image." in where and source.get("media_type") not in IMAGES:
            yield f"{where}.base64.media_type: Input should be one of {sorted(IMAGES)}"
        yield from _base64(where, source.get("data"))


def _base64(where: str, data: object) -> Iterator[str]:
    try:
        empty = not a2b_base64(str(data), strict_mode=True)
    except (Error, ValueError):
        empty = True
    if empty:
        yield f"{where}.base64: invalid base64 data"


def _strings(where: str, block: Json, names: tuple[str, ...]) -> Iterator[str]:
    kind = block.get("type")
    for name in names:
        if not isinstance(block.get(name), str):
            yield f"{where}.{kind}.{name}: Field required"
