"""A worker process that takes snapshots of large trees, so that a session can go on meanwhile.

It reads requests, one line of JSON each, and reports progress and results. It ends at once when the
session does: a half-finished snapshot leaves the store unchanged.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import msgspec

from travois.snapshots.take import SnapshotLimits, SnapshotRequest, TakenSnapshot, WatchedTree

PROGRESS_INTERVAL_SECONDS = 0.1
"""Seconds between two progress reports."""


class WorkerSetup(msgspec.Struct, frozen=True):
    """The tree and the limits of a worker, its first input line."""

    path: str
    own: bytes
    limits: SnapshotLimits


class WorkerReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A progress report, a snapshot that was taken, or an error."""

    number: int = 0
    """The number of the request that it answers."""
    count: int = 0
    taken: TakenSnapshot | None = None
    error: str = ""
    errno: int = 0


def main() -> None:
    """Take one snapshot after the other, until standard input ends."""
    gc.disable()  # a hundred thousand lasting small objects without cycles
    started = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSetup)
    tree = WatchedTree(Path(started.path), started.own, limits=started.limits, listens=True)
    waiting: SimpleQueue[SnapshotRequest] = SimpleQueue()
    Thread(target=_read_requests, args=(waiting,), daemon=True).start()
    while True:
        wanted = waiting.get()
        try:
            _send_reply(
                WorkerReply(wanted.number, taken=tree.take(wanted, heed=_ProgressReporter()))
            )
            if waiting.empty():  # no request waits
                tree.save_seen()
        except OSError as error:
            why = error.strerror or str(error)
            _send_reply(WorkerReply(wanted.number, error=why, errno=error.errno or 0))


def _read_requests(waiting: SimpleQueue[SnapshotRequest]) -> None:
    """Pass requests from standard input to the snapshot worker; exit when the input ends."""
    for line in sys.stdin.buffer:
        waiting.put(msgspec.json.decode(line, type=SnapshotRequest))
    os._exit(0)


class _ProgressReporter:
    """Reports the number of visited files at intervals."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_INTERVAL_SECONDS

    def __call__(self, count: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_INTERVAL_SECONDS
            _send_reply(WorkerReply(count=count))


def _send_reply(reply: WorkerReply) -> None:
    """Write a reply of the snapshot worker to standard output; exit if nobody reads it."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main()
