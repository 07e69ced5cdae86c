"""The betas that the Messages API knows, and what each of them unlocks."""

from __future__ import annotations

from collections.abc import Iterator

from travois_lab.objects import Json, inner, is_list, listed, objects
from travois_lab.positions import as_blocks
from travois_lab.refusal import Refusal

BINDING = "thinking-binding-controls-2026-08-01"
COMPACT_AUTO = "compact-2026-01-12"
COMPACT_NOW = "compact-2026-09-04"
CONTEXT = "context-management-2025-06-27"
CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
MESSAGE_EFFORT = "mid-conversation-output-config-2026-07-01"
TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"
INLINE_TOOLS = "inline-tools-2026-09-15"
THREADS = "message-threads-2026-08-12"
UPDATES = "thinking-display-updates-2026-08-18"
BUDGET = "task-budgets-2026-03-13"

KNOWN = frozenset(
    (
        "message-batches-2024-09-24",
        "prompt-caching-2024-07-31",
        "computer-use-2024-10-22",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "pdfs-2024-09-25",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
        "output-128k-2025-02-19",
        "files-api-2025-04-14",
        "mcp-client-2025-04-04",
        "mcp-client-2025-11-20",
        "mcp-client-2026-09-15",
        "dev-full-thinking-2025-05-14",
        "interleaved-thinking-2025-05-14",
        "code-execution-2025-05-22",
        "extended-cache-ttl-2025-04-11",
        "context-1m-2025-08-07",
        CONTEXT,
        "model-context-window-exceeded-2025-08-26",
        "skills-2025-10-02",
        "fast-mode-2026-02-01",
        "output-300k-2026-03-24",
        "advisor-tool-2026-03-01",
        "managed-agents-2026-04-01",
        "cache-diagnosis-2026-04-07",
        "dreaming-2026-04-21",
        "thinking-token-count-2026-05-13",
        "server-side-fallback-2026-06-01",
        "server-side-fallback-2026-07-01",
        "fallback-credit-2026-06-01",
        "fallback-credit-2026-07-01",
        "agent-memory-2026-07-22",
        TOOL_CHANGES,
        COMPACT_AUTO,
        "mcp-tunnels-2026-06-22",
        "structured-outputs-2025-11-13",
        BUDGET,
        UPDATES,
        MESSAGE_EFFORT,
        BINDING,
        CLEAR_AT,
        COMPACT_NOW,
        INLINE_TOOLS,
        THREADS,
    )
)
FIRST_PARTY = frozenset(
    (
        "claude-code-20250219",
        "effort-2025-11-24",
        "oauth-2025-04-20",
        "fine-grained-tool-streaming-2025-05-14",
        "prompt-caching-scope-2026-01-05",
        "prompt-caching-evict-2026-05-12",
        "cache-keepalive-2026-09-03",
        "context-hint-2026-04-09",
        "thinking-resumption-2026-07-17",
        "redact-thinking-2026-02-12",
    )
)
"""Betas that the vendor's own programs send: known to the API, meant for nobody else."""
FIELDS = {
    "context_management": (CONTEXT, COMPACT_AUTO),
    "compaction": (COMPACT_NOW,),
    "thread": (THREADS,),
    "fallbacks": ("server-side-fallback-2026-06-01", "server-side-fallback-2026-07-01"),
    "fallback_credit_token": ("fallback-credit-2026-06-01", "fallback-credit-2026-07-01"),
    "mcp_servers": ("mcp-client-2025-04-04", "mcp-client-2025-11-20", "mcp-client-2026-09-15"),
}
EDITS = {
    "clear_tool_uses_20250919": (CONTEXT,),
    "clear_thinking_20251015": (CONTEXT,),
    "compact_20260112": (COMPACT_AUTO,),
}


def read_betas(header: str, *, strict: bool) -> tuple[str, ...]:
    """The betas of a request; a strict lab refuses those that the API does not know."""
    sent = tuple(beta.strip() for beta in header.split(",") if beta.strip())
    unknown = [beta for beta in sent if not _is_known(beta)]
    if unknown and strict:
        names = ", ".join(f"`{beta}`" for beta in unknown)
        raise Refusal(
            f"Unexpected value(s) {names} for the `anthropic-beta` header. Please consult our "
            "documentation at docs.claude.com or try again without the header."
        )
    return sent


def _is_known(beta: str) -> bool:
    return beta in KNOWN or beta in FIRST_PARTY or beta.startswith("user-profiles-")


def locked(body: Json, betas: tuple[str, ...]) -> Iterator[str]:
    """The fields of a request whose beta it did not ask for."""
    for where, wanted in _needs(body):
        if not set(wanted) & set(betas):
            yield f"{where}: Extra inputs are not permitted"


def _needs(body: Json) -> Iterator[tuple[str, tuple[str, ...]]]:
    for field, wanted in FIELDS.items():
        if field in body:
            yield field, wanted
    for i, edit in enumerate(objects(inner(body, "context_management"), "edits")):
        kind = str(edit.get("type"))
        if kind in EDITS:
            yield f"context_management.edits.{i}", EDITS[kind]
    thinking = inner(body, "thinking")
    if "block_binding" in thinking:
        yield "thinking.block_binding", (BINDING,)
    if thinking.get("display") == "updates":
        yield "thinking.display", (UPDATES,)
    if "task_budget" in inner(body, "output_config"):
        yield "output_config.task_budget", (BUDGET,)
    for i, message in enumerate(listed(body, "messages")):
        if message.get("role") == "system":
            yield from _message_needs(f"messages.{i}", message)


def _message_needs(where: str, message: Json) -> Iterator[tuple[str, tuple[str, ...]]]:
    if "clear_at" in message:
        yield f"{where}.clear_at", (CLEAR_AT,)
    if "output_config" in message:
        yield f"{where}.output_config", (MESSAGE_EFFORT,)
    content = message.get("content")
    for j, block in enumerate(as_blocks(content) if is_list(content) else ()):
        kind = block.get("type")
        if kind in ("tool_addition", "tool_removal"):
            defined = "definition" in inner(block, "tool")
            wanted = (INLINE_TOOLS,) if defined else (TOOL_CHANGES, INLINE_TOOLS)
            yield f"{where}.content.{j}", wanted
