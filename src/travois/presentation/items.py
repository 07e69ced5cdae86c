"""What happened in a session, as the values that front ends show.

`SessionItems` folds facts and live deltas into items. It works out once what each front end would
otherwise work out again: which result belongs to which call, what a call is called and did, what a
reply cost, what is worth a remark. An event that needs none of this passes through as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import Json, arguments
from travois.core.content import Call, calls, words
from travois.core.display_text import visible
from travois.core.facts import Assistant, Decided, Entry, Epoch, Failed, Noted, Result, Sent, User
from travois.core.models import Model, cost
from travois.core.tool_names import canonical, decoded
from travois.memory.port import Outcome
from travois.ports.tool import AnyTool
from travois.ports.world import Event, Retrying, Warned
from travois.tools.diff import Patch

ToolKind = Literal["read", "edit", "search", "execute", "fetch", "think", "switch_mode", "other"]
KINDS: dict[ToolKind, tuple[str, ...]] = {
    "read": ("Read", "GitShow", "GitDiff", "GitLog", "GitBlame", "GitStatus", "Skill"),
    "edit": ("Edit", "MultiEdit", "Write", "NotebookEdit", "ApplyPatch"),
    "search": ("Grep", "Glob", "Recall", "ToolSearch", "Symbols"),
    "execute": ("Bash", "BashOutput", "BashInput", "KillShell"),
    "fetch": ("WebFetch", "WebSearch"),
    "think": ("Agent", "Remember"),
    "switch_mode": ("ExitPlanMode",),
}
KIND: dict[str, ToolKind] = {name: kind for kind, names in KINDS.items() for name in names}
TASK_LIST_TOOLS = ("TodoWrite", "TaskCreate", "TaskUpdate")
"""Tools that change the task list, which is shown instead of the call."""
MAX_TITLE_ARGS = 200
MAX_MAIL_CHARS = 300


class ToolCallItem(msgspec.Struct, frozen=True, dict=True):
    """A tool call, with the decision on it and its result once there are any."""

    call: Call
    """As the model wrote it; without a name if its reply was not seen."""
    decided: Decided | None = None
    result: Result | None = None

    @cached_property
    def own(self) -> Call:
        """The call in the names of our own tools."""
        return canonical(self.call)

    @property
    def id(self) -> str:
        """What decisions, progress and the result refer to."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool of ours that is called."""
        return self.own.name

    @cached_property
    def arguments(self) -> Json:
        """The arguments in our own names, decoded."""
        return arguments(self.own)

    @property
    def kind(self) -> ToolKind:
        """What sort of work it is."""
        return KIND.get(self.name, "other")

    @property
    def is_denied(self) -> bool:
        """Whether it was decided that it may not run."""
        return self.decided is not None and self.decided.verdict == "deny"

    @property
    def is_error(self) -> bool:
        """Whether it was answered with an error."""
        return self.result is not None and self.result.error

    @property
    def text(self) -> str:
        """The words of the result."""
        return words(self.result.content) if self.result else ""

    @cached_property
    def detail(self) -> Json:
        """The result for programs, decoded; None where there is none."""
        detail = self.result.detail if self.result else ""
        return msgspec.json.decode(detail) if detail else None

    @cached_property
    def patch(self) -> Patch | None:
        """What it changed in a file, as far as its result tells."""
        try:
            return msgspec.json.decode(self.result.detail if self.result else "", type=Patch)
        except msgspec.DecodeError:
            return None

    def title(self, tools: Mapping[str, AnyTool]) -> str:
        """Return what it does, on one line; of a command always the command itself."""
        call, tool = self.own, tools.get(self.name)
        if tool is not None and call.name != "Bash":
            try:
                args = msgspec.json.decode(call.args or "{}", type=tool.args, strict=False)
                return visible(tool.summary(args))
            except (msgspec.DecodeError, ValueError, RecursionError):
                pass
        elif isinstance(command := (decoded(call.args) or {}).get("command"), str):
            return visible(f"$ {command.strip()}")
        return visible(f"{call.name} {call.args[:MAX_TITLE_ARGS]}")


class ReplyItem(msgspec.Struct, frozen=True):
    """A reply of the model, with what it cost."""

    fact: Assistant
    calls: tuple[ToolCallItem, ...]
    dollars: float
    seconds: float
    """From the request to the whole reply."""


class NoticeItem(msgspec.Struct, frozen=True):
    """A remark for the person at the screen, which the model did not make."""

    kind: Literal["retry", "warning", "memory", "mail"]
    text: str
    """Empty for a change of memory that came to nothing."""
    diff: str = ""
    """What changed in memory, as a unified diff."""


Item = ToolCallItem | ReplyItem | NoticeItem | Event


class SessionItems:
    """Folds the events of one session into items."""

    def __init__(self, model: Model | None = None) -> None:
        self.model = model
        """Whose prices hold; the log says if it changes."""
        self.sent: float | None = None
        """When the request left to which no reply has come."""
        self._calls: dict[str, ToolCallItem] = {}
        """The calls without a result."""

    def add(self, event: Event) -> Item:
        """Take one more event into account and return what to show of it."""
        if not isinstance(event, Entry):
            return note_event(event) or event
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
                return note_event(event) or event
        return event

    def find_call(self, id: str) -> ToolCallItem:
        """Return the open call of this id; one without a name if it is not known."""
        return self._calls.get(id) or ToolCallItem(Call(id, "", ""))

    def _add_reply(self, fact: Assistant, *, at: float) -> ReplyItem:
        found = tuple(map(ToolCallItem, calls(fact.content)))
        self._calls |= {item.id: item for item in found}
        seconds = max(0.0, at - (at if self.sent is None else self.sent))
        self.sent = None
        dollars = cost(fact.usage, self.model.price) if self.model else 0.0
        return ReplyItem(fact, found, dollars, seconds)


def note_event(event: Event) -> NoticeItem | None:
    """Return the remark that an event is worth, if it is worth one."""
    match event:
        case Retrying(message=message, wait=wait):
            return NoticeItem("retry", f"{message}; trying again in {wait:.1f} s")
        case Warned(text=text):
            return NoticeItem("warning", text)
        case Entry(fact=Noted(what="memory", text=text)):
            try:
                outcome = msgspec.json.decode(text, type=Outcome)
            except msgspec.DecodeError:  # a log of another version
                return None
            return NoticeItem("memory", outcome.told, outcome.diff)
        case Entry(fact=User(origin="mail", content=content)):
            return NoticeItem("mail", words(content).partition("\n</mail>")[0][:MAX_MAIL_CHARS])
        case _:
            return None
