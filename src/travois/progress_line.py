"""What takes long, named on a terminal's standard error with its size and time."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic

from travois.core.display_text import clean_for_terminal

QUIET_SECONDS = 2.0
"""Seconds that work may take before it is named."""
REDRAW_SECONDS = 1.0
LINE_SECONDS = (2.0, 10.0, 30.0)
"""Seconds after which whole lines say that work goes on; then every minute."""
LINE_INTERVAL_SECONDS = 60.0


class ProgressLine:
    """A line that says what goes on and for how long; nothing where nobody watches.

    It is redrawn in place, or, as `whole_lines` for screen readers, written anew now and then.
    A thread of its own keeps the time: the work may block.
    """

    def __init__(self, *, whole_lines: bool = False) -> None:
        self._whole_lines = whole_lines
        self.is_watched = sys.stderr.isatty()
        """True if standard error is a terminal."""
        self._name = self._size = ""
        self._began = 0.0
        self._is_drawn = False
        self._written = 0
        self._lock, self._over = Lock(), Event()
        self._thread: Thread | None = None

    def __enter__(self) -> ProgressLine:
        """Return the line; at the end it is removed."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the line for good."""
        self.clear()
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def show(self, text: str) -> None:
        """Say what goes on from now, as `name` or `name: size`; the time is that of the name."""
        if not self.is_watched:
            return
        name, _, size = text.partition(": ")
        with self._lock:
            if name != self._name:
                self._name, self._began, self._written = name, monotonic(), 0
            self._size = size
        if self._thread is None:
            self._thread = Thread(target=self._keep_drawing, daemon=True)
            self._thread.start()

    def clear(self) -> None:
        """Remove the line, before anything else is written; it returns with the next text."""
        with self._lock:
            self._name = ""
            if self._is_drawn:
                with suppress(OSError):
                    sys.stderr.write("\r\x1b[K")
                    sys.stderr.flush()
            self._is_drawn = False

    def _keep_drawing(self) -> None:
        with suppress(OSError):  # the terminal is gone
            while not self._over.wait(REDRAW_SECONDS):
                with self._lock:
                    self._draw(monotonic() - self._began)

    def _draw(self, seconds: float) -> None:
        if not self._name or seconds < QUIET_SECONDS:
            return
        text = " · ".join(part for part in (self._name, self._size, f"{seconds:.0f} s") if part)
        text = clean_for_terminal(text)
        if not self._whole_lines:
            sys.stderr.write(f"\r{text[: _find_columns() - 1]}\x1b[K")
            self._is_drawn = True
        elif seconds >= self._next_line_seconds():
            sys.stderr.write(f"· {text}\n")
            self._written += 1
        sys.stderr.flush()

    def _next_line_seconds(self) -> float:
        """Return how long the work has taken when its next whole line is due."""
        if self._written < len(LINE_SECONDS):
            return LINE_SECONDS[self._written]
        return (self._written - len(LINE_SECONDS) + 1) * LINE_INTERVAL_SECONDS


def _find_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
