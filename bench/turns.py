"""What a trivial shell turn costs, and that the 5,000th costs what the 10th did."""

from __future__ import annotations

import resource
import subprocess
from statistics import median
from time import perf_counter

from bench.loopback import server, shell, words
from bench.program import scratch

TURNS = 5_000
POINTS = (10, 100, 1_000, 5_000)
WINDOW = 50


def main() -> None:
    print("200 turns:")
    _short(200)
    print(f"{TURNS} turns in one session:")
    _long()
    _floor()


def _short(turns: int) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (
        server(lambda n: shell(n) if n <= turns else words(n)) as (url, seen),
        scratch(url) as place,
    ):
        child = place.start("--permission-mode", "bypass")
        memory = peak(child)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / turns
    gaps = seen.gaps()[:turns]
    print(f"  overhead per turn, command included  {median(gaps):6.2f} ms (median)")
    print(f"  CPU per turn, children included      {cpu:6.2f} ms (start-up spread over them)")
    print(f"  peak memory (PSS)                    {memory:6.1f} MB")


def _long() -> None:
    with (
        server(lambda n: shell(n) if n <= TURNS else words(n)) as (url, seen),
        scratch(url) as place,
    ):
        place.run("--permission-mode", "bypass")
    gaps = seen.gaps()
    base = 0.0
    for point in POINTS:
        near = gaps[max(0, point - WINDOW) : point] if point > WINDOW else gaps[:WINDOW]
        value = median(near)
        base = base or value
        size = seen.sizes[min(point, len(seen.sizes) - 1)]
        print(
            f"  at turn {point:>5}: {value:6.2f} ms  ratio {value / base:4.2f}  body {size / 1e6:.2f} MB"
        )


def _floor() -> None:
    times = []
    for _ in range(200):
        begun = perf_counter()
        subprocess.run(["/bin/bash", "-c", "true"], capture_output=True, check=True)
        times.append((perf_counter() - begun) * 1000)
    print(f"bare subprocess.run(bash -c true)      {median(times):6.2f} ms")


def peak(child: subprocess.Popen[bytes]) -> float:
    """The largest share of memory seen while it ran, in MB."""
    highest = 0
    while child.poll() is None:
        try:
            with open(f"/proc/{child.pid}/smaps_rollup", encoding="ascii") as file:
                pss = [int(line.split()[1]) for line in file if line.startswith("Pss:")]
                highest = max(highest, *pss)
        except (OSError, ValueError):
            break
        try:
            child.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    child.communicate()
    return highest / 1024
