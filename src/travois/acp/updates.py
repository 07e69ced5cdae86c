"""Session events as ACP updates for the editor."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeVar
from uuid import uuid4

import msgspec

from travois.acp.options import SessionChoices
from travois.compat.claude_json import Json, JsonObject
from travois.compose.live_session import typed_text
from travois.context.compaction.compact import describe_compaction
from travois.core.content import Call, Media, Opaque, Text, TextOrMedia, extract_calls
from travois.core.facts import AnyFact, Assistant, Changed, Compacted, Ended, Entry, Epoch, User
from travois.core.tasks import read_tasks
from travois.core.tokens import context_tokens
from travois.diff_rows import find_written_path
from travois.engine.agent import MODE_STATE, Agent
from travois.ports.tool import AnyTool
from travois.ports.world import AgentProgress, Blobs, Event, ToolProgress, ToolStarted
from travois.presentation import (
    TASK_LIST_TOOLS,
    NoticeItem,
    ReplyItem,
    SessionItems,
    ToolCallItem,
    list_named_files,
)
from travois.providers.replies import BlockKind, Grew, ReplyBegan
from travois.tools.diff import DiffHunk, FilePatch
from travois.tools.edit import EditArgs, MultiEditArgs, WriteArgs
from travois.tools.paths import absolute_path
from travois.tui.agent_progress import format_agent_progress

# Tool calls: title, location, diff and result.


ArgsT = TypeVar("ArgsT")
MAX_SHOWN_CHARS = 30_000
"""Characters of a result that are shown; the model may see more."""
MARKUP_TOOLS = ("Agent", "ExitPlanMode", "AskUserQuestion")
"""Tools whose results are text for people, possibly Markdown."""


class CallLocation(msgspec.Struct, frozen=True):
    """The location in a call's arguments."""

    file_path: str = ""
    notebook_path: str = ""
    path: str = ""
    offset: int = 0


def tool_call_json(item: ToolCallItem, tools: Mapping[str, AnyTool], cwd: str) -> JsonObject:
    """Build the ACP update's JSON of a tool call before it runs."""
    told: JsonObject = {
        "toolCallId": item.id,
        "title": item.title(tools),
        "kind": item.kind,
        "rawInput": item.arguments,
    }
    found = _decode_args(item, CallLocation)
    if found and (path := found.file_path or found.notebook_path or found.path):
        told["locations"] = [location_json(absolute_path(path, cwd), found.offset)]
    if planned := list(diffs_from_arguments(item, cwd)):
        told["content"] = planned
    return told


def diffs_from_arguments(item: ToolCallItem, cwd: str) -> Iterator[Json]:
    """Yield the edits that a tool call's arguments announce, to show in the editor."""
    match item.name:
        case "Edit" if args := _decode_args(item, EditArgs):
            yield diff_content(absolute_path(args.file_path, cwd), args.old_string, args.new_string)
        case "MultiEdit" if args := _decode_args(item, MultiEditArgs):
            for one in args.edits:
                yield diff_content(
                    absolute_path(args.file_path, cwd), one.old_string, one.new_string
                )
        case "Write" if args := _decode_args(item, WriteArgs):
            yield diff_content(absolute_path(args.file_path, cwd), None, args.content)
        case _:
            pass


def _decode_args(item: ToolCallItem, shape: type[ArgsT]) -> ArgsT | None:
    """Decode the arguments of a call for the editor; None if they are invalid."""
    try:
        return msgspec.json.decode(item.own_call.args or "{}", type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def finished_call_json(item: ToolCallItem, *, cwd: str, blobs: Blobs) -> JsonObject:
    """Build the ACP update's JSON of a finished tool call."""
    assert item.result is not None
    told: JsonObject = {
        "toolCallId": item.id,
        "status": "failed" if item.is_error else "completed",
        "rawOutput": item.detail if item.result.detail else _clip_text(item.text),
    }
    if not item.patches:
        return {**told, "content": list(_result_blocks(item, item.result.content, blobs))}
    told["content"] = [diff for one in item.patches for diff in _patch_diffs(item, one, cwd)]
    return {**told, "locations": [_patch_location(one) for one in item.patches]}


def _patch_location(change: FilePatch) -> Json:
    first = change.structured_patch[0].new_start if change.structured_patch else 1
    return location_json(change.file_path, first)


def _patch_diffs(item: ToolCallItem, change: FilePatch, cwd: str) -> Iterator[Json]:
    """Yield the editor's diffs of one changed file."""
    done = [_hunk_diff(change.file_path, hunk) for hunk in change.structured_patch]
    yield from done or _change_without_hunks(item, change, cwd)


def _change_without_hunks(item: ToolCallItem, change: FilePatch, cwd: str) -> Iterator[Json]:
    """Yield the editor's diff of a change without hunks: a new file, or a large change."""
    yield from diffs_from_arguments(item, cwd)
    named = list_named_files(item.own_call)
    if item.name == "ApplyPatch" and change.type == "create":
        path = find_written_path(change.file_path, named)
        yield diff_content(change.file_path, None, named.get(path, ""))
    elif item.name not in ("Edit", "MultiEdit", "Write"):
        yield text_content(f"{change.file_path}: +{change.added} -{change.removed}")


def _hunk_diff(path: str, hunk: DiffHunk) -> Json:
    """Build the diff content of one changed hunk for the editor."""
    sides = ("+", "-")
    new, old = (
        "".join(f"{line[1:]}\n" for line in hunk.lines if line[0] != other) for other in sides[::-1]
    )
    return diff_content(path, old, new)


def _result_blocks(
    item: ToolCallItem, content: tuple[TextOrMedia, ...], blobs: Blobs
) -> Iterator[Json]:
    """Build the text and images of a tool result for the editor."""
    said = _clip_text(item.text)
    if said.strip():
        yield text_content(said if item.name in MARKUP_TOOLS else fence_text(said))
    for block in content:
        if isinstance(block, Media) and block.kind == "image":
            yield {"type": "content", "content": image_block(block, blobs)}


def _clip_text(said: str) -> str:
    """Shorten a long tool result for the editor, saying how much was cut."""
    return (
        said
        if len(said) <= MAX_SHOWN_CHARS
        else f"{said[:MAX_SHOWN_CHARS]}\n… {len(said) - MAX_SHOWN_CHARS:,} more"
    )


def text_content(said: str) -> Json:
    """Build the text content of an ACP tool call."""
    return {"type": "content", "content": {"type": "text", "text": said}}


def content_block(block: TextOrMedia, blobs: Blobs) -> JsonObject:
    """Build an ACP content block."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Media(kind="image"):
            return image_block(block, blobs)
        case Media():
            return {"type": "text", "text": f"[{block.name or block.mime}]"}


def image_block(block: Media, blobs: Blobs) -> JsonObject:
    """Build an ACP image block; its name as text if the bytes are gone."""
    try:
        data = b64encode(blobs.get(block.blob)).decode()
    except KeyError:
        return {"type": "text", "text": f"[{block.name or block.mime}]"}
    return {"type": "image", "mimeType": block.mime, "data": data}


def diff_content(path: str, old: str | None, new: str) -> Json:
    """Build an ACP diff of a file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def location_json(path: str, line: int) -> Json:
    """Build a file location for the editor; lines count from 1."""
    return {"path": path, "line": line} if line > 0 else {"path": path}


def fence_text(said: str) -> str:
    """Wrap text for the editor in a code fence that it cannot close."""
    longest = max(map(len, re.findall(r"`{3,}", said)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{said.rstrip()}\n{fence}"


MAX_TITLE_CHARS = 80
CHUNK_UPDATES: dict[BlockKind, str] = {
    "text": "agent_message_chunk",
    "thinking": "agent_thought_chunk",
}
SILENT_ENDS = ("end", "aborted", "failed")
"""Ends of a turn that the reply to its prompt reports."""


class AcpUpdates:
    """Turns session events into updates."""

    def __init__(self, agent: Agent, choices: SessionChoices) -> None:
        self._agent = agent
        self._choices = choices
        self._items = SessionItems()
        self._message = str(uuid4())
        self._streamed = False
        """True if the current reply was streamed."""
        self._titled = bool(agent.session.prompted)

    def updates(self, event: Event) -> Iterator[JsonObject]:
        """Yield the updates for an event."""
        match self._items.add(event):
            case Entry(fact=fact):
                yield from self._entry_updates(fact)
            case ReplyItem() as item:
                if not self._streamed:
                    yield from self._reply_chunks(item)
                self._streamed = False
                yield from self._call_updates(item)
                yield self.usage_update()
            case ToolCallItem() as item:
                yield from self._result_updates(item)
            case NoticeItem(text=text) if text:
                yield notice_update(text)
            case ReplyBegan():
                self._message, self._streamed = str(uuid4()), False
            case Grew(kind=kind, text=text) if kind in CHUNK_UPDATES:
                self._streamed = True
                yield self._chunk_update(CHUNK_UPDATES[kind], text)
            case ToolStarted(call=call) if self.is_awaiting(call):
                yield _call_update({"toolCallId": call, "status": "in_progress"})
            case ToolProgress(call=call, text=text) if self.is_awaiting(call):
                shown: list[Json] = [text_content(fence_text(text))]
                yield _call_update({"toolCallId": call, "content": shown})
            case _:
                pass

    def replay(self, entry: Entry) -> Iterator[JsonObject]:
        """Yield the updates for an entry of a resumed session."""
        match self._items.add(entry):
            case Entry(fact=User(origin="human", content=content)):
                said = [block for block in content if isinstance(block, Media)]
                for block in (*said, Text(typed_text(content))):
                    shown = content_block(block, self._agent.world.blobs)
                    yield {"sessionUpdate": "user_message_chunk", "content": shown}
            case ReplyItem() as item:
                self._message = str(uuid4())
                yield from self._reply_chunks(item)
                yield from self._call_updates(item)
            case ToolCallItem() as item:
                yield from self._result_updates(item)
            case _:
                pass

    def state_updates(self) -> Iterator[JsonObject]:
        """Yield the todo list and the usage."""
        state = self._agent.session.state
        if todos := state.get("todos"):
            yield plan_update(todos)
        yield self.usage_update()

    def usage_update(self) -> JsonObject:
        """Build the context and cost update."""
        session, card = self._agent.session, self._choices.model
        cost: JsonObject = {"amount": session.dollars, "currency": "USD"}
        used = context_tokens(session.view)
        return {"sessionUpdate": "usage_update", "used": used, "size": card.window, "cost": cost}

    def describe_call(self, call: Call) -> JsonObject:
        """Build the JSON of a call before it runs."""
        return tool_call_json(ToolCallItem(call), self._agent.tools.by_name, self._cwd)

    def is_awaiting(self, call: str) -> bool:
        """Return whether a call is still unanswered."""
        return _is_shown(self._items.find_call(call))

    @property
    def _cwd(self) -> str:
        return self._agent.session.state.get("cwd", self._agent.world.root)

    def _entry_updates(self, fact: AnyFact) -> Iterator[JsonObject]:
        match fact:
            case User(origin="human", content=content) if not self._titled:
                self._titled = True
                yield title_update(typed_text(content))
            case Changed():
                yield from self._change_updates(fact)
            case Epoch():
                yield self._choices.config_option_update()
            case Compacted():
                yield notice_update(describe_compaction(fact))
                yield self.usage_update()
            case Ended(why=why, detail=detail) if why not in SILENT_ENDS and detail:
                yield notice_update(detail)
            case _:
                pass

    def _reply_chunks(self, item: ReplyItem) -> Iterator[JsonObject]:
        for block in item.fact.content:
            if isinstance(block, Text) and block.text:
                yield self._chunk_update(CHUNK_UPDATES["text"], block.text)
            elif isinstance(block, Opaque) and block.text:
                yield self._chunk_update(CHUNK_UPDATES["thinking"], block.text)

    def _call_updates(self, item: ReplyItem) -> Iterator[JsonObject]:
        for call in filter(_is_shown, item.calls):
            told = tool_call_json(call, self._agent.tools.by_name, self._cwd)
            yield {"sessionUpdate": "tool_call", "status": "pending", **told}

    def _result_updates(self, item: ToolCallItem) -> Iterator[JsonObject]:
        if item.result is not None and _is_shown(item):
            yield _call_update(
                finished_call_json(item, cwd=self._cwd, blobs=self._agent.world.blobs)
            )

    def _change_updates(self, fact: Changed) -> Iterator[JsonObject]:
        match fact.what:
            case "todos":
                yield plan_update(fact.value)
            case "name":
                yield title_update(fact.value)
            case _ if fact.what == MODE_STATE:
                yield {"sessionUpdate": "current_mode_update", "currentModeId": fact.value}
                yield self._choices.config_option_update(mode=fact.value)
            case _:
                pass

    def _chunk_update(self, kind: str, text: str) -> JsonObject:
        content: JsonObject = {"type": "text", "text": text}
        return {"sessionUpdate": kind, "content": content, "messageId": self._message}


def notice_update(text: str) -> JsonObject:
    """Build the ACP update for a notice."""
    content: JsonObject = {"type": "text", "text": f"· {text}\n"}
    kind = "agent_thought_chunk"
    return {"sessionUpdate": kind, "content": content, "messageId": str(uuid4())}


def answer_update(text: str) -> JsonObject:
    """Build the ACP update for a slash command's answer."""
    content: JsonObject = {"type": "text", "text": text}
    kind = "agent_message_chunk"
    return {"sessionUpdate": kind, "content": content, "messageId": str(uuid4())}


def title_update(text: str) -> JsonObject:
    """Build the ACP update for the session's title."""
    line = " ".join(text.split())
    title = line if len(line) <= MAX_TITLE_CHARS else f"{line[: MAX_TITLE_CHARS - 1]}…"
    return {"sessionUpdate": "session_info_update", "title": title}


def plan_update(todos: str) -> JsonObject:
    """Build the ACP update for the to-do list."""
    entries: list[Json] = [
        {"content": one.content, "status": one.status, "priority": "medium"}
        for one in read_tasks(todos)
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _is_shown(item: ToolCallItem) -> bool:
    """Return whether the editor shows a call, unlike the to-do list's."""
    return bool(item.name) and item.name not in TASK_LIST_TOOLS


def _call_update(body: JsonObject) -> JsonObject:
    return {"sessionUpdate": "tool_call_update", **body}


# Subagents, shown under the calls that started them.


MAX_SHOWN_STEPS = 8
"""Steps of a subagent that are shown."""
AGENT_META_KEY = "travois/agent"
"""The `_meta` key of a subagent's progress as data."""


class SubagentSteps:
    """The last steps and current activity of the subagents of each call."""

    def __init__(self) -> None:
        self._steps: defaultdict[str, deque[str]] = defaultdict(
            partial(deque[str], maxlen=MAX_SHOWN_STEPS)
        )
        self._now: dict[str, str] = {}

    def add(self, call: str, event: Event, agent: Agent) -> bool:
        """Record the calls of a subagent's reply; return whether there were any."""
        if not isinstance(event, Entry) or not isinstance(event.fact, Assistant):
            return False
        made = map(ToolCallItem, extract_calls(event.fact.content))
        fresh = [each.title(agent.tools.by_name) for each in made]
        self._steps[call].extend(fresh)
        return bool(fresh)

    def progress(self, now: AgentProgress, *, shown: bool) -> JsonObject:
        """Build the update for a subagent's progress, with text while its call is unanswered."""
        self._now[now.call] = format_agent_progress(now)
        about: JsonObject = {"agentId": now.id, "doing": now.doing, "lastTool": now.tool}
        about |= {"tokens": now.tokens, "costUsd": now.dollars}
        update = self.update(now.call) if shown else _new_call_update(now.call)
        meta: JsonObject = {AGENT_META_KEY: about}
        update["_meta"] = meta
        return update

    def update(self, call: str) -> JsonObject:
        """Build the update that shows all steps under the call."""
        lines = [line for line in (self._now.get(call, ""), *self._steps[call]) if line]
        update, content = _new_call_update(call), list[Json]()
        content.append(text_content(fence_text("\n".join(lines))))
        update["content"] = content
        return update


def _new_call_update(call: str) -> JsonObject:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call}
