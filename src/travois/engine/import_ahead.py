"""Importing, while the first answer is awaited, what the first tool call needs.

A model takes half a second or more for its first word, and these imports a tenth of that. Nobody
waits for them: where an answer comes at once, the rest is imported when it is used, as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Event, Thread

FIRST_CALL_MODULES = (
    *("travois.providers.stream_reader", "travois.engine.tool_calls"),
    *("travois.permissions.shell.judge", "travois.permissions.shell.parse"),
    *("travois.permissions.shell.program_analyzers", "travois.permissions.shell.destruction"),
    *("travois.process.spawn", "travois.process.job", "travois.sandbox.bwrap"),
    *("travois.sandbox.guard.guard", "travois.sandbox.loopback"),
    *("travois.snapshots.take", "travois.tools.shell.denied_command", "travois.tools.output"),
    "travois.context.compaction.restore",
)
FIRST_PAUSE_SECONDS = 0.02
"""The time in which the request goes out undisturbed."""
GC_THRESHOLD = 20_000
"""The objects that a session allocates before a garbage collection."""
PAUSE_SECONDS = 0.002
"""Between two modules: the loop runs, and an answer that came is not kept waiting."""


class ImportAhead:
    """Imports modules in a thread, once, during the first wait for an answer."""

    def __init__(self, modules: Sequence[str] = FIRST_CALL_MODULES) -> None:
        self._modules = modules
        self._answered = Event()
        self._begun = False

    @contextmanager
    def during(self) -> Generator[None]:
        """Import until this block ends; only the first such block does."""
        if self._begun:
            yield
            return
        self._begun = True
        gc.freeze()  # what a start has loaded stays, so no collection needs to look at it
        gc.set_threshold(GC_THRESHOLD)
        Thread(target=self._import_all, name="travois-import", daemon=True).start()
        try:
            yield
        finally:
            self._answered.set()

    def _import_all(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        for name in self._modules:
            if self._answered.wait(pause):
                return
            import_module(name)
            pause = PAUSE_SECONDS
