"""OpenTelemetry export of sessions, off unless enabled.

`opentelemetry` is imported only if it is enabled. The engine knows nothing of it: telemetry watches
a session's events as a screen does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import msgspec

from travois.settings.schema import Settings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENDPOINTS = (ENDPOINT, *(f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT" for kind in ("TRACES", "METRICS")))
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
MISSING = "telemetry is enabled but not installed: pip install 'travois[otel]'"


class Wish(msgspec.Struct, frozen=True):
    """Options of enabled telemetry."""

    content: bool = False
    """True to export prompts, replies, and tool input and output."""
    helper: str = ""
    """A command that prints headers for the collector as JSON."""


class Place:
    """The trace and span of a session, fixed before the SDK is loaded: child processes get them."""

    def __init__(self, above: str) -> None:
        found = TRACEPARENT.fullmatch(above)
        self.above = above if found else ""
        """The parent context from our own `TRACEPARENT`."""
        self.trace = found[1] if found else os.urandom(16).hex()
        self.span = os.urandom(8).hex()

    @property
    def told(self) -> str:
        """The `TRACEPARENT` for processes that we start."""
        return f"00-{self.trace}-{self.span}-01"


def wished(settings: Settings, environ: Mapping[str, str]) -> Wish | None:
    """Return the telemetry options, or None if it is off."""
    asked = settings.telemetry or any(environ.get(name) for name in ENDPOINTS)
    if not asked or _true(environ.get("OTEL_SDK_DISABLED", "")):
        return None
    return Wish(_true(environ.get(CONTENT, "")), settings.otel_headers_helper)


def installed() -> bool:
    """Tell whether the OpenTelemetry packages are installed."""
    from importlib.util import find_spec

    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "span_only", "span_and_event")
