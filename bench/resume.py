"""Resuming long logs that were never compacted: time to the first request, CPU and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter

from bench.loopback import server, words
from bench.program import scratch

TURNS = 10_000
MILLION = 250_000
"""How many turns make a log of a million lines."""
MAKE = """
import sys
from pathlib import Path
from travois.core.content import Call, Text
from travois.core.facts import Assistant, Decided, Ended, Entry, Result, Sent, User
from travois.core.models import Usage
from travois.sessions import log_line as line
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog

folder, turns = Path(sys.argv[1]), int(sys.argv[2])
with SessionLog.open(folder) as log:
    seq = max(entry.seq for entry in log.read())
file = (folder / LOG_FILE_NAME).open("ab", buffering=1 << 20)

def say(fact):
    global seq
    seq += 1
    file.write(line.encode_entry(Entry(seq, 1.7e9 + seq, fact))[1])

for n in range(turns):
    if n % 40 == 0:
        say(User((Text(f"Look at module {n}."),)))
    say(Sent(2 * n + 2, f"{n:032x}", f"{n:032x}", 16_000 + 250 * n))
    call = Call(f"toolu_{n}", "Bash", '{"command":"grep -rn needle src/module_%d"}' % n)
    say(Assistant((call,), "calls", Usage(input=5, read=60 * n, write=60, output=40)))
    say(Decided(call.id, "allow", "rule: allow Bash"))
    say(Result(call.id, (Text(f"src/module_{n}.py:12: needle\\n"),), lines=1))
    if n % 40 == 39:
        say(Assistant((Text("Done."),), "end", Usage(input=5, output=4)))
        say(Ended("end"))
file.close()
"""


def main() -> None:
    for turns in (TURNS, MILLION):
        _measure(turns)


def _measure(turns: int) -> None:
    """Resume twice: the first time without a checkpoint beside the log, the second time with it."""
    with server(words) as (url, seen), scratch(url) as place:
        place.run()
        log = next(place.home.glob("sessions/*/*/log.jsonl"))
        subprocess.run([sys.executable, "-c", MAKE, str(log.parent), str(turns)], check=True)
        with log.open("rb") as file:
            lines = sum(1 for _ in file)
        print(f"log: {lines} lines, {log.stat().st_size / 1e6:.0f} MB, never compacted")
        for label in ("without a checkpoint", "with one"):
            begun, before = perf_counter(), len(seen.asked)
            child = place.start("--continue")
            assert child.stdout is not None
            child.stdout.read()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = status
            if status:
                raise SystemExit("the resume failed")
            print(
                f"  {label:20}  first request {seen.asked[before] - begun:6.2f} s"
                f"  whole run {perf_counter() - begun:6.2f} s"
                f"  CPU {used.ru_utime + used.ru_stime:6.2f} s"
                f"  peak (RSS) {used.ru_maxrss / 1024:4.0f} MB"
                f"  first body {seen.sizes[before] / 1e6:.1f} MB"
            )
