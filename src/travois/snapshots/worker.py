"""A process of its own that takes snapshots of large trees, so that a session can go on meanwhile.

It reads what is wanted, one line of JSON each, and tells how far it is and what it has taken. It
ends at once when the session does: a snapshot that is half done leaves the store as it was.
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

from travois.snapshots.take import Limits, Taken, Tree, Wanted

OFTEN = 0.1
"""How many seconds pass between two words on how far it is."""


class Started(msgspec.Struct, frozen=True):
    """What a worker is for."""

    path: str
    own: bytes
    limits: Limits


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far it is, what it has taken, or why it could not."""

    number: int = 0
    """Of the request that it answers."""
    count: int = 0
    taken: Taken | None = None
    error: str = ""
    errno: int = 0


def main() -> None:
    """Take one snapshot after the other, until nobody wants any more."""
    gc.disable()  # a hundred thousand small objects that live on, and no cycles among them
    started = msgspec.json.decode(sys.stdin.buffer.readline(), type=Started)
    tree = Tree(Path(started.path), started.own, limits=started.limits, listens=True)
    waiting: SimpleQueue[Wanted] = SimpleQueue()
    Thread(target=_read, args=(waiting,), daemon=True).start()
    while True:
        wanted = waiting.get()
        try:
            _say(Reply(wanted.number, taken=tree.take(wanted, heed=_Teller())))
            if waiting.empty():  # nobody waits for this
                tree.remember()
        except OSError as error:
            why = error.strerror or str(error)
            _say(Reply(wanted.number, error=why, errno=error.errno or 0))


def _read(waiting: SimpleQueue[Wanted]) -> None:
    for line in sys.stdin.buffer:
        waiting.put(msgspec.json.decode(line, type=Wanted))
    os._exit(0)


class _Teller:
    """Says now and then how many files were looked at."""

    def __init__(self) -> None:
        self._next = time.monotonic() + OFTEN

    def __call__(self, count: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + OFTEN
            _say(Reply(count=count))


def _say(reply: Reply) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main()
