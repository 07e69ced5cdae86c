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


def main() -> None:
    with server(words) as (url, seen), scratch(url) as place:
        place.run()
        log = next(place.home.glob("sessions/*/*/log.jsonl"))
        subprocess.run([sys.executable, "-c", MAKE, str(log.parent), str(TURNS)], check=True)
        begun = perf_counter()
        child = place.start("--continue")
        memory = peak(child)
        if child.returncode:
            raise SystemExit("the resume failed")
        first = next(n for n, at in enumerate(seen.asked) if at > begun)
        print(f"log: {TURNS} turns, {log.stat().st_size / 1e6:.1f} MB")
        print(f"resume to first request  {seen.asked[first] - begun:6.2f} s")
        print(
            f"peak memory (PSS)        {memory:6.0f} MB   request {seen.sizes[first] / 1e6:.1f} MB"
        )
