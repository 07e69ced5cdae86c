"""What a turn has come to, in the words of other agents' clients."""

from __future__ import annotations

from collections.abc import Mapping

from travois.core.content import Call, calls, words
from travois.core.facts import (
    Assistant,
    Decided,
    Ended,
    EndedWhy,
    Entry,
    Epoch,
    Failed,
    Finished,
    Hooked,
    Sent,
    Stop,
)
from travois.core.models import Model, Usage, cost
from travois.core.tool_names import canonical
from travois.headless.json_shapes import STOPS, Json, Object, arguments, usage_json
from travois.headless.structured_output import FAILED, Shape

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
    "aborted": "aborted_tools",
    "failed": "model_error",
    "hook": "hook_stopped",
    "crashed": "turn_setup_failed",
}
FAILURES = {
    "overflow": "prompt_too_long",
    "compaction": "prompt_too_long",
    "large": "prompt_too_long",
    "media": "image_error",
    "missing": "model_error",
}
"""What it means that no reply came; any other kind is an error of the API."""
ERRORS = {
    "auth": "authentication_failed",
    "forbidden": "authentication_failed",
    "billing": "billing_error",
    "quota": "billing_error",
    "rate": "rate_limit",
    **dict.fromkeys(("overloaded", "server", "network", "timeout", "garbled"), "server_error"),
}
"""What clients call it; any other kind is a request that could not be understood."""


class Tally:
    """What a turn has come to so far, folded from its entries."""

    def __init__(self, model: Model, minds: Mapping[str, Model] | None = None) -> None:
        """`minds` are the models of agents that were started, where they are known."""
        self.model = model
        self.usage = Usage()
        self.dollars = 0.0
        self.turns = 0
        self.api_seconds = 0.0
        self.text = ""
        self.stop: Stop | None = None
        self.shape: Shape | None = None
        self.denials: list[Json] = []
        self.denied: list[tuple[str, str]] = []
        """The tools of denied calls, and why each was denied."""
        self.ended = Ended("crashed")
        self.failure: Failed | None = None
        """Why no reply came to the last request."""
        self.finished: set[int] = set()
        """The entries of what went on beside the conversation and is paid."""
        self._minds: Mapping[str, Model] = minds or {}
        self._served: dict[str, tuple[Model, Usage, float]] = {}
        self._calls: dict[str, Call] = {}
        self._sent: float | None = None
        self._hooked = ""

    def add(self, entry: Entry) -> None:
        """Take one more entry into account."""
        match entry.fact:
            case Epoch() as fact:
                self.model = fact.model
            case Sent():
                self._sent, self.failure = entry.at, None
            case Failed() as fact:
                self._sent, self.failure = None, fact
            case Assistant() as fact:
                self._reply(fact, at=entry.at)
            case Finished() as fact:
                self.pay(entry.seq, fact)
            case Decided(verdict="deny", by=by, call=call, because=because):
                if by != "schema" and call in self._calls:
                    self._deny(canonical(self._calls[call]), because)
            case Hooked(event=event):
                self._hooked = event
            case Ended() as fact:
                self.ended = fact
            case _:
                pass

    def _deny(self, call: Call, because: str) -> None:
        denial: Object = {"tool_name": call.name, "tool_use_id": call.id}
        self.denials.append(denial | {"tool_input": arguments(call)})
        self.denied.append((call.name, because))

    def _reply(self, fact: Assistant, *, at: float) -> None:
        self.turns += 1
        self.api_seconds += max(0.0, at - (at if self._sent is None else self._sent))
        self._sent = None
        self.usage += fact.usage
        self._spend(self.model, fact.usage, cost(fact.usage, self.model.price))
        self.text, self.stop = words(fact.content), fact.stop
        self._calls = {call.id: call for call in calls(fact.content)}

    def pay(self, seq: int, fact: Finished) -> None:
        """Count what an agent, or a question beside the conversation, has cost."""
        model = self._minds.get(fact.id, self.model)
        dollars = cost(fact.usage, model.price) if fact.dollars is None else fact.dollars
        self.finished.add(seq)
        self._spend(model, fact.usage, dollars)

    def _spend(self, model: Model, usage: Usage, dollars: float) -> None:
        _, used, paid = self._served.get(model.id, (model, Usage(), 0.0))
        self._served[model.id] = (model, used + usage, paid + dollars)
        self.dollars += dollars

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

    @property
    def error(self) -> str:
        """What clients call the reason why no reply came; empty if one did."""
        if self.ended.why != "failed" or self.failure is None:
            return ""
        return ERRORS.get(self.failure.kind, "invalid_request")

    @property
    def terminal(self) -> str:
        """Why the turn is over, in a word that clients know."""
        if self.shape is not None and self.shape.exhausted:
            return "structured_output_retry_exhausted"
        match self.ended.why:
            case "failed" if self.failure is not None:
                return FAILURES.get(self.failure.kind, "api_error")
            case "aborted" if self._sent is not None or self.stop != "calls":
                return "aborted_streaming"
            case "hook" if self._hooked == "Stop":
                return "stop_hook_prevented"
            case why:
                return TERMINAL[why]

    def result(self, seconds: float) -> Object:
        """All of it, as the last line of a turn tells it."""
        told: Object = {"errors": [self.trouble]} if self.failed else {"result": self.text}
        subtype = SUBTYPES.get(self.ended.why, "error_during_execution")
        if self.shape is not None and self.shape.given:
            told["structured_output"] = self.shape.value
        elif self.shape is not None and self.shape.exhausted:
            subtype = "error_max_structured_output_retries"
        if self.error and self.failure and self.failure.status:
            told["api_error_status"] = self.failure.status
        return {
            "subtype": subtype,
            "is_error": self.failed,
            **told,
            "duration_ms": round(seconds * 1000),
            "duration_api_ms": round(self.api_seconds * 1000),
            "num_turns": self.turns,
            "stop_reason": STOPS[self.stop] if self.stop else None,
            "terminal_reason": self.terminal,
            "total_cost_usd": self.dollars,
            "usage": usage_json(self.usage),
            "modelUsage": {id: _spent(*each) for id, each in self._served.items()},
            "permission_denials": self.denials,
        }


def _spent(model: Model, usage: Usage, dollars: float) -> Object:
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
