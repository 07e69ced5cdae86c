"""Telemetry: what sessions do, told to an OpenTelemetry collector. Off unless it is asked for.

Nothing here is imported from `opentelemetry` before that, and the engine knows nothing of it: it
is one more watcher of a session's events, as a screen is.
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
MISSING = "telemetry was asked for and is not installed: pip install 'travois[otel]'"


class Wish(msgspec.Struct, frozen=True):
    """That telemetry is wanted, and how."""

    content: bool = False
    """Whether prompts, replies and what tools get and give are told, too."""
    helper: str = ""
    """A command that prints headers for the collector, as JSON."""


class Place:
    """Where a session stands in a trace, known before anything is loaded: programs are told."""

    def __init__(self, above: str) -> None:
        found = TRACEPARENT.fullmatch(above)
        self.above = above if found else ""
        """What was under way when we were started, as our own variable says."""
        self.trace = found[1] if found else os.urandom(16).hex()
        self.span = os.urandom(8).hex()

    @property
    def told(self) -> str:
        """The same for the variable of programs that we start."""
        return f"00-{self.trace}-{self.span}-01"


def wished(settings: Settings, environ: Mapping[str, str]) -> Wish | None:
    """What is wanted of telemetry here; none if nothing is."""
    asked = settings.telemetry or any(environ.get(name) for name in ENDPOINTS)
    if not asked or _true(environ.get("OTEL_SDK_DISABLED", "")):
        return None
    return Wish(_true(environ.get(CONTENT, "")), settings.otel_headers_helper)


def installed() -> bool:
    """Whether the packages are there that it takes."""
    from importlib.util import find_spec

    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "span_only", "span_and_event")
