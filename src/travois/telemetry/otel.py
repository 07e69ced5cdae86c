"""The OpenTelemetry exporter for a session and its subagents.

The SDK loads slowly, so it is loaded alongside the session; events are queued until then.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from threading import Thread

import anyio
import msgspec
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Counter, Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from travois.compat.claude_json import CLAUDE_STOP_REASONS
from travois.core.content import AnyBlock, extract_text
from travois.core.cost import compute_cost
from travois.core.facts import (
    AnyFact,
    Compacted,
    Decided,
    Ended,
    Entry,
    Failed,
    Finished,
    Hooked,
    Result,
    Sent,
    Spawned,
    User,
)
from travois.core.models import ModelCard, Usage
from travois.engine.agent import Agent
from travois.engine.tool_calls import run_child_guarded
from travois.permissions.secrets import Secrets, find_secrets
from travois.ports.world import Command, Event, RequestRetrying
from travois.presentation import ReplyItem, SessionItems, ToolCallItem
from travois.process.local_processes import LocalProcesses
from travois.providers.replies import BlockBegan, Grew, ReplyBegan
from travois.telemetry import SessionTrace, TelemetryOptions
from travois.version import __version__

# The exporters: spans and metrics are sent in the background, or dropped.


SHUTDOWN_SECONDS = 2.0
"""Seconds that the last export may delay the end of a session."""
SHUTDOWN_POLL_SECONDS = 0.01
ERRNO_PATTERN = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
MAX_COMPLAINT_CHARS = 160
TASK_VARIABLE = "TRAVOIS_TASK_ID"
"""The variable with the id of the fleet's task; every span names it."""
"""Characters of an exporter's error that are shown."""
COUNTER_METRICS = {
    "travois.tokens": ("{token}", "Tokens as counted by providers, by kind"),
    "travois.cost": ("USD", "Cost, where prices are known"),
    "travois.requests": ("{request}", "Requests to models, by outcome"),
    "travois.retries": ("{retry}", "Failed requests that were retried"),
    "travois.tool.calls": ("{call}", "Tool calls, by tool and outcome"),
    "travois.permission.decisions": ("{decision}", "Permission decisions, by who decided"),
    "travois.compactions": ("{compaction}", "Compactions of the context window"),
}
HISTOGRAM_METRICS = {
    "gen_ai.client.token.usage": ("{token}", "Tokens of one request"),
    "gen_ai.client.operation.duration": ("s", "Duration of one request"),
    "gen_ai.client.operation.time_to_first_chunk": ("s", "Time to the first chunk"),
    "travois.cache.read_ratio": ("1", "Share of a prompt read from the provider's cache"),
}


class ExporterComplaints(logging.Handler):
    """A log handler that keeps exporter errors off the screen and remembers the first."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the first error."""
        text = record.getMessage()
        reason = ERRNO_PATTERN.search(text)
        self.first = self.first or (reason[1] if reason else text[:MAX_COMPLAINT_CHARS])


class OtelPipe(msgspec.Struct, frozen=True):
    """Tracer, metrics and providers of one session."""

    tracer: Tracer
    counters: Mapping[str, Counter]
    histograms: Mapping[str, Histogram]
    above: Context
    """The parent context from our own environment."""
    complaints: ExporterComplaints
    providers: tuple[TracerProvider, MeterProvider]

    def start_root_span(self, id: str, kind: str, *, at: int, context: Context) -> Span:
        """Start the root span of a session or of a subagent."""
        about = {"gen_ai.conversation.id": id, "gen_ai.operation.name": "invoke_agent"}
        about |= {"gen_ai.agent.name": kind or "travois"} | _task_attributes()
        name = f"invoke_agent {kind}" if kind else "session"
        return self.tracer.start_span(name, context, attributes=about, start_time=at)

    async def close(self) -> str:
        """Flush, if that is quick; return why something was not delivered."""
        ends = [Thread(target=one.shutdown, daemon=True) for one in self.providers]
        for end in ends:
            end.start()
        with anyio.move_on_after(SHUTDOWN_SECONDS):
            while any(end.is_alive() for end in ends) and not self.complaints.first:  # noqa: ASYNC110 - threads
                await anyio.sleep(SHUTDOWN_POLL_SECONDS)
        late = any(end.is_alive() for end in ends) and f"no answer within {SHUTDOWN_SECONDS:g} s"
        return self.complaints.first or late or ""


class SpanIds(RandomIdGenerator):
    """Span ids, of which the first is the one that child processes were given."""

    def __init__(self, trace: SessionTrace) -> None:
        self._spans = [int(trace.span, 16)]
        self._traces = [int(trace.trace, 16)]

    def generate_span_id(self) -> int:
        """Return the next span id."""
        return self._spans.pop() if self._spans else super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        return self._traces.pop() if self._traces else super().generate_trace_id()


def create_otel_pipe(session: str, trace: SessionTrace, headers: Mapping[str, str]) -> OtelPipe:
    """Create the OpenTelemetry exporters for the collector in the standard variables."""
    resource, ids = Resource.create(_resource_attributes(session)), SpanIds(trace)
    tracers = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    told = dict(headers) or None
    if os.environ.get("OTEL_TRACES_EXPORTER") != "none":
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(headers=told)))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter(headers=told))]
    if os.environ.get("OTEL_METRICS_EXPORTER") == "none":
        readers = []
    meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    meter = meters.get_meter("travois", __version__)
    return OtelPipe(
        tracers.get_tracer("travois", __version__),
        {name: meter.create_counter(name, *about) for name, about in COUNTER_METRICS.items()},
        {name: meter.create_histogram(name, *about) for name, about in HISTOGRAM_METRICS.items()},
        TraceContextTextMapPropagator().extract({"traceparent": trace.above}),
        _capture_complaints(),
        (tracers, meters),
    )


def _resource_attributes(session: str) -> dict[str, str]:
    """Return the OpenTelemetry resource: version, session, and service name unless set."""
    known = {"service.version": __version__, "session.id": session}
    named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if named or os.environ.get("OTEL_SERVICE_NAME"):
        return known
    return known | {"service.name": "travois"}


def _task_attributes() -> dict[str, str]:
    """Return the OpenTelemetry attributes of the fleet task that this run belongs to."""
    task = os.environ.get(TASK_VARIABLE, "")
    return {"travois.task.id": task} if task else {}


def _capture_complaints() -> ExporterComplaints:
    """Catch the log messages of the OpenTelemetry SDK, so that none reaches the screen."""
    complaints, logger = ExporterComplaints(), logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [complaints], False
    return complaints


# Session events as spans and metrics, by OpenTelemetry's semantic conventions.


MAX_CONTENT_CHARS = 8_000
"""Characters of one text that are exported."""
PROVIDER_NAMES = {
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "azure": "azure.ai.openai",
}
"""Provider names of the semantic conventions, where they differ from ours."""
TURN_ORIGINS = ("human", "mail", "task")
AttributeValue = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, AttributeValue]


class EventSource(msgspec.Struct, frozen=True):
    """The session or subagent that events belong to."""

    session: str
    agent: str = ""
    """The agent type of a subagent."""
    content: bool = False
    secrets: Secrets = Secrets()


class OtelExporter:
    """Exports the events of one session or subagent.

    `born` is called for each subagent that starts, with its parent context, and `over` for its end.
    """

    def __init__(
        self,
        pipe: OtelPipe,
        about: EventSource,
        *,
        card: ModelCard,
        root: Span,
        born: Callable[[Spawned, int, Context], None],
        over: Callable[[str, int], bool],
    ) -> None:
        self._pipe = pipe
        self._about = about
        self._items = SessionItems(card)
        self._root = root
        self._born = born
        self._over = over
        self._turn: Span | None = None
        self._request: Span | None = None
        self._sent = 0
        self._first = 0
        self._heard: list[str] = []
        self._open: dict[str, Span] = {}
        """Spans of calls and forks, by id."""

    def handle_event(self, now: int, event: Event) -> None:
        """Handle an event that occurred at `now`."""
        match event:
            case Entry(at=at):
                self._handle_entry(round(at * 1e9), event)
            case ReplyBegan() | BlockBegan() | Grew():
                self._first = self._first or now
            case RequestRetrying(kind=kind):
                self._count("travois.retries", 1, **{"error.type": kind})
            case _:
                pass

    def close(self, at: int) -> None:
        """End all open spans, once."""
        if not self._root.is_recording():
            return
        self._end_request(at, error="aborted")
        for span in self._open.values():
            span.end(at)
        self._open.clear()
        if self._turn is not None:
            self._turn.end(at)
        self._root.end(at)

    def _handle_entry(self, at: int, entry: Entry) -> None:
        match self._items.add(entry):
            case ReplyItem() as item:
                self._record_reply(at, item)
            case ToolCallItem(result=Result() as fact) as item:
                self._end_call(at, item, fact)
            case ToolCallItem(decided=Decided() as fact) as item:
                self._start_call(at, item, fact)
            case _:
                self._handle_fact(at, entry.fact)

    def _handle_fact(self, at: int, fact: AnyFact) -> None:
        match fact:
            case User(origin=origin, content=content):
                if origin in TURN_ORIGINS:
                    self._start_turn(at)
                self._heard.append(self._content_text(content))
            case Sent():
                self._start_turn(at)
                self._start_request(at, fact)
            case Failed(kind=kind):
                self._end_request(at, error=kind)
            case Ended():
                self._end_turn(at, fact)
            case Hooked() | Compacted() | Spawned() | Finished():
                self._handle_side_fact(at, fact)
            case _:
                pass

    @property
    def _current_model(self) -> ModelCard:
        assert self._items.model is not None
        return self._items.model

    def _handle_side_fact(self, at: int, fact: Hooked | Compacted | Spawned | Finished) -> None:
        match fact:
            case Hooked(event=event):
                self._start_span(f"hook {event}", at, {"travois.hook.event": event}).end(at)
            case Compacted():
                self._record_compaction_span(at, fact)
            case Spawned(id=id, kind="fork", what=what, call=""):
                self._open[id] = self._start_span(
                    f"fork {what}", at, self._model_attributes("chat")
                )
            case Spawned():
                above = self._open.get(fact.call) or self._turn or self._root
                self._born(fact, at, trace.set_span_in_context(above))
            case Finished(id=id):
                self._end_agent(at, fact, apart=self._over(id, at))

    def _start_turn(self, at: int) -> None:
        if self._turn is None:
            self._turn = self._start_span("turn", at, {}, above=self._root)

    def _end_turn(self, at: int, fact: Ended) -> None:
        self._end_request(at, error="aborted")
        if self._turn is not None:
            self._turn.set_attribute("travois.ended", fact.why)
            if fact.why not in ("end", "refusal"):
                _mark_failed(self._turn, fact.why)
            self._turn.end(at)
        self._turn = None

    def _start_request(self, at: int, fact: Sent) -> None:
        told = self._model_attributes("chat") | {"travois.request.bytes": fact.size}
        told["gen_ai.request.max_tokens"] = fact.output or self._current_model.output
        if self._about.content:
            told["gen_ai.input.messages"] = _message_json("user", "\n".join(self._heard))
        self._heard.clear()
        name = f"chat {self._current_model.id}"
        self._request = self._start_span(name, at, told, kind=SpanKind.CLIENT)
        self._sent, self._first = at, 0

    def _record_reply(self, at: int, item: ReplyItem) -> None:
        fact = item.fact
        usage, first = fact.usage, max(0, min(self._first, at) - self._sent) / 1e9
        if self._first:
            self._measure("gen_ai.client.operation.time_to_first_chunk", first)
        if self._request is not None:
            told = _usage_attributes(usage) | {
                "gen_ai.response.finish_reasons": (CLAUDE_STOP_REASONS[fact.stop],)
            }
            told["gen_ai.response.model"] = fact.model or self._current_model.id
            if self._first:
                told["gen_ai.response.time_to_first_chunk"] = first
            if fact.id:
                told["gen_ai.response.id"] = fact.id
            if self._about.content:
                told["gen_ai.output.messages"] = _message_json(
                    "assistant", self._content_text(fact.content)
                )
            self._request.set_attributes(told)
        self._count_usage(usage, item.dollars)
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
            _mark_failed(span, error)
        span.end(at)
        seconds = max(0.0, (at - self._sent) / 1e9)
        self._measure("gen_ai.client.operation.duration", seconds, **outcome)
        self._count("travois.requests", 1, **outcome)

    def _count_usage(self, usage: Usage, dollars: float) -> None:
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

    def _start_call(self, at: int, item: ToolCallItem, fact: Decided) -> None:
        name = item.call.name or "unknown"
        told: Attributes = {"travois.verdict": fact.verdict, "travois.by": fact.by}
        self._count("travois.permission.decisions", 1, **told, **{"gen_ai.tool.name": name})
        if fact.call in self._open:
            return
        about: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": fact.call,
            "gen_ai.tool.type": "function",
        }
        if self._about.content and item.call.name:
            about["gen_ai.tool.call.arguments"] = self._redact_attribute(item.call.args)
        self._open[fact.call] = self._start_span(f"execute_tool {name}", at, about | told)

    def _end_call(self, at: int, item: ToolCallItem, fact: Result) -> None:
        span = self._open.pop(fact.call, None)
        if span is None:
            return
        outcome = "error" if fact.error else "done"
        outcome = "denied" if item.is_denied else outcome
        span.set_attribute("travois.outcome", outcome)
        if self._about.content:
            span.set_attribute("gen_ai.tool.call.result", self._content_text(fact.content))
        if fact.error:
            _mark_failed(span, "tool_error" if outcome == "error" else outcome)
        span.end(at)
        name = item.call.name or "unknown"
        told: Attributes = {"gen_ai.tool.name": name, "travois.outcome": outcome}
        self._count("travois.tool.calls", 1, **told)

    def _record_compaction_span(self, at: int, fact: Compacted) -> None:
        told: Attributes = {
            "travois.compaction.by": fact.by,
            "travois.compaction.trigger": fact.trigger or "auto",
        }
        sizes: Attributes = {
            "travois.tokens.before": fact.before,
            "travois.tokens.after": fact.after,
        }
        self._start_span("compact", at - round(fact.seconds * 1e9), told | sizes).end(at)
        self._count("travois.compactions", 1, **told)

    def _end_agent(self, at: int, fact: Finished, *, apart: bool) -> None:
        """End a fork or subagent; count its cost unless its own events did."""
        if (span := self._open.pop(fact.id, None)) is not None:
            span.set_attributes(_usage_attributes(fact.usage))
            span.end(at)
        if not apart:
            known = fact.dollars is not None
            price = fact.dollars if known else compute_cost(fact.usage, self._current_model.price)
            self._count_usage(fact.usage, price or 0.0)

    def _start_span(
        self,
        name: str,
        at: int,
        told: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        above: Span | None = None,
    ) -> Span:
        inside = trace.set_span_in_context(above or self._turn or self._root)
        whose: Attributes = {"gen_ai.conversation.id": self._about.session, **_task_attributes()}
        return self._pipe.tracer.start_span(
            name, inside, kind, attributes=whose | told, start_time=at
        )

    def _model_attributes(self, operation: str) -> Attributes:
        provider = PROVIDER_NAMES.get(self._current_model.provider, self._current_model.provider)
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.system": provider,
            "gen_ai.request.model": self._current_model.id,
        }

    def _count(self, name: str, amount: float, **told: AttributeValue) -> None:
        whose: Attributes = {
            "gen_ai.request.model": self._current_model.id,
            "travois.agent": self._about.agent or "main",
        }
        self._pipe.counters[name].add(amount, whose | told)

    def _measure(self, name: str, amount: float, **told: AttributeValue) -> None:
        self._pipe.histograms[name].record(amount, self._model_attributes("chat") | told)

    def _content_text(self, content: tuple[AnyBlock, ...]) -> str:
        return self._redact_attribute(extract_text(content)) if self._about.content else ""

    def _redact_attribute(self, text: str) -> str:
        """Redact secrets and clip the text."""
        text = self._about.secrets.redact(text)
        for found in reversed(find_secrets(text)):
            text = f"{text[: found.start]}[redacted: {found.kind}]{text[found.end :]}"
        return text if len(text) <= MAX_CONTENT_CHARS else text[:MAX_CONTENT_CHARS] + "…"


def _usage_attributes(usage: Usage) -> Attributes:
    """Return a reply's token counts as OpenTelemetry span attributes."""
    return {
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.read,
        "gen_ai.usage.cache_creation.input_tokens": usage.write + usage.write_1h,
    }


def _message_json(role: str, text: str) -> str:
    parts = [{"type": "text", "content": text}]
    return msgspec.json.encode([{"role": role, "parts": parts}]).decode()


def _mark_failed(span: Span, why: str) -> None:
    span.set_attribute("error.type", why)
    span.set_status(StatusCode.ERROR, why)


HEADERS_HELPER_SECONDS = 10.0
"""Seconds that the headers helper may run."""


class AgentArrival(msgspec.Struct, frozen=True):
    """The start of an agent: its type, time and parent context."""

    kind: str
    at: int
    above: Context


class FollowedAgent(msgspec.Struct):
    """An agent and its queued events."""

    agent: Agent
    events: MemoryObjectReceiveStream[Event]
    line: deque[tuple[int, Event]] = msgspec.field(default_factory=deque[tuple[int, Event]])
    """Events that are not exported yet, with their times."""
    telling: OtelExporter | None = None

    def drain(self) -> None:
        """Queue the events that were not received yet."""
        while self.events.statistics().current_buffer_used:
            self.line.append((time.time_ns(), self.events.receive_nowait()))


class TelemetryObserver:
    """Follows a session and all its subagents; `trouble` is why that failed."""

    def __init__(self, session: str, telemetry: TelemetryOptions) -> None:
        self.trouble = ""
        self.place = SessionTrace(os.environ.get("TRACEPARENT", ""))
        self._since = time.time_ns()
        self._session = session
        self._wish = telemetry
        self._pipe: OtelPipe | None = None
        self._followed: dict[str, FollowedAgent] = {}
        self._arrivals: dict[str, AgentArrival] = {}

    def add_agent(self, id: str, followed: FollowedAgent) -> None:
        """Register an agent before its first event."""
        self._followed[id] = followed

    async def follow_agent(self, id: str) -> None:
        """Export an agent's events; a failure here does not disturb the session."""
        agent = self._followed[id].agent
        self.trouble = (
            await run_child_guarded(agent, partial(self._export_events, id)) or self.trouble
        )

    async def connect(self) -> None:
        """Load the SDK and connect to the collector."""
        agent = self._followed[self._session].agent
        self.trouble = await run_child_guarded(agent, partial(self._connect, agent)) or self.trouble

    async def _export_events(self, id: str) -> None:
        async for event in self._followed[id].events:
            self._followed[id].line.append((time.time_ns(), event))
            self._export_waiting(id)

    async def _connect(self, agent: Agent) -> None:
        headers = await _run_headers_helper(self._wish.helper, agent)
        with anyio.CancelScope(shield=True):
            self._pipe = await to_thread.run_sync(
                create_otel_pipe, self._session, self.place, headers
            )
            self._begin_agent(self._session, AgentArrival("", self._since, self._pipe.above))

    def _export_waiting(self, id: str) -> None:
        """Export the queued events of an agent whose parent context is known."""
        telling = self._exporter_for(id)
        while telling is not None and self._followed[id].line:
            telling.handle_event(*self._followed[id].line.popleft())

    def _begin_agent(self, id: str, arrival: AgentArrival) -> None:
        self._arrivals[id] = arrival
        self._export_waiting(id)

    def _on_agent_start(self, fact: Spawned, at: int, context: Context) -> None:
        self._begin_agent(fact.id, AgentArrival(fact.kind, at, context))

    def _on_agent_end(self, id: str, at: int) -> bool:
        """End an agent; return whether its own events counted its cost."""
        telling = self._exporter_for(id)
        if telling is None:
            return False
        self._followed[id].drain()
        self._export_waiting(id)
        telling.close(at)
        return True

    def _exporter_for(self, id: str) -> OtelExporter | None:
        """Return the exporter of an agent, created once its parent context is known."""
        followed, arrival = self._followed.get(id), self._arrivals.get(id)
        if followed is None or arrival is None or self._pipe is None:
            return None
        if followed.telling is None:
            session = followed.agent.session
            assert session.view.epoch is not None
            about = EventSource(id, arrival.kind, self._wish.content, session.secrets)
            followed.telling = OtelExporter(
                self._pipe,
                about,
                card=session.view.epoch.model,
                root=self._pipe.start_root_span(
                    id, arrival.kind, at=arrival.at, context=arrival.above
                ),
                born=self._on_agent_start,
                over=self._on_agent_end,
            )
        return followed.telling

    async def close(self) -> str:
        """Export the rest and disconnect; return why something was not delivered."""
        if self._pipe is None:
            return self.trouble
        for id in list(self._followed):
            self._followed[id].drain()
            self._export_waiting(id)
        for followed in reversed(self._followed.values()):
            if followed.telling is not None:
                followed.telling.close(time.time_ns())
        return self.trouble or await self._pipe.close()


@asynccontextmanager
async def observe_session(
    agent: Agent, session: str, telemetry: TelemetryOptions, *, tell: Callable[[str], None]
) -> AsyncGenerator[None]:
    """Export a session's telemetry during the block; report a failure with `tell`."""
    observer, before, processes = (
        TelemetryObserver(session, telemetry),
        agent.team.on_child,
        agent.world.processes,
    )
    if isinstance(processes, LocalProcesses):
        processes.export_variable("TRACEPARENT", observer.place.traceparent)
    with ExitStack() as watches:
        async with anyio.create_task_group() as group:

            def on_child(child: Agent) -> None:
                before(child)
                assert child.team.birth is not None
                events = watches.enter_context(child.session.watch())
                observer.add_agent(child.team.birth.id, FollowedAgent(child, events))
                group.start_soon(observer.follow_agent, child.team.birth.id)

            agent.team.on_child = on_child
            events = watches.enter_context(agent.session.watch())
            observer.add_agent(session, FollowedAgent(agent, events))
            group.start_soon(observer.follow_agent, session)
            group.start_soon(observer.connect)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            if why := await observer.close():
                tell(f"telemetry was not delivered: {why}")


async def _run_headers_helper(helper: str, agent: Agent) -> dict[str, str]:
    """Run the telemetry headers helper and parse its output."""
    if not helper:
        return {}
    command = Command(("/bin/sh", "-c", helper), agent.world.root, stderr="apart")
    done = await agent.world.processes.run(command, timeout=HEADERS_HELPER_SECONDS)
    try:
        return msgspec.json.decode(done.output.head_and_tail(), type=dict[str, str])
    except msgspec.DecodeError:
        raise OSError("otelHeadersHelper did not print headers as a JSON object") from None
