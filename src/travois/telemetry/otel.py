"""Events of a session as spans and measurements, in the words of OpenTelemetry's conventions.

What is said, asked for or found is never told unless the user asked for that, and then without
secrets.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode

from travois.core.content import AnyBlock, Call, calls, words
from travois.core.facts import (
    AnyFact,
    Assistant,
    Compacted,
    Decided,
    Ended,
    Entry,
    Epoch,
    Failed,
    Finished,
    Hooked,
    Result,
    Sent,
    Spawned,
    User,
)
from travois.core.models import Model, Usage, cost
from travois.headless.json_shapes import STOPS
from travois.permissions.secrets import Secrets, find
from travois.ports.world import Event, Retrying
from travois.providers.replies import Began, BlockBegan, Grew
from travois.telemetry.pipe import Pipe

LONGEST = 8_000
"""How many characters of one text are told."""
PROVIDERS = {
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "azure": "azure.ai.openai",
}
"""What the conventions call those whom we call otherwise."""
BEGINS = ("human", "mail", "task")
Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class About(msgspec.Struct, frozen=True):
    """Whose events they are."""

    session: str
    agent: str = ""
    """The kind of agent, for one that was started by another."""
    content: bool = False
    secrets: Secrets = Secrets()


class Telling:
    """Follows one session. `born` and `over` hear of the agents that it starts, and of their end.

    `born` is given the span that the agent's own belong to.
    """

    def __init__(
        self,
        pipe: Pipe,
        about: About,
        *,
        card: Model,
        root: Span,
        born: Callable[[Spawned, int, Context], None],
        over: Callable[[str, int], bool],
    ) -> None:
        self._pipe = pipe
        self._about = about
        self._card = card
        self._root = root
        self._born = born
        self._over = over
        self._turn: Span | None = None
        self._request: Span | None = None
        self._sent = 0
        self._first = 0
        self._heard: list[str] = []
        self._calls: dict[str, Call] = {}
        self._denied: set[str] = set()
        self._open: dict[str, Span] = {}
        """Spans of calls and forks, by their ids."""

    def see(self, now: int, event: Event) -> None:
        """Take one event into account, which came at this time."""
        match event:
            case Entry(at=at, fact=fact):
                self._fact(round(at * 1e9), fact)
            case Began() | BlockBegan() | Grew():
                self._first = self._first or now
            case Retrying(kind=kind):
                self._count("travois.retries", 1, **{"error.type": kind})
            case _:
                pass

    def close(self, at: int) -> None:
        """End everything that is open, once."""
        if not self._root.is_recording():
            return
        self._end_request(at, error="aborted")
        for span in self._open.values():
            span.end(at)
        self._open.clear()
        if self._turn is not None:
            self._turn.end(at)
        self._root.end(at)

    def _fact(self, at: int, fact: AnyFact) -> None:
        match fact:
            case Epoch(model=model):
                self._card = model
            case User(origin=origin, content=content):
                if origin in BEGINS:
                    self._begin(at)
                self._heard.append(self._words(content))
            case Sent():
                self._begin(at)
                self._send(at, fact)
            case Assistant() | Failed():
                self._answered(at, fact)
            case Decided():
                self._decide(at, fact)
            case Result():
                self._result(at, fact)
            case Ended():
                self._finish(at, fact)
            case Hooked() | Compacted() | Spawned() | Finished():
                self._beside(at, fact)
            case _:
                pass

    def _beside(self, at: int, fact: Hooked | Compacted | Spawned | Finished) -> None:
        match fact:
            case Hooked(event=event):
                self._span(f"hook {event}", at, {"travois.hook.event": event}).end(at)
            case Compacted():
                self._compact(at, fact)
            case Spawned(id=id, kind="fork", what=what, call=""):
                self._open[id] = self._span(f"fork {what}", at, self._model("chat"))
            case Spawned():
                above = self._open.get(fact.call) or self._turn or self._root
                self._born(fact, at, trace.set_span_in_context(above))
            case Finished(id=id):
                self._finished(at, fact, apart=self._over(id, at))

    # --- turns ------------------------------------------------------------------------------------

    def _begin(self, at: int) -> None:
        if self._turn is None:
            self._turn = self._span("turn", at, {}, above=self._root)

    def _finish(self, at: int, fact: Ended) -> None:
        self._end_request(at, error="aborted")
        if self._turn is not None:
            self._turn.set_attribute("travois.ended", fact.why)
            if fact.why not in ("end", "refusal"):
                _failed(self._turn, fact.why)
            self._turn.end(at)
        self._turn = None

    # --- requests ---------------------------------------------------------------------------------

    def _send(self, at: int, fact: Sent) -> None:
        told = self._model("chat") | {"travois.request.bytes": fact.size}
        if fact.output:
            told["gen_ai.request.max_tokens"] = fact.output
        if self._about.content:
            told["gen_ai.input.messages"] = _message("user", "\n".join(self._heard))
        self._heard.clear()
        name = f"chat {self._card.id}"
        self._request = self._span(name, at, told, kind=SpanKind.CLIENT)
        self._sent, self._first = at, 0

    def _answered(self, at: int, fact: Assistant | Failed) -> None:
        if isinstance(fact, Assistant):
            self._reply(at, fact)
        else:
            self._end_request(at, error=fact.kind)

    def _reply(self, at: int, fact: Assistant) -> None:
        self._calls |= {call.id: call for call in calls(fact.content)}
        usage, first = fact.usage, max(0, min(self._first, at) - self._sent) / 1e9
        if self._first:
            self._measure("gen_ai.client.operation.time_to_first_chunk", first)
        if self._request is not None:
            told = _counted(usage) | {"gen_ai.response.finish_reasons": (STOPS[fact.stop],)}
            told["gen_ai.response.model"] = fact.model or self._card.id
            if self._first:
                told["gen_ai.response.time_to_first_chunk"] = first
            if fact.id:
                told["gen_ai.response.id"] = fact.id
            if self._about.content:
                told["gen_ai.output.messages"] = _message("assistant", self._words(fact.content))
            self._request.set_attributes(told)
        self._pay(usage, cost(usage, self._card.price))
        if usage.prompt:
            self._measure("travois.cache.read_ratio", usage.read / usage.prompt)
        self._measure("gen_ai.client.token.usage", usage.prompt, **{"gen_ai.token.type": "input"})
        self._measure("gen_ai.client.token.usage", usage.output, **{"gen_ai.token.type": "output"})
        self._end_request(at)

    def _end_request(self, at: int, *, error: str = "") -> None:
        span, self._request = self._request, None
        if span is None:
            return
        outcome: Attributes = {"error.type": error} if error else {}
        if error:
            _failed(span, error)
        span.end(at)
        seconds = max(0.0, (at - self._sent) / 1e9)
        self._measure("gen_ai.client.operation.duration", seconds, **outcome)
        self._count("travois.requests", 1, **outcome)

    def _pay(self, usage: Usage, dollars: float) -> None:
        kinds = {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.read,
            "cache_write": usage.write + usage.write_1h,
        }
        for kind, tokens in kinds.items():
            if tokens:
                self._count("travois.tokens", tokens, **{"gen_ai.token.type": kind})
        if dollars:
            self._count("travois.cost", dollars)

    # --- calls ------------------------------------------------------------------------------------

    def _decide(self, at: int, fact: Decided) -> None:
        name = self._name(fact.call)
        told: Attributes = {"travois.verdict": fact.verdict, "travois.by": fact.by}
        self._count("travois.permission.decisions", 1, **told, **{"gen_ai.tool.name": name})
        if fact.verdict == "deny":
            self._denied.add(fact.call)
        if fact.call in self._open:
            return
        about: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": fact.call,
            "gen_ai.tool.type": "function",
        }
        if self._about.content and fact.call in self._calls:
            about["gen_ai.tool.call.arguments"] = self._plain(self._calls[fact.call].args)
        self._open[fact.call] = self._span(f"execute_tool {name}", at, about | told)

    def _result(self, at: int, fact: Result) -> None:
        span = self._open.pop(fact.call, None)
        if span is None:
            return
        outcome = "error" if fact.error else "done"
        outcome = "denied" if fact.call in self._denied else outcome
        span.set_attribute("travois.outcome", outcome)
        if self._about.content:
            span.set_attribute("gen_ai.tool.call.result", self._words(fact.content))
        if fact.error:
            _failed(span, "tool_error" if outcome == "error" else outcome)
        span.end(at)
        told: Attributes = {"gen_ai.tool.name": self._name(fact.call), "travois.outcome": outcome}
        self._count("travois.tool.calls", 1, **told)

    def _name(self, call: str) -> str:
        return self._calls[call].name if call in self._calls else "unknown"

    # --- what stands beside -----------------------------------------------------------------------

    def _compact(self, at: int, fact: Compacted) -> None:
        told: Attributes = {
            "travois.compaction.by": fact.by,
            "travois.compaction.trigger": fact.trigger or "auto",
        }
        sizes: Attributes = {
            "travois.tokens.before": fact.before,
            "travois.tokens.after": fact.after,
        }
        self._span("compact", at - round(fact.seconds * 1e9), told | sizes).end(at)
        self._count("travois.compactions", 1, **told)

    def _finished(self, at: int, fact: Finished, *, apart: bool) -> None:
        """The end of a fork, or of an agent, whose own events have told what it cost."""
        if (span := self._open.pop(fact.id, None)) is not None:
            span.set_attributes(_counted(fact.usage))
            span.end(at)
        if not apart:
            known = fact.dollars is not None
            price = fact.dollars if known else cost(fact.usage, self._card.price)
            self._pay(fact.usage, price or 0.0)

    # --- the means --------------------------------------------------------------------------------

    def _span(
        self,
        name: str,
        at: int,
        told: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        above: Span | None = None,
    ) -> Span:
        inside = trace.set_span_in_context(above or self._turn or self._root)
        whose: Attributes = {"gen_ai.conversation.id": self._about.session}
        return self._pipe.tracer.start_span(
            name, inside, kind, attributes=whose | told, start_time=at
        )

    def _model(self, operation: str) -> Attributes:
        provider = PROVIDERS.get(self._card.provider, self._card.provider)
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.system": provider,
            "gen_ai.request.model": self._card.id,
        }

    def _count(self, name: str, amount: float, **told: Value) -> None:
        whose: Attributes = {
            "gen_ai.request.model": self._card.id,
            "travois.agent": self._about.agent or "main",
        }
        self._pipe.counters[name].add(amount, whose | told)

    def _measure(self, name: str, amount: float, **told: Value) -> None:
        self._pipe.histograms[name].record(amount, self._model("chat") | told)

    def _words(self, content: tuple[AnyBlock, ...]) -> str:
        return self._plain(words(content)) if self._about.content else ""

    def _plain(self, text: str) -> str:
        """A text without our secrets and what looks like one."""
        text = self._about.secrets.redacted(text)
        for found in reversed(find(text)):
            text = f"{text[: found.start]}[redacted: {found.kind}]{text[found.end :]}"
        return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _counted(usage: Usage) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.read,
        "gen_ai.usage.cache_creation.input_tokens": usage.write + usage.write_1h,
    }


def _message(role: str, text: str) -> str:
    parts = [{"type": "text", "content": text}]
    return msgspec.json.encode([{"role": role, "parts": parts}]).decode()


def _failed(span: Span, why: str) -> None:
    span.set_attribute("error.type", why)
    span.set_status(StatusCode.ERROR, why)
