"""A worker process that takes snapshots of large trees, so that a session can go on meanwhile.

It reads requests, one line of JSON each, and reports progress and results. It ends at once when the
session does: a half-finished snapshot leaves the store unchanged.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from errno import EPIPE
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

import msgspec
from msgspec.structs import replace

from travois.sessions import blobs
from travois.snapshots.take import SnapshotLimits, SnapshotRequest, TakenSnapshot, WatchedTree

WORKER_COMMAND = (sys.executable, "-I", "-m", "travois.snapshots.worker")


class SnapshotWorker:
    """A process that scans a tree, and keeps watching it. Raises OSError if none starts."""

    def __init__(self, path: Path, own: bytes, limits: SnapshotLimits) -> None:
        blobs.make_folders(path.parent)
        self._busy = Lock()
        self._number = 0
        self._process = subprocess.Popen(
            WORKER_COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=path.parent,
            start_new_session=True,
        )
        self._send(WorkerSetup(str(path), own, limits))

    @property
    def is_alive(self) -> bool:
        """True if it still runs."""
        return self._process.poll() is None

    def prepare(self, wanted: SnapshotRequest) -> None:
        """Let it scan everything once, without waiting for it. Raises OSError."""
        with self._busy:
            self._send_request(wanted)

    def take(self, wanted: SnapshotRequest, heed: Callable[[int], None]) -> TakenSnapshot:
        """Take a snapshot. Raises OSError."""
        with self._busy:
            reply = self._receive_reply(self._send_request(wanted), heed)
        if reply.taken is None:
            raise OSError(reply.errno, reply.error)
        return reply.taken

    def close(self) -> None:
        """Kill it, whatever it is doing."""
        self._process.kill()
        self._process.communicate()

    def _send(self, message: WorkerSetup | SnapshotRequest) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def _send_request(self, wanted: SnapshotRequest) -> int:
        self._number += 1
        self._send(replace(wanted, number=self._number))
        return self._number

    def _receive_reply(self, number: int, heed: Callable[[int], None]) -> WorkerReply:
        """Return the reply to one request, skipping replies that nobody waits for."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            reply = msgspec.json.decode(line, type=WorkerReply)
            if reply.number == number:
                return reply
            if reply.count:
                heed(reply.count)
        raise OSError(EPIPE, "the snapshot worker process has ended")


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
