"""The way to the collector: spans and measurements leave in the background, or not at all."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from threading import Thread

import anyio
import msgspec
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
from opentelemetry.trace import Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from travois.telemetry import Place
from travois.version import __version__

LEAVING = 2.0
"""How many seconds what is still to be sent may hold up the end of a session."""
GLANCE = 0.01
REASON = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
SHORT = 160
"""How much of a complaint the user hears."""
COUNTERS = {
    "travois.tokens": ("{token}", "Tokens that providers counted, by kind"),
    "travois.cost": ("USD", "What they cost, as far as prices are known"),
    "travois.requests": ("{request}", "Requests to models, by how they ended"),
    "travois.retries": ("{retry}", "Requests that failed and were tried again"),
    "travois.tool.calls": ("{call}", "Tool calls, by tool and outcome"),
    "travois.permission.decisions": ("{decision}", "Whether calls could run, and who said so"),
    "travois.compactions": ("{compaction}", "How often the window was made smaller"),
}
HISTOGRAMS = {
    "gen_ai.client.token.usage": ("{token}", "Tokens of one request"),
    "gen_ai.client.operation.duration": ("s", "How long one request took"),
    "gen_ai.client.operation.time_to_first_chunk": ("s", "How long the first word took"),
    "travois.cache.read_ratio": ("1", "The part of a prompt that came from the provider's cache"),
}


class Complaints(logging.Handler):
    """Keeps what the exporters complain about from the screen; the first is enough."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Remember it, if nothing was said before."""
        text = record.getMessage()
        reason = REASON.search(text)
        self.first = self.first or (reason[1] if reason else text[:SHORT])


class Pipe(msgspec.Struct, frozen=True):
    """What spans and measurements are made with."""

    tracer: Tracer
    counters: Mapping[str, Counter]
    histograms: Mapping[str, Histogram]
    above: Context
    """What was under way when we were started, as our own variables say."""
    complaints: Complaints
    providers: tuple[TracerProvider, MeterProvider]

    def root(self, id: str, kind: str, *, at: int, above: Context) -> Span:
        """The span of a session, or of an agent of this kind."""
        about = {"gen_ai.conversation.id": id, "gen_ai.operation.name": "invoke_agent"}
        about["gen_ai.agent.name"] = kind or "travois"
        name = f"invoke_agent {kind}" if kind else "session"
        return self.tracer.start_span(name, above, attributes=about, start_time=at)

    async def close(self) -> str:
        """Send what is left, if that is quick; returns why something was not delivered."""
        ends = [Thread(target=one.shutdown, daemon=True) for one in self.providers]
        for end in ends:
            end.start()
        with anyio.move_on_after(LEAVING):
            while any(end.is_alive() for end in ends) and not self.complaints.first:  # noqa: ASYNC110 - threads
                await anyio.sleep(GLANCE)
        late = any(end.is_alive() for end in ends) and f"nothing was heard in {LEAVING:g} s"
        return self.complaints.first or late or ""


class Ids(RandomIdGenerator):
    """Ids of spans: the first is the one that programs were told."""

    def __init__(self, place: Place) -> None:
        self._spans = [int(place.span, 16)]
        self._traces = [int(place.trace, 16)]

    def generate_span_id(self) -> int:
        """The next span's."""
        return self._spans.pop() if self._spans else super().generate_span_id()

    def generate_trace_id(self) -> int:
        """The next trace's."""
        return self._traces.pop() if self._traces else super().generate_trace_id()


def lay(session: str, place: Place, headers: Mapping[str, str]) -> Pipe:
    """A way to the collector that the standard variables name."""
    resource, ids = Resource.create(_about(session)), Ids(place)
    tracers = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    told = dict(headers) or None
    if os.environ.get("OTEL_TRACES_EXPORTER") != "none":
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(headers=told)))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter(headers=told))]
    if os.environ.get("OTEL_METRICS_EXPORTER") == "none":
        readers = []
    meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    meter = meters.get_meter("travois", __version__)
    return Pipe(
        tracers.get_tracer("travois", __version__),
        {name: meter.create_counter(name, *about) for name, about in COUNTERS.items()},
        {name: meter.create_histogram(name, *about) for name, about in HISTOGRAMS.items()},
        TraceContextTextMapPropagator().extract({"traceparent": place.above}),
        _hushed(),
        (tracers, meters),
    )


def _about(session: str) -> dict[str, str]:
    known = {"service.version": __version__, "session.id": session}
    named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if named or os.environ.get("OTEL_SERVICE_NAME"):
        return known
    return known | {"service.name": "travois"}


def _hushed() -> Complaints:
    complaints, logger = Complaints(), logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [complaints], False
    return complaints
