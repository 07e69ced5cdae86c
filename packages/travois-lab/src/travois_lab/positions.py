"""A request in the order in which a provider reads it: the positions of its prompt cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from travois_lab.objects import Json, is_list, is_object, listed
from travois_lab.tokens import block_tokens, byte_tokens, tool_tokens

Tier = Literal["tools", "system", "messages"]
UNMARKABLE = ("thinking", "redacted_thinking")


class Position(msgspec.Struct, frozen=True, gc=False):
    """One cacheable unit: where it stands, what it is, and whether a marker is on it."""

    tier: Tier
    path: str
    kind: str
    digest: bytes
    """The name of its content, the role with it, any marker left out."""
    tokens: int
    ttl: str = ""
    markable: bool = True


def locate(tier: Tier, path: str, kind: str, data: bytes, tokens: int) -> Position:
    """A position by its bytes as the provider renders them."""
    return Position(tier, path, kind, blake2b(data, digest_size=16).digest(), tokens)


def as_blocks(content: Any) -> list[Json]:
    """Content as blocks: a text is one text block."""
    if is_list(content):
        return content
    return [{"type": "text", "text": content}] if content and isinstance(content, str) else []


class Survey(msgspec.Struct, frozen=True):
    """What there is in a request, so that each rule looks only where it has something to find."""

    kinds: frozenset[str]
    roles: frozenset[str]
    images: int


def survey(body: Json) -> Survey:
    """The kinds of blocks in the messages of a request, their roles, and how many images."""
    kinds: list[str] = []
    roles: set[str] = set()
    for message in listed(body, "messages"):
        roles.add(str(message.get("role")))
        kinds += [str(block.get("type")) for block in as_blocks(message.get("content"))]
    return Survey(frozenset(kinds), frozenset(roles), kinds.count("image"))


Lay = Callable[[int, Json], Iterable["Position"]]
"""How one message is laid out: the positions of its blocks."""


def positions(body: Json, lay: Lay | None = None) -> list[Position]:
    """All positions of an Anthropic request, in cache order."""
    return [*_tools(body), *_system(body), *_messages(body, lay or message_positions)]


def _tools(body: Json) -> Iterator[Position]:
    for i, tool in enumerate(listed(body, "tools")):
        if tool.get("defer_loading"):
            continue
        data = b"tool\0" + _encoded(tool)
        made = locate("tools", f"tools[{i}]", "tool", data, tool_tokens(tool))
        yield made if "cache_control" not in tool else msgspec.structs.replace(made, ttl=ttl(tool))


def _system(body: Json) -> Iterator[Position]:
    for i, block in enumerate(as_blocks(body.get("system"))):
        yield _block("system", "system", f"system[{i}]", block)


def _messages(body: Json, lay: Lay) -> Iterator[Position]:
    messages: list[Json] = listed(body, "messages")
    last_user = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    for i, message in enumerate(messages):
        if not message.get("clear_at") or i >= last_user:
            yield from lay(i, message)


def message_positions(i: int, message: Json) -> Iterator[Position]:
    """The blocks of the message at some index."""
    role = str(message.get("role", ""))
    for j, block in enumerate(as_blocks(message.get("content"))):
        yield _block("messages", role, f"messages[{i}].content[{j}]", block)


def _block(tier: Tier, role: str, path: str, block: Json) -> Position:
    kind = str(block.get("type", ""))
    said, count = _rendered(kind, block)
    digest = blake2b(role.encode() + b"\0" + said, digest_size=16).digest()
    markable = kind not in UNMARKABLE and block.get("text") != ""
    return Position(tier, path, kind, digest, count, ttl(block), markable)


def _rendered(kind: str, block: Json) -> tuple[bytes, int]:
    """A block's bytes and its tokens; the two most common kinds are spared an encoding."""
    if kind == "text" and not block.get("citations"):
        text = str(block.get("text", "")).encode(errors="surrogatepass")
        return b"text\0" + text, byte_tokens(text)
    content = _only_text(block) if kind == "tool_result" else None
    if content is not None:
        text = content.encode(errors="surrogatepass")
        head = f"tool_result\0{block.get('tool_use_id')}\0{bool(block.get('is_error'))}\0"
        return head.encode() + text, byte_tokens(text)
    return _encoded(block), block_tokens(block)


def _only_text(block: Json) -> str | None:
    """The content of a result that is one text, however it is written."""
    content = block.get("content")
    if is_list(content) and len(content) == 1 and content[0].keys() == {"type", "text"}:
        content = content[0]["text"]
    return content if isinstance(content, str) and "toolset_name" not in block else None


def _encoded(block: Json) -> bytes:
    """A block's own keys have no order; what is inside them keeps the order it was sent in."""
    return msgspec.json.encode({k: block[k] for k in sorted(block) if k != "cache_control"})


def ttl(block: Json) -> str:
    """The life that a marker on this block asks for; empty without a marker."""
    control = block.get("cache_control")
    return str(control.get("ttl") or "5m") if is_object(control) else ""
