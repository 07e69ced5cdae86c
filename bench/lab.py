"""The lab as a server: how many requests a second one core answers, and what a megabyte costs.

The server is a process of its own, held to one core. Requests per core-second count its processor
time alone, so that a busy machine does not count against it; wall time is printed beside it.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

HEADERS = {"x-api-key": "bench", "anthropic-version": "2026-10-21"}
SIZES = ((1, 400), (100, 400), (1000, 40), (3000, 15))
WANTED = 200
"""Requests of 100 kB that one core must answer in a second."""


def request(kilobytes: int, *, opening: str = "", more: int = 0) -> bytes:
    """A conversation of that size and `more` turns: calls and results, as a coding agent sends it."""
    messages: list[dict[str, object]] = [{"role": "user", "content": f"fix the test {opening}"}]
    for i in range(max(1, kilobytes // 2) + more):
        id = f"t{opening}_{i}"
        use = {"type": "tool_use", "id": id, "name": "read", "input": {"path": f"src/{i}.py"}}
        result = {"type": "tool_result", "tool_use_id": id, "content": "x = 1\n" * 300}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = {"model": "claude-opus-5-5", "max_tokens": 100, "stream": True, "messages": messages}
    return msgspec.json.encode({**body, "cache_control": {"type": "ephemeral"}})


def growing(kilobytes: int, count: int) -> list[bytes]:
    """One conversation that gets longer, a turn at a time, around that size."""
    turns = min(count, max(1, kilobytes // 4))
    start = kilobytes - turns
    return [request(start, more=i % turns, opening=str(i // turns)) for i in range(count)]


def unrelated(kilobytes: int, count: int) -> list[bytes]:
    """Conversations that have nothing in common."""
    return [request(kilobytes, opening=str(i)) for i in range(count)]


@contextmanager
def lab() -> Iterator[tuple[int, int]]:
    """A lab in a process of its own; gives its process id and port."""
    script = Path(__file__).with_name("lab_script.json")
    command = [sys.executable, "-m", "travois_lab", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        try:
            yield process.pid, int(url.rpartition(":")[2])
        finally:
            process.kill()


def processor(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def decoding(body: bytes) -> float:
    """Processor seconds to decode a body and no more, on this machine as busy as it is."""
    start = time.process_time()
    for _ in range(20):
        msgspec.json.decode(body)
    return (time.process_time() - start) / 20


def measure(name: str, bodies: list[bytes]) -> float:
    """Print one row; returns requests per core-second."""
    with lab() as (pid, port):
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def ask(body: bytes) -> None:
            connection.request("POST", "/v1/messages", body, HEADERS)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()

        for body in bodies[:3]:
            ask(body)
        busy, start = processor(pid), time.perf_counter()
        for body in bodies:
            ask(body)
        wall, busy = time.perf_counter() - start, processor(pid) - busy
        connection.close()
    count, size = len(bodies), sum(map(len, bodies)) / len(bodies)
    print(
        f"{size / 1000:6.0f} kB {name:10} {count / busy:6.0f} per core-second "
        f"{busy / count * 1000:7.2f} ms processor {wall / count * 1000:7.2f} ms wall "
        f"{busy / count / decoding(bodies[-1]):6.1f}x the bare decoding"
    )
    return count / busy


def main() -> None:
    for kilobytes, count in SIZES:
        for name, make in (("growing", growing), ("unrelated", unrelated)):
            rate = measure(name, make(kilobytes, count))
            if kilobytes == 100:
                verdict = "enough" if rate >= WANTED else "TOO FEW"
                print(f"          {verdict}: {WANTED} per second are wanted at 100 kB")


if __name__ == "__main__":
    main()
