"""Hangups of a closed terminal: the first ends the program cleanly, later ones are ignored.

The kernel sends a second hangup when the terminal itself goes away. Whoever waits for signals lets
go of them after the first one, so that the second would kill the program amid its last steps.
"""

from __future__ import annotations

import signal


def hold_hangups() -> None:
    """Block hangup signals (SIGHUP) until their handling is chosen."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def ignore_hangups() -> None:
    """Ignore hangup signals (SIGHUP) from now on."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
