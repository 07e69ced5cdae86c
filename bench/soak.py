"""A long session of trivial calls: CPU and memory of the program at its start and at its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from bench.loopback import server, shell, words
from bench.program import scratch

CALLS = 3_000
SHARE = 10
"""The first and the last tenth are compared."""


def main() -> None:
    children: list[int] = []
    seen: list[tuple[float, float]] = []

    def answer(number: int) -> bytes:
        if children:
            seen.append(_used(children[0]))
        return shell(number) if number <= CALLS else words(number)

    with server(answer) as (url, _), scratch(url) as place:
        child = place.start("--permission-mode", "bypass")
        children.append(child.pid)
        child.communicate()
        if child.returncode:
            sys.exit("the session failed")
    some = len(seen) // SHARE
    first, last = seen[some : 2 * some], seen[-some:]
    early, late = (_per_call(part) for part in (first, last))
    print(f"{len(seen)} requests; the program's own CPU per call, without its commands:")
    print(
        f"  calls {some} to {2 * some}   {early * 1000:6.2f} ms   {_memory(first):6.1f} MB resident"
    )
    print(f"  the last {some}     {late * 1000:6.2f} ms   {_memory(last):6.1f} MB resident")
    print(f"  ratio            {late / early:6.2f}      {_memory(last) / _memory(first):6.2f}")


def _per_call(part: list[tuple[float, float]]) -> float:
    return (part[-1][0] - part[0][0]) / (len(part) - 1)


def _memory(part: list[tuple[float, float]]) -> float:
    return median(memory for _, memory in part)


def _used(pid: int) -> tuple[float, float]:
    """The seconds of CPU that a process has used itself, and its resident MB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
