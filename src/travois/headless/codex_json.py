"""A turn as the JSON lines of Codex's `exec --json`.

Events without a counterpart there are left out: compactions, hooks, notes and subagents' work. The
log has them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from travois.compat.claude_json import Json, JsonObject
from travois.compose.structured_output import STRUCTURED_OUTPUT_TOOL as ANSWER
from travois.compose.turn_tally import TurnTally
from travois.core.content import AnyBlock, Opaque, Text, TextOrMedia
from travois.core.facts import Changed, Entry, Result
from travois.core.json import as_list, as_object, as_string
from travois.core.models import Usage
from travois.core.tasks import read_tasks
from travois.core.tool_conversions import list_patched_files
from travois.ports.world import Event, ToolStarted
from travois.presentation import TASK_LIST_TOOLS, NoticeItem, ReplyItem, SessionItems, ToolCallItem

OWN_SERVER = "travois"
"""The server name for our own tools that have no item type in Codex."""
TOOLS_WITHOUT_ITEM = (*TASK_LIST_TOOLS, ANSWER)
"""Tools whose outcome is not reported as a call."""
THINKING_KINDS = ("thinking", "reasoning", "sealed")
ERROR_ENDS = ("failed", "crashed")


class CodexJsonWriter:
    """Turns the events of a run into lines, and tracks the open items."""

    def __init__(self) -> None:
        self._items = SessionItems()
        self._begun: dict[str, str] = {}
        """Item ids of running calls, by call."""
        self._todos: JsonObject = {}
        self._count = 0

    def opening_lines(self, session: str) -> list[JsonObject]:
        """Return the first lines of a run."""
        return [{"type": "thread.started", "thread_id": session}, {"type": "turn.started"}]

    def lines(self, event: Event) -> Iterator[JsonObject]:
        """Yield the lines for an event."""
        match self._items.add(event):
            case ReplyItem(fact=reply):
                yield from self._reply_items(reply.content)
            case ToolCallItem(result=Result()) as item:
                yield from self._end_item(item)
            case Entry(fact=Changed(what="todos", value=value)):
                yield self._todo_line(value)
            case ToolStarted(call=id) if (item := self._items.find_call(id)).name:
                yield from self._start_item(item)
            case NoticeItem(kind="retry" | "warning", text=text):
                yield self._error_item(text)
            case _:
                pass

    def closing_lines(self, tally: TurnTally) -> Iterator[JsonObject]:
        """Yield the last lines: unfinished items, the structured answer and the end."""
        for id in tuple(self._begun):
            cut = Entry(0, 0.0, Result(id, (Text(tally.failure_text),), error=True))
            yield from self.lines(cut)
        if self._todos:
            yield _codex_item_line("completed", self._todos)
        if tally.shape is not None and tally.shape.given:
            text = msgspec.json.encode(tally.shape.value).decode()
            yield self._whole_item({"type": "agent_message", "text": text})
        if not tally.is_failure:
            yield {"type": "turn.completed", "usage": _usage_json(tally.usage)}
            return
        if tally.ended.why in ERROR_ENDS:
            yield {"type": "error", "message": tally.failure_text}
        yield {"type": "turn.failed", "error": {"message": tally.failure_text}}

    def _reply_items(self, content: tuple[AnyBlock, ...]) -> Iterator[JsonObject]:
        for block in content:
            if isinstance(block, Opaque) and block.kind in THINKING_KINDS and block.text:
                yield self._whole_item({"type": "reasoning", "text": block.text})
        if text := "\n".join(filter(None, map(_visible_text, content))):
            yield self._whole_item({"type": "agent_message", "text": text})

    def _start_item(self, item: ToolCallItem) -> Iterator[JsonObject]:
        if item.kind == "edit" or item.name in TOOLS_WITHOUT_ITEM:
            return
        self._begun[item.id] = self._next_item_id()
        yield _codex_item_line("started", {"id": self._begun[item.id], **_call_item(item)})

    def _end_item(self, item: ToolCallItem) -> Iterator[JsonObject]:
        if item.name and item.name not in TOOLS_WITHOUT_ITEM:
            id = self._begun.pop(item.id, "") or self._next_item_id()
            yield _codex_item_line("completed", {"id": id, **_finished_call_item(item)})
        if item.is_error and (
            item.kind == "edit" or item.name in (*TOOLS_WITHOUT_ITEM, "WebSearch")
        ):
            yield self._error_item(f"{item.name}: {item.text}")

    def _todo_line(self, value: str) -> JsonObject:
        todos = read_tasks(value)
        items: list[Json] = [
            {"text": one.content, "completed": one.status == "completed"} for one in todos
        ]
        stage, id = (
            ("updated", self._todos["id"]) if self._todos else ("started", self._next_item_id())
        )
        self._todos = {"id": id, "type": "todo_list", "items": items}
        return _codex_item_line(stage, self._todos)

    def _error_item(self, message: str) -> JsonObject:
        return self._whole_item({"type": "error", "message": message})

    def _whole_item(self, item: JsonObject) -> JsonObject:
        return _codex_item_line("completed", {"id": self._next_item_id(), **item})

    def _next_item_id(self) -> str:
        self._count += 1
        return f"item_{self._count - 1}"


def _codex_item_line(stage: str, item: JsonObject) -> JsonObject:
    return {"type": f"item.{stage}", "item": item}


def _visible_text(block: AnyBlock) -> str:
    """Return a block's text for Codex's JSON; text with citations is an opaque block."""
    match block:
        case Text(text=text) | Opaque(kind="text", text=text):
            return text
        case _:
            return ""


def _call_item(call: ToolCallItem) -> JsonObject:
    """Build the Codex JSON item of a running tool call."""
    args = as_object(call.arguments)
    if call.name == "Bash":
        item: JsonObject = {"type": "command_execution", "command": as_string(args.get("command"))}
        return item | {"aggregated_output": "", "status": "in_progress"}
    if call.name == "WebSearch":
        return {"type": "web_search", "query": as_string(args.get("query"))}
    if call.name == "ApplyPatch":
        changes: list[Json] = [
            {"path": path, "kind": kind.replace("move", "add")}
            for kind, path in list_patched_files(as_string(args.get("input")))
        ]
        return {"type": "file_change", "changes": changes}
    if call.kind == "edit":
        path = as_string(args.get("file_path") or args.get("notebook_path"))
        return {"type": "file_change", "changes": [{"path": path, "kind": "update"}]}
    server, tool = OWN_SERVER, call.name
    if call.name == "McpCall":
        named, args = as_string(args.get("tool")).removeprefix("mcp__"), args.get("arguments")
        tool = f"mcp__{named}" if "__" in named else named
    if tool.startswith("mcp__"):
        server, _, tool = tool.removeprefix("mcp__").partition("__")
    item = {"type": "mcp_tool_call", "server": server, "tool": tool, "arguments": args or {}}
    return item | {"status": "in_progress"}


def _finished_call_item(call: ToolCallItem) -> JsonObject:
    """Build the Codex JSON item of a finished tool call."""
    item, told, detail = _call_item(call), call.text, call.detail
    ended: JsonObject = {"status": "failed" if call.is_error else "completed"}
    match item["type"]:
        case "web_search":
            return item
        case "command_execution":
            if (code := as_object(detail).get("exitCode")) is not None:
                ended["exit_code"] = code
            ended["aggregated_output"] = told.removeprefix(f"Exit code {code}").lstrip("\n")
        case "file_change" if len(as_list(item["changes"])) == 1 and (
            path := as_string(as_object(detail).get("filePath"))
        ):
            kind = "add" if as_object(detail).get("type") == "create" else "update"
            ended["changes"] = [{"path": path, "kind": kind}]
        case "mcp_tool_call" if call.is_error:
            ended["error"] = {"message": told}
        case "mcp_tool_call" if call.result is not None:
            content: list[Json] = [_result_block(part) for part in call.result.content]
            ended["result"] = {"content": content, "structured_content": detail}
        case _:
            pass
    return item | ended


def _result_block(part: TextOrMedia) -> JsonObject:
    """Build a Codex JSON result block; an image is only named, as its bytes are in a file."""
    text = part.text if isinstance(part, Text) else f"[{part.name or part.mime}]"
    return {"type": "text", "text": text}


def _usage_json(usage: Usage) -> JsonObject:
    """Build Codex's JSON token counts; `input_tokens` includes cache reads and writes."""
    return {
        "input_tokens": usage.prompt,
        "cached_input_tokens": usage.read,
        "cache_write_input_tokens": usage.write + usage.write_1h,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning,
    }
