"""The library's first module, for one more version: `from travois import Session` is the new way.

`travois.sdk.Session` yields the entries of the log itself from `run`. Names here are deprecated
since 0.1 and go with 0.2 (docs/sdk.md, Versions).
"""

from __future__ import annotations

import warnings
from importlib import import_module

MOVED_NAMES = {
    "Listener": ("travois.hooks.config", "Listener"),
    "Options": ("travois.compose.options", "Options"),
    "Session": ("travois.compose.live_session", "LiveSession"),
    "is_turn_end": ("travois.compose.live_session", "is_turn_end"),
    "Tool": ("travois.ports.tool", "Tool"),
    "typed_text": ("travois.compose.live_session", "typed_text"),
}


def __getattr__(name: str) -> object:
    """Return a name of the first version, with a warning that it will go."""
    if name not in MOVED_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"travois.sdk.{name} is deprecated and goes with 0.2; see docs/sdk.md"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    module, attribute = MOVED_NAMES[name]
    return getattr(import_module(module), attribute)
