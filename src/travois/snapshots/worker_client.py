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
from travois.snapshots.take import Limits, Taken, Wanted
from travois.snapshots.worker import Reply, Started

PROGRAM = (sys.executable, "-I", "-m", "travois.snapshots.worker")


class Worker:
    """A process that scans a tree, and keeps watching it. Raises OSError if none starts."""

    def __init__(self, path: Path, own: bytes, limits: Limits) -> None:
        blobs.make_folders(path.parent)
        self._busy = Lock()
        self._number = 0
        self._process = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=path.parent,
            start_new_session=True,
        )
        self._send(Started(str(path), own, limits))

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def prepare(self, wanted: Wanted) -> None:
        """Let it scan everything once, without waiting for it. Raises OSError."""
        with self._busy:
            self._ask(wanted)

    def take(self, wanted: Wanted, heed: Callable[[int], None]) -> Taken:
        """Take a snapshot. Raises OSError."""
        with self._busy:
            reply = self._receive(self._ask(wanted), heed)
        if reply.taken is None:
            raise OSError(reply.errno, reply.error)
        return reply.taken

    def close(self) -> None:
        """Kill it, whatever it is doing."""
        self._process.kill()
        self._process.communicate()

    def _send(self, message: Started | Wanted) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def _ask(self, wanted: Wanted) -> int:
        self._number += 1
        self._send(replace(wanted, number=self._number))
        return self._number

    def _receive(self, number: int, heed: Callable[[int], None]) -> Reply:
        """Return the reply to one request, skipping replies that nobody waits for."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            reply = msgspec.json.decode(line, type=Reply)
            if reply.number == number:
                return reply
            if reply.count:
                heed(reply.count)
        raise OSError(EPIPE, "the snapshot worker process has ended")
