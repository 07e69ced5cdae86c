"""Resuming a 10,000-turn log: time to the first request, and memory."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

from bench.loopback import server, words
from bench.program import scratch
from bench.turns import peak

TURNS = 10_000
MAKE = """
import sys
from pathlib import Path
from travois.kernel.blocks import Call, Text
from travois.kernel.facts import Assistant, Changed, Decided, Result, Sent
from travois.kernel.models import Usage
from travois.store.log import Log

log = Log.open(Path(sys.argv[1]))
list(log.read())
for n in range(int(sys.argv[2])):
    call = Call(f"toolu_{n}", "Bash", '{"command":"grep -rn needle src/module_%d"}' % n)
    log.append(Assistant((Text("Let me look."), call), "calls", Usage(input=5, read=900, output=40)))
    log.append(Decided(call.id, "allow", "rule: allow Bash"))
    log.append(Result(call.id, (Text("src/module/file.py:12: needle in the hay\\\\n" * 8),)))
    log.append(Changed("cwd", "/"))
log.append(Assistant((Text("Done."),), "end", Usage(input=5, output=4)))
"""


MILLION = 250_000
"""How many turns make a log of a million lines."""


def main() -> None:
    for turns in (TURNS, MILLION):
        _measure(turns)


def _measure(turns: int) -> None:
    """Resume twice: the first time without a checkpoint beside the log, the second time with it."""
    with server(words) as (url, seen), scratch(url) as place:
        place.run()
        log = next(place.home.glob("sessions/*/*/log.jsonl"))
        subprocess.run([sys.executable, "-c", MAKE, str(log.parent), str(turns)], check=True)
        print(f"log: {turns} turns, {log.stat().st_size / 1e6:.1f} MB, never compacted")
        for label in ("without a checkpoint", "with one"):
            begun, before = perf_counter(), len(seen.asked)
            child = place.start("--continue")
            memory = peak(child)
            if child.returncode:
                raise SystemExit("the resume failed")
            print(
                f"  {label:20}  first request {seen.asked[before] - begun:6.2f} s"
                f"  peak (PSS) {memory:4.0f} MB  request {seen.sizes[before] / 1e6:.1f} MB"
            )
