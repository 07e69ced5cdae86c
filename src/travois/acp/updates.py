"""What happens in a session, as the updates that an editor shows."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeVar, assert_never
from uuid import uuid4

import msgspec

from travois.acp.options import Choices
from travois.compat.claude_json import Json, Object, arguments
from travois.context.compaction.compact import receipt
from travois.core.content import AnyBlock, Call, Media, Opaque, Shown, Text, calls, words
from travois.core.content import calls as called
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Compacted,
    Ended,
    Entry,
    Epoch,
    Noted,
    Result,
    User,
)
from travois.core.tokens import context_tokens
from travois.core.tool_names import canonical, canonical_name
from travois.engine.agent import Agent
from travois.engine.permission_modes import MODE
from travois.memory.extraction import told
from travois.ports.tool import AnyTool
from travois.ports.world import (
    AgentProgress,
    Blobs,
    Compacting,
    Doing,
    Event,
    Progress,
    Retrying,
    Running,
    Signalled,
    Warned,
)
from travois.providers.replies import Began, BlockBegan, BlockEnded, Grew
from travois.sdk import typed
from travois.tools.diff import Hunk, Patch
from travois.tools.edit import EditArgs, MultiEditArgs, WriteArgs
from travois.tools.paths import absolute
from travois.tui.agent_progress import progress_line
from travois.tui.transcript import patch, read, summary

# Tool calls as an editor shows them: what they do, where, and what came of it.


T = TypeVar("T")
LONGEST = 30_000
"""How many characters of a result are shown; the model may see more."""
KINDS = {
    "read": ("Read", "GitShow", "GitDiff", "GitLog", "GitBlame", "GitStatus", "Skill"),
    "edit": ("Edit", "MultiEdit", "Write", "NotebookEdit", "ApplyPatch"),
    "search": ("Grep", "Glob", "Recall", "ToolSearch", "Symbols"),
    "execute": ("Bash", "BashOutput", "BashInput", "KillShell"),
    "fetch": ("WebFetch", "WebSearch"),
    "think": ("Agent", "Remember"),
    "switch_mode": ("ExitPlanMode",),
}
KIND = {name: kind for kind, names in KINDS.items() for name in names}
PLAIN = ("Agent", "ExitPlanMode", "AskUserQuestion")
"""Tools whose results are words for people, and may hold markup."""


class Spot(msgspec.Struct, frozen=True):
    """Where a call says that it works."""

    file_path: str = ""
    notebook_path: str = ""
    path: str = ""
    offset: int = 0


def described(call: Call, tools: Mapping[str, AnyTool], cwd: str) -> Object:
    """A call before it runs."""
    call = canonical(call)
    told: Object = {
        "toolCallId": call.id,
        "title": summary(call, tools),
        "kind": KIND.get(call.name, "other"),
        "rawInput": arguments(call),
    }
    found = _decoded(call, Spot)
    if found and (path := found.file_path or found.notebook_path or found.path):
        told["locations"] = [place(absolute(path, cwd), found.offset)]
    if planned := list(changes(call, cwd)):
        told["content"] = planned
    return told


def changes(call: Call, cwd: str) -> Iterator[Json]:
    """What a call would change, as it says itself."""
    match call.name:
        case "Edit" if args := _decoded(call, EditArgs):
            yield diff(absolute(args.file_path, cwd), args.old_string, args.new_string)
        case "MultiEdit" if args := _decoded(call, MultiEditArgs):
            for one in args.edits:
                yield diff(absolute(args.file_path, cwd), one.old_string, one.new_string)
        case "Write" if args := _decoded(call, WriteArgs):
            yield diff(absolute(args.file_path, cwd), None, args.content)
        case _:
            pass


def _decoded(call: Call, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(call.args or "{}", type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def ended(call: Call, result: Result, *, cwd: str, blobs: Blobs) -> Object:
    """A call that was answered."""
    call = canonical(call)
    told: Object = {
        "toolCallId": call.id,
        "status": "failed" if result.error else "completed",
        "rawOutput": msgspec.json.decode(result.detail) if result.detail else _cut(result.content),
    }
    change = patch(result.detail) if result.detail and not result.error else None
    if change is None:
        return {**told, "content": list(_shown(call, result.content, blobs))}
    first = change.structured_patch[0].new_start if change.structured_patch else 1
    done = [_hunk(change.file_path, hunk) for hunk in change.structured_patch]
    told["content"] = done or list(_whole(call, change, cwd))
    return {**told, "locations": [place(change.file_path, first)]}


def _whole(call: Call, change: Patch, cwd: str) -> Iterator[Json]:
    """A change of which the result does not tell line by line: a new file, or a large change."""
    yield from changes(call, cwd)
    if call.name not in ("Edit", "MultiEdit", "Write"):
        yield text_content(f"+{change.added} -{change.removed}")


def _hunk(path: str, hunk: Hunk) -> Json:
    sides = ("+", "-")
    new, old = (
        "".join(f"{line[1:]}\n" for line in hunk.lines if line[0] != other) for other in sides[::-1]
    )
    return diff(path, old, new)


def _shown(call: Call, content: tuple[Shown, ...], blobs: Blobs) -> Iterator[Json]:
    said = _cut(content)
    if said.strip():
        yield text_content(said if call.name in PLAIN else fenced(said))
    for block in content:
        if isinstance(block, Media) and block.kind == "image":
            yield {"type": "content", "content": image(block, blobs)}


def _cut(content: tuple[Shown, ...]) -> str:
    said = words(content)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}\n… {len(said) - LONGEST:,} more"


# --- shapes ---------------------------------------------------------------------------------------


def text_content(said: str) -> Json:
    """Words as part of a call."""
    return {"type": "content", "content": {"type": "text", "text": said}}


def result_content(block: Shown, blobs: Blobs) -> Object:
    """One block of what somebody said."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Media(kind="image"):
            return image(block, blobs)
        case Media():
            return {"type": "text", "text": f"[{block.name or block.mime}]"}


def image(block: Media, blobs: Blobs) -> Object:
    """A picture; only its name if its bytes are gone."""
    try:
        data = b64encode(blobs.get(block.blob)).decode()
    except KeyError:
        return {"type": "text", "text": f"[{block.name or block.mime}]"}
    return {"type": "image", "mimeType": block.mime, "data": data}


def diff(path: str, old: str | None, new: str) -> Json:
    """A change of a file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def place(path: str, line: int) -> Json:
    """A place in a file; lines count from one."""
    return {"path": path, "line": line} if line > 0 else {"path": path}


def fenced(said: str) -> str:
    """Words that are shown as they are; they cannot end their own fence."""
    longest = max(map(len, re.findall(r"`{3,}", said)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{said.rstrip()}\n{fence}"


TITLE = 80
LISTING = ("TodoWrite", "TaskCreate", "TaskUpdate")
"""The call that is shown as a plan, and not as a call."""
SILENT = ("end", "aborted", "failed")
"""Ends of a turn that the answer to its prompt tells by itself."""


class Teller:
    """Turns events into updates; it knows the calls that it has told of."""

    def __init__(self, agent: Agent, choices: Choices) -> None:
        self._agent = agent
        self._choices = choices
        self._calls: dict[str, Call] = {}
        self._message = str(uuid4())
        self._streamed = False
        """Whether the reply that is under way was shown as it came."""
        self._titled = bool(agent.session.prompted)

    def updates(self, event: Event) -> Iterator[Object]:
        """What to show of something that happens."""
        match event:
            case Entry():
                yield from self._entry(event.fact)
            case Began():
                self._message, self._streamed = str(uuid4()), False
            case Grew(kind="text", text=text):
                self._streamed = True
                yield self._chunk("agent_message_chunk", text)
            case Grew(kind="thinking", text=text):
                self._streamed = True
                yield self._chunk("agent_thought_chunk", text)
            case Running(call=call) if self.awaits(call):
                yield _updated({"toolCallId": call, "status": "in_progress"})
            case Progress(call=call, text=text) if self.awaits(call):
                shown: list[Json] = [text_content(fenced(text))]
                yield _updated({"toolCallId": call, "content": shown})
            case Retrying():
                yield notice(f"{event.message}; trying again in {event.wait:.1f} s")
            case Warned(text=text):
                yield notice(text)
            case (
                Grew()
                | BlockBegan()
                | BlockEnded()
                | Running()
                | Progress()
                | Doing()
                | Compacting()
                | Signalled()
                | AgentProgress()
            ):
                pass
            case _:
                assert_never(event)

    def replay(self, fact: AnyFact) -> Iterator[Object]:
        """What to show of something that happened before."""
        match fact:
            case User(origin="human", content=content):
                said = [block for block in content if isinstance(block, Media)]
                for block in (*said, Text(typed(content))):
                    shown = result_content(block, self._agent.world.blobs)
                    yield {"sessionUpdate": "user_message_chunk", "content": shown}
            case Assistant(content=content):
                self._message = str(uuid4())
                yield from self._blocks(content)
                yield from self._called(content)
            case Result():
                yield from self._ended(fact)
            case _:
                pass

    def standing(self) -> Iterator[Object]:
        """How things stand, besides what was said."""
        state = self._agent.session.state
        if todos := state.get("todos"):
            yield plan(todos)
        yield self.usage()

    def usage(self) -> Object:
        """How full the window is, and what the session has cost."""
        session, card = self._agent.session, self._choices.card
        cost: Object = {"amount": session.dollars, "currency": "USD"}
        used = context_tokens(session.view)
        return {"sessionUpdate": "usage_update", "used": used, "size": card.window, "cost": cost}

    def described(self, call: Call) -> Object:
        """A call before it runs."""
        return described(call, self._agent.tools, self._cwd)

    def awaits(self, call: str) -> bool:
        """Whether a call is not answered yet."""
        return call in self._calls

    @property
    def _cwd(self) -> str:
        return self._agent.session.state.get("cwd", self._agent.world.root)

    def _entry(self, fact: AnyFact) -> Iterator[Object]:
        match fact:
            case Assistant(content=content):
                if not self._streamed:
                    yield from self._blocks(content)
                self._streamed = False
                yield from self._called(content)
                yield self.usage()
            case Result():
                yield from self._ended(fact)
            case User():
                yield from self._said(fact)
            case Changed():
                yield from self._changed(fact)
            case Epoch():
                yield self._choices.update()
            case Compacted():
                yield notice(receipt(fact))
                yield self.usage()
            case Noted(what="memory", text=text) if kept := told(text):
                yield notice(kept)
            case Ended(why=why, detail=detail) if why not in SILENT and detail:
                yield notice(detail)
            case _:
                pass

    def _blocks(self, content: tuple[AnyBlock, ...]) -> Iterator[Object]:
        for block in content:
            if isinstance(block, Text) and block.text:
                yield self._chunk("agent_message_chunk", block.text)
            elif isinstance(block, Opaque) and block.text:
                yield self._chunk("agent_thought_chunk", block.text)

    def _called(self, content: tuple[AnyBlock, ...]) -> Iterator[Object]:
        for call in called(content):
            if canonical_name(call.name) in LISTING:
                continue
            self._calls[call.id] = call
            yield {"sessionUpdate": "tool_call", "status": "pending", **self.described(call)}

    def _ended(self, result: Result) -> Iterator[Object]:
        if call := self._calls.pop(result.call, None):
            blobs = self._agent.world.blobs
            yield _updated(ended(call, result, cwd=self._cwd, blobs=blobs))

    def _said(self, fact: User) -> Iterator[Object]:
        if fact.origin == "mail":
            yield notice(words(fact.content).partition("\n</mail>")[0][:300])
        elif fact.origin == "human" and not self._titled:
            self._titled = True
            yield titled(typed(fact.content))

    def _changed(self, fact: Changed) -> Iterator[Object]:
        match fact.what:
            case "todos":
                yield plan(fact.value)
            case "name":
                yield titled(fact.value)
            case _ if fact.what == MODE:
                yield {"sessionUpdate": "current_mode_update", "currentModeId": fact.value}
                yield self._choices.update(mode=fact.value)
            case _:
                pass

    def _chunk(self, kind: str, text: str) -> Object:
        content: Object = {"type": "text", "text": text}
        return {"sessionUpdate": kind, "content": content, "messageId": self._message}


def notice(text: str) -> Object:
    """Something that the person should know and the model did not say."""
    content: Object = {"type": "text", "text": f"· {text}\n"}
    kind = "agent_thought_chunk"
    return {"sessionUpdate": kind, "content": content, "messageId": str(uuid4())}


def answer(text: str) -> Object:
    """What a command of ours says."""
    content: Object = {"type": "text", "text": text}
    kind = "agent_message_chunk"
    return {"sessionUpdate": kind, "content": content, "messageId": str(uuid4())}


def titled(text: str) -> Object:
    """What the session is called."""
    line = " ".join(text.split())
    title = line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"
    return {"sessionUpdate": "session_info_update", "title": title}


def plan(todos: str) -> Object:
    """The model's list of what is to be done."""
    entries: list[Json] = [
        {"content": one.content, "status": one.status, "priority": "medium"} for one in read(todos)
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _updated(body: Object) -> Object:
    return {"sessionUpdate": "tool_call_update", **body}


# What sub-agents do, as an editor shows it under the calls that started them.


LAST = 8
"""How many of the last steps of an agent are shown."""
META = "travois/agent"
"""The key under which an update has what an agent does as data."""


class Steps:
    """The last steps of the agents that each call started, and what they are doing."""

    def __init__(self) -> None:
        self._steps: defaultdict[str, deque[str]] = defaultdict(partial(deque[str], maxlen=LAST))
        self._now: dict[str, str] = {}

    def add(self, call: str, event: Event, agent: Agent) -> bool:
        """Take note of the calls that an agent makes; whether there were any."""
        if not isinstance(event, Entry) or not isinstance(event.fact, Assistant):
            return False
        fresh = [summary(each, agent.tools) for each in calls(event.fact.content)]
        self._steps[call].extend(fresh)
        return bool(fresh)

    def progress(self, now: AgentProgress, *, shown: bool) -> Object:
        """Tell what an agent is doing; in words while its call is not answered yet."""
        self._now[now.call] = progress_line(now)
        about: Object = {"agentId": now.id, "doing": now.doing, "lastTool": now.tool}
        about |= {"tokens": now.tokens, "costUsd": now.dollars}
        update = self.update(now.call) if shown else _update(now.call)
        meta: Object = {META: about}
        update["_meta"] = meta
        return update

    def update(self, call: str) -> Object:
        """The update that shows all of it under the call."""
        lines = [line for line in (self._now.get(call, ""), *self._steps[call]) if line]
        update, content = _update(call), list[Json]()
        content.append(text_content(fenced("\n".join(lines))))
        update["content"] = content
        return update


def _update(call: str) -> Object:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call}
