"""The session's side of the worker process that takes snapshots of a large tree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from errno import EPIPE
from pathlib import Path
from threading import Lock

import msgspec
from msgspec.structs import replace

from travois.sessions import blobs
from travois.snapshots.take import SnapshotLimits, SnapshotRequest, TakenSnapshot
from travois.snapshots.worker import WorkerReply, WorkerSetup

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
