"""OpenTelemetry export of sessions, off unless enabled.

`opentelemetry` is imported only if it is enabled. The engine knows nothing of it: telemetry watches
a session's events as a screen does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.settings.schema import Settings

with lazy_imports():
    from importlib import util


OTLP_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
OTLP_ENDPOINT_VARIABLES = (
    OTLP_ENDPOINT_VARIABLE,
    *(f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT" for kind in ("TRACES", "METRICS")),
)
CAPTURE_CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
TRACEPARENT_PATTERN = compile_lazily(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class TelemetryOptions(msgspec.Struct, frozen=True):
    """Options of enabled telemetry."""

    content: bool = False
    """True to export prompts, replies, and tool input and output."""
    helper: str = ""
    """A command that prints headers for the collector as JSON."""


class SessionTrace:
    """The trace and span of a session, fixed before the SDK is loaded: child processes get them."""

    def __init__(self, above: str) -> None:
        found = TRACEPARENT_PATTERN.fullmatch(above)
        self.above = above if found else ""
        """The parent context from our own `TRACEPARENT`."""
        self.trace = found[1] if found else os.urandom(16).hex()
        self.span = os.urandom(8).hex()

    @property
    def traceparent(self) -> str:
        """The `TRACEPARENT` for processes that we start."""
        return f"00-{self.trace}-{self.span}-01"


def read_telemetry_options(
    settings: Settings, environ: Mapping[str, str]
) -> TelemetryOptions | None:
    """Return the telemetry options; None if telemetry is off."""
    asked = settings.telemetry or any(environ.get(name) for name in OTLP_ENDPOINT_VARIABLES)
    if not asked or _is_true(environ.get("OTEL_SDK_DISABLED", "")):
        return None
    return TelemetryOptions(
        _is_true(environ.get(CAPTURE_CONTENT_VARIABLE, "")), settings.otel_headers_helper
    )


def is_otel_installed() -> bool:
    """Return whether the OpenTelemetry packages are installed."""
    try:
        return util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "span_only", "span_and_event")
