"""A strict judge of Anthropic requests: what the API would refuse, in its words.

It reads the bytes afresh and shares nothing with the code that wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from travois_lab.validate_blocks import (
    NAME,
    TEXT,
    Json,
    block_faults,
    is_like,
    item,
    items,
    names,
    text_faults,
    unknown,
)

MARKERS = 4
FIELDS = names(
    "model max_tokens messages system tools tool_choice thinking output_config cache_control "
    "context_management compaction thread diagnostics fallbacks fallback_credit_token mcp_servers "
    "container stop_sequences metadata service_tier speed inference_geo stream user_profile_id"
)
TOOL = names(
    "name description input_schema strict eager_input_streaming defer_loading allowed_callers "
    "input_examples cache_control type"
)
SERVER_SIDE = re.compile(r"server_tool_use|mcp_tool_use|\w+_tool_result")


def anthropic_faults(body: bytes) -> list[str]:
    """Everything that is wrong with this request; the first is what the API would say."""
    try:
        request = msgspec.json.decode(body, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [f"The request body is not valid JSON: {error}"]
    return [
        *_top(request),
        *_tools(items(request.get("tools"))),
        *_system(request.get("system")),
        *_messages(items(request.get("messages"))),
        *_markers(request),
    ]


def _top(request: Json) -> Iterator[str]:
    yield from (
        f"{name}: Field required" for name in ("model", "max_tokens") if name not in request
    )
    yield from unknown("", request, FIELDS)
    limit = request.get("max_tokens", 1)
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens: Input should be greater than or equal to 0"
    if limit == 0 and request.get("stream"):
        yield "max_tokens: 0 cannot be combined with streaming"
    if not items(request.get("messages")):
        yield "messages: at least one message is required"


def _tools(tools: list[Json]) -> Iterator[str]:
    called = [str(tool.get("name")) for tool in tools]
    if len(set(called)) < len(called):
        yield "tools: Tool names must be unique."
    if tools and all(tool.get("defer_loading") for tool in tools):
        yield "At least one tool must have defer_loading=false."
    for index, tool in enumerate(tools):
        if tool.get("type", "custom") == "custom":
            yield from _tool(f"tools.{index}", tool)


def _tool(where: str, tool: Json) -> Iterator[str]:
    yield from unknown(where, tool, TOOL)
    if not is_like(tool.get("name"), NAME):
        yield f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
    if "input_schema" not in tool:
        yield f"{where}.input_schema: Field required"
    elif item(tool["input_schema"]).get("type") != "object":
        yield f"{where}.input_schema.type: Input should be 'object'"
    if tool.get("defer_loading") and "cache_control" in tool:
        yield f"{where}.cache_control: cannot be set on a tool with defer_loading"


def _system(system: object) -> Iterator[str]:
    if isinstance(system, str):
        return
    for index, block in enumerate(items(system)):
        where = f"system.{index}"
        if block.get("type") != "text":
            yield f"{where}.type: Input should be 'text'"
        yield from unknown(where, block, TEXT)
        yield from text_faults(where, block, within="system")


def _messages(messages: list[Json]) -> Iterator[str]:
    for index, message in enumerate(messages):
        yield from _message(f"messages.{index}", message)
    merged = _merged(messages)
    yield from _ends(merged)
    yield from _sections(merged)
    yield from _pairs(merged)


def _message(where: str, message: Json) -> Iterator[str]:
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        yield f"{where}.role: Input should be 'user', 'assistant' or 'system'"
        return
    system = ("clear_at", "output_config") if role == "system" else ()
    yield from unknown(where, message, frozenset(("role", "content", *system)))
    blocks = _blocks(message)
    if not blocks and "output_config" not in message:
        yield f"{where}: {role} messages must have non-empty content"
    for index, block in enumerate(blocks):
        yield from block_faults(f"{where}.content.{index}", block, role=str(role))


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else items(content)


def _merged(messages: list[Json]) -> list[tuple[str, list[Json]]]:
    """Neighbours of one role are one message to the API."""
    merged: list[tuple[str, list[Json]]] = []
    for message in messages:
        role = str(message.get("role"))
        if not merged or merged[-1][0] != role:
            merged.append((role, []))
        merged[-1][1].extend(_blocks(message))
    return merged


def _ends(merged: list[tuple[str, list[Json]]]) -> Iterator[str]:
    if not merged:
        return
    role, blocks = merged[0]
    if role != "user" and not (blocks and blocks[0].get("type") == "compaction"):
        yield 'messages: first message must use the "user" role'
    role, blocks = merged[-1]
    paused = any(SERVER_SIDE.fullmatch(str(block.get("type"))) for block in blocks)
    if role == "assistant" and not paused:
        yield (
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
    for index, (role, blocks) in enumerate(merged):
        if role == "assistant" and blocks and "thinking" in str(blocks[-1].get("type")):
            yield f"messages.{index}: The final block in an assistant message cannot be `thinking`."


def _sections(merged: list[tuple[str, list[Json]]]) -> Iterator[str]:
    """A system message follows the user's and is last or before the assistant's."""
    for index, (role, _) in enumerate(merged):
        if role != "system":
            continue
        before = merged[index - 1][0] if index else ""
        after = merged[index + 1][0] if index + 1 < len(merged) else "assistant"
        if before != "user" or after != "assistant":
            yield f"messages.{index}: role 'system' must stand between user and assistant"


def _pairs(merged: list[tuple[str, list[Json]]]) -> Iterator[str]:
    """Each call has one result, in the next message, before anything else there."""
    seen: set[str] = set()
    asked: list[str] = []
    for index, (_, blocks) in enumerate(merged):
        where = f"messages.{index}"
        yield from _answers(where, blocks, asked)
        asked = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len(set(asked)) < len(asked) or seen & set(asked):
            yield f"{where}: `tool_use` ids must be unique"
        seen.update(asked)
    if asked:
        yield _unanswered(f"messages.{len(merged) - 1}", asked)


def _answers(where: str, blocks: list[Json], asked: list[str]) -> Iterator[str]:
    given = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
    first = [block.get("type") for block in blocks[: len(given)]]
    missing = [id for id in asked if id not in given]
    if missing or (given and set(first) != {"tool_result"}):
        yield _unanswered(where, missing or asked)
    for id in sorted(set(given)):
        if id not in asked:
            yield (
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )
        if given.count(id) > 1:
            yield (
                f"{where}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {id}"
            )


def _unanswered(where: str, ids: list[str]) -> str:
    return (
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` block in "
        "the next message."
    )


def _markers(request: Json) -> Iterator[str]:
    """At most four, in the order of the cached prefix, none short-lived before a long-lived."""
    blocks = [*items(request.get("tools")), *items(request.get("system"))]
    for message in items(request.get("messages")):
        blocks += _blocks(message)
    blocks.append({"cache_control": request.get("cache_control")})
    marks = [item(block["cache_control"]) for block in blocks if block.get("cache_control")]
    if len(marks) > MARKERS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
    for mark in marks:
        if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            yield "cache_control: Input should be {'type': 'ephemeral', 'ttl'?: '5m' | '1h'}"
    lives = [mark.get("ttl", "5m") for mark in marks]
    if lives != sorted(lives):
        yield (
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
        )
