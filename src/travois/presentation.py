"""A session's events as the items that front ends show, and as a document of readable parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import Json, decode_call_arguments
from travois.core.content import AnyBlock, Call, Media, Opaque, Text, extract_calls, extract_text
from travois.core.cost import compute_cost
from travois.core.display_text import escape_invisible
from travois.core.facts import (
    AnyFact,
    Asked,
    Assistant,
    Changed,
    Cleared,
    Compacted,
    Decided,
    Ended,
    Entry,
    Epoch,
    Failed,
    Finished,
    Hooked,
    Noted,
    Offloaded,
    Opened,
    Restored,
    Result,
    Rewound,
    Sent,
    Spawned,
    Unknown,
    User,
)
from travois.core.models import ModelCard
from travois.core.tool_names import canonical_call, decode_arguments
from travois.diff_rows import DiffRow, build_change_rows
from travois.memory.memory import ExtractionOutcome
from travois.ports.tool import AnyTool
from travois.ports.world import (
    ActivityShown,
    AgentProgress,
    CompactionProgress,
    Event,
    RequestRetrying,
    ToolStarted,
    UserWarned,
)
from travois.providers.replies import BlockBegan, BlockKind
from travois.tools.apply_patch import list_patched_files
from travois.tools.diff import FilePatch, decode_patches

ToolKind = Literal["read", "edit", "search", "execute", "fetch", "think", "switch_mode", "other"]
TOOLS_BY_KIND: dict[ToolKind, tuple[str, ...]] = {
    "read": ("Read", "GitShow", "GitDiff", "GitLog", "GitBlame", "GitStatus", "Skill"),
    "edit": ("Edit", "MultiEdit", "Write", "NotebookEdit", "ApplyPatch", "ApplyRename"),
    "search": ("Grep", "Glob", "Recall", "ToolSearch", "Symbols", "CodebaseSearch", "LSP"),
    "execute": ("Bash", "BashOutput", "BashInput", "KillShell"),
    "fetch": ("WebFetch", "WebSearch"),
    "think": ("Agent", "Remember"),
    "switch_mode": ("ExitPlanMode",),
}
KIND_BY_TOOL: dict[str, ToolKind] = {
    name: kind for kind, names in TOOLS_BY_KIND.items() for name in names
}
TASK_LIST_TOOLS = ("TodoWrite", "TaskCreate", "TaskUpdate")
"""Tools that change the task list, which is shown in place of the call."""
ACTIVITY_NAMES: dict[BlockKind, str] = {
    "thinking": "Thinking",
    "text": "Writing",
    "call": "Preparing",
}
MAX_TITLE_ARGS = 200
MAX_MAIL_CHARS = 300


def list_named_files(call: Call) -> dict[str, str]:
    """Return the files that an editing call names, with the contents of those it writes whole."""
    args = decode_arguments(call.args) or {}
    if isinstance(patch := args.get("input"), str) and call.name == "ApplyPatch":
        return list_patched_files(patch)
    path, content = args.get("file_path"), args.get("content")
    return {path: content if isinstance(content, str) else ""} if isinstance(path, str) else {}


class ToolCallItem(msgspec.Struct, frozen=True, dict=True):
    """A tool call with its decision and result so far."""

    call: Call
    """The call as the model wrote it; unnamed if its reply is unknown."""
    decided: Decided | None = None
    result: Result | None = None

    @cached_property
    def own_call(self) -> Call:
        """The call with our own tool names."""
        return canonical_call(self.call)

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """Our name of the called tool."""
        return self.own_call.name

    @cached_property
    def arguments(self) -> Json:
        """The decoded arguments, under our own names."""
        return decode_call_arguments(self.own_call)

    @property
    def kind(self) -> ToolKind:
        """The kind of work that the tool does."""
        return KIND_BY_TOOL.get(self.name, "other")

    @property
    def is_denied(self) -> bool:
        """True if the call was denied."""
        return self.decided is not None and self.decided.verdict == "deny"

    @property
    def is_error(self) -> bool:
        """True if the result is an error."""
        return self.result is not None and self.result.error

    @property
    def text(self) -> str:
        """The text of the result."""
        return extract_text(self.result.content) if self.result else ""

    @cached_property
    def detail(self) -> Json:
        """The decoded result for programs, or None."""
        detail = self.result.detail if self.result else ""
        return msgspec.json.decode(detail) if detail else None

    @cached_property
    def patches(self) -> tuple[FilePatch, ...]:
        """The changes to files, if the result has any."""
        return decode_patches(self.result.detail) if self.result and not self.is_error else ()

    @cached_property
    def diff_rows(self) -> tuple[DiffRow, ...]:
        """The rows of the file changes that the call made; none if it made none."""
        return tuple(build_change_rows(self.patches, list_named_files(self.own_call)))

    def title(self, tools: Mapping[str, AnyTool], *, folder: str = "") -> str:
        """Return a one-line description; for a shell command, the command.

        Paths inside of `folder` are relative to it.
        """
        call, tool = self.own_call, tools.get(self.name)
        if tool is not None and call.name != "Bash":
            try:
                args = msgspec.json.decode(call.args or "{}", type=tool.args, strict=False)
                summary = tool.summary(args)
                return escape_invisible(summary.replace(f" {folder}/", " ") if folder else summary)
            except (msgspec.DecodeError, ValueError, RecursionError):
                pass
        elif isinstance(command := (decode_arguments(call.args) or {}).get("command"), str):
            return escape_invisible(f"$ {command.strip()}")
        return escape_invisible(f"{call.name} {call.args[:MAX_TITLE_ARGS]}")


class ReplyItem(msgspec.Struct, frozen=True):
    """A reply of the model with its cost."""

    fact: Assistant
    calls: tuple[ToolCallItem, ...]
    dollars: float
    seconds: float
    """From the request to the end of the reply."""


class NoticeItem(msgspec.Struct, frozen=True):
    """A notice for the user."""

    kind: Literal["retry", "warning", "memory", "mail"]
    text: str
    """Empty for a change of memory without effect."""
    diff: str = ""
    """The change of memory as a unified diff."""


SessionItem = ToolCallItem | ReplyItem | NoticeItem | Event


class SessionItems:
    """Folds the events of one session into items."""

    def __init__(self, model: ModelCard | None = None) -> None:
        self.model = model
        """The model whose prices apply; updated from the log."""
        self.sent: float | None = None
        """When the pending request was sent."""
        self._calls: dict[str, ToolCallItem] = {}
        """Calls without a result."""

    def add(self, event: Event) -> SessionItem:
        """Add an event and return what to show of it."""
        if not isinstance(event, Entry):
            return notice_for_event(event) or event
        match event.fact:
            case Assistant() as fact:
                return self._add_reply(fact, at=event.at)
            case Decided() as fact:
                item = self._calls[fact.call] = replace(self.find_call(fact.call), decided=fact)
                return item
            case Result() as fact:
                item = replace(self.find_call(fact.call), result=fact)
                self._calls.pop(fact.call, None)
                return item
            case Epoch(model=model):
                self.model = model
            case Sent():
                self.sent = event.at
            case Failed():
                self.sent = None
            case _:
                return notice_for_event(event) or event
        return event

    def find_call(self, id: str) -> ToolCallItem:
        """Return the open call with this id, or an unnamed one."""
        return self._calls.get(id) or ToolCallItem(Call(id, "", ""))

    def _add_reply(self, fact: Assistant, *, at: float) -> ReplyItem:
        found = tuple(map(ToolCallItem, extract_calls(fact.content)))
        self._calls |= {item.id: item for item in found}
        seconds = max(0.0, at - (at if self.sent is None else self.sent))
        self.sent = None
        dollars = compute_cost(fact.usage, self.model.price) if self.model else 0.0
        return ReplyItem(fact, found, dollars, seconds)


def notice_for_event(event: Event) -> NoticeItem | None:
    """Return the notice for an event, or None."""
    match event:
        case RequestRetrying(message=message, wait=wait):
            return NoticeItem("retry", f"{message}; retrying in {wait:.1f} s")
        case UserWarned(text=text):
            return NoticeItem("warning", text)
        case Entry(fact=Noted(what="memory", text=text)):
            try:
                outcome = msgspec.json.decode(text, type=ExtractionOutcome)
            except msgspec.DecodeError:  # a log of another version
                return None
            return NoticeItem("memory", outcome.summary, outcome.diff)
        case Entry(fact=User(origin="mail", content=content)):
            return NoticeItem(
                "mail", extract_text(content).partition("\n</mail>")[0][:MAX_MAIL_CHARS]
            )
        case _:
            return None


PartKind = Literal["person", "model", "thinking", "call", "result", "error", "note", "event"]


def describe_activity(event: Event) -> str:
    """Return what goes on from this event on, as `name` or `name: size`; empty if it tells not."""
    match event:
        case ActivityShown(text=text):
            return text
        case CompactionProgress(over=True) | Entry(fact=Result() | Decided()):
            return "Working"
        case CompactionProgress(tokens=tokens):
            return f"Summarising: {tokens:,} tokens"
        case ToolStarted(name=name):
            return f"Running {name}"
        case AgentProgress(id=id, doing=doing) if doing:
            return f"Agent {id}: {doing}"
        case BlockBegan(kind=kind):
            return ACTIVITY_NAMES.get(kind, "Working")
        case _:
            return ""


class DocumentPart(msgspec.Struct, frozen=True):
    """A part of a document: a title (who or what) and a text; `media` is shown below."""

    seq: int
    at: float
    kind: PartKind
    title: str
    text: str = ""
    media: tuple[Media, ...] = ()
    rows: tuple[DiffRow, ...] = ()
    """The change of a file, of the result that reports it."""


PartFields = tuple[PartKind, str, str, tuple[Media, ...]]


def document_parts(entries: Iterable[Entry]) -> Iterator[DocumentPart]:
    """Yield all parts of a session's document in the order of the log."""
    items = SessionItems()
    for entry in entries:
        item = items.add(entry)
        done = item if isinstance(item, ToolCallItem) and item.result else None
        rows = done.diff_rows if done else ()
        for kind, title, text, media in _fact_parts(done or entry.fact):
            yield DocumentPart(entry.seq, entry.at, kind, title, text, media, rows)


def _fact_parts(fact: AnyFact | ToolCallItem) -> Iterator[PartFields]:
    """Yield the parts that a fact contributes to a session's document."""
    match fact:
        case User():
            yield _user_part(fact)
        case Assistant():
            yield from _reply_parts(fact)
        case ToolCallItem(result=Result(content=content)) as item:
            kind: PartKind = "error" if item.is_error else "result"
            yield kind, item.call.name or item.id, item.text, _media_blocks(content)
        case Compacted():
            title = f"Entries {fact.first} to {fact.last} were replaced by a summary ({fact.by})"
            yield "note", title, extract_text(fact.summary), ()
        case Offloaded() | Cleared() | Rewound() | Restored() | Epoch() | Opened():
            yield "event", _context_event_text(fact), "", ()
        case Failed() | Ended() | Decided() | Changed() | Spawned() | Finished() | Hooked():
            if title := _event_text(fact):
                yield "event", title, "", ()
        case Noted():
            yield "note", fact.what, fact.text, ()
        case Sent() | Asked() | Result() | Unknown() | ToolCallItem():
            return
        case _:
            assert_never(fact)


def _user_part(fact: User) -> PartFields:
    """Build the part of a session document for a user message or a note to the model."""
    if fact.origin == "human":
        return "person", "You", extract_text(fact.content), _media_blocks(fact.content)
    return (
        "note",
        f"Note to the model ({fact.origin})",
        extract_text(fact.content),
        _media_blocks(fact.content),
    )


def _reply_parts(fact: Assistant) -> Iterator[PartFields]:
    """Build the parts of a session document for a reply: texts, calls and thinking."""
    name = fact.model or "Model"
    for block in fact.content:
        match block:
            case Text():
                yield "model", name, block.text, ()
            case Call():
                yield "call", block.name, block.args, ()
            case Opaque():
                yield "thinking", block.kind, block.text, ()
            case Media():
                yield "model", name, "", (block,)
            case _:
                assert_never(block)
    if fact.stop not in ("end", "calls", "pause"):
        yield "event", f"The reply stopped: {fact.stop} {fact.detail}".rstrip(), "", ()


def _context_event_text(fact: Offloaded | Cleared | Rewound | Restored | Epoch | Opened) -> str:
    """Describe, for front ends, a change of what the model sees."""
    match fact:
        case Offloaded():
            return f"The model sees only a preview of the result of {fact.call}"
        case Cleared():
            old = "thinking of earlier turns is" if fact.what == "thinking" else ""
            return f"{old or f'{len(fact.calls)} old {fact.what} are'} no longer shown to the model"
        case Rewound():
            return f"Rewound to entry {fact.to}: later messages were removed"
        case Restored():
            return f"The compaction at entry {fact.compaction} was undone"
        case Epoch():
            return f"{fact.model.name}, {len(fact.tools)} tools ({fact.why})"
        case Opened():
            origin = f", a fork of {fact.parent} at entry {fact.at}" if fact.parent else ""
            return f"Session {fact.session} in {fact.cwd}{origin}"
        case _:
            assert_never(fact)


def _event_text(fact: Failed | Ended | Decided | Changed | Spawned | Finished | Hooked) -> str:
    """Describe an event for front ends; empty if it is not worth showing."""
    match fact:
        case Failed():
            return f"The request failed ({fact.kind}): {fact.message}"
        case Ended():
            return "" if fact.why == "end" else f"The turn ended: {fact.why} {fact.detail}".rstrip()
        case Decided():
            return f"Denied: {fact.because}" if fact.verdict == "deny" else ""
        case Changed():
            return f"Named {fact.value!r}" if fact.what == "name" else ""
        case Spawned():
            return f"Started {fact.kind} {fact.id}: {fact.what}"
        case Finished():
            return f"{fact.id} ended: {fact.outcome}"
        case Hooked():
            return f"Hook {fact.event}: {fact.command} ({fact.outcome})"
        case _:
            assert_never(fact)


def _media_blocks(content: tuple[AnyBlock, ...]) -> tuple[Media, ...]:
    return tuple(block for block in content if isinstance(block, Media))
