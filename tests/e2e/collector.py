"""A collector for telemetry: takes OTLP over HTTP as a real one does, and keeps what it got."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Attributes = dict[str, Any]


@dataclass
class Span:
    """A span as it was told."""

    name: str
    id: str
    parent: str
    trace: str
    attributes: Attributes
    failed: bool


@dataclass
class Collector:
    """What came in."""

    url: str = ""
    raw: bytes = b""
    spans: list[Span] = field(default_factory=list)
    points: list[tuple[str, float, Attributes]] = field(default_factory=list)
    resources: list[Attributes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> None:
        self.raw += body
        if path == "/v1/traces":
            self._traces(ExportTraceServiceRequest.FromString(body))
        else:
            self._metrics(ExportMetricsServiceRequest.FromString(body))

    def tree(self) -> list[str]:
        """The names of all spans, each below its parent, in the order of their start."""
        known = {span.id for span in self.spans}
        roots = [span for span in self.spans if span.parent not in known]
        return [line for root in roots for line in self._below(root, 0)]

    def total(self, name: str, **wanted: str) -> float:
        """The sum of a counter over all points with these attributes."""
        told = (p for p in self.points if p[0] == name)
        return sum(p[1] for p in told if wanted.items() <= p[2].items())

    def one(self, name: str) -> Span:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def _below(self, span: Span, depth: int) -> Iterator[str]:
        yield "  " * depth + span.name
        for other in self.spans:
            if other.parent == span.id:
                yield from self._below(other, depth + 1)

    def _traces(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            self.resources.append(_told(group.resource.attributes))
            for scope in group.scope_spans:
                self.spans += [
                    Span(
                        one.name,
                        one.span_id.hex(),
                        one.parent_span_id.hex(),
                        one.trace_id.hex(),
                        _told(one.attributes) | {"start": one.start_time_unix_nano},
                        one.status.code == 2,
                    )
                    for one in scope.spans
                ]
        self.spans.sort(key=lambda span: span.attributes["start"])

    def _metrics(self, request: ExportMetricsServiceRequest) -> None:
        for group in request.resource_metrics:
            for metric in (one for scope in group.scope_metrics for one in scope.metrics):
                for point in metric.sum.data_points:
                    value = point.as_double or float(point.as_int)
                    self.points.append((metric.name, value, _told(point.attributes)))
                for count in metric.histogram.data_points:
                    told = _told(count.attributes)
                    self.points.append((metric.name, float(count.sum), told))


def _told(attributes: Any) -> Attributes:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on the loopback."""
    kept = Collector()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept.headers.append({name.lower(): value for name, value in self.headers.items()})
            kept.take(self.path, body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
