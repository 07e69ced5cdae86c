"""A turn as the JSON lines that other agents' clients read."""

from __future__ import annotations

from hashlib import blake2b
from typing import assert_never

import msgspec

from travois.app.shaped import FAILED, Shape
from travois.app.shapes import (
    STOPS,
    Json,
    Object,
    arguments,
    block_json,
    stream_json,
    usage_json,
)
from travois.context.memory.shown import names
from travois.engine.extract import told
from travois.engine.ports import Event, Progress, Retrying, Running, Warned
from travois.kernel.blocks import Call, calls, words
from travois.kernel.facts import (
    AnyFact,
    Assistant,
    Compacted,
    Decided,
    Ended,
    EndedWhy,
    Entry,
    Epoch,
    Hooked,
    Noted,
    Result,
    Sent,
    Stop,
    User,
)
from travois.kernel.models import Model, Usage, cost
from travois.wire.loose import rows, table
from travois.wire.replies import Began, BlockBegan, BlockEnded, Grew

SUBTYPES: dict[EndedWhy, str] = {
    "end": "success",
    "refusal": "success",
    "turns": "error_max_turns",
    "budget": "error_max_budget_usd",
}
TERMINAL: dict[EndedWhy, str] = {
    "end": "completed",
    "refusal": "completed",
    "turns": "max_turns",
    "budget": "budget_exhausted",
    "aborted": "aborted_streaming",
    "failed": "api_error",
    "hook": "hook_stopped",
    "crashed": "turn_setup_failed",
}


class Tally:
    """What a turn has come to so far, folded from its entries."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.usage = Usage()
        self.dollars = 0.0
        self.turns = 0
        self.api_seconds = 0.0
        self.text = ""
        self.stop: Stop | None = None
        self.shape: Shape | None = None
        self.denials: list[Json] = []
        self.ended = Ended("crashed")
        self._calls: dict[str, Call] = {}
        self._sent = 0.0

    def add(self, entry: Entry) -> None:
        """Take one more entry into account."""
        match entry.fact:
            case Epoch() as fact:
                self.model = fact.model
            case Sent():
                self._sent = entry.at
            case Assistant() as fact:
                self._reply(fact, seconds=entry.at - self._sent)
            case Decided(verdict="deny") as fact if fact.by != "schema":
                call = self._calls[fact.call]
                denial: Object = {"tool_name": call.name, "tool_use_id": call.id}
                self.denials.append(denial | {"tool_input": arguments(call)})
            case Ended() as fact:
                self.ended = fact
            case _:
                pass

    def _reply(self, fact: Assistant, *, seconds: float) -> None:
        self.turns += 1
        self.api_seconds += max(0.0, seconds)
        self.usage += fact.usage
        self.dollars += cost(fact.usage, self.model.price)
        self.text, self.stop = words(fact.content), fact.stop
        self._calls = {call.id: call for call in calls(fact.content)}

    @property
    def trouble(self) -> str:
        """Why the turn failed."""
        if self.shape is not None and self.shape.exhausted:
            return FAILED
        return self.ended.detail or self.ended.why

    def name(self, call: str) -> str:
        """The tool of a call of the last reply."""
        return self._calls[call].name if call in self._calls else ""

    @property
    def failed(self) -> bool:
        """Whether the turn ended in anything but the model's last word, in its form."""
        unshaped = self.shape is not None and self.shape.exhausted
        return unshaped or self.ended.why not in ("end", "refusal")


class Telling(msgspec.Struct, frozen=True):
    """What else is told of a turn."""

    partial: bool = False
    """The stream as it comes."""
    replay: bool = False
    """What people said."""
    hooks: bool = False
    """That hooks ran."""
    forward: bool = False
    """What agents say that were started; else only what they do."""


PLAIN = Telling()


class Speaker:
    """Turns the events of one turn into lines; `parent` is the call whose agent it is."""

    def __init__(
        self, session: str, model: Model, *, telling: Telling = PLAIN, parent: str | None = None
    ) -> None:
        self.tally = Tally(model)
        self.given = ""
        """The name that whoever said it gave to the prompt of the turn."""
        self._session = session
        self._telling = telling
        self._parent = parent
        self._count = 0

    def lines(self, event: Event) -> list[Object]:
        """What to print for this event."""
        match event:
            case Entry():
                self.tally.add(event)
                return self._entry(event.seq, event.fact)
            case Began() | BlockBegan() | Grew() | BlockEnded():
                raw = stream_json(event) if self._telling.partial else None
                return [self._stream(raw)] if raw else []
            case Retrying():
                return [self._retry(event)]
            case Warned():
                return [self._loose("system", {"subtype": "informational", "content": event.text})]
            case Running() | Progress():
                return []
            case _:
                assert_never(event)

    def result(self, seconds: float) -> Object:
        """The last line of a turn."""
        tally, why = self.tally, self.tally.ended.why
        told: Object = {"errors": [tally.trouble]} if tally.failed else {"result": tally.text}
        subtype, terminal = SUBTYPES.get(why, "error_during_execution"), TERMINAL[why]
        if tally.shape is not None and tally.shape.given:
            told["structured_output"] = tally.shape.value
        elif tally.shape is not None and tally.shape.exhausted:
            subtype = "error_max_structured_output_retries"
            terminal = "structured_output_retry_exhausted"
        body: Object = {
            "subtype": subtype,
            "is_error": tally.failed,
            **told,
            "duration_ms": round(seconds * 1000),
            "duration_api_ms": round(tally.api_seconds * 1000),
            "num_turns": tally.turns,
            "stop_reason": STOPS[tally.stop] if tally.stop else None,
            "terminal_reason": terminal,
            "total_cost_usd": tally.dollars,
            "usage": usage_json(tally.usage),
            "modelUsage": {tally.model.id: self._model_usage()},
            "permission_denials": tally.denials,
        }
        return self._loose("result", body)

    def opening(self, body: Object) -> Object:
        """The first line of a turn."""
        return self._loose("system", {"subtype": "init", **body})

    def child(self, event: Event) -> list[Object]:
        """What to print of an agent that was started: its calls and their results, or all."""
        if not isinstance(event, Entry) or not isinstance(event.fact, Assistant | Result):
            return []
        lines = self._entry(event.seq, event.fact)
        talk = isinstance(event.fact, Assistant) and not self._telling.forward
        return [line for line in lines if not talk or _acts(line)]

    def _entry(self, seq: int, fact: AnyFact) -> list[Object]:
        match fact:
            case Compacted():
                return [self._compacted(fact)]
            case Decided(verdict="deny") if fact.by != "schema":
                return [self._denied(fact)]
            case Hooked() if self._telling.hooks:
                return [self._hooked(fact)]
            case User(origin="human") if self._telling.replay:
                return [self._replayed(seq, fact)]
            case Assistant():
                return [*self._blocks(seq, fact), *self._close(fact)]
            case Result():
                return [self._result(seq, fact)]
            case User() if fact.origin != "human":
                content: list[Json] = [block_json(part) for part in fact.content]
                synthetic = self._user(seq, content) | {"isSynthetic": True}
                return [*self._recalled(words(fact.content)), synthetic]
            case Noted(what="memory", text=text):
                return self._remembered(told(text))
            case _:
                return []

    def _replayed(self, seq: int, fact: User) -> Object:
        said = self._user(seq, [block_json(part) for part in fact.content])
        return said | ({"uuid": self.given} if self.given else {}) | {"isReplay": True}

    def _compacted(self, fact: Compacted) -> Object:
        told: Object = {
            "trigger": "manual" if fact.trigger == "manual" else "auto",
            "pre_tokens": fact.before,
            "post_tokens": fact.after,
            "duration_ms": round(fact.seconds * 1000),
        }
        return self._loose("system", {"subtype": "compact_boundary", "compact_metadata": told})

    def _denied(self, fact: Decided) -> Object:
        told: Object = {"subtype": "permission_denied", "tool_use_id": fact.call}
        told |= {"tool_name": self.tally.name(fact.call), "decision_reason": fact.because}
        return self._loose("system", told)

    def _hooked(self, fact: Hooked) -> Object:
        told: Object = {"subtype": "hook_response", "hook_event": fact.event}
        told |= {"hook_name": fact.command, "outcome": fact.outcome, "tool_use_id": fact.call}
        return self._loose("system", told)

    def _recalled(self, note: str) -> list[Object]:
        found: list[Json] = [{"name": name} for name in names(note)]
        body: Object = {"subtype": "memory_recall", "mode": "select", "memories": found}
        return [self._loose("system", body)] if found else []

    def _remembered(self, text: str) -> list[Object]:
        body: Object = {"subtype": "informational", "content": text}
        return [self._loose("system", body)] if text else []

    def _blocks(self, seq: int, fact: Assistant) -> list[Object]:
        message: Object = {
            "id": fact.id or f"msg_{seq}",
            "type": "message",
            "role": "assistant",
            "model": fact.model or self.tally.model.id,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_json(fact.usage),
        }
        lines: list[Object] = []
        for index, block in enumerate(fact.content):
            whole: Object = {**message, "content": [block_json(block)]}
            line: Object = {"type": "assistant", "message": whole}
            line["parent_tool_use_id"] = self._parent
            lines.append(line | self._ids(f"{seq}.{index}"))
        return lines

    def _result(self, seq: int, fact: Result) -> Object:
        content: list[Json] = [block_json(part) for part in fact.content]
        block: Object = {"type": "tool_result", "tool_use_id": fact.call, "content": content}
        if fact.error:
            block["is_error"] = True
        detail: Json = msgspec.json.decode(fact.detail) if fact.detail else words(fact.content)
        return self._user(seq, [block]) | {"tool_use_result": detail}

    def _user(self, seq: int, content: list[Json]) -> Object:
        return {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": self._parent,
            **self._ids(str(seq)),
        }

    def _close(self, fact: Assistant) -> list[Object]:
        if not self._telling.partial:
            return []
        delta: Object = {"stop_reason": STOPS[fact.stop], "stop_sequence": None}
        last: Object = {"type": "message_delta", "delta": delta, "usage": usage_json(fact.usage)}
        return [self._stream(last), self._stream({"type": "message_stop"})]

    def _stream(self, event: Object) -> Object:
        return self._loose("stream_event", {"event": event, "parent_tool_use_id": self._parent})

    def _retry(self, event: Retrying) -> Object:
        body: Object = {
            "subtype": "api_retry",
            "attempt": event.attempt,
            "max_retries": event.attempts,
            "retry_delay_ms": round(event.wait * 1000),
            "error_status": event.status or None,
            "error": event.message,
        }
        return self._loose("system", body)

    def _model_usage(self) -> Object:
        usage, model = self.tally.usage, self.tally.model
        return {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "cacheReadInputTokens": usage.read,
            "cacheCreationInputTokens": usage.write + usage.write_1h,
            "webSearchRequests": 0,
            "costUSD": self.tally.dollars,
            "contextWindow": model.window,
            "maxOutputTokens": model.output,
        }

    def _loose(self, kind: str, body: Object) -> Object:
        """A line that stands for no entry of the log."""
        self._count += 1
        return {"type": kind, **body, **self._ids(f"{id(self)}.{self._count}")}

    def _ids(self, what: str) -> Object:
        """The session's id, and one for this line that is the same whenever it is told again."""
        own = f"{self._parent}/{what}" if self._parent else what
        return {"session_id": self._session, "uuid": uuid(self._session, own)}


def _acts(line: Object) -> bool:
    message = table(line.get("message"))
    return any(table(block).get("type") == "tool_use" for block in rows(message.get("content")))


def uuid(session: str, what: str) -> str:
    """The name of one line of a session: for what a person said, `what` is its entry."""
    name = blake2b(f"{session}/{what}".encode(), digest_size=16).hexdigest()
    parts = (name[:8], name[8:12], "4" + name[13:16], "8" + name[17:20], name[20:])
    return "-".join(parts)
