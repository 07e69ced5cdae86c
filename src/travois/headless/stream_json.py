"""A turn as `stream-json` lines (Claude Code's format)."""

from __future__ import annotations

from time import monotonic, time
from typing import assert_never

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
from travois.compose.turn_tally import TurnTally
from travois.core.content import extract_text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Compacted,
    Decided,
    Ended,
    EndReason,
    Entry,
    Failed,
    Hooked,
    Noted,
    Result,
    Sent,
    User,
)
from travois.core.json import as_list, as_object
from travois.core.models import ModelCard, Usage
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
from travois.providers.replies import BlockBegan, BlockEnded, Grew, ReplyBegan

# The outcome of a turn, in the terms of Claude Code's clients.


RESULT_SUBTYPES: dict[EndReason, str] = {
    "end": "success",
    "refusal": "success",
    "turns": "error_max_turns",
    "budget": "error_max_budget_usd",
}


def build_result_json(tally: TurnTally, *, seconds: float) -> JsonObject:
    """Build the fields of the result line, in the terms of Claude Code's clients."""
    told: JsonObject = (
        {"errors": [tally.failure_text]} if tally.is_failure else {"result": tally.text}
    )
    subtype = RESULT_SUBTYPES.get(tally.ended.why, "error_during_execution")
    if tally.api_error_name:  # as clients expect it: the run went well, the API did not
        subtype = "success"
        told = {"result": tally.api_error_text}
    if tally.shape is not None and tally.shape.given:
        told["structured_output"] = tally.shape.value
    elif tally.shape is not None and tally.shape.is_exhausted:
        subtype = "error_max_structured_output_retries"
    if tally.api_error_name and tally.failure and tally.failure.status:
        told["api_error_status"] = tally.failure.status
    return {
        "subtype": subtype,
        "is_error": tally.is_failure,
        "outcome": tally.outcome,
        **told,
        "duration_ms": round(seconds * 1000),
        "duration_api_ms": round(tally.api_seconds * 1000),
        "num_turns": tally.turns,
        "stop_reason": CLAUDE_STOP_REASONS[tally.stop] if tally.stop else None,
        "terminal_reason": tally.terminal_reason,
        "total_cost_usd": tally.dollars,
        "usage": encode_claude_usage(tally.usage),
        "modelUsage": {id: _model_usage_json(*each) for id, each in tally.by_model.items()},
        "permission_denials": tally.denials,
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
        return self._line_without_entry(
            "result", build_result_json(self.tally, seconds=seconds) | origin
        )

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
