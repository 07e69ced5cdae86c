"""What happens in a session, as the updates that an editor shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never
from uuid import uuid4

from travois.acp import calls
from travois.acp.options import Choices
from travois.context.compaction.compact import receipt
from travois.core.content import AnyBlock, Call, Media, Opaque, Text, words
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
from travois.core.tool_names import canonical_name
from travois.engine.permission_modes import MODE
from travois.headless.json_shapes import Json, Object
from travois.memory.extraction import told
from travois.ports.agent import Agent
from travois.ports.world import (
    AgentProgress,
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
from travois.tui.todos import read

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
                shown: list[Json] = [calls.text(calls.fenced(text))]
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
                    shown = calls.shown(block, self._agent.world.blobs)
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
        return calls.described(call, self._agent.tools, self._cwd)

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
            yield _updated(calls.ended(call, result, cwd=self._cwd, blobs=blobs))

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
