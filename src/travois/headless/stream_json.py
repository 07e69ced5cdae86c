"""A turn as `stream-json` lines (Claude Code's format)."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, time
from typing import Literal, assert_never

import msgspec

from travois.compat.claude_json import (
    CLAUDE_STOP_REASONS,
    Json,
    JsonObject,
    encode_claude_block,
    encode_claude_stream_event,
    encode_claude_usage,
    make_line_uuid,
)
from travois.core.content import extract_text
from travois.core.cost import compute_cost
from travois.core.facts import (
    AnyFact,
    Assistant,
    Compacted,
    Decided,
    Ended,
    EndReason,
    Entry,
    Failed,
    Finished,
    Hooked,
    Noted,
    Result,
    Sent,
    StopReason,
    User,
)
from travois.core.json import as_list, as_object
from travois.core.models import ModelCard, Usage
from travois.headless.structured_output import NO_VALID_ANSWER, StructuredAnswer
from travois.memory.extraction import render_extraction_note
from travois.memory.recall_text import find_shown_names
from travois.ports.world import (
    ActivityShown,
    AgentProgress,
    CompactionProgress,
    Event,
    RequestRetrying,
    TerminalSignal,
    ToolProgress,
    ToolStarted,
    UserWarned,
)
from travois.presentation import ReplyItem, SessionItems, ToolCallItem
from travois.providers.replies import BlockBegan, BlockEnded, Grew, ReplyBegan

# The outcome of a turn, in the terms of Claude Code's clients.


RESULT_SUBTYPES: dict[EndReason, str] = {
    "end": "success",
    "refusal": "success",
    "turns": "error_max_turns",
    "budget": "error_max_budget_usd",
}
TERMINAL_REASONS: dict[EndReason, str] = {
    "end": "completed",
    "refusal": "completed",
    "turns": "max_turns",
    "budget": "budget_exhausted",
    "aborted": "aborted_tools",
    "failed": "model_error",
    "hook": "hook_stopped",
    "crashed": "turn_setup_failed",
}
FAILURE_REASONS = {
    "overflow": "prompt_too_long",
    "compaction": "prompt_too_long",
    "large": "prompt_too_long",
    "media": "image_error",
}
"""Terminal reasons of failed requests; any other is "api_error"."""
API_ERROR_NAMES = {
    "auth": "authentication_failed",
    "forbidden": "authentication_failed",
    "billing": "billing_error",
    "quota": "billing_error",
    "rate": "rate_limit",
    **dict.fromkeys(("overloaded", "server", "network", "timeout", "garbled"), "server_error"),
}
"""Client-side names of errors; any other is "invalid_request"."""


Outcome = Literal["done", "failed", "limit", "refused", "retryable", "interrupted"]
PASSING_ERRORS = ("rate_limit", "server_error")
"""API errors after which the same run may succeed later."""


class TurnTally:
    """The outcome of a turn so far."""

    def __init__(self, model: ModelCard, minds: Mapping[str, ModelCard] | None = None) -> None:
        """Start empty; `minds` are the models of subagents, where known."""
        self.items = SessionItems(model)
        self.usage = Usage()
        self.dollars = 0.0
        self.turns = 0
        self.api_seconds = 0.0
        self.text = ""
        self.stop: StopReason | None = None
        self.shape: StructuredAnswer | None = None
        self.denials: list[Json] = []
        self.denied: list[tuple[str, str]] = []
        """The tool and reason of each denied call."""
        self.ended = Ended("crashed")
        self.failure: Failed | None = None
        """The failure of the last request, if it got no reply."""
        self._minds: Mapping[str, ModelCard] = minds or {}
        self._served: dict[str, tuple[ModelCard, Usage, float]] = {}
        self._hooked = ""

    def add(self, entry: Entry) -> None:
        """Record a log entry."""
        match self.items.add(entry):
            case ReplyItem() as item:
                self.turns += 1
                self.api_seconds += item.seconds
                self.usage += item.fact.usage
                self._add_model_usage(self.model, item.fact.usage, item.dollars)
                self.text, self.stop = extract_text(item.fact.content), item.fact.stop
            case ToolCallItem(result=None, decided=Decided() as fact) as item:
                if item.is_denied and fact.by != "schema" and item.name:
                    denial: JsonObject = {"tool_name": item.name, "tool_use_id": item.id}
                    self.denials.append(denial | {"tool_input": item.arguments})
                    self.denied.append((item.name, fact.because))
            case Entry(fact=Sent()):
                self.failure = None
            case Entry(fact=Failed() as fact):
                self.failure = fact
            case Entry(fact=Finished() as fact):
                self.add_side_cost(fact)
            case Entry(fact=Hooked(event=event)):
                self._hooked = event
            case Entry(fact=Ended() as fact):
                self.ended = fact
            case _:
                pass

    @property
    def model(self) -> ModelCard:
        """The current model."""
        assert self.items.model is not None
        return self.items.model

    def add_side_cost(self, fact: Finished) -> None:
        """Add the cost of a subagent or of a side request."""
        model = self._minds.get(fact.id, self.model)
        dollars = compute_cost(fact.usage, model.price) if fact.dollars is None else fact.dollars
        self._add_model_usage(model, fact.usage, dollars)

    def _add_model_usage(self, model: ModelCard, usage: Usage, dollars: float) -> None:
        _, used, paid = self._served.get(model.id, (model, Usage(), 0.0))
        self._served[model.id] = (model, used + usage, paid + dollars)
        self.dollars += dollars

    @property
    def failure_text(self) -> str:
        """Return why the turn failed."""
        if self.shape is not None and self.shape.is_exhausted:
            return NO_VALID_ANSWER
        return self.ended.detail or self.ended.why

    @property
    def is_failure(self) -> bool:
        """True unless the turn ended with the model's last word and any required answer."""
        unshaped = self.shape is not None and self.shape.is_exhausted
        return unshaped or self.ended.why not in ("end", "refusal")

    @property
    def api_error_name(self) -> str:
        """The client-side name of the API error; empty without one."""
        if self.ended.why != "failed" or self.failure is None:
            return ""
        return API_ERROR_NAMES.get(self.failure.kind, "invalid_request")

    @property
    def api_error_text(self) -> str:
        """Return what clients show of an API error."""
        return f"API Error: {self.failure_text}"

    @property
    def outcome(self) -> Outcome:
        """Return how the turn ended, as far as it matters to who started it."""
        match self.ended.why:
            case "end" if not self.is_failure:
                return "done"
            case "refusal" if not self.is_failure:
                return "refused"
            case "turns" | "budget":
                return "limit"
            case "aborted":
                return "interrupted"
            case "failed" if self.api_error_name in PASSING_ERRORS:
                return "retryable"
            case _:
                return "failed"

    @property
    def terminal_reason(self) -> str:
        """Return why the turn ended, as clients name it."""
        if self.shape is not None and self.shape.is_exhausted:
            return "structured_output_retry_exhausted"
        match self.ended.why:
            case "failed" if self.failure is not None:
                return FAILURE_REASONS.get(self.failure.kind, "api_error")
            case "aborted" if self.items.sent is not None or self.stop != "calls":
                return "aborted_streaming"
            case "hook" if self._hooked == "Stop":
                return "stop_hook_prevented"
            case why:
                return TERMINAL_REASONS[why]

    def result_json(self, seconds: float) -> JsonObject:
        """Build the fields of the result line."""
        told: JsonObject = (
            {"errors": [self.failure_text]} if self.is_failure else {"result": self.text}
        )
        subtype = RESULT_SUBTYPES.get(self.ended.why, "error_during_execution")
        if self.api_error_name:  # as clients expect it: the run went well, the API did not
            subtype = "success"
            told = {"result": self.api_error_text}
        if self.shape is not None and self.shape.given:
            told["structured_output"] = self.shape.value
        elif self.shape is not None and self.shape.is_exhausted:
            subtype = "error_max_structured_output_retries"
        if self.api_error_name and self.failure and self.failure.status:
            told["api_error_status"] = self.failure.status
        return {
            "subtype": subtype,
            "is_error": self.is_failure,
            "outcome": self.outcome,
            **told,
            "duration_ms": round(seconds * 1000),
            "duration_api_ms": round(self.api_seconds * 1000),
            "num_turns": self.turns,
            "stop_reason": CLAUDE_STOP_REASONS[self.stop] if self.stop else None,
            "terminal_reason": self.terminal_reason,
            "total_cost_usd": self.dollars,
            "usage": encode_claude_usage(self.usage),
            "modelUsage": {id: _model_usage_json(*each) for id, each in self._served.items()},
            "permission_denials": self.denials,
        }


def build_failure_line(session: str, why: str) -> JsonObject:
    """Build the result line of a run whose session could not be opened."""
    return {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "errors": [why],
        "duration_ms": 0,
        "duration_api_ms": 0,
        "num_turns": 0,
        "stop_reason": None,
        "terminal_reason": "turn_setup_failed",
        "total_cost_usd": 0.0,
        "usage": encode_claude_usage(Usage()),
        "modelUsage": {},
        "permission_denials": [],
        "session_id": session,
        "uuid": make_line_uuid(session, why),
    }


def _model_usage_json(model: ModelCard, usage: Usage, dollars: float) -> JsonObject:
    """Build a model's token counts, cost and limits for the `stream-json` result line."""
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "cacheReadInputTokens": usage.read,
        "cacheCreationInputTokens": usage.write + usage.write_1h,
        "webSearchRequests": usage.searches,
        "costUSD": dollars,
        "contextWindow": model.window,
        "maxOutputTokens": model.output,
    }


PROGRESS_SECONDS = 1.0
"""Seconds between two progress lines of a call."""


class StreamJsonOptions(msgspec.Struct, frozen=True):
    """Optional parts of the output."""

    partial: bool = False
    """Stream events."""
    replay: bool = False
    """User messages."""
    hooks: bool = False
    """Hook events."""
    forward: bool = False
    """Text of subagents; otherwise only their tool calls."""


DEFAULT_STREAM_OPTIONS = StreamJsonOptions()


class StreamJsonWriter:
    """Turns the events of one turn into lines; `parent` is the call of a subagent."""

    def __init__(
        self,
        session: str,
        tally: TurnTally,
        *,
        telling: StreamJsonOptions = DEFAULT_STREAM_OPTIONS,
        parent: str | None = None,
    ) -> None:
        self.tally = tally
        self.given = ""
        """The client's id of the turn's prompt."""
        self.origin: JsonObject | None = None
        """Who the turn's prompt is from, as the client said it."""
        self._session = session
        self._telling = telling
        self._parent = parent
        self._count = 0
        self._sent = monotonic()
        self._running: dict[str, tuple[str, float]] = {}
        self._shown: dict[str, float] = {}
        """When each running call started, and at which run time it was last reported."""
        self._compacting = False
        """True if the last status line says "compacting"."""

    def lines(self, event: Event) -> list[JsonObject]:
        """Return the lines for an event."""
        match event:
            case Entry():
                self.tally.add(event)
                self._sent = monotonic() if isinstance(event.fact, Sent) else self._sent
                return self._entry_lines(event.seq, event.fact)
            case ReplyBegan() | BlockBegan() | Grew() | BlockEnded():
                raw = encode_claude_stream_event(event) if self._telling.partial else None
                first: JsonObject = {}
                if isinstance(event, ReplyBegan):
                    first["ttft_ms"] = round(1000 * (monotonic() - self._sent))
                return [self._stream_line(raw) | first] if raw else []
            case RequestRetrying():
                return [*self._rate_limit_lines(event), self._retry_line(event)]
            case UserWarned():
                return [
                    self._line_without_entry(
                        "system", {"subtype": "informational", "content": event.text}
                    )
                ]
            case ToolStarted():
                self._running[event.call] = (event.name, monotonic())
                return []
            case ToolProgress():
                return self._progress_lines(event)
            case CompactionProgress():
                return self._compacting_lines(event)
            case TerminalSignal() | ActivityShown() | AgentProgress():
                return []
            case _:
                assert_never(event)

    def _progress_lines(self, event: ToolProgress) -> list[JsonObject]:
        """Return a progress line, at most once a second."""
        name, began = self._running.get(event.call, ("", monotonic()))
        seconds = monotonic() - began
        if seconds - self._shown.get(event.call, -PROGRESS_SECONDS) < PROGRESS_SECONDS:
            return []
        self._shown[event.call] = seconds
        body: JsonObject = {"tool_use_id": event.call, "tool_name": name}
        body |= {"parent_tool_use_id": self._parent, "elapsed_time_seconds": round(seconds, 1)}
        return [self._line_without_entry("tool_progress", body)]

    def result_line(self, seconds: float) -> JsonObject:
        """Return the last line of a turn."""
        origin: JsonObject = {"origin": self.origin} if self.origin else {}
        return self._line_without_entry("result", self.tally.result_json(seconds) | origin)

    def reset_line(self, following: str) -> JsonObject:
        """Return the line that says that another session follows, with an empty conversation."""
        return self._line_without_entry("conversation_reset", {"new_conversation_id": following})

    def init_line(self, body: JsonObject) -> JsonObject:
        """Return the first line of a turn."""
        return self._line_without_entry("system", {"subtype": "init", **body})

    def subagent_lines(self, event: Event) -> list[JsonObject]:
        """Return the lines of a subagent: its calls and results, or everything."""
        if not isinstance(event, Entry) or not isinstance(event.fact, Assistant | Result):
            return []
        lines = self._entry_lines(event.seq, event.fact)
        talk = isinstance(event.fact, Assistant) and not self._telling.forward
        return [line for line in lines if not talk or _has_tool_use(line)]

    def _entry_lines(self, seq: int, fact: AnyFact) -> list[JsonObject]:
        match fact:
            case Compacted() | Failed():
                return self._compaction_stream_lines(fact)
            case Decided(verdict="deny") if fact.by != "schema":
                return [self._denial_line(fact)]
            case Hooked() if self._telling.hooks:
                return [self._hook_line(fact)]
            case User(origin="human") if self._telling.replay:
                return [self._replay_line(seq, fact)]
            case Assistant():
                return [*self._reply_lines(seq, fact), *self._close_stream(fact)]
            case Result():
                self._running.pop(fact.call, None)
                self._shown.pop(fact.call, None)
                return [self._tool_result_stream_line(seq, fact)]
            case User() if fact.origin != "human":
                content: list[Json] = [encode_claude_block(part) for part in fact.content]
                synthetic = self._user_line(seq, content) | {"isSynthetic": True}
                return [*self._recall_lines(extract_text(fact.content)), synthetic]
            case Noted(what="memory", text=text):
                return self._memory_stream_lines(render_extraction_note(text))
            case Ended() if self.tally.api_error_name:
                return [self._api_error_line(seq)]
            case _:
                return []

    def _replay_line(self, seq: int, fact: User) -> JsonObject:
        said = self._user_line(seq, [encode_claude_block(part) for part in fact.content])
        return said | ({"uuid": self.given} if self.given else {}) | {"isReplay": True}

    def _compact_boundary(self, fact: Compacted) -> JsonObject:
        told: JsonObject = {
            "trigger": "manual" if fact.trigger == "manual" else "auto",
            "pre_tokens": fact.before,
            "post_tokens": fact.after,
            "duration_ms": round(fact.seconds * 1000),
            "summary_by": fact.source or fact.by,
        }
        return self._line_without_entry(
            "system", {"subtype": "compact_boundary", "compact_metadata": told}
        )

    def _compacting_lines(self, event: CompactionProgress) -> list[JsonObject]:
        """Return the compaction status; repeated while it runs, withdrawn if it fails."""
        before, self._compacting = self._compacting, not event.over
        if not event.over:
            return [self._status_line("compacting")]
        return [self._status_line(None, compact_result="failed")] if before else []

    def _compaction_stream_lines(self, fact: Compacted | Failed) -> list[JsonObject]:
        """Return the outcome of a compaction."""
        before, self._compacting = self._compacting, False
        match fact:
            case Compacted():
                return [
                    self._compact_boundary(fact),
                    self._status_line(None, compact_result="success"),
                ]
            case Failed(kind="compaction"):
                return [self._status_line(None, compact_result="failed")]
            case _:
                self._compacting = before
                return []

    def _status_line(self, status: str | None, **more: str) -> JsonObject:
        return self._line_without_entry("system", {"subtype": "status", "status": status, **more})

    def _denial_line(self, fact: Decided) -> JsonObject:
        name = self.tally.items.find_call(fact.call).call.name
        told: JsonObject = {"subtype": "permission_denied", "tool_use_id": fact.call}
        told |= {"tool_name": name, "decision_reason": fact.because}
        return self._line_without_entry("system", told)

    def _hook_line(self, fact: Hooked) -> JsonObject:
        told: JsonObject = {"subtype": "hook_response", "hook_event": fact.event}
        told |= {"hook_name": fact.command, "outcome": fact.outcome, "tool_use_id": fact.call}
        return self._line_without_entry("system", told)

    def _api_error_line(self, seq: int) -> JsonObject:
        """Build an assistant message that reports an API error."""
        said: JsonObject = {"type": "text", "text": self.tally.api_error_text}
        message: JsonObject = {"id": f"msg_{seq}", "type": "message", "role": "assistant"}
        message |= {
            "model": "<synthetic>",
            "content": [said],
            "usage": encode_claude_usage(Usage()),
        }
        message |= {"stop_reason": "stop_sequence", "stop_sequence": ""}
        line: JsonObject = {
            "type": "assistant",
            "message": message,
            "error": self.tally.api_error_name,
        }
        return line | {"parent_tool_use_id": self._parent, **self._line_ids(str(seq))}

    def _recall_lines(self, note: str) -> list[JsonObject]:
        found: list[Json] = [{"name": name} for name in find_shown_names(note)]
        body: JsonObject = {"subtype": "memory_recall", "mode": "select", "memories": found}
        return [self._line_without_entry("system", body)] if found else []

    def _memory_stream_lines(self, text: str) -> list[JsonObject]:
        body: JsonObject = {"subtype": "informational", "content": text}
        return [self._line_without_entry("system", body)] if text else []

    def _reply_lines(self, seq: int, fact: Assistant) -> list[JsonObject]:
        message: JsonObject = {
            "id": fact.id or f"msg_{seq}",
            "type": "message",
            "role": "assistant",
            "model": fact.model or self.tally.model.id,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": encode_claude_usage(fact.usage),
        }
        lines: list[JsonObject] = []
        for index, block in enumerate(fact.content):
            whole: JsonObject = {**message, "content": [encode_claude_block(block)]}
            line: JsonObject = {"type": "assistant", "message": whole}
            line["parent_tool_use_id"] = self._parent
            if fact.request:
                line["request_id"] = fact.request
            lines.append(line | self._line_ids(f"{seq}.{index}"))
        return lines

    def _tool_result_stream_line(self, seq: int, fact: Result) -> JsonObject:
        content: list[Json] = [encode_claude_block(part) for part in fact.content]
        block: JsonObject = {"type": "tool_result", "tool_use_id": fact.call, "content": content}
        if fact.error:
            block["is_error"] = True
        detail: Json = (
            msgspec.json.decode(fact.detail) if fact.detail else extract_text(fact.content)
        )
        return self._user_line(seq, [block]) | {"tool_use_result": detail}

    def _user_line(self, seq: int, content: list[Json]) -> JsonObject:
        return {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": self._parent,
            **self._line_ids(str(seq)),
        }

    def _close_stream(self, fact: Assistant) -> list[JsonObject]:
        if not self._telling.partial:
            return []
        delta: JsonObject = {"stop_reason": CLAUDE_STOP_REASONS[fact.stop], "stop_sequence": None}
        last: JsonObject = {
            "type": "message_delta",
            "delta": delta,
            "usage": encode_claude_usage(fact.usage),
        }
        return [self._stream_line(last), self._stream_line({"type": "message_stop"})]

    def _stream_line(self, event: JsonObject) -> JsonObject:
        return self._line_without_entry(
            "stream_event", {"event": event, "parent_tool_use_id": self._parent}
        )

    def _rate_limit_lines(self, event: RequestRetrying) -> list[JsonObject]:
        """Return the rate limit line."""
        info: JsonObject = {"status": "rejected", "resetsAt": round(time() + event.wait)}
        line = self._line_without_entry("rate_limit_event", {"rate_limit_info": info})
        return [line] if event.kind == "rate" else []

    def _retry_line(self, event: RequestRetrying) -> JsonObject:
        body: JsonObject = {
            "subtype": "api_retry",
            "attempt": event.attempt,
            "max_retries": event.attempts,
            "retry_delay_ms": round(event.wait * 1000),
            "error_status": event.status or None,
            "error": event.message,
        }
        return self._line_without_entry("system", body)

    def _line_without_entry(self, kind: str, body: JsonObject) -> JsonObject:
        """Build a line that stands for no log entry."""
        self._count += 1
        return {"type": kind, **body, **self._line_ids(f"{id(self)}.{self._count}")}

    def _line_ids(self, what: str) -> JsonObject:
        """Return the session id, and a line id that is stable when the line is repeated."""
        own = f"{self._parent}/{what}" if self._parent else what
        return {"session_id": self._session, "uuid": make_line_uuid(self._session, own)}


def _has_tool_use(line: JsonObject) -> bool:
    """Return whether a `stream-json` line contains a tool call."""
    message = as_object(line.get("message"))
    return any(
        as_object(block).get("type") == "tool_use" for block in as_list(message.get("content"))
    )
