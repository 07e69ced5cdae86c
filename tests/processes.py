"""The processes of this machine as /proc tells them: `ps` and `pgrep` are not everywhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from travois.ports.world import ProcessResult

COUNT = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0\\n' ' \\n' | grep -o 'sleep {}' | wc -l"
"""Counts in a shell, behind walls too, the processes that sleep for `{}` seconds."""
COUNT_PROGRAMS = (
    "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$one; echo; done 2>/dev/null"
    " | grep -c '^sleep {} $'"
)
"""The same without shells whose text has these words."""
TIMEOUTS = (1.0, 4.0, 16.0, 64.0, 256.0)
"""A loaded machine may need the longer ones to start a program at all."""


class Process(NamedTuple):
    """One process; `state` is Z for one that ended and was not waited for."""

    pid: int
    parent: int
    state: str
    command: str


async def run_past_timeout(
    run: Callable[[float], Awaitable[ProcessResult]], *, said: bytes
) -> ProcessResult:
    """Run a command that never ends until it has `said` something before its timeout."""
    for timeout in TIMEOUTS:
        done = await run(timeout)
        if said in done.output.head_and_tail():
            return done
    raise AssertionError(
        f"{said!r} was not said in {TIMEOUTS[-1]} s: {done.output.head_and_tail()!r}"
    )


def children(parent: int) -> list[Process]:
    """The processes that this one has started or adopted, oldest first."""
    return [one for one in processes() if one.parent == parent]


def running(command: str) -> list[int]:
    """The processes whose command line begins with this."""
    return [one.pid for one in processes() if one.command.startswith(command)]


def processes() -> list[Process]:
    """All processes, by their numbers."""
    return sorted(_all())


def _all() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text(errors="replace")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        command = b" ".join(words).decode(errors="replace").strip()
        yield Process(int(folder.name), int(parent), state, command)
