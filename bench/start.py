"""Start to first request, its size, and the cost of `--version`; bare Python beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.loopback import server, words
from bench.program import scratch

RUNS = 15
FLOOR = """
import http.client, json, sys, urllib.parse
where = urllib.parse.urlsplit(sys.argv[1])
line = http.client.HTTPConnection(where.hostname, where.port)
line.request("POST", "/v1/messages", json.dumps({"messages": []}))
line.getresponse().read()
"""


def main() -> None:
    ours, floor, version = [], [], []
    program = str(Path(sys.executable).parent / "travois")
    with server(words, keep_bodies=True) as (url, seen), scratch(url) as place:
        for _ in range(RUNS):
            begun = perf_counter()
            place.run()
            ours.append(seen.asked[-1] - begun)
            begun = perf_counter()
            subprocess.run([sys.executable, "-c", FLOOR, url], check=True)
            floor.append(seen.asked[-1] - begun)
            begun = perf_counter()
            subprocess.run([program, "--version"], check=True, capture_output=True)
            version.append(perf_counter() - begun)
        body = next(b for b in seen.bodies if b"system" in b)
    request = json.loads(body)
    sizes = {k: len(json.dumps(request[k], separators=(",", ":"))) for k in ("system", "tools")}
    print(f"start to first request  {median(ours) * 1000:6.0f} ms   (best {min(ours) * 1000:.0f})")
    print(
        f"bare Python             {median(floor) * 1000:6.0f} ms   ratio {median(ours) / median(floor):.2f}"
    )
    print(f"--version               {median(version) * 1000:6.0f} ms")
    print(
        f"first request           {len(body) / 4:6.0f} tokens at 4 bytes ({len(body)} bytes: {sizes})"
    )
