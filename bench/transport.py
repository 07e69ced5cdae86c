"""What a request costs on the way: our own transport beside httpx2, in one run.

The server is another process, so that all CPU time measured here is the client's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter, process_time

import anyio

from bench.loopback import sse
from travois.core.models import ModelCard
from travois.providers.catalog import ModelEndpoint
from travois.providers.client import HttpModel
from travois.providers.http.client import DirectTransport, Transport
from travois.providers.request import Request
from travois.providers.stream_reader import create_reply_reader

ROUNDS = 7
REQUESTS = 100
EVENTS = 10_000
CARD = ModelCard(provider="bench", id="m", protocol="anthropic")
SERVER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
size = int(sys.stdin.buffer.readline())
start, delta, end = (sys.stdin.buffer.read(int(sys.stdin.buffer.readline())) for _ in range(3))
head = b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n"
def chunk(data): return b"%x\\r\\n%b\\r\\n" % (len(data), data)
def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until: pass
while True:
    line, _ = listener.accept()
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    held = b""
    while True:
        while b"\\r\\n\\r\\n" not in held:
            data = line.recv(1 << 20)
            if not data: break
            held += data
        asked, _, held = held.partition(b"\\r\\n\\r\\n")
        if not asked: break
        words = asked.lower().split(b"\\r\\n")
        need = next(int(w[15:]) for w in words if w.startswith(b"content-length:"))
        while len(held) < need: held += line.recv(1 << 20)
        held = held[need:]
        kind = asked.split(b" ")[1].rpartition(b"/")[2]
        try:
            if kind == b"short":
                line.sendall(head + chunk(start) + chunk(delta) + chunk(end) + b"0\\r\\n\\r\\n")
            elif kind == b"burst":
                line.sendall(head + chunk(start) + chunk(delta) * size + chunk(end) + b"0\\r\\n\\r\\n")
            else:
                line.sendall(head + chunk(start))
                for _ in range(size):
                    line.sendall(chunk(delta))
                    spin(0.00015)
                line.sendall(chunk(end) + b"0\\r\\n\\r\\n")
        except OSError:
            break
    line.close()
"""
IMPORT = (
    "import sys, time; t = time.process_time(); import {}; print((time.process_time() - t) * 1000)"
)


def events() -> tuple[bytes, bytes, bytes]:
    """The first events of a reply, one that is repeated, and the last."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": " word"}
    return (
        sse(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
        ),
        sse({"type": "content_block_delta", "index": 0, "delta": delta}),
        sse(
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ),
    )


@contextmanager
def server() -> Iterator[str]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe) as child:
        assert child.stdin is not None and child.stdout is not None
        port = int(child.stdout.readline())
        child.stdin.write(b"%d\n" % EVENTS)
        for part in events():
            child.stdin.write(b"%d\n%b" % (len(part), part))
        child.stdin.flush()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            child.kill()


async def spend(transport: Transport, url: str, kind: str, *, times: int, size: int = 500) -> float:
    """CPU seconds of this process for one request of that kind, on a kept connection."""
    model = HttpModel(CARD, ModelEndpoint(url, (), "none"), transport)
    request = Request(f"/{kind}", (), b"x" * size, pieces=1, chain="", digest="")
    spent = 0.0
    for turn in range(times + 1):
        begun = process_time()
        async with model.stream(request) as stream:
            async for _ in stream:
                pass
        spent += process_time() - begun if turn else 0.0
    await transport.aclose()
    return spent / times


def parsing() -> float:
    """CPU seconds to make sense of the events alone."""
    start, delta, end = events()
    begun = process_time()
    reading = create_reply_reader(CARD, size=1)
    for part in (start, *(delta for _ in range(EVENTS)), end):
        reading.feed(part)
    reading.finish()
    return process_time() - begun


def beside(measure: Callable[[type[Transport]], float], name: str, unit: str, scale: float) -> None:
    from travois.providers.http.proxy import ProxyTransport

    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(measure(DirectTransport) * scale)
        theirs.append(measure(ProxyTransport) * scale)
    a, b = median(ours), median(theirs)
    print(f"{name:34} Direct {a:8.2f} {unit}   httpx2 {b:8.2f} {unit}   ratio {b / a:5.2f}")


def imports() -> None:
    found: dict[str, list[float]] = {
        "travois.providers.http.client": [],
        "travois.providers.http.proxy": [],
    }
    for _ in range(ROUNDS):
        for name, times in found.items():
            done = subprocess.run(
                [sys.executable, "-c", IMPORT.format(name)], capture_output=True, check=True
            )
            times.append(float(done.stdout))
    a, b = (median(times) for times in found.values())
    print(f"{'import (CPU)':34} Direct {a:8.2f} ms   httpx2 {b:8.2f} ms   ratio {b / a:5.2f}")


def trust() -> None:
    from travois.providers.http.tls import create_full_tls_context, create_tls_contexts

    def took(make: Callable[[], object]) -> float:
        begun = perf_counter()
        make()
        return (perf_counter() - begun) * 1000

    first = median(took(lambda: next(create_tls_contexts(os.environ))) for _ in range(ROUNDS))
    every = median(took(lambda: create_full_tls_context(os.environ)) for _ in range(ROUNDS))
    print(f"{'certificates':34} lazily {first:8.2f} ms   at once {every:7.2f} ms")


def main() -> None:
    imports()
    trust()
    with server() as url:

        def of(kind: str, times: int, size: int = 500) -> Callable[[type[Transport]], float]:
            def measure(made: type[Transport]) -> float:
                return anyio.run(lambda: spend(made(), url, kind, times=times, size=size))

            return measure

        beside(of("short", REQUESTS), "one small request (CPU)", "ms", 1000)
        beside(of("short", 20, 3_000_000), "one request of 3 MB (CPU)", "ms", 1000)
        beside(of("burst", 1), "10,000 events in a burst (CPU)", "ms", 1000)
        beside(of("paced", 1), "10,000 events one by one (CPU)", "ms", 1000)
    alone = median(parsing() for _ in range(ROUNDS)) * 1000
    print(f"{'10,000 events, parsing alone':34} {alone:15.2f} ms")


if __name__ == "__main__":
    main()
