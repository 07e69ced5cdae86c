"""A session of 10,000 turns in a window of 200K tokens, and what it costs to resume it.

The log is the one that the program wrote: compacted when the window was full, as a real one is.
Bare Python beside the resume reads and decodes the same log line by line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.loopback import Seen, call, server, words
from bench.program import Scratch, scratch

TURNS = 10_000
WINDOW = 200_000
LINES_OF_OUTPUT = 150
NEAR = 500
"""How many turns are taken together for a figure."""
FLOOR = """
import json, sys
with open(sys.argv[1], "rb") as file:
    for line in file:
        json.loads(line)
"""


def main() -> None:
    served: list[Seen] = []

    def answer(number: int) -> bytes:
        if number > TURNS:
            return words(number)
        command = {"command": f"echo {number}; seq {LINES_OF_OUTPUT}"}
        return call(number, "Bash", command, prompt=served[0].sizes[-1] // 4)

    with server(answer) as (url, seen), scratch(url) as place:
        served.append(seen)
        place.home.mkdir()
        (place.home / "settings.json").write_text(json.dumps({"context": {"window": WINDOW}}))
        begun = perf_counter()
        place.run("--permission-mode", "bypass", "--no-sandbox")
        print(f"{TURNS} turns in one process: {perf_counter() - begun:.0f} s")
        gaps = seen.gaps()
        early, late = median(gaps[NEAR : 2 * NEAR]), median(gaps[-NEAR:])
        print(f"  a turn, early {early:6.2f} ms   late {late:6.2f} ms   ratio {late / early:4.2f}")
        log = next(place.home.glob("sessions/*/*/log.jsonl"))
        with log.open("rb") as file:
            lines = sum(1 for _ in file)
        print(f"log: {lines} lines, {log.stat().st_size / 1e6:.0f} MB")
        floor = _read_bare(log)
        (log.parent / "checkpoint").unlink(missing_ok=True)
        for label in ("without a checkpoint", "with one"):
            _resume(place, seen, label=label, floor=floor)


def _read_bare(log: Path) -> float:
    """The seconds that bare Python takes to decode a log."""
    begun = perf_counter()
    subprocess.run([sys.executable, "-c", FLOOR, str(log)], check=True)
    return perf_counter() - begun


def _resume(place: Scratch, seen: Seen, *, label: str, floor: float) -> None:
    begun, before = perf_counter(), len(seen.asked)
    child = place.start("--continue", "--no-sandbox")
    assert child.stdout is not None
    child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    if status:
        raise SystemExit("the resume failed")
    first = seen.asked[before] - begun
    print(
        f"  {label:20}  first request {first:6.2f} s ({first / floor:4.2f} of bare Python's read)"
        f"  CPU {used.ru_utime + used.ru_stime:6.2f} s  peak (RSS) {used.ru_maxrss / 1024:4.0f} MB"
        f"  first body {seen.sizes[before] / 1e6:.1f} MB"
    )
