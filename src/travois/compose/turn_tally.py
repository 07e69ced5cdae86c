"""The outcome of a turn: what it used, cost and was denied, and why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from travois.compat.claude_json import Json, JsonObject
from travois.compose.structured_output import NO_VALID_ANSWER, StructuredAnswer
from travois.core.content import extract_text
from travois.core.cost import compute_cost
from travois.core.facts import (
    Decided,
    Ended,
    EndReason,
    Entry,
    Failed,
    Finished,
    Hooked,
    Sent,
    StopReason,
)
from travois.core.models import ModelCard, Usage
from travois.presentation import ReplyItem, SessionItem, SessionItems, ToolCallItem

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
        self.by_model: dict[str, tuple[ModelCard, Usage, float]] = {}
        """The usage and cost of each model."""
        self._hooked = ""

    def add(self, entry: Entry) -> SessionItem:
        """Record a log entry; return what to show of it."""
        match shown := self.items.add(entry):
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
        return shown

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
        _, used, paid = self.by_model.get(model.id, (model, Usage(), 0.0))
        self.by_model[model.id] = (model, used + usage, paid + dollars)
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
