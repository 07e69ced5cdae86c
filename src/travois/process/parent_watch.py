"""Ending this process when its parent has ended, or when its lease is lost."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from travois.core.display_text import write_stderr

PARENT_VARIABLE = "TRAVOIS_PARENT_PID"
"""The parent as the starter knows it: without it, one that died while we started is not missed."""
CHECK_SECONDS = 0.5
"""Seconds between two looks at the parent and the lease."""
GRACE_SECONDS = 15.0
"""Seconds for a clean end, until the process is left at once; its watchdog ends its children."""


def watch_parent_and_lease(*, parent: bool, lease: str) -> None:
    """Watch the parent process and lease: send this process SIGTERM once either is gone.

    A thread watches, so that neither a busy event loop nor the thread of the parent that started us
    matters (PR_SET_PDEATHSIG would fire when that thread ends).
    """
    checks: list[Callable[[], str]] = [_build_parent_check()] if parent else []
    checks += [LeaseFile(lease)] if lease else []
    threading.Thread(
        target=_watch_until_lost, args=(checks,), name="parent-watch", daemon=True
    ).start()


def _watch_until_lost(checks: list[Callable[[], str]]) -> None:
    while not (why := next(filter(None, (check() for check in checks)), "")):
        time.sleep(CHECK_SECONDS)
    write_stderr(f"travois: {why}; stopping\n")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)


def _build_parent_check() -> Callable[[], str]:
    """Return a check that tells why the parent process is gone; empty while it lives."""
    parent = int(os.environ.get(PARENT_VARIABLE) or os.getppid())
    ended = _open_end_poll(parent)
    return lambda: "the parent process ended" if os.getppid() != parent or ended() else ""


def _open_end_poll(pid: int) -> Callable[[], bool]:
    """Return a check whether the parent has ended, even if nobody has waited for it."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or gone: its number tells
        return lambda: False
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return lambda: bool(poll.poll(0))


class LeaseFile:
    """A file with the Unix time until which this run may go on; its holder replaces it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._unreadable = 0

    def __call__(self) -> str:
        """Return why the lease is lost; empty while it holds."""
        try:
            until = float(self._path.read_text("ascii"))
        except FileNotFoundError:
            return "the lease was withdrawn"
        except (OSError, ValueError):  # perhaps it is just being written
            self._unreadable += 1
            return "the lease cannot be read" if self._unreadable > 2 else ""
        self._unreadable = 0
        return "the lease has expired" if time.time() > until else ""
